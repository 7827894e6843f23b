"""Train one run of a table as the protocol says, and store its record."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coresift import __version__
from coresift._validation import parse_budget
from coresift.data import DatasetSplits
from coresift.selection import RBF, Warm
from coresift.training import build_model, evaluate, train
from coresift.training.checkpoint import write_text
from coresift.training.feeds import feeds_of
from coresift.training.run import device_named

from ..automatic import strategies
from .protocol import CURVE_SAMPLES, Protocol, Run
from .store import Record, Store

# the stored runs of RBF drew by keys, then its default: runs that are added to a table do, too
_AS_STORED = {"RBF": RBF(method="keys"), "RBF-WARM": Warm(RBF(method="keys"))}

OnEpoch = Callable[[int, int], None]  # epochs done, epochs in all

_CURVE_POINTS = 10
_CURVE_SEED = 31


def model_of(protocol: Protocol, data: DatasetSplits, **options: Any) -> torch.nn.Module:
    """Build the network of a protocol."""
    options |= {"n_classes": data.n_outputs, "input_shape": data.input_shape}
    return build_model(protocol.training["model"], **options, **protocol.training["model_options"])


def clock_of(device: str, readers: int) -> str:
    """Choose the clock that measures a run.

    Processor time does not count other work on the machine, but misses other devices and reader processes.
    """
    return "cpu" if device_named(device).type == "cpu" and not readers else "wall"


def run_one(
    run: Run,
    protocol: Protocol,
    data: DatasetSplits,
    store: Store,
    *,
    device: str = "auto",
    readers: int = 0,
    on_epoch: OnEpoch | None = None,
) -> Record:
    """Train, append the record to the store and remove the checkpoints; a killed run resumes."""
    settings = {name: each for name, each in protocol.training.items() if name not in ("model", "model_options")}
    model = model_of(protocol, data, seed=run.seed)
    folder = store.run_folder(run)
    folder.mkdir(parents=True, exist_ok=True)
    curve = _Curve(folder / "curve.json", model, data, readers, on_epoch)
    result = train(
        model,
        data,
        _AS_STORED.get(run.method) or strategies()[run.method],
        parse_budget(run.budget, len(data.train)),
        select_every=run.select_every,
        seed=run.seed,
        device=device,
        clock=clock_of(device, readers),
        workers=readers,
        out=folder / "run",
        on_epoch=curve,
        **settings,
    )
    assert result.test is not None
    record = {
        "id": run.id,
        "cell": vars(run),
        "config": protocol.config,
        "test": result.test,
        "seconds": result.seconds.rounded(),
        "clock": result.seconds.clock,
        "n_epochs": result.n_epochs,
        "subset_size": result.subset_size,
        "n_train": len(data.train),
        "curve": curve.points(),
        "software": {
            "coresift": __version__,
            "torch": torch.__version__.split("+")[0],
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "machine": machine(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    store.append(record)
    store.clear(run)
    return record


class _Curve:
    """The learning curve of a run, for figures: test accuracy at about ten epochs, on a fixed random subset.

    Nothing is chosen by it, and its time is not counted. It is stored beside the checkpoints, so that a resumed run
    keeps its earlier points.
    """

    def __init__(
        self, file: Path, model: torch.nn.Module, data: DatasetSplits, readers: int, on_epoch: OnEpoch | None
    ) -> None:
        self.file, self.model, self.on_epoch = file, model, on_epoch
        self.data, self.readers = data, readers
        self.feed: Any = None

    def __call__(self, metrics: dict[str, Any]) -> None:
        epoch, n_epochs = metrics["epoch"], metrics["n_epochs"]
        if epoch % max(1, n_epochs // _CURVE_POINTS) == 0 or epoch == n_epochs:
            found = dict(self.points())
            found[epoch] = round(evaluate(self.model, self._test(), "cross_entropy")["accuracy"], 6)
            write_text(self.file, json.dumps(sorted(found.items())) + "\n")
        if self.on_epoch is not None:
            self.on_epoch(epoch, n_epochs)

    def points(self) -> list[list[Any]]:
        """Return pairs of epoch and accuracy, in order."""
        try:
            found = json.loads(self.file.read_text(encoding="utf-8"))
            return [[int(epoch), float(accuracy)] for epoch, accuracy in found]
        except (FileNotFoundError, ValueError, TypeError):
            return []

    def _test(self) -> Any:
        if self.feed is None:
            device = next(self.model.parameters()).device
            whole = feeds_of(self.data, None, None, False, device, self.readers)[1]
            assert whole is not None
            n = min(CURVE_SAMPLES, len(whole))
            rows = np.random.default_rng(_CURVE_SEED).choice(len(whole), n, replace=False)
            self.feed = whole.take(np.sort(rows))
        return self.feed


def machine() -> dict[str, Any]:
    """Describe what the times depend on, without names of hosts or users."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    found: dict[str, Any] = {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "system": platform.system(),
    }
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found["memory_gb"] = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30)
    return found
