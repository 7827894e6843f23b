"""Coresets of the Gaussian (RBF) and of the Laplacian loss."""

from typing import Any

import numpy as np

from ..core.certificate import log_floor
from ..core.points import rounding_slack
from ..core.sizes import covering, covering_laplacian, dimension_free, expected_error, moments, paper_formula, vc
from .base import LOADED_BYTES, SensitivityCoreset
from .fitting import Runner


class RBFCoreset(SensitivityCoreset):
    r"""A weighted subset that keeps every Gaussian sum over a ball of queries.

    The sums are :math:`F(x) = \sum_p w_p f(p,x)`, :math:`f(p,x) = e^{-|p-x|^2/\sigma^2}`. ``fit`` bounds the
    sensitivity :math:`s(p) = \sup_x w_p f(p,x)/F(x)` of every row, its largest share in a sum; ``sample`` draws rows in
    proportion to it, with weights that make every sum unbiased.

    Parameters
    ----------
    radius : float, default 1.0
        Radius of the ball of queries around the weighted mean, in units of the bandwidth.
    bandwidth : None, float or "median", default None
        The :math:`\sigma` of the loss, in the units of the data. None is the paper's normalisation: the distance from
        the mean to the farthest row. "median": the median distance in a sample of rows. At a very large bandwidth all
        rows are alike, at a very small one every row is needed; in between sensitivities matter.
    bound : str, default "auto"
        ============== ===============================================================================================
        "closed-form"  one atom, O(n d): :math:`(w_p/W) e^{V + R^2 - (|p-\mu| - R)^2}`, total at most :math:`e^{V+R^2}`
        "cells"        ``n_cells`` atoms, dual ascent, O(n k d); never above the closed form
        "exact"        concave maximisation with a duality gap per row, O(n^2 d); refused above ``max_exact`` rows
        "auto"         the smallest of these that is cheap for this n and d
        "paper"        Algorithm 1 as printed, uncapped; ``bound_note_`` says whether its assumptions hold
        "lemma"        the lemma of the paper's appendix, in logarithms
        ============== ===============================================================================================
    n_cells : int, default 64
        Cells of the "cells" bound.
    max_exact : int or None, default 20000
        Maximum number of rows for "exact"; None for no limit.
    random_state : None, int or Generator
        Seed for the cells and for the draws.

    Attributes
    ----------
    sensitivities_, total_sensitivity_ : ndarray of shape (n,), float
        Upper bounds on the sensitivities (exact to 1e-6 if exact; "paper" and "lemma" may exceed 1), and their sum, at
        least 1: the number of points needed for an error is proportional to it.
    uniform_factor_ : float
        How many times more points plain sampling (in proportion to the weights) needs for the same guarantee, at most.
    center_, scale_, radius_ : ndarray of shape (d,), float, float
        Centre of the ball, bandwidth and radius (in bandwidths) of the fit; the first two in the units of the data.
    bound_, is_certified_, bound_note_ : str, bool, str
        The bound used, whether it is proved for these data, and why.
    duality_gap_, n_unconverged_ : ndarray of shape (n,) or None, int or None
        For "cells" and "exact": logarithm of the bound minus that of the value reached; and rows whose gap is above the
        tolerance (1e-6 for "exact", 1e-3 for "cells"), whose bounds hold but are loose.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from coresift import RBFCoreset
    >>> X, y = load_digits(return_X_y=True)
    >>> core = RBFCoreset(random_state=0).fit(X).sample(0.1)
    >>> Xs, ys, ws = core.take(X, y)
    >>> Xs.shape
    (180, 64)
    """

    loss = "gaussian"

    def __init__(
        self,
        radius: float = 1.0,
        *,
        bandwidth: Any = None,
        bound: str = "auto",
        n_cells: int = 64,
        max_exact: int | None = 20_000,
        random_state: Any = None,
    ) -> None:
        self.radius, self.bandwidth, self.bound = radius, bandwidth, bound
        self.n_cells, self.max_exact, self.random_state = n_cells, max_exact, random_state

    def _ball_sizes(self, t: float, dimension: int, eps: float, delta: float) -> dict[str, float]:
        radius, max_norm = self.radius_, self._geometry.max_norm
        scores, shares = self._table.scores, self._table.weights / self._total_weight
        ratio = np.divide(shares, scores, out=np.zeros(len(shares)), where=shares > 0)
        total = float(scores.sum())  # scores have any scale: t w/s is free of it
        largest, second_moment = total * float(ratio.max()), total * float(shares @ ratio)
        if self._expected is None:
            self._expected = self._expected_errors(dimension, scores / total, shares)
        floor, expected, of_plain = self._expected
        plain = moments(self.uniform_factor_ * t, of_plain, eps, delta)
        return {
            "moments": moments(t, expected, eps, delta),
            "covering": covering(t, dimension, radius, max_norm, eps, delta),
            "dimension-free": dimension_free(largest, second_moment, floor, eps, delta),
            "vc": vc(t, dimension + 1, eps, delta),
            "plain": min(plain, dimension_free(1.0, 1.0, floor, eps, delta)),
            "paper": paper_formula(t, len(self.center_) + 1, eps, delta),
        }

    def _expected_errors(self, dimension: int, chances: np.ndarray, shares: np.ndarray) -> tuple[float, float, float]:
        """A lower bound on the sums in the ball, over the total weight; for these and for plain draws mean errors."""
        rows, geometry, radius = self._fitted_rows("sample sizes"), self._geometry, self.radius_
        if rows.is_portable and rows.n * rows.row_bytes > LOADED_BYTES:
            floor = -float(geometry.variances[0]) - (radius + geometry.center_error) ** 2
        else:
            with self._loaded("sample sizes") as (points, weights):
                floor = log_floor(points, weights, radius, "gaussian")
        norms = Runner(rows).collect("norms", lambda block: geometry.sq_norms(block.X))
        shift = float(np.linalg.norm(self.center_)) / self.scale_ if geometry.is_short else 0.0  # squares are expanded
        slack = rounding_slack(geometry.rounding_norm + shift, radius)
        problem = (dimension, radius, floor + radius**2, slack)
        own, plain = (expected_error(np.concatenate(norms), shares, drawn, *problem) for drawn in (chances, shares))
        return float(np.exp(floor)), own, plain


