"""GLISTER's gains against finite differences of the validation loss itself."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from coresift import InvalidInputError
from coresift.selection import Glister, Gradients, PerBatch, SelectionContext
from coresift.selection.glister import LookAhead, greedy
from coresift.selection.gradients import Validation

RNG = np.random.default_rng(0)
X, X_VAL = RNG.normal(size=(30, 4)), RNG.normal(size=(12, 4))
LABELS, LABELS_VAL = RNG.integers(3, size=30), RNG.integers(3, size=12)
TARGETS, TARGETS_VAL = RNG.normal(size=30), RNG.normal(size=12)


def setting(kind):
    torch.manual_seed(0)
    if kind == "cross_entropy":
        return nn.Linear(4, 3).double(), LABELS, LABELS_VAL, functional.cross_entropy, kind
    plain = {
        "mse": lambda out, y: ((out[:, 0] - y) ** 2).mean(),
        "custom": lambda out, y: ((out[:, 0] - y) ** 4).mean(),
    }[kind]
    loss = "mse" if kind == "mse" else lambda out, y: (out[:, 0] - y) ** 4
    return nn.Linear(4, 1).double(), TARGETS, TARGETS_VAL, plain, loss


def context_of(model, y, y_val, loss):
    return SelectionContext(X, y, model=model, X_val=X_VAL, y_val=y_val, loss=loss)


@pytest.mark.parametrize("kind", ["cross_entropy", "mse", "custom"])
@pytest.mark.parametrize("eta", [0.05])
def test_gains_are_the_derivative_of_the_validation_loss_at_the_moved_layer(kind, eta):
    model, y, y_val, mean_loss, loss = setting(kind)
    context = context_of(model, y, y_val, loss)
    gradients = context.gradients()
    ahead = LookAhead(context.validation(), eta)
    moved = copy.deepcopy(model)

    def step(model, row, length):
        with torch.no_grad():
            matrix = length * torch.from_numpy(gradients.dense()[row].reshape(gradients.shape))
            model.weight -= matrix[:, :-1]
            model.bias -= matrix[:, -1]

    def validation_loss(model):
        with torch.no_grad():
            return float(mean_loss(model(torch.from_numpy(X_VAL)), torch.from_numpy(y_val)))

    for picks in ([], [3], [3, 17], [3, 17, 5]):  # the gradient is refreshed as picks are added
        if picks:
            step(moved, picks[-1], eta)
            ahead.move(gradients.take(np.array(picks[-1:])))
        gains = gradients.along(ahead.gradient())
        for row in range(0, 30, 7):
            h = 1e-6
            near, far = copy.deepcopy(moved), copy.deepcopy(moved)
            step(near, row, h)
            step(far, row, -h)
            slope = (validation_loss(far) - validation_loss(near)) / (2 * h)
            assert gains[row] == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_picks_are_the_greedy_ones():
    model, y, y_val, _, loss = setting("cross_entropy")
    context = context_of(model, y, y_val, loss)
    gradients, eta = context.gradients(), 0.5
    ahead, picks = LookAhead(context.validation(), eta), []
    for _ in range(8):  # plain greedy over all that is left
        gains = gradients.along(ahead.gradient())
        gains[picks] = -np.inf
        picks.append(int(np.argmax(gains)))
        ahead.move(gradients.take(np.array(picks[-1:])))
    core = Glister(eta=eta, epsilon=None).select(context, 8, np.random.default_rng(0))
    assert core.indices.tolist() == sorted(picks)
    assert set(core.weights) == {1.0}


@pytest.mark.parametrize("seed", range(3))
def test_blocks_of_picks_move_the_layer_by_their_sum(seed):
    model, y, y_val, _, loss = setting("cross_entropy")
    context = context_of(model, y, y_val, loss)
    rows = np.random.default_rng(seed).choice(30, 6, replace=False)
    one, many, flat = (LookAhead(context.validation(), 0.3) for _ in range(3))
    for row in rows:
        one.move(context.gradients().take(np.array([row])))
    many.move(context.gradients().take(rows))
    flat.move(context.gradients().means([rows]).take(np.repeat(0, 6)))  # the mean, six times
    np.testing.assert_allclose(one.gradient(), many.gradient(), atol=1e-12)
    np.testing.assert_allclose(one.gradient(), flat.gradient(), atol=1e-12)


def test_the_pool_has_the_size_of_stochastic_greedy(monkeypatch):
    model, y, y_val, _, loss = setting("cross_entropy")
    asked = []
    monkeypatch.setattr(
        "coresift.selection.glister.greedy",
        lambda gradients, loss, size, pool, rng: asked.append(pool) or np.arange(size),
    )
    Glister().select(context_of(model, y, y_val, loss), 10, RNG)
    assert asked == [int(np.ceil(30 / 10 * np.log(100)))]


def test_a_model_with_more_behind_its_last_layer_is_selected_for_without_refresh(caplog):
    class Tail(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(4, 3)

        def forward(self, x):
            return 2.0 * self.last(x)

    context = SelectionContext(X, LABELS, model=Tail().double(), X_val=X_VAL, y_val=LABELS_VAL)
    core = Glister().select(context, 5, np.random.default_rng(0))
    assert core.method == "glister (validation gradient not refreshed)"
    assert "not refreshed" in caplog.text


def test_mini_batches():
    model, y, y_val, _, loss = setting("cross_entropy")
    context = context_of(model, y, y_val, loss)
    core = PerBatch(Glister(), 5).select(context, 10, np.random.default_rng(0))
    assert core.size == 10
    assert set(core.weights) == {1.0}


def test_without_a_validation_split_it_says_what_is_missing():
    with pytest.raises(InvalidInputError, match="validation split"):
        Glister().select(SelectionContext(X, LABELS, model=nn.Linear(4, 3)), 5, RNG)


class Ahead:
    """A validation loss whose gradient the test chooses, and what it is told of steps."""

    def __init__(self, *directions):
        self.directions, self.moved = list(directions), []

    def gradient(self):
        return np.array(self.directions[min(len(self.moved), len(self.directions) - 1)])

    def move(self, step):
        self.moved.append(step.dense().tolist())


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("pool", [5, 4, 1000])
def test_picks_come_in_the_order_of_their_gains(order, pool):
    """The best row stands last, then the one before it, or first: each is picked once."""
    values = np.arange(1.0, 6.0)[::order]
    picks = greedy(Gradients(values[:, None]), Ahead([1.0]), 5, pool, np.random.default_rng(0))
    if pool >= 5:
        assert picks.tolist() == np.argsort(-values).tolist()
    assert sorted(picks.tolist()) == [0, 1, 2, 3, 4]


def test_the_direction_changes_after_each_pick_and_the_layer_moves_by_it():
    rows = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [0.0, 4.0], [0.0, 5.0]])
    ahead = Ahead([1.0, 0.0], [0.0, 1.0])
    assert greedy(Gradients(rows), ahead, 3, 5, np.random.default_rng(0)).tolist() == [2, 4, 3]
    assert ahead.moved == [[rows[row].tolist()] for row in (2, 4, 3)]


def test_a_pick_is_the_best_of_a_pool_without_repeats():
    """A pool of three among ten: the best row is picked first in three runs of ten, and the worst two never."""
    values = np.arange(10.0)[:, None]
    first = [greedy(Gradients(values), Ahead([1.0]), 1, 3, np.random.default_rng(s))[0] for s in range(600)]
    counts = np.bincount(first, minlength=10)
    expected = 600 * np.array([math.comb(i, 2) for i in range(10)]) / math.comb(10, 3)
    assert counts[:2].tolist() == [0, 0]
    assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected + 1))
    whole = greedy(Gradients(values), Ahead([1.0]), 10, 3, np.random.default_rng(0))
    assert sorted(whole.tolist()) == list(range(10))
    assert set(whole[-3:].tolist()) >= {0, 1}  # whatever is drawn, two of the last three are the worst


@pytest.mark.parametrize("has_bias", [True, False])
def test_the_outputs_move_as_those_of_the_layer(has_bias):
    rng = np.random.default_rng(7)
    weight, bias = rng.normal(size=(2, 3)), rng.normal(size=2) * has_bias
    inputs, one = rng.normal(size=(6, 3)), np.ones((6, int(has_bias)))
    step = Gradients(rng.normal(size=(4, 2)), np.hstack([rng.normal(size=(4, 3)), one[:4]]))
    seen = []
    outputs = inputs @ weight.T + bias
    validation = Validation(
        Gradients(rng.normal(size=(6, 2)), np.hstack([inputs, one])), outputs, lambda out: seen.append(out) or out - 1.0
    )
    ahead = LookAhead(validation, 0.1)
    ahead.move(step)
    weight = weight - 0.1 * step.residuals.T @ step.inputs[:, :3]
    moved = inputs @ weight.T + bias - 0.1 * has_bias * step.residuals.sum(axis=0)
    np.testing.assert_allclose(seen[0], moved, atol=1e-12)
    expected = Gradients(moved - 1.0, np.hstack([inputs, one])).dense().mean(axis=0)
    np.testing.assert_allclose(ahead.gradient(), expected, atol=1e-12)
