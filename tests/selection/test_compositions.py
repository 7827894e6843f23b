"""Budgets of classes, mini-batches, warm starts, and names."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from coresift import Coreset, InvalidInputError, InvalidTypeError
from coresift.core.budgets import class_budgets
from coresift.selection import (
    AdaptiveRandom,
    Craig,
    Full,
    Gradients,
    GradMatch,
    PerBatch,
    Phases,
    Random,
    SelectionContext,
    Warm,
    names as _registry,
    phases,
    register,
    registry,
    strategy_named,
)
from coresift.selection.wrappers import even_counts

RNG = np.random.default_rng(0)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.data())
def test_class_budgets_are_rounded_up_and_trimmed_by_at_most_one(counts, data):
    counts = np.array(counts)
    size = data.draw(st.integers(1, int(counts.sum())))
    budgets = class_budgets(counts, size, min_per_class=0)
    up = np.ceil(size * counts / counts.sum() - 1e-9)
    assert budgets.sum() == size
    assert np.all((budgets == up) | (budgets == up - 1))
    assert np.all(budgets <= counts)
    if np.any((up == 1) & (budgets == 0)):  # a class goes without only when all others have been trimmed
        assert not np.any((up > 1) & (budgets == up) & (up > size * counts / counts.sum() + 1e-9))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(0, 3), st.data())
def test_class_budgets_with_a_minimum(counts, minimum, data):
    counts = np.array(counts)
    least = int(np.minimum(counts, minimum).sum())
    size = data.draw(st.integers(max(1, least), int(counts.sum())))
    budgets = class_budgets(counts, size, min_per_class=minimum)
    assert budgets.sum() == size
    assert np.all(budgets >= np.minimum(counts, minimum))
    assert np.all(budgets <= counts)
    if least > 1:
        with pytest.raises(InvalidInputError, match=f"needs {least} samples"):
            class_budgets(counts, least - 1, min_per_class=minimum)


def test_class_budgets_of_mnist():
    counts = np.array([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
    np.testing.assert_array_equal(class_budgets(counts, 600), [59, 67, 60, 61, 58, 54, 59, 63, 59, 60])


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.data())
def test_shares_are_even(capacities, data):
    capacities = np.array(capacities)
    size = data.draw(st.integers(0, int(capacities.sum()) + 3))
    counts = even_counts(size, capacities, np.random.default_rng(0))
    assert counts.sum() == min(size, capacities.sum())
    assert np.all(counts <= capacities)
    open_places = counts < capacities
    if open_places.any():
        assert counts.max() - counts[open_places].min() <= 1


def flat_context(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return SelectionContext(np.zeros((n, 1)), gradients=Gradients(rng.normal(size=(n, 40))), n_epochs=10)


def test_members_carry_their_batchs_weight_and_batches_are_matched():
    context = flat_context()
    core = PerBatch(GradMatch(ridge=0.0), 5).select(context, 20, np.random.default_rng(2))
    # the partition is the first thing drawn
    groups = np.array_split(np.random.default_rng(2).permutation(60), 12)
    weights = dict(zip(core.indices, core.weights, strict=True))
    chosen = [group for group in groups if group[0] in weights]
    assert len(chosen) == 4
    for group in chosen:
        assert len({weights[row].round(9) for row in group}) == 1
    A = context.gradients().dense()
    sums = np.stack([A[group].sum(axis=0) for group in chosen])
    fitted = np.linalg.lstsq(sums.T, A.sum(axis=0), rcond=None)[0]
    if np.all(fitted > 0):  # the unconstrained solution is then the constrained one
        np.testing.assert_allclose([weights[group[0]] for group in chosen], fitted, rtol=1e-6)
    assert np.all(fitted > 0)


@pytest.mark.parametrize(("n", "batch_size", "size"), [(60, 5, 20), (61, 7, 20), (13, 20, 5), (50, 50, 7), (23, 4, 22)])
def test_any_sizes(n, batch_size, size):
    core = PerBatch(Craig(), batch_size).select(flat_context(n), size, np.random.default_rng(0))
    assert core.size == size
    assert core.weights.sum() == pytest.approx(n)
    assert core.method == "craigpb"


def test_warm_plan():
    assert Warm(Random()).phases(300, 0.1) == Phases(15, 150)
    assert Warm(Random()).phases(200, 0.01) == Phases(1, 100)
    assert Warm(Random()).phases(7, 0.5) == Phases(2, 4)
    assert Warm(Random(), kappa=0.1).phases(30, 1.0) == Phases(3, 27)
    assert phases(Random(), 300, 0.1) == Phases(0, 300)
    assert phases(Warm(Random()), 300, 0.1).total == 165
    schedule = Phases(15, 150)
    assert sorted({schedule.selection_epoch(epoch, 20) for epoch in range(60)}) == [0, 15, 35, 55]
    assert sorted({Phases(0, 60).selection_epoch(epoch, 20) for epoch in range(60)}) == [0, 20, 40]


def test_warm_selects_all_first_and_then_what_the_strategy_does():
    context = flat_context()
    strategy = Warm(AdaptiveRandom())  # of 10 epochs at a half: 3 full, 5 on the subset
    for epoch in range(8):
        core = strategy.select(context.at(epoch), 0.5, np.random.default_rng(epoch))
        if epoch < 3:
            assert core == Full().select(context, 0.5, RNG)
        else:
            assert core == AdaptiveRandom().select(context, 30, np.random.default_rng(epoch))
    with pytest.raises(InvalidInputError, match="n_epochs"):
        strategy.select(SelectionContext(np.zeros((9, 1))), 3, RNG)
    with pytest.raises(InvalidInputError, match=r"kappa = 1\.0"):
        Warm(Random(), kappa=1.0).select(context, 3, RNG)


def test_the_fixed_draw_follows_from_a_seed_and_grows_with_the_budget():
    context = SelectionContext(np.zeros((60, 1)), seed=4)
    small, large = (Random().select(context, size, RNG) for size in (10, 25))
    assert set(small.indices) <= set(large.indices)
    assert Random().select(context.at(7), 10, np.random.default_rng(9)) == small
    assert Random().select(SelectionContext(np.zeros((60, 1)), seed=5), 10, RNG) != small


def test_uniform_draws_are_uniform():
    context, hits = flat_context(20), np.zeros(20)
    for seed in range(2000):
        hits[AdaptiveRandom().select(context, 5, np.random.default_rng(seed)).indices] += 1
    # 2,000 times a probability of 1/4: a deviation of 19.4; six of them, for twenty rows
    assert np.abs(hits - 500).max() < 6 * np.sqrt(2000 * 0.25 * 0.75)


BASES = ["RANDOM", "GLISTER", "CRAIG", "CRAIGPB", "GRADMATCH", "GRADMATCHPB", "RBF", "ADAPTIVE-RANDOM"]
PAPER = ["FULL", *BASES, *(f"{name}-WARM" for name in BASES)]


def test_the_registry_has_the_papers_names():
    assert set(PAPER) <= registry().keys()
    match = registry()
    assert repr(match["GRADMATCHPB-WARM"].strategy) == repr(match["GRADMATCHPB"])
    assert match["GRADMATCHPB"].strategy.ridge == 0.0
    assert match["GRADMATCH"].strategy.ridge == 0.5
    assert match["RBF-WARM"].kappa == 0.5
    assert strategy_named("gradmatchpb_warm") is match["GRADMATCHPB-WARM"]
    match.clear()
    assert registry()
    with pytest.raises(InvalidInputError, match=r"'NOPE' is unknown; choose one of FULL, "):
        strategy_named("NOPE")


class Newest:
    """A user's own: the last rows."""

    def select(self, context, budget, rng):
        n = context.n_samples
        return Coreset(np.arange(n - budget, n), np.ones(budget), n)


def test_a_users_own_strategy_registers_and_composes(monkeypatch):
    monkeypatch.setattr(_registry, "_REGISTRY", registry())
    register("newest", Newest())
    assert strategy_named("Newest").select(flat_context(), 3, RNG).indices.tolist() == [57, 58, 59]
    assert "NEWEST" in registry()
    assert Warm(Newest()).select(flat_context().at(9), 3, RNG).indices.tolist() == [57, 58, 59]
    assert PerBatch(Newest(), 5).select(flat_context(), 10, RNG).size == 10
    with pytest.raises(InvalidInputError, match="already"):
        register("NEWEST", Newest())
    register("NEWEST", Newest(), replace=True)
    for wrong in (object(), Newest, None):
        with pytest.raises(InvalidTypeError, match="is not a strategy"):
            register("other", wrong)
    with pytest.raises(InvalidTypeError, match="must be a string"):
        register("", Newest())
