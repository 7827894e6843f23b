r"""Calibration: change the weights of a sample as little as possible so that it reproduces known totals.

With draw weights :math:`v_i`, features :math:`T_i` and totals :math:`t`, find :math:`\lambda` with :math:`\sum_i v_i
g(T_i \cdot \lambda) T_i + \rho \lambda = t`. The ratio g is a logistic curve between two bounds with :math:`g(0) =
g'(0) = 1` (Deville and Sarndal, JASA 1992). The ridge :math:`\rho` leaves totals that only extreme weights could match.
"""

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.special import expit

from .linear import LinearProblem, LossSums, side_by_side, weighted_gram
from .points import Matrix

_MOST_STEPS = 60
_REACH = (0.5, 2.0)
_NEGLIGIBLE = 1e-8  # errors of the totals, relative to the features


class SlopeTotals(LossSums):
    """Sums of the loss and its slopes, ``l' a``, and of ``l'' a`` for a loss of one output."""

    summed = (*LossSums.summed, "curvature")

    def __init__(self, problem: LinearProblem, theta: np.ndarray) -> None:
        super().__init__(problem, theta, order=1)
        self.curvature = np.zeros((int(problem.loss.n_outputs == 1), problem.n_columns))

    def _add_slopes(self, A: Matrix, z: np.ndarray, y: np.ndarray, weights: np.ndarray) -> None:
        sums = (A.T @ (weights[:, None] * self._factors(z, y))).T
        self.gradient += sums[: len(self.gradient)]
        self.curvature += sums[len(self.gradient) :]

    def _factors(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        loss = self.problem.loss
        slopes = loss.slopes(z, y)
        return np.hstack([slopes, loss.curvatures(z, y)]) if len(self.curvature) else slopes

    @property
    def totals(self) -> np.ndarray:
        """(1, columns) totals of the features: of ``l' a`` for each output, then of ``l'' a``."""
        return np.concatenate([*self.gradient, *self.curvature])[None]

    def features(self, A: Matrix, y: np.ndarray) -> Matrix:
        return side_by_side(A, self._factors(A @ self.theta.T, y).T)


def medians(A: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weighted median of each column."""
    order = np.argsort(A, axis=0)
    below = np.cumsum(weights[order], axis=0)
    at = (below < 0.5 * below[-1]).sum(axis=0)
    return np.asarray(np.take_along_axis(A, order[at, np.arange(A.shape[1])][None], axis=0)[0])


class Calibration:
    """Rows of a sample with their draw weights and features, to be calibrated to one or several goals."""

    def __init__(self, weights: np.ndarray, features: Matrix) -> None:
        self.weights, self.mass = weights, float(weights.sum())
        with np.errstate(over="ignore", invalid="ignore"):
            squares = features**2 if isinstance(features, np.ndarray) else features.multiply(features)
            unit = np.sqrt(np.asarray(weights @ squares) / self.mass)
        self.kept = np.flatnonzero((unit > 0) & np.isfinite(unit))  # not features that are zero in the sample
        T, self.unit = features[:, self.kept], unit[self.kept]
        self.T = T / self.unit if isinstance(T, np.ndarray) else sp.csr_array(T @ sp.diags_array(1.0 / self.unit))
        self.gram = weighted_gram(self.T, weights) / self.mass

    def ratios(self, totals: np.ndarray, *, ridge: float, bounds: tuple[float, float]) -> np.ndarray:
        """Ratios within ``bounds`` that give the first features ``totals``, of which those out of reach are moved."""
        width = int(np.searchsorted(self.kept, len(totals)))
        T, w = self.T[:, :width], self.weights / self.mass
        size = w @ abs(T)
        above, below = 0.5 * (w @ T + size), 0.5 * (w @ T - size)  # totals of the positive and the negative parts
        (least, most), (low, high) = _REACH, bounds
        target = np.nan_to_num(totals[self.kept[:width]] / self.unit[:width] / self.mass)
        target = np.clip(target, least * above + most * below, most * above + least * below)
        steepness = (high - low) / ((1.0 - low) * (high - 1.0))
        offset = np.log((1.0 - low) / (high - 1.0))
        factor = cholesky(self.gram[:width, :width] + ridge * np.eye(width), lower=True)

        def ratios_at(u: np.ndarray) -> np.ndarray:
            return np.asarray(low + (high - low) * expit(steepness * u + offset))

        def dual(x: np.ndarray) -> tuple[float, np.ndarray]:
            at = solve_triangular(factor, x, lower=True, trans="T")
            u = T @ at
            bent = steepness * u + offset
            rising = low * u + (high - low) / steepness * (np.maximum(bent, 0.0) + np.log1p(np.exp(-np.abs(bent))))
            gradient = T.T @ (w * ratios_at(u)) - target + ridge * at
            value = float(w @ rising - target @ at) + 0.5 * ridge * float(at @ at)
            return value, solve_triangular(factor, gradient, lower=True)

        options = {"maxiter": _MOST_STEPS, "ftol": 0.0, "gtol": _NEGLIGIBLE}
        found = minimize(dual, np.zeros(width), jac=True, method="L-BFGS-B", options=options).x
        return ratios_at(T @ solve_triangular(factor, found, lower=True, trans="T"))
