"""Draws by the gradients of the current model, inside a pool that makes them cheap."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from .._errors import InvalidInputError
from ..core.draw import DrawTable, default_method
from ..coresets.coreset import Coreset, Guarantee
from .context import SelectionContext
from .gradients import Gradients
from .inputs import Floats, Indices
from .losses import has_bounded_slope
from .strategy import AdaptiveRandom, Selector, setting

_UNKNOWN_EVERY = 4  # epochs between two draws if unknown: the geometric mean of 1 and the usual 20, about
_FORWARD = 3.0  # forward passes that cost as much as a training step: a backward pass costs two


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
    which makes all weighted sums unbiased; no weight exceeds :math:`\max(u_i, u_i M / (\mu m))`, with m the budget.

    Parameters
    ----------
    mix : float in (0, 1], optional
        The share :math:`\mu` of the model-free draw. By default :math:`0.5 - 0.3/R`, with R the epochs between two
        draws: the older the scores, the less they are trusted.
    correction : float in [0, 1], optional
        Weights are :math:`u_i \pi_i^{-c}`, scaled to the sum that they have at c = 1, which is unbiased. By default
        :math:`(1 - 1/R)/2`, but 1 if the slope of the loss may be unbounded.
    pool_factor : float, optional
        Number of rows to score, in units of the budget; by default 3 R, as costly as training between two draws.
    scores : {"fresh", "seen"}, default "fresh"
        "fresh": norms at the current model, from a forward pass over a pool. "seen": norms that training computed when
        it last used a sample (:meth:`SelectionContext.record`); they cost nothing, and all rows are the pool.
    select_every : int, optional
        The R above; by default taken from the context.
    """

    mix: float | None = setting(None, above=0.0, at_most=1.0)
    correction: float | None = setting(None, at_least=0.0, at_most=1.0)
    pool_factor: float | None = setting(None, at_least=1.0)
    scores: str = setting("fresh", choices=("fresh", "seen"))
    select_every: int | None = setting(None, least=1)

    name = "adaptive-coreset"

    @property
    def reuses_norms(self) -> bool:
        """Whether training must record gradient norms."""
        return self.scores == "seen"

    def _check(self) -> None:
        super()._check()
        if self.reuses_norms and self.pool_factor is not None:
            raise InvalidInputError("pool_factor does not apply to scores = 'seen': all rows count.")

    def settled(self, context: SelectionContext) -> _Settled:
        """The settings, with None replaced by the defaults for the ``context``'s loss and epochs between two draws."""
        every = self.select_every or context.select_every or _UNKNOWN_EVERY
        # a bias that no later draw corrects is no smaller because the run ends before one is due
        correction = 0.5 - 0.5 / every if has_bounded_slope(context.loss) else 1.0
        if context.n_epochs is not None:  # do not spend more on scores than the remaining epochs justify
            every = max(1, min(every, context.n_epochs - context.epoch))
        mix = 0.5 - 0.3 / every
        return _Settled(
            mix if self.mix is None else self.mix,
            correction if self.correction is None else self.correction,
            _FORWARD * every if self.pool_factor is None else self.pool_factor,
            every,
        )

    def _select(self, context: SelectionContext, size: int, rng: Generator) -> Coreset:
        if not self.reuses_norms:
            if context.has_gradients:
                return self._draw(context, size, rng, self.settled(context).pool_factor)
            self.warn_once(context, "no model", "there is no model; the draw is model-free.")
            return self._model_free(context, size, rng, "model-free: there is no model")
        seen = context.seen()
        if seen is None or np.isnan(seen).all():
            self.warn_unless_recorded(context, None)
            return self._model_free(context, size, rng, "model-free: training has met no sample yet")
        # by norms of earlier models: weights are unbiased for any scores
        return self._drawn(context, size, rng, np.arange(len(seen)), context.sizes, known_or_mean(seen))

    def _draw(self, context: SelectionContext, size: int, rng: Generator, factor: float) -> Coreset:
        """Draw by the norms of a pool of ``factor`` budgets, all rows at most."""
        n = context.n_samples
        n_pool = min(n, max(size, math.ceil(min(factor, n / size) * size)))
        rows = rng.permutation(n)[:n_pool]
        return self._drawn(context, size, rng, rows, context.sizes[rows] * (n / n_pool))

    def _drawn(
        self, context: SelectionContext, size: int, rng: Generator, rows: Indices, inputs: Floats, seen: Any = None
    ) -> Coreset:
        r"""Draw rows of a pool, whose weights u become :math:`u \pi^{-c}`, with the sum that they have at c = 1."""
        norms = gradient_norms(context.gradients_of(rows).double(), context.rows[rows]) if seen is None else seen
        remark = "" if seen is None else "by what training saw"
        settled = self.settled(context)
        shares = draw_probabilities(norms, inputs, settled.mix)
        drawn = DrawTable(shares, inputs).draw(min(size, len(rows)), default_method(len(rows)), rng)
        chosen, weights, inputs = rows[drawn.indices], drawn.weights, inputs[drawn.indices]
        if settled.correction == 1:
            return self.coreset(context, chosen, weights, remark, guarantee=Guarantee("sums"))
        powers = inputs * (weights / inputs) ** settled.correction
        return self.coreset(context, chosen, powers * (weights.sum() / powers.sum()), remark)

    def _model_free(self, context: SelectionContext, size: int, rng: Generator, why: str) -> Coreset:
        core = AdaptiveRandom().select(context, size, rng)
        return self.coreset(context, core.indices, core.weights, why)


def gradient_norms(gradients: Gradients, rows: Indices | None = None) -> Floats:
    """Norms of the gradients in float64; raise an error that names the row if one is not finite."""
    norms = np.sqrt(gradients.sq_norms().astype(np.float64))
    if not np.isfinite(norms).all():
        place = int(np.flatnonzero(~np.isfinite(norms))[0])
        row = place if rows is None else int(rows[place])
        raise InvalidInputError(f"the gradient of row {row} has the norm {norms[place]}; the model may have diverged.")
    return norms


def known_or_mean(norms: Any) -> Floats:
    """Norms in float64, with the mean of the others in place of NaN."""
    met = np.isfinite(norms)
    return np.where(met, norms, norms[met].mean(dtype=np.float64)).astype(np.float64)


def draw_probabilities(norms: Floats, weights: Floats, mix: float) -> Floats:
    """The p of :class:`AdaptiveCoreset`: u |a| gives the least variance (Cauchy-Schwarz), the floor bounds weights."""
    masses = weights * (norms / (norms.max(initial=0.0) or 1.0))  # scaled: no overflow, no denormal numbers
    total = masses.sum()
    floor = np.full(len(norms), 1.0 / len(norms))
    return floor if total <= 0 else (1.0 - mix) * (masses / total) + mix * floor
