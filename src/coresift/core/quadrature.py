r"""The best weights for given points, and the best points for given weights' worth: kernel quadrature.

For chosen rows with kernel matrix K and potentials :math:`b_i = \sum_p w_p k(z_i, p)`, the squared discrepancy
is :math:`v^\top K v - 2 b^\top v` plus a constant: convex in :math:`v \ge 0`; the rows are chosen greedily.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import Bounds, minimize

from .discrepancy import Progress, kernel_matrix, kernel_tile, potential, rounding_of_form, silent, symmetric_tiles
from .moments import chosen_stretch
from .points import Points, Subset

DENSE_LIMIT = 4000  # rows up to which the kernel matrix is held: 128 MB, and as much again to factor it
_LARGEST_TILT = 20.0
_RIDGES = (1e-10, 1e-8, 1e-6, 1e-4)
_TAME, _NEAR = 1e-3, 100.0  # a pivot so large, and lengths so small, that weights hardly notice single precision
_MAX_EXCHANGES = 60
_DESCENT_STEPS = 300
_PICKS, _LIKELY = 16, 256  # rows of a greedy choice that are picked together, and among how many
_GREEDY_BYTES = 1 << 30  # most that the factorisation of a greedy choice may take


def tilted(points: Points, radius: float, loss: str) -> tuple[Points, np.ndarray]:
    """Points and factors of the coefficients in which a small discrepancy means a small certificate."""
    stretch = chosen_stretch(radius, loss)
    # factors that span many orders would lose the digits of what they are multiplied with
    if loss != "gaussian" or abs(1.0 - stretch) * points.max_norm**2 > _LARGEST_TILT:
        return points, np.ones(points.n)
    factors = np.exp(np.clip((stretch - 1.0) * points.squares, -_LARGEST_TILT, _LARGEST_TILT))
    return points.rescaled(float(np.sqrt(stretch))), factors


class Fit(NamedTuple):
    """Weights, and their squared discrepancy less the constant that all weights share."""

    weights: np.ndarray
    value: float


@dataclass(frozen=True, eq=False)
class Quadrature:
    """Weighted points whose kernel sums a few weighted rows are to reproduce."""

    points: Points
    shares: np.ndarray
    loss: str

    def potential(self, at: np.ndarray, K: np.ndarray | None = None) -> np.ndarray:
        """(m,) kernel sums over all points, at the rows ``at``, of kernel matrix K if it is known; O(m n d) time."""
        return potential(self._precise(K), at, self.shares, self.loss)

    def _precise(self, K: np.ndarray | None) -> Points:
        """The points, of a Gaussian in single precision if K is far from singular: weights then hardly notice."""
        is_near = self.loss == "gaussian" and self.points.rounding_norm <= _NEAR
        is_tame = is_near and K is not None and _least_pivot(K) >= _TAME
        return self.points.single() if is_tame else self.points

    def fitted(self, rows: np.ndarray, start: np.ndarray, wanted: np.ndarray | None = None) -> Fit:
        """Non-negative weights of ``rows`` that minimise the discrepancy, never worse than ``start``, and its value.

        ``wanted`` are the potentials, where they are known. The value counts the rounding that a certificate will add.
        """
        K = kernel_matrix(self.points, rows, self.loss) if len(rows) <= DENSE_LIMIT else None
        b = self.potential(rows, K) if wanted is None else wanted

        def product(v: np.ndarray) -> np.ndarray:
            if K is not None:
                return K @ v
            out = np.zeros(len(rows))
            for left, right, tile in symmetric_tiles(self.points, rows, self.loss):
                out[left] += tile @ v[right]
                if left != right:
                    out[right] += v[left] @ tile
            return out

        found = None if K is None else pivoted_weights(K, b)
        if found is None:
            found = descended_weights(product, b, start, _DESCENT_STEPS * (1 if K is None else 10))

        def value(v: np.ndarray) -> float:
            difference = Subset(self.points, self.shares, rows, v).difference
            return float(v @ (product(v) - 2.0 * b)) + rounding_of_form(self.points, difference, self.loss)

        return min((Fit(v, value(v)) for v in (start, found)), key=lambda fit: fit.value)

    def interpolated(self, at: np.ndarray, rows: np.ndarray, n_sampled: int, rng: np.random.Generator) -> np.ndarray:
        r"""Estimates of the potentials at rows, from those of a few: O((M + m) N d) time instead of O(M n d).

        The error e of the mean :math:`\mu_N` over N sampled rows is computed at the m rows S, ``rows``, and
        interpolated: :math:`\hat b(x) = \mu_N(x) + k(x, S) K_{SS}^{-1} e(S)`.
        """
        total = self.shares.sum()
        drawn = rng.choice(self.points.n, n_sampled, p=self.shares / total)
        sampled = np.bincount(drawn, minlength=self.points.n) * (total / n_sampled)
        K = kernel_matrix(self.points, rows, self.loss)
        points = self._precise(K)
        error = potential(points, rows, self.shares - sampled, self.loss)
        K.flat[:: len(rows) + 1] += _RIDGES[1]
        sampled[rows] += cho_solve(cho_factor(K, overwrite_a=True), error)
        return potential(points, at, sampled, self.loss)

    def chosen(
        self, pool: np.ndarray, size: int, wanted: np.ndarray | None = None, progress: Progress = silent
    ) -> np.ndarray:
        """Positions in ``pool`` of the rows to keep: greedy if its factorisation fits into memory, else by herding."""
        wanted = self.potential(pool) if wanted is None else wanted
        choose = self.greedy if 8.0 * (size + self.points.d) * len(pool) <= _GREEDY_BYTES else self.herded
        return choose(pool, size, wanted, progress)

    def greedy(self, pool: np.ndarray, size: int, wanted: np.ndarray, progress: Progress = silent) -> np.ndarray:
        r"""Positions in ``pool`` of ``size`` rows, each lowering the discrepancy most, given the best signed weights.

        With the residual r of the potentials ``wanted``, row s lowers :math:`\|r\|^2` by :math:`r(s)^2 /
        \mathrm{dist}(k_s, \mathrm{span})^2`: a Cholesky factorisation with pivots by that gain (Schaback and Wendland's
        f/P-greedy rule). O(M m (m + d)) time and O(M m) memory. Rows are picked ``_PICKS`` at a time among the
        ``_LIKELY`` of largest gain.
        """
        block, residual = self.points.gather(pool), wanted.copy()
        distance = np.ones(len(pool))  # squared, from the span
        columns, chosen = np.empty((size, len(pool))), np.empty(size, dtype=np.int64)
        for start in range(0, size, _PICKS):
            now = slice(start, min(start + _PICKS, size))
            gain = residual * residual / np.maximum(distance, _RIDGES[1])
            gain[chosen[:start]] = -1.0
            likely = np.argpartition(-gain, min(_LIKELY, len(gain)) - 1)[:_LIKELY]
            near = self.points.gather(pool[likely])
            K = kernel_tile(self.loss, near, near) - columns[:start, likely].T @ columns[:start, likely]
            picks, left, factors = _picked(K, residual[likely], distance[likely], gain[likely] >= 0, now.stop - start)
            chosen[now] = picks = likely[picks]
            new = kernel_tile(self.loss, self.points.gather(pool[picks]), block)
            new -= columns[:start, picks].T @ columns[:start]
            columns[now] = new = solve_triangular(left, new, lower=True, overwrite_b=True)
            residual -= factors @ new
            distance -= np.einsum("ij,ij->j", new, new)
            progress(now.stop - start)
        return np.sort(chosen)

    def herded(self, pool: np.ndarray, size: int, wanted: np.ndarray, progress: Progress = silent) -> np.ndarray:
        """Positions in ``pool`` of ``size`` rows by kernel herding (Chen, Welling and Smola 2010), in O(M m d)."""
        block = self.points.gather(pool)
        given = np.zeros(len(pool))
        chosen = np.empty(size, dtype=np.int64)
        open_ = np.ones(len(pool), dtype=bool)
        for step in range(size):
            pick = int(np.where(open_, wanted - given / (step + 1), -np.inf).argmax())
            chosen[step], open_[pick] = pick, False
            given += kernel_tile(self.loss, self.points.gather(pool[pick : pick + 1]), block)[0]
            progress(1)
        return np.sort(chosen)


def _least_pivot(K: np.ndarray) -> float:
    try:
        return float(np.linalg.cholesky(K).diagonal().min(initial=1.0) ** 2)
    except np.linalg.LinAlgError:
        return 0.0


def pivoted_weights(K: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    r"""Minimise :math:`v^\top (K + \lambda I) v - 2 b^\top v` over :math:`v \ge 0`, exactly (Kim and Park 2011).

    Guess which are positive, solve, move all that contradict, or one at a time; raise the ridge if that cycles.
    """
    m = len(b)
    for ridge in _RIDGES:
        A = K.copy()
        A.flat[:: m + 1] += ridge
        positive = np.ones(m, dtype=bool)
        fewest, patience = m + 1, 3
        for _ in range(_MAX_EXCHANGES):
            v = np.zeros(m)
            inside = np.flatnonzero(positive)
            if len(inside) > 0:
                try:
                    v[inside] = cho_solve(cho_factor(A[np.ix_(inside, inside)], overwrite_a=True), b[inside])
                except np.linalg.LinAlgError:
                    break
            wrong = np.where(positive, v < 0, A @ v - b < -1e-12)
            n_wrong = int(wrong.sum())
            if n_wrong == 0:
                return v
            fewest, patience = (n_wrong, 3) if n_wrong < fewest else (fewest, patience - 1)
            if patience < 0:
                wrong[: np.flatnonzero(wrong)[-1]] = False
            positive ^= wrong
    return None


def descended_weights(
    product: Callable[[np.ndarray], np.ndarray], b: np.ndarray, start: np.ndarray, n_steps: int
) -> np.ndarray:
    """The same by L-BFGS-B, about one product with K a step."""

    def form(v: np.ndarray) -> tuple[float, np.ndarray]:
        Kv = product(v)
        return float(v @ (Kv - 2.0 * b)), 2.0 * (Kv - b)

    options = {"maxiter": n_steps, "maxfun": n_steps + 10, "ftol": 0.0, "gtol": 1e-12}
    return np.asarray(minimize(form, start, jac=True, method="L-BFGS-B", bounds=Bounds(0.0), options=options).x)


def _picked(
    K: np.ndarray, residual: np.ndarray, distance: np.ndarray, is_open: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Greedy picks by their positions in K, the kernel left over; its Cholesky factor there; factors of the columns."""
    columns, picks, factors = np.empty((count, len(K))), np.empty(count, dtype=np.int64), np.empty(count)
    for step in range(count):
        gain = np.where(is_open, residual * residual / np.maximum(distance, _RIDGES[1]), -1.0)
        picks[step] = pick = int(gain.argmax())
        is_open[pick] = False
        pivot = np.sqrt(max(distance[pick], _RIDGES[1]))
        columns[step] = (K[pick] - columns[:step, pick] @ columns[:step]) / pivot
        columns[step, pick], factors[step] = pivot, residual[pick] / pivot
        residual = residual - columns[step] * factors[step]
        distance = distance - columns[step] * columns[step]
    return picks, np.tril(columns[:, picks].T), factors
