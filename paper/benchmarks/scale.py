"""Data larger than a budget of memory: 20,000,000 x 16 float32 in Parquet, generated here and removed."""

from __future__ import annotations

import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from coresift import StreamingCoreset, audit, open_rows, select

from .measure import Table, apart, seconds, section, table

ROWS, COLUMNS = int(os.environ.get("CORESIFT_SCALE_ROWS", 20_000_000)), 16
GROUP = 1 << 20
BUDGET = 100_000

# a process of its own: its peak of resident memory is that of the selection
RUN = """
import json, sys, time
from coresift import select
from paper.benchmarks.measure import peak_resident_mb
started = time.perf_counter()
options = json.loads(sys.argv[2])
found = select(sys.argv[1], **options)
wall = time.perf_counter() - started
print(json.dumps({"seconds": found.report.seconds, "wall": wall, "peak": peak_resident_mb(),
                  "rows": found.coreset.indices[:1000].tolist(),
                  "weight": float(found.coreset.weights.sum()), "total": found.report.total_sensitivity}))
"""
SCAN = """
import sys, time
from pyarrow import dataset
started = time.perf_counter()
rows = sum(batch.num_rows for batch in dataset.dataset(sys.argv[1]).to_batches())
print(time.perf_counter() - started)
"""


@cache
def files() -> tuple[Path, Path]:
    """Write the small and the large file, which are removed when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="coresift-bench-")
    _KEPT.append(folder)
    small, large = Path(folder.name) / "small.parquet", Path(folder.name) / "large.parquet"
    write(small, ROWS // 10)
    write(large, ROWS)
    return small, large


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def rows_of(n: int, rng: np.random.Generator) -> np.ndarray:
    """A normal cloud, 2 % of it three times as wide."""
    X = rng.standard_normal((COLUMNS, n), dtype=np.float32)
    X *= 1.0 + 2.0 * (rng.random(n, dtype=np.float32) < 0.02)
    return X


def write(path: Path, n: int) -> None:
    """Write ``n`` rows, a row group at a time, plainly stored."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    writer: Any = None
    for start in range(0, n, GROUP):
        X = rows_of(min(GROUP, n - start), rng)
        table = pa.table({f"x{i}": column for i, column in enumerate(X)})
        writer = writer or parquet.ParquetWriter(path, table.schema, compression="none", use_dictionary=False)
        writer.write_table(table)
    writer.close()


