"""Choose rows in memory: a cover by the cells of k-means, or growth from what a kernel regression does not explain."""

import math
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.linalg import solve
from scipy.spatial.distance import pdist

from .._errors import InvalidInputError
from .._progress import Display, Progress
from .._threads import SCIKIT_LEARN
from .._validation import check_count, check_features
from ..core.draw import DrawTable
from .bounds import kmeans_centers
from .fitting import MEDIAN_SAMPLE

_BLOCK = 1 << 22  # distances computed at once
_FEW_CELLS = 256  # found in one go
_ROWS_PER_CELL = 64  # from which its centre is found
_ROUNDS = 10  # of draws by squared distance
_COARSE_ROWS = 40  # rows per coarse cell from which its centre is found
_ROUNDING = 1e-12
_ENTRIES = 1 << 19  # of the kernel computed at once: they stay in the cache
_STRATA = 64  # strata within a class
_GROWTH = 12  # rounds in which a subset grows: by residuals to a power, and a share of the draw that is uniform
_POWER, _MIX, _RIDGE = 2.0, 0.1, 0.01
_MANY = 10  # with this many rows per distinct value, float labels count as classes

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]


def cover_rows(
    features: np.ndarray, size: int, rng: Generator, *, weights: Floats | None = None, display: Display = Progress
) -> tuple[Rows, Floats]:
    """Choose the row nearest to the centre of each of ``size`` k-means cells; it weighs as much as its cell."""
    sample = rng.permutation(len(features))[: _ROWS_PER_CELL * size]
    for dtype in (np.float32, np.float64):
        centers = cover_centers(features[sample].astype(dtype), size, rng, display)
        cells, distances = nearest_centers(features, centers)
        if not _are_lost(distances, centers):
            break
    order = np.lexsort((distances, cells))  # by cell, nearest first
    is_first = np.r_[True, cells[order][1:] != cells[order][:-1]]
    chosen = order[is_first]
    if len(chosen) < size:  # for empty cells, the rows that are represented worst; they share the weight of their cell
        others = order[~is_first]
        worst = np.argsort(-distances[others], kind="stable")[: size - len(chosen)]
        chosen = np.concatenate((chosen, others[worst]))
    masses = np.bincount(cells, weights=weights)
    shares = np.bincount(cells[chosen], minlength=len(masses))
    return chosen, masses[cells[chosen]] / shares[cells[chosen]]


def cover_centers(features: np.ndarray, size: int, rng: Generator, display: Display = Progress) -> np.ndarray:
    """(size, d) centres of k-means; above 256 in two levels: O(n sqrt(size) d) in place of O(n size d) a step.

    Draws by squared distance (k-means++, in ten rounds) say how many centres each of ``sqrt(size) / 2`` coarse cells
    gets; k-means inside each cell finds them; one step of Lloyd's algorithm over all rows mends the borders.
    """
    if size <= _FEW_CELLS or len(features) <= 2 * size:
        return kmeans_centers(features, size, int(rng.integers(2**31)))
    seeds = features[_spread_rows(features, size, rng)]
    n_coarse = int(np.sqrt(size) / 2)
    sample = rng.permutation(len(features))[: _COARSE_ROWS * n_coarse]
    coarse = kmeans_centers(features[sample], n_coarse, int(rng.integers(2**31)))
    wanted = np.bincount(nearest_centers(seeds, coarse)[0], minlength=n_coarse)
    cells, _ = nearest_centers(features, coarse)
    found, progress = [], display("cells", len(features))
    for cell in np.flatnonzero(wanted):  # a seed is a row of its cell
        own = features[cells == cell]
        found.append(own if wanted[cell] >= len(own) else kmeans_centers(own, wanted[cell], int(rng.integers(2**31))))
        progress(len(own))
    centers = np.concatenate(found)
    cells, _ = nearest_centers(features, centers)
    order = np.argsort(cells, kind="stable")
    used, starts, counts = np.unique(cells[order], return_index=True, return_counts=True)
    centers[used] = np.add.reduceat(features[order], starts, axis=0, dtype=np.float64) / counts[:, None]
    return centers


