"""Estimate the time and memory of a table before it is run, from a measured speed and from stored records."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from coresift._validation import parse_budget
from coresift.data import DatasetSplits
from coresift.selection import AdaptiveCoreset, ByScore, Craig, Glister, GradMatch, phases
from coresift.training.run import device_named

from ..automatic import FORWARD_SHARE, strategies
from .protocol import Protocol, Run
from .run import clock_of, model_of
from .store import Record

_PROBE_BATCHES, _PROBE_SECONDS = 40, 5.0
_FORWARD_BATCH = 256
_PROXY_EPOCHS = 5


@dataclass(frozen=True)
class Speed:
    """Samples per second of one process in training and in forward passes, by the clock of the records."""

    training: float
    forward: float
    clock: str = "cpu"


def probe(protocol: Protocol, data: DatasetSplits, device: str = "auto", threads: int = 1, readers: int = 0) -> Speed:
    """Time a few batches of noise with the protocol's model and batch size, by the clock that measures the runs."""
    place, clock = device_named(device), clock_of(device, readers)
    seconds = time.process_time if clock == "cpu" else time.perf_counter
    model = model_of(protocol, data).to(place)
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
        run(x, y)  # the first batch is slower
        began, start, n = time.perf_counter(), seconds(), 0
        while n < _PROBE_BATCHES and (n == 0 or time.perf_counter() - began < _PROBE_SECONDS):
            run(x, y)
            n += 1
        return n * size / max(seconds() - start, 1e-9)

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return Speed(rate(step, protocol.training["batch_size"]), rate(forward, _FORWARD_BATCH), clock)
    finally:
        torch.set_num_threads(before)


def estimated_seconds(
    protocol: Protocol, runs: Sequence[Run], data: DatasetSplits, speed: Speed, records: Iterable[Record] = ()
) -> list[float]:
    """Estimate each run: the mean of its stored siblings of other seeds by the same clock, else from the speed."""
    known = defaultdict(list)
    for record in records:
        of = record["cell"]
        is_same = (of["protocol"], of["scale"]) == (protocol.version, protocol.scale)
        if is_same and record.get("clock", speed.clock) == speed.clock:
            key = of["method"], of["select_every"], of["budget"]
            known[key].append(sum(record["seconds"].values()))
    siblings = [known.get((run.method, run.select_every, run.budget)) for run in runs]
    return [
        float(np.mean(found)) if found else _seconds(protocol, run, data, speed)
        for run, found in zip(runs, siblings, strict=True)
    ]


def _innermost(strategy: Any) -> Any:
    while hasattr(strategy, "strategy"):
        strategy = strategy.strategy
    return strategy


def rows_passed(strategy: Any, n: int, size: int, every: int) -> float:
    """Estimate the cost of one selection, in samples passed through the model; 0 if it does not use the model."""
    strategy = _innermost(strategy)
    if isinstance(strategy, Craig | Glister | GradMatch):
        return 4.0 * n  # a forward pass, and three more for the greedy
    if not isinstance(strategy, AdaptiveCoreset) or strategy.reuses_norms:
        return 0.0
    factor = every / FORWARD_SHARE if strategy.pool_factor is None else strategy.pool_factor
    return min(n, factor * size)


def setup_passes(strategy: Any) -> float:
    """Cost of what is computed once in a run, in forward passes over the data: a step of a proxy costs three."""
    strategy = _innermost(strategy)
    return 3.0 * _PROXY_EPOCHS + 1.0 if isinstance(strategy, ByScore) and strategy.scores is None else 0.0


def looks_at_model(method: str) -> bool:
    """Whether a method runs the model over the data to select."""
    return rows_passed(strategies()[method], 1, 1, 1) > 0


def _seconds(protocol: Protocol, run: Run, data: DatasetSplits, speed: Speed) -> float:
    n = len(data.train)
    size = parse_budget(run.budget, n)
    strategy = strategies()[run.method]
    schedule = phases(strategy, protocol.training["epochs"], size / n)
    n_subset = schedule.total - schedule.n_full
    trained = schedule.n_full * n + n_subset * size
    n_selections = math.ceil(n_subset / run.select_every)
    passed = n_selections * rows_passed(strategy, n, size, run.select_every) + len(data.test)
    passed += setup_passes(strategy) * n
    return trained / speed.training + passed / speed.forward


def estimated_bytes(data: DatasetSplits) -> float:
    """Estimate the memory of a process: the data, float32 last-layer gradients of all samples, and PyTorch."""
    arrays = [getattr(part, name, None) for part in (data.train, data.test) for name in ("x", "y")]
    held = sum(array.nbytes for array in arrays if array is not None)
    return held + 4.0 * len(data.train) * (data.n_outputs + 512) + 4e8
