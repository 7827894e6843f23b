"""Coresets of the Laplacian loss."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from .._errors import InvalidInputError
from ..core import paper
from ..core.bound import SensitivityBound
from ..core.gaussian import cells
from ..core.laplacian import laplacian_cells, laplacian_exact
from ..core.points import Moments, Points, row_slices
from ..core.sizes import covering_laplacian
from .base import FitContext, SensitivityCoreset
from .coreset import QueryBall
from .geometry import cell_centers, weighted_rows

# distances of SciPy that obey the triangle inequality, without which the bound does not hold
_METRICS = ("euclidean", "cityblock", "chebyshev", "canberra", "hamming", "jaccard")
_CHEAP_EXACT = 2e10


class LaplacianCoreset(SensitivityCoreset):
    r"""A weighted subset that keeps every Laplacian sum :math:`F(x) = \sum_p w_p e^{-|p-x|/\sigma}`, for all x.

    Parameters
    ----------
    metric : str or callable, default "euclidean"
        "euclidean", or with ``bound="exact"`` also "cityblock", "chebyshev", "canberra", "hamming", "jaccard" or a
        function of two rows. A function must be a metric: the bound rests on the triangle inequality.
    bandwidth : None, float or "median", default None
        As in :class:`RBFCoreset`; distances are divided by it.
    bound : {"auto", "exact", "cells", "paper"}, default "auto"
        "exact": :math:`s(p) = w_p / \sum_q w_q e^{-|p-q|}`, O(n^2 d). "cells": a certificate in O(n k d). "paper": the
        lemma of the paper's appendix. "auto": exact when that takes about a second, else cells.
    n_cells, max_exact, verbose, random_state
        As in :class:`RBFCoreset`, whose fitted attributes this estimator has too.
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
        verbose: int = 0,
    ) -> None:
        self.metric = metric
        self.bandwidth = bandwidth
        self.bound = bound
        self.n_cells = n_cells
        self.max_exact = max_exact
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.metric == "euclidean"
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not callable(self.metric) and self.metric not in _METRICS:
            raise InvalidInputError(
                f"metric = {self.metric!r} is not one of {', '.join(map(repr, _METRICS))}, nor a function of two rows."
            )
        if self.metric != "euclidean" and self.bound not in ("auto", "exact"):
            raise InvalidInputError(
                f"bound = {self.bound!r} needs metric='euclidean'; with metric = {self.metric!r} use bound='exact'."
            )

    def _bounds(self) -> tuple[str, ...]:
        return ("auto", "exact", "cells", "paper")

    def _tolerance(self, bound_name: str) -> float:
        return 0.0

    def _ball(self) -> QueryBall | None:
        if self.metric != "euclidean":
            return None  # queries of another metric are not described by a ball
        return QueryBall("laplacian", self.center_, self.scale_, np.inf)

    def _choose_scale(self, X: Any, found: Moments, shares: np.ndarray, rng: np.random.Generator) -> float:
        if self.metric == "euclidean" or not (self.bandwidth is None or self.bandwidth == "median"):
            return super()._choose_scale(X, found, shares, rng)
        if not isinstance(X, np.ndarray):
            raise InvalidInputError(
                f"metric = {self.metric!r} needs a dense X; sparse rows have metric='euclidean' only."
            )
        if self.bandwidth is None:
            reach = 0.0
            for rows in row_slices(len(X), 8.0 * X.shape[1]):
                distances = cdist(X[rows], found.mean[None], metric=self.metric)[:, 0]
                reach = max(reach, float(distances.max(where=shares[rows] > 0, initial=0.0)))
            return reach or 1.0
        sample = X[weighted_rows(shares, 1000, rng)]
        distances = cdist(sample, sample, metric=self.metric)
        distances = distances[distances > 0]
        return float(np.median(distances)) if len(distances) > 0 else 1.0

    def _ball_sizes(
        self, t: float, dimension: int, points: Points, shares: np.ndarray, eps: float, delta: float
    ) -> dict[str, float]:
        return {"covering": covering_laplacian(t, dimension, points.max_norm, eps, delta)}

    def _bound(self, context: FitContext) -> SensitivityBound:
        points, shares = context.points, context.shares
        if self.bound == "paper":
            return paper.laplacian_lemma(points, shares)
        chosen = self.bound
        if chosen == "auto":
            cheap = 4.0 * points.n * points.n * (points.d + 8) <= _CHEAP_EXACT
            chosen = "exact" if cheap or self.metric != "euclidean" else "cells"
        if chosen == "exact":
            if self.metric != "euclidean" and points.is_sparse:
                raise InvalidInputError(
                    f"metric = {self.metric!r} needs a dense X; sparse rows have metric='euclidean' only."
                )
            self._refuse_large(points.n)
            return laplacian_exact(
                points, shares, self.metric, self._progress("exact sensitivities", points.n)
            )
        centers = cell_centers(points, shares, self.n_cells, context.rng)
        summary = cells(points, shares, centers, self._progress("cells", points.n))
        return laplacian_cells(points, shares, summary, self._progress("sensitivities from cells", points.n))
