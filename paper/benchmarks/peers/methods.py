"""The ways to choose a subset: one function each, called in a process of its own (:mod:`benchmarks.peers.child`).

A function gets the rows, the size, the bandwidth ``scale`` of the kernel :math:`e^{-|p-x|^2/\\sigma^2}`, a seed, and
the labels if it ``reads_labels``; it returns one or more subsets by name. Packages are imported by ``ready``, which is
not timed.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

_WASSERSTEIN_ROWS = 5_000  # the transport problem holds rows x size costs and solves them exactly
_WASSERSTEIN_STEPS = 10
_THINNING_ROWS = 16_384  # kernel thinning proper holds their n x n kernel matrix; above it, Compress
_OVERSAMPLING = 4  # Compress leaves at least so many times the size, which thinning then halves down
_HERDING_BLOCK = 2048
_EXACT_KMEANS = 20_000  # rows up to which Lloyd's algorithm is run on all of them at each step


@dataclass(frozen=True)
class Subset:
    """Rows of the data (``indices``) or points of their own (``positions``), with weights that stand for n rows.

    ``groups`` says of every row of the data which point stands for it, where the method knows: it gives a label to
    a position.
    """

    weights: np.ndarray
    indices: np.ndarray | None = None
    positions: np.ndarray | None = None
    groups: np.ndarray | None = None
    untimed: tuple[float, float] = (0.0, 0.0)  # processor and clock seconds that are not part of the choice


Choose = Callable[..., dict[str, Subset]]


@dataclass(frozen=True)
class Method:
    """A way to choose: how it is called, what it imports, and from which number of rows it is not tried."""

    choose: Choose
    about: str
    package: str | None = None  # as pip knows it
    modules: tuple[str, ...] = ()
    most_rows: int | None = None
    beyond: str = ""  # why not more rows
    is_random: bool = True
    is_quadratic: bool = False  # in the rows
    reads_labels: bool = False

    def work(self, n: int, d: int, m: int) -> float:
        """What the time is about proportional to: whoever was too slow is not asked to do more."""
        return float(n) * d * (n if self.is_quadratic else m)

    def ready(self) -> None:
        """Import what is needed, before the clock starts."""
        for module in self.modules:
            importlib.import_module(module)

    def refusal(self, n: int) -> str | None:
        """Why it is not tried on so many rows; None if it is."""
        return self.beyond.format(gb=8e-9 * n * n) if self.most_rows and n > self.most_rows else None


def equal(indices: np.ndarray, n: int) -> Subset:
    """Equal weights that sum to n; a row that was chosen twice counts twice."""
    rows, counts = np.unique(np.asarray(indices, dtype=np.int64), return_counts=True)
    return Subset(weights=counts * (n / counts.sum()), indices=rows)


def nearest(X: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The nearest of the positions, for every row."""
    from sklearn.metrics import pairwise_distances_argmin

    return pairwise_distances_argmin(X, positions.astype(X.dtype, copy=False))


def represented(X: np.ndarray, indices: np.ndarray) -> Subset:
    """Each row chosen is weighted by the number of rows that it is nearest to."""
    indices = np.unique(np.asarray(indices, dtype=np.int64))
    counts = np.bincount(nearest(X, X[indices]), minlength=len(indices))
    return Subset(weights=counts.astype(float), indices=indices)


def snapped(X: np.ndarray, positions: np.ndarray, weights: np.ndarray) -> Subset:
    """The nearest row to every position; weights of positions with the same nearest row are added."""
    rows, where = np.unique(nearest(positions.astype(X.dtype, copy=False), X), return_inverse=True)
    return Subset(weights=np.bincount(where, weights=weights), indices=rows)


def uniform(X: np.ndarray, size: int, scale: float, seed: int) -> dict[str, Subset]:
    from coresift.coresets.uniform import uniform_coreset

    core = uniform_coreset(len(X), size, seed)
    return {"uniform": Subset(weights=core.weights, indices=core.indices)}


def kmeans(X: np.ndarray, size: int, scale: float, seed: int) -> dict[str, Subset]:
    from sklearn.cluster import KMeans, MiniBatchKMeans

    if len(X) <= _EXACT_KMEANS:
        model = KMeans(size, n_init=1, random_state=seed).fit(X)
    else:
        model = MiniBatchKMeans(size, n_init=1, batch_size=4096, random_state=seed).fit(X)
    groups = model.predict(X)
    counts = np.bincount(groups, minlength=size).astype(float)
    centres = Subset(weights=counts, positions=model.cluster_centers_, groups=groups)
    return {"k-means centres": centres, "k-means rows": snapped(X, model.cluster_centers_, counts)}


