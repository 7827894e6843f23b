"""What can be done to a draw before it is handed out, at the price of exact unbiasedness."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from .._certify import certify_points, with_certificate
from .._coreset import Coreset
from .._errors import InvalidInputError
from .._queries import check_euclidean
from ..core.points import Points
from ..core.quadrature import best_weights, chosen_rows

_POOL_FACTOR = 4
_RANK_OPERATIONS = 1e11  # most that finding the rank may cost


def check_refine(refine: Any) -> int:
    """How many times the size the pool is: 1 for no refinement."""
    if isinstance(refine, (bool, np.bool_)) or refine is None:
        return _POOL_FACTOR if refine else 1
    if not isinstance(refine, Integral) or refine < 2:
        raise InvalidInputError(
            f"refine = {refine!r} must be True, False or an integer of at least 2 (pool over size)."
        )
    return int(refine)


def improved(core: Coreset, points: Points, shares: np.ndarray, size: int | None, verbose: int) -> Coreset:
    """Keep ``size`` of the points if given, find the best weights, certify."""
    check_euclidean(core)
    assert core.ball is not None
    assert core.total_weight is not None
    loss, radius, total = core.ball.loss, core.ball.radius, core.total_weight
    words: tuple[str, ...] = ("reweighted",)
    indices, weights = core.indices, core.weights / total
    if size is not None and size < len(indices):
        kept = chosen_rows(points, indices, size, shares, loss)
        indices, weights = indices[kept], weights[kept] * (weights.sum() / weights[kept].sum())
        words = ("refined", "reweighted")
    better = best_weights(points, indices, shares, weights, loss)
    certificate = certify_points(points, shares, indices, better, radius, loss, verbose=verbose)
    changed = replace(core, indices=indices, weights=better * total, adjustments=words)
    return with_certificate(changed, certificate)


def normalized(core: Coreset) -> Coreset:
    """Weights that sum to the total weight of the data."""
    assert core.total_weight is not None
    weights = core.weights * (core.total_weight / core.weights.sum())
    # what was proved was proved of the old weights
    return replace(
        core, weights=weights, adjustments=(*core.adjustments, "normalized"), certificate=None, guarantee=None
    )


def affine_rank(points: Points, shares: np.ndarray) -> int:
    """The dimension of the points' affine hull, or an upper bound where finding it would take long."""
    most = min(points.d, int(np.count_nonzero(shares)) - 1)
    if most < 1 or float(points.n + points.d) * points.d**2 > _RANK_OPERATIONS:
        return max(most, 1)
    gram = np.zeros((points.d, points.d))
    for rows, block in points.blocks(extra_columns=points.d):
        z = block.dense()[shares[rows] > 0]  # not weighted: a row of little weight spans a direction too
        gram += z.T @ z
    spectrum = np.linalg.eigvalsh(gram)
    # directions in which the points differ by less than a part in 10^6 of the largest still count unless they
    # are rounding
    return max(1, min(most, int(np.sum(spectrum > 1e-13 * spectrum[-1] * points.d))))
