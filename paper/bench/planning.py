"""What a table will cost, before it is run: hours and memory, from a measured speed and from records that are there."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from coresift.coresets.budget import parse_budget
from coresift.data import DatasetSplits
from coresift.selection import phases, strategy_named
from coresift.selection.variance import FORWARD_SHARE

from .protocol import Cell, Protocol
from .store import Record

_PROBE_BATCHES, _PROBE_SECONDS = 40, 5.0
_FORWARD_BATCH = 256
# What selecting costs beside its forward pass over all data, in such passes: an order of magnitude, no measurement.
_SELECTION_PASSES = {"GLISTER": 3.0, "CRAIG": 3.0, "GRADMATCH": 3.0}
_WITHOUT_MODEL = (
    *("FULL", "RANDOM", "ADAPTIVE-RANDOM", "RBF", "LAPLACIAN", "FIXED-CORESET", "COVER"),
    "ADAPTIVE-CORESET-SEEN",  # by what training computes anyway
)


@dataclass(frozen=True)
class Speed:
    """Samples a second of one process, and the clock: "cpu" is that of the processor, as in the records."""

    training: float
    forward: float
    clock: str = "cpu"


@dataclass(frozen=True)
class Estimate:
    """Seconds of one process, and bytes of one process."""

    seconds: float
    memory: float


def probe(
    protocol: Protocol, data: DatasetSplits, device: str = "auto", threads: int = 1, readers: int = 0
) -> Speed:
    """Train a few batches of noise, with the protocol's model, batch size and threads, and look at the clock.

    The clock is the one that measures the runs: that of the processor if all of a run is on it, so that other work on
    the machine does not count, else that of the wall.
    """
    import torch

    from coresift.training import build_model
    from coresift.training.run import device_named

    training = protocol.training
    options = {"n_classes": data.n_outputs, "input_shape": data.input_shape, **training["model_options"]}
    place = device_named(device)
    clock = "cpu" if place.type == "cpu" and not readers else "wall"
    seconds = time.process_time if clock == "cpu" else time.perf_counter
    model = build_model(training["model"], **options).to(place)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    generator = torch.Generator().manual_seed(0)

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    @torch.no_grad()
    def forward(x: torch.Tensor, _: torch.Tensor) -> None:
        model(x)

    def rate(run: Callable[[torch.Tensor, torch.Tensor], None], size: int) -> float:
        x = torch.randn((size, *data.input_shape), generator=generator).to(place)
        y = torch.randint(data.n_outputs, (size,), generator=generator).to(place)
        run(x, y)  # the first is slower
        began, start, n = time.perf_counter(), seconds(), 0
        while n < _PROBE_BATCHES and (n == 0 or time.perf_counter() - began < _PROBE_SECONDS):
            run(x, y)
            n += 1
        return n * size / max(seconds() - start, 1e-9)

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return Speed(rate(step, training["batch_size"]), rate(forward, _FORWARD_BATCH), clock)
    finally:
        torch.set_num_threads(before)


def estimates(
    protocol: Protocol,
    cells: Sequence[Cell],
    data: DatasetSplits,
    speed: Speed,
    records: Iterable[Record] = (),
) -> list[Estimate]:
    """One for each cell: the mean of its finished siblings of other seeds by the same clock, else by the speed."""
    known = defaultdict(list)
    for record in records:
        cell = record["cell"]
        is_same_clock = record.get("clock", speed.clock) == speed.clock
        if cell["protocol"] == protocol.version and cell["scale"] == protocol.scale and is_same_clock:
            known[cell["method"], cell["select_every"], cell["budget"]].append(
                sum(record["seconds"].values())
            )
    memory = _memory(data)
    found = []
    for cell in cells:
        siblings = known.get((cell.method, cell.select_every, cell.budget))
        seconds = float(np.mean(siblings)) if siblings else _seconds(protocol, cell, data, speed)
        found.append(Estimate(seconds, memory))
    return found


def looks_at_model(method: str) -> bool:
    """Whether a method runs the model over the data to select."""
    return method.removesuffix("-WARM") not in _WITHOUT_MODEL


def _seconds(protocol: Protocol, cell: Cell, data: DatasetSplits, speed: Speed) -> float:
    n = len(data.train)
    size = parse_budget(cell.budget, n)
    run = phases(strategy_named(cell.method), protocol.training["epochs"], size / n)
    trained = run.n_full * n + (run.total - run.n_full) * size
    selections = math.ceil((run.total - run.n_full) / cell.select_every)
    passed = selections * _passed(cell, n, size) + len(data.test)
    return trained / speed.training + passed / speed.forward


def _passed(cell: Cell, n: int, size: int) -> float:
    """Forward passes of a selection, in samples, and what takes as long as them."""
    if not looks_at_model(cell.method):
        return 0.0
    kind = cell.method.removesuffix("-WARM").removesuffix("PB")
    if kind.startswith(
        "ADAPTIVE-CORESET"
    ):  # its pool, at most: scores cost no more than the training between them
        return min(n, size * cell.select_every / FORWARD_SHARE)
    return n * (1.0 + _SELECTION_PASSES.get(kind, 1.0))


def _memory(data: DatasetSplits) -> float:
    """The data as they are held, last-layer gradients of all samples in single precision, and PyTorch itself."""
    arrays = [getattr(part, name, None) for part in (data.train, data.test) for name in ("x", "y")]
    held = sum(array.nbytes for array in arrays if array is not None)
    return held + 4.0 * len(data.train) * (data.n_outputs + 512) + 4e8
