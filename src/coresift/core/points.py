"""Rows of a data matrix seen in centred and scaled coordinates, block by block.

Every pass over data in the core goes through :class:`Points`, so that dense arrays of either float width and sparse
matrices share one code: a block is small, float64, and made when it is needed. Nothing here holds a second copy of the
data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

BLOCK_BYTES = 1 << 20  # a pass that reads each block a few times wants it in the second-level cache
GEMM_BLOCK_BYTES = 1 << 25  # a pass that multiplies matrices wants blocks large enough for BLAS
_LARGEST_SHIFT = (
    100.0  # a mean this much longer (squared) than the farthest distance costs two digits, no more
)
_SAFE_SQUARES = (1e-120, 1e120)  # squares inside are free of overflow and underflow, and so are sums of them

Matrix: TypeAlias = "np.ndarray | sp.csr_array"


def row_slices(n_rows: int, bytes_per_row: float, budget: int = BLOCK_BYTES) -> Iterator[slice]:
    """Consecutive slices of rows that hold about ``budget`` bytes each."""
    step = max(1, int(budget / max(bytes_per_row, 1.0)))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def squared_norms(rows: Matrix) -> np.ndarray:
    """``|row|^2`` for each row."""
    if isinstance(rows, np.ndarray):
        return np.einsum("ij,ij->i", rows, rows)
    return np.asarray(rows.multiply(rows).sum(axis=1)).ravel()


def as_dense(matrix: Matrix) -> np.ndarray:
    """The matrix as an array."""
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()


@dataclass(frozen=True)
class Block:
    """Scaled rows ``(x - center) / scale``. Those of a sparse matrix are never formed: products are expanded."""

    rows: Matrix  # (b, d) float64, already divided by the scale
    shift: np.ndarray | None = None  # (d,) what is still to be subtracted from sparse rows: center / scale

    @cached_property
    def sq_shift(self) -> float:
        """Squares that cancel in ``sq_norms``: none where the rows are formed."""
        return 0.0 if self.shift is None else float(self.shift @ self.shift)

    def dense(self) -> np.ndarray:
        rows = as_dense(self.rows)
        return rows if self.shift is None else rows - self.shift

    def dot(self, others: np.ndarray) -> np.ndarray:
        """(b, k) inner products with the rows of ``others`` (k, d)."""
        products: np.ndarray = self.rows @ others.T
        return products if self.shift is None else products - others @ self.shift

    def gram(self, other: Block) -> np.ndarray:
        """(b, b') inner products with the rows of another block of the same points."""
        products = as_dense(self.rows @ other.rows.T)
        if self.shift is None:
            return products
        return products - (self.rows @ self.shift)[:, None] - other.rows @ self.shift + self.sq_shift

    def weighted_sum(self, coefficients: np.ndarray) -> np.ndarray:
        """(k, d) sums of the rows with coefficients (b, k)."""
        return self._sums(coefficients.T)

    def group_sums(self, weights: np.ndarray, groups: np.ndarray | None, k: int) -> np.ndarray:
        """(k, d) weighted sums of the rows of each group; ``groups`` is None if there is only one."""
        if groups is None:
            return self._sums(weights[None])
        return self._sums(sp.csr_array((weights, (groups, np.arange(len(weights)))), shape=(k, len(weights))))

    def _sums(self, coefficients: Matrix) -> np.ndarray:
        sums = as_dense(coefficients @ self.rows)
        return sums if self.shift is None else sums - np.outer(coefficients.sum(axis=1), self.shift)

    @cached_property
    def sq_norms(self) -> np.ndarray:
        """(b,) squared norms of the rows."""
        own = squared_norms(self.rows)
        if self.shift is None:
            return own
        # |x - c|^2 = |x|^2 - 2 x.c + |c|^2; rounding can leave a tiny negative number
        return np.maximum(own - 2.0 * (self.rows @ self.shift) + self.sq_shift, 0.0)


def squared_distances(block: Block, centers: np.ndarray) -> np.ndarray:
    """(b, L) squared distances of the rows of a block from centres."""
    squares = block.dot(centers)
    squares *= -2.0
    squares += block.sq_norms[:, None]
    squares += squared_norms(centers)
    return np.maximum(squares, 0.0, out=squares)  # rounding can leave a tiny negative number


class Points:
    """The rows ``z = (x - center) / scale`` of ``X`` (ndarray or CSR), without a scaled copy of it."""

    def __init__(self, X: Matrix, center: np.ndarray, scale: float, max_norm: float) -> None:
        self.X = X
        self.center = center
        self.scale = float(scale)
        self.max_norm = float(max_norm)
        """The largest ``|z|`` of a row of positive weight."""

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def d(self) -> int:
        """Number of columns."""
        return int(self.X.shape[1])

    @property
    def rounding_norm(self) -> float:
        """A length whose square bounds the numbers that were subtracted to get a squared norm."""
        # dense rows are subtracted from the centre first, or the centre is not much longer than they are
        shift = float(np.linalg.norm(self.center / self.scale)) if self.is_sparse else 0.0
        return max(self.max_norm, shift)

    @property
    def is_sparse(self) -> bool:
        """Whether the data are sparse."""
        return sp.issparse(self.X)

    def gather(self, rows: slice | np.ndarray) -> Block:
        """A block of the rows given by a slice or by their numbers."""
        if isinstance(self.X, np.ndarray):
            return Block(self._dense(self.X[rows]))
        part = self.X[rows].astype(np.float64)
        part.data /= self.scale
        return Block(part, self.center / self.scale)

    def blocks(self, extra_columns: int = 0, budget: int = GEMM_BLOCK_BYTES) -> Iterator[tuple[slice, Block]]:
        """All rows in order. ``extra_columns`` is how many float64 a row the caller adds to a block."""
        per_row = 8.0 * (
            extra_columns + (self.d if isinstance(self.X, np.ndarray) else 2.0 * self.X.nnz / max(self.n, 1))
        )
        for rows in row_slices(self.n, per_row, budget):
            yield rows, self.gather(rows)

    def dot(self, others: np.ndarray) -> np.ndarray:
        """(n, k) inner products with the rows of ``others`` (k, d)."""
        return np.concatenate([block.dot(others) for _, block in self.blocks()])

    def weighted_sum(self, coefficients: np.ndarray) -> np.ndarray:
        """(k, d) sums of the rows with coefficients (n, k)."""
        total = np.zeros((coefficients.shape[1], self.d))
        for rows, block in self.blocks():
            total += block.weighted_sum(coefficients[rows])
        return total

    def subset(self, rows: np.ndarray) -> Points:
        """Some of the rows, in the same coordinates."""
        return Points(self.X[rows], self.center, self.scale, self.max_norm)

    def take(self, indices: np.ndarray) -> np.ndarray:
        """(m, d) dense scaled rows; ``m`` is meant to be modest."""
        if isinstance(self.X, np.ndarray):
            return self._dense(self.X[indices])
        return (self.X[indices].astype(np.float64).toarray() - self.center) / self.scale

    def to_scaled(self, queries: np.ndarray) -> np.ndarray:
        """Queries in data units, in scaled coordinates."""
        return (np.asarray(queries, dtype=np.float64) - self.center) / self.scale

    def to_data(self, queries: np.ndarray) -> np.ndarray:
        """Scaled queries, in data units."""
        return queries * self.scale + self.center

    def _dense(self, rows: np.ndarray) -> np.ndarray:
        # widening first: a subtraction of mixed widths is several times slower
        scaled = rows.astype(np.float64, copy=False)
        if self.center.any():
            # in place where the array is ours already: a block is as large as the cache or the budget allows
            scaled = np.subtract(scaled, self.center, out=None if scaled is rows else scaled)
        if self.scale != 1.0:
            scaled = np.divide(scaled, self.scale, out=None if scaled is rows else scaled)
        return scaled


@dataclass(frozen=True)
class Moments:
    """What one look at the data gives: centre, spread, and every point's distance from the centre.

    ``sq_norms`` are in units of ``unit**2`` (a power of two, 1 for ordinary data), so that data of magnitude 1e150 or
    1e-150 neither overflow nor vanish.
    """

    mean: np.ndarray  # (d,)
    sq_norms: np.ndarray  # (n,) |x - mean|^2 / unit^2
    unit: float
    max_norm: float  # largest |x - mean| of a point of positive weight, data units
    variance: float  # weighted mean of sq_norms
    center_error: float  # how far ``mean`` may be from the mean, data units: it is rounded to floats

    def scaled_sq_norms(self, scale: float) -> np.ndarray:
        """Squared distances from the mean, in units of ``scale``."""
        ratio = self.unit / scale
        with np.errstate(over="ignore", invalid="ignore"):  # rows without weight may be anywhere
            scaled: np.ndarray = self.sq_norms * ratio * ratio
        scaled[self.sq_norms == 0] = 0.0  # also where the ratio is too large for a float
        return scaled

    def scaled_variance(self, scale: float) -> float:
        """The variance, in units of ``scale``."""
        ratio = self.unit / scale
        return self.variance * ratio * ratio if self.variance else 0.0


def moments(X: Matrix, shares: np.ndarray) -> Moments:
    """Weighted mean, variance and all distances from the mean, in two passes; ``shares`` are weights that sum to 1.

    NaN or infinity anywhere in ``X`` leaves a distance that is not finite: a check that costs nothing. So does a row of
    weight zero that is too far away for its square.
    """
    positive = shares > 0
    with np.errstate(over="ignore", invalid="ignore"):
        mean, sq_norms = _mean_and_distances(X, shares)
        farthest = float(sq_norms.max(where=positive, initial=0.0))
        usable = (
            bool(np.isfinite(sq_norms.sum()))
            and _SAFE_SQUARES[0] < farthest < _SAFE_SQUARES[1]
            and mean @ mean <= _LARGEST_SHIFT * farthest
        )
        unit = 1.0
        if not usable:  # form the differences, in units in which their squares are ordinary numbers
            peak = _largest_entry(X, positive)
            if not np.isfinite(peak) or not np.isfinite(mean).all():
                return Moments(mean, np.full(len(sq_norms), np.nan), 1.0, np.nan, np.nan, np.nan)
            unit = 2.0 ** min(float(np.ceil(np.log2(peak))), 1023.0) if peak > 0 else 1.0
            common = _common_row(X, positive)
            mean = common if common is not None else mean + unit * _mean_in_units(X, shares, mean, unit)
            for rows, block in Points(X, mean, unit, max_norm=np.inf).blocks(budget=BLOCK_BYTES):
                sq_norms[rows] = block.sq_norms
            if common is not None:
                sq_norms[positive] = 0.0  # in sparse rows rounding has left something
            farthest = float(sq_norms.max(where=positive, initial=0.0))
        variance = float(shares @ sq_norms)
    max_norm = float(np.sqrt(farthest)) * unit
    center_error = 4.0 * np.finfo(np.float64).eps * float(np.linalg.norm(mean / unit)) * unit
    return Moments(mean, sq_norms, unit, max_norm, variance, center_error)


def _largest_entry(X: Matrix, positive: np.ndarray) -> float:
    """The largest magnitude in a row of positive weight; NaN if there is a NaN in any row."""
    if not isinstance(X, np.ndarray):
        kept = X if positive.all() else X[positive]
        return float(max(kept.max(), -kept.min())) if np.isfinite(X.data).all() else np.nan
    peak = 0.0
    for rows in row_slices(len(X), X.itemsize * X.shape[1]):
        high = np.maximum(X[rows].max(axis=1), -X[rows].min(axis=1))
        if not np.isfinite(high).all():
            return np.nan
        peak = max(peak, float(high.max(where=positive[rows], initial=0.0)))
    return peak


def _common_row(X: Matrix, positive: np.ndarray) -> np.ndarray | None:
    """The row that all rows of positive weight are equal to, if they are."""
    if not isinstance(X, np.ndarray):
        kept = X if positive.all() else X[positive]
        low, high = (extreme.toarray().ravel() for extreme in (kept.min(axis=0), kept.max(axis=0)))
        return low.astype(np.float64) if np.array_equal(low, high) else None
    first = X[int(positive.argmax())]
    for rows in row_slices(len(X), X.itemsize * X.shape[1]):
        if not (X[rows] == first)[positive[rows]].all():
            return None
    return first.astype(np.float64)


def _mean_in_units(X: Matrix, shares: np.ndarray, center: np.ndarray, unit: float) -> np.ndarray:
    """The weighted mean of ``(x - center) / unit``: what the rounding of a first mean left."""
    rest = np.zeros(X.shape[1])
    for rows, block in Points(X, center, unit, max_norm=np.inf).blocks(budget=BLOCK_BYTES):
        rest += block.weighted_sum(shares[rows, None])[0]
    return rest


def _mean_and_distances(X: Matrix, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean m and ``|x|^2 - 2 x.m + |m|^2``: no temporaries, but it loses the digits by which |m|^2 is larger."""
    raw = Points(X, np.zeros(X.shape[1]), 1.0, max_norm=np.inf)
    is_uniform = shares.min() == shares.max()
    mean = np.zeros(raw.d)
    distances = np.empty(raw.n)
    for rows, block in raw.blocks(budget=BLOCK_BYTES):
        distances[rows] = block.sq_norms
        if is_uniform and block.shift is None:  # twice as fast as a product with a constant vector
            mean += block.rows.sum(axis=0) * shares[0]
        else:
            mean += block.weighted_sum(shares[rows, None])[0]
    for rows, block in raw.blocks(budget=BLOCK_BYTES):
        distances[rows] -= 2.0 * block.dot(mean[None])[:, 0]
    distances += mean @ mean
    return mean, np.maximum(distances, 0.0, out=distances)