def apricot(X: np.ndarray, size: int, scale: float, seed: int) -> dict[str, Subset]:
    from apricot import FacilityLocationSelection

    found = FacilityLocationSelection(size, metric="euclidean", random_state=seed).fit(X.astype(np.float64))
    return {"apricot": represented(X, found.ranking)}


def submodlib(X: np.ndarray, size: int, scale: float, seed: int) -> dict[str, Subset]:
    from submodlib import FacilityLocationFunction

    function = FacilityLocationFunction(n=len(X), mode="dense", data=X, metric="euclidean")
    picks = function.maximize(budget=size, optimizer="LazyGreedy", show_progress=False)
    return {"submodlib": represented(X, np.array([pick for pick, _ in picks]))}


def coreax_kernel(scale: float) -> Any:
    """The kernel of all: its length scale is that of exp(-|x-y|^2 / (2 l^2))."""
    from coreax.kernels import SquaredExponentialKernel

    return SquaredExponentialKernel(length_scale=scale / np.sqrt(2.0))


def coreax_herding(X: np.ndarray, size: int, scale: float, seed: int) -> dict[str, Subset]:
    from coreax import Data
    from coreax.solvers import KernelHerding

    block = _HERDING_BLOCK if len(X) > _EXACT_KMEANS else None
    solver = KernelHerding(size, kernel=coreax_kernel(scale), block_size=block)
    found, _ = solver.reduce(Data(np.asarray(X, dtype=np.float32)))
    return {"coreax herding": equal(np.asarray(found.unweighted_indices), len(X))}


def coreax_thinning(X: np.ndarray, size: int, scale: float, seed: int) -> dict[str, Subset]:
    import jax
    from coreax import Data
    from coreax.solvers import KernelThinning

    kernel, n = coreax_kernel(scale), len(X)
    solver = KernelThinning(
        size,
        kernel=kernel,
        random_key=jax.random.key(seed),
        delta=float(1.0 / (n * np.log(np.log(n)))),  # as its documentation recommends
        sqrt_kernel=kernel,
    )
    found, _ = solver.reduce(Data(np.asarray(X, dtype=np.float32)))
    return {"coreax thinning": equal(np.asarray(found.unweighted_indices), n)}


