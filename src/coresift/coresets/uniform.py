"""Even draws, the baseline of every other draw: uniform, or stratified by class."""

from typing import Any

import numpy as np

from .._validation import check_generator
from ..core.budgets import random_budgets
from .coreset import Coreset, QueryBall


def uniform_coreset(
    n_samples: int,
    size: int,
    random_state: Any = None,
    *,
    sample_weight: np.ndarray | None = None,
    nested: bool = False,
    method: str = "uniform",
    ball: QueryBall | None = None,
) -> Coreset:
    """Draw rows uniformly without replacement; row i weighs ``w_i * n / size``, which makes weighted sums unbiased.

    ``nested`` takes the first rows of a permutation: from the same seed, a smaller size gives a part of a larger one.
    """
    rng = check_generator(random_state)
    rows = rng.permutation(n_samples)[:size] if nested else rng.choice(n_samples, size, replace=False)
    weights = np.ones(n_samples) if sample_weight is None else sample_weight
    drawn, total = weights[rows] * (n_samples / size), float(weights.sum())
    return Coreset(rows, drawn, n_samples, method=method, ball=ball, total_weight=total)


def even_draw(
    weights: np.ndarray, codes: np.ndarray | None, size: int, rng: np.random.Generator, *, power: float = 1.0
) -> Coreset:
    """Draw rows of positive weight uniformly; if there are classes, in proportion to a power of their rows.

    With more classes than rows, chance decides. Row i of a class of which m of n rows are drawn weighs ``w_i n / m``,
    over the chance that the class is drawn: weighted sums are unbiased.
    """
    used = np.flatnonzero(weights)
    classes, numbers = np.unique(np.zeros(len(used)) if codes is None else codes[used], return_inverse=True)
    counts = np.bincount(numbers)
    sizes, factors = random_budgets(counts, size, rng, min_per_class=int(size >= len(classes)), power=power)
    rows = [rng.choice(used[numbers == c], sizes[c], replace=False) for c in range(len(classes))]
    drawn = [f * weights[own] * (n / max(m, 1)) for own, n, m, f in zip(rows, counts, sizes, factors, strict=True)]
    method, total = "uniform" if codes is None else "stratified", float(weights.sum())
    return Coreset(np.concatenate(rows), np.concatenate(drawn), len(weights), method=method, total_weight=total)
