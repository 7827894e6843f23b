"""Load: hundreds of millions of draws, thousands of redraws, a thousand strategies; memory must not grow."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from coresift import RBFCoreset
from coresift.selection import SelectionContext, strategy_named

from .measure import Table, section, table

DRAWS, BATCH = 200_000_000, 200_000
REDRAWS = 10_000
STRATEGIES = 1000
ROWS = 200_000


def memory() -> Table:
    """Say what was done, how long it took, and the memory before and after."""
    X = np.random.default_rng(0).standard_t(3, (ROWS, 8)).astype(np.float32)
    estimator = RBFCoreset(bound="closed-form", random_state=0).fit(X)
    rows = [
        _line(f"{DRAWS:,} independent draws, {BATCH:,} at a time", lambda: _draws(estimator), "draw", DRAWS),
        _line(f"{REDRAWS:,} redraws of 2,000 rows, systematic", lambda: _redraws(estimator), "redraw", REDRAWS),
        _line(f"{STRATEGIES:,} strategies made, each selects once", _strategies, "strategy", STRATEGIES),
    ]
    return table(
        "load",
        f"{ROWS:,} x 8 float32, fitted once. Resident memory (VmRSS) and what Python and NumPy have allocated "
        "(tracemalloc, in a second run over a fifth of the work), after a tenth and at the end. Processor time. "
        "Wanted: neither memory grows.",
        rows,
    )


def _line(what: str, steps: Callable[[], Iterator[None]], unit: str, n: int) -> dict[str, str]:
    """Time without tracing, then the memory with it, on a fifth of the steps."""
    started = time.process_time()
    n_steps, resident = 0, []
    for _ in steps():
        n_steps += 1
        resident.append(_resident())
    spent = time.process_time() - started
    tracemalloc.start()
    allocated = []
    for step, _ in enumerate(steps()):
        if step >= n_steps // 5:
            break
        if step % max(1, n_steps // 50) == 0:
            gc.collect()
            allocated.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    return {
        "work": what,
        "time": f"{spent:.1f} s",
        "per unit": f"{1e6 * spent / n:.3g} us a {unit}",
        "resident: after 10 %": f"{resident[n_steps // 10] / 1e6:.0f} MB",
        "resident: at the end": f"{resident[-1] / 1e6:.0f} MB",
        "allocated: after 10 %": f"{allocated[len(allocated) // 10] / 1e6:.2f} MB",
        "allocated: at the end": f"{allocated[-1] / 1e6:.2f} MB",
    }


def _draws(estimator: RBFCoreset) -> Iterator[None]:
    total = 0.0
    for seed in range(DRAWS // BATCH):
        total += float(estimator.sample(BATCH, method="iid", random_state=seed).weights.sum())
        yield
    # unbiased: the mean of the sums is the number of rows
    assert abs(total * BATCH / DRAWS / ROWS - 1.0) < 0.01, total


def _redraws(estimator: RBFCoreset) -> Iterator[None]:
    before = None
    for _ in range(REDRAWS):
        core = estimator.sample(2000)
        assert core.seed != before
        before = core.seed
        yield


def _strategies() -> Iterator[None]:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 4)), np.arange(200) % 3
    names = ("random", "adaptive-random", "rbf", "full")
    for number in range(STRATEGIES):
        strategy = strategy_named(names[number % len(names)])
        core = strategy.select(SelectionContext(X, y, seed=number), 20, np.random.default_rng(number))
        assert core.size in (20, 200)
        yield


def _resident() -> int:
    """Bytes of this process in memory now; the peak would not tell growth from one large step."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


load = section("load", "Draw and redraw for long, and watch the memory.", memory)
