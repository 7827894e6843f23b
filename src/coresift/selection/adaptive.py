"""Draws by the gradients of the current model, inside a pool that makes them cheap."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .._errors import InvalidInputError, InvalidTypeError
from .._progress import logger
from .._validation import LARGEST_MAGNITUDE, check_choice, check_count, check_number, check_positive
from ..core.draw import DrawTable, default_method
from ..core.keys import Draw
from ..coresets.coreset import Coreset, Guarantee
from .context import SelectionContext
from .gradients import Gradients
from .inputs import Floats, Indices
from .losses import has_bounded_slope
from .simple import AdaptiveRandom
from .strategy import Checks, Selector, Strategy
from .variance import (
    FORWARD_SHARE,
    Variance,
    best_pool_factor,
    draw_probabilities,
    gradient_norms,
    inclusion_probabilities,
    known_or_mean,
    replacement_variance,
    two_stage_variance,
    variance_times_time,
)
from .wrappers import PerClass

_PROBE = 64, 512  # the gain is estimated from a quarter of the budget, within these numbers of rows
_UNKNOWN_EVERY = 4  # epochs between two draws if unknown: the geometric mean of 1 and the usual 20, about
_REPORTS = "variance of adaptive draws"


@dataclass(frozen=True)
class Report:
    """Outcome of one selection. The gain is the variance of a uniform draw over that of a draw by these scores.

    For scores seen in training it is a ratio of mean squares. The variance is that of unbiased weights; None if the
    draw was model-free, the pool not uniform, or the scores seen in training.
    """

    epoch: int
    pool: int  # rows scored: those of the pool, or of the probe if no pool was drawn
    gain: float
    variance: Variance | None


class _Settled(NamedTuple):
    mix: float
    correction: float
    pool_factor: float
    every: int


@dataclass(frozen=True, eq=False, kw_only=True)
class AdaptiveCoreset(Selector):
    r"""Samples drawn by the norms of their gradients at the current model.

    The sum of the last-layer gradients :math:`a_i = r_i (h_i, 1)^\top` is estimated by a weighted draw. Row i of a pool
    is drawn with a probability proportional to

    .. math:: p_i = (1 - \mu) \frac{u_i |a_i|}{\sum_j u_j |a_j|} + \frac{\mu}{M}, \qquad
              |a_i| = |r_i| \sqrt{|h_i|^2 + 1}

    where u are the weights of the M rows of the pool. No row is drawn twice, and row i weighs :math:`u_i / \pi_i`,
    which makes all weighted sums unbiased; no weight exceeds :math:`\max(u_i, u_i M / (\mu m))`, with m the budget. If
    the pool is all rows and ``pool`` has shares, such as sensitivities, they replace :math:`1/M`.

    Parameters
    ----------
    mix : float in (0, 1], optional
        The share :math:`\mu` of the model-free draw. By default :math:`0.5 - 0.3/R`, with R the epochs between two
        draws: the older the scores, the less they are trusted.
    correction : float in [0, 1], optional
        Weights are :math:`u_i \pi_i^{-c}`, scaled to the sum that they have at c = 1, which is unbiased; 0 favours hard
        samples. By default :math:`(1 - 1/R)/2`, but 1 if the slope of the loss is unbounded (squares, your own
        function). With "seen" scores, these defaults go to 1 over the last third of the run.
    pool_factor : float, optional
    overhead : float, default 1
        Number of rows to score, in units of the budget; by default 3 R times ``overhead``, the cost of forward passes
        over the cost of training between two draws.
    pool : Strategy, optional
        The model-free draw, with its weights, for example ``RBF()``. By default uniform.
    scores : {"fresh", "seen"}, default "fresh"
        "fresh": norms at the current model, from a forward pass over a pool. "seen": norms that training computed when
        it last used a sample (:meth:`SelectionContext.record`); they cost nothing, and all rows are the pool.
    automatic : bool, default False
        Spend no more on scores than they gain. A probe of the gradients measures the gain g; the default pool is then
        at most :math:`\sqrt{3 R g}`, and the draw is model-free if uniform redraws in the same time are as good.
    select_every : int, optional
        The R above; by default taken from the context.
    per_class : bool, default False
    min_per_class : int, default 0
        Whether to draw within each class, which gets its share of the budget, and at least this many samples.
    method : {"systematic", "keys"}, optional
        As in :meth:`coresift.RBFCoreset.sample`.
    """

    mix: float | None = None
    correction: float | None = None
    pool_factor: float | None = None
    overhead: float = 1.0
    pool: Strategy | None = None
    scores: str = "fresh"
    automatic: bool = False
    select_every: int | None = None
    per_class: bool = False
    min_per_class: int = 0
    method: str | None = None

    name = "adaptive-coreset"
    checks: ClassVar[Checks] = {
        "mix": partial(check_positive, at_most=1.0),
        "correction": partial(check_number, at_least=0.0, at_most=1.0),
        "pool_factor": partial(check_number, at_least=1.0, at_most=LARGEST_MAGNITUDE),
        "scores": partial(check_choice, choices=("fresh", "seen")),
        "select_every": check_count,
        "min_per_class": partial(check_count, minimum=0),
        "method": partial(check_choice, choices=("systematic", "keys")),
    }

    @property
    def reuses_norms(self) -> bool:
        return self.scores == "seen"

    def reports(self, context: SelectionContext) -> list[Report]:
        """Reports of the selections of a run so far, oldest first, one for each class. They do not affect draws."""
        return context.shared.setdefault(_REPORTS, [])

    def rows_passed(self, n_samples: int, size: int, every: int) -> float:
        factor = self.overhead * every / FORWARD_SHARE if self.pool_factor is None else self.pool_factor
        return 0.0 if self.reuses_norms else min(n_samples, factor * size)

    def _check(self) -> None:
        super()._check()
        check_positive(self.overhead, "overhead")  # not None
        if self.pool is not None and not isinstance(self.pool, Strategy):
            raise InvalidTypeError(f"pool = {self.pool!r} is not a strategy: it must have a method select.")
        if self.reuses_norms and (self.pool is not None or self.pool_factor is not None or self.automatic):
            raise InvalidInputError("pool, pool_factor and automatic do not apply to scores = 'seen': all rows count.")

    def settled(self, context: SelectionContext) -> _Settled:
        """The settings, with None replaced by the defaults for this loss and number of epochs between two draws."""
        every = self.select_every or context.select_every or _UNKNOWN_EVERY
        # a bias that no later draw corrects is no smaller because the run ends before one is due
        correction = 0.5 - 0.5 / every if has_bounded_slope(context.loss) else 1.0
        if context.n_epochs is not None:  # do not spend more on scores than the remaining epochs justify
            every = max(1, min(every, context.n_epochs - context.epoch))
        mix = 0.5 - 0.3 / every
        if self.reuses_norms:  # long runs end as uniform draws do
            mix, correction = mix + (1 - mix) * context.late, correction + (1 - correction) * context.late
        return _Settled(
            mix if self.mix is None else self.mix,
            correction if self.correction is None else self.correction,
            self.overhead * every / FORWARD_SHARE if self.pool_factor is None else self.pool_factor,
            every,
        )

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        probe = self._probed(context, size, rng) if self.automatic and context.has_gradients else None
        if self.per_class:
            return PerClass(_Part(self, probe), self.min_per_class).select(context, size, rng)
        return self._draw(context, size, rng, probe)

    def _probed(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Report:
        """Estimate the gain of scores from rows that decide nothing else; 1 if even these cost too much."""
        settled, count = self.settled(context), max(_PROBE[0], min(_PROBE[1], size // 4))
        if count > settled.pool_factor * size / 4:
            return Report(context.epoch, 0, 1.0, None)
        gradients = context.gradients_of(rng.permutation(context.n_samples)[:count]).double()
        return Report(context.epoch, len(gradients), gain_of(gradients, np.ones(len(gradients)), settled.mix), None)

    def _draw(self, context: SelectionContext, size: int, rng: np.random.Generator, probe: Report | None) -> Coreset:
        if self.reuses_norms:
            return self._draw_by_seen(context, size, rng)
        if not context.has_gradients:
            self.warn_once(context, "no model", "there is no model; the draw is model-free.")
            return self._model_free(context, size, rng, "model-free: there is no model")
        n = context.n_samples
        mix, correction, factor, every = self.settled(context)
        factor = min(factor, n / size)
        if probe is not None:
            if self.pool_factor is None:
                factor = min(factor, best_pool_factor(probe.gain, every, size / n))
            if variance_times_time(factor, probe.gain, every, size / n) >= 1:
                self._note(context, probe, "a uniform draw is cheaper")
                return self._model_free(context, size, rng, "model-free: scores would not pay")
        rows, weights, model_free = self._pooled(context, min(n, max(size, math.ceil(factor * size))), rng)
        gradients = context.gradients_of(rows).double()
        norms = gradient_norms(gradients, context.rows[rows])
        shares = draw_probabilities(norms, weights, mix, model_free)
        method = self.method or default_method(len(rows))
        drawn = DrawTable(shares, weights).draw(min(size, len(rows)), method, rng)
        variance, remark, found = None, "", "variance unknown"
        if self.pool is None and method == "systematic":
            inclusion = inclusion_probabilities(shares, size)
            variance = two_stage_variance(gradients, norms, weights, inclusion, n, size)
            found = f"variance of unbiased weights {variance}"
            if not context.is_part:  # a remark for each class would be too many
                whose = "variance" if correction == 1 else "unbiased weights would have a variance of"
                remark = f"{whose} {variance.ratio:.2g} of a uniform draw's"
        self._note(context, Report(context.epoch, len(rows), gain_of(gradients, weights, mix), variance), found)
        return self._weighted(context, rows, weights, drawn, correction, remark)

    def _draw_by_seen(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        """Draw by norms of earlier models: weights are unbiased for any scores, but the variance is unknown."""
        seen, weights = context.seen(), context.sizes
        if seen is None or np.isnan(seen).all():
            self.warn_unless_recorded(context, None)
            return self._model_free(context, size, rng, "model-free: training has met no sample yet")
        mix, correction, _, _ = self.settled(context)
        norms = known_or_mean(seen)
        shares = draw_probabilities(norms, weights, mix)
        drawn = DrawTable(shares, weights).draw(size, self.method or default_method(len(norms)), rng)
        squares = (weights * norms) ** 2
        gain = len(norms) * float(squares.sum()) / float(np.sum(squares / shares)) if squares.any() else 1.0
        self._note(context, Report(context.epoch, int(np.isfinite(seen).sum()), gain, None), "scores seen in training")
        return self._weighted(context, np.arange(len(norms)), weights, drawn, correction, "by what training saw")

    def _weighted(
        self, context: SelectionContext, pool: Indices, inputs: Floats, drawn: Draw, power: float, remark: str
    ) -> Coreset:
        r"""Rows of a pool of given weights as a coreset, with weights :math:`u \pi^{-c}` of the same sum."""
        chosen, weights = drawn.indices, drawn.weights
        if power == 1:
            return self.coreset(context, pool[chosen], weights, remark, guarantee=Guarantee("sums"))
        powers = inputs[chosen] * (weights / inputs[chosen]) ** power
        return self.coreset(context, pool[chosen], powers * (weights.sum() / powers.sum()), remark)

    def _pooled(self, context: SelectionContext, n_pool: int, rng: np.random.Generator) -> tuple[Any, Any, Any]:
        """Rows and weights of the pool, and the model-free shares; None if equal, or if they drew the pool already."""
        n = context.n_samples
        if self.pool is None:
            rows = rng.permutation(n)[:n_pool]
            return rows, context.sizes[rows] * (n / n_pool), None
        shares = getattr(self.pool, "shares", None)
        core = self.pool.select(context, n_pool, rng)
        return core.indices, core.weights, shares(context) if shares is not None and n_pool == n else None

    def _model_free(self, context: SelectionContext, size: int, rng: np.random.Generator, why: str) -> Coreset:
        core = (AdaptiveRandom() if self.pool is None else self.pool).select(context, size, rng)
        return self.coreset(context, core.indices, core.weights, why)

    def _note(self, context: SelectionContext, report: Report, found: str) -> None:
        self.reports(context).append(report)
        facts = report.epoch, report.pool, report.gain, found
        logger.info("adaptive coreset, epoch %d: %d rows scored, gain %.3g; %s.", *facts)


@dataclass(frozen=True, eq=False)
class _Part(Selector):
    """The draw within one class, with the probe of all classes."""

    whole: AdaptiveCoreset
    probe: Report | None
    name = AdaptiveCoreset.name

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        return self.whole._draw(context, size, rng, self.probe)


def gain_of(gradients: Gradients, weights: Floats, mix: float) -> float:
    """Variance of uniform draws over that of draws by these scores; n rows cannot show a gain above n."""
    n, norms = len(gradients), gradient_norms(gradients)
    uniform = replacement_variance(gradients, norms, weights, np.full(n, 1 / n))
    own = replacement_variance(gradients, norms, weights, draw_probabilities(norms, weights, mix))
    return max(1.0, min(n, uniform / own)) if own > 0 else float(n if uniform > 0 else 1)
