"""A sample for every region: cells, their nearest rows, and shares of classes."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from coresift import InvalidInputError
from coresift.core.budgets import class_budgets
from coresift.coresets.covering import cover_rows
from coresift.selection import Cover, PerClass, SelectionContext, registry


def rng(seed=0):
    return np.random.default_rng(seed)


def clusters(counts, d=3, seed=0):
    """Clusters of radius about 0.1 on the corners of a large grid."""
    centers = 100.0 * np.arange(len(counts))[:, None] * np.ones(d)
    labels = np.repeat(np.arange(len(counts)), counts)
    return centers[labels] + 0.1 * rng(seed).standard_normal((len(labels), d)), labels


def test_every_cluster_is_represented_by_its_middle_and_weighs_what_it_holds():
    """Well separated clusters are the cells, so that the answer is known: the row nearest to each mean."""
    X, labels = clusters([170, 90, 1, 7, 42])
    rows, weights = cover_rows(X, 5, rng())
    order = np.argsort(labels[rows])
    assert labels[rows][order].tolist() == [0, 1, 2, 3, 4]
    assert weights[order] == pytest.approx([170, 90, 1, 7, 42])
    for row in rows:
        mine = np.flatnonzero(labels == labels[row])
        middle = X[mine].mean(axis=0)
        assert row == mine[np.argmin(((X[mine] - middle) ** 2).sum(axis=1))]


def test_a_uniform_draw_misses_the_rare_cluster():
    """What the cover is for: five rows of a thousand, found by it always, by a uniform draw of ten in one of twenty."""
    X, labels = clusters([995, 5])
    uniform = registry()["ADAPTIVE-RANDOM"]
    found = [(labels[uniform.select(SelectionContext(X), 10, rng(seed)).indices] == 1).any() for seed in range(40)]
    assert np.mean(found) < 0.3
    for seed in range(5):
        core = Cover().select(SelectionContext(X, seed=seed), 10, rng())
        assert (labels[core.indices] == 1).any()


def test_centres_come_from_a_part_of_the_data_and_all_rows_are_counted():
    X, _ = clusters([4000, 2000])
    _, weights = cover_rows(X, 2, rng())
    assert sorted(weights) == pytest.approx([2000, 4000])


def test_repeated_points_still_give_the_budget_in_distinct_rows():
    X = np.repeat([[0.0, 0.0], [1.0, 1.0]], [30, 10], axis=0)
    core = Cover(features="raw").select(SelectionContext(X), 7, rng())
    assert len(set(core.indices)) == 7
    assert core.weights.sum() == pytest.approx(40)
    on_the_left = core.weights[X[core.indices, 0] == 0.0]
    assert on_the_left.sum() == pytest.approx(30)  # a cell that lends rows to empty ones shares its weight with them
    assert np.ptp(on_the_left) == pytest.approx(0.0)


def test_it_is_chosen_once_for_a_seed():
    X, y = rng(1).standard_normal((200, 4)), np.arange(200) % 3
    context = SelectionContext(X, y)
    first = registry()["COVER"].select(context, 30, rng(1))
    assert registry()["COVER"].select(context.at(20), 30, rng(2)) == first
    assert registry()["COVER"].select(SelectionContext(X, y, seed=1), 30, rng(1)) != first
    one, two = (Cover(features=X[:, columns]).select(context, 30, rng()) for columns in ([0, 1], [2, 3]))
    assert one != two


def test_classes_get_shares_by_the_root_of_their_sizes():
    y = np.repeat([0, 1, 2], [900, 100, 1])
    X = rng().standard_normal((len(y), 2))
    core = registry()["COVER"].select(SelectionContext(X, y), 41, rng())
    assert np.bincount(y[core.indices]).tolist() == [30, 10, 1]
    for label in range(3):
        assert core.weights[y[core.indices] == label].sum() == pytest.approx((y == label).sum())


@given(st.lists(st.integers(1, 200), min_size=1, max_size=8), st.floats(0.01, 1.0), st.floats(0.05, 1.0))
def test_budgets_of_classes_by_powers(counts, share, power):
    """They sum to the budget, no class gives more than it has, and a larger class never gets two fewer."""
    counts = np.array(counts)
    size = max(1, int(share * counts.sum()))
    budgets = class_budgets(counts, size, min_per_class=0, power=power)
    assert budgets.sum() == size
    assert (budgets <= counts).all()
    assert (budgets >= 0).all()
    order = np.argsort(counts, kind="stable")
    assert (np.diff(budgets[order]) >= -1).all()
    # unless a class has no more, quotas go by the power: t is the same for all that have
    free = budgets < counts
    if free.sum() > 1:
        t_high, t_low = ((budgets[free] + 1) / counts[free] ** power, (budgets[free] - 1) / counts[free] ** power)
        assert t_low.max() <= t_high.min() + 1e-9


def test_a_power_of_one_is_the_share_of_the_data():
    counts = np.array([90, 10])
    assert class_budgets(counts, 20).tolist() == class_budgets(counts, 20, power=1.0).tolist() == [18, 2]
    assert class_budgets(counts, 20, power=0.5).tolist() == [15, 5]
    assert class_budgets(counts, 60, power=0.05).tolist() == [50, 10]  # the small one has no more


@pytest.mark.parametrize("power", [0.0, 1.5, np.nan])
def test_powers_outside_are_refused(power):
    context = SelectionContext(np.zeros((6, 2)), np.arange(6) % 2)
    with pytest.raises(InvalidInputError, match="power"):
        PerClass(Cover(), power=power).select(context, 2, rng())


def test_numbers_are_needed():
    with pytest.raises(InvalidInputError, match="features contains NaN in column 0"):
        Cover(features=np.full((6, 2), np.nan)).select(SelectionContext(np.zeros((6, 2))), 2, rng())
