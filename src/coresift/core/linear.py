"""Fit a linear model: ``F(theta) = sum_i w_i l(theta; x_i, y_i) / W + (alpha / 2) |coef|^2`` and its minimum."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh, lstsq
from scipy.optimize import minimize

from .linear_losses import Huber, LinearLoss, Poisson, Squared
from .points import Matrix, row_slices, squared_norms

_LARGEST_STEPS = 100
_HALVINGS = 30  # of a step
_GOOD_STEP = 0.1  # expected fall after a step over that before, up to which a Hessian serves again
_LARGEST_HESSIAN = 2000
_DIGITS_LOST = 1e-12  # eigenvalues below this share of the largest are rounding: collinear or constant columns


@dataclass(frozen=True)
class LinearProblem:
    """What is minimised, ``alpha`` in the units of the data, and the columns ``(x - shift) / spread``, then ones.

    These columns, in which theta is (K, n_columns), are for the numerics only.
    """

    loss: LinearLoss
    alpha: float
    shift: np.ndarray  # (d,), zeros if rows are sparse or the intercept is missing or penalised
    spread: np.ndarray  # (d,), positive
    fit_intercept: bool = True
    intercept_penalty: float = 0.0  # of the squared intercept, relative to that of the squared coefficients

    @property
    def n_columns(self) -> int:
        return len(self.shift) + self.fit_intercept

    @property
    def shape(self) -> tuple[int, int]:
        return self.loss.n_outputs, self.n_columns

    @property
    def penalties(self) -> np.ndarray:
        """(n_columns,) what half the squared parameters are multiplied by."""
        own = self.alpha / self.spread**2
        return np.append(own, self.alpha * self.intercept_penalty) if self.fit_intercept else own

    def columns(self, X: Matrix) -> Matrix:
        """(b, n_columns) float64: the rows in these columns."""
        if not isinstance(X, np.ndarray):
            scaled = sp.csr_array(X, dtype=np.float64) @ sp.diags_array(1.0 / self.spread)
            ones = sp.csr_array(np.ones((X.shape[0], 1)))
            return sp.csr_array(sp.hstack([scaled, ones])) if self.fit_intercept else sp.csr_array(scaled)
        made, more = np.ones((len(X), self.n_columns)), self.n_columns - len(self.shift)
        made[:, : len(self.shift)] = X
        made -= np.append(self.shift, np.zeros(more))  # whole rows at once: parts of them take twice as long
        made /= np.append(self.spread, np.ones(more))
        return made

    def to_data(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (K, d) and intercepts (K,) in the units of the data."""
        coef = theta[:, : len(self.shift)] / self.spread
        intercept = theta[:, -1] - coef @ self.shift if self.fit_intercept else np.zeros(len(theta))
        return coef, intercept

    def from_data(self, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
        theta = coef * self.spread
        return np.column_stack([theta, intercept + coef @ self.shift]) if self.fit_intercept else theta


class LossSums:
    """Sums over rows of the loss at ``theta`` and, for ``order`` 1 and 2, of its gradient and Hessian."""

    summed: tuple[str, ...] = ("weight", "value", "gradient", "hessian")

    def __init__(self, problem: LinearProblem, theta: np.ndarray, order: int = 2) -> None:
        self.problem, self.theta, self.order = problem, theta, order
        outputs, width = problem.shape
        self.weight = self.value = 0.0
        self.gradient = np.zeros(problem.shape)
        self.hessian = np.zeros((outputs, width, outputs, width)) if order > 1 else np.zeros((0,) * 4)

    def add(self, X: Matrix, y: np.ndarray, weights: np.ndarray, *others: "LossSums") -> None:
        """Add rows as they are in the data; also to ``others`` of the same problem."""
        for part in self._slices(X):
            A = self.problem.columns(X[part])
            for sums in (self, *others):
                sums.add_columns(A, y[part], weights[part])

    def _slices(self, rows: Matrix) -> Iterator[slice]:
        return row_slices(rows.shape[0], 8.0 * self.problem.n_columns * self.problem.loss.n_outputs)

    def add_columns(self, A: Matrix, y: np.ndarray, weights: np.ndarray) -> None:
        loss, z = self.problem.loss, A @ self.theta.T
        self.weight += float(weights.sum())
        with np.errstate(over="ignore", invalid="ignore"):
            self.value += float(np.sum(weights * loss.values(z, y)))
            if self.order > 0:
                self._add_slopes(A, z, y, weights)
            if self.order > 1:
                curvatures = loss.curvatures(z, y)
                for i, factors in enumerate((weights[:, None] * curvatures).T):
                    self.hessian[i, :, i] += weighted_gram(A, factors)
                if loss.n_outputs > 1:
                    self.hessian -= weighted_gram(side_by_side(A, curvatures.T), weights).reshape(self.hessian.shape)

    def _add_slopes(self, A: Matrix, z: np.ndarray, y: np.ndarray, weights: np.ndarray) -> None:
        self.gradient += (A.T @ (weights[:, None] * self.problem.loss.slopes(z, y))).T

    def merge(self, other: Self) -> None:
        for name in self.summed:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def objective(self) -> float:
        return self.value / self.weight + 0.5 * float((self.theta**2 @ self.problem.penalties).sum())

    @property
    def slope(self) -> np.ndarray:
        """(K, n_columns) gradient of F."""
        return self.gradient / self.weight + self.theta * self.problem.penalties

    def newton_step(self) -> tuple[np.ndarray, float]:
        """The step that minimises the quadratic model of F, and by how much F would fall per unit of it at first."""
        gradient, size = self.slope, self.theta.size
        hessian = self.hessian.reshape(size, size) / self.weight
        hessian[np.diag_indices(size)] += np.tile(self.problem.penalties, len(gradient))
        step = solve_positive(hessian, -gradient.ravel())
        return step.reshape(gradient.shape), -float(gradient.ravel() @ step)


def weighted_gram(A: Matrix, weights: np.ndarray) -> np.ndarray:
    """``A^T diag(weights) A`` as an array, for weights that are not negative."""
    if isinstance(A, np.ndarray):
        scaled = A * np.sqrt(weights)[:, None]
        return np.asarray(scaled.T @ scaled)  # by symmetry, half the work
    return np.asarray((A.T @ A.multiply(weights[:, None])).toarray())


def side_by_side(A: Matrix, factors: np.ndarray) -> Matrix:
    """The rows times each of the (k, b) ``factors``: (b, k times columns)."""
    if isinstance(A, np.ndarray):
        return np.hstack([A * factor[:, None] for factor in factors])
    return sp.csr_array(sp.hstack([A.multiply(factor[:, None]) for factor in factors]))


def solve_positive(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve with a positive semidefinite matrix; the shortest solution if it is singular."""
    # in units of the diagonal, so that "singular" does not depend on the units of the columns
    unit = np.sqrt(np.where(matrix.diagonal() > 0, matrix.diagonal(), 1.0))
    scaled = matrix / unit / unit[:, None]
    try:
        return np.asarray(cho_solve(cho_factor(scaled + 1e-14 * np.eye(len(unit))), right / unit) / unit)
    except LinAlgError:
        return np.asarray(lstsq(scaled, right / unit, cond=1e-12)[0] / unit)


class Leverage:
    """The map from rows to their leverage ``a^T (A^T W A)^+ a``, from the Gram matrix; w times it sums to the rank."""

    def __init__(self, gram: np.ndarray) -> None:
        diagonal = gram.diagonal()
        unit = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))  # so that the cut does not depend on units
        values, vectors = eigh(gram / unit / unit[:, None])
        kept = values > _DIGITS_LOST * max(float(values[-1]), 0.0)
        self.factor = vectors[:, kept] / np.sqrt(values[kept]) / unit[:, None]
        self.rank = int(np.count_nonzero(kept))

    def of(self, A: Matrix) -> np.ndarray:
        return squared_norms(A @ self.factor)


def newton(
    sums_at: Callable[[np.ndarray, int], LossSums], theta: np.ndarray, near: LossSums | None = None, tol: float = 1e-12
) -> LossSums:
    """Minimise by damped Newton steps until the expected fall is at most ``tol`` of F; returns the sums at the best.

    Each ``sums_at(theta, order)`` is a pass. A Hessian, at first that of ``near``, is kept while steps are good.
    """
    is_new, last = near is None or near.hessian.size == 0, np.inf
    best = sums_at(theta, 2 if is_new else 1)
    if near is not None and not is_new:
        best.hessian = near.hessian * (best.weight / near.weight)
    if not np.isfinite(best.objective):  # the mean of a Poisson model overflows
        best, is_new = sums_at(np.zeros_like(theta), 2), True
    for _ in range(_LARGEST_STEPS):
        step, fall = best.newton_step()
        if not fall > tol * max(best.objective, 1e-300):
            break
        if fall > _GOOD_STEP * last and not is_new:
            best, is_new = sums_at(best.theta, 2), True
            step, fall = best.newton_step()
        for length in 0.5 ** np.arange(_HALVINGS + 1):
            tried = sums_at(best.theta + length * step, 1)
            if tried.objective <= best.objective - 1e-4 * length * fall:
                break
        else:
            break
        tried.hessian, last, is_new = best.hessian, fall, False
        best = tried
    return best


def fit_linear(
    problem: LinearProblem, X: Matrix, y: np.ndarray, w: np.ndarray, near: LossSums | None = None, tol: float = 1e-12
) -> LossSums:
    """Fit weighted rows in memory by Newton's method, above 2,000 parameters by L-BFGS, from a fit of similar rows."""
    theta = None if near is None else near.theta
    if theta is None and isinstance(problem.loss, Huber):  # far from the targets its curvature is zero
        theta = fit_linear(replace(problem, loss=Squared()), X, y, w).theta
    start = np.zeros(problem.shape) if theta is None else theta
    if theta is None and isinstance(problem.loss, Poisson) and problem.fit_intercept:  # far from 0 steps are short
        start[:, -1] = np.log(max(float(w @ y / w.sum()), 1.0))
    A = problem.columns(X)

    def sums_at(theta: np.ndarray, order: int) -> LossSums:
        sums = LossSums(problem, theta, order)
        for part in sums._slices(A):
            sums.add_columns(A[part], y[part], w[part])
        return sums

    if start.size <= _LARGEST_HESSIAN:
        return newton(sums_at, start, near, tol)

    def flat(theta: np.ndarray) -> tuple[float, np.ndarray]:
        sums = sums_at(theta.reshape(problem.shape), 1)
        return sums.objective, sums.slope.ravel()

    options = {"maxiter": 1000, "maxfun": 2000, "ftol": tol, "gtol": 0.0, "maxcor": 20}
    found = minimize(flat, start.ravel(), jac=True, method="L-BFGS-B", options=options).x
    return sums_at(found.reshape(problem.shape), 1)
