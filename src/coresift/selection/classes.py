"""A strategy within each class, and how a budget is shared among the classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError
from .._validation import check_count, check_positive
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
        budgets = class_budgets(counts, size, self.min_per_class, self.power, rng)
        chosen = [
            (positions, self.strategy.select(part, int(budget), rng))
            for budget, (positions, part) in zip(budgets, context.parts(), strict=True)
            if budget > 0
        ]
        return merged(chosen, context)


def class_budgets(
    counts: NDArray[np.int64],
    size: int,
    minimum: int = 0,
    power: float = 1.0,
    rng: np.random.Generator | None = None,
) -> NDArray[np.int64]:
    """How many samples of each class: ``ceil(size * n_c / n)``, or by powers of n_c, trimmed to sum to ``size``.

    Trimming takes at most one from a class: first from classes that keep another, those that rounding favoured most
    before others; when there are more classes than budget, some are left with none, of equal ones random ones. What
    a class then lacks of ``minimum`` is taken from the classes that are farthest above it.
    """
    granted = np.minimum(counts, minimum)
    if granted.sum() > size:
        raise InvalidInputError(
            f"min_per_class = {minimum} asks for {granted.sum()} samples of {len(counts)} classes, "
            f"but the budget is {size}."
        )
    quotas = _quotas(counts, size, power)
    budgets = np.ceil(quotas * (1.0 - 1e-12)).astype(np.int64)
    surplus = int(budgets.sum()) - size
    ties = np.arange(len(counts)) if rng is None or size >= len(counts) else rng.permutation(len(counts))
    # classes with more than one first, then by what rounding gave
    order = np.lexsort((ties, quotas - budgets, budgets == 1))
    budgets[order[:surplus]] -= 1
    short = np.maximum(granted - budgets, 0)
    budgets += short
    for _ in range(int(short.sum())):  # what was lacking comes from the classes farthest above their minimum
        budgets[np.argmax(budgets - granted)] -= 1
    return budgets


def _quotas(counts: NDArray[np.int64], size: int, power: float) -> NDArray[np.float64]:
    """``min(n_c, t * n_c ** power)`` with the t that makes their sum ``size``."""
    if power == 1.0:
        return np.asarray(counts * (size / int(counts.sum())))
    quotas = counts.astype(np.float64)
    is_open = np.ones(len(counts), dtype=bool)  # classes with more than their share
    while is_open.any():
        shares = counts[is_open] ** power
        shares *= (size - counts[~is_open].sum()) / shares.sum()
        if (shares <= counts[is_open]).all():
            quotas[is_open] = shares
            break
        is_open[is_open] = shares < counts[is_open]
    return quotas


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
