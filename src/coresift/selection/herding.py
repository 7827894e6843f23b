"""Samples whose mean follows the mean of all: herding."""

from dataclasses import dataclass

import numpy as np

from .context import SelectionContext
from .gradients import Array
from .inputs import Indices
from .keeping import Chosen, Geometric, greedy_rows


@dataclass(frozen=True, eq=False, kw_only=True)
class Herding(Geometric):
    r"""Herding (Welling, ICML 2009), in the form of Rebuffi et al. (iCaRL, CVPR 2017), without repeats.

    With the picks :math:`S_t` so far, and :math:`\mu` the mean of all rows, the next one is

    .. math:: \arg\min_i \Bigl| \mu - \tfrac{1}{t+1} \bigl(x_i + \sum_{j \in S_t} x_j\bigr) \Bigr|
              = \arg\max_i \Bigl\langle (t+1) \mu - \sum_{j \in S_t} x_j,\ x_i \Bigr\rangle - \tfrac12 |x_i|^2 .

    Welling's rule is the inner product alone; where all :math:`|x_i|` are equal the two agree, but the distance does
    not depend on the origin. DeepCore takes the arg-max of the distance, which is the opposite. Each sample weighs
    n / budget. Use it within classes: the registry's ``HERDING`` is ``PerClass(Herding())``. O(n d) for a pick.
    """

    def _picked(self, context: SelectionContext, X: Array, size: int, include: Indices) -> Chosen:
        mean = X.mean(axis=0, dtype=np.float64)
        squares = 0.5 * np.einsum("ij,ij->i", X, X, dtype=np.float64)
        target = mean.copy()  # (t + 1) mean - sum of the picks

        def add(pick: int) -> None:
            target[:] += mean - X[pick]

        return greedy_rows(size, include, lambda: X @ target.astype(X.dtype) - squares, add), None