def goodpoints(X: np.ndarray, size: int, scale: float, seed: int) -> dict[str, Subset]:
    from goodpoints import compress, compressc, kt

    squared = np.array([scale**2])
    rows = X.astype(np.float64)
    if len(X) <= _THINNING_ROWS:
        # thinning halves: every t-th row, so that the size comes out
        halvings = int(np.log2(len(X) / size))
        left = np.linspace(len(X) - 1, 0, size << halvings, dtype=np.int64)[::-1]
    else:
        bins = 4
        per_bin = compress.largest_power_of_four(len(X) // bins)
        plain = int(np.sqrt(per_bin)) * bins  # what Compress leaves with g = 0
        halvings = 0
        while size << halvings < max(_OVERSAMPLING * size, plain):
            halvings += 1
        g = int(np.log2((size << halvings) / plain))
        left = compress.compress_kt(rows, b"gaussian", k_params=squared, g=g, num_bins=bins, delta=0.5, seed=seed)
    K = np.empty((len(left), len(left)))
    compressc.compute_K(rows, np.ascontiguousarray(left), b"gaussian", squared, K)
    return {"goodpoints": equal(left[kt.thin_K(K, K, halvings, delta=0.5, seed=seed)], len(X))}


def wasserstein(X: np.ndarray, size: int, scale: float, seed: int) -> dict[str, Subset]:
    import ot

    rng = np.random.default_rng(seed)
    rows = X
    if len(X) > _WASSERSTEIN_ROWS:
        rows = X[np.sort(rng.choice(len(X), _WASSERSTEIN_ROWS, replace=False))]
    rows = rows.astype(np.float64)
    start = rows[rng.choice(len(rows), size, replace=False)]
    masses = np.full(len(rows), 1.0 / len(rows))
    positions = ot.lp.free_support_barycenter([rows], [masses], start, numItermax=_WASSERSTEIN_STEPS, stopThr=1e-7)
    weights = np.full(size, len(X) / size)
    return {
        "Wasserstein points": Subset(weights=weights, positions=positions, groups=nearest(X, positions)),
        "Wasserstein rows": snapped(X, positions, weights),
    }


def _ours(name: str, bound: str = "auto", **options: Any) -> Choose:
    def choose(X: np.ndarray, size: int, scale: float, seed: int) -> dict[str, Subset]:
        from coresift import RBFCoreset

        core = RBFCoreset(bandwidth=scale, bound=bound, random_state=seed).fit(X).sample(size, **options)
        untimed = (0.0, 0.0)
        if core.certificate is not None:  # others do not certify: take off what it costs, there and once more here
            start = time.process_time(), time.perf_counter()
            core.certify(X)
            untimed = 2 * (time.process_time() - start[0]), 2 * (time.perf_counter() - start[1])
        return {name: Subset(core.weights.copy(), core.indices.copy(), untimed=untimed)}

    return choose


def _cover(X: np.ndarray, size: int, scale: float, seed: int, y: np.ndarray | None = None) -> dict[str, Subset]:
    from coresift.selection import Cover, SelectionContext, strategy_named

    strategy = Cover() if y is None else strategy_named("cover")
    core = strategy.select(SelectionContext(X, y, seed=seed), size, np.random.default_rng(seed))
    name = "coresift cover" if y is None else "coresift cover, labels"
    return {name: Subset(weights=core.weights.copy(), indices=core.indices.copy())}


_MATRIX = "needs a matrix of n by n: {gb:,.0f} GB"
METHODS: dict[str, Method] = {
    "uniform": Method(uniform, "drawn without replacement, weights n/m"),
    "k-means": Method(
        kmeans,
        f"KMeans up to {_EXACT_KMEANS:,} rows, MiniBatchKMeans above (`n_init=1`); centres with the sizes of their "
        "clusters as weights, and the nearest rows with the same weights",
        package="scikit-learn",
        modules=("sklearn.cluster",),
    ),
    "apricot": Method(
        apricot,
        "facility location, lazy greedy, Euclidean; weights are the numbers of rows represented",
        package="apricot-select",
        modules=("apricot",),
        most_rows=20_000,
        beyond=_MATRIX,
        is_random=False,
    ),
    "submodlib": Method(
        submodlib,
        "facility location, dense, lazy greedy, Euclidean; weights as for apricot",
        package="submodlib-py",
        modules=("submodlib",),
        most_rows=20_000,
        beyond=_MATRIX,
        is_random=False,
    ),
    "coreax herding": Method(
        coreax_herding,
        "KernelHerding, the same kernel, float32, weights n/m",
        package="coreax",
        modules=("coreax", "coreax.solvers"),
        is_quadratic=True,
        is_random=False,
    ),
    "coreax thinning": Method(
        coreax_thinning,
        "KernelThinning, the same kernel for splitting and for swapping, float32, weights n/m",
        package="coreax",
        modules=("coreax", "coreax.solvers"),
    ),
    "goodpoints": Method(
        goodpoints,
        f"kernel thinning with the same kernel (up to {_THINNING_ROWS:,} rows), above that Compress and then thinning "
        "(Compress++ with the sizes that give m); it first thins the rows to m times a power of 2, or to a power of 4; "
        "weights n/m, a row chosen twice counts twice",
        package="goodpoints",
        modules=("goodpoints.kt", "goodpoints.compress", "goodpoints.compressc"),
    ),
    "Wasserstein": Method(
        wasserstein,
        f"POT, free support of m equal masses nearest in W2 (exact transport, at most {_WASSERSTEIN_STEPS} steps), of "
        f"a uniform sample of {_WASSERSTEIN_ROWS:,} rows where there are more; the points, and the nearest rows",
        package="POT",
        modules=("ot",),
    ),
    "coresift sample": Method(_ours("coresift sample"), "`RBFCoreset.sample`", modules=("coresift",)),
    "coresift reweight": Method(
        _ours("coresift reweight", bound="closed-form", reweight=True),
        '`RBFCoreset(bound="closed-form")`, `sample(reweight=True)`, without the certificate that comes with it',
        modules=("coresift",),
    ),
    "coresift refine": Method(
        _ours("coresift refine", bound="closed-form", refine=True),
        '`RBFCoreset(bound="closed-form")`, `sample(refine=True)`, without the certificate that comes with it',
        modules=("coresift",),
    ),
    "coresift cover": Method(
        _cover,
        "`selection.Cover`: the rows nearest to the centres of k-means on a part of the rows; labels are not looked at",
        modules=("coresift", "sklearn.cluster"),
    ),
    "coresift cover, labels": Method(
        _cover,
        "the strategy `COVER`: the same within every class, whose share is as the root of its size",
        modules=("coresift", "sklearn.cluster"),
        reads_labels=True,
    ),
}
