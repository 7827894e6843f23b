"""One run of a table: train as the protocol says, and give the record."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coresift import __version__
from coresift.coresets.budget import parse_budget
from coresift.data import DatasetSplits
from coresift.selection import strategy_named
from coresift.training import build_model, evaluate, train
from coresift.training.checkpoint import write_text
from coresift.training.feeds import feeds_of

from .protocol import CURVE_SAMPLES, Cell, Protocol
from .store import Record, Store

if TYPE_CHECKING:
    from torch import nn

OnEpoch = Callable[[int, int], None]  # epochs done, epochs in all

_CURVE_POINTS = 10
_CURVE_SEED = 31


def run_cell(
    cell: Cell,
    protocol: Protocol,
    data: DatasetSplits,
    store: Store,
    *,
    device: str = "auto",
    readers: int = 0,
    on_epoch: OnEpoch | None = None,
) -> Record:
    """Train, append the record to the store, drop the checkpoints. A killed run goes on where it was.

    Seconds are those of the processor if all of the run is on it: then other work on the machine does not count.
    """
    import torch

    settings = dict(protocol.training)
    options = settings.pop("model_options")
    model = build_model(
        settings.pop("model"),
        n_classes=data.n_outputs,
        input_shape=data.input_shape,
        seed=cell.seed,
        **options,
    )
    n_train = len(data.train)
    on_processor = device == "cpu" or (device == "auto" and not _has_accelerator())
    folder = store.cell_folder(cell)
    folder.mkdir(parents=True, exist_ok=True)
    look = _Curve(folder / "curve.json", model, data, readers, on_epoch)
    result = train(
        model,
        data,
        strategy_named(cell.method),
        parse_budget(cell.budget, n_train),
        select_every=cell.select_every,
        seed=cell.seed,
        device="cpu" if on_processor else device,
        clock="cpu" if on_processor and not readers else "wall",  # readers are processes of their own
        workers=readers,
        out=folder / "run",
        on_epoch=look,
        **settings,
    )
    assert result.test is not None
    record = {
        "id": cell.id,
        "cell": vars(cell),
        "config": protocol.config,
        "test": result.test,
        "seconds": result.seconds.rounded(),
        "clock": result.seconds.clock,
        "n_epochs": result.n_epochs,
        "subset_size": result.subset_size,
        "n_train": n_train,
        "curve": look.points(),
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
    store.clear(cell)
    return record


class _Curve:
    """Test accuracy a few times on the way, for the figure only: nothing is chosen by it, and its time is not counted.

    It looks at a fixed random part of the test set. The file is beside the checkpoints, so that a run that goes on
    after a kill has the points from before.
    """

    def __init__(
        self, file: Path, model: nn.Module, data: DatasetSplits, readers: int, on_epoch: OnEpoch | None
    ) -> None:
        self.file, self.model, self.on_epoch = file, model, on_epoch
        self.data, self.readers = data, readers
        self.feed: Any = None

    def __call__(self, metrics: dict[str, Any]) -> None:
        epoch, n_epochs = metrics["epoch"], metrics["n_epochs"]
        if epoch % max(1, n_epochs // _CURVE_POINTS) == 0 or epoch == n_epochs:
            found = dict(self.points())
            found[epoch] = round(evaluate(self.model, self._test(), "cross_entropy")["accuracy"], 6)
            write_text(self.file, json.dumps(sorted(found.items())))
        if self.on_epoch is not None:
            self.on_epoch(epoch, n_epochs)

    def points(self) -> list[list[Any]]:
        """(epoch, accuracy), in order."""
        try:
            found = json.loads(self.file.read_text(encoding="utf-8"))
            return [[int(epoch), float(accuracy)] for epoch, accuracy in found]
        except (FileNotFoundError, ValueError, TypeError):
            return []

    def _test(self) -> Any:
        if self.feed is None:
            place = next(self.model.parameters()).device
            whole = feeds_of(self.data, None, None, False, place, self.readers)[1]
            assert whole is not None
            n = min(CURVE_SAMPLES, len(whole))
            rows = np.random.default_rng(_CURVE_SEED).choice(len(whole), n, replace=False)
            self.feed = whole.take(np.sort(rows))
        return self.feed


def _has_accelerator() -> bool:
    import torch

    return bool(torch.cuda.is_available() or torch.backends.mps.is_available())


def machine() -> dict[str, Any]:
    """What the times depend on; no names of hosts or users."""
    import torch

    processor = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        processor = names[0] if names else processor
    except OSError:
        pass
    found: dict[str, Any] = {
        "processor": processor,
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "system": platform.system(),
    }
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found["memory_gb"] = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30)
    return found
