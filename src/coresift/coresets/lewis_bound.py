"""Lewis weights: the paper's bounds (:mod:`coresift.core.paper`) of rows read in blocks, and ``l1_svd``."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._errors import InvalidInputError
from .._validation import check_features, check_positive, check_weights
from ..core import lewis
from ..core.lewis_passes import Run
from ..core.paper import PaperBound, paper_bound
from ..core.points import log_shares
from ..rows.rows import Block
from .bounds import Geometry, RowBound


@dataclass(frozen=True)
class ScaledRows:
    """Reads a block as dense points in the coordinates of a geometry, with the logarithms of their shares."""

    geometry: Geometry

    def __call__(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        shares = block.weights / self.geometry.mass.sum()
        return self.geometry.points(block.X).gather(slice(None)).dense(), log_shares(shares)


class LewisBound(RowBound):
    """A row bound from the factors that the passes found."""

    def __init__(self, geometry: Geometry, bound: PaperBound) -> None:
        self.geometry, self._bound = geometry, bound
        self.name, self.is_certified, self.note = bound.name, bound.is_certified, bound.note

    def with_gap(self, block: Block, groups: np.ndarray | None) -> tuple[np.ndarray, None]:
        return self._bound.log_values(block), None  # not capped at 0


def lewis_bound(run: Run, geometry: Geometry, kind: str, radius: float) -> LewisBound:
    """Find the paper's bound of a kind ("paper", "lemma" or "laplacian") in passes over blocks of rows."""
    shape = (int(geometry.counts.sum()), len(geometry.center))
    limits = {"radius": radius, "max_norm": geometry.max_norm}
    return LewisBound(geometry, paper_bound(run, ScaledRows(geometry), shape, kind=kind, **limits))


def l1_svd(X: Any, *, sample_weight: Any = None, tol: float = 1e-3) -> lewis.L1SVD:
    r"""Compute the l1-SVD (f-SVD) of a weighted set of points, by Lewis weights.

    Finds an orthonormal V and a diagonal D such that for every x, with r the rank of X,

    .. math:: \|D V^\top x\|_2 \;\le\; \sum_p w_p |p \cdot x| \;\le\; \sqrt{r}\,(1 + \mathrm{tol})\, \|D V^\top x\|_2 .

    Parameters
    ----------
    X, sample_weight : array-like, frame or sparse matrix of shape (n, d), of any rank; array-like of shape (n,)
    tol : float, default 1e-3
        Relative error at which the fixed point stops; the weights dominate at any tolerance.

    Returns
    -------
    L1SVD
        ``.U`` (n, r), ``.D`` (r, r), ``.V`` (d, r) with :math:`U(p) = p V D^{-1}`, and ``.lewis_weights``, which bound
        the sensitivities :math:`\sup_x w_p|p \cdot x| / \sum_q w_q |q \cdot x|` and sum to the rank.
    """
    X = check_features(X)
    weights = check_weights(sample_weight, X.shape[0]) if sample_weight is not None else None
    with np.errstate(all="ignore"):  # overflow and underflow are refused below
        found = lewis.l1_svd(X, weights, check_positive(tol, "tol"))
        if not all(np.isfinite(part).all() for part in (found.D, found.V, found.to_u)):
            raise InvalidInputError("X spans more orders of magnitude than floats can hold: scale its columns first.")
    return found
