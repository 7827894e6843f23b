r"""The variance of a weighted draw as an estimate of a sum of vectors, and draws by scores only where they pay.

The vectors are last-layer gradients :math:`a_i` of n rows of weight :math:`u_i`; :math:`A = \sum u_i a_i`. A draw of m
rows with inclusion probabilities :math:`\pi_i` and weights :math:`u_i / \pi_i` has the expectation A. The derivations
are on the docs page "Adaptive coresets".
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coresift.coresets.coreset import Coreset
from coresift.selection import AdaptiveCoreset, Gradients, SelectionContext, Strategy, Warm, registry
from coresift.selection.adaptive import draw_probabilities, gradient_norms

Floats = NDArray[np.float64]

_PROBE = 64, 512  # the gain is estimated from a quarter of the budget, within these numbers of rows
_ROUNDING = 1e-12  # a difference of sums below this share of the squares counts as zero

FORWARD_SHARE = 1 / 3  # cost of a forward pass in training steps: a backward pass costs two forward passes


@dataclass(frozen=True, eq=False, kw_only=True)
class AutomaticCoreset(AdaptiveCoreset):
    r"""Adaptive draws that spend no more on scores than they gain (``ADAPTIVE-CORESET-AUTO``).

    A probe of the gradients measures the gain g; the default pool is then at most :math:`\sqrt{3 R g}`, and the draw is
    model-free if uniform redraws in the same time are as good.
    """

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        if not context.has_gradients or self.reuses_norms:
            return super()._select(context, size, rng)
        settled, share = self.settled(context), size / context.n_samples
        gain = self.probed_gain(context, size, rng)
        factor = min(settled.pool_factor, 1 / share)
        if self.pool_factor is None:
            factor = min(factor, best_pool_factor(gain, settled.every, share))
        if variance_times_time(factor, gain, settled.every, share) >= 1:
            return self._model_free(context, size, rng, "model-free: scores would not pay")
        return self._draw(context, size, rng, factor)

    def probed_gain(self, context: SelectionContext, size: int, rng: np.random.Generator) -> float:
        """Estimate the gain of scores from rows that decide nothing else; 1 if even these cost too much."""
        settled, count = self.settled(context), max(_PROBE[0], min(_PROBE[1], size // 4))
        if count > settled.pool_factor * size / 4:
            return 1.0
        gradients = context.gradients_of(rng.permutation(context.n_samples)[:count]).double()
        return gain_of(gradients, np.ones(len(gradients)), settled.mix)


@dataclass(frozen=True, eq=False, kw_only=True)
class PooledCoreset(AdaptiveCoreset):
    """Adaptive draws inside a pool that another strategy draws; the study found no gain over a uniform one."""

    pool: Strategy

    def _draw(self, context: SelectionContext, size: int, rng: np.random.Generator, factor: float) -> Coreset:
        core = self.pool.select(context, min(context.n_samples, max(size, math.ceil(factor * size))), rng)
        return self._drawn(context, size, rng, core.indices, core.weights)


_OWN = {"ADAPTIVE-CORESET-AUTO": AutomaticCoreset(), "ADAPTIVE-CORESET-AUTO-WARM": Warm(AutomaticCoreset())}


def strategies() -> dict[str, Strategy]:
    """The strategies of the library by name, and the paper's own."""
    return registry() | _OWN


def gain_of(gradients: Gradients, weights: Floats, mix: float) -> float:
    """Variance of uniform draws over that of draws by these scores; n rows cannot show a gain above n."""
    n, norms = len(gradients), gradient_norms(gradients)
    uniform = replacement_variance(gradients, norms, weights, np.full(n, 1 / n))
    own = replacement_variance(gradients, norms, weights, draw_probabilities(norms, weights, mix))
    return max(1.0, min(n, uniform / own)) if own > 0 else float(n if uniform > 0 else 1)


def inclusion_probabilities(shares: Floats, size: int) -> Floats:
    r"""Inclusion probabilities of m distinct rows: :math:`\pi_i = \min(1, \lambda p_i)` with :math:`\sum \pi_i = m`.

    :math:`\lambda \ge m`, hence :math:`\pi_i \ge \min(1, m p_i)`: rows that are certain leave more to the others.
    """
    if size >= len(shares):
        return np.ones(len(shares))
    descending = -np.sort(-shares)
    tails = np.cumsum(descending[::-1])[::-1]  # summed from the smallest: no cancellation
    scale = (size - np.arange(size)) / tails[:size]  # lambda if the first k rows are certain
    is_uncertain = scale * descending[:size] < 1.0
    # if all drawn rows are certain, the others get what rounding leaves
    certain = int(np.argmax(is_uncertain)) if is_uncertain.any() else size - 1
    return np.minimum(1.0, scale[certain] * shares)


