"""Weights of per-class coresets are unbiased where the budget leaves out classes, too."""

import numpy as np
import pytest

from coresift import select
from coresift.core.budgets import class_budgets, class_quotas, random_budgets
from coresift.selection import RBF, PerClass, SelectionContext

COUNTS = np.array([1, 1, 2, 3, 3, 4, 5, 5, 6, 8, 9, 13])
LABELS = np.repeat(np.arange(len(COUNTS)), COUNTS)


def rows(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(len(LABELS), 2)) + LABELS[:, None]


def means_are_right(drawn: np.ndarray) -> bool:
    """Whether each column of non-negative draws has mean 1, to five standard deviations of its mean.

    The variance is at most max v - 1, since E v^2 <= max v E v. A right method fails by chance once in 10^4.
    """
    return bool((abs(drawn.mean(axis=0) - 1) <= 5 * np.sqrt((drawn.max(axis=0) - 1).clip(1e-18) / len(drawn))).all())


@pytest.mark.parametrize("power", [0.5, 1.0])
@pytest.mark.parametrize("budget", [1, 5, 9])
def test_random_budgets_and_their_factors(budget: int, power: float) -> None:
    rng, quotas = np.random.default_rng(budget), class_quotas(COUNTS, budget, power=power)
    drawn = [random_budgets(COUNTS, budget, rng, power=power) for _ in range(4000)]
    budgets, factors = (np.array(column) for column in zip(*drawn, strict=True))
    assert (budgets.sum(axis=1) == budget).all()
    assert (abs(budgets - quotas) < 1).all()
    assert means_are_right(budgets / quotas)
    assert means_are_right((budgets > 0) * factors)
    assert not means_are_right((budgets > 0) * 1.0)


def test_factors_are_one_where_every_class_has_a_row() -> None:
    budgets, factors = random_budgets(COUNTS, 30, np.random.default_rng(0), min_per_class=1)
    np.testing.assert_array_equal(budgets, class_budgets(COUNTS, 30, min_per_class=1))
    assert (factors == 1).all()


@pytest.mark.parametrize("budget", [5, 9])
def test_every_row_has_its_own_weight_on_average(budget: int) -> None:
    assert (class_budgets(COUNTS, budget) == 0).any()  # as many classes as that cannot all have a row
    context, rng = SelectionContext(rows(0), LABELS), np.random.default_rng(budget)
    drawn = np.zeros((600, len(LABELS)))
    for weights in drawn:
        core = PerClass(RBF(method="systematic", bound="closed-form")).select(context, budget, rng)
        assert core.size == budget
        weights[core.indices] = core.weights
    assert means_are_right(drawn)
    quotas = class_quotas(COUNTS, budget)[LABELS]
    assert not means_are_right(drawn * np.minimum(quotas, 1.0))  # the same draws without the factors


@pytest.mark.parametrize("method", ["systematic", "keys"])
@pytest.mark.parametrize("budget", [5, 14])
def test_selected_classes_weigh_what_their_rows_weigh_on_average(method: str, budget: int) -> None:
    counts = np.array([30, *[2] * 11]) if budget == 14 else COUNTS  # 14 rows for 12 classes, and some go without
    labels = np.repeat(np.arange(len(counts)), counts)
    assert (class_budgets(counts, budget) == 0).any()
    X, options = labels[:, None] * np.ones(2), {"bound": "closed-form", "n_queries": 0, "normalize": True}
    drawn = np.zeros((120, len(counts)))
    for seed, share in enumerate(drawn):
        core = select(X, budget, labels=labels, per_class=True, method=method, random_state=seed, **options).coreset
        assert core.size == budget
        share[:] = np.bincount(labels[core.indices], core.weights, minlength=len(counts)) / counts
    assert means_are_right(drawn)
    assert not means_are_right(drawn * np.minimum(class_quotas(counts, budget), 1.0))
