r"""Calibration: change the weights of a sample as little as possible so that it reproduces known totals.

With draw weights :math:`v_i`, features :math:`T_i` and totals :math:`t`, find weights :math:`v_i g(T_i \cdot \lambda)`
with :math:`\sum_i v_i g(T_i \cdot \lambda) T_i + \rho \lambda = t`. The ratio g is a logistic curve between two bounds
with :math:`g(0) = g'(0) = 1` (the bounded calibration of Deville and Sarndal, JASA 1992), so weights stay positive. It
is the derivative of a convex G, so the equation is the gradient of a convex function and Newton's method solves it. The
ridge :math:`\rho` leaves totals unmatched that only extreme weights could match.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from .linear import LinearProblem, LossSums, solve_positive, weighted_gram
from .points import Matrix

_MOST_STEPS = 25
_SHORTEST_STEP = 2.0**-20
_NEGLIGIBLE = 1e-15  # squares of relative errors of the totals: they are reproduced to about 1e-7


class SlopeTotals(LossSums):
    """Sums of the loss and its slopes, ``l' a``, and of ``l'' a`` for a loss of one output."""

    summed = (*LossSums.summed, "curvature")

    def __init__(self, problem: LinearProblem, theta: np.ndarray) -> None:
        super().__init__(problem, theta, order=1)
        self.curvature = np.zeros((int(problem.loss.n_outputs == 1), problem.n_columns))

    def add_columns(self, A: Matrix, y: np.ndarray, weights: np.ndarray) -> None:
        super().add_columns(A, y, weights)
        for total in self.curvature:
            total += A.T @ (weights * self.problem.loss.curvatures(A @ self.theta.T, y)[:, 0, 0])

    @property
    def totals(self) -> np.ndarray:
        """(1, columns) totals of the features: of ``l' a`` for each output, then of ``l'' a``."""
        return np.concatenate([*self.gradient, *self.curvature])[None]

    def features(self, A: Matrix, y: np.ndarray) -> Matrix:
        """The features of rows, at the same parameters."""
        z, loss = A @ self.theta.T, self.problem.loss
        factors = list(loss.slopes(z, y).T)
        if len(self.curvature):
            factors.append(loss.curvatures(z, y)[:, 0, 0])
        if isinstance(A, np.ndarray):
            return np.hstack([A * factor[:, None] for factor in factors])
        return sp.csr_array(sp.hstack([A.multiply(factor[:, None]) for factor in factors]))


def medians(A: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weighted median of each column."""
    order = np.argsort(A, axis=0)
    below = np.cumsum(weights[order], axis=0)
    at = (below < 0.5 * below[-1]).sum(axis=0)
    return np.asarray(np.take_along_axis(A, order[at, np.arange(A.shape[1])][None], axis=0)[0])


def calibrated(
    weights: np.ndarray, features: Matrix, totals: np.ndarray, *, ridge: float, bounds: tuple[float, float]
) -> np.ndarray:
    """The ratios ``g`` that bring the weighted totals of the features to ``totals``; within ``bounds``.

    ``ridge`` is relative to the mean square of each feature. Features that are zero in the sample are left out.
    """
    mass = float(weights.sum())
    squares = features**2 if isinstance(features, np.ndarray) else features.multiply(features)
    unit = np.sqrt(np.asarray(weights @ squares) / mass)
    kept = np.flatnonzero(unit > 0)
    T, unit = features[:, kept], unit[kept]
    T = T / unit if isinstance(T, np.ndarray) else sp.csr_array(T @ sp.diags_array(1.0 / unit))
    target = totals[kept] / unit
    low, high = bounds
    steepness = (high - low) / ((1.0 - low) * (high - 1.0))
    offset = np.log((1.0 - low) / (high - 1.0))

    def curve(at: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        u = T @ at
        level = expit(steepness * u + offset)
        rising = low * u + (high - low) / steepness * np.logaddexp(0.0, steepness * u + offset)
        value = float(weights @ rising - target @ at) + 0.5 * ridge * mass * float(at @ at)
        return value, low + (high - low) * level, (high - low) * steepness * level * (1.0 - level)

    at = np.zeros(len(kept))
    value, ratios, slopes = curve(at)
    for _ in range(_MOST_STEPS):
        gradient = T.T @ (weights * ratios) - target + ridge * mass * at
        hessian = weighted_gram(T, weights * slopes)
        hessian[np.diag_indices(len(at))] += ridge * mass
        step = solve_positive(hessian, -gradient)
        fall = -float(gradient @ step)
        if not fall > _NEGLIGIBLE * mass:
            break
        length = 1.0
        while length > _SHORTEST_STEP:
            tried = curve(at + length * step)
            if tried[0] <= value - 1e-4 * length * fall:
                break
            length *= 0.5
        else:
            break
        at = at + length * step
        value, ratios, slopes = tried
    return ratios
