"""Inputs as users have them: frozen models, integers, sparse rows, columns of labels, numbers in any unit."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from coresift import InvalidInputError, InvalidTypeError
from coresift.selection import (
    ByScore,
    Cover,
    FacilityLocation,
    FixedCoreset,
    GraphCut,
    Herding,
    KCenter,
    PerClass,
    SelectionContext,
    Warm,
    proxy_scores,
    registry,
)
from coresift.selection.losses import per_sample_loss

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3
BYTES = RNG.integers(0, 256, size=(60, 4), dtype=np.uint8)
MODEL = nn.Linear(4, 3)


def rng(seed=0):
    return np.random.default_rng(seed)


def gradients(inputs, model=MODEL, **more):
    return SelectionContext(inputs, Y, model=model, **more).gradients().dense()


def test_scores_of_a_frozen_model_say_what_to_unfreeze():
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)).requires_grad_(False)
    for name in ("EL2N", "CCS", "MODERATE"):
        with pytest.raises(InvalidInputError, match=r"model: 0 of .* requires_grad = True; at least 1.*requires_grad_"):
            registry()[name].select(SelectionContext(X, Y, model=model), 12, rng())
    model[1].requires_grad_(True)
    assert len(proxy_scores(SelectionContext(X, Y, model=model))) == 60


@pytest.mark.parametrize("length", [8, 10])
def test_validation_labels_are_as_many_as_samples(length):
    with pytest.raises(InvalidInputError, match=f"y_val has length {length}, but X_val has 9 rows"):
        SelectionContext(X, Y, model=MODEL, X_val=X[:9], y_val=Y[:length])


def test_a_loader_of_validation_samples_collates_as_it_does():
    items = TensorDataset(torch.from_numpy(X[:9]), torch.from_numpy(Y[:9]))
    loader = DataLoader(items, collate_fn=lambda pairs: tuple(map(torch.stack, zip(*pairs, strict=True))))
    arrays = SelectionContext(X, Y, model=MODEL, X_val=X[:9], y_val=Y[:9]).validation().gradients.dense()
    found = SelectionContext(X, Y, model=MODEL, X_val=loader).validation().gradients.dense()
    np.testing.assert_array_equal(found, arrays)


@pytest.mark.parametrize("kind", [np.int64, np.int16, np.bool_])
def test_integers_are_converted_for_a_model_of_floats(kind):
    whole = (10 * X).astype(kind)
    np.testing.assert_array_equal(gradients(whole), gradients(whole.astype(np.float32)))
    double = nn.Linear(4, 3).double()
    np.testing.assert_array_equal(gradients(whole, double), gradients(whole.astype(np.float64), double))
    np.testing.assert_array_equal(gradients(BYTES), gradients(BYTES.astype(np.float32) / 255))


@pytest.mark.parametrize("name", ["CRAIG", "GRADMATCH", "ADAPTIVE-CORESET", "EL2N", "GLISTER"])
@pytest.mark.parametrize("kind", [np.int64, sp.csr_matrix, sp.coo_array])
def test_strategies_select_from_integers_and_sparse_rows_as_from_floats(name, kind):
    whole = np.round(3 * X)
    given = whole.astype(np.int64) if kind is np.int64 else kind(whole)
    found, expected = (
        registry()[name].select(SelectionContext(each, Y, model=MODEL, X_val=each, y_val=Y), 12, rng())
        for each in (given, whole)
    )
    assert found == expected


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.last = nn.Embedding(256, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.embedding(x).mean(1))


class Scaled(nn.Module):
    """Accepts bytes, and nothing else."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        assert x.dtype == torch.uint8
        return self.last(x.float() / 255)


def test_integers_that_the_model_accepts_stay_integers():
    words, scaled = Words(), Scaled()
    expected = gradients(BYTES.astype(np.int64), words)
    for kind in (np.int32, np.int16):  # an embedding takes the first; the second is converted
        np.testing.assert_array_equal(gradients(BYTES.astype(kind), words), expected)
    np.testing.assert_array_equal(gradients(BYTES, scaled), gradients(BYTES / np.float32(255), scaled.last))
    assert scaled.training


