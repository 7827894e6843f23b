"""Small parts of the strategies, each against its definition."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from coresift._errors import InvalidInputError, InvalidTypeError
from coresift.coresets.covering import _drawn, _residuals, _strata, _with_norms, median_distance, proxy_targets
from coresift.selection import (
    RBF,
    AdaptiveCoreset,
    FixedCoreset,
    Glister,
    Gradients,
    GradMatch,
    Laplacian,
    PerClass,
    SelectionContext,
)
from coresift.selection.glister import LookAhead
from coresift.selection.gradients import (
    Validation,
    _numpy,
    device_of,
    layer_pass,
    only_tensor,
    softmax_residuals,
    validation_of,
)
from coresift.selection.inputs import batches_of, class_positions, flattened


def test_the_outputs_of_a_model_are_found_in_what_it_returns():
    wanted, other = torch.zeros(2, 3), torch.ones(2, 3)
    for returned in (
        wanted,
        SimpleNamespace(logits=wanted, loss=other),
        {"loss": other, "logits": wanted},
        (wanted, other, 7),
        [wanted, other],
    ):
        assert only_tensor(returned) is wanted
    for returned in ((), (3, wanted), {"outputs": wanted}, None):
        with pytest.raises(InvalidTypeError, match="a tensor of outputs is needed"):
            only_tensor(returned)


@pytest.mark.parametrize("kind, expected", [("float16", "float32"), ("bfloat16", "float32"), ("float64", "float64")])
def test_half_precision_becomes_single(kind, expected):
    found = _numpy(torch.tensor([0.5, 2.0], dtype=getattr(torch, kind), requires_grad=True))
    assert found.dtype == expected
    assert found.tolist() == [0.5, 2.0]


def test_residuals_of_the_cross_entropy_are_its_gradient():
    rng = np.random.default_rng(0)
    outputs, labels = 30.0 * rng.normal(size=(6, 4)), rng.integers(0, 4, 6)
    leaf = torch.from_numpy(outputs).requires_grad_()
    torch.nn.functional.cross_entropy(leaf, torch.from_numpy(labels), reduction="sum").backward()
    np.testing.assert_allclose(softmax_residuals(outputs, labels), leaf.grad.numpy(), atol=1e-12)


@pytest.mark.parametrize("loss", ["cross_entropy", "soft labels", "mse"])
def test_the_validation_loss_has_the_residuals_of_autograd_anywhere(loss):
    rng, model = np.random.default_rng(1), torch.nn.Linear(3, 4)
    x = torch.from_numpy(rng.normal(size=(8, 3)).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, 4, 8))
    if loss != "cross_entropy":  # probabilities, of which the arg-max alone would be another loss
        y = torch.from_numpy(rng.dirichlet(np.ones(4), 8).astype(np.float32))
    name = "mse" if loss == "mse" else "cross_entropy"
    found = validation_of(layer_pass(model, lambda: iter([(x[:5], y[:5]), (x[5:], y[5:])]), name, None), name)
    elsewhere = rng.normal(size=(8, 4)).astype(np.float32)
    leaf = torch.from_numpy(elsewhere).requires_grad_()
    if name == "mse":
        value = ((leaf - y) ** 2).sum()
    else:
        value = torch.nn.functional.cross_entropy(leaf, y, reduction="sum")
    value.backward()
    np.testing.assert_allclose(found.residuals_at(elsewhere), leaf.grad.numpy(), atol=1e-6)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_targets_of_any_width_are_those_of_the_model(kind):
    """A float64 target beside a float32 model, and whole numbers of a regression."""
    rng, model = np.random.default_rng(2), torch.nn.Linear(3, 1)
    X, y = rng.normal(size=(6, 3)).astype(np.float32), rng.integers(-3, 4, 6)[:, None]
    expected = SelectionContext(X, y.astype(np.float32), model=model, loss="mse").gradients().dense()
    found = SelectionContext(X, y.astype(kind), model=model, loss="mse").gradients().dense()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_positions_of_classes_partition_the_rows_in_order():
    found = class_positions(np.array(["b", "a", "b", "c", "a", "b"]))
    assert {label: rows.tolist() for label, rows in found.items()} == {"a": [1, 4], "b": [0, 2, 5], "c": [3]}
    with pytest.raises(InvalidInputError, match=r"shape \(2, 2\)"):
        class_positions(np.zeros((2, 2)))


def test_inputs_become_a_matrix_and_nothing_is_refused():
    images = np.arange(24.0).reshape(2, 3, 4)
    assert flattened(images).shape == (2, 12)
    assert flattened(torch.from_numpy(images)).tolist() == images.reshape(2, 12).tolist()

    class Items:
        def __len__(self):
            return 2

        def __getitem__(self, i):
            return torch.from_numpy(images[i]), 7

    assert flattened(Items()).tolist() == images.reshape(2, 12).tolist()
    for nothing in (np.empty((0, 3)), np.float64(3.0)):
        with pytest.raises(InvalidInputError, match="no rows"):
            flattened(nothing)


def test_the_width_of_the_kernel_of_the_proxy():
    rng = np.random.default_rng(3)
    # 0, 0, 3, 7: distances 0 (not counted), 3, 3, 7, 7, 4
    line = np.array([[0.0], [0.0], [3.0], [7.0]])
    assert median_distance(line, rng) == pytest.approx(4.0)
    assert median_distance(np.ones((4, 1)), rng) == 1.0


def test_items_of_a_data_set_bring_their_targets_or_are_refused():
    pairs = torch.utils.data.TensorDataset(torch.arange(8.0).reshape(4, 2), torch.arange(4))
    rows = np.array([3, 1])
    inputs, targets = next(batches_of(pairs, None, rows, 2))
    assert (inputs.tolist(), targets.tolist()) == ([[6.0, 7.0], [2.0, 3.0]], [3, 1])
    inputs, targets = next(batches_of(pairs, np.array([10, 11, 12, 13]), rows, 2))  # those given come first
    assert (inputs.tolist(), targets.tolist()) == ([[6.0, 7.0], [2.0, 3.0]], [13, 11])
    for bare in (torch.utils.data.TensorDataset(torch.zeros(4, 2)), [torch.zeros(2)] * 4):
        with pytest.raises((InvalidTypeError, InvalidInputError), match=r"no target|need labels"):
            next(batches_of(bare, None, rows, 2))


def test_a_layer_that_takes_no_part_is_refused():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)

        def forward(self, x):
            return self.used(x)

    context = SelectionContext(np.zeros((5, 3), dtype=np.float32), np.zeros(5, dtype=int), model=Model(), layer="idle")
    with pytest.raises(InvalidInputError, match="layer = 'idle' took no part"):
        context.gradients()


def test_only_a_budget_that_is_not_used_up_is_filled_and_said_to_be():
    """Orthogonal gradients: each pick matches its own part of the sum, so three picks are three picks."""
    context = SelectionContext(np.zeros((5, 1)), gradients=Gradients(np.diag([5.0, 4.0, 3.0, 2.0, 1.0])))
    core = GradMatch(ridge=0.0).select(context, 3, np.random.default_rng(0))
    assert core.indices.tolist() == [0, 1, 2]
    np.testing.assert_allclose(core.weights, 1.0)
    assert "filled" not in core.method


def test_a_validation_gradient_without_factors_stays_where_it_is():
    rng = np.random.default_rng(4)
    products = Gradients(rng.normal(size=(6, 4)))  # multiplied out: the outputs cannot be followed
    ahead = LookAhead(Validation(products, np.zeros((6, 4)), lambda outputs: outputs + 1.0), 0.1)
    before = ahead.gradient()
    ahead.move(products.take(np.array([2])))
    assert not ahead.can_move
    np.testing.assert_array_equal(ahead.gradient(), before)
    np.testing.assert_allclose(before, products.dense().mean(axis=0))


def test_the_device_of_a_model_is_that_of_its_first_parameter():
    assert device_of(torch.nn.Linear(2, 2, device="meta")) == torch.device("meta")
    assert device_of(torch.nn.Linear(2, 2)) == torch.device("cpu")
    assert device_of(torch.nn.ReLU()) == torch.device("cpu")


@pytest.mark.parametrize(
    "setting, allowed, refused",
    [
        ("mix", [1e-300, 0.5, 1.0], [0.0, -0.1, 1.0 + 1e-9, 1.5]),
        ("correction", [0.0, 0.5, 1.0], [-1e-9, 1.0 + 1e-9, 2.0]),
        ("pool_factor", [1.0, 1e9], [1.0 - 1e-9, 0.5, 0.0, np.inf]),
    ],
)
def test_settings_of_adaptive_draws_have_the_limits_that_are_stated(setting, allowed, refused):
    for value in allowed:
        AdaptiveCoreset(**{setting: value})._check()
    for value in [*refused, np.nan]:
        with pytest.raises(InvalidInputError, match=f"{setting} = .* must be (at least|above)"):
            AdaptiveCoreset(**{setting: value})._check()
    for value in (True, "1"):
        with pytest.raises(InvalidTypeError, match=f"{setting} = .* must be a number"):
            AdaptiveCoreset(**{setting: value})._check()


@pytest.mark.parametrize(
    "strategy",
    [
        RBF(method="x"),
        Laplacian(method="x"),
        PerClass(RBF(), -1),
        AdaptiveCoreset(select_every=0),
        Glister(eta=-1.0),
        Glister(epsilon=0.0),
        Glister(epsilon=1.0),
    ],
    ids=repr,
)
def test_settings_are_refused_even_where_all_samples_are_asked_for(strategy):
    """Before anything is computed or drawn: nothing of the draw would notice."""
    context = SelectionContext(np.zeros((4, 2)), np.array([0, 0, 1, 1]), gradients=Gradients(np.ones((4, 2))))
    with pytest.raises((InvalidInputError, InvalidTypeError)):
        strategy.select(context, 4, np.random.default_rng(0))


@pytest.mark.parametrize("max_pool, size, expected", [(30, 20, 30), (30, 50, 50), (1000, 20, 60)])
def test_a_fixed_subset_is_chosen_among_so_many_samples_and_not_one_more(max_pool, size, expected, monkeypatch):
    monkeypatch.setattr("coresift.selection.fixed._MOST", max_pool)
    X = np.random.default_rng(0).normal(size=(60, 2))
    context = SelectionContext(X, np.arange(60) % 2)
    FixedCoreset().select(context, size, np.random.default_rng(0))
    assert context.costs["proxy (fixed-coreset)"].samples == expected


def test_a_fixed_subset_weighs_the_proxys_samples_and_keeps_to_its_centres():
    """More are chosen than there may be centres: the proxy of seven of them is another one, and of seven at most."""
    rng = np.random.default_rng(1)
    features, targets = _with_norms(rng.normal(size=(50, 2)) / 1.5), rng.normal(size=(50, 1))
    seen = []

    class Own:
        def choice(self, rows, count, replace):
            seen.append((len(rows), count, replace))
            return rows[:count]

    found = _residuals(features, targets, np.arange(20), Own(), 7)
    assert seen == [(20, 7, False)]
    np.testing.assert_allclose(found, _residuals(features, targets, np.arange(7), Own(), 7))
    assert len(seen) == 1  # seven are not too many


def test_targets_of_the_proxy_are_one_hot_or_standardised():
    rng = np.random.default_rng(2)
    pool = np.array([5, 0, 3, 1])
    labels = np.array([7, 7, 9, 2, 2, 9])
    found, classes = proxy_targets(labels[pool], True)
    assert classes.tolist() == [2, 1, 0, 1]  # of 9, 7, 2, 7 among 2, 7, 9
    np.testing.assert_array_equal(found, np.eye(3)[[2, 1, 0, 1]])
    values = np.stack([rng.normal(3.0, 5.0, 6), np.full(6, 4.0)], axis=1)
    found, classes = proxy_targets(values[pool], True)
    expected = (values[pool, 0] - values[pool, 0].mean()) / values[pool, 0].std()
    np.testing.assert_allclose(found, np.stack([expected, np.zeros(4)], axis=1), atol=1e-12)
    assert classes.tolist() == [0] * 4


def test_strata_are_cells_within_classes():
    """Two classes of two far clumps each: with two samples of each class there are two cells, which are the clumps."""
    rng = np.random.default_rng(3)
    clump = np.arange(80) % 4
    features = 100.0 * np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])[clump] + rng.normal(size=(80, 2))
    classes = clump // 2
    found = _strata(features, classes, 4, np.random.default_rng(0))
    groups = [set(found[clump == k]) for k in range(4)]
    assert all(len(group) == 1 for group in groups)
    assert len(set.union(*groups)) == 4
    assert max(max(groups[0]), max(groups[1])) < min(min(groups[2]), min(groups[3]))  # a class is a run
    # one sample a class: no cells; and none in a class that has no more rows than cells
    assert _strata(features, classes, 3, np.random.default_rng(0)).tolist() == [64 * k for k in classes]
    few = np.array([0, 1])
    assert _strata(features[few], np.array([0, 0]), 2, np.random.default_rng(0)).tolist() == [0, 0]


def test_a_draw_along_strata_gives_each_its_share():
    strata = np.repeat([0, 1, 2], 20)
    scores = np.where(strata == 2, 3.0, 1.0)
    chosen = np.zeros(60, dtype=bool)
    chosen[:10] = True
    free = ~chosen
    shares = 0.1 / 50 + 0.9 * scores / scores[free].sum()
    for seed in range(5):
        rows = _drawn(scores, chosen, strata, 20, np.random.default_rng(seed))
        assert len(set(rows.tolist())) == 20
        assert not chosen[rows].any()
        counts = np.bincount(strata[rows], minlength=3)
        expected = 20 * np.array([shares[free & (strata == k)].sum() for k in range(3)])
        assert np.all(np.abs(counts - expected) < 1 + 1e-9)
    none = _drawn(np.zeros(60), chosen, strata, 25, np.random.default_rng(0))
    assert np.bincount(strata[none]).tolist() == [5, 10, 10]  # without scores by numbers alone


def test_a_list_of_pairs_is_a_data_set():
    """Its targets are no features; a list of rows is still a table."""
    values = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    pairs = [(torch.as_tensor(row), number) for number, row in enumerate(values)]
    np.testing.assert_array_equal(SelectionContext(pairs).features(), values)
    inputs, targets = next(batches_of(pairs, None, np.array([2, 0]), 2))
    assert (inputs.tolist(), targets.tolist()) == (values[[2, 0]].tolist(), [2, 0])
    np.testing.assert_array_equal(SelectionContext(values.tolist()).features(), values)
