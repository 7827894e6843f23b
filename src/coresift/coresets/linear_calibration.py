"""Calibrate a draw to a linear model: adjust its weights until its fit is close to the fit of all rows.

If the subset reproduces the sum of ``l' a`` of all rows at ``theta``, it has the gradient of all rows there. Its fit
from ``theta`` is then a Newton step on the loss of all rows, with the Hessian of the subset, which lowers the error by
a factor of about the number of columns over the number of rows. Where that overshoots, going part of the way helps.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from ..core.calibration import SlopeTotals, calibrated, medians
from ..core.linear import LossSums, fit_linear
from ..core.points import Matrix
from .linear_draw import WeightedRows
from .linear_rows import LinearRows

# shares of the way to the totals of all rows, and ridges: part of the way where the whole overshoots, and a larger
# ridge where rare combinations of columns and classes could only be matched by extreme weights
_TRIALS = ((1.0, 1e-4), (0.3, 1e-4), (1.0, 1e-2))
_BOUNDS, _BOUNDS_OF_CLASSES = (0.1, 10.0), (0.2, 5.0)
_MOST_ROUNDS = 6
_CLOSE = 3e-6  # relative fall of the loss that is not worth another pass
_FIT_TOLERANCE = 1e-10
MOST_FEATURES = 4000


def calibrate_draw(
    rows: LinearRows, drawn: WeightedRows, fitted: LossSums, totals: SlopeTotals
) -> tuple[WeightedRows, SlopeTotals, int]:
    """Calibrate a draw, whose fit is ``fitted``, at first to ``totals`` of all rows at other parameters.

    Each round fits several weightings; one pass finds the loss of all rows at each fit, and the totals for the next
    round. A round that does not lower the loss is dropped, and ends the search. Returns the rows with their weights,
    the sums of all rows at the fit, and the number of rounds kept.
    """
    problem = totals.problem
    A = problem.columns(drawn.X)
    bounds = _BOUNDS if problem.loss.n_outputs == 1 else _BOUNDS_OF_CLASSES
    best: SlopeTotals | None = None
    weights, n_kept = drawn.weights, 0
    candidates = [(weights, fitted)]
    for _ in range(_MOST_ROUNDS):
        features, targets = _features(totals, A, drawn)
        reached = weights @ features
        # with the curvatures, and without: fewer totals can be matched by smaller changes
        slopes, both = 1 + fitted.theta.size, len(targets)
        trials = [(slopes, *trial) for trial in _TRIALS]
        trials += [(both, *trial) for trial in _TRIALS[:2] if slopes < both <= MOST_FEATURES]
        for width, step, ridge in trials:
            goal = (reached + step * (targets - reached))[:width]
            ratios = calibrated(drawn.weights, features[:, :width], goal, ridge=ridge, bounds=bounds)
            made = drawn.weights * ratios
            candidates.append((made, fit_linear(problem, drawn.X, drawn.y, made, totals.theta, tol=_FIT_TOLERANCE)))
        found = rows.run("calibration", *(SlopeTotals(problem, fit.theta) for _, fit in candidates))
        at = int(np.argmin([sums.objective for sums in found]))
        if best is not None and not found[at].objective < best.objective:
            break
        n_kept += int(best is not None or at > 0)
        totals = best = found[at]
        weights, fitted = candidates[at]
        if _expected_fall(fitted, best) < _CLOSE * best.objective:
            break
        candidates = []
    assert best is not None
    return replace(drawn, weights=weights), best, n_kept


def _expected_fall(fitted: LossSums, full: SlopeTotals) -> float:
    """By how much a Newton step with the gradient of all rows and the Hessian of the subset would lower the loss."""
    if fitted.order < 2:
        return np.inf
    fitted.gradient = full.gradient * (fitted.weight / full.weight)
    return 0.5 * fitted.newton_step()[1]


def _features(totals: SlopeTotals, A: Matrix, drawn: WeightedRows) -> tuple[Matrix, np.ndarray]:
    """Features to be calibrated and their totals: ones, slopes, curvatures.

    Dense columns are shifted by their medians, which leaves most entries of a one-hot column zero: a category that is
    absent from the draw then has a feature that is zero, and is left out. Shifted by its mean it would look constant.
    """
    features, sums = totals.features(A, drawn.y), totals.totals
    ones = np.ones((len(drawn.y), 1))
    if not isinstance(features, np.ndarray):
        return sp.csr_array(sp.hstack([ones, features])), np.append(totals.weight, sums)
    if totals.problem.fit_intercept:
        middle = np.append(medians(A[:, :-1], drawn.weights), 0.0)
        for values in (features, sums):
            parts = values.reshape(len(values), -1, len(middle))
            parts -= parts[:, :, -1:] * middle  # the last column is ones times the slope
    return np.hstack([ones, features]), np.append(totals.weight, sums)
