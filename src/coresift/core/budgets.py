"""The split of a budget among classes."""

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError


def class_budgets(
    counts: NDArray[np.int64], budget: int, *, min_per_class: int = 0, power: float = 1.0
) -> NDArray[np.int64]:
    """Split a budget among classes: proportional to ``counts ** power``, at least ``min_per_class`` or all rows."""
    floors = np.minimum(counts, min_per_class)
    if floors.sum() > budget:
        needed = f"{floors.sum()} samples of {len(counts)} classes"
        raise InvalidInputError(f"min_per_class = {min_per_class} needs {needed}, but the budget is {budget}.")
    quotas = class_quotas(counts, budget, floors, power)
    budgets = np.ceil(quotas * (1.0 - 1e-12)).astype(np.int64)
    surplus = int(budgets.sum()) - budget
    # trimmed by at most one row a class, first where another row remains; an empty class has nothing to give
    order = np.lexsort((quotas - budgets, budgets == 1, budgets == 0))
    budgets[order[:surplus]] -= 1
    return budgets


def random_budgets(
    counts: NDArray[np.int64], budget: int, rng: np.random.Generator, *, min_per_class: int = 0, power: float = 1.0
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Split a budget so that no class is left out for good; return budgets, and factors for the weights of classes.

    If not every class gets a row, a draw decides: that of quota q < 1 gets one with probability q, and the factor 1/q.
    """
    budgets = class_budgets(counts, budget, min_per_class=min_per_class, power=power)
    if np.all((budgets > 0) | (counts == 0)):
        return budgets, np.ones(len(counts))
    quotas = class_quotas(counts, budget, np.minimum(counts, min_per_class), power)
    whole = np.floor(quotas * (1.0 + 1e-12))
    rest = np.where(whole < counts, np.maximum(quotas - whole, 0.0), 0.0)
    order = rng.permutation(len(counts))
    ends = np.cumsum(rest[order])
    ends *= (budget - whole.sum()) / ends[-1]  # a whole number but for rounding
    budgets[order] = whole[order] + np.diff(np.floor(ends + rng.random()), prepend=0.0)
    return budgets, 1.0 / np.where(counts > 0, np.minimum(quotas, 1.0), 1.0)


def class_quotas(
    counts: NDArray[np.int64], budget: int, floors: NDArray[np.int64] | int = 0, power: float = 1.0
) -> NDArray[np.float64]:
    """Compute ``clip(t * counts ** power, floors, counts)``, with the t at which the sum is ``budget``."""
    shares = np.where(counts > 0, counts, 1) ** float(power)
    starts, ends = (floors / shares, counts / shares)  # where a quota leaves its floor, and where it takes all rows
    steps = np.sort(np.concatenate((np.broadcast_to(starts, ends.shape), ends)))
    at = bisect_left(steps, float(budget), key=lambda t: float(np.clip(t * shares, floors, counts).sum()))
    level = steps[min(at, len(steps) - 1)]
    quotas = np.clip(level * shares, floors, counts)
    is_free = (starts < level) & (ends >= level)
    if is_free.any():
        quotas[is_free] = shares[is_free] * ((budget - quotas[~is_free].sum()) / shares[is_free].sum())
    return quotas
