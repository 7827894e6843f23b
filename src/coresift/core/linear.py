r"""Fit a linear model: ``F(theta) = sum_i w_i l(theta; x_i, y_i) / W + (alpha / 2) |coef|^2`` and its minimum.

Columns are shifted and scaled for the numerics only: ``alpha`` penalises the coefficients in the units of the data.
Sparse rows are scaled and not shifted, so that they stay sparse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lstsq
from scipy.optimize import minimize

from .linear_losses import Huber, LinearLoss, Poisson, Squared
from .points import GEMM_BLOCK_BYTES, Matrix, row_slices

_LARGEST_STEPS = 100
_SHORTEST_STEP = 2.0**-30
_LARGEST_HESSIAN = 2000


@dataclass(frozen=True)
class LinearProblem:
    """What is minimised, and the columns ``(x - shift) / spread`` in which that is done. A last column of ones follows.

    Parameters theta are (K, n_columns) in these columns; :meth:`to_data` gives coefficients in the units of the data.
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
        """Of theta."""
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
        made = np.ones((len(X), self.n_columns))
        np.subtract(X, self.shift, out=made[:, : len(self.shift)])
        made[:, : len(self.shift)] /= self.spread
        return made

    def to_data(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (K, d) and intercepts (K,) in the units of the data."""
        coef = theta[:, : len(self.shift)] / self.spread
        intercept = theta[:, -1] - coef @ self.shift if self.fit_intercept else np.zeros(len(theta))
        return coef, intercept

    def from_data(self, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
        """Undo :meth:`to_data`."""
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

    def add(self, X: Matrix, y: np.ndarray, weights: np.ndarray, *others: LossSums) -> None:
        """Add rows as they are in the data; also to ``others`` of the same problem."""
        per_row = 8.0 * (self.problem.n_columns + self.problem.loss.n_outputs**2)
        for part in row_slices(X.shape[0], per_row, GEMM_BLOCK_BYTES):
            A = self.problem.columns(X[part])
            for sums in (self, *others):
                sums.add_columns(A, y[part], weights[part])

    def add_columns(self, A: Matrix, y: np.ndarray, weights: np.ndarray) -> None:
        """Add rows in the columns of the problem."""
        loss, z = self.problem.loss, A @ self.theta.T
        self.weight += float(weights.sum())
        with np.errstate(over="ignore", invalid="ignore"):
            self.value += float(np.sum(weights * loss.values(z, y)))
            if self.order > 0:
                self.gradient += (A.T @ (weights[:, None] * loss.slopes(z, y))).T
            if self.order > 1:
                curvatures = weights[:, None, None] * loss.curvatures(z, y)
                for i in range(loss.n_outputs):
                    for j in range(i, loss.n_outputs):
                        part = weighted_gram(A, curvatures[:, i, j])
                        self.hessian[i, :, j] += part
                        if j > i:
                            self.hessian[j, :, i] += part

    def merge(self, other: LossSums) -> None:
        """Add the sums of other rows at the same theta."""
        for name in self.summed:
            total = getattr(self, name)
            total += getattr(other, name)  # arrays in place
            setattr(self, name, total)

    @property
    def objective(self) -> float:
        """F at theta."""
        return self.value / self.weight + 0.5 * float((self.theta**2 @ self.problem.penalties).sum())

    def newton_step(self) -> tuple[np.ndarray, float]:
        """The step that minimises the quadratic model of F, and by how much F would fall per unit of it at first."""
        penalties = self.problem.penalties
        gradient = self.gradient / self.weight + self.theta * penalties
        size = gradient.size
        hessian = self.hessian.reshape(size, size) / self.weight
        hessian[np.diag_indices(size)] += np.tile(penalties, len(gradient))
        step = solve_positive(hessian, -gradient.ravel())
        return step.reshape(gradient.shape), -float(gradient.ravel() @ step)


def weighted_gram(A: Matrix, weights: np.ndarray) -> np.ndarray:
    """``A^T diag(weights) A`` as an array."""
    if isinstance(A, np.ndarray):
        return np.asarray(A.T @ (A * weights[:, None]))
    return np.asarray((A.T @ A.multiply(weights[:, None])).toarray())


def solve_positive(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve with a positive semidefinite matrix; the shortest solution if it is singular."""
    # in units of the diagonal, so that "singular" does not depend on the units of the columns
    unit = np.sqrt(np.where(matrix.diagonal() > 0, matrix.diagonal(), 1.0))
    scaled = matrix / unit / unit[:, None]
    try:
        return np.asarray(cho_solve(cho_factor(scaled + 1e-14 * np.eye(len(unit))), right / unit) / unit)
    except LinAlgError:
        return np.asarray(lstsq(scaled, right / unit, cond=1e-12)[0] / unit)


def newton(
    sums_at: Callable[[np.ndarray], LossSums], theta: np.ndarray, *, tol: float = 1e-12, max_steps: int = _LARGEST_STEPS
) -> LossSums:
    """Minimise by damped Newton steps from ``theta``; returns the sums at the best theta.

    Stops when the expected fall is at most ``tol`` of F. Each evaluation of ``sums_at`` is a pass over the rows.
    """
    best = sums_at(theta)
    if not np.isfinite(best.objective):  # the mean of a Poisson model overflows
        best = sums_at(np.zeros_like(theta))
    for _ in range(max_steps):
        step, fall = best.newton_step()
        if not fall > tol * max(best.objective, 1e-300):
            break
        length, better = 1.0, None
        while length >= _SHORTEST_STEP:
            tried = sums_at(best.theta + length * step)
            if tried.objective <= best.objective - 1e-4 * length * fall:
                better = tried
                break
            length *= 0.5
        if better is None:
            break
        best = better
    return best


def fit_linear(
    problem: LinearProblem,
    X: Matrix,
    y: np.ndarray,
    weights: np.ndarray,
    theta: np.ndarray | None = None,
    *,
    tol: float = 1e-12,
) -> LossSums:
    """Fit weighted rows in memory; returns the sums at the minimum, with ``theta``.

    By Newton's method; above 2,000 parameters by L-BFGS, and the sums then have no Hessian.
    """
    if theta is None and isinstance(problem.loss, Huber):  # far from the targets its curvature is zero
        theta = fit_linear(replace(problem, loss=Squared()), X, y, weights).theta
    start = np.zeros(problem.shape) if theta is None else theta
    if theta is None and isinstance(problem.loss, Poisson) and problem.fit_intercept:  # far from 0 steps are short
        start[:, -1] = np.log(max(float(weights @ y / weights.sum()), 1.0))
    order = 2 if start.size <= _LARGEST_HESSIAN else 1

    def sums_at(theta: np.ndarray) -> LossSums:
        sums = LossSums(problem, theta, order)
        sums.add(X, y, weights)
        return sums

    if order == 2:
        return newton(sums_at, start, tol=tol)

    def flat(theta: np.ndarray) -> tuple[float, np.ndarray]:
        sums = sums_at(theta.reshape(problem.shape))
        return sums.objective, (sums.gradient / sums.weight + sums.theta * problem.penalties).ravel()

    options = {"maxiter": 1000, "maxfun": 2000, "ftol": tol, "gtol": 0.0, "maxcor": 20}
    found = minimize(flat, start.ravel(), jac=True, method="L-BFGS-B", options=options).x
    return sums_at(found.reshape(problem.shape))
