"""Samples that are like all samples and unlike each other: graph cut, without the graph."""

from dataclasses import dataclass

import numpy as np

from .context import SelectionContext
from .gradients import Array
from .inputs import Indices
from .keeping import Chosen, Geometric, greedy_rows
from .strategy import setting


@dataclass(frozen=True, eq=False, kw_only=True)
class GraphCut(Geometric):
    r"""Graph cut (Iyer, Khargonkar, Bilmes and Asnani, ALT 2021) by greedy, over shifted cosines of features.

    .. math:: \max_{|S| = k} \lambda \sum_{i} \sum_{j \in S} s_{ij} - \sum_{i, j \in S} s_{ij}, \qquad
              s_{ij} = \tfrac12 (1 + \cos(x_i, x_j)) \ge 0

    The function is submodular, and monotone for :math:`\lambda \ge 2`; then the greedy reaches 1 - 1/e of the best. No
    matrix of similarities is needed: with unit vectors :math:`u_i = x_i / |x_i|` the gain of row e is

    .. math:: \tfrac{\lambda}{2} \bigl(n + u_e \cdot \textstyle\sum_i u_i\bigr)
              - \bigl(|S| + u_e \cdot \textstyle\sum_{j \in S} u_j\bigr) - s_{ee} .

    Features are about their mean; a row of zeros has a cosine of 0 to all others. Each sample weighs n / budget. The
    registry's ``GRAPH-CUT`` is ``PerClass(GraphCut())``. O(n d) for a pick, a copy of the features in memory.

    Parameters
    ----------
    trade_off : float of at least 0, default 2
        The :math:`\lambda` above; below 2 picks differ more from each other.
    """

    trade_off: float = setting(2.0, at_least=0.0, at_most=1e9)

    name = "graph-cut"

    def _picked(self, context: SelectionContext, X: Array, size: int, include: Indices) -> Chosen:
        U = X - X.mean(axis=0, dtype=np.float64).astype(X.dtype)
        norms = np.sqrt(np.einsum("ij,ij->i", U, U))  # not np.linalg.norm, which squares a copy
        U /= np.where(norms > 0, norms, 1.0)[:, None]
        own = np.where(norms > 0, 1.0, 0.5)  # s_ee
        # without the terms that are the same for all rows; in float64, as the sum over all rows is large
        alike = 0.5 * self.trade_off * np.einsum("ij,j->i", U, U.sum(axis=0, dtype=np.float64)) - own
        picked = np.zeros(U.shape[1])

        def add(pick: int) -> None:
            picked[:] += U[pick]

        return greedy_rows(size, include, lambda: alike - U @ picked.astype(U.dtype), add), None
