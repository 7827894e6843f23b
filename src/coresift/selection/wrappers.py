"""Strategies made of strategies: mini-batches as items, and a warm start."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError
from .._validation import check_budget, check_count, check_positive
from ..core.budgets import class_quotas
from ..coresets.coreset import Coreset
from .context import SelectionContext
from .strategy import Phases, Selector, Strategy, everything, rounded_up


def _name_of(strategy: Strategy) -> str:
    return getattr(strategy, "name", type(strategy).__name__.lower())


@dataclass(frozen=True, eq=False)
class PerBatch(Selector):
    """A strategy whose items are random mini-batches with their mean gradients.

    The samples are shuffled and cut into ``n // batch_size`` batches, which differ in size by a few when ``batch_size``
    does not divide n; so many are selected as cover the budget, and a surplus is dropped at random, evenly. The
    weight that the strategy gives to a batch is shared equally by its members: every one carries the batch's weight.
    A sum of weights that the strategy promises is therefore kept.

    Parameters
    ----------
    strategy : Strategy
    batch_size : int, default 20
    """

    strategy: Strategy
    batch_size: int = 20

    @property
    def name(self) -> str:
        """That of the strategy inside, and ``pb``."""
        return f"{_name_of(self.strategy)}pb"

    def _check(self) -> None:
        check_count(self.batch_size, "batch_size")

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        n = context.n_samples
        batch_size = min(self.batch_size, n)
        groups = np.array_split(rng.permutation(n), n // batch_size)
        wanted = min(math.ceil(size / batch_size), len(groups))
        core = self.strategy.select(context.batches(groups), wanted, rng)
        chosen = [groups[batch] for batch in core.indices]
        kept = shares_of(size, np.array([len(group) for group in chosen]), rng)
        members = [
            group[:count] for group, count in zip(chosen, kept, strict=True)
        ]  # random: they were shuffled
        sizes = context.sizes
        weights = [
            weight * sizes[group] / sizes[group].sum()
            for group, weight in zip(members, core.weights, strict=True)
        ]
        method = core.method.replace(_name_of(self.strategy), self.name, 1)
        return Coreset(
            np.concatenate(members), np.concatenate(weights), n, method=method, total_weight=core.total_weight
        )


def shares_of(size: int, capacities: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """``size`` items over places of given capacities, as evenly as they allow; the odd ones at random."""
    if size >= capacities.sum():
        return capacities
    quotas = class_quotas(capacities, size, power=0.0)
    counts = np.floor(quotas + 1e-9).astype(np.int64)
    open_places = np.flatnonzero(capacities > counts)
    counts[rng.choice(open_places, size - int(counts.sum()), replace=False)] += 1
    return counts


@dataclass(frozen=True, eq=False)
class Warm(Selector):
    """All of the data first, then a strategy: a share kappa of the subset run's compute goes to the full data.

    Of a run of T epochs on a fraction f of the data, ``ceil(kappa * T * f)`` epochs are on all data and
    ``ceil(T - kappa * T)`` on the subset: see :meth:`phases`, by which a training loop must go. The context must know
    ``n_epochs = T``.

    Parameters
    ----------
    strategy : Strategy
    kappa : float, default 0.5
        Above 0, below 1.
    """

    strategy: Strategy
    kappa: float = 0.5

    @property
    def name(self) -> str:
        """That of the strategy inside, and ``-warm``."""
        return f"{_name_of(self.strategy)}-warm"

    def _check(self) -> None:
        if check_positive(self.kappa, "kappa") >= 1:
            raise InvalidInputError(f"kappa = {self.kappa} must be above 0 and below 1.")

    def phases(self, n_epochs: int, fraction: float) -> Phases:
        """How many epochs on all data, and how many on the subset."""
        self._check()
        check_count(n_epochs, "n_epochs")
        return Phases(rounded_up(self.kappa * n_epochs * fraction), rounded_up((1.0 - self.kappa) * n_epochs))

    def select(self, context: SelectionContext, budget: int | float, rng: np.random.Generator) -> Coreset:
        """All samples in the epochs of the warm start; afterwards what the strategy selects."""
        if context.n_epochs is None:
            raise InvalidInputError("a warm start needs the length of the run: give the context n_epochs.")
        size = check_budget(budget, context.n_samples, "budget")
        if context.epoch < self.phases(context.n_epochs, size / context.n_samples).n_full:
            return everything(context, "full")
        return super().select(context, budget, rng)

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        assert context.n_epochs is not None
        shorter = context._copy()  # so long is the run that there is
        shorter.n_epochs = self.phases(context.n_epochs, size / context.n_samples).total
        return self.strategy.select(shorter, size, rng)
