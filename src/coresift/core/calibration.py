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

_MOST_STEPS = 50
_SHORTEST_STEP = 2.0**-20


class SlopeTotals(LossSums):
    """Sums of the loss and its slopes, ``l' a``, and of ``l'' a`` for a loss of one output."""

    def __init__(self, problem: LinearProblem, theta: np.ndarray) -> None:
        super().__init__(problem, theta, order=1)
        self.curvature = np.zeros((int(problem.loss.n_outputs == 1), problem.n_columns))

    def add_columns(self, A: Matrix, y: np.ndarray, weights: np.ndarray) -> None:
        super().add_columns(A, y, weights)
        for total in self.curvature:
            total += A.T @ (weights * self.problem.loss.curvatures(A @ self.theta.T, y)[:, 0, 0])

    def merge(self, other: LossSums) -> None:
        assert isinstance(other, SlopeTotals)
        super().merge(other)
        self.curvature += other.curvature

    def parts(self) -> list[np.ndarray]:
        """The totals of :func:`slope_features`."""
        return [part[None] for part in (*self.gradient, *self.curvature)]


def slope_features(totals: SlopeTotals, A: Matrix, y: np.ndarray) -> list[Matrix]:
    """``l' a`` for each output, and ``l'' a`` if there is one output, at the parameters of ``totals``."""
    z, loss = A @ totals.theta.T, totals.problem.loss
    factors = list(loss.slopes(z, y).T)
    if len(totals.curvature):
        factors.append(loss.curvatures(z, y)[:, 0, 0])
    return [A * f[:, None] if isinstance(A, np.ndarray) else sp.csr_array(A.multiply(f[:, None])) for f in factors]


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
        if not fall > 1e-20 * mass:
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
