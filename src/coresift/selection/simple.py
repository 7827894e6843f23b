"""All data, and uniform draws: the baselines."""

from dataclasses import dataclass

import numpy as np

from ..coresets.coreset import Coreset
from ..coresets.uniform import uniform_coreset
from .context import SelectionContext
from .strategy import Selector

_FIXED = 1  # separates the stream of the fixed draw from others of the same seed


@dataclass(frozen=True, eq=False)
class Full(Selector):
    """All samples, whatever the budget, each of weight 1."""

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        return self.everything(context)


@dataclass(frozen=True, eq=False)
class AdaptiveRandom(Selector):
    """A uniform draw without repeats, new at every selection; each sample weighs n / budget, so the sum is n."""

    name = "adaptive-random"

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        return uniform_coreset(context.n_samples, size, rng, sample_weight=context.sizes, method=self.name)


@dataclass(frozen=True, eq=False)
class Random(Selector):
    """A uniform draw without repeats, made once: the same at every selection of a run.

    It depends on ``seed`` alone, by default the run's own (``SelectionContext(seed=)``), not on the generator of the
    selection, so a resumed run has no state to lose. A smaller budget selects a part of a larger one.
    """

    seed: int | None = None

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        own, sizes = context.fixed_rng(_FIXED, self.seed), context.sizes
        return uniform_coreset(context.n_samples, size, own, sample_weight=sizes, nested=True, method=self.name)
