"""Coresets of least squares and PCA: leverage draws with an exact certificate, and exactly equivalent subsets."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import eigvalsh, svd

from .._errors import InvalidInputError
from .._validation import check_budget, check_instance, check_seed
from ..core.caratheodory import few_rows
from ..core.draw import KeyDraw
from ..core.lewis_passes import Triangle
from ..core.points import as_dense
from ..rows.rows import Block, check_block
from .base import LOADED_BYTES, PassCoreset
from .coreset import Coreset, Guarantee
from .fitting import Runner, first_block
from .linear_rows import check_magnitude

MOST_EXACT_COLUMNS = 64  # 2,211 rows are kept then, and a step takes ten seconds
_COLLINEAR = 1e-10  # singular values below this share of the largest, in standardised columns, count as zero
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class SquaresCertificate:
    r"""How far a weighted subset is from all rows, for every sum of squares at once.

    With A the columns [X, 1, y], :math:`|A_S\theta|_V^2 / |A\theta|_W^2` is from ``lowest`` to ``highest`` for every
    theta with :math:`A\theta \ne 0`. These are extreme eigenvalues, with an allowance for rounding: the interval is as
    small as possible, and certain. ``lowest`` is 0 if the subset does not span all columns; ``rank`` is that of A.

    >>> proof = SquaresCertificate(lowest=0.9, highest=1.1, rank=5)
    >>> round(proof.eps, 3), round(proof.excess, 4)
    (0.1, 0.0123)
    """

    lowest: float
    highest: float
    rank: int

    @property
    def eps(self) -> float:
        """The largest relative error of a sum of squares."""
        return max(1.0 - self.lowest, self.highest - 1.0)

    @property
    def penalized_excess(self) -> float:
        """Bound on ``F(theta_S) / F* - 1``, squares plus any penalty >= 0 or PCA: at most ``2 eps / (1 - eps)``."""
        low, high = min(self.lowest, 1.0), max(self.highest, 1.0)
        return (high - low) / low if low > 0 else np.inf

    @property
    def excess(self) -> float:
        """The same for least squares and ridge regression: at most ``(eps / (1 - eps))^2``."""
        return min((0.5 * self.penalized_excess) ** 2, self.penalized_excess)

    def __str__(self) -> str:
        within = f"within {self.lowest:.6g} and {self.highest:.6g} of those of all rows (rank {self.rank})"
        excess = f"excess of a least-squares fit at most {self.excess:.3g}, with a penalty {self.penalized_excess:.3g}"
        return f"sums of squares {within}; {excess}"


class LeastSquaresCoreset(PassCoreset):
    r"""A weighted subset for linear regression (least squares, ridge, lasso) and PCA, with an exact certificate.

    Rows are drawn by their leverage, which is the sensitivity of the squared loss, so that sums of squares of the
    columns [X, 1, y] are kept; how well follows from the draw (:meth:`certify`). For few columns ``sample(exact=True)``
    keeps them exactly: any fit that depends on the data through their second moments alone is then the same. ``y`` is
    optional: PCA needs none. ``fit`` is one pass over the rows, each draw one more. Singular values below 1e-10 of the
    largest, in standardised columns, count as zero.

    Parameters
    ----------
    random_state
        As in :class:`RBFCoreset`.

    Attributes
    ----------
    rank_ : int
        Rank of [X, 1, y]: the total of the leverages.

    Examples
    --------
    >>> import numpy as np
    >>> from coresift import LeastSquaresCoreset
    >>> X = np.random.default_rng(0).normal(size=(5000, 3))
    >>> est = LeastSquaresCoreset(random_state=0).fit(X, X @ [1.0, 2.0, 3.0] + np.sin(X[:, 0]))
    >>> core = est.sample(exact=True)
    >>> core.size, core.guarantee.eps < 1e-10
    (15, True)
    >>> est.certify(est.sample(500)).excess < 0.1
    True
    """

    takes_targets = True

    def __init__(self, *, random_state: Any = None) -> None:
        self.random_state = random_state

    def _find(self, runner: Runner, rng: np.random.Generator) -> None:
        self._space = _whitening(runner)
        self.rank_ = self._space.rank

    def sample(self, size: int | float | None = None, *, exact: bool = False, random_state: Any = None) -> Coreset:
        """Draw rows by leverage (by keys, unbiased), or find an exact subset. The guarantee is for all sums of squares.

        Parameters
        ----------
        size, random_state
            As in :meth:`RBFCoreset.sample`; not with ``exact``.
        exact : bool
            Return at most D (D + 1) / 2 rows, D = ``rank_``, whose weighted Gram matrix is that of all rows up to
            rounding. Takes at most 64 columns, and time linear in the rows plus O(D^6) for each halving of them. All
            rows are loaded, those of files above 2 GB into a temporary file.
        """
        runner = self._fitted_runner()
        n = runner.rows.n
        if (size is None) != bool(exact):
            raise InvalidInputError(f"size = {size!r}: pass a size, or exact=True, which finds its own.")
        about: dict[str, Any] = {"method": "exact"}
        if exact:
            indices, weights, U = self._exact(runner)
        else:
            assert size is not None
            count, seed = check_budget(size, n), check_seed(random_state, self._draw_rng)
            columns, (indices, weights, _) = runner.run("draw", KeyDraw(self._space.scored, seed, count)).finish()
            U = columns["U"]
            about = {"method": "keys", "seed": seed, "bound": "leverage", "total_sensitivity": float(self.rank_)}
        eps = self._space.certificate(U, weights).eps
        proved = Guarantee("all", eps, argument="extreme eigenvalues") if eps < 1 else None
        return Coreset(indices, weights, n, guarantee=proved, total_weight=self._space.mass, **about)

    def certify(self, core: Coreset) -> SquaresCertificate:
        """How far ``core``, a subset of the fitted rows chosen in any way, is from all of them."""
        rows = self._fitted_runner(check_instance(core, "core", Coreset)).rows
        return self._space.certificate(self._space.of(rows.take(core.indices)), core.weights)

    def _exact(self, runner: Runner) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows, space = runner.rows, self._space
        if rows.d > MOST_EXACT_COLUMNS:
            limit = f"exact=True takes at most {MOST_EXACT_COLUMNS} columns"
            raise InvalidInputError(f"{limit}, but X has {rows.d}; pass a size instead.")
        with rows.load(LOADED_BYTES) as block:

            def rows_of(start: int, end: int) -> np.ndarray:
                part = block.part(slice(start, end))
                return space.of(part) * np.sqrt(part.weights)[:, None]

            indices, factors = few_rows(rows_of, rows.n, space.rank * (space.rank + 1) // 2)
            chosen = block.part(indices)
        kept = chosen.weights > 0
        return indices[kept], (chosen.weights * factors)[kept], space.of(chosen)[kept]


def _columns(block: Block, shift: np.ndarray) -> np.ndarray:
    """The columns [X, y] minus ``shift``, near the mean, in dense float64."""
    found = np.empty((block.n, len(shift)))  # in C order, so that equal rows give equal bits
    found[:, : block.X.shape[1]] = as_dense(block.X)
    if block.targets is not None:
        found[:, -1] = block.targets
    return np.subtract(found, shift, out=found)


def _checked_rows(block: Block, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same with a leading 1, and the factors of a QR."""
    check_block(block)
    check_magnitude(block)
    return np.insert(_columns(block, shift), 0, 1.0, axis=1), np.sqrt(block.weights)


