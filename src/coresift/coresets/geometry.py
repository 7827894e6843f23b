"""Where the query ball sits, how long a unit is, and which cells summarise the data."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import cdist, pdist

from .._errors import InvalidInputError
from .._validation import check_positive
from ..core.points import BLOCK_BYTES, Matrix, Points, row_slices
from ..core.rowwise import stacked_qr
from ..rows.rows import Block
from .survey import float_rows

MEDIAN_SAMPLE = 1000


def label_numbers(block: Block, numbers: dict[Any, int] | None) -> np.ndarray | None:
    """The number of the label of each row of a block; None without labels or numbers."""
    if numbers is None or block.labels is None:
        return None
    return np.array([numbers[name] for name in block.labels.names], dtype=np.int64)[block.labels.codes]


@dataclass(frozen=True)
class Geometry:
    """Where the ball is, and the groups in its coordinates ``(x - center) / scale``; without labels one group."""

    center: np.ndarray  # (d,) data units
    scale: float
    max_norm: float  # scaled, of a row of positive weight
    rounding_norm: float  # scaled: its square bounds the numbers that are subtracted to get a squared norm
    center_error: float  # scaled: how far the centre may be from the mean
    is_short: bool  # whether squared norms may be expanded, which is faster
    labels: dict[Any, int] | None  # number of the group of each label
    counts: np.ndarray  # (g,) rows that have weight
    mass: np.ndarray  # (g,) sums of weights
    offsets: np.ndarray  # (g, d) means, scaled
    variances: np.ndarray  # (g,) scaled

    def groups(self, block: Block) -> np.ndarray | None:
        """The group of each row of a block; None if there is only one."""
        return label_numbers(block, self.labels)

    def shares(self, block: Block, groups: np.ndarray | None) -> np.ndarray:
        """Weights over the mass of the group."""
        if groups is None:
            return block.weights / self.mass[0]
        mass = self.mass[groups]
        return np.divide(block.weights, mass, out=np.zeros(len(mass)), where=mass > 0)

    def points(self, X: Matrix) -> Points:
        return Points(float_rows(X), self.center, self.scale, self.max_norm)

    def sq_norms(self, X: Matrix) -> np.ndarray:
        """(b,) squared distances from the centre, scaled."""
        if not (self.is_short and isinstance(X, np.ndarray)):
            with np.errstate(over="ignore"):  # rows without weight may be anywhere
                return np.concatenate([rows.sq_norms for _, rows in self.points(X).blocks(budget=BLOCK_BYTES)])
        squares = np.empty(len(X))
        plain = Points(float_rows(X), np.zeros(len(self.center)), 1.0, np.inf)
        for part in row_slices(len(X), 8.0 * X.shape[1], BLOCK_BYTES):
            rows = plain.gather(part)
            squares[part] = rows.sq_norms - 2.0 * rows.dot(self.center[None])[:, 0]
        squares += self.center @ self.center
        squares *= 1.0 / self.scale**2
        return np.maximum(squares, 0.0, out=squares)


class Span:
    """R of the scaled rows of positive weight, by QR of stacked blocks. Its rank is the dimension of their hull.

    Not weighted: a row of little weight spans a direction too. And by QR: in squares, as the Gram matrix has them,
    directions below a part in 10^7 of the widest are lost, and a column with a value of 10^6 for "missing" has one.
    """

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.R = np.zeros((0, len(geometry.center)))

    def update(self, block: Block) -> None:
        d = self.R.shape[1]
        for part, rows in self.geometry.points(block.X).blocks(extra_columns=d):
            self.R = stacked_qr([self.R, rows.dense()[block.weights[part] > 0]], d)

    def merge(self, other: Span) -> None:
        self.R = stacked_qr([self.R, other.R], self.R.shape[1])

    def rank(self) -> int:
        """The dimension, at least 1."""
        spectrum = np.linalg.svd(self.R, compute_uv=False)
        noise = 1e-13 * np.sqrt(self.R.shape[1]) * spectrum.max(initial=0.0)
        return max(1, int(np.sum(spectrum > noise)))


def check_bandwidth(bandwidth: Any) -> None:
    """None, "median" or a positive number."""
    if isinstance(bandwidth, str):
        if bandwidth != "median":
            raise InvalidInputError(f"bandwidth = {bandwidth!r} must be None, 'median' or a number above 0.")
    elif bandwidth is not None:
        check_positive(bandwidth, "bandwidth")


def median_distance(X: Matrix, center: np.ndarray, unit: float, metric: Any = "euclidean") -> float:
    """The median of the positive distances between rows; ``unit``, a typical distance, if there is none."""
    if metric != "euclidean":
        distances = cdist(X, X, metric=metric)
        distances = distances[distances > 0]
        return float(np.median(distances)) if len(distances) > 0 else 1.0
    if isinstance(X, np.ndarray):
        distances = pdist((np.asarray(X, dtype=np.float64) - center) / unit)
    else:
        sample = sp.csr_array(X, dtype=np.float64) / unit
        gram = (sample @ sample.T).toarray()
        squares = gram.diagonal()[:, None] + gram.diagonal() - 2.0 * gram
        distances = np.sqrt(np.maximum(squares[np.triu_indices(X.shape[0], 1)], 0.0))
    distances = distances[distances > 1e-12]
    return float(np.median(distances)) * unit if len(distances) > 0 else unit


def cell_centers(X: Matrix, geometry: Geometry, n_cells: int, seed: int) -> np.ndarray:
    """(k, d) centres in scaled coordinates, by k-means on a sample of rows; k is at most ``n_cells``."""
    if X.shape[0] <= n_cells:
        return geometry.points(X).take(np.arange(X.shape[0]))
    if isinstance(X, np.ndarray):
        return kmeans_centers(geometry.points(X).take(np.arange(len(X))), n_cells, seed)
    centers = kmeans_centers(sp.csr_matrix(X, dtype=np.float64) / geometry.scale, n_cells, seed)
    return centers - geometry.center / geometry.scale


def kmeans_centers(sample: Any, n_cells: int, seed: int) -> np.ndarray:
    """(k, d) centres of the rows of a sample."""
    # imported here because it takes as long as the rest of the package
    from sklearn.cluster import KMeans

    kmeans = KMeans(n_cells, n_init=1, max_iter=20, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer distinct points than cells: the empty ones are dropped later
        return np.asarray(kmeans.fit(sample).cluster_centers_, dtype=np.float64)
