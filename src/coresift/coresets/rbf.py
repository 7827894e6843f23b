"""Coresets of the Gaussian (RBF) loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._validation import LARGEST_RATIO, check_positive
from ..core import paper
from ..core.bound import SensitivityBound, rounding_slack
from ..core.certificate import log_floor
from ..core.gaussian import CELLS_TOLERANCE, EXACT_TOLERANCE, Problem, cells, cells_bound, closed_form, exact
from ..core.points import Points
from ..core.sizes import covering, dimension_free, paper_formula, vc
from .base import FitContext, SensitivityCoreset
from .coreset import QueryBall
from .geometry import cell_centers

_NEAR_ONE = 1.1  # a total cannot fall below 1: above this there is something to gain
_CHEAP = 2e11  # operations: some ten seconds on one core
_CHEAP_EXACT = 2e10
_TYPICAL_STEPS = 10


class RBFCoreset(SensitivityCoreset):
    r"""A weighted subset that keeps every Gaussian sum over a ball of queries.

    The sums are :math:`F(x) = \sum_p w_p e^{-|p-x|^2/\sigma^2}`.

    ``fit`` bounds the sensitivity of every row, the largest share it can have in a sum,
    :math:`s(p) = \sup_x w_p f(p,x)/F(x)`; ``sample`` draws rows in proportion to it, with weights that make every sum
    unbiased.

    Parameters
    ----------
    radius : float, default 1.0
        Radius of the ball of queries around the weighted mean, in units of the bandwidth.
    bandwidth : None, float or "median", default None
        The :math:`\sigma` of the loss, in the units of the data. None is the paper's normalisation: the
        distance from the mean to the farthest row. "median": the median distance in a sample of rows. It is the
        main dial: at a very large bandwidth all rows are alike; at a very small one, with a ball that keeps its
        size in the units of the data, every row is needed; in between sensitivities matter.
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
        Most rows for which "exact" is computed; None for no limit.
    verbose : int, default 0
        Above 0, progress is logged as warnings of the logger ``coresift``, which Python shows unasked.
    random_state : None, int or Generator
        Of the cells, of the order of systematic draws, and of the sequence of draws.

    Attributes
    ----------
    sensitivities_ : ndarray of shape (n,)
        Upper bounds on the sensitivities (the sensitivities themselves to 1e-6 if exact); "paper" and "lemma"
        may exceed 1.
    total_sensitivity_ : float
        Their sum, at least 1: the number of points needed for an error is proportional to it.
    uniform_factor_ : float
        How many times more points plain sampling (in proportion to the weights) needs for the same guarantee, at most.
    center_, scale_, radius_ : ndarray of shape (d,), float, float
        Centre of the ball, bandwidth and radius (in bandwidths) of the fit; the first two in the units of the data.
    bound_, is_certified_, bound_note_ : str, bool, str
        The bound used, whether it is proved for these data, and why.
    duality_gap_ : ndarray of shape (n,) or None
        For "cells" and "exact": logarithm of the bound minus that of the value reached.
    n_unconverged_ : int or None
        Rows whose gap is above the tolerance (1e-6 for "exact", 1e-3 for "cells"); their bounds hold but are loose.

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
        verbose: int = 0,
    ) -> None:
        self.radius = radius
        self.bandwidth = bandwidth
        self.bound = bound
        self.n_cells = n_cells
        self.max_exact = max_exact
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_positive(self.radius, "radius", at_most=LARGEST_RATIO)

    def _bounds(self) -> tuple[str, ...]:
        return ("auto", "closed-form", "cells", "exact", "paper", "lemma")

    def _tolerance(self, bound_name: str) -> float:
        return EXACT_TOLERANCE if bound_name == "exact" else CELLS_TOLERANCE

    def _ball(self) -> QueryBall:
        return QueryBall("gaussian", self.center_, self.scale_, self.radius_)

    def _ball_sizes(
        self, t: float, dimension: int, points: Points, shares: np.ndarray, eps: float, delta: float
    ) -> dict[str, float]:
        radius = self.radius_
        scores, positive = self._table.scores, shares > 0
        ratio = np.divide(shares, scores, out=np.zeros(len(shares)), where=positive)
        total = float(scores.sum())  # scores have any scale: t w/s is free of it
        largest, second_moment = total * float(ratio.max()), total * float(shares @ ratio)
        floor = float(np.exp(log_floor(points, shares, radius, "gaussian")))
        return {
            "covering": covering(t, dimension, radius, points.max_norm, eps, delta),
            "dimension-free": dimension_free(largest, second_moment, floor, eps, delta),
            "vc": vc(t, dimension + 1, eps, delta),
            "plain": dimension_free(1.0, 1.0, floor, eps, delta),
            "paper": paper_formula(t, points.d + 1, eps, delta),
        }

    def _bound(self, context: FitContext) -> SensitivityBound:
        return self._bound_in_ball(context, float(self.radius))

    def _bound_in_ball(self, context: FitContext, radius: float) -> SensitivityBound:
        points, shares = context.points, context.shares
        if self.bound == "paper":
            return paper.algorithm1(points, shares, radius)
        if self.bound == "lemma":
            return paper.lemma(points, shares, radius)
        if self.bound == "exact":
            self._refuse_large(points.n)
        # the closed form is that of the mean, the ball is centred at a rounded one: 2 R |p - mean| <= 2 R (|p| + error)
        slack = rounding_slack(points.rounding_norm, radius) + 2.0 * radius * context.center_error
        start = closed_form(context.sq_norms, shares, context.second_moment, radius, slack, context.from_mean)
        chosen = (
            self._cheapest(float(start.values.sum()), points.n, points.d)
            if self.bound == "auto"
            else self.bound
        )
        if chosen == "closed-form":
            return start
        problem = Problem(points, context.sq_norms, shares, radius)
        if chosen == "exact":
            return exact(problem, start, self._progress("exact sensitivities", points.n))
        centers = cell_centers(points, shares, self.n_cells, context.rng)
        summary = cells(points, shares, centers, self._progress("cells", points.n))
        return cells_bound(problem, summary, start, self._progress("sensitivities from cells", points.n))

    def _cheapest(self, total: float, n: int, d: int) -> str:
        """Exact if that is a matter of a second, else cells if of some ten seconds; the closed form if little
        is to gain."""
        if total <= _NEAR_ONE:
            return "closed-form"
        if 4.0 * n * n * (d + 8) * _TYPICAL_STEPS <= _CHEAP_EXACT:
            return "exact"
        k = min(self.n_cells, n)
        if 4.0 * n * k * (min(d, k) + 8) * _TYPICAL_STEPS <= _CHEAP:
            return "cells"
        return "closed-form"
