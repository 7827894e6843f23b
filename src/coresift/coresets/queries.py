"""Which queries are meant, and the data in their coordinates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._errors import InvalidInputError
from .._validation import LARGEST_RATIO, check_choice, check_features, check_positive, check_weights
from ..core.points import Matrix, Points, moments
from ..rows.rows import Rows
from .budget import parse_bytes
from .values import LOSSES, QueryBall

if TYPE_CHECKING:
    from .coreset import Coreset

MAX_MEMORY = "2GB"


@dataclass(frozen=True)
class Asked:
    """A question about a data set: its rows in the coordinates of the ball, with their weights."""

    points: Points
    weights: np.ndarray
    ball: QueryBall

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.weights.sum())

    @property
    def shares(self) -> np.ndarray:
        """The weights divided by their sum."""
        return self.weights / self.total


@contextmanager
def asked(
    X: Any,
    core: Coreset,
    sample_weight: Any,
    radius: Any,
    max_memory: Any,
    loss: Any = None,
    bandwidth: Any = None,
) -> Iterator[Asked]:
    """Check a coreset against the data that it was drawn from, which may be an array or ``Rows``.

    ``Rows`` beyond ``max_memory`` bytes are kept in a temporary file while the block runs.
    """
    check_euclidean(core)
    if isinstance(X, Rows):
        _check_rows(core, X.n, X.name)
    with X.load(parse_bytes(max_memory, "max_memory")) if isinstance(X, Rows) else nullcontext() as loaded:
        if loaded is not None:
            X, sample_weight = loaded.X, loaded.weights if sample_weight is None else sample_weight
        X = check_features(X)
        _check_rows(core, X.shape[0], "X")
        weights = check_weights(sample_weight, X.shape[0])
        _check_total(core, float(weights.sum()), sample_weight is not None)
        ball = _chosen_ball(X, weights, core.ball, radius, loss, bandwidth)
        counted = weights > 0
        # a subset given by hand may hold rows without weight
        counted[core.indices[core.weights > 0]] = True
        yield Asked(_scaled_points(X, counted, ball), weights, ball)


def _check_rows(core: Coreset, n: int, name: str) -> None:
    if n != core.n_samples:
        raise InvalidInputError(
            f"{name} has {n:,} rows, but the coreset was drawn from {core.n_samples:,}; pass the same data."
        )


def _check_total(core: Coreset, total: float, is_given: bool) -> None:
    """Refuse other weights than the coreset was drawn with, which would answer another question."""
    drawn = core.total_weight
    if drawn is not None and abs(total - drawn) > 1e-6 * max(total, drawn):
        given = "sample_weight sums" if is_given else "without sample_weight, the rows sum"
        raise InvalidInputError(
            f"the coreset was drawn from weights that sum to {drawn:.6g}; {given} to {total:.6g}. "
            "Pass the same weights."
        )


def check_euclidean(core: Coreset) -> None:
    """Refuse coresets drawn for another metric: their queries are not a ball, their kernel may not be one."""
    if core.ball is None and core.bound is not None:
        raise InvalidInputError(
            "this coreset was drawn for another metric than the Euclidean one; audits and certificates need "
            "metric='euclidean'."
        )


def _chosen_ball(
    X: Matrix, weights: np.ndarray, own: QueryBall | None, radius: Any, loss: Any, bandwidth: Any
) -> QueryBall:
    """What is given, else the coreset's own, else the paper's normalisation with radius 1."""
    if own is None:
        found = moments(X, weights / weights.sum())
        own = QueryBall("gaussian", found.mean, found.max_norm or 1.0, 1.0)
    elif X.shape[1] != len(own.center):
        raise InvalidInputError(
            f"X has {X.shape[1]} columns, but the coreset was drawn from {len(own.center)}."
        )
    kind = own.loss if loss is None else check_choice(loss, "loss", LOSSES)
    if kind == "laplacian" and (radius is None or (np.isscalar(radius) and radius == np.inf)):
        reach = np.inf
    elif radius is not None:
        reach = check_positive(radius, "radius", at_most=LARGEST_RATIO)
    else:
        reach = own.radius if np.isfinite(own.radius) else 1.0
    scale = own.scale if bandwidth is None else check_positive(bandwidth, "bandwidth")
    return QueryBall(kind, own.center, scale, reach)


def _scaled_points(X: Matrix, counted: np.ndarray, ball: QueryBall) -> Points:
    """Return the rows in the coordinates of the ball; the largest norm is taken over the ``counted`` ones."""
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
