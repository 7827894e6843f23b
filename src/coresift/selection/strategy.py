"""What a strategy is: one verb, from a context and a budget to a coreset."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from threadpoolctl import threadpool_limits  # scikit-learn needs it, so it is there

from .._validation import check_budget, check_count, check_generator
from ..coresets.coreset import Coreset
from .context import SelectionContext


@runtime_checkable
class Strategy(Protocol):
    """Anything that selects. :class:`Selector` is a convenient base, and no more than that."""

    def select(self, context: SelectionContext, budget: int | float, rng: np.random.Generator) -> Coreset:
        """Choose ``budget`` of the context's items, and weigh them."""
        ...


class Selector(ABC):
    """Base of the strategies here: the budget is checked, and a budget of everything is everything.

    A strategy holds its settings and nothing else. What it learns of the data is kept by the context
    (:meth:`SelectionContext.kept`), so one object serves many runs at a time, and a run that is resumed selects what
    it would have selected.
    """

    def select(self, context: SelectionContext, budget: int | float, rng: np.random.Generator) -> Coreset:
        """Choose items of the context.

        Parameters
        ----------
        context : SelectionContext
        budget : int or float
            A number of samples, or a fraction of them in (0, 1], rounded up.
        rng : numpy.random.Generator
            Everything that is drawn anew at a selection comes from it.

        Returns
        -------
        Coreset
            Exactly as many distinct samples as the budget asks for.
        """
        size = check_budget(budget, context.n_samples, "budget")
        rng = check_generator(rng, "rng")
        self._check()
        if size == context.n_samples:
            return everything(context, self.name)
        return self._select(context, size, rng)

    @property
    def name(self) -> str:
        """As it is written into ``Coreset.method``."""
        return type(self).__name__.lower()

    def _check(self) -> None:  # noqa: B027 - most strategies have nothing to check
        """Refuse settings that cannot be used."""

    @abstractmethod
    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset: ...


def one_blas_thread() -> AbstractContextManager[Any]:
    """For loops of many small products of matrices: threads gain nothing there, and on a busy machine they wait for
    each other twenty times longer than they compute. Nor does the result then depend on their number."""
    return threadpool_limits(1, user_api="blas")


def everything(context: SelectionContext, name: str) -> Coreset:
    """All items, each standing for itself."""
    n = context.n_samples
    return Coreset(np.arange(n), context.sizes, n, method=name, total_weight=float(context.sizes.sum()))


@dataclass(frozen=True)
class Phases:
    """Number of epochs on all data, and then on the subset."""

    n_full: int
    n_subset: int

    @property
    def total(self) -> int:
        """Epochs in all."""
        return self.n_full + self.n_subset

    def selection_epoch(self, epoch: int, every: int) -> int:
        """The epoch before which the subset of ``epoch`` is selected, if one is selected every ``every`` epochs."""
        since = epoch - self.n_full
        return 0 if since < 0 else epoch - since % check_count(every, "every")

    def selects_at(self, epoch: int, every: int) -> bool:
        """Whether to select before this epoch: at the start, after the warm start, and every ``every`` epochs then."""
        return epoch == 0 or epoch == self.selection_epoch(epoch, every)


def phases(strategy: Any, n_epochs: int, fraction: float) -> Phases:
    """The phases of a run of ``n_epochs`` on a fraction of the data: those of the strategy, or the subset only."""
    own = getattr(strategy, "phases", None)
    return Phases(0, n_epochs) if own is None else own(n_epochs, fraction)


def asks_for(strategy: Any, what: str) -> bool:
    """Whether a strategy, or one that it is made of, says of itself that it needs something of a training loop."""
    while strategy is not None:
        if getattr(strategy, what, False):
            return True
        strategy = getattr(strategy, "strategy", None)
    return False


def rounded_up(value: float) -> int:
    """The next integer; 0.1 * 30 is a little above 3 in floats, and means 3."""
    return math.ceil(value * (1.0 - 1e-12))
