"""What can be done to a draw before it is handed out, at the price of exact unbiasedness."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from .._errors import InvalidInputError
from ..core.discrepancy import potential
from ..core.points import Points
from ..core.quadrature import DENSE_LIMIT, chosen_rows, fitted_weights, interpolated_potentials
from ..core.rowwise import stacked_qr
from .certifying import certify_points, with_certificate
from .coreset import Coreset
from .queries import check_euclidean

_POOL_FACTOR = 4
_SMALLEST_POOL = 4000  # choosing among so few costs next to nothing, and more choice is better
_SAMPLED_ROWS, _SAMPLED_FACTOR = (
    1 << 17,
    64,
)  # rows from which the potentials of a pool are estimated: least, per point
_LARGE_FACTOR = 3  # data of at least so many times more rows are sampled: below that it saves little
_SMALL_TOTAL = 10.0  # of sensitivities, up to which every row matters to the certificate by its weight
_RANK_OPERATIONS = 1e11  # most that finding the rank may cost


def pool_size(refine: Any, size: int, n_samples: int) -> int | None:
    """How many points to choose from; None for no refinement."""
    if isinstance(refine, (bool, np.bool_)) or refine is None:
        return min(max(_POOL_FACTOR * size, _SMALLEST_POOL), n_samples) if refine else None
    if not isinstance(refine, Integral) or int(refine) < 2:
        raise InvalidInputError(
            f"refine = {refine!r} must be True, False or an integer of at least 2 (pool over size)."
        )
    return min(int(refine) * size, n_samples)


def improved(
    core: Coreset, points: Points, shares: np.ndarray, size: int, pool: np.ndarray | None, verbose: int
) -> Coreset:
    """The best weights for the points drawn, or for ``size`` chosen from ``pool`` if these do better; certified."""
    check_euclidean(core)
    assert core.ball is not None
    assert core.total_weight is not None
    loss, total = core.ball.loss, core.total_weight
    choices, starts = [core.indices], [core.weights / total]
    potentials = [potential(points, core.indices, shares, loss)]
    if pool is not None and size < len(pool):
        if core.total_sensitivity is not None and core.total_sensitivity <= _SMALL_TOTAL:
            pool = mixed_pool(pool, shares, _generator(core, len(pool)))
        wanted, is_exact = _pool_potentials(core, points, shares, pool, potentials[0])
        picks = chosen_rows(points, pool, size, shares, loss, wanted)
        choices.append(pool[picks])
        starts.append(np.full(size, 1.0 / size))
        potentials.append(wanted[picks] if is_exact else potential(points, pool[picks], shares, loss))
    # few heavy rows make the draw, which takes them all, hard to beat
    fits = [
        fitted_weights(points, rows, shares, start, loss, known)
        for rows, start, known in zip(choices, starts, potentials, strict=True)
    ]
    best = min(range(len(fits)), key=lambda i: fits[i].value)
    indices, weights = choices[best], fits[best].weights
    certificate = certify_points(points, shares, indices, weights, core.ball.radius, loss, verbose=verbose)
    words = ("refined", "reweighted") if best == 1 else ("reweighted",)
    return with_certificate(
        replace(core, indices=indices, weights=weights * total, adjustments=words), certificate
    )


def _pool_potentials(
    core: Coreset, points: Points, shares: np.ndarray, pool: np.ndarray, drawn: np.ndarray
) -> tuple[np.ndarray, bool]:
    """Potentials of the pool, and whether they are exact: of large data they are estimated, with the help of those of
    the draw. What is chosen by them is weighted by its exact potentials."""
    assert core.ball is not None
    n_sampled = max(_SAMPLED_ROWS, _SAMPLED_FACTOR * core.size)
    if points.n < _LARGE_FACTOR * n_sampled or core.size > DENSE_LIMIT:
        return potential(points, pool, shares, core.ball.loss), True
    known = (core.indices, drawn)
    rng = _generator(core, len(pool), n_sampled)
    return interpolated_potentials(points, pool, shares, core.ball.loss, known, n_sampled, rng), False


def mixed_pool(pool: np.ndarray, shares: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """As many rows as ``pool``, half of them from it, the others drawn by their weights; sorted.

    Sensitivities leave out rows that no query of the ball sees well. The discrepancy, which is certified, counts every
    row by its weight: without such rows in the pool it cannot fall. Where the total is large the ball reaches
    to where the data are thin: there the rows decide that few queries see, and no small discrepancy helps.
    """
    kept = rng.choice(pool, (len(pool) + 1) // 2, replace=False)
    with np.errstate(divide="ignore", over="ignore"):  # a row of weight zero, or nearly, is never drawn
        keys = rng.standard_exponential(len(shares)) / shares
    keys[kept] = np.inf
    n_more = min(len(pool) - len(kept), int(np.isfinite(keys).sum()))
    return np.sort(np.concatenate((kept, np.argpartition(keys, n_more)[:n_more] if n_more > 0 else kept[:0])))


def _generator(core: Coreset, *words: int) -> np.random.Generator:
    """Random numbers that the seed of a draw repeats, and that are not those of the draw itself."""
    return np.random.default_rng((0 if core.seed is None else core.seed, *words))


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
    # Not weighted: a row of little weight spans a direction too. And by QR: in squares, as the Gram matrix has them,
    # directions below a part in 10^7 of the widest are lost, and a column with a value of 10^6 for "missing" has one.
    rows_that_count = (
        block.dense()[shares[rows] > 0] for rows, block in points.blocks(extra_columns=points.d)
    )
    spectrum = np.linalg.svd(stacked_qr(rows_that_count, points.d), compute_uv=False)
    return max(1, min(most, int(np.sum(spectrum > 1e-13 * np.sqrt(points.d) * spectrum[0]))))
