"""The context: nothing unasked, nothing twice, everything accounted for."""

import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from coresift import InvalidInputError, RBFCoreset
from coresift.selection import RBF, AdaptiveRandom, Craig, Glister, PerClass, Random, SelectionContext
from coresift.selection.wrappers import BatchContext

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 3)
        self.seen = 0

    def forward(self, x):
        self.seen += len(x)
        return self.last(x)


def test_nothing_is_computed_unless_asked_and_nothing_twice():
    model = Counting()
    calls = []
    context = SelectionContext(X, Y, model=model, X_val=X[:10], y_val=Y[:10])
    AdaptiveRandom().select(context, 6, RNG)
    Random().select(context, 6, RNG)
    assert (model.seen, context.costs) == (0, {})

    embedding = lambda X: calls.append(1) or X  # noqa: E731
    for epoch in range(3):
        RBF(features=embedding).select(context.at(epoch), 6, RNG)
    RBF(features=embedding, method="systematic").select(context, 6, RNG)
    assert len(calls) == 1
    assert context.costs["sensitivities (rbf)"].calls == 1
    assert model.seen == 0
    RBF(features=embedding, radius=2.0).select(context, 6, RNG)
    assert context.costs["sensitivities (rbf)"].calls == 2

    Craig().select(context, 6, RNG)
    Glister().select(context, 6, RNG)
    Craig().select(context, 9, RNG)
    assert context.costs["gradients"].calls == 1
    assert context.costs["gradients"].samples == 60
    assert context.costs["gradients"].seconds > 0
    assert context.costs["validation gradients"].samples == 10
    assert model.seen == 60 + 10 + 2 * 2  # two samples each, to see which layer runs last


def test_the_next_moment_knows_the_data_and_not_the_model():
    model = Counting()
    context = SelectionContext(X, Y, model=model)
    before = context.gradients().dense()
    with torch.no_grad():
        model.last.weight *= -1.0
    np.testing.assert_array_equal(context.gradients().dense(), before)
    later = context.at(5)
    assert (later.epoch, context.epoch) == (5, 0)
    assert not np.allclose(later.gradients().dense(), before)
    assert later.costs is context.costs
    assert later.costs["gradients"].calls == 2
    assert later.at(6, model=Counting()).model is not model


def test_classes_reuse_what_the_whole_has_and_otherwise_compute_only_their_own():
    whole, parts = SelectionContext(X, Y, model=Counting()), SelectionContext(X, Y, model=Counting())
    parts.model.load_state_dict(whole.model.state_dict())
    whole.gradients()
    found = [(positions, part.gradients()) for positions, part in whole.parts()]
    assert whole.costs["gradients"].calls == 1
    for (positions, a), (_, part) in zip(found, parts.parts(), strict=True):
        np.testing.assert_allclose(a.dense(), part.gradients().dense(), atol=1e-6)
        np.testing.assert_array_equal(positions, np.flatnonzero(part.class_output == Y))
        np.testing.assert_array_equal(part.labels, np.full(20, part.class_output))
    assert parts.costs["gradients"].samples == 60


def test_per_class_sensitivities_are_fitted_once_for_each_class():
    context = SelectionContext(X, Y)
    strategy = PerClass(RBF())
    for epoch in range(3):
        core = strategy.select(context.at(epoch), 9, RNG)
    assert context.costs["sensitivities (rbf)"].calls == 3
    np.testing.assert_array_equal(np.bincount(Y[core.indices]), [3, 3, 3])
    assert core.bound == "exact"


def test_features():
    context = SelectionContext(X.reshape(60, 2, 2), Y)
    np.testing.assert_array_equal(context.features(), X)
    assert context.features("pca").shape == (60, 4)
    own = RNG.normal(size=(60, 7))
    np.testing.assert_array_equal(context.features(own), own)
    np.testing.assert_array_equal(context.features(lambda X: X[:, 0]), X[:, :2])
    for positions, part in context.parts():
        np.testing.assert_array_equal(part.features(own), own[positions])
        np.testing.assert_array_equal(part.features("pca"), context.features("pca")[positions])
    with pytest.raises(InvalidInputError, match="features has length 5, but X has 60 rows"):
        context.features(own[:5])
    with pytest.raises(InvalidInputError, match="'raw', 'pca'"):
        context.features("umap")
    np.testing.assert_array_equal(SelectionContext(torch.from_numpy(X)).features(), X)
    data_set = [(torch.from_numpy(x), 0) for x in X]
    items = type("Items", (), {"__len__": lambda self: 60, "__getitem__": lambda self, i: data_set[i]})()
    np.testing.assert_array_equal(SelectionContext(items).features(), X)


def test_sparse_inputs_stay_sparse():
    S = sp.random(80, 30, density=0.1, random_state=0, format="coo")
    context = SelectionContext(S)
    assert sp.issparse(context.features())
    assert context.features("pca").shape == (80, 30)
    assert RBF().select(context, 9, RNG).size == 9


def test_rbf_is_the_estimator_of_the_foundation():
    context = SelectionContext(X, seed=3)
    core = RBF(bound="closed-form", method="keys").select(context, 20, np.random.default_rng(5))
    fitted = RBFCoreset(bound="closed-form", random_state=0).fit(X)
    expected = fitted.sample(20, method="keys", random_state=core.seed)
    np.testing.assert_array_equal(core.indices, expected.indices)
    np.testing.assert_allclose(core.weights, expected.weights)
    assert core.ball == expected.ball


