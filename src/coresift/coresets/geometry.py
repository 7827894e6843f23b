"""Where the query ball sits, how long a unit is, and which cells summarise the data."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import pdist

from .._errors import InvalidInputError
from .._validation import LARGEST_RATIO, check_positive
from ..core.draw import finish_keys, key_candidates
from ..core.points import Matrix, Moments, Points

MEDIAN_SAMPLE = 1000
_ROWS_PER_CELL = 40  # k-means centres are means of about this many rows: enough, since any partition is valid


def weighted_rows(shares: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """``size`` distinct rows drawn in proportion to ``shares``; all that have weight if they are fewer.

    By keys, so that passes over files draw the same rows.
    """
    candidates = key_candidates(shares, shares, int(rng.integers(2**63)), 0, size)
    return finish_keys(candidates, size).indices


def cells_sample_size(n_cells: int) -> int:
    """Rows from which the centres of the cells are found."""
    return max(_ROWS_PER_CELL * n_cells, MEDIAN_SAMPLE)


def check_bandwidth(bandwidth: Any) -> None:
    """None, "median" or a positive number."""
    if isinstance(bandwidth, str):
        if bandwidth != "median":
            raise InvalidInputError(f"bandwidth = {bandwidth!r} must be None, 'median' or a number above 0.")
    elif bandwidth is not None:
        check_positive(bandwidth, "bandwidth")


def check_reach(found: Moments, scale: float) -> None:
    """Refuse rows so far away, in bandwidths, that powers of their distance overflow."""
    farthest = float(np.sqrt(found.sq_norms.max())) * found.unit
    if not farthest <= LARGEST_RATIO * scale:
        raise InvalidInputError(
            f"bandwidth = {scale:.3g} is too small for X, which has a row {farthest:.3g} away from the mean; at most "
            f"{LARGEST_RATIO:g} bandwidths are possible."
        )


def choose_scale(
    bandwidth: Any, X: Matrix, found: Moments, shares: np.ndarray, rng: np.random.Generator
) -> float:
    """The bandwidth in units of the data: the farthest point (None), the median distance, or the number given."""
    if bandwidth is None:
        return found.max_norm or 1.0  # all points equal: any unit will do
    if isinstance(bandwidth, str):
        return median_distance(X, found, weighted_rows(shares, MEDIAN_SAMPLE, rng))
    return float(bandwidth)


def median_distance(X: Matrix, found: Moments, rows: np.ndarray) -> float:
    """The median of the positive distances between ``rows``; 1 if there is none."""
    unit = found.max_norm or 1.0
    if isinstance(X, np.ndarray):
        distances = pdist((np.asarray(X[rows], dtype=np.float64) - found.mean) / unit)
    else:
        sample = sp.csr_array(X[rows], dtype=np.float64) / unit
        gram = (sample @ sample.T).toarray()
        squares = gram.diagonal()[:, None] + gram.diagonal() - 2.0 * gram
        distances = np.sqrt(np.maximum(squares[np.triu_indices(len(rows), 1)], 0.0))
    distances = distances[distances > 1e-12]
    return float(np.median(distances)) * unit if len(distances) > 0 else unit


def cell_centers(points: Points, shares: np.ndarray, n_cells: int, rng: np.random.Generator) -> np.ndarray:
    """(k, d) centres in scaled coordinates, by k-means on a sample of rows; k is at most ``n_cells``."""
    rows = weighted_rows(shares, cells_sample_size(n_cells), rng)
    if len(rows) <= n_cells:
        return points.take(rows)
    sample = (
        points.take(rows)
        if not points.is_sparse
        else sp.csr_matrix(points.X[rows], dtype=np.float64) / points.scale
    )
    centers = kmeans_centers(sample, n_cells, int(rng.integers(2**31)))
    return centers - points.center / points.scale if points.is_sparse else centers


def kmeans_centers(sample: Any, n_cells: int, seed: int) -> np.ndarray:
    """(k, d) centres of the rows of a sample."""
    # imported here because it takes as long as the rest of the package
    from sklearn.cluster import KMeans

    kmeans = KMeans(n_cells, n_init=1, max_iter=20, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer distinct points than cells: the empty ones are dropped later
        return np.asarray(kmeans.fit(sample).cluster_centers_, dtype=np.float64)
