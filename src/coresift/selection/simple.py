"""All of the data, and uniform draws: what every other strategy is measured against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._validation import check_count
from ..coresets.coreset import Coreset
from ..coresets.uniform import uniform_coreset
from .context import SelectionContext
from .strategy import Selector, everything

_FIXED = 1  # keeps the stream of the fixed draw apart from others of the same seed


@dataclass(frozen=True, eq=False)
class Full(Selector):
    """All samples, whatever the budget, each of weight 1."""

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        return everything(context, self.name)


@dataclass(frozen=True, eq=False)
class AdaptiveRandom(Selector):
    """A uniform draw without repeats, afresh at every selection; each sample weighs n / budget, so the sum is n."""

    @property
    def name(self) -> str:
        """As the paper writes it."""
        return "adaptive-random"

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        return uniform_coreset(context.n_samples, size, rng, sample_weight=context.sizes, method=self.name)


@dataclass(frozen=True, eq=False)
class Random(Selector):
    """A uniform draw without repeats, made once and kept: the same at every selection of a run.

    It does not look at the generator of the selection. It follows from a seed and from nothing else, so there is no
    state to lose when a run is resumed; a smaller budget selects a part of what a larger one does.

    Parameters
    ----------
    seed : int, optional
        By default the run's own, ``SelectionContext(seed=)``.
    """

    seed: int | None = None

    def _check(self) -> None:
        if self.seed is not None:
            check_count(self.seed, "seed", 0)

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        own = context.fixed_rng(_FIXED, self.seed)
        return uniform_coreset(
            context.n_samples, size, own, sample_weight=context.sizes, nested=True, method=self.name
        )
