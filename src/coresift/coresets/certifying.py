"""Certificates and better weights for a coreset: the checks, then the core. Behind the methods of ``Coreset``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._errors import InvalidInputError
from .._progress import Progress
from .._validation import LARGEST_RATIO, check_choice, check_count, check_generator, check_probability
from ..core.certificate import Certificate, certify_exact, certify_sampled
from ..core.points import Points
from ..core.quadrature import best_weights
from .queries import Asked
from .values import Guarantee, QueryBall

if TYPE_CHECKING:
    from .coreset import Coreset

_AFFORDABLE_PAIRS = 4e12  # pairs of rows times columns: about a minute on one core


@dataclass(frozen=True)
class Certifier:
    """How to certify: the options of :meth:`Coreset.certify`, checked."""

    method: str = "auto"
    n_sampled: int = 20_000
    delta: float = 0.05
    random_state: Any = 0
    verbose: int = 0

    def __post_init__(self) -> None:
        check_choice(self.method, "method", ("auto", "exact", "sampled"))
        check_count(self.n_sampled, "n_sampled", minimum=2)
        check_probability(self.delta, "delta")
        check_generator(self.random_state)

    def __call__(
        self,
        points: Points,
        shares: np.ndarray,
        subset: np.ndarray,
        subset_shares: np.ndarray,
        ball: QueryBall,
    ) -> Certificate:
        """Certify a weighted subset of the points, for the queries of the ball."""
        problem = (points, shares, subset, subset_shares, ball.radius, ball.loss)
        if self._is_exact(points):
            label = "certificate from all pairs of rows (method='sampled' is faster)"
            return certify_exact(*problem, Progress(label, points.n, self.verbose))
        # the confidence needs samples independent of the subset, which may have been drawn from the same seed
        rng = np.random.default_rng(check_generator(self.random_state).integers(2**63, size=4))
        progress = Progress("certificate", min(self.n_sampled + len(subset), points.n), self.verbose)
        return certify_sampled(*problem, int(self.n_sampled), float(self.delta), rng, progress)

    def _is_exact(self, points: Points) -> bool:
        if self.method != "auto":
            return self.method == "exact"
        # an exponential costs about as much as a hundred columns
        is_affordable = float(points.n) ** 2 * (points.d + 100) <= _AFFORDABLE_PAIRS
        # n^2/2 pairs against some N n of two samples of N rows each
        return is_affordable or points.n <= 2 * self.n_sampled


def certify(core: Coreset, question: Asked, certifier: Certifier) -> Certificate:
    """See :meth:`Coreset.certify`."""
    shares = _subset_shares(core, question.total)
    return certifier(question.points, question.shares, core.indices, shares, question.ball)


def reweight(core: Coreset, question: Asked, certifier: Certifier) -> Coreset:
    """See :meth:`Coreset.reweight`."""
    points, shares, ball = question.points, question.shares, question.ball
    better = best_weights(points, core.indices, shares, _subset_shares(core, question.total), ball.loss)
    certificate = certifier(points, shares, core.indices, better, ball)
    return replace(
        core,
        weights=better * question.total,
        total_weight=question.total,
        ball=ball,
        adjustments=(*core.adjustments, "reweighted"),
        certificate=certificate,
        guarantee=Guarantee.from_certificate(certificate),
    )


def _subset_shares(core: Coreset, total: float) -> np.ndarray:
    """Divide the coreset's weights by the total of the data's."""
    with np.errstate(over="ignore"):
        shares: np.ndarray = core.weights / total
        if not shares.sum() <= LARGEST_RATIO:
            raise InvalidInputError(
                f"the coreset's weights sum to {core.weights.sum():.3g}, sample_weight to {total:.3g}; "
                "pass the weights that it was drawn with."
            )
    return shares