def replacement_variance(gradients: Gradients, norms: Floats, weights: Floats, shares: Floats) -> float:
    r"""The exact variance of m independent draws, times m: :math:`\sum (u_i |a_i|)^2 / p_i - |A|^2`."""
    return _spread(np.sum((weights * norms) ** 2 / shares), gradients.total(weights), 1.0)


def draw_variance(gradients: Gradients, norms: Floats, weights: Floats, inclusion: Floats) -> float:
    r"""The variance :math:`E|\sum_{i \in S} u_i a_i / \pi_i - A|^2` of a draw of fixed size without repeats (Hájek).

    .. math:: \frac{n}{n-1} \sum_i \pi_i (1 - \pi_i) \Bigl|\frac{u_i a_i}{\pi_i} - B\Bigr|^2, \qquad
              B = \frac{\sum_i (1 - \pi_i)\, u_i a_i}{\sum_i \pi_i (1 - \pi_i)}

    Exact for equal probabilities, and zero if every row is certain. Otherwise the relative error is O(1/m) for rows in
    random order; where neighbours are alike the variance is smaller.
    """
    n, total = len(norms), float(np.sum(inclusion * (1.0 - inclusion)))
    if n < 2 or total <= 0:
        return 0.0
    squares = np.sum((1.0 - inclusion) / inclusion * (weights * norms) ** 2)
    return _spread(squares, gradients.total(weights * (1.0 - inclusion)), total) * n / (n - 1)


def _spread(squares: float, total: NDArray[np.floating[Any]], count: float) -> float:
    """Sum of squares minus the square of a sum over a count; zero if it may be rounding."""
    spread = float(squares - total @ total / count)
    return spread if spread > _ROUNDING * squares else 0.0


@dataclass(frozen=True)
class Variance:
    """Variances of an estimate of the full last-layer gradient: of a uniform draw, and of the two stages of this one.

    ``pool`` is due to the pool, before any score is known, ``inside`` to the draw inside it.
    """

    uniform: float
    pool: float
    inside: float

    @property
    def ratio(self) -> float:
        """Variance of this draw over that of the uniform one; 1 if both are zero."""
        return (self.pool + self.inside) / self.uniform if self.uniform > 0 else 1.0

    def __str__(self) -> str:
        return f"{self.ratio:.3g} of a uniform draw's ({self.pool / (self.uniform or 1.0):.3g} from the pool)"


def two_stage_variance(
    gradients: Gradients, norms: Floats, weights: Floats, inclusion: Floats, n: int, size: int
) -> Variance:
    r"""Variances of a draw of ``size`` inside a uniform pool of M of n rows, from the gradients of the pool.

    With :math:`S^2` the variance of the rows, estimated from the pool, a uniform draw of m has
    :math:`n^2 (1/m - 1/n) S^2`, the pool :math:`n^2 (1/M - 1/n) S^2`. ``weights`` are n/M times the items' own.
    """
    pool = len(norms)
    own = weights * (pool / n)
    scatter = _spread(np.sum((own * norms) ** 2), gradients.total(own), pool) / max(1, pool - 1)
    return Variance(
        uniform=n * n * (1 / size - 1 / n) * scatter,
        pool=n * n * (1 / pool - 1 / n) * scatter,
        inside=draw_variance(gradients, norms, weights, inclusion),
    )


# When it pays. Draw a share s of the data inside a pool of f m rows, and let g be the gain if all scores were known.
# The variance is about (1/f - s) / (1 - s) + 1/g of the uniform draw's, from the pool and from the draw; the time is
# 1 + f c / R of its time, with c the cost of a forward pass in training steps and R the epochs between two draws. The
# product must be below 1. With a = 1 / (1 - s) and b = 1/g - s a it is (a/f + b)(1 + f c / R), least at
# f = sqrt(R a / (b c)): for small s that is sqrt(R g / c).


def variance_times_time(factor: float, gain: float, every: int, share: float = 0.0) -> float:
    """Variance times time of draws inside a pool of ``factor`` budgets, relative to uniform draws; below 1 it pays."""
    pool = max(0.0, 1 / factor - share) / (1 - share)
    return (pool + 1 / gain) * (1 + factor * FORWARD_SHARE / every)


def best_pool_factor(gain: float, every: int, share: float = 0.0) -> float:
    r"""The pool, in budgets, that minimises variance times time: about :math:`\sqrt{R g / c}`, at most all data."""
    rest = 1 / gain - share / (1 - share)
    most = 1 / share if share > 0 else math.inf
    return most if rest <= 0 else min(most, max(1.0, math.sqrt(every / (FORWARD_SHARE * (1 - share) * rest))))
