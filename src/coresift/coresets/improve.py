"""Better points and weights for a draw, at the price of exact unbiasedness."""

from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from .._errors import InvalidInputError
from .._progress import Progress
from ..core.discrepancy import potential
from ..core.points import Points
from ..core.quadrature import DENSE_LIMIT, chosen_rows, fitted_weights, interpolated_potentials, tilted
from .certifying import certified, check_euclidean
from .coreset import Coreset, Guarantee

_POOL_FACTOR = 4
_SMALLEST_POOL = 4000  # choosing among this few costs next to nothing, and more choice is better
_SAMPLED_ROWS = 1 << 15  # least number of rows from which the potentials of a pool are estimated
_SAMPLED_FACTOR = 16  # the same, per point of the coreset
_LARGE_FACTOR = 2  # data with this many times more rows are sampled: below, it saves little
_SMALL_TOTAL = 10.0  # total sensitivity up to which every row matters to the certificate by its weight


def pool_size(refine: Any, size: int, n_samples: int) -> int | None:
    """Return how many points to choose from; None for no refinement."""
    if isinstance(refine, (bool, np.bool_)) or refine is None:
        return min(max(_POOL_FACTOR * size, _SMALLEST_POOL), n_samples) if refine else None
    if not isinstance(refine, Integral) or int(refine) < 2:
        raise InvalidInputError(f"refine = {refine!r} must be True, False or an integer from 2 on (pool over size).")
    return min(int(refine) * size, n_samples)


def improved(core: Coreset, points: Points, shares: Any, size: int, pool: np.ndarray | None, verbose: int) -> Coreset:
    """Fit weights for the points drawn, or for ``size`` chosen from ``pool`` if these do better, and certify."""
    check_euclidean(core)
    assert core.ball is not None
    assert core.total_weight is not None
    loss, total = core.ball.loss, core.total_weight
    given = (points, shares)
    points, factors = tilted(points, core.ball.radius, loss)
    shares = shares * factors
    drawn = potential(points, core.indices, shares, loss)
    choices = [(core.indices, core.weights / total * factors[core.indices], drawn)]
    if pool is not None and size < len(pool):
        if core.total_sensitivity is not None and core.total_sensitivity <= _SMALL_TOTAL:
            choices.clear()  # only a few heavy rows make the draw, which takes them all, hard to beat
            pool = mixed_pool(pool, given[1], _generator(core, len(pool)))
        wanted, is_exact = _pool_potentials(core, points, shares, pool, drawn)
        progress = Progress("choice of points", size, verbose, unit="points")
        picks = chosen_rows(points, pool, size, shares, loss, wanted, progress)
        known = wanted[picks] if is_exact else potential(points, pool[picks], shares, loss)
        choices.append((pool[picks], factors[pool[picks]] / size, known))
    fits = [fitted_weights(points, rows, shares, start, loss, known) for rows, start, known in choices]
    best = min(range(len(fits)), key=lambda i: fits[i].value)
    indices = choices[best][0]
    weights = fits[best].weights / factors[indices]
    rng = np.random.default_rng(0)
    certificate = certified(*given, indices, weights, core.ball, rng=rng, verbose=verbose)
    return replace(
        core,
        indices=indices,
        weights=weights * total,
        adjustments=("reweighted",) if indices is core.indices else ("refined", "reweighted"),
        certificate=certificate,
        guarantee=Guarantee.from_certificate(certificate),
    )


def _pool_potentials(core: Coreset, points: Points, shares: Any, pool: Any, drawn: Any) -> tuple[np.ndarray, bool]:
    """Return the pool's potentials, and whether they are exact or, for large data, interpolated from the draw's."""
    assert core.ball is not None
    n_sampled = max(_SAMPLED_ROWS, _SAMPLED_FACTOR * core.size)
    if points.n < _LARGE_FACTOR * n_sampled or core.size > DENSE_LIMIT:
        return potential(points, pool, shares, core.ball.loss), True
    known = (core.indices, drawn)
    rng = _generator(core, len(pool), n_sampled)
    return interpolated_potentials(points, pool, shares, core.ball.loss, known, n_sampled, rng), False


def mixed_pool(pool: np.ndarray, shares: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return as many rows as ``pool``, half of them from it, the others drawn by their weights; sorted.

    Draws by sensitivity leave out rows that no query of the ball sees well. The certified discrepancy counts every
    row by its weight, and cannot fall without such rows in the pool. With a large total sensitivity the ball
    reaches regions with little data; rows that few queries see matter most there; a small discrepancy does not help.
    """
    kept = rng.choice(pool, (len(pool) + 1) // 2, replace=False)
    with np.errstate(divide="ignore", over="ignore"):  # a row of weight zero, or nearly, is never drawn
        keys = rng.standard_exponential(len(shares)) / shares
    keys[kept] = np.inf
    n_more = min(len(pool) - len(kept), int(np.isfinite(keys).sum()))
    return np.sort(np.concatenate((kept, np.argpartition(keys, n_more)[:n_more] if n_more > 0 else kept[:0])))


def _generator(core: Coreset, *words: int) -> np.random.Generator:
    """Return a generator that the seed of the draw repeats, independent of the draw itself."""
    return np.random.default_rng((0 if core.seed is None else core.seed, *words))


def normalized(core: Coreset) -> Coreset:
    """Scale the weights so that they sum to the total weight of the data."""
    assert core.total_weight is not None
    weights = core.weights * (core.total_weight / core.weights.sum())
    words = (*core.adjustments, "normalized")
    # the proofs were about the old weights
    return replace(core, weights=weights, adjustments=words, certificate=None, guarantee=None)
