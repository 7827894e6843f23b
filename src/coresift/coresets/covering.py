"""Cover rows by the cells of k-means, found from coarse to fine: the row nearest to each centre."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError
from .._progress import Display, Progress
from .._threads import SCIKIT_LEARN
from .._validation import check_count
from .bounds import kmeans_centers

_BLOCK = 1 << 22  # distances computed at once
_FEW_CELLS = 256  # found in one go
_ROUNDS = 10  # of draws by squared distance
_COARSE_ROWS = 40  # rows per coarse cell from which its centre is found

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]


def cover_rows(
    features: np.ndarray,
    size: int,
    rng: np.random.Generator,
    *,
    weights: Floats | None = None,
    per_cell: int = 64,
    display: Display = Progress,
) -> tuple[Rows, Floats]:
    """Choose the row nearest to the centre of each of ``size`` k-means cells; it weighs as much as its cell.

    Centres are found from ``per_cell`` rows a cell at most. Empty cells are replaced by the rows that are represented
    worst; these share the weight of their cell.
    """
    small = features.astype(np.float32)
    sample = rng.permutation(len(small))[: per_cell * size]
    centers = cover_centers(small[sample], size, rng, display)
    cells, distances = nearest_centers(features, centers)
    order = np.lexsort((distances, cells))  # by cell, nearest first
    is_first = np.r_[True, cells[order][1:] != cells[order][:-1]]
    chosen = order[is_first]
    if len(chosen) < size:
        others = order[~is_first]
        worst = np.argsort(-distances[others], kind="stable")[: size - len(chosen)]
        chosen = np.concatenate((chosen, others[worst]))
    masses = np.bincount(cells, weights=weights)
    shares = np.bincount(cells[chosen], minlength=len(masses))
    return chosen, masses[cells[chosen]] / shares[cells[chosen]]


def cover_centers(features: np.ndarray, size: int, rng: np.random.Generator, display: Display = Progress) -> np.ndarray:
    r"""(size, d) centres of k-means; above 256 in two levels: O(n sqrt(size) d) in place of O(n size d) a step.

    Draws by squared distance (k-means++, in ten rounds) say how many centres each of ``sqrt(size) / 2`` coarse cells
    gets; k-means inside each cell finds them; one step of Lloyd's algorithm over all rows mends the borders. The cost
    is a few per cent above that of k-means on all rows at once.
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
        fine = own if wanted[cell] >= len(own) else kmeans_centers(own, wanted[cell], int(rng.integers(2**31)))
        found.append(fine)
        progress(len(own))
    centers = np.concatenate(found)
    cells, _ = nearest_centers(features, centers)
    order = np.argsort(cells, kind="stable")
    used, starts, counts = np.unique(cells[order], return_index=True, return_counts=True)
    centers[used] = np.add.reduceat(features[order], starts, axis=0, dtype=np.float64) / counts[:, None]
    return centers


def _spread_rows(features: np.ndarray, size: int, rng: np.random.Generator) -> Rows:
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


def nearest_centers(features: np.ndarray, centers: np.ndarray) -> tuple[Rows, Floats]:
    """The nearest centre of every row, found in float32, and its squared distance in float64.

    ``features`` are centred about zero; otherwise float32 would lose the differences.
    """
    cells, far = np.empty(len(features), dtype=np.int64), np.empty(len(features))
    right = np.ascontiguousarray(-2.0 * centers.T, dtype=np.float32)
    norms = np.einsum("ij,ij->i", centers, centers).astype(np.float32)
    for start in range(0, len(features), step := max(1, _BLOCK // max(centers.shape))):
        block = slice(start, start + step)
        squares = features[block].astype(np.float32, copy=False) @ right
        squares += norms
        cells[block] = squares.argmin(axis=1)
        way = features[block] - centers[cells[block]]
        far[block] = np.einsum("ij,ij->i", way, way)
    return cells, far


def principal(matrix: Any, n_components: int) -> NDArray[Any]:
    """Project onto the first principal components."""
    from sklearn.decomposition import PCA

    n_components = check_count(n_components, "n_components")
    if isinstance(matrix, np.ndarray):
        pca = PCA(min(n_components, *matrix.shape), random_state=0)
    else:  # the solver for sparse matrices finds one component less
        pca = PCA(min(n_components, min(matrix.shape) - 1), svd_solver="arpack", random_state=0)
    with SCIKIT_LEARN, np.errstate(invalid="ignore"):  # 0 / 0 in the explained variance where all rows are equal
        return pca.fit_transform(matrix)


def dense_centred(matrix: Any) -> Floats:
    """Features as a dense matrix about their mean: squares of large numbers would lose the distances."""
    found = np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, dtype=np.float64)
    if not np.isfinite(found).all():
        raise InvalidInputError("features contain NaN or infinity; distances need finite numbers.")
    return found - found.mean(axis=0)