def _spread_rows(features: np.ndarray, size: int, rng: Generator) -> Rows:
    """Rows drawn in rounds, in proportion to the squared distance from those that earlier rounds drew."""
    drawn = rng.choice(len(features), size // _ROUNDS, replace=False)
    rounds, far = [drawn], nearest_centers(features, features[drawn])[1]
    for count in np.diff(np.linspace(size // _ROUNDS, size, _ROUNDS).astype(int)):
        far[rounds[-1]] = 0.0
        with np.errstate(divide="ignore"):  # a row that equals one drawn comes last
            keys = rng.standard_exponential(len(far)) / far
        rounds.append(np.argpartition(keys, count)[:count])
        np.minimum(far, nearest_centers(features, features[rounds[-1]])[1], out=far)
    return np.unique(np.concatenate(rounds))


def nearest_centers(features: np.ndarray, centers: np.ndarray, dtype: Any = np.float32) -> tuple[Rows, Floats]:
    """The nearest centre of every row, by products in float32, or float64 if those are lost; its squared distance."""
    cells, far = np.empty(len(features), dtype=np.int64), np.empty(len(features))
    right = np.ascontiguousarray(-2.0 * centers.T, dtype=dtype)
    norms = np.einsum("ij,ij->i", centers, centers, dtype=np.float64).astype(dtype)
    for start in range(0, len(features), step := max(1, _BLOCK // max(centers.shape))):
        block = slice(start, start + step)
        squares = features[block].astype(dtype, copy=False) @ right
        squares += norms
        cells[block] = squares.argmin(axis=1)
        way = features[block] - centers[cells[block]]
        far[block] = np.einsum("ij,ij->i", way, way)
    is_lost = dtype == np.float32 and _are_lost(far, centers)
    return nearest_centers(features, centers, np.float64) if is_lost else (cells, far)


def _are_lost(far: Floats, centers: np.ndarray) -> bool:
    """Whether most squared distances are within a thousand roundings of the largest square in float32."""
    largest = np.einsum("ij,ij->i", centers, centers, dtype=np.float64).max()
    return bool(np.median(far) < 1e3 * np.finfo(np.float32).eps * largest)


def principal(matrix: Any, n_components: int) -> NDArray[Any]:
    """Project onto the first principal components."""
    from sklearn.decomposition import PCA

    n_components = check_count(n_components, "n_components")
    if isinstance(matrix, np.ndarray):
        matrix = matrix - matrix.mean(axis=0, dtype=np.float64).astype(matrix.dtype)  # scikit-learn squares all of it
        pca = PCA(min(n_components, *matrix.shape), random_state=0)
    else:  # the solver for sparse matrices finds one component less
        pca = PCA(min(n_components, min(matrix.shape) - 1), svd_solver="arpack", random_state=0)
    with SCIKIT_LEARN, np.errstate(invalid="ignore"):  # 0 / 0 in the explained variance where all rows are equal
        return pca.fit_transform(matrix)


def dense_centred(matrix: Any) -> Floats:
    """Features as a dense matrix about their mean: squares of large numbers would lose the distances."""
    found = check_features(matrix, name="features")
    found = np.asarray(found.toarray() if hasattr(found, "toarray") else found, dtype=np.float64)
    return found - found.mean(axis=0)


def in_units(X: Any) -> tuple[Any, float]:
    """A matrix over a power of two, and that number: 1 unless squares may leave the range of float32."""
    largest = max(float(X.max()), -float(X.min()))
    unit = 1.0 if largest == 0 or 1e-12 < largest < 1e12 else 2.0 ** (math.frexp(largest)[1] - 1)
    return (X, unit) if unit == 1 else (X / unit, unit)


def grown_rows(
    features: Floats,
    targets: Floats | None,
    classes: Rows,
    size: int,
    rng: Generator,
    display: Display = Progress,
    max_centers: int = 2000,
) -> Rows:
    """Choose ``size`` rows as :class:`coresift.selection.FixedCoreset` does; without targets uniformly over cells."""
    strata = _strata(features, classes, size, rng)
    scaled = _with_norms(np.clip(features / (0.5 * median_distance(features, rng)), -100.0, 100.0))  # beyond, K = 0
    chosen, scores = np.zeros(len(features), dtype=bool), np.ones(len(features))
    rounds = min(_GROWTH, size) if targets is not None else 1
    progress = display("rounds", rounds, unit="rounds")
    for count in np.diff(np.linspace(0, size, rounds + 1).astype(np.int64)):
        if targets is not None and chosen.any():
            residuals = _residuals(scaled, targets, np.flatnonzero(chosen), rng, max_centers)
            scores = (residuals / (residuals.max() or 1.0)) ** _POWER
        chosen[_drawn(scores, chosen, strata, int(count), rng)] = True
        progress(1)
    return np.flatnonzero(chosen)


def _drawn(scores: Floats, chosen: NDArray[np.bool_], strata: Rows, count: int, rng: Generator) -> Rows:
    """Draw ``count`` rows that are not chosen yet, systematically along the strata, in random order inside each."""
    free = np.flatnonzero(~chosen)
    total = float(scores[free].sum())
    shares = np.full(len(free), _MIX / len(free))
    shares += (1 - _MIX) * (scores[free] / total if total > 0 else 1 / len(free))
    order = np.lexsort((rng.random(len(free)), strata[free]))
    table = DrawTable(shares[order], np.ones(len(free)))
    return free[order[table.systematic(count, rng, in_steps=True).indices]]


def _residuals(scaled: NDArray[np.float32], targets: Floats, chosen: Rows, rng: Generator, max_centers: int) -> Floats:
    """Distances of the targets from the predictions of the proxy, (n,)."""
    if len(chosen) > max_centers:
        chosen = rng.choice(chosen, max_centers, replace=False)
    mean, kernel = targets[chosen].mean(axis=0), _gaussian(scaled[chosen], scaled[chosen]).astype(np.float64)
    kernel[np.diag_indices(len(chosen))] += _RIDGE  # now positive definite
    slopes = solve(kernel, targets[chosen] - mean, assume_a="pos", overwrite_a=True).astype(np.float32)
    found, step = np.empty(len(scaled)), max(1, _ENTRIES // len(chosen))
    for start in range(0, len(scaled), step):
        block = slice(start, start + step)
        predicted = _gaussian(scaled[block], scaled[chosen]) @ slopes + mean
        found[block] = np.linalg.norm(targets[block] - predicted, axis=1)
    return found


def _with_norms(X: Floats) -> NDArray[np.float32]:
    """Rows in single precision, which scores need no more of, with minus half their squares and a one, (n, d + 2)."""
    return np.column_stack([X, -0.5 * np.einsum("ij,ij->i", X, X), np.ones(len(X))]).astype(np.float32)


def _gaussian(X: NDArray[np.float32], centers: NDArray[np.float32]) -> NDArray[np.float32]:
    """``exp(-|x - c|^2 / 2)``, (n, m), of rows with norms: the exponent is one product."""
    d = X.shape[1] - 2
    exponents = X @ centers[:, [*range(d), d + 1, d]].T
    return np.asarray(np.exp(np.minimum(exponents, 0.0, out=exponents), out=exponents))


def proxy_targets(labels: NDArray[np.generic], are_classes: bool) -> tuple[Floats, Rows]:
    """Targets of the proxy, (n, k): one-hot for classes, else standardised; and the number of each row's class."""
    if labels.ndim == 1 and are_classes:
        names, classes = np.unique(labels, return_inverse=True)
        if labels.dtype.kind != "f" or _MANY * len(names) <= len(labels):
            return np.eye(len(names))[classes], classes
    values = labels.reshape(len(labels), -1).astype(np.float64)
    if not np.isfinite(values).all():
        raise InvalidInputError("y contains NaN or infinity; the proxy needs finite targets.")
    spread = values.std(axis=0)
    return (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0), np.zeros(len(labels), dtype=np.int64)


def _strata(features: Floats, classes: Rows, size: int, rng: Generator) -> Rows:
    """Number of the stratum of each row, a cell of its class; the strata of a class are consecutive."""
    strata = np.empty(len(features), dtype=np.int64)
    n_classes = int(classes.max()) + 1
    n_cells = max(1, min(_STRATA, size // n_classes))
    for number in range(n_classes):
        rows = np.flatnonzero(classes == number)
        if n_cells == 1 or len(rows) <= n_cells:
            cells = np.zeros(len(rows), dtype=np.int64)
        else:
            sample = rng.choice(rows, min(len(rows), 40 * n_cells), replace=False)
            centers = kmeans_centers(features[sample], n_cells, int(rng.integers(2**31)))
            cells, _ = nearest_centers(features[rows], centers)
        strata[rows] = number * _STRATA + cells
    return strata


def median_distance(features: Floats, rng: Generator) -> float:
    """The median distance of rows that differ, from a sample; 1 if all are equal."""
    sample = features[rng.permutation(len(features))[:MEDIAN_SAMPLE]]
    squares = pdist(sample, "sqeuclidean")
    squares = squares[squares > _ROUNDING * squares.max(initial=0.0)]
    return float(np.sqrt(np.median(squares))) if len(squares) else 1.0
