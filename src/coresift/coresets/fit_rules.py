"""Which rows a model is fitted on: the rules of :class:`CoresetClassifier` and :class:`CoresetRegressor`."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from .._errors import InvalidInputError
from .._validation import check_budget, check_count
from ..core.budgets import class_budgets
from .coreset import Coreset

FEW_ROWS = 1000  # a fit to so few takes no time


def wanted_size(size: Any, n: int) -> int:
    """Number of rows to choose among ``n``: an integer as it is, a fraction only if there are more than a few."""
    if isinstance(size, Integral):
        return min(check_count(size, "size"), n)
    wanted = check_budget(size, max(n, 1))
    return wanted if n > FEW_ROWS else n


def all_rows(weights: np.ndarray) -> Coreset:
    """All rows of positive weight."""
    used = np.flatnonzero(weights)
    return Coreset(used, weights[used], len(weights), method="all", total_weight=float(weights.sum()))


def drawn_rows(weights: np.ndarray, codes: np.ndarray | None, size: int, rng: np.random.Generator) -> Coreset:
    """Draw rows of positive weight uniformly; if there are classes, in proportion to their rows, at least one of each.

    Row i of a class of which m of n rows are drawn weighs ``w_i n / m``: weighted sums are unbiased.
    """
    used = np.flatnonzero(weights)
    classes, numbers = np.unique(np.zeros(len(used)) if codes is None else codes[used], return_inverse=True)
    if size < len(classes):
        raise InvalidInputError(f"size: {size} rows cannot hold {len(classes)} classes; one row of each is needed.")
    counts = np.bincount(numbers)
    sizes = class_budgets(counts, size, min_per_class=1)
    chosen = [rng.choice(used[numbers == c], sizes[c], replace=False) for c in range(len(classes))]
    drawn = [weights[rows] * (n / m) for rows, n, m in zip(chosen, counts, sizes, strict=True)]
    method = "uniform" if codes is None else "stratified"
    total = float(weights.sum())
    return Coreset(np.concatenate(chosen), np.concatenate(drawn), len(weights), method=method, total_weight=total)
