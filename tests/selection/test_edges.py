"""Borders of what strategies and contexts accept and do: the last value on this side, the first on the other."""

import time

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.spatial.distance import pdist
from sklearn.decomposition import PCA
from torch import nn
from torch.utils.data import TensorDataset

from coresift import CoresiftError, InvalidInputError, InvalidTypeError, audit
from coresift.core.budgets import class_budgets, random_budgets
from coresift.coresets import covering
from coresift.coresets.covering import grown_rows, principal, proxy_targets
from coresift.selection import (
    RBF,
    AdaptiveCoreset,
    AdaptiveRandom,
    FixedCoreset,
    Gradients,
    GradMatch,
    Laplacian,
    PerBatch,
    PerClass,
    Random,
    SelectionContext,
    Warm,
    register,
    registry,
)
from coresift.selection.adaptive import gradient_norms
from coresift.selection.wrappers import BatchContext

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 4)).astype(np.float32), np.arange(30) % 3


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("epoch", [0, 7], [-1, 1.5]),
        ("n_epochs", [None, 1], [0, -1, 2.5]),
        ("seed", [0, 2**40], [-1, None]),
        ("batch_size", [1, 512], [0, -1, 2.0]),
    ],
)
def test_counts_of_a_context(name, allowed, refused):
    for value in allowed:
        SelectionContext(X, **{name: value})
    for value in refused:
        with pytest.raises(CoresiftError, match=name):
            SelectionContext(X, **{name: value})
    with pytest.raises(CoresiftError, match="epoch"):
        SelectionContext(X).at(-1)


def test_the_output_of_a_class_is_its_label_where_there_is_such_an_output():
    found = [part.class_output for _, part in SelectionContext(X, Y - 1).parts()]
    assert found == [None, 0, 1]
    assert [part.class_output for _, part in SelectionContext(X, np.array(["a", "b"] * 15)).parts()] == [None] * 2
    a = Gradients(RNG.normal(size=(30, 3)), RNG.normal(size=(30, 3)))
    context = SelectionContext(X, Y, gradients=a)
    assert context.gradients(output=2).width == 3
    assert context.gradients(output=3).width == 9  # a class that the layer has no output for
    flat = SelectionContext(X, Y, gradients=Gradients(RNG.normal(size=(30, 3))))
    assert flat.gradients(output=0).width == 3  # no products: nothing to take a row of


@pytest.mark.parametrize(("own", "expected"), [(512, [2, 256, 44]), (300, [2, 256, 44]), (100, [2, 100, 100, 100])])
def test_a_pool_on_the_processor_is_passed_in_small_batches(own, expected):
    sizes, model = [], nn.Linear(4, 3)
    model.register_forward_pre_hook(lambda module, given: sizes.append(len(given[0])))
    context = SelectionContext(np.zeros((400, 4), np.float32), np.zeros(400, int), model=model, batch_size=own)
    context.gradients_of(np.arange(300))
    assert sizes == expected
    elsewhere = SelectionContext(X, Y, model=nn.Linear(4, 3, device="meta"), batch_size=own)
    assert elsewhere._pool(np.arange(5))._batch_size == own


def test_gradients_are_known_by_a_model_or_from_elsewhere():
    assert not SelectionContext(X).has_gradients
    assert SelectionContext(X, Y, model=nn.Linear(4, 3)).has_gradients
    assert SelectionContext(X, gradients=np.ones((30, 2))).has_gradients


@pytest.mark.parametrize(("factor", "expected"), [(1.0, 10), (1.01, 11), (2.5, 25), (3.0, 30), (9.0, 30)])
def test_a_pool_has_so_many_budgets_rounded_up_and_no_more_than_all(factor, expected):
    context = SelectionContext(X, Y, model=nn.Linear(4, 3))
    core = AdaptiveCoreset(pool_factor=factor, correction=1.0).select(context, 10, rng())
    assert context.costs["gradients"].samples == expected
    assert str(core.guarantee) == "Weighted sums are unbiased."


def test_gradmatch_refuses_what_is_no_number_of_at_least_zero():
    context = SelectionContext(X, gradients=RNG.normal(size=(30, 2)))
    assert GradMatch(ridge=0.0).select(context, 5, rng()).size == 5
    for value in (-1e-12, np.inf, np.nan):
        with pytest.raises(InvalidInputError, match=r"ridge = .* at least 0"):
            GradMatch(ridge=value).select(context, 5, rng())


