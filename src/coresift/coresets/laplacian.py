"""Coresets of the Laplacian loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .._errors import InvalidInputError
from ..core.sizes import covering_laplacian
from .base import SensitivityCoreset
from .fitting import BoundSpec
from .values import QueryBall

# distances of SciPy that obey the triangle inequality, without which the bound does not hold
_METRICS = ("euclidean", "cityblock", "chebyshev", "canberra", "hamming", "jaccard")


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

    loss, bounds = "laplacian", ("auto", "exact", "cells", "paper")
    metric: Any

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
        self._set_parameters(locals())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.metric == "euclidean"
        return tags

    def spec(self) -> BoundSpec:
        return replace(super().spec(), metric=self.metric)

    def check_parameters(self) -> None:
        super().check_parameters()
        if not callable(self.metric) and self.metric not in _METRICS:
            raise InvalidInputError(
                f"metric = {self.metric!r} is not one of {', '.join(map(repr, _METRICS))}, nor a function of two rows."
            )
        if self.metric != "euclidean" and self.bound not in ("auto", "exact"):
            raise InvalidInputError(
                f"bound = {self.bound!r} needs metric='euclidean'; with metric = {self.metric!r} use bound='exact'."
            )

    def _ball(self) -> QueryBall | None:
        if self.metric != "euclidean":
            return None  # queries of another metric are not described by a ball
        return QueryBall("laplacian", self.center_, self.scale_, np.inf)

    def _ball_sizes(self, t: float, dimension: int, eps: float, delta: float) -> dict[str, float]:
        return {"covering": covering_laplacian(t, dimension, self._geometry.max_norm, eps, delta)}