@dataclass(frozen=True)
class _Whitening:
    """Map rows a to u = T^T a with ``sum w u u^T = I``: the leverage of a row is ``w |u|^2``."""

    shift: np.ndarray
    factor: np.ndarray  # (columns, rank - 1)
    origin: np.ndarray  # (rank - 1,)
    mass: float
    slack: float  # how far the Gram matrix of whitened rows may be from I by rounding

    @property
    def rank(self) -> int:
        return self.factor.shape[1] + 1

    def of(self, block: Block) -> np.ndarray:
        """(b, rank)"""
        return np.insert(_columns(block, self.shift) @ self.factor - self.origin, 0, self.mass**-0.5, axis=1)

    def scored(self, block: Block) -> tuple[np.ndarray, dict[str, Any]]:
        """Leverages, and the whitened rows that go with them."""
        U = self.of(block)
        return block.weights * np.square(U).sum(axis=1), {"U": U}

    def certificate(self, U: np.ndarray, weights: np.ndarray) -> SquaresCertificate:
        """The extreme eigenvalues of the weighted Gram matrix of whitened rows."""
        values = eigvalsh((U.T * weights) @ U)
        return SquaresCertificate(max(float(values[0]) - self.slack, 0.0), float(values[-1]) + self.slack, self.rank)


def _whitening(runner: Runner) -> _Whitening:
    """One pass: the R of a QR of [1, X, y]. Without its first row and column it is the R of the centred columns."""
    rows = runner.rows
    shift = np.zeros(rows.d + rows.has_targets)
    with np.errstate(over="ignore", invalid="ignore"):  # the pass refuses what is not finite
        shift = np.nan_to_num(_columns(first_block(rows), shift).mean(axis=0), posinf=0.0, neginf=0.0)
    R = runner.run("Gram matrix", Triangle(partial(_checked_rows, shift=shift), np.ones(len(shift) + 1))).finish()
    R = np.vstack([R, np.zeros((len(shift) + 1 - len(R), len(shift) + 1))])
    if not R[0, 0] != 0:
        raise InvalidInputError(f"{rows.name}: the weights are all zero.")
    lengths, spreads = np.linalg.norm(R[:, 1:], axis=0), np.linalg.norm(R[1:, 1:], axis=0)
    spread = np.where(spreads > _COLLINEAR * lengths, spreads, np.inf)  # constant columns
    _, s, Vt = svd(R[1:, 1:] / spread)
    kept = s > _COLLINEAR * s[0]
    factor = Vt[kept].T / s[kept] / spread[:, None]
    condition = s[0] / s[kept].min(initial=s[0]) * np.max(lengths / spread, initial=1.0) if kept.any() else 1.0
    slack = 8.0 * _EPS * float(condition) * (len(shift) + 1 + float(np.sqrt(rows.n)))
    return _Whitening(shift, factor, R[0, 1:] / R[0, 0] @ factor, float(R[0, 0] ** 2), slack)
