r"""Leverage of weighted rows: how much a row can move a least-squares fit.

.. math:: h_i = a_i^\top (A^\top W A)^+ a_i = \sup_\beta (a_i^\top \beta)^2 / \sum_j w_j (a_j^\top \beta)^2

The sum of ``w_i h_i`` is the rank. One pass sums the Gram matrix; the leverage of a row is then a map of that row.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from .points import Matrix

_DIGITS_LOST = 1e-12  # eigenvalues below this share of the largest are rounding: collinear or constant columns


class Leverage:
    """The map from rows to their leverage, from the Gram matrix ``A^T W A`` of all rows."""

    def __init__(self, gram: np.ndarray) -> None:
        diagonal = gram.diagonal()
        unit = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))  # so that the cut does not depend on units
        values, vectors = eigh(gram / unit / unit[:, None])
        kept = values > _DIGITS_LOST * max(float(values[-1]), 0.0)
        self.factor = vectors[:, kept] / np.sqrt(values[kept]) / unit[:, None]  # (p, rank)

    @property
    def rank(self) -> int:
        """Rank of the Gram matrix, and the sum of ``w h``."""
        return int(self.factor.shape[1])

    def of(self, A: Matrix) -> np.ndarray:
        """(b,) leverages of rows."""
        return np.asarray(np.square(A @ self.factor).sum(axis=1))
