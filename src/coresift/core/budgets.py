"""The split of a budget among classes."""

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError


def class_budgets(
    counts: NDArray[np.int64],
    budget: int,
    *,
    min_per_class: int = 0,
    power: float = 1.0,
    rng: np.random.Generator | None = None,
) -> NDArray[np.int64]:
    """Split a budget among classes of given sizes; the parts sum to ``budget``.

    Round the quotas of :func:`class_quotas` up, then trim by at most one row a class: first where another row
    remains, and there where rounding gave most. With fewer rows than classes some get none; ``rng`` breaks ties.

    Parameters
    ----------
    counts : (k,) array of int
        Rows of each class.
    budget : int
    min_per_class : int, default 0
        Give each class at least this many rows, or all of its rows if it has fewer.
    power : float in (0, 1], default 1
        Quotas are proportional to ``counts ** power``: below 1, small classes get more than their share.
    rng : numpy.random.Generator, optional
    """
    floors = np.minimum(counts, min_per_class)
    if floors.sum() > budget:
        raise InvalidInputError(
            f"min_per_class = {min_per_class} needs {floors.sum()} samples of {len(counts)} classes, but the budget "
            f"is {budget}."
        )
    quotas = class_quotas(counts, budget, floors, power)
    budgets = np.ceil(quotas * (1.0 - 1e-12)).astype(np.int64)
    surplus = int(budgets.sum()) - budget
    ties = np.arange(len(counts)) if rng is None or budget >= len(counts) else rng.permutation(len(counts))
    order = np.lexsort((ties, quotas - budgets, budgets == 1))
    budgets[order[:surplus]] -= 1
    return budgets


def class_quotas(
    counts: NDArray[np.int64], budget: int, floors: NDArray[np.int64] | int = 0, power: float = 1.0
) -> NDArray[np.float64]:
    """Compute ``clip(t * counts ** power, floors, counts)``, with the t at which the sum is ``budget``.

    The sum is piecewise linear in t: bisect its breakpoints, then solve on the piece that contains the budget.
    """
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