def selected(path: Path, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(apart(RUN, str(path), json.dumps({"budget": BUDGET, **options})))
    return found


def scan(path: Path) -> float:
    """The least of three bare scans."""
    return min(float(apart(SCAN, str(path))) for _ in range(3))


def _row(name: str, path: Path, found: dict[str, Any], bare: float, note: str = "") -> dict[str, str]:
    spent = sum(found["seconds"].values())
    parts = ", ".join(f"{label} {value:.1f}" for label, value in found["seconds"].items())
    return {
        "data": name,
        "file": f"{path.stat().st_size / 1e9:.2f} GB",
        "time of the passes": f"{spent:.1f} s ({parts})",
        "over a bare scan": f"**{spent / bare:.2f}**",
        "peak resident memory": f"{found['peak']:.0f} MB",
        "": note,
    }


def passes() -> Table:
    """Closed form and cells, small and large."""
    small, large = files()
    quick: dict[str, Any] = {"bound": "closed-form", "n_queries": 0}
    bare = scan(large)
    closed = min((selected(large, **quick) for _ in range(2)), key=lambda f: sum(f["seconds"].values()))
    share = selected(large, **quick | {"budget": "5%"})
    tenth = selected(small, **quick)
    cells = selected(small, bound="cells", n_queries=0, bandwidth=4.0)
    flops, exponentials = rates()
    n, k = ROWS // 10, 64
    # a step of the ascent: two products of (n x 16) by (16 x 64), and 64 exponentials a row
    products, powers = 4.0 * n * k * COLUMNS / flops, n * k / exponentials
    steps = cells["seconds"]["draw"] / (products + powers)
    rows = [
        _row(f"{ROWS:,} rows, closed form", large, closed, bare),
        _row(f"{ROWS:,} rows, closed form, 5 %", large, share, bare),
        _row(f"{ROWS // 10:,} rows, closed form", small, tenth, scan(small)),
        _row(
            f"{ROWS // 10:,} rows, 64 cells",
            small,
            cells,
            scan(small),
            f"a step of the ascent for all rows takes {products:.2f} s of products ({flops / 1e9:.0f} GFLOP/s) "
            f"and {powers:.2f} s of exponentials ({exponentials / 1e6:.0f} million/s); the draw took as long as "
            f"{steps:.0f} steps",
        ),
    ]
    return table(
        "passes over Parquet files",
        f"`select` of {BUDGET:,} rows (and of 5 %) of 16 columns of float32, one process, one thread of BLAS; a bare "
        f"scan of the same columns with PyArrow (all cores) takes {bare:.1f} s for the large file. Wanted: closed "
        "form at most 4 scans, peak below 1 GB and the same for a tenth of the rows.",
        rows,
    )


def rates() -> tuple[float, float]:
    """Floating-point operations and exponentials a second, of arrays of the shape that the ascent has."""
    rng = np.random.default_rng(0)
    a, b = rng.random((8192, COLUMNS)), rng.random((COLUMNS, 64))
    product = a @ b
    multiply, power = seconds(lambda: a @ b, lambda: np.exp(product), repeats=30)
    return 2.0 * len(a) * COLUMNS * 64 / multiply, product.size / power


def engines() -> Table:
    """One process, two, and Ray with two workers: same rows."""
    path = files()[1]
    quick: dict[str, Any] = {"bound": "closed-form", "n_queries": 0, "bandwidth": 6.0}
    found = {"one process": selected(path, **quick), "two processes": selected(path, workers=2, **quick)}
    try:
        import ray  # noqa: F401

        found["Ray, two workers"] = selected(path, workers=2, engine="ray", **quick)
    except ImportError:
        pass
    first = found["one process"]
    rows = []
    for name, one in found.items():
        same = all(one[key] == first[key] for key in ("rows", "weight", "total"))
        spent, wall = sum(one["seconds"].values()), one["wall"]
        # the first pass holds the start of the workers, the second does not
        rows.append(
            {
                "engine": name,
                "all": f"{wall:.1f} s",
                "passes": f"{spent:.1f} s",
                "last pass": f"{one['seconds']['draw']:.1f} s",
                "same rows, weights and totals": "yes" if same else "NO",
            }
        )
    return table(
        "engines",
        f"{ROWS:,} rows, closed form, a given bandwidth: two passes. The first holds the start of the workers (each "
        "imports the package), the last does not. This machine has two cores, and a scan alone keeps both busy.",
        rows,
    )


def errors() -> Table:
    """One array, chunks and a stream: audited side by side."""
    n, size, seeds = 200_000, 2000, range(3)
    X = rows_of(n, np.random.default_rng(1)).T.copy()
    rows = []
    for bandwidth in (4.0, 8.0):
        found: dict[str, list[float]] = {"one array": [], "chunks": [], "stream": [], "uniform": []}
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                np.save(Path(folder) / "a.npy", X[: n // 3])
                np.save(Path(folder) / "b.npy", X[n // 3 :])
                options: dict[str, Any] = {"bandwidth": bandwidth, "seed": seed, "n_queries": 0}
                one = select(X, size, **options).coreset
                chunks = select(open_rows(folder), size, **options).coreset
            stream = StreamingCoreset(size, bandwidth=bandwidth, random_state=seed)
            for start in range(0, n, 10_000):
                stream.partial_fit(X[start : start + 10_000])
            ball, last = one.ball, stream.coreset()
            uniform = select(X, size, bandwidth=1e6, random_state=seed, n_queries=0).coreset
            for name, core in zip(found, (one, chunks, last, uniform), strict=True):
                assert ball is not None
                same_ball = type(core)(core.indices, core.weights, n, ball=ball)
                result = audit(X, same_ball, max_evaluations=2e8, random_state=seed)
                found[name].append(result.worst_error)
        rows.append([f"{bandwidth:g}", *(f"{np.mean(v):.3f}" for v in found.values())])
    return Table(
        "array, chunks, stream",
        f"Worst relative error found by `audit`, mean of {len(seeds)} seeds: {size:,} of {n:,} rows x 16, the same "
        "ball of radius 1 for all. Array and chunks choose the same rows; the stream draws independently, on several "
        "levels.",
        ["bandwidth", "one array", "chunks", "stream", "uniform"],
        rows,
    )


scale = section("scale", "Time passes over 20 million rows of Parquet.", passes, engines, errors)
