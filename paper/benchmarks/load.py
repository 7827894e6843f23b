"""Load: hundreds of millions of draws, thousands of redraws, a thousand strategies; memory must not grow."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from coresift import Coreset, RBFCoreset
from coresift.selection import SelectionContext, strategy_named

from .measure import Table, apart, section, table

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


_PEAK = "import sys, time; from paper.benchmarks.measure import peak_resident_mb as peak"
_COMMAND = f"""{_PEAK}
from coresift.cli import main
assert main(sys.argv[1:]) == 0
print(time.process_time(), peak())
"""
_SELECT = f"""{_PEAK}
from coresift import select
chosen = select(sys.argv[1], 10_000, bound="closed-form", method="keys", n_queries=0).coreset
print(time.process_time(), peak(), chosen.n_samples, chosen.weights.sum() / chosen.n_samples)
"""
_STREAM = f"""{_PEAK}
import numpy as np
from coresift import StreamingCoreset
X = np.random.default_rng(0).standard_normal((int(sys.argv[1]), 16)).astype(np.float32)
stream = StreamingCoreset(1000, bandwidth=6.0)
for i in range(len(X)):
    stream.partial_fit(X[i : i + 1])
core = stream.coreset()
print(time.process_time(), peak() - X.nbytes / 2**20, core.n_samples, core.weights.sum() / len(X))
"""


def write_shards(folder: Path, n_rows: int, n_columns: int, group: int) -> str:
    """Write Parquet files of ten row groups each, of normal numbers that are shifted in each group."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir(parents=True)
    block = np.random.default_rng(0).standard_normal((n_columns, group), dtype=np.float32)
    writer = None
    for number, _ in enumerate(range(0, n_rows, group)):
        shifted = pa.table({f"c{i}": np.roll(column, number) for i, column in enumerate(block)})
        if number % 10 == 0:
            if writer is not None:
                writer.close()
            path = folder / f"{number:05d}.parquet"
            writer = parquet.ParquetWriter(path, shifted.schema, compression="none", use_dictionary=False)
        writer.write_table(shifted)
    writer.close()
    return str(folder)


def _figures(what: str, printed: str) -> dict[str, str]:
    seconds, peak, n, share = map(float, printed.split())
    weight = f"{share:.4f}"
    return {"work": what, "time": f"{seconds:.0f} s", "peak": f"{peak:.0f} MB", "rows": f"{n:,.0f}", "weight": weight}


def at_scale() -> Table:
    """Many rows, many columns, many updates, many commands; ``LOAD_FOLDER`` needs 8 GB of room."""
    rows = []
    with TemporaryDirectory(dir=os.environ.get("LOAD_FOLDER")) as name:
        folder = Path(name)
        for n in (10_000_000, 100_000_000):
            data = write_shards(folder / str(n), n, 16, 1_000_000)
            rows.append(_figures(f"select 10,000 of {n:,} x 16, Parquet", apart(_SELECT, data)))
            shutil.rmtree(data)
        for d in (5000, 20_000):
            data = write_shards(folder / str(d), 20_000, d, 2000)
            rows.append(_figures(f"select 10,000 of 20,000 x {d:,}, Parquet", apart(_SELECT, data)))
            shutil.rmtree(data)
        for n in (100_000, 1_000_000):
            rows.append(_figures(f"StreamingCoreset of 1,000, {n:,} updates of one row", apart(_STREAM, str(n))))
        rows.append(_together(folder))
    return table(
        "load at scale",
        "Each line in a process of its own: processor time, peak of the resident memory (without the data of the "
        "updates), the rows that the coreset counts, and the sum of its weights over their number. Wanted: a peak that "
        "does not grow with the rows, all rows, a weight of about 1.",
        rows,
    )


def _together(folder: Path, n: int = 8) -> dict[str, str]:
    """Run commands at once over one folder, half of them to the same output: all write the same bytes."""
    data = write_shards(folder / "shared", 1_000_000, 16, 100_000)
    outputs = [folder / ("same.npz" if i % 2 else f"own-{i}.npz") for i in range(n)]
    options = ["--budget", "1000", "--bound", "closed-form", "--method", "keys", "--quiet"]
    command = [sys.executable, "-c", _COMMAND, "select", data, *options, "--out"]
    running = [subprocess.Popen([*command, str(out)], stdout=subprocess.PIPE, text=True) for out in outputs]
    printed = [each.communicate()[0].split()[-2:] for each in running]
    assert [each.returncode for each in running] == [0] * n
    spent, peak = sum(float(each[0]) for each in printed), max(float(each[1]) for each in printed)
    assert len({out.read_bytes() for out in outputs}) == 1
    assert sorted(each.name for each in folder.iterdir() if each.is_file()) == sorted({each.name for each in outputs})
    core = Coreset.load(outputs[0])
    share = core.weights.sum() / core.n_samples
    return _figures(f"{n} commands at once, equal bytes", f"{spent} {peak} {core.n_samples} {share}")


load = section("load", "Draw and redraw for long, read much, and watch the memory.", memory, at_scale)
