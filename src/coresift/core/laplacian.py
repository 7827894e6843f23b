r"""Sensitivities of the Laplacian loss :math:`f(p,x) = e^{-|p-x|}` over all of space, in closed form.

By the triangle inequality :math:`f(q,x) \ge f(q,p) f(p,x)` for every x, with equality at x = p, so

.. math:: s(p) = \sup_x \frac{w_p f(p,x)}{\sum_q w_q f(q,x)} = \frac{w_p}{\sum_q w_q e^{-|p-q|}} ,

the inverse of a kernel density, for any metric. The total is at most :math:`e^{\mathrm{diam}}`; the paper's has the
square root of n in it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import cdist

from .bound import SensitivityBound, rounding_slack
from .gaussian import Cells, Progress, log_shares
from .points import GEMM_BLOCK_BYTES, Points, row_slices, squared_norms

Metric = str | Callable[[np.ndarray, np.ndarray], float]


def laplacian_cells(
    points: Points, shares: np.ndarray, summary: Cells, progress: Progress | None = None
) -> SensitivityBound:
    r"""A certificate from k cells, O(n k d).

    .. math:: s(p) \le w_p \Big/ \sum_j W_j \exp\bigl( -\sqrt{|p-\mu_j|^2 + V_j} \bigr)

    Jensen's inequality twice: for the exponential, and for the square root of the mean square distance to a cell.
    """
    log_values = log_shares(shares)
    constants = squared_norms(summary.means) + summary.variances
    for rows, block in points.blocks(extra_columns=3 * len(summary.mass)):
        distances = block.dot(summary.means)
        distances *= -2.0
        distances += constants
        distances += block.sq_norms[:, None]
        np.sqrt(np.maximum(distances, 0.0, out=distances), out=distances)
        log_values[rows] -= np.log(np.exp(-distances) @ summary.mass)
        if progress is not None:
            progress(rows.stop - rows.start)
    # distances err by the root of the rounding of their squares
    log_values += 1e-7 * points.max_norm + rounding_slack(points.max_norm, 0.0)
    note = f"Jensen's inequality in {len(summary.mass)} cells; valid for every query."
    return SensitivityBound(np.minimum(log_values, 0.0), "cells", True, note)


def laplacian_exact(
    points: Points, shares: np.ndarray, metric: Metric = "euclidean", progress: Progress | None = None
) -> SensitivityBound:
    """The sensitivities themselves, O(n^2 d) time, one block of distances in memory.

    Other metrics than the Euclidean are measured between rows of the data as given, divided by the scale.
    """
    log_values = log_shares(shares)
    own = points.take(np.arange(points.n)) if not points.is_sparse else None
    for rows in row_slices(points.n, 16.0 * (points.n + points.d), GEMM_BLOCK_BYTES):
        if metric != "euclidean":
            assert isinstance(points.X, np.ndarray)
            distances = cdist(points.X[rows], points.X, metric=metric) / points.scale
        elif own is None:
            distances = _sparse_distances(points, rows)
        else:
            distances = euclidean_distances(own[rows], own)
        np.exp(np.negative(distances, out=distances), out=distances)
        log_values[rows] -= np.log(distances @ shares)
        if progress is not None:
            progress(rows.stop - rows.start)
    # sparse distances come from expanded squares and err by the root of their rounding
    log_values += rounding_slack(0.0, 0.0) + (1e-7 * points.max_norm if points.is_sparse else 0.0)
    note = "The triangle inequality, an equality at the point itself; valid for every query."
    return SensitivityBound(np.minimum(log_values, 0.0), "exact", True, note)


def euclidean_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(len(a), len(b)) distances by one matrix product; pairs so close that it loses digits are measured directly."""
    scale = squared_norms(a)[:, None] + squared_norms(b)
    squares = a @ b.T
    squares *= -2.0
    squares += scale
    close = np.nonzero(squares <= 1e-6 * scale)
    if len(close[0]) > 0:
        for part in row_slices(len(close[0]), 8.0 * a.shape[1]):
            difference = a[close[0][part]] - b[close[1][part]]
            squares[close[0][part], close[1][part]] = squared_norms(difference)
    return np.sqrt(squares, out=squares)


def _sparse_distances(points: Points, rows: slice) -> np.ndarray:
    """(b, n) distances between sparse rows, a block against all, by products of sparse blocks."""
    mine = points.block(rows)
    out = np.empty((rows.stop - rows.start, points.n))
    dense = mine.dense()
    for others, block in points.blocks():
        out[:, others] = mine.sq_norms[:, None] + block.sq_norms - 2.0 * block.dot(dense).T
    np.sqrt(np.maximum(out, 0.0, out=out), out=out)
    # the distance of a point to itself is 0, whatever rounding says
    out[np.arange(len(out)), np.arange(rows.start, rows.stop)] = 0.0
    return out
