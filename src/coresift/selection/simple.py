"""All data, and uniform draws: the baselines."""

from dataclasses import dataclass

import numpy as np

from ..coresets.coreset import Coreset
from ..coresets.uniform import uniform_coreset
from .context import SelectionContext
from .inputs import Floats, Indices
from .strategy import Selector

_FIXED, _TURNS = 1, 5  # separate the streams of the fixed draw and of the turns from others of the same seed


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

    It depends on the seed of the run alone (``SelectionContext(seed=)``), not on the generator of the selection, so a
    resumed run has no state to lose. A smaller budget selects a part of a larger one.
    """

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        own, sizes = context.fixed_rng(_FIXED), context.sizes
        return uniform_coreset(context.n_samples, size, own, sample_weight=sizes, nested=True, method=self.name)


@dataclass(frozen=True, eq=False)
class RS2(Selector):
    """A uniform draw, new in every epoch, in which no sample returns before (nearly) all others have had their turn.

    The samples are shuffled and served in ``n // budget`` turns, then shuffled again: repeated sampling without
    replacement (Okanovic et al., 2024). Each sample weighs n / budget.
    """

    every = 1

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        rows = turn(context, np.arange(context.n_samples), size)
        return self.coreset(context, rows, scaled_weights(context, rows))


def scaled_weights(context: SelectionContext, rows: Indices) -> Floats:
    """Weights of some rows, scaled to the sum of all."""
    own = context.sizes[rows]
    return own * (context.sizes.sum() / own.sum())


def turn(context: SelectionContext, pool: Indices, size: int) -> Indices:
    """Rows of the pool that have their turn in this epoch."""
    turns = len(pool) // size
    own = np.random.default_rng((int(context.fixed_rng(_TURNS).integers(2**62)), context.epoch // turns))
    return own.permutation(pool)[context.epoch % turns * size :][:size]


def filled(pool: Indices, n: int, size: int, rng: np.random.Generator) -> Indices:
    """The pool and, if it has fewer than ``size`` of the n rows, random others."""
    others = np.setdiff1d(np.arange(n), pool, assume_unique=True)
    return np.concatenate((pool, rng.permutation(others)[: max(0, size - len(pool))]))
