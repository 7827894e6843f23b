"""Certify, audit and improve a weighted subset of the data that it was drawn from."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.random import Generator

from .._errors import InvalidInputError
from .._progress import OnPass, Progress, display_of
from .._validation import (
    LARGEST_RATIO,
    check_choice,
    check_count,
    check_features,
    check_generator,
    check_instance,
    check_positive,
    check_probability,
    check_weights,
    parse_bytes,
)
from ..core.audit import AuditResult, worst_query
from ..core.certificate import certify_exact, certify_sampled
from ..core.points import Certificate, Matrix, Points, Subset
from ..core.quadrature import DENSE_LIMIT, Quadrature, tilted
from ..rows.rows import Rows
from .coreset import MAX_MEMORY, Coreset, Guarantee, QueryBall
from .fitting import array_runner, geometry_of
from .options import BoundSpec

_AFFORDABLE_PAIRS = 5e11  # pairs of rows times columns: about a minute on one core
_POOL_FACTOR = 4
_SMALLEST_POOL = 4000  # choosing among this few costs next to nothing, and more choice is better
_SAMPLED_ROWS = 1 << 15  # least number of rows from which the potentials of a pool are estimated
_SAMPLED_FACTOR = 16  # the same, per point of the coreset
_KNOWN_SHARE, _FEWEST_KNOWN = 4, 250  # of the draw, one in four has its potential computed: one per cent of the bound
_LARGE_FACTOR = 2  # data with this many times more rows are sampled: below, it saves little
_SMALL_TOTAL = 10.0  # total sensitivity up to which every row matters to the certificate by its weight


def certify_options(method: Any, n_sampled: Any, delta: Any, random_state: Any) -> dict[str, Any]:
    """The checked options of a certificate."""
    check_choice(method, "method", ("auto", "exact", "sampled"))
    n_sampled, delta = check_count(n_sampled, "n_sampled", minimum=2), check_probability(delta, "delta")
    return {"method": method, "n_sampled": n_sampled, "delta": delta, "rng": check_generator(random_state)}


def certified(
    subset: Subset,
    *,
    method: str = "auto",
    n_sampled: int = 20_000,
    delta: float = 0.05,
    rng: Generator,
    on_pass: OnPass | None = None,
) -> Certificate:
    """Certify a weighted subset of the points for the queries of the ball; see :meth:`Coreset.certify`."""
    points = subset.points
    cost = float(points.n) ** 2 * (points.d + 100)  # an exponential costs about as much as a hundred columns
    display = display_of(on_pass)
    # n^2/2 pairs against some N^2/8 of two samples of N/4 and N/2 rows
    if method == "exact" or (method == "auto" and (cost <= _AFFORDABLE_PAIRS or points.n <= n_sampled)):
        return certify_exact(subset, display("exact certificate (method 'sampled' is faster)", points.n))
    # the confidence needs samples independent of the subset, which may have been drawn from the same seed
    rng = np.random.default_rng(rng.integers(2**63, size=4))
    return certify_sampled(subset, n_sampled, delta, rng, display("certificate", n_sampled))


@contextmanager
def asked(X: Any, core: Coreset, sample_weight: Any, radius: Any, max_memory: Any) -> Iterator[tuple[Subset, Coreset]]:
    """Check a coreset against the data that it was drawn from, an array or ``Rows``.

    Yields both in the coordinates of the ball, with weights as shares, and the coreset with this ball and total weight.
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
        total = float(weights.sum())
        subset_shares = _subset_shares(core, total, sample_weight is not None)
        ball = _chosen_ball(X, weights, core.ball, radius)
        counted = weights > 0
        counted[core.indices[core.weights > 0]] = True  # a subset given by hand may hold rows without weight
        points = _scaled_points(X, counted, ball)
        subset = Subset(points, weights / total, core.indices, subset_shares, ball.radius, ball.loss)
        yield subset, replace(core, ball=ball, total_weight=total)


def _check_rows(core: Coreset, n: int, name: str) -> None:
    if n != core.n_samples:
        raise InvalidInputError(f"{name} has {n:,} rows, but the coreset was drawn from {core.n_samples:,}.")


