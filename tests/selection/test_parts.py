"""Small parts of the strategies, each against its definition."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from coresift._errors import InvalidInputError, InvalidTypeError
from coresift.selection import Gradients, GradMatch, SelectionContext
from coresift.selection._gradients import Validation
from coresift.selection._hooks import _numpy, layer_pass, only_tensor, softmax_residuals, validation_of
from coresift.selection._inputs import batch_of, class_positions, flattened
from coresift.selection.fixed import _gaussian, _median_distance
from coresift.selection.glister import LookAhead


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


@pytest.mark.parametrize(
    "kind, expected", [("float16", "float32"), ("bfloat16", "float32"), ("float64", "float64")]
)
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


def test_the_kernel_of_the_proxy_and_its_width():
    rng = np.random.default_rng(3)
    left, right = rng.normal(size=(5, 2)), rng.normal(size=(7, 2))
    squares = ((left[:, None] - right) ** 2).sum(axis=2)
    np.testing.assert_allclose(_gaussian(left, right, 3.0), np.exp(-squares / 18.0), rtol=1e-12)
    # 0, 0, 3, 7: distances 0 (not counted), 3, 3, 7, 7, 4
    line = np.array([[0.0], [0.0], [3.0], [7.0]])
    assert _median_distance(line, rng) == pytest.approx(4.0)
    assert _median_distance(np.ones((4, 1)), rng) == 1.0


def test_items_of_a_data_set_bring_their_targets_or_are_refused():
    pairs = torch.utils.data.TensorDataset(torch.arange(8.0).reshape(4, 2), torch.arange(4))
    rows = np.array([3, 1])
    inputs, targets = batch_of(pairs, None, rows)
    assert (inputs.tolist(), targets.tolist()) == ([[6.0, 7.0], [2.0, 3.0]], [3, 1])
    inputs, targets = batch_of(pairs, np.array([10, 11, 12, 13]), rows)  # those given come first
    assert (inputs.tolist(), targets.tolist()) == ([[6.0, 7.0], [2.0, 3.0]], [13, 11])
    for bare in (torch.utils.data.TensorDataset(torch.zeros(4, 2)), [torch.zeros(2)] * 4):
        with pytest.raises((InvalidTypeError, InvalidInputError), match=r"no target|need labels"):
            batch_of(bare, None, rows)


def test_a_layer_that_takes_no_part_is_refused():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)

        def forward(self, x):
            return self.used(x)

    context = SelectionContext(
        np.zeros((5, 3), dtype=np.float32), np.zeros(5, dtype=int), model=Model(), layer="idle"
    )
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
