"""Time, memory and objectives of k-center and facility location on many rows.

``CORESIFT_DATA=DIR python -m paper benchmark geometry`` prints the tables and writes a page in ``paper/results``. Ten
minutes on one core. MNIST is measured where the folder has it, apricot and submodlib where they are installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coresift.cli.app import Settings
from coresift.coresets.covering import nearest_centers, principal
from coresift.coresets.fitting import median_distance
from coresift.selection import FacilityLocation, KCenter, SelectionContext

from .measure import data_dir, markdown, mnist_arrays, peak_bytes, timed

PAGE = Path(__file__).parents[1] / "results" / "geometry" / "README.md"
COVERS = ((200_000, 100), (200_000, 1000), (1_000_000, 100), (1_000_000, 10_000))  # rows, picks
AWKWARD = {", 1,000 away from 0": (1e3, 0.0), ", one entry 1e6": (0.0, 1e6)}  # a shift of all, one outlier
EXACT, LARGE, PEERS = (20_000, 1000), (200_000, 2000), (5000, 250)

Matrix = NDArray[np.float32]


def blobs(n: int, d: int, seed: int = 0) -> Matrix:
    """Rows around 200 centres, of which some have many more rows than others."""
    rng = np.random.default_rng(seed)
    shares = rng.pareto(1.5, 200) + 0.1
    centers = 3.0 * rng.standard_normal((200, d), dtype=np.float32)
    return rng.standard_normal((n, d), dtype=np.float32) + centers[rng.choice(200, n, p=shares / shares.sum())]


def selected(strategy: Any, X: Matrix, size: int) -> tuple[float, Any]:
    """Processor seconds and the coreset."""
    return timed(lambda: strategy.select(SelectionContext(X), size, np.random.default_rng(0)))


def covers() -> Iterator[list[str]]:
    """Rows of the table of k-center."""
    strategy = KCenter()
    cases = [(n, size, "", 0.0, 0.0) for n, size in COVERS] + [
        (*COVERS[1], what, *how) for what, how in AWKWARD.items()
    ]
    for n, size, what, shift, outlier in cases:
        X = blobs(n, 64)
        X += shift
        X[0, 0] += outlier
        spent, _ = selected(strategy, X, size)
        few = min(size, 50)  # the peak does not depend on the picks
        peak = peak_bytes(lambda X=X, few=few: strategy.select(SelectionContext(X), few, np.random.default_rng(0)))
        yield [f"{n:,}{what}", f"{size:,}", f"{spent:.1f}", f"{1e9 * spent / size / n:.1f}", f"{peak / X.nbytes:.0%}"]


def cost(X: Matrix, rows: Any) -> float:
    """Sum of the distances to the nearest pick."""
    return float(np.sqrt(nearest_centers(X, X[rows])[1]).sum())


def facilities() -> Iterator[list[str]]:
    """Rows of the table of facility location: exact, by the graph, and a uniform draw."""
    n, size = EXACT
    cases = {f"blobs, {n:,} x 64": blobs(n, 64)}
    if (arrays := mnist_arrays(data_dir())) is not None:
        cases[f"MNIST, {n:,} x 50 (PCA)"] = principal(arrays[0][:n], 50).astype(np.float32)
    for name, X in cases.items():
        farthest = 2.0 * float(np.sqrt(np.einsum("ij,ij->i", X - X.mean(0), X - X.mean(0)).max()))
        ways = {"exact greedy": n, "neighbour graph": 1}
        found = {way: selected(FacilityLocation(max_exact=most), X, size) for way, most in ways.items()}
        picks = {way: core.indices for way, (_, core) in found.items()}
        picks["uniform draw"] = np.random.default_rng(1).choice(n, size, replace=False)
        costs = {way: cost(X, rows) for way, rows in picks.items()}
        best = costs["exact greedy"]
        for way, value in costs.items():
            spent = f"{found[way][0]:.1f}" if way in found else ""
            ratio = (n * farthest - value) / (n * farthest - best)
            yield [name, way, f"{size:,}", spent, f"{value / best:.3f}", f"{ratio:.4f}"]
    n, size = LARGE
    X = blobs(n, 64)
    spent, core = selected(FacilityLocation(), X, size)
    drawn = cost(X, np.random.default_rng(1).choice(n, size, replace=False))
    against = f"{cost(X, core.indices) / drawn:.3f} of a uniform draw"
    peak = peak_bytes(lambda: selected(FacilityLocation(), X, size))
    yield [f"blobs, {n:,} x 64", "neighbour graph", f"{size:,}", f"{spent:.1f}", against, f"peak {peak / 1e9:.1f} GB"]


def _apricot(X: Matrix, size: int) -> Any:
    from apricot import FacilityLocationSelection

    return FacilityLocationSelection(size, metric="euclidean", optimizer="lazy").fit(X).ranking


def _submodlib(X: Matrix, size: int, **how: Any) -> Any:
    from submodlib import FacilityLocationFunction

    function = FacilityLocationFunction(n=len(X), data=X, metric="euclidean", **how)
    return [row for row, _ in function.maximize(budget=size, optimizer="LazyGreedy", show_progress=False)]


def _goodpoints(X: Matrix, size: int) -> Any:
    from .peers.methods import goodpoints

    scale = median_distance(X, X.mean(axis=0), 1.0)
    return goodpoints(X, size, scale, 0)["goodpoints"].indices


def others() -> Iterator[list[str]]:
    """Rows of the table with other packages' facility location, where they are installed."""
    n, size = PEERS
    X = blobs(n, 64)
    ways: dict[str, Callable[[Matrix, int], Any]] = {
        "coresift, exact greedy": lambda X, k: (
            FacilityLocation(max_exact=n).select(SelectionContext(X), k, np.random.default_rng(0)).indices
        ),
        "coresift, neighbour graph": lambda X, k: (
            FacilityLocation(max_exact=1).select(SelectionContext(X), k, np.random.default_rng(0)).indices
        ),
        "apricot, lazy greedy": _apricot,
        "submodlib, dense, lazy greedy": partial(_submodlib, mode="dense", separate_rep=False),
        "submodlib, 64 neighbours, lazy greedy": partial(_submodlib, mode="sparse", num_neighbors=64),
        "goodpoints, kernel thinning": _goodpoints,
        "uniform draw": lambda X, k: np.random.default_rng(1).choice(len(X), k, replace=False),
    }
    best = None
    for way, choose in ways.items():
        try:
            choose(X[:500], 10)  # compile, and import
            spent, rows = timed(partial(choose, X, size))
        except ImportError:
            yield [way, "not installed", ""]
            continue
        found = cost(X, np.asarray(rows))
        best = best or found
        yield [way, f"{spent:.1f}", f"{found / best:.3f}"]


