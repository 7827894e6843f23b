"""The split of a budget among classes."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from coresift._errors import InvalidInputError
from coresift.core.budgets import class_budgets, class_quotas, random_budgets

counts_of = st.lists(st.integers(0, 60), min_size=1, max_size=12).filter(any).map(np.array)
powers = st.floats(0.05, 1.0)


@given(counts_of, st.data(), st.integers(0, 5), powers, st.integers(0, 100))
def test_parts_sum_to_the_budget_between_floors_and_counts(counts, data, floor, power, seed):
    floors = np.minimum(counts, floor)
    budget = data.draw(st.integers(max(1, int(floors.sum())), int(counts.sum())))
    rng, quotas = np.random.default_rng(seed), class_quotas(counts, budget, floors, power)
    drawn, factors = random_budgets(counts, budget, rng, min_per_class=floor, power=power)
    for parts in (class_budgets(counts, budget, min_per_class=floor, power=power), drawn):
        assert parts.sum() == budget
        assert ((floors <= parts) & (parts <= counts)).all()
        assert (np.abs(parts - quotas) < 1 + 1e-9).all()
    assert (factors >= 1).all()


@given(counts_of, st.data(), powers)
def test_quotas_are_clipped_powers_of_the_counts(counts, data, power):
    budget = data.draw(st.integers(1, int(counts.sum())))
    quotas = class_quotas(counts, budget, 0, power)
    np.testing.assert_allclose(quotas.sum(), budget, rtol=1e-9)
    free = (quotas > 0) & (quotas < counts * (1 - 1e-9))
    levels = quotas[free] / counts[free] ** power  # the same t for every class that is not exhausted
    np.testing.assert_allclose(levels, levels.max(initial=0.0), rtol=1e-9)


@given(counts_of, st.integers(1, 5), st.data())
def test_every_class_keeps_its_floor(counts, floor, data):
    floors = np.minimum(counts, floor)
    budget = data.draw(st.integers(int(floors.sum()), int(counts.sum())))
    assert (class_budgets(counts, budget, min_per_class=floor) >= floors).all()
    if floors.sum() > 1:
        with pytest.raises(InvalidInputError, match=f"min_per_class = {floor} needs {floors.sum()} samples"):
            class_budgets(counts, int(floors.sum()) - 1, min_per_class=floor)


def test_known_splits():
    assert class_budgets(np.array([100, 100]), 20).tolist() == [10, 10]
    assert class_budgets(np.array([90, 10]), 20).tolist() == [18, 2]
    assert class_budgets(np.array([100, 1]), 20, power=0.01).tolist() == [19, 1]  # all of the small class
    assert class_budgets(np.array([81, 9]), 12, power=0.5).tolist() == [9, 3]  # 9 to 3 by the root
    assert class_budgets(np.array([98, 1, 1]), 10, min_per_class=1).tolist() == [8, 1, 1]
    assert class_budgets(np.array([5, 0, 3]), 8).tolist() == [5, 0, 3]


def test_ties_among_too_many_classes_are_broken_at_random():
    counts = np.full(10, 50)
    drawn = {tuple(np.flatnonzero(random_budgets(counts, 3, np.random.default_rng(s))[0])) for s in range(20)}
    assert len(drawn) > 10
    assert class_budgets(counts, 3).tolist() == class_budgets(counts, 3).tolist()
