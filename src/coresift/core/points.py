"""What bounds take and return: rows in centred and scaled coordinates, logarithms of bounds, and certificates."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import scipy.sparse as sp

LARGEST_EXPONENT = float(np.log(np.finfo(np.float64).max)) - 50.0  # so that sums of bounds stay finite
BLOCK_BYTES = 1 << 19  # a pass that reads each block a few times wants it in the cache of its core
CACHE_BYTES = 1 << 23  # the same in the cache of all cores: fewer calls, for which threads would wait
GEMM_BLOCK_BYTES = 1 << 25  # a pass that multiplies matrices wants blocks large enough for BLAS

_vecdot = getattr(np, "vecdot", partial(np.einsum, "ij,ij->i"))  # NumPy 2 has it, up to three times as fast

Matrix: TypeAlias = "np.ndarray | sp.csr_array"


def is_sparse(X: Any) -> bool:
    """Whether X is a sparse matrix of SciPy, whose module would be a quarter of the start of a command."""
    return "scipy.sparse" in sys.modules and bool(sys.modules["scipy.sparse"].issparse(X))


def row_slices(n_rows: int, bytes_per_row: float, budget: int = BLOCK_BYTES) -> Iterator[slice]:
    """Consecutive slices of rows that hold about ``budget`` bytes each."""
    step = max(1, int(budget / max(bytes_per_row, 1.0)))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def squared_norms(rows: Matrix) -> np.ndarray:
    """``|row|^2`` for each row."""
    if isinstance(rows, np.ndarray):
        return _vecdot(rows, rows)
    return np.asarray(rows.multiply(rows).sum(axis=1)).ravel()


def as_dense(matrix: Matrix) -> np.ndarray:
    """The matrix as an array."""
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()


def float_rows(X: Matrix) -> Matrix:
    """Rows in C order, so that the same rows give the same bits however they are stored."""
    return np.ascontiguousarray(X) if isinstance(X, np.ndarray) else X


def stacked(parts: list[Any]) -> Any:
    """Arrays, or sparse matrices, one below the other."""
    if not is_sparse(parts[0]):
        return np.concatenate(parts)
    import scipy.sparse as sp

    return sp.vstack(parts, format="csr")


@dataclass(frozen=True)
class Block:
    """Scaled rows ``(x - center) / scale``. Those of a sparse matrix are never formed: products are expanded."""

    rows: Matrix  # (b, d) already divided by the scale
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

    def gram(self, other: Self) -> np.ndarray:
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
        import scipy.sparse as sp

        columns = np.arange(len(weights) + 1)  # one entry in each
        return self._sums(sp.csc_array((weights, groups, columns), shape=(k, len(weights))))

    def _sums(self, coefficients: Matrix) -> np.ndarray:
        sums = as_dense(coefficients @ self.rows)
        return sums if self.shift is None else sums - np.outer(coefficients.sum(axis=1), self.shift)

    @cached_property
    def left(self) -> np.ndarray:
        """Dense rows with two more columns, whose product with ``right`` of a block is minus the squared distances."""
        return np.column_stack((2.0 * self.rows, -self.sq_norms, np.full_like(self.sq_norms, -1.0)))

    @cached_property
    def right(self) -> np.ndarray:
        return np.column_stack((self.rows, np.ones_like(self.sq_norms), self.sq_norms))

    @cached_property
    def sq_norms(self) -> np.ndarray:
        own = squared_norms(self.rows)
        if self.shift is None:
            return own
        # |x - c|^2 = |x|^2 - 2 x.c + |c|^2; rounding can leave a tiny negative number
        return np.maximum(own - 2.0 * (self.rows @ self.shift) + self.sq_shift, 0.0)


def squared_distances(block: Block, centers: np.ndarray) -> np.ndarray:
    """(b, L) squared distances of the rows of a block from centres."""
    squares = block.dot(-2.0 * centers)
    squares += block.sq_norms[:, None]
    squares += squared_norms(centers)
    return np.maximum(squares, 0.0, out=squares)  # rounding can leave a tiny negative number


def euclidean_distances(a: Matrix, b: Matrix) -> np.ndarray:
    """(len(a), len(b)) distances by one matrix product; pairs so close that it loses digits are measured directly."""
    scale = squared_norms(a)[:, None] + squared_norms(b)
    squares = as_dense(a @ b.T)
    squares *= -2.0
    squares += scale
    left, right = np.nonzero(squares <= 1e-6 * scale)
    per_pair = 8.0 * a.shape[1] if isinstance(b, np.ndarray) else 64.0 * b.nnz / b.shape[0]
    for part in row_slices(len(left), per_pair):
        squares[left[part], right[part]] = squared_norms(a[left[part]] - b[right[part]])
    return np.sqrt(squares, out=squares)


def _budget(n_vectors: int) -> int:
    return BLOCK_BYTES if n_vectors < 8 else GEMM_BLOCK_BYTES


class Points:
    """The rows ``z = (x - center) / scale`` of ``X`` (ndarray or CSR), without a scaled copy of it."""

    def __init__(
        self, X: Matrix, center: np.ndarray, scale: float, max_norm: float, dtype: type[np.floating] = np.float64
    ) -> None:
        self.X, self.center, self.scale, self.dtype = X, center, float(scale), dtype
        self._is_moved = bool(center.any())
        self.n, self.d = int(X.shape[0]), int(X.shape[1])
        self.is_sparse = is_sparse(X)
        self.max_norm = float(max_norm)  # the largest |z| of a row of positive weight

    @property
    def rounding_norm(self) -> float:
        """A length whose square bounds the numbers that were subtracted to get a squared norm."""
        # dense rows are subtracted from the centre first, or the centre is not much longer than they are
        shift = float(np.linalg.norm(self.center / self.scale)) if self.is_sparse else 0.0
        return max(self.max_norm, shift)

    @cached_property
    def squares(self) -> np.ndarray:
        """(n,) squared norms of the rows."""
        return np.concatenate([block.sq_norms for _, block in self.blocks(budget=BLOCK_BYTES)])

    def gather(self, rows: slice | np.ndarray) -> Block:
        if isinstance(self.X, np.ndarray):
            return Block(self._dense(self.X[rows], is_own=isinstance(rows, np.ndarray)))
        part = self.X[rows].astype(self.dtype)
        part.data /= self.scale
        return Block(part, (self.center / self.scale).astype(self.dtype))

    def blocks(self, extra_columns: int = 0, budget: int = GEMM_BLOCK_BYTES) -> Iterator[tuple[slice, Block]]:
        """All rows in order. ``extra_columns`` is how many float64 a row the caller adds to a block."""
        own = self.d if isinstance(self.X, np.ndarray) else 2.0 * self.X.nnz / max(self.n, 1)
        for rows in row_slices(self.n, 8.0 * (own + extra_columns), budget):
            yield rows, self.gather(rows)

    def dot(self, others: np.ndarray) -> np.ndarray:
        return np.concatenate([block.dot(others) for _, block in self.blocks(budget=_budget(len(others)))])

    def weighted_sum(self, coefficients: np.ndarray) -> np.ndarray:
        total = np.zeros((coefficients.shape[1], self.d))
        for rows, block in self.blocks(budget=_budget(coefficients.shape[1])):
            total += block.weighted_sum(coefficients[rows])
        return total

    def rescaled(self, factor: float) -> "Points":
        """The same rows where every length is ``factor`` times as many bandwidths."""
        return Points(self.X, self.center, self.scale / factor, self.max_norm * factor)

    def single(self) -> "Points":
        """The same rows in single precision, where half the digits are enough."""
        return Points(self.X, self.center, self.scale, self.max_norm, np.float32)

    def take(self, indices: np.ndarray) -> np.ndarray:
        """(m, d) dense scaled rows; ``m`` is meant to be modest."""
        return self.gather(indices).dense()

    def to_scaled(self, queries: np.ndarray) -> np.ndarray:
        return (np.asarray(queries, dtype=np.float64) - self.center) / self.scale

    def to_data(self, queries: np.ndarray) -> np.ndarray:
        return queries * self.scale + self.center

    def _dense(self, rows: np.ndarray, is_own: bool) -> np.ndarray:
        # widening first: a subtraction of mixed widths is several times slower
        scaled = rows.astype(np.float64, copy=False)
        is_own |= scaled is not rows
        if self._is_moved:
            # in place where the array is ours already: a block is as large as the cache or the budget allows
            scaled, is_own = np.subtract(scaled, self.center, out=scaled if is_own else None), True
        if self.scale != 1.0:
            scaled = np.divide(scaled, self.scale, out=scaled if is_own else None)
        return scaled.astype(self.dtype, copy=False)


@dataclass(frozen=True, eq=False)
class Subset:
    """A weighted subset of weighted points, and the ball of queries at which the sums of both are compared."""

    points: Points
    shares: np.ndarray  # (n,) weights of the points, over their total where sums are certified
    rows: np.ndarray  # (m,)
    weights: np.ndarray  # (m,) of these rows, over the same total
    radius: float = np.inf
    loss: str = "gaussian"

    @cached_property
    def difference(self) -> np.ndarray:
        """(n,) the weights of the subset minus those of the points."""
        difference = -self.shares
        difference[self.rows] += self.weights
        return difference


@dataclass(frozen=True)
class SensitivityBound:
    """Upper bounds on sensitivities, kept as logarithms so that no constant of the paper overflows."""

    log_values: np.ndarray  # (n,) log s(p), -inf for points of weight zero; only the paper's scores may exceed 0
    name: str
    is_certified: bool  # whether s(p) is proved to dominate the sensitivity of p for these points and this radius
    note: str = ""  # one sentence: why it is certified, or what is missing
    gap: np.ndarray | None = None  # (n,) for bounds found by ascent: log s(p) less the logarithm of the ratio reached

    @property
    def values(self) -> np.ndarray:
        """The bounds themselves; one beyond the range of floats becomes a very large float."""
        return np.exp(np.minimum(self.log_values, LARGEST_EXPONENT))


@dataclass(frozen=True)
class Certificate:
    """A proved bound on the relative error of a weighted subset, for every query of a ball.

    Attributes
    ----------
    eps : float
        ``|S(x)/F(x) - 1| <= eps`` for all x of the ball. Above 1 it says nothing about how small S can be.
    discrepancy : float
        ``MMD(S, P) / W``, for many rows an upper bound on it; in the sampled form of a Gaussian ``eps * floor``.
    floor : float
        Lower bound on ``F(x) / W`` over the ball. ``eps`` is at most ``discrepancy / floor`` (over all of space a
        little more), for the Gaussian mostly several times smaller.
    loss, radius : str, float
        The loss, and the radius of the ball in bandwidths: infinite for the Laplacian, over all of space.
    is_exact, n_sampled : bool, int or None
        Whether the bound is certain; otherwise how many rows were sampled.
    confidence : float
        Probability that ``eps`` is a valid bound: 1 if exact.

    Examples
    --------
    >>> from coresift import RBFCoreset
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> proof = RBFCoreset(bandwidth=3.0).fit(X).sample(100, refine=True, random_state=0).certify(X)
    >>> proof.is_exact, proof.eps < 0.01
    (True, True)
    """

    eps: float
    discrepancy: float
    floor: float
    loss: str
    radius: float
    is_exact: bool
    confidence: float
    n_sampled: int | None = None

    def __str__(self) -> str:
        how = "no probability" if self.is_exact else f"with probability {self.confidence:g}"
        where = "of space" if np.isinf(self.radius) else f"within radius {self.radius:g}"
        return f"relative error at most {self.eps:.3g} for all queries {where} ({self.loss}, {how})"


def rounding_slack(max_norm: float, radius: float) -> float:
    """What to add to an exponent, a sum of terms up to ``(max_norm + radius)^2``, so that rounding cannot lower it."""
    return 1e-12 * (1.0 + (max_norm + radius) ** 2)


def log_shares(shares: np.ndarray) -> np.ndarray:
    """Logarithms; ``-inf`` for a share of zero."""
    with np.errstate(divide="ignore"):
        return np.log(shares)
