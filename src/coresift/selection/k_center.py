"""Samples such that every other one is near to one of them: k-center, by the farthest-first traversal."""

import math
from dataclasses import dataclass

import numpy as np

from ..core.points import row_slices, squared_norms
from .context import SelectionContext
from .gradients import Array
from .inputs import Indices
from .keeping import Chosen, Geometric, greedy_rows


@dataclass(frozen=True, eq=False, kw_only=True)
class KCenter(Geometric):
    r"""k-center greedy (Gonzalez, 1985; Sener and Savarese, ICLR 2018, for deep networks).

    .. math:: \min_{|S| = k} \max_i \min_{j \in S} |x_i - x_j|

    The first pick is the row nearest to the mean, each further one the row farthest from those picked. The largest
    distance is at most twice the best possible. Outliers are picked first, as the objective asks; the mixed integer
    program of the second paper leaves some out, and is not here. Each sample weighs n / budget. O(n d) for a pick.
    """

    name = "k-center"
    is_centred = False

    def _picked(self, context: SelectionContext, X: Array, size: int, include: Indices) -> Chosen:
        mean = X.mean(axis=0, dtype=np.float64)
        start, gaps = -_squares_from(X, mean), np.empty(len(X), dtype=X.dtype)
        near, reach, squares = np.full(len(X), np.inf, dtype=X.dtype), math.sqrt(-start.min()), -start.astype(X.dtype)

        def gains() -> Array:
            return near if near[0] < np.inf else start  # the first pick is the nearest to the mean

        def add(pick: int) -> None:  # |x - c|^2 = |x - m|^2 - 2 x (c - m) + 2 m (c - m) + |c - m|^2
            way = X[pick] - mean
            np.matmul(X, way.astype(X.dtype), out=gaps)
            np.multiply(gaps, -2.0, out=gaps)
            np.add(gaps, squares, out=gaps)
            np.add(gaps, X.dtype.type(2.0 * (mean @ way) + way @ way), out=gaps)
            np.minimum(near, gaps, out=near)

        rows = greedy_rows(size, include, gains, add)
        roundings = 1e3 * float(np.finfo(X.dtype).eps) * reach * (reach + float(np.linalg.norm(mean)))
        if near.max() < roundings:  # differences lose no digits, but take more than twice as long
            near[:] = np.inf
            rows = greedy_rows(size, include, gains, lambda pick: np.minimum(near, _squares_from(X, X[pick]), out=near))
        return rows, None


def _squares_from(X: Array, point: Array) -> Array:
    """Squared distances to a point, by differences, in blocks that stay in the cache."""
    found = np.empty(len(X), dtype=np.result_type(X, point))
    for block in row_slices(len(X), 2 * X[0].nbytes):
        found[block] = squared_norms(X[block] - point)
    return found
