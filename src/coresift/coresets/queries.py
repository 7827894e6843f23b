"""Which queries are meant, and the data in their coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._errors import InvalidInputError, InvalidTypeError
from .._validation import LARGEST_RATIO, check_choice, check_features, check_positive, check_weights
from ..core.points import Matrix, Points, moments
from .coreset import Coreset, QueryBall


def checked_queries(
    X: Any, coreset: Coreset, sample_weight: Any, radius: Any, loss: Any = None, bandwidth: Any = None
) -> tuple[Points, np.ndarray, QueryBall]:
    """Scaled points, checked weights and the ball, for a coreset and the data it was drawn from."""
    if not isinstance(coreset, Coreset):
        raise InvalidTypeError(f"coreset = {type(coreset).__name__} must be a Coreset.")
    check_euclidean(coreset)
    X = check_features(X)
    if X.shape[0] != coreset.n_samples:
        raise InvalidInputError(
            f"X has {X.shape[0]} rows, but the coreset was drawn from {coreset.n_samples}; pass the same data."
        )
    weights = check_weights(sample_weight, X.shape[0])
    check_total(coreset, float(weights.sum()), sample_weight is not None)
    ball = query_ball(X, weights, coreset.ball, radius, loss, bandwidth)
    counted = weights > 0
    # a subset given by hand may hold rows without weight
    counted[coreset.indices[coreset.weights > 0]] = True
    return scaled_points(X, counted, ball), weights, ball


def check_total(coreset: Coreset, total: float, is_given: bool) -> None:
    """Refuse other weights than the coreset was drawn with: the answer would be to another question."""
    drawn = coreset.total_weight
    if drawn is not None and abs(total - drawn) > 1e-6 * max(total, drawn):
        given = "sample_weight sums" if is_given else "without sample_weight, the rows sum"
        raise InvalidInputError(
            f"the coreset was drawn from weights that sum to {drawn:.6g}; {given} to {total:.6g}. "
            "Pass the same weights."
        )


def check_euclidean(coreset: Coreset) -> None:
    """Refuse coresets drawn for another metric: their queries are not a ball, their kernel may not be one."""
    if coreset.ball is None and coreset.bound is not None:
        raise InvalidInputError(
            "this coreset was drawn for another metric than the Euclidean one; audits and certificates need "
            "metric='euclidean'."
        )


def query_ball(
    X: Matrix, weights: np.ndarray, own: QueryBall | None, radius: Any, loss: Any, bandwidth: Any
) -> QueryBall:
    """The queries meant: what is given, else the coreset's own, else the paper's normalisation with radius 1."""
    if own is not None and X.shape[1] != len(own.center):
        raise InvalidInputError(
            f"X has {X.shape[1]} columns, but the coreset was drawn from {len(own.center)}."
        )
    kind = (
        check_choice(loss, "loss", ("gaussian", "laplacian"))
        if loss is not None
        else own.loss
        if own
        else "gaussian"
    )
    if radius is not None:
        everywhere = kind == "laplacian" and np.isscalar(radius) and radius == np.inf
        reach = np.inf if everywhere else check_positive(radius, "radius", at_most=LARGEST_RATIO)
    elif kind == "laplacian":
        reach = np.inf
    else:
        reach = own.radius if own is not None and np.isfinite(own.radius) else 1.0
    if own is not None:
        center, scale = own.center, own.scale
    else:
        found = moments(X, weights / weights.sum())
        center, scale = found.mean, found.max_norm or 1.0
    if bandwidth is not None:
        scale = check_positive(bandwidth, "bandwidth")
    return QueryBall(kind, center, scale, reach)


def scaled_points(X: Matrix, counted: np.ndarray, ball: QueryBall) -> Points:
    """The rows in the coordinates of the ball; ``counted`` are those that the largest norm is taken over."""
    points = Points(X, ball.center, ball.scale, max_norm=np.inf)
    farthest, of_counted = 0.0, 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for rows, block in points.blocks():
            farthest = np.maximum(farthest, block.sq_norms.max())
            of_counted = max(of_counted, float(block.sq_norms.max(where=counted[rows], initial=0.0)))
    if not farthest <= LARGEST_RATIO**2:
        raise InvalidInputError(
            f"bandwidth = {ball.scale:.3g} is too small for X, "
            f"which has a row more than {LARGEST_RATIO:g} bandwidths away."
        )
    points.max_norm = float(np.sqrt(of_counted))
    return points