def test_gradmatch_fills_with_samples_it_has_not_picked_and_matches_the_sum_of_mini_batches():
    a = np.zeros((6, 2))
    a[:, 0] = [3.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    context = SelectionContext(X[:6], gradients=a)
    core = GradMatch(ridge=0.0).select(context, 4, rng())
    assert 0 in core.indices
    assert core.weights[core.indices == 0] == pytest.approx(8 / 3)
    assert core.size == len(set(core.indices.tolist())) == 4
    batches = BatchContext(context, [np.array([0, 1, 2]), np.array([3]), np.array([4, 5])])
    # means 5/3, 1 and 1, of 3, 1 and 2 samples: their weighted sum is 8
    found = GradMatch(ridge=0.0).select(batches, 2, rng())
    assert found.weights[0] == pytest.approx(8 / (5 / 3))
    assert found.weights[1] == batches.sizes[found.indices[1]]  # filled: it stands for its members


@pytest.mark.parametrize("kappa", [0.0, 1.0, -0.5, 1.5, np.nan])
def test_a_share_of_a_warm_start_is_inside_zero_and_one(kappa):
    with pytest.raises(CoresiftError, match="kappa"):
        Warm(Random(), kappa).phases(10, 0.1)


def test_a_warm_start_ends_where_its_plan_says():
    context = SelectionContext(X, n_epochs=10)
    warm = Warm(AdaptiveRandom(), 0.5)
    phases = warm.phases(10, 0.2)
    assert (phases.n_full, phases.n_subset, phases.total) == (1, 5, 6)
    sizes = [warm.select(context.at(epoch), 6, rng()).size for epoch in range(3)]
    assert sizes == [30, 6, 6]
    with pytest.raises(InvalidInputError, match="n_epochs"):
        warm.select(SelectionContext(X), 6, rng())
    assert [phases.selection_epoch(epoch, 2) for epoch in range(6)] == [0, 1, 1, 3, 3, 5]


def test_mini_batches_that_are_larger_than_the_data_are_the_data():
    core = PerBatch(Random(), 100).select(SelectionContext(X), 7, rng())
    assert core.size == 7
    np.testing.assert_allclose(core.weights.sum(), 30.0)


def test_uniform_draws_of_mini_batches_weigh_by_their_members():
    batches = BatchContext(SelectionContext(X), [np.arange(12), np.arange(12, 20), np.arange(20, 30)])
    for strategy in (Random(), AdaptiveRandom()):
        core = strategy.select(batches, 2, rng())
        np.testing.assert_allclose(core.weights, batches.sizes[core.indices] * 1.5)
        assert core.total_weight == 30.0


def test_a_smaller_fixed_draw_is_a_part_of_a_larger_one():
    context = SelectionContext(X, seed=5)
    small, large = (Random().select(context, size, rng()) for size in (5, 12))
    assert set(small.indices) < set(large.indices)


@pytest.mark.parametrize("kind", [RBF, Laplacian])
def test_settings_reach_the_estimator_under_their_names(kind):
    settings = {"bandwidth": 0.7, "bound": "closed-form", "n_cells": 9, "max_exact": 11}
    own = {"radius": 2.5} if kind is RBF else {"metric": "cityblock"}
    found = kind(**settings, **own)._estimator(rng()).get_params()
    for name, value in {**settings, **own}.items():
        assert found[name] == value, name


def test_strategies_share_a_fit_when_all_that_it_depends_on_is_equal():
    context = SelectionContext(X, Y)
    for strategy in (RBF(), RBF(method="iid"), RBF(method="systematic")):
        strategy.select(context, 6, rng())
    assert context.costs["sensitivities (rbf)"].calls == 1
    changes = ({"radius": 2.0}, {"bandwidth": 3.0}, {"bound": "closed-form"}, {"n_cells": 8}, {"max_exact": 10})
    for number, change in enumerate(changes):
        RBF(**change).select(context, 6, rng())
        assert context.costs["sensitivities (rbf)"].calls == number + 2
    assert context.costs["sensitivities (rbf)"].samples == 6 * 30


def test_classes_below_a_minimum_take_from_those_farthest_above_theirs():
    assert class_budgets(np.array([90, 8, 2]), 10, min_per_class=0).tolist() == [8, 1, 1]
    assert class_budgets(np.array([90, 8, 2]), 10, min_per_class=2).tolist() == [6, 2, 2]
    assert class_budgets(np.array([90, 8, 2]), 10, min_per_class=3).tolist() == [5, 3, 2]  # the last has two
    assert class_budgets(np.array([5, 5, 5]), 6, min_per_class=2).tolist() == [2, 2, 2]
    with pytest.raises(InvalidInputError, match=r"min_per_class = 2 needs 6 samples of 3 classes.*budget is 5"):
        class_budgets(np.array([5, 5, 5]), 5, min_per_class=2)


def test_parts_of_different_methods_are_named_and_bounds_that_differ_are_not():
    class Named(Random):
        def _select(self, context, size, generator):
            core = Random().select(context, size, generator)
            return RBF(bound="closed-form").select(context, size, generator) if context.class_output else core

    core = PerClass(Named()).select(SelectionContext(X, np.arange(30) % 2), 10, rng())
    assert core.method == "random; systematic"
    assert core.bound is None
    assert PerClass(RBF(bound="closed-form")).select(SelectionContext(X, Y), 9, rng()).bound == "closed-form"


@pytest.mark.parametrize("wanted", [1, 3, 4, 50])
def test_principal_components_are_as_many_as_there_are(wanted):
    dense = principal(X, wanted)
    assert dense.shape == (30, min(wanted, 4))
    np.testing.assert_allclose(np.abs(dense), np.abs(PCA(min(wanted, 4)).fit_transform(X)), atol=1e-5)
    sparse = principal(sp.csr_matrix(X.astype(float)), wanted)
    assert sparse.shape == (30, min(wanted, 3))  # its solver finds one less
    np.testing.assert_allclose(np.abs(sparse[:, 0]), np.abs(dense[:, 0]), atol=1e-4)
    with pytest.raises(CoresiftError, match="n_components"):
        principal(X, 0)


def test_names_of_strategies():
    for name in ("", "  ", 3, None):
        with pytest.raises(InvalidTypeError, match="must be a string"):
            register(name, Random())
    for thing in (Random, 3):
        with pytest.raises(InvalidTypeError, match="is not a strategy"):
            register("mine", thing)
    with pytest.raises(InvalidInputError, match="already"):
        register("random ", Random())


class Elsewhere(nn.Module):
    """Its linear layer is given twice as many rows as there are samples, or takes no part."""

    def __init__(self, takes_part):
        super().__init__()
        self.last, self.takes_part = nn.Linear(2, 3), takes_part

    def forward(self, x):
        if not self.takes_part:
            return x[:, :3]
        return self.last(x.reshape(-1, 2)).reshape(len(x), 2, 3).sum(dim=1)


def test_layers_whose_gradients_have_no_sample_are_refused():
    with pytest.raises(InvalidInputError, match=r"shape \(60, 2\) for 30 samples"):
        SelectionContext(X, Y, model=Elsewhere(True)).gradients()
    assert SelectionContext(X, Y, model=Elsewhere(False)).gradients().shape == (3, 1)  # of the outputs alone


@pytest.mark.parametrize("bad", [np.zeros(3), np.zeros((3, 2), dtype=int), [[1.0]], np.zeros((3, 2, 1))])
def test_factors_are_matrices_of_floats(bad):
    with pytest.raises(InvalidInputError, match="residuals must be a two-dimensional array of floats"):
        Gradients(bad)
    with pytest.raises(InvalidInputError, match="inputs must be a two-dimensional array of floats"):
        Gradients(np.zeros((3, 2)), bad)


def test_what_is_not_finite_is_seen_in_either_factor():
    good, bad = np.ones((3, 2)), np.array([[1.0, np.nan]] * 3)
    found = [Gradients(r, h).is_finite() for r in (good, bad) for h in (None, good, bad)]
    assert found == [True, True, False, False, False, False]


@pytest.mark.parametrize(("rounds", "size", "expected"), [(4, 10, [2, 3, 2, 3]), (1, 10, [10]), (12, 3, [1, 1, 1])])
def test_a_fixed_subset_grows_in_equal_rounds(rounds, size, expected, monkeypatch):
    """The first without a proxy; the others by the residuals, to a power, over the largest of them."""
    drawn, scales = [], []
    plain = covering._drawn

    def recorded(scores, chosen, strata, count, own):
        drawn.append((scores.copy(), int(chosen.sum()), count))
        return plain(scores, chosen, strata, count, own)

    def proxy(scaled, targets, chosen, own, max_centers):
        scales.append(np.median(pdist(X)) / np.median(pdist(scaled[:, :-2])))  # the rows come in another order
        return residuals

    residuals = np.linspace(0.5, 2.0, 30)
    for name, value in {"_drawn": recorded, "_residuals": proxy, "_GROWTH": rounds, "_POWER": 3.0}.items():
        monkeypatch.setattr(covering, name, value)
    assert len(grown_rows(X.astype(np.float64), *proxy_targets(Y, True), size, rng())) == size
    assert [count for *_, count in drawn] == expected
    assert [known for _, known, _ in drawn] == [0, *np.cumsum(expected)[:-1]]
    np.testing.assert_array_equal(drawn[0][0], 1.0)
    for scores, *_ in drawn[1:]:
        np.testing.assert_allclose(scores, (residuals / 2.0) ** 3)
    squares = ((X[:, None] - X) ** 2).sum(axis=2)[np.triu_indices(30, 1)]
    np.testing.assert_allclose(scales, 0.5 * np.sqrt(np.median(squares)), rtol=1e-5)
    assert len(scales) == len(expected) - 1


def test_features_of_the_proxy_may_be_far_away_or_sparse():
    near = np.round(1024.0 * X.astype(np.float64)) / 1024.0
    found = [
        FixedCoreset(features="raw").select(SelectionContext(data, Y), 9, rng())
        for data in (near, near + 2.0**24, sp.csr_matrix(near))
    ]
    assert found[0] == found[1] == found[2]


def test_the_mode_of_every_module_is_false_inside_and_restored():
    seen = []

    class Watch(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(4, 3)

        def forward(self, x):
            seen.append((self.training, self.last.training, torch.is_grad_enabled()))
            return self.last(x)

    model = Watch()
    model.last.eval()
    SelectionContext(X, Y, model=model).gradients()
    assert set(seen) == {(False, False, False)}
    assert (model.training, model.last.training) == (True, False)


def test_a_last_batch_of_one_item_has_its_target():
    items = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    model = nn.Linear(4, 3)
    own = SelectionContext(items, model=model, batch_size=29).gradients()
    arrays = SelectionContext(X, Y, model=model).gradients()
    np.testing.assert_allclose(own.sq_norms(), arrays.sq_norms(), rtol=1e-5)


def test_the_first_gradient_that_is_not_finite_is_named():
    values = np.ones((5, 3), dtype=np.float32)
    values[[1, 3]] = np.nan
    with pytest.raises(InvalidInputError, match="gradient of row 1 has the norm nan"):
        gradient_norms(Gradients(values))


def test_accounts_begin_with_nothing():
    context, start = SelectionContext(X), time.perf_counter()
    context.features("pca")
    cost = context.costs["features"]
    assert (cost.calls, cost.samples) == (1, 30)
    assert 0.0 < cost.seconds <= time.perf_counter() - start


TARGETS = (X @ np.array([1.0, 2.0, -1.0, 0.5], dtype=np.float32)).astype(np.float32)


@pytest.mark.parametrize("name", ["CRAIG", "GRADMATCH", "COVER"])
@pytest.mark.parametrize("kind", ["fractions", "whole numbers"])
def test_a_regression_has_no_classes(name, kind):
    """Every target its own class would choose those with the largest targets, whatever the strategy."""
    y = TARGETS if kind == "fractions" else np.round(10 * TARGETS).astype(np.int64)
    context = SelectionContext(X, y, model=nn.Linear(4, 1), loss="mse")
    assert not context.has_classes
    core = registry()[name].select(context, 6, rng())
    assert core == registry()[name].strategy.select(context, 6, rng())
    assert set(core.indices) != set(np.argsort(-y)[:6])
    with pytest.raises(InvalidInputError, match="min_per_class = 2: y holds numbers"):
        PerClass(AdaptiveRandom(), min_per_class=2).select(context, 6, rng())


@pytest.mark.parametrize(
    ("y", "loss", "expected"),
    [
        (Y, "cross_entropy", True),
        (Y.astype(np.float32), "cross_entropy", True),
        (Y.astype(str), "cross_entropy", True),
        (TARGETS, "cross_entropy", False),
        (Y, "mse", False),
        (Y, nn.HuberLoss(), False),
        (Y, nn.CrossEntropyLoss(), True),
        (Y % 2, "bce", True),
    ],
)
def test_what_classes_are(y, loss, expected):
    assert SelectionContext(X, y, loss=loss).has_classes is expected


def test_of_equal_classes_random_ones_are_left_out():
    """With fewer samples than classes every class has its turn; each is left out with the same probability."""
    counts = np.full(20, 5)
    found = np.array([random_budgets(counts, 10, rng(seed))[0] for seed in range(400)])
    assert (found.sum(axis=1) == 10).all()
    assert found.max() == 1
    # a class is in with probability 1/2: a deviation of 10 in 400, and 20 of them
    assert (abs(found.sum(axis=0) - 200) < 45).all()
    np.testing.assert_array_equal(random_budgets(counts, 30, rng(1))[0], class_budgets(counts, 30, min_per_class=0))


def test_whole_targets_of_a_regression_are_no_classes_of_the_proxy():
    y = rng(1).permutation(3000)
    context = SelectionContext(rng(2).normal(size=(3000, 3)), y, loss="mse")
    same = SelectionContext(context._X, y.astype(np.float64), loss="mse")
    assert FixedCoreset().select(context, 20, rng()) == FixedCoreset().select(same, 20, rng())


def test_gradients_that_are_given_are_numbers():
    given = rng().normal(size=(30, 4))
    given[7, 2] = np.nan
    for gradients in (given, Gradients(np.zeros((30, 2)), given)):
        with pytest.raises(InvalidInputError, match="gradients contain NaN"):
            SelectionContext(X, gradients=gradients)


def test_norms_are_refused_by_the_row_of_the_data():
    given = Gradients(np.ones((3, 2)))
    object.__setattr__(given, "residuals", np.array([[1.0, 1.0], [np.inf, 0.0], [1.0, 0.0]]))
    with pytest.raises(InvalidInputError, match="gradient of row 47 has the norm inf"):
        gradient_norms(given, np.array([3, 47, 5]))


def test_bfloat16_inputs_are_read():
    halves = torch.as_tensor(X).bfloat16()
    for strategy in (RBF(), FixedCoreset(labels=False)):
        core = strategy.select(SelectionContext(halves, Y), 6, rng())
        assert core == strategy.select(SelectionContext(halves.float(), Y), 6, rng())


@pytest.mark.parametrize("strategy", [PerClass(RBF()), PerClass(RBF(radius=2.0)), PerClass(Laplacian())])
def test_coresets_of_classes_have_the_ball_of_all_samples(strategy):
    core = strategy.select(SelectionContext(X, Y), 12, rng())
    assert core.ball == strategy.strategy.select(SelectionContext(X, Y), 12, rng()).ball
    certificate = core.certify(X)
    assert audit(X, core).worst_error <= certificate.eps
    assert core.reweight(X).certificate.eps <= certificate.eps


def test_classes_of_another_metric_have_no_ball():
    core = PerClass(Laplacian(metric="cityblock")).select(SelectionContext(X, Y), 12, rng())
    assert core.ball is None
    with pytest.raises(InvalidInputError, match="metric='euclidean'"):
        core.certify(X)


def test_features_keep_fifty_components_of_wide_inputs_and_do_not_copy_narrow_ones():
    wide = np.random.default_rng(0).normal(size=(170, 101)).astype(np.float32)
    assert SelectionContext(wide).features("pca").shape == (170, 50)
    narrow = np.ascontiguousarray(wide[:, :100])
    assert np.shares_memory(SelectionContext(narrow).features("pca"), narrow)
    assert SelectionContext(sp.csr_matrix(narrow)).features("pca").shape == (170, 100)


def test_missing_labels_are_not_taken_for_a_regression():
    y = np.r_[np.nan, np.zeros(89), np.ones(10)]
    with pytest.raises(InvalidInputError, match="y contains NaN or infinity in 1 labels"):
        registry()["STRATIFIED"].select(SelectionContext(np.ones((100, 2)), y), 10, np.random.default_rng(0))


@pytest.mark.parametrize(("code", "count"), [(999999.0, 1), (-9999.0, 100), (99999.0, 300)])
def test_codes_for_missing_values_do_not_spoil_the_kernel_of_fixed_coreset(code, count):
    X = np.random.default_rng(1).normal(size=(1000, 5))
    X[:count, 0] = code
    assert FixedCoreset().select(SelectionContext(X, np.arange(1000) % 3), 50, np.random.default_rng(0)).size == 50