def _subset_shares(core: Coreset, total: float, is_given: bool) -> np.ndarray:
    """Return the coreset's weights over the data's total; refuse other data weights than it was drawn with."""
    given = "sample_weight sums" if is_given else "without sample_weight, the rows sum"
    drawn = core.total_weight
    if drawn is not None and abs(total - drawn) > 1e-6 * max(total, drawn):
        text = f"the coreset was drawn from weights that sum to {drawn:.6g}; {given} to {total:.6g}"
        raise InvalidInputError(f"{text}. Pass the same weights.")
    with np.errstate(over="ignore"):
        shares: np.ndarray = core.weights / total
        if not shares.sum() <= LARGEST_RATIO:
            text = f"the coreset's weights sum to {core.weights.sum():.3g}; {given} to {total:.3g}"
            raise InvalidInputError(f"{text}. Pass the weights that it was drawn with.")
    return shares


def check_euclidean(core: Coreset) -> None:
    """Refuse coresets drawn for another loss or metric: their queries are not a ball of Gaussians or Laplacians."""
    if core.ball is None and core.bound is not None:
        text = f"this coreset (bound {core.bound!r}) was drawn for another loss, or not for metric='euclidean'; audits"
        text += " and certificates are for sums of Gaussians and Laplacians."
        others = "For a linear model fitted to it there is certify_model; LeastSquaresCoreset has its own certify."
        raise InvalidInputError(f"{text} ({others})")


def _chosen_ball(X: Matrix, weights: np.ndarray, own: QueryBall | None, radius: Any) -> QueryBall:
    """The coreset's own, with the radius if one is given; without one the paper's normalisation with radius 1."""
    if own is None:
        spec = BoundSpec("gaussian", "closed-form", bandwidth=None)
        found = geometry_of(array_runner(X, weights), spec, np.random.default_rng(0))
        own = QueryBall("gaussian", found.center, found.scale, 1.0)
    elif X.shape[1] != len(own.center):
        raise InvalidInputError(f"X has {X.shape[1]} columns, but the coreset was drawn from {len(own.center)}.")
    if own.loss == "laplacian" and (radius is None or (np.isscalar(radius) and radius == np.inf)):
        reach = np.inf
    elif radius is not None:
        reach = check_positive(radius, "radius", at_most=LARGEST_RATIO)
    else:
        reach = check_positive(own.radius, "radius", at_most=LARGEST_RATIO) if np.isfinite(own.radius) else 1.0
    return QueryBall(own.loss, own.center, own.scale, reach)


