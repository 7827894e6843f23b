"""Samples such that every other one is near to one of them: k-center, by the farthest-first traversal."""

from dataclasses import dataclass

import numpy as np

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

    def _picked(self, context: SelectionContext, X: Array, size: int, include: Indices) -> Chosen:
        squares = np.einsum("ij,ij->i", X, X)
        near, gaps = np.full(len(X), np.inf, dtype=X.dtype), np.empty(len(X), dtype=X.dtype)

        def gains() -> Array:
            if near[0] < np.inf:
                return near
            mean = X.mean(axis=0, dtype=np.float64).astype(X.dtype)
            return 2.0 * (X @ mean) - squares  # nothing is picked yet: the nearest to the mean

        def add(pick: int) -> None:
            np.matmul(X, X[pick], out=gaps)
            np.multiply(gaps, -2.0, out=gaps)
            np.add(gaps, squares, out=gaps)
            np.add(gaps, squares[pick], out=gaps)
            np.minimum(near, gaps, out=near)

        rows = greedy_rows(size, include, gains, add)
        if X.dtype == np.float32 and near.max() < 1e-4 * squares.max():  # a thousand roundings
            return self._picked(context, X.astype(np.float64), size, include)
        return rows, None