class LaplacianCoreset(SensitivityCoreset):
    r"""A weighted subset that keeps every Laplacian sum :math:`F(x) = \sum_p w_p e^{-|p-x|/\sigma}`, for all x.

    Parameters
    ----------
    metric : str or callable, default "euclidean"
        "euclidean", or with ``bound="exact"`` also "cityblock", "chebyshev", "canberra", "hamming", "jaccard" or a
        function of two rows. A function must be a metric: the bound rests on the triangle inequality.
    bound : {"auto", "exact", "cells", "paper"}, default "auto"
        "exact": :math:`s(p) = w_p / \sum_q w_q e^{-|p-q|}`, O(n^2 d). "cells": a certificate in O(n k d). "paper": the
        lemma of the paper's appendix. "auto": exact when that takes about a second, else cells.
    bandwidth, n_cells, max_exact, random_state
        As in :class:`RBFCoreset`, whose fitted attributes this estimator has too.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> LaplacianCoreset(random_state=0).fit(X).sample(50).size
    50
    """

    loss = "laplacian"

    def __init__(
        self,
        *,
        metric: Any = "euclidean",
        bandwidth: Any = None,
        bound: str = "auto",
        n_cells: int = 64,
        max_exact: int | None = 20_000,
        random_state: Any = None,
    ) -> None:
        self.metric, self.bandwidth, self.bound = metric, bandwidth, bound
        self.n_cells, self.max_exact, self.random_state = n_cells, max_exact, random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.metric == "euclidean"
        return tags

    def _ball_sizes(self, t: float, dimension: int, eps: float, delta: float) -> dict[str, float]:
        return {"covering": covering_laplacian(t, dimension, self._geometry.max_norm, eps, delta)}
