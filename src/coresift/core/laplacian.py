r"""Sensitivities of the Laplacian loss :math:`f(p,x) = e^{-|p-x|}` over all of space, in closed form, in any metric.

By the triangle inequality :math:`f(q,x) \ge f(q,p) f(p,x)` for every x, with equality at x = p, so :math:`s(p) = w_p /
\sum_q w_q e^{-|p-q|}`, the inverse of a kernel density. The total is at most :math:`e^{\mathrm{diam}}`.
"""

from collections.abc import Callable

import numpy as np

from .gaussian import Cells
from .points import Points, SensitivityBound, euclidean_distances, log_shares, rounding_slack, squared_distances

Metric = str | Callable[[np.ndarray, np.ndarray], float]


def laplacian_cells(points: Points, shares: np.ndarray, summary: Cells) -> SensitivityBound:
    r"""A certificate from k cells, O(n k d).

    .. math:: s(p) \le w_p \Big/ \sum_j W_j \exp\bigl( -\sqrt{|p-\mu_j|^2 + V_j} \bigr)

    Jensen's inequality twice: for the exponential, and for the square root of the mean square distance to a cell.
    """
    log_values = log_shares(shares)
    for rows, block in points.blocks(extra_columns=3 * len(summary.mass)):
        distances = squared_distances(block, summary.means)
        distances += summary.variances
        np.sqrt(distances, out=distances)
        log_values[rows] -= _log_density(distances, summary.mass)
    # distances err by the root of the rounding of their squares
    log_values += 1e-7 * points.rounding_norm + rounding_slack(0.0, 0.0)
    return SensitivityBound(np.minimum(log_values, 0.0), "cells", True)


def laplacian_exact(
    points: Points, shares: np.ndarray, metric: Metric = "euclidean", among: tuple[Points, np.ndarray] | None = None
) -> SensitivityBound:
    """The sensitivities themselves, in O(n^2 d); ``among`` are all points and shares, where these are only some."""
    log_values = log_shares(shares)
    everything, all_shares = (points, shares) if among is None else among
    # centred and scaled, but for sparse rows, where the centre cancels
    others = everything.gather(slice(0, everything.n)).rows if metric == "euclidean" else everything.X
    for rows, block in points.blocks(extra_columns=3 * everything.n + 2 * points.d):
        if metric == "euclidean":
            distances = euclidean_distances(block.rows, others)
        else:
            from scipy.spatial.distance import cdist  # late: it takes long to import

            distances = cdist(points.X[rows], others, metric=metric) / points.scale
        log_values[rows] -= _log_density(distances, all_shares)
    # a square that has lost six digits (a closer pair is measured directly) errs by 1e-13 of the norms in its root
    log_values += rounding_slack(0.0, 0.0) + 1e-12 * points.rounding_norm
    return SensitivityBound(np.minimum(log_values, 0.0), "exact", True)


def _log_density(distances: np.ndarray, shares: np.ndarray) -> np.ndarray:
    density = np.exp(np.negative(distances, out=distances), out=distances) @ shares
    # below the range of floats the sensitivity is at most 1 anyway, or 0 without weight
    return np.log(np.maximum(density, np.finfo(np.float64).tiny))
