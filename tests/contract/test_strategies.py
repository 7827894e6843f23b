"""What every strategy promises, whatever its method: one suite over all of them."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from coresift import Coreset, CoresiftError
from coresift.core.budgets import class_budgets
from coresift.selection import (
    RBF,
    AdaptiveRandom,
    Craig,
    Full,
    Glister,
    GradMatch,
    Laplacian,
    PerBatch,
    PerClass,
    Random,
    SelectionContext,
    Selector,
    Strategy,
    Warm,
    names,
    phases,
    register,
    registry,
    strategy_named,
)

torch.set_num_threads(1)


@dataclass(frozen=True, eq=False)
class Farthest(Selector):
    """A new strategy, as short as the base class promises: the rows farthest from a point, found once in a run."""

    center: float = 0.0

    def _select(self, context, size, rng):
        def ranked():
            with context.accounted("distances", context.n_samples):
                return np.argsort(-((context.features() - self.center) ** 2).sum(axis=1), kind="stable")

        rows = self.once(context, ranked)[:size]
        return self.coreset(context, rows, remark="a toy")


STRATEGIES = {
    **registry(),
    "LAPLACIAN": Laplacian(),
    "RBF per class": PerClass(RBF(), min_per_class=1),
    "RBF systematic, PCA": RBF(method="systematic", features="pca"),
    "RBF of an embedding": RBF(features=lambda X: X[:, :2]),
    "GLISTER, all": Glister(epsilon=None),
    "GRADMATCH of all classes": GradMatch(),
    "CRAIG by blocks": Craig(memory_limit=1.0),
    "CRAIG per class and batch": PerClass(PerBatch(Craig(), 4)),
    "RANDOM per class": PerClass(Random()),
    "toy": Farthest(),
    "toy per class": PerClass(Farthest()),
    "toy per batch": PerBatch(Farthest(), 4),
    "toy, warm": Warm(Farthest()),
}
NAMES = [*STRATEGIES]
N, CLASSES, D = 130, 3, 5
everyone = pytest.mark.parametrize("name", NAMES)


def data(n=N, classes=CLASSES, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % classes)
    X = rng.normal(size=(n, D)).astype(np.float32)
    X[:, 0] += y
    return X, y


def context_of(X, y, outputs=CLASSES, seed=0, X_val=None, y_val=None, **more):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(D, 6), nn.Tanh(), nn.Linear(6, outputs))
    X_val, y_val = data(40, outputs, seed=9) if X_val is None else (X_val, y_val)
    # epoch 40 of 50 is past every warm start
    return SelectionContext(X, y, model=model, X_val=X_val, y_val=y_val, epoch=40, n_epochs=50, seed=seed, **more)


def rng(seed=1):
    return np.random.default_rng(seed)


@everyone
@pytest.mark.parametrize("budget", [1, 7, 0.1, 64, 0.5, N - 1, N, 1.0])
def test_size_indices_and_weights(name, budget):
    X, y = data()
    if name == "RBF per class" and repr(budget) == "1":
        with pytest.raises(CoresiftError, match="min_per_class = 1 needs 3 samples"):
            STRATEGIES[name].select(context_of(X, y), budget, rng())
        return
    core = STRATEGIES[name].select(context_of(X, y), budget, rng())
    size = int(np.ceil(budget * N)) if isinstance(budget, float) else budget
    assert isinstance(core, Coreset)
    assert core.size == (N if name == "FULL" else size)
    assert core.n_samples == N
    assert np.all(np.diff(core.indices) > 0)
    assert np.all(core.weights > 0)
    assert np.isfinite(core.weights).all()
    assert core.total_weight == N
    if size == N:
        np.testing.assert_array_equal(core.weights, np.ones(N))


@pytest.mark.slow
@pytest.mark.parametrize("budget", [5, 20, 37])
def test_documented_sums_of_weights(budget):
    X, y = data()
    for name in NAMES:
        total = STRATEGIES[name].select(context_of(X, y), budget, rng()).weights.sum()
        if "CRAIG" in name or "RANDOM" in name or name == "FULL":
            assert total == pytest.approx(N), name
        elif "GLISTER" in name:
            assert total == budget, name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["RBF", "LAPLACIAN", "RBF per class", "RBF systematic, PCA", "ADAPTIVE-RANDOM"])
def test_sums_are_unbiased(name):
    X, y = data()
    context, values = context_of(X, y), np.abs(X[:, 1])
    estimates = []
    for seed in range(300):
        core = STRATEGIES[name].select(context, 20, rng(seed))
        estimates.append(core.weights @ values[core.indices])
    tolerance = 5 * np.std(estimates, ddof=1) / np.sqrt(300)  # normal approximation: fails by chance < 1e-6
    assert abs(np.mean(estimates) - values.sum()) < tolerance
    assert tolerance < 0.1 * values.sum()  # so weights off by a tenth would be noticed


@pytest.mark.slow
@everyone
def test_same_seed_same_result(name):
    X, y = data()
    one = STRATEGIES[name].select(context_of(X, y), 20, rng(3))
    two = STRATEGIES[name].select(context_of(X, y), 20, rng(3))
    assert one == two
    np.testing.assert_array_equal(one.weights, two.weights)


@pytest.mark.slow
@everyone
def test_a_strategy_has_no_state(name):
    X, y = data()
    other_X, other_y = data(90, seed=5)
    context, other = context_of(X, y), context_of(other_X, other_y)
    first = STRATEGIES[name].select(context, 20, rng(3))
    STRATEGIES[name].select(other, 20, rng(4))
    STRATEGIES[name].select(context, 33, rng(4))
    assert STRATEGIES[name].select(context.at(40), 20, rng(3)) == first
    assert "object at" not in repr(STRATEGIES[name]) or "lambda" in repr(STRATEGIES[name])


@pytest.mark.slow
@everyone
def test_a_redraw_is_fresh_and_a_fixed_draw_is_kept(name):
    X, y = data()
    context = context_of(X, y)
    drawn = [STRATEGIES[name].select(context, 20, rng(seed)) for seed in range(4)]
    distinct = len({tuple(core.indices) for core in drawn})
    if name.startswith(("RANDOM", "FULL")) or "GRADMATCH of" in name:
        assert distinct == 1
        assert (
            name == "FULL"
            or "GRAD" in name
            or (STRATEGIES[name].select(context_of(X, y, seed=8), 20, rng(0)) != drawn[0])
        )
    elif name.startswith(("RBF", "LAPLACIAN", "ADAPTIVE")):
        assert distinct == 4


@pytest.mark.slow
@everyone
def test_the_input_is_not_changed(name):
    X, y = data()
    before = X.copy(), y.copy()
    STRATEGIES[name].select(context_of(X, y), 20, rng())
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(y, before[1])


def planted(order):
    """Three isolated points, one of each class, wherever ``order`` puts them; a model that knows nothing yet."""
    X, y = data()
    X[:3], y[:3] = 0.0, [0, 1, 2]
    X[np.arange(3), np.arange(3) + 2] = 400.0
    model = nn.Linear(D, CLASSES)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    places = np.flatnonzero(np.isin(order, [0, 1, 2]))
    context = SelectionContext(X[order], y[order], model=model, X_val=X[:3], y_val=y[:3], epoch=40, n_epochs=50)
    return context, places


FINDERS = {
    "CRAIG": PerClass(Craig()),
    "CRAIG of all classes": Craig(),
    "CRAIGPB": PerBatch(Craig(), 2),
    "GRADMATCH": PerClass(GradMatch()),
    "GRADMATCHPB": PerBatch(GradMatch(ridge=0.0), 2),
    "GLISTER": Glister(epsilon=None),
    "RBF": RBF(bandwidth=100.0, radius=5.0, bound="exact", method="systematic"),
    "RBF per class": PerClass(RBF(bandwidth=100.0, radius=5.0, bound="exact", method="systematic")),
    "LAPLACIAN": Laplacian(bandwidth=50.0, method="systematic"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FINDERS)
@pytest.mark.parametrize("seed", range(4))
def test_isolated_points_are_found_wherever_they_stand(name, seed):
    context, places = planted(rng(seed).permutation(N))
    core = FINDERS[name].select(context, 24, rng(seed))
    assert set(places) <= set(core.indices.tolist())


def test_random_does_not_find_them_so_the_test_above_can_fail():
    found = 0
    for seed in range(20):
        context, places = planted(rng(seed).permutation(N))
        found += set(places) <= set(AdaptiveRandom().select(context, 24, rng(seed)).indices.tolist())
    assert found <= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CRAIG", "GRADMATCH", "CRAIG by blocks", "GLISTER, all", "FULL"])
@pytest.mark.parametrize("seed", range(3))
def test_a_permutation_of_the_input_permutes_the_output(name, seed):
    X, y = data()
    order = rng(seed).permutation(N)
    plain = STRATEGIES[name].select(context_of(X, y), 9, rng())
    moved = STRATEGIES[name].select(context_of(X[order], y[order]), 9, rng())
    if "filled" in plain.method:
        pytest.skip("random fill-ups are not equivariant")
    back = np.argsort(order[moved.indices])
    np.testing.assert_array_equal(order[moved.indices][back], plain.indices)
    np.testing.assert_allclose(moved.weights[back], plain.weights, rtol=1e-5)  # the gradients are float32


@pytest.mark.slow
@pytest.mark.parametrize(
    "inner", [Random(), AdaptiveRandom(), Craig(), GradMatch(), RBF(), Glister(), PerBatch(Craig(), 4)]
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
def test_per_class_budgets(inner, size):
    rows = np.repeat([0, 1, 2], [80, 40, 10])
    X, _ = data()
    core = PerClass(inner).select(context_of(X, rows), size, rng())
    counts = np.bincount(rows[core.indices], minlength=3)
    expected = class_budgets(np.array([80, 40, 10]), size, min_per_class=0)
    assert (counts == expected).all() or (expected == 0).any()  # where classes are left out, chance decides which
    assert np.all(np.abs(counts - size * np.array([80, 40, 10]) / 130) < 1)


@pytest.mark.slow
@everyone
def test_one_class(name):
    X, _ = data()
    y = np.zeros(N, dtype=int)
    core = STRATEGIES[name].select(context_of(X, y, X_val=X[:9], y_val=y[:9]), 20, rng())
    assert core.size == (N if name == "FULL" else 20)


@pytest.mark.slow
@everyone
def test_more_classes_than_budget(name):
    X, _ = data()
    y = np.arange(N) % 40
    strategy = PerClass(RBF()) if name == "RBF per class" else STRATEGIES[name]
    core = strategy.select(context_of(X, y, outputs=40), 7, rng())
    assert core.size == (N if name == "FULL" else 7)
    assert len(np.unique(y[core.indices])) == 7 or not isinstance(strategy, PerClass)


@pytest.mark.parametrize("name", [name for name in NAMES if STRATEGIES[name].is_kept])
def test_what_is_kept_is_kept_even_where_classes_are_left_out(name):
    strategy = STRATEGIES[name]
    X, _ = data()
    context = context_of(X, np.arange(N) % 40, outputs=40)
    drawn = [strategy.select(context.at(epoch), 7, rng(epoch)) for epoch in (0, 20, 40)]
    assert drawn[0] == drawn[1] == drawn[2]


def test_the_methods_that_are_kept():
    once = "EL2N GRAND FORGETTING MARGIN ENTROPY LEAST-CONFIDENCE AUM CCS MODERATE K-CENTER HERDING FACILITY-LOCATION"
    kept = {name for name, strategy in registry().items() if strategy.is_kept}
    assert kept == {*once.split(), "GRAPH-CUT", "RANDOM", "STRATIFIED", "COVER", "FIXED-CORESET"}


@pytest.mark.slow
@everyone
def test_equal_samples_are_no_trouble(name):
    X, y = np.ones((40, D), np.float32), np.arange(40) % 3
    core = STRATEGIES[name].select(context_of(X, y), 8, rng())
    assert core.size == (40 if name == "FULL" else 8)
    assert np.all(core.weights > 0)


@pytest.mark.slow
@everyone
@pytest.mark.parametrize("budget", [0, -1, N + 1, 0.0, 1.5, "x", True, None])
def test_budgets_that_cannot_be(name, budget):
    with pytest.raises(CoresiftError, match="budget"):
        STRATEGIES[name].select(context_of(*data()), budget, rng())


@everyone
def test_interface(name):
    assert isinstance(STRATEGIES[name], Strategy)


def test_a_new_strategy_is_one_method():
    """What the base class gives to a strategy of its own: name, remark, weights, cache per settings, registry."""
    X, y = data()
    context, toy = context_of(X, y), Farthest()
    core = toy.select(context, 5, rng())
    expected = np.argsort(-(X**2).sum(axis=1), kind="stable")[:5]
    np.testing.assert_array_equal(core.indices, np.sort(expected))
    np.testing.assert_array_equal(core.weights, np.ones(5))
    assert core.method == "farthest (a toy)"
    assert phases(Warm(toy), 50, 0.1).n_full == 3
    again = [each.select(context.at(41), 5, rng()) for each in (toy, Farthest(), Warm(toy))]
    assert all(each == core for each in again)
    assert context.costs["distances"].calls == 1  # equal settings share what was computed
    assert Farthest(9.0).select(context, 5, rng()) != core
    assert context.costs["distances"].calls == 2
    assert PerBatch(toy, 5).select(context, 10, rng()).method == "farthestpb (a toy)"


def test_a_new_strategy_has_a_name(monkeypatch):
    monkeypatch.setattr(names, "_REGISTRY", registry())
    register("contract toy_1", Farthest())
    assert isinstance(strategy_named("Contract Toy-1"), Farthest)


def test_a_class_is_selected_on_its_own():
    X, y = data()
    core = PerClass(Farthest()).select(context_of(X, y), 9, rng())
    for label in range(CLASSES):
        members = np.flatnonzero(y == label)
        farthest = members[np.argsort(-(X[members] ** 2).sum(axis=1), kind="stable")[:3]]
        np.testing.assert_array_equal(np.sort(farthest), core.indices[y[core.indices] == label])


def test_a_strategy_needs_only_select():
    """Any object with the one method can be registered and wrapped: no base class is needed."""

    class First:
        def select(self, context, budget, rng):
            return Coreset(np.arange(budget), np.ones(budget), context.n_samples, method="first")

    X, y = data()
    core = PerClass(First()).select(context_of(X, y), 6, rng())
    assert all(np.flatnonzero(y == label)[0] in core.indices for label in range(CLASSES))
    assert core.method == "first"


@pytest.mark.parametrize(
    "strategy",
    [
        RBF(method="x"),
        RBF(features="x"),
        RBF(bound="x"),
        GradMatch(ridge=-1.0),
        Glister(eta=0.0),
        Glister(epsilon=1.0),
        Craig(memory_limit=0),
        PerBatch(Craig(), 0),
        PerClass(Full(), -1),
        PerBatch(PerClass(Craig()), 4),
    ],
    ids=repr,
)
def test_settings_that_cannot_be(strategy):
    with pytest.raises(CoresiftError):
        strategy.select(context_of(*data()), 20, rng())
