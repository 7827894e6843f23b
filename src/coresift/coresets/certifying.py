"""Certificates and better weights for a coreset: the checks, then the core. Behind the methods of ``Coreset``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .._errors import InvalidInputError
from .._progress import Progress
from .._validation import LARGEST_RATIO, check_choice, check_count, check_generator, check_probability
from ..core.certificate import Certificate, certify_exact, certify_sampled
from ..core.points import Points
from ..core.quadrature import best_weights
from .coreset import Coreset
from .queries import checked_queries

_AFFORDABLE_PAIRS = 4e12  # pairs of rows times columns: about a minute on one core
DEFAULT_SAMPLE = 20_000


def certify(
    core: Coreset,
    X: Any,
    sample_weight: Any = None,
    radius: Any = None,
    *,
    method: str = "auto",
    n_sampled: int = DEFAULT_SAMPLE,
    delta: float = 0.05,
    random_state: Any = 0,
    verbose: int = 0,
) -> Certificate:
    """See :meth:`Coreset.certify`."""
    points, weights, ball = checked_queries(X, core, sample_weight, radius)
    return certify_points(
        points,
        weights / weights.sum(),
        core.indices,
        subset_shares(core, weights),
        ball.radius,
        ball.loss,
        method=method,
        n_sampled=n_sampled,
        delta=delta,
        random_state=random_state,
        verbose=verbose,
    )


def certify_points(
    points: Points,
    shares: np.ndarray,
    subset: np.ndarray,
    subset_shares: np.ndarray,
    radius: float,
    loss: str,
    *,
    method: str = "auto",
    n_sampled: int = DEFAULT_SAMPLE,
    delta: float = 0.05,
    random_state: Any = 0,
    verbose: int = 0,
) -> Certificate:
    """Exact if all pairs are affordable (or asked for), else from samples."""
    check_choice(method, "method", ("auto", "exact", "sampled"))
    n_sampled = check_count(n_sampled, "n_sampled", minimum=2)
    delta = check_probability(delta, "delta")
    rng = check_generator(random_state)
    if method == "auto":
        # an exponential costs about as much as a hundred columns
        affordable = float(points.n) ** 2 * (points.d + 100) <= _AFFORDABLE_PAIRS
        # n^2/2 pairs against some N n of two samples of N rows each
        method = "exact" if affordable or points.n <= 2 * n_sampled else "sampled"
    if method == "exact":
        progress = Progress(
            "certificate from all pairs of rows (method='sampled' is faster)", points.n, verbose
        )
        return certify_exact(points, shares, subset, subset_shares, radius, loss, progress)
    progress = Progress("certificate", min(n_sampled + len(subset), points.n), verbose)
    # the confidence needs samples independent of the subset, which may have been drawn from the same seed
    rng = np.random.default_rng(rng.integers(2**63, size=4))
    return certify_sampled(
        points, shares, subset, subset_shares, radius, loss, n_sampled, delta, rng, progress
    )


def reweight(
    core: Coreset,
    X: Any,
    sample_weight: Any = None,
    radius: Any = None,
    *,
    random_state: Any = 0,
    verbose: int = 0,
) -> Coreset:
    """See :meth:`Coreset.reweight`."""
    points, weights, ball = checked_queries(X, core, sample_weight, radius)
    total = float(weights.sum())
    shares = weights / total
    better = best_weights(points, core.indices, shares, subset_shares(core, weights), ball.loss)
    certificate = certify_points(
        points,
        shares,
        core.indices,
        better,
        ball.radius,
        ball.loss,
        random_state=random_state,
        verbose=verbose,
    )
    return with_certificate(
        replace(
            core,
            weights=better * total,
            total_weight=total,
            ball=ball,
            adjustments=(*core.adjustments, "reweighted"),
        ),
        certificate,
    )


def subset_shares(core: Coreset, weights: np.ndarray) -> np.ndarray:
    """The coreset's weights over the total of the data's."""
    total = float(weights.sum())
    with np.errstate(over="ignore"):
        shares: np.ndarray = core.weights / total
        if not shares.sum() <= LARGEST_RATIO:
            raise InvalidInputError(
                f"the coreset's weights sum to {core.weights.sum():.3g}, sample_weight to {total:.3g}; "
                "pass the weights that it was drawn with."
            )
    return shares


def with_certificate(core: Coreset, certificate: Certificate) -> Coreset:
    """The coreset with what is now proved of it."""
    sentence = f"{str(certificate).capitalize()}." if certificate.eps < 1 else None
    return replace(core, certificate=certificate, guarantee=sentence)
