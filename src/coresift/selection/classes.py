"""A strategy within each class, and how a budget is shared among the classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError
from .._validation import check_count, check_positive
from ..core.budgets import class_budgets
from ..coresets.coreset import Coreset
from .context import SelectionContext
from .strategy import Selector, Strategy


@dataclass(frozen=True, eq=False)
class PerClass(Selector):
    """A strategy within each class: class c gets ``ceil(budget * n_c / n)``, trimmed to the budget in all.

    In a regression, where there are no classes, it is the strategy on all samples.

    Parameters
    ----------
    strategy : Strategy
    min_per_class : int, default 0
        At least so many samples of each class that has them, whatever its share.
    power : float in (0, 1], default 1
        Shares are proportional to ``n_c ** power``, as far as classes have so many: below 1, more for small ones.
    """

    strategy: Strategy
    min_per_class: int = 0
    power: float = 1.0

    @property
    def name(self) -> str:
        """That of the strategy inside."""
        return getattr(self.strategy, "name", type(self.strategy).__name__.lower())

    def _check(self) -> None:
        check_count(self.min_per_class, "min_per_class", 0)
        check_positive(self.power, "power", at_most=1.0)

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        if not context.has_classes:
            if self.min_per_class:
                raise InvalidInputError(
                    f"min_per_class = {self.min_per_class}: y holds numbers (loss = {context.loss!r}), not classes."
                )
            return self.strategy.select(context, size, rng)
        counts = np.array([len(positions) for positions in context.classes().values()])
        budgets = class_budgets(counts, size, min_per_class=self.min_per_class, power=self.power, rng=rng)
        chosen = [
            (positions, self.strategy.select(part, int(budget), rng))
            for budget, (positions, part) in zip(budgets, context.parts(), strict=True)
            if budget > 0
        ]
        return merged(chosen, context)


def merged(chosen: Sequence[tuple[NDArray[np.int64], Coreset]], context: SelectionContext) -> Coreset:
    """The union of coresets of disjoint parts, in the rows of the whole."""
    cores = [core for _, core in chosen]
    bounds = {core.bound for core in cores}
    return Coreset(
        np.concatenate([positions[core.indices] for positions, core in chosen]),
        np.concatenate([core.weights for core in cores]),
        context.n_samples,
        method=_common_method(cores),
        bound=bounds.pop() if len(bounds) == 1 else None,
        total_weight=float(context.sizes.sum()),
    )


def _common_method(cores: Sequence[Coreset]) -> str:
    """What the parts have in common; a remark that concerns some of them only is kept."""
    return "; ".join(sorted({core.method for core in cores}, key=lambda method: (len(method), method)))