def _scaled_points(X: Matrix, counted: np.ndarray, ball: QueryBall) -> Points:
    """Return the rows in the coordinates of the ball; the largest norm is taken over the ``counted`` ones."""
    points = Points(X, ball.center, ball.scale, max_norm=np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = points.squares
    if not squares.max() <= LARGEST_RATIO**2:
        away = f"which has a row more than {LARGEST_RATIO:g} bandwidths away"
        raise InvalidInputError(f"bandwidth = {ball.scale:.3g} is too small for X, {away}.")
    points.max_norm = float(np.sqrt(squares.max(where=counted, initial=0.0)))
    return points


def audit(
    X: Any,
    core: Coreset,
    *,
    sample_weight: Any = None,
    radius: float | None = None,
    n_starts: int = 32,
    n_random: int = 1000,
    max_iter: int = 50,
    max_evaluations: float | None = None,
    max_memory: Any = MAX_MEMORY,
    random_state: Any = 0,
) -> AuditResult:
    r"""Search for the query at which a coreset's sum S is farthest from the data's sum F.

    Maximises :math:`|S(x)/F(x) - 1|` from many starts: a lower bound on the largest error, found, not guaranteed.

    Parameters
    ----------
    X, sample_weight, radius, max_memory
        As in :meth:`Coreset.certify`.
    core : Coreset
        With its ``ball``; without one, Gaussian sums within a radius of 1, in units of the distance from the mean to
        the farthest row.
    n_starts, n_random, max_iter : int
        Local searches, random queries (which also give mean and quantiles), steps of a search.
    max_evaluations : float, optional
        Most kernel evaluations, queries times rows, to spend: bounds the time on large data.
    random_state : None, int or Generator, default 0

    Returns
    -------
    AuditResult
        ``worst_error``, ``worst_query`` (in the units of the data), ``worst_ratio``, ``mean_error``, ``quantiles``.

    Examples
    --------
    >>> from coresift import RBFCoreset
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> core = RBFCoreset(random_state=0).fit(X).sample(100)
    >>> audit(X, core).worst_error <= core.certify(X).eps
    True
    """
    check_instance(core, "core", Coreset)
    limits: dict[str, Any] = {
        "n_starts": check_count(n_starts, "n_starts"),
        "n_random": check_count(n_random, "n_random"),
        "max_iter": check_count(max_iter, "max_iter", minimum=0),
    }
    if max_evaluations is not None:
        limits["max_evaluations"] = check_positive(max_evaluations, "max_evaluations")
    rng = check_generator(random_state)
    with asked(X, core, sample_weight, radius, max_memory) as (subset, _):
        if subset.loss == "laplacian" and np.isfinite(subset.radius):
            raise InvalidInputError(f"radius = {radius!r} does not apply: the Laplacian is searched over all of space.")
        return worst_query(subset, rng, **limits)


def pool_size(refine: Any, size: int, n_samples: int) -> int | None:
    """Return how many points to choose from; None for no refinement."""
    if isinstance(refine, (bool, np.bool_)) or refine is None:
        return min(max(_POOL_FACTOR * size, _SMALLEST_POOL), n_samples) if refine else None
    if not isinstance(refine, Integral) or int(refine) < 2:
        raise InvalidInputError(f"refine = {refine!r} must be True, False or an integer from 2 on (pool over size).")
    return min(int(refine) * size, n_samples)


def improved(core: Coreset, points: Points, shares: Any, size: int, pool: np.ndarray | None) -> Coreset:
    """Fit weights for the points drawn, or for ``size`` chosen from ``pool`` if these do better, and certify."""
    check_euclidean(core)
    assert core.ball is not None
    assert core.total_weight is not None
    loss, total = core.ball.loss, core.total_weight
    narrow, factors = tilted(points, core.ball.radius, loss)
    quadrature = Quadrature(narrow, shares * factors, loss)
    choices: list[Any] = [(core.indices, core.weights / total * factors[core.indices], None)]
    if pool is not None and size < len(pool):
        if core.total_sensitivity is not None and core.total_sensitivity <= _SMALL_TOTAL:
            choices.clear()  # only a few heavy rows make the draw, which takes them all, hard to beat
            pool = mixed_pool(pool, shares, np.random.default_rng((core.seed or 0, len(pool))))
        wanted, is_exact = _pool_potentials(core, quadrature, pool)
        picks = quadrature.chosen(pool, size, wanted, Progress("choice of points", size, unit="points"))
        choices.append((pool[picks], factors[pool[picks]] / size, wanted[picks] if is_exact else None))
    fits = [quadrature.fitted(*choice) for choice in choices]
    best = min(range(len(fits)), key=lambda i: fits[i].value)
    indices = choices[best][0]
    weights = fits[best].weights / factors[indices]
    subset = Subset(points, shares, indices, weights, core.ball.radius, loss)
    certificate = certified(subset, rng=np.random.default_rng(0))
    return replace(
        core,
        indices=indices,
        weights=weights * total,
        adjustments=(*core.adjustments, *(() if indices is core.indices else ("refined",)), "reweighted"),
        certificate=certificate,
        guarantee=Guarantee.from_certificate(certificate),
    )


def _pool_potentials(core: Coreset, quadrature: Quadrature, pool: Any) -> tuple[np.ndarray, bool]:
    """Return the pool's potentials, and whether they are exact or, for large data, interpolated from a few."""
    n_sampled = max(_SAMPLED_ROWS, _SAMPLED_FACTOR * core.size)
    if quadrature.points.n < _LARGE_FACTOR * n_sampled or core.size > DENSE_LIMIT:
        return quadrature.potential(pool), True
    known = core.indices[:: max(min(_KNOWN_SHARE, core.size // _FEWEST_KNOWN), 1)]
    rng = np.random.default_rng((core.seed or 0, len(pool), n_sampled))
    return quadrature.interpolated(pool, known, n_sampled, rng), False


def mixed_pool(pool: np.ndarray, shares: np.ndarray, rng: Generator) -> np.ndarray:
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


def normalized(core: Coreset) -> Coreset:
    """Scale the weights so that they sum to the total weight of the data."""
    assert core.total_weight is not None
    weights = core.weights * (core.total_weight / core.weights.sum())
    words = (*core.adjustments, "normalized")
    # the proofs were about the old weights
    return replace(core, weights=weights, adjustments=words, certificate=None, guarantee=None)
