"""Draws by the gradients of the current model, inside a pool that makes them cheap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from .._errors import InvalidInputError, InvalidTypeError
from .._progress import logger
from .._validation import check_choice, check_count
from ..core.draw import DrawTable
from ..coresets.coreset import Coreset, Guarantee
from .classes import PerClass
from .context import SelectionContext
from .gradients import Gradients
from .inputs import Indices
from .pool import gradients_of, knows_gradients
from .simple import AdaptiveRandom
from .strategy import Selector, Strategy
from .variance import (
    FORWARD_SHARE,
    Floats,
    Variance,
    best_pool_factor,
    draw_probabilities,
    gradient_norms,
    inclusion_probabilities,
    replacement_variance,
    two_stage_variance,
    variance_times_time,
)

_METHODS = ("systematic", "keys")
_SCORES = ("fresh", "seen")
_LIMITS = {
    "mix": (np.nextafter(0.0, 1.0), 1.0, "above 0 and at most 1"),
    "correction": (0.0, 1.0, "of at least 0 and at most 1"),
    "pool_factor": (1.0, np.finfo(float).max, "of at least 1"),
    "overhead": (np.nextafter(0.0, 1.0), np.finfo(float).max, "above 0"),
}
_BOUNDED = (
    *("cross_entropy", "bce", "l1", "huber"),
    *(
        "CrossEntropyLoss",
        "NLLLoss",
        "BCEWithLogitsLoss",
        "MultiLabelSoftMarginLoss",
        "L1Loss",
        "SmoothL1Loss",
        "HuberLoss",
    ),
)
_PROBE = (
    64,
    512,
)  # rows by which the gain is measured before the pool is looked at: a quarter of the budget, within these
_UNKNOWN_EVERY = 4  # between 1 and the usual 20, in ratio, where nobody says how often a redraw is due
_REPORTS = "variance of adaptive draws"


@dataclass(frozen=True)
class Report:
    """What one selection found.

    Parameters
    ----------
    epoch : int
    pool : int
        Indices that were scored: those of the pool, or of the probe where it was the end of it.
    gain : float
        Variance of a uniform draw over that of a draw by these scores, both with repeats. Of scores that were seen, of
        which the norms are known only: the mean squares.
    variance : Variance or None
        Of unbiased weights (``correction=1``). None where the draw fell back to a uniform one, the pool was not
        uniform, or scores are those that were seen.
    """

    epoch: int
    pool: int
    gain: float
    variance: Variance | None


class _Settled(NamedTuple):
    mix: float
    correction: float
    pool_factor: float
    every: int


class _Probe(NamedTuple):
    gain: float
    rows: int


@dataclass(frozen=True, eq=False, kw_only=True)
class AdaptiveCoreset(Selector):
    r"""Samples drawn by the norms of their gradients at the current model.

    The sum of the last-layer gradients :math:`a_i = r_i (h_i, 1)^\top` is estimated by a weighted draw. Row i of a pool
    is drawn with a probability proportional to

    .. math:: p_i = (1 - \mu) \frac{u_i |a_i|}{\sum_j u_j |a_j|} + \frac{\mu}{M}, \qquad
              |a_i| = |r_i| \sqrt{|h_i|^2 + 1}

    (cross entropy: r is softmax minus one-hot; squares: twice the residual), where u are the weights that the pool
    gives to its M rows. No row is drawn twice, and row i weighs :math:`u_i / \pi_i`, which makes all weighted sums
    unbiased; no weight is above :math:`\max(u_i, u_i M / (\mu m))`, m the budget.

    Where the pool is all rows and ``pool`` has shares of its own, such as sensitivities, these stand in place of
    :math:`1/M`. Without a model (and without given gradients) it is the model-free draw: that of ``pool``.

    Parameters
    ----------
    mix : float in (0, 1], optional
        The share :math:`\mu` of the model-free draw; 1 is that draw alone. By default :math:`0.5 - 0.3/R`, R the epochs
        between two draws: scores that grow old are trusted less.
    correction : float in [0, 1], optional
        Weights are :math:`u_i \pi_i^{-c}`, scaled to the sum that they have at c = 1. 1 is unbiased; 0 leaves the
        hard samples the weight of their numbers, and minimises a loss that weighs sample i by :math:`\pi_i`. By default
        :math:`(1 - 1/R)/2`: scores that are renewed at once correct a bias by themselves, as a neglected sample is
        drawn next; a subset that is kept for long does not. But 1 where the slope of the loss has no bound (squares, a
        function of your own): outliers would take over.
    pool_factor : float, optional
        Indices that are scored, in units of the budget; by default as many as ``overhead`` allows.
    overhead : float, default 1
        Of the default pool: its forward passes cost at most so much of what the training between two draws costs, a
        forward pass being a third of a training step. That makes 3 R budgets.
    pool : Strategy, optional
        The model-free draw, with its weights: ``RBF()``, say. By default uniform.
    scores : {"fresh", "seen"}, default "fresh"
        "fresh": the norms are those of the current model, which a pool is passed through. "seen": those that training
        computed itself when it last met a sample, the mean of them for samples that it has not met. They cost nothing,
        and are older the larger the data; all rows are the pool. :func:`coresift.training.train` records them; in a
        loop of your own call :meth:`SelectionContext.record`.
    automatic : bool, default False
        Spend no more on scores than they gain. A probe of the gradients measures the gain g; the default pool is then
        :math:`\sqrt{3 R g}` at most, which minimises variance times time, and the draw is model-free where even that is
        not better than uniform redraws of the same time.
    select_every : int, optional
        The R above; by default what the context knows of it.
    per_class : bool, default False
        Draw within each class, which gets its share of the budget.
    min_per_class : int, default 0
        With ``per_class``: at least so many samples of each class.
    method : {"systematic", "keys"}, default "systematic"
        How to draw. "systematic", in an order that is random at each selection, has inclusion probabilities that are
        known exactly; the weights of "keys" are unbiased too, and vary more.
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
    method: str = "systematic"

    @property
    def name(self) -> str:
        """As it is registered."""
        return "adaptive-coreset"

    @property
    def reuses_norms(self) -> bool:
        """Whether a training loop is asked to record the norms that it computes."""
        return self.scores == "seen"

    def reports(self, context: SelectionContext) -> list[Report]:
        """What the selections of a run found so far, oldest first; each class counts. Nothing is decided by them."""
        return context._root_kept.setdefault(_REPORTS, [])

    def _check(self) -> None:
        check_choice(self.method, "method", _METHODS)
        check_choice(self.scores, "scores", _SCORES)
        check_count(self.min_per_class, "min_per_class", 0)
        for name, limits in _LIMITS.items():
            value = getattr(self, name)
            if value is None and name != "overhead":
                continue
            if isinstance(value, bool) or not isinstance(value, Real):
                raise InvalidTypeError(f"{name} = {value!r} must be a number {limits[2]}.")
            if not limits[0] <= float(value) <= limits[1]:
                raise InvalidInputError(f"{name} = {value} must be a number {limits[2]}.")
        if self.pool is not None and not isinstance(self.pool, Strategy):
            raise InvalidTypeError(f"pool = {self.pool!r} is no strategy: it must have a method select.")
        if self.reuses_norms and (self.pool is not None or self.pool_factor is not None or self.automatic):
            raise InvalidInputError(
                "scores = 'seen' cost nothing, and all rows are drawn from: pool, pool_factor and automatic do not "
                "apply."
            )
        if self.select_every is not None:
            check_count(self.select_every, "select_every")
        if self.min_per_class and not self.per_class:
            raise InvalidInputError(
                f"min_per_class = {self.min_per_class} needs per_class=True: a draw over all classes promises none."
            )

    def settled(self, context: SelectionContext) -> _Settled:
        """The settings, with the defaults for this loss and so many epochs between two draws in place of None."""
        every = self.select_every or context.select_every or _UNKNOWN_EVERY
        # a bias that no later draw corrects is no smaller because the run ends before one is due
        correction = 0.5 - 0.5 / every if has_bounded_slope(context.loss) else 1.0
        if context.n_epochs is not None:  # scores cost no more than the epochs that are left
            every = max(1, min(every, context.n_epochs - context.epoch))
        return _Settled(
            0.5 - 0.3 / every if self.mix is None else self.mix,
            correction if self.correction is None else self.correction,
            self.overhead * every / FORWARD_SHARE if self.pool_factor is None else self.pool_factor,
            every,
        )

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        probe = self._probed(context, size, rng) if self.automatic and knows_gradients(context) else None
        if self.per_class:
            return PerClass(_Part(self, probe), self.min_per_class).select(context, size, rng)
        return self._draw(context, size, rng, probe)

    def _probed(self, context: SelectionContext, size: int, rng: np.random.Generator) -> _Probe:
        """The gain that scores would bring, by rows that decide nothing else; 1 if even these cost too much."""
        mix, _, factor, _ = self.settled(context)
        count = max(_PROBE[0], min(_PROBE[1], size // 4))
        if count > factor * size / 4:
            return _Probe(1.0, 0)
        gradients = gradients_of(context, rng.permutation(context.n_samples)[:count]).double()
        return _Probe(gain_of(gradients, np.ones(len(gradients)), mix), len(gradients))

    def _draw(
        self, context: SelectionContext, size: int, rng: np.random.Generator, probe: _Probe | None
    ) -> Coreset:
        if self.reuses_norms:
            return self._draw_by_seen(context, size, rng)
        if not knows_gradients(context):
            return self._model_free(context, size, rng, "model-free: there is no model")
        n = context.n_samples
        mix, correction, factor, every = self.settled(context)
        factor = min(factor, n / size)
        if probe is not None:
            if self.pool_factor is None:
                factor = min(factor, best_pool_factor(probe.gain, every, size / n))
            if variance_times_time(factor, probe.gain, every, size / n) >= 1:
                report = Report(context.epoch, probe.rows, probe.gain, None)
                self._note(context, report, "variance a uniform draw's, which is cheaper")
                return self._model_free(context, size, rng, "model-free: scores would not pay")
        n_pool = min(n, max(size, math.ceil(factor * size)))
        rows, weights, model_free = self._pooled(context, n_pool, rng)
        gradients = gradients_of(context, rows).double()
        norms = gradient_norms(gradients, context.rows[rows])
        shares = draw_probabilities(norms, weights, mix, model_free)
        drawn = DrawTable(shares, weights, rng).draw(min(size, len(rows)), self.method, rng)
        variance = None
        if self.pool is None and self.method == "systematic":
            inclusion = inclusion_probabilities(shares, size)
            variance = two_stage_variance(gradients, norms, weights, inclusion, n, size)
        report = Report(context.epoch, len(rows), gain_of(gradients, weights, mix), variance)
        found = "variance unknown" if variance is None else f"variance of unbiased weights {variance}"
        self._note(context, report, found)
        return self._weighted(
            context, rows[drawn.indices], drawn.weights, weights[drawn.indices], correction, variance
        )

    def _draw_by_seen(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        """By the norms of other moments: weights are as unbiased, whatever the scores; the variance is not known."""
        seen = context.seen()
        met = np.zeros(0, dtype=bool) if seen is None else np.isfinite(seen)
        if seen is None or not met.any():
            if context.epoch > 0:
                _warn_once(context, "nobody has told the context what training saw (record)")
            return self._model_free(context, size, rng, "model-free: training has met no sample yet")
        mix, correction, _, _ = self.settled(context)
        norms = np.where(met, seen, seen[met].mean(dtype=np.float64)).astype(np.float64)
        shares = draw_probabilities(norms, context.sizes, mix)
        drawn = DrawTable(shares, context.sizes, rng).draw(size, self.method, rng)
        squares = (context.sizes * norms) ** 2
        gain = len(norms) * float(squares.sum()) / float(np.sum(squares / shares)) if squares.any() else 1.0
        self._note(context, Report(context.epoch, int(met.sum()), gain, None), "as training saw them")
        chosen = drawn.indices
        return self._weighted(context, chosen, drawn.weights, context.sizes[chosen], correction, None)

    def _weighted(
        self,
        context: SelectionContext,
        rows: Indices,
        weights: Floats,
        inputs: Floats,
        correction: float,
        variance: Variance | None,
    ) -> Coreset:
        """Indices and unbiased weights as a coreset, corrected as far as was asked for."""
        return Coreset(
            rows,
            partly_corrected(weights, inputs, correction),
            context.n_samples,
            method=self._described(context, variance, correction),
            total_weight=float(context.sizes.sum()),
            guarantee=None if correction < 1 else Guarantee("sums"),
        )

    def _described(self, context: SelectionContext, variance: Variance | None, correction: float) -> str:
        """The name, and the variance where the draw is one: classes would be as many remarks."""
        if self.reuses_norms:
            return f"{self.name} (by what training saw)"
        if variance is None or context._path:
            return self.name
        whose = "variance" if correction == 1 else "unbiased weights would have a variance of"
        return f"{self.name} ({whose} {variance.ratio:.2g} of a uniform draw's)"

    def _pooled(
        self, context: SelectionContext, n_pool: int, rng: np.random.Generator
    ) -> tuple[Indices, Floats, Floats | None]:
        """Indices of the pool, their weights, and the shares of the model-free draw among them; None if they are equal.

        Indices that a draw has put into a pool have had their shares: only in a pool of all rows they are still due.
        """
        n = context.n_samples
        if self.pool is None:
            rows = rng.permutation(n)[:n_pool]
            return rows, context.sizes[rows] * (n / n_pool), None
        shares = getattr(self.pool, "shares", None)
        core = self.pool.select(context, n_pool, rng)
        return core.indices, core.weights, shares(context) if shares is not None and n_pool == n else None

    def _model_free(
        self, context: SelectionContext, size: int, rng: np.random.Generator, why: str
    ) -> Coreset:
        core = (AdaptiveRandom() if self.pool is None else self.pool).select(context, size, rng)
        return Coreset(
            core.indices,
            core.weights,
            core.n_samples,
            method=f"{self.name} ({why})",
            total_weight=float(context.sizes.sum()),
        )

    def _note(self, context: SelectionContext, report: Report, found: str) -> None:
        self.reports(context).append(report)
        logger.info(
            "adaptive coreset, epoch %d: %d rows scored, gain %.3g; %s.",
            report.epoch,
            report.pool,
            report.gain,
            found,
        )


@dataclass(frozen=True, eq=False)
class _Part(Selector):
    """The draw within one class."""

    whole: AdaptiveCoreset
    probe: _Probe | None

    @property
    def name(self) -> str:
        return self.whole.name

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        return self.whole._draw(context, size, rng, self.probe)


def _warn_once(context: SelectionContext, message: str) -> None:
    if message not in context._root_kept:
        context._root_kept[message] = True
        logger.warning("adaptive coreset, epoch %d: %s; the draw is uniform.", context.epoch, message)


def has_bounded_slope(loss: Any) -> bool:
    """Whether one sample's derivative in the outputs is bounded, as far as the name of the loss tells."""
    return (loss if isinstance(loss, str) else type(loss).__name__) in _BOUNDED


def gain_of(gradients: Gradients, weights: Floats, mix: float) -> float:
    """Variance of uniform draws over that of draws by these scores; n rows cannot show a gain above n."""
    n, norms = len(gradients), gradient_norms(gradients)
    uniform = replacement_variance(gradients, norms, weights, np.full(n, 1 / n))
    own = replacement_variance(gradients, norms, weights, draw_probabilities(norms, weights, mix))
    return max(1.0, min(n, uniform / own)) if own > 0 else float(n if uniform > 0 else 1)


def partly_corrected(weights: Floats, inputs: Floats, correction: float) -> Floats:
    r"""From unbiased weights :math:`u / \pi` to :math:`u \pi^{-c}`, with the same sum."""
    if correction == 1:
        return weights
    powers = inputs * (weights / inputs) ** correction
    return powers * (weights.sum() / powers.sum())