def test_sparse_rows_reach_the_model_in_dense_batches():
    shapes, model = [], nn.Linear(4, 3)
    model.register_forward_pre_hook(lambda module, given: shapes.append((given[0].layout, *given[0].shape)))
    gradients(sp.csr_matrix(X), model, batch_size=25)
    assert shapes[1:] == [(torch.strided, 25, 4), (torch.strided, 25, 4), (torch.strided, 10, 4)]
    with pytest.raises(InvalidTypeError, match=r"X is a tensor of layout torch.sparse_coo.* X.to_dense"):
        SelectionContext(torch.from_numpy(X).to_sparse(), Y)


@pytest.mark.parametrize("name", ["CRAIG", "GRADMATCH", "ADAPTIVE-CORESET", "EL2N", "GLISTER", "STRATIFIED", "COVER"])
def test_a_column_of_labels_is_labels(name):
    items = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)[:, None])
    found = []
    for y, held_out in (
        (Y, {"X_val": X, "y_val": Y}),
        (Y[:, None], {"X_val": X, "y_val": Y[:, None]}),
        (Y[:, None].astype(np.float32), {"X_val": items}),
    ):
        found.append(registry()[name].select(SelectionContext(X, y, model=MODEL, **held_out), 12, rng()))
    assert found[0] == found[1] == found[2]
    with pytest.raises(InvalidInputError, match="y has fractions"):
        SelectionContext(X, Y[:, None] + 0.5, model=MODEL).gradients()


def test_one_position_of_a_sequence_is_not_a_column_of_labels():
    outputs, labels = torch.randn(6, 3, 1), torch.arange(6)[:, None] % 3
    expected = nn.functional.cross_entropy(outputs, labels, reduction="none")
    for given in (labels, labels[:, 0]):
        torch.testing.assert_close(per_sample_loss("cross_entropy")(outputs, given), expected)


GEOMETRIC = {
    "facility": FacilityLocation(),
    "facility, by neighbours": FacilityLocation(max_exact=20),
    "cover": Cover(),
    "fixed": FixedCoreset(),
    "k-center": KCenter(),
    "herding": Herding(),
    "graph-cut": GraphCut(),
}


@pytest.mark.parametrize("name", GEOMETRIC)
@pytest.mark.parametrize("width", [4, 120])
def test_choices_do_not_depend_on_the_unit_of_the_features(name, width):
    """Exactly, as the units are powers of two; beyond 1e19, or below 1e-23, squares leave the range of float32."""
    rows = rng(1).normal(size=(60, width)).astype(np.float32)
    for kind, powers in ((np.float32, (-100, 45, 55, 65, 100)), (np.float64, (-900, -100, 45, 55, 65, 100, 400, 900))):
        expected = GEOMETRIC[name].select(SelectionContext(rows.astype(kind), Y), 12, rng())
        for power in powers:
            found = GEOMETRIC[name].select(SelectionContext(rows.astype(kind) * kind(2.0**power), Y), 12, rng())
            assert found == expected, (power, kind)
    scaled = GEOMETRIC[name].select(SelectionContext(sp.csr_matrix(rows.astype(float) * 2.0**400), Y), 12, rng())
    assert scaled.size == 12


def test_principal_components_and_duplicates_in_large_units():
    rows = rng(1).normal(size=(60, 120)).astype(np.float32)
    plain, large = (SelectionContext(each, Y).features("pca") for each in (rows, rows * np.float32(2.0**70)))
    np.testing.assert_array_equal(large, plain * np.float32(2.0**70))
    twice = np.concatenate((X, X)).astype(np.float64) * 2.0**600
    auto, context = registry()["AUTO"], SelectionContext(twice, np.r_[Y, Y], n_epochs=5)
    auto.select(context, 100, rng())
    assert auto.regime(context).removed == 60


@pytest.mark.parametrize(("wrong", "named"), [([3, 60], "60"), ([3, -1], "-1"), ([0.5], "0.5"), (["a"], "a")])
def test_rows_that_must_stay_are_checked_if_all_rows_are_chosen(wrong, named):
    for strategy in (KCenter(include=wrong), ByScore(include=wrong)):
        context = SelectionContext(X, Y, epoch=4, n_epochs=5)
        for each in (strategy, PerClass(strategy), Warm(strategy)):
            with pytest.raises(InvalidInputError, match=rf"include holds {named}; .* 0 to 59"):
                each.select(context, 60, rng())
    assert KCenter(include=[59, 0]).select(SelectionContext(X), 60, rng()).size == 60