def geometry(settings: Settings) -> None:
    """Time k-center and facility location, and compare objectives with the exact greedy."""
    head = ["rows of 64 float32", "picks", "seconds", "ns per row and pick", "peak memory, of the data"]
    lines = ["# k-center and facility location on many rows", ""]
    lines += [
        "By `python -m paper benchmark geometry`: processor time, one thread; memory by tracemalloc, beside the rows. "
        "The strategies see rows of up to 100 columns as they are, and 50 principal components of wider ones, which "
        "are a copy. The peak of k-center, which does not depend on the picks, is that of 50. Where rounding hides "
        "distances, as beside an outlier, it picks a second time, from differences.",
        "",
    ]
    lines += ["## k-center", "", *markdown(head, covers(), 2), ""]
    head = ["data", "way", "picks", "seconds", "cost over exact", "objective over exact"]
    lines += ["## Facility location", "", *markdown(head, facilities(), 2), ""]
    lines += [
        "The cost is the sum of the distances from every row to the nearest pick. The objective is the sum of the "
        "largest distance (here: twice the largest distance to the mean) minus these. It flatters every way of "
        "choosing: read the cost.",
        "",
        f"## Other packages: facility location, {PEERS[1]:,} of {PEERS[0]:,} x 64",
        "",
        *markdown(["way", "seconds", "cost over exact"], others(), 1),
        "",
        "Imports and compilation are not counted. apricot and submodlib hold n x n similarities (submodlib's "
        "neighbours are found in Python); their similarities fall with the distance in other ways, so they optimise "
        "another sum. goodpoints thins for sums of kernels (here Gaussians as wide as the median distance), which is "
        "not a cover: it is compared with `refine` on the page about [other packages](../../../docs/peers.md).",
    ]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings.out.print("\n".join(lines), soft_wrap=True)