def test_mini_batches_as_items():
    context = SelectionContext(X, Y, model=Counting())
    groups = np.array_split(np.arange(60), 7)
    batches = BatchContext(context, groups)
    assert batches.n_samples == 7
    np.testing.assert_array_equal(batches.sizes, [len(group) for group in groups])
    np.testing.assert_allclose(batches.features()[2], X[groups[2]].mean(axis=0), rtol=1e-5)
    dense = context.gradients().dense()
    np.testing.assert_allclose(batches.gradients().dense()[2], dense[groups[2]].mean(axis=0), atol=1e-6)
    own = context.gradients(output=1).dense()
    np.testing.assert_allclose(batches.gradients(output=1).dense()[2], own[groups[2]].mean(axis=0), atol=1e-6)
    with pytest.raises(InvalidInputError, match="a mini-batch has no class"):
        PerClass(Random()).select(batches, 2, RNG)


def test_gradients_from_elsewhere():
    given = RNG.normal(size=(60, 9))
    core = Craig().select(SelectionContext(X, gradients=given), 6, RNG)
    assert core.weights.sum() == 60
    with pytest.raises(InvalidInputError, match="gradients has length 5, but X has 60 rows"):
        SelectionContext(X, gradients=given[:5])
    with pytest.raises(InvalidInputError, match="needs labels"):
        PerClass(Craig()).select(SelectionContext(X, gradients=given), 6, RNG)
    with pytest.raises(InvalidInputError, match="one label per sample"):
        PerClass(Random()).select(SelectionContext(X, X), 6, RNG)


@pytest.mark.slow
def test_it_works_without_torch():
    code = """
import json, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocker())
import numpy as np
from coresift import MissingExtraError
from coresift.selection import *
X = np.random.default_rng(0).normal(size=(50, 3))
context = SelectionContext(X, np.arange(50) % 2, model=object())
sizes = [s.select(context, 9, np.random.default_rng(0)).size
         for s in (Full(), Random(), AdaptiveRandom(), RBF(), Laplacian(), PerClass(RBF()), PerBatch(RBF(), 3))]
try:
    Craig().select(context, 9, np.random.default_rng(0))
except MissingExtraError as error:
    print(json.dumps([sizes, str(error)]))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    sizes, message = json.loads(out)
    assert sizes == [50, 9, 9, 9, 9, 9, 9]
    assert "coresift[train]" in message


def test_classes_share_the_validation_loss_of_the_whole():
    context = SelectionContext(X, Y, model=Counting(), X_val=X[:10], y_val=Y[:10])
    whole = context.validation()
    for _, part in context.parts():
        assert part.validation() is whole
    assert context.costs["validation gradients"].calls == 1
    fresh = SelectionContext(X, Y, model=Counting(), X_val=X[:10], y_val=Y[:10])
    for _, part in fresh.parts():
        part.validation()
    assert fresh.costs["validation gradients"].calls == 3  # power: without it each computes its own


def test_accounts_add_up_even_when_something_fails():
    context = SelectionContext(X)
    with pytest.raises(ZeroDivisionError), context.accounted("work", 7):
        raise ZeroDivisionError
    with context.accounted("work", 5):
        pass
    cost = context.costs["work"]
    assert (cost.calls, cost.samples) == (2, 12)
    assert 0 <= cost.seconds < 60


def test_forward_passes_are_made_in_batches_and_transformed():
    sizes, model = [], Counting()
    model.register_forward_pre_hook(lambda module, given: sizes.append(len(given[0])))
    plain = SelectionContext(X, Y, model=model, batch_size=25)
    plain.gradients()
    assert sizes == [2, 25, 25, 10]  # two samples to see which layer runs last
    twice = SelectionContext(X, Y, model=model, batch_size=25, transform=lambda x: 2.0 * x)
    by_hand = SelectionContext(2.0 * X, Y, model=model)
    np.testing.assert_allclose(twice.gradients().dense(), by_hand.gradients().dense(), rtol=1e-5, atol=1e-6)
    sizes.clear()
    SelectionContext(np.zeros((1100, 4), np.float32), np.zeros(1100, dtype=int), model=model).gradients()
    assert sizes == [2, 512, 512, 76]  # the default that is documented


def test_fixed_generators_differ_by_seed_tag_and_class_and_by_nothing_else():
    def first(context, tag=1):
        return context.fixed_rng(tag).random()

    context = SelectionContext(X, Y, seed=3)
    parts = [part for _, part in context.parts()]
    assert len({first(context), first(context, 2), first(SelectionContext(X, seed=4))}) == 3
    assert len({first(context), *(first(part) for part in parts)}) == 4
    assert first(context.at(9)) == first(context) == first(SelectionContext(X, seed=3))
    assert first(SelectionContext(X)) == first(SelectionContext(X, seed=0))


@pytest.mark.parametrize("labels", [Y, Y.astype(float)], ids=["integers", "floats"])
def test_a_class_has_its_own_output_only_where_the_layer_is_the_output(labels):
    """Number 2 of 16 hidden units has nothing to do with class 2."""
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
    for layer, is_own in (("2", True), ("0", False)):
        loss = lambda outputs, y: nn.functional.cross_entropy(outputs, y.long(), reduction="none")  # noqa: E731
        context = SelectionContext(X, labels, model=model, loss=loss, layer=layer)
        for number, (positions, part) in enumerate(context.parts()):
            found = part.gradients(output=part.class_output)
            whole = part.gradients()
            assert part.class_output == number
            assert found.width == (whole.width // 3 if is_own else whole.width)
            assert len(found) == len(positions)
