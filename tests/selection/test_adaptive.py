"""Draws by the gradients of the current model: what they promise, and what happens at the edges."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn

from coresift import CoresiftError
from coresift.selection import AdaptiveCoreset, PerBatch, PerClass, SelectionContext, Warm, registry
from coresift.training import train

N, D, CLASSES = 150, 5, 3
PLAIN = AdaptiveCoreset(mix=0.2, correction=1.0, pool_factor=4.0)


def data(n=N, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(CLASSES, size=n)
    X = rng.normal(size=(n, D)).astype(np.float32)
    X[:, 0] += 2 * y
    return X, y


def network(outputs=CLASSES, scale=2.0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(D, 6), nn.Tanh(), nn.Linear(6, outputs))
    with torch.no_grad():
        model[2].weight *= scale
    return model


def context_of(n=N, **more):
    X, y = data(n)
    return SelectionContext(X, y, **{"model": network(), **more})


def rng(seed=1):
    return np.random.default_rng(seed)


def of(**changes):
    return dataclasses.replace(PLAIN, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [PLAIN, of(pool_factor=1000.0)], ids=["pool", "all"])
def test_sums_are_unbiased_and_partly_corrected_ones_are_not(strategy):
    context, repeats = context_of(), 200
    whole = context.gradients().double()
    hard = whole.sq_norms() ** 0.5  # what a biased draw gets wrong
    ours, partly = np.empty(repeats), np.empty(repeats)
    for seed in range(repeats):
        core = strategy.select(context, 20, rng(seed))
        ours[seed] = core.weights @ hard[core.indices]
        core = dataclasses.replace(strategy, correction=0.0).select(context, 20, rng(seed))
        partly[seed] = core.weights @ hard[core.indices]

    def agrees(estimates):
        return abs(estimates.mean() - hard.sum()) < 5 * estimates.std(ddof=1) / math.sqrt(repeats)

    assert agrees(ours)
    assert not agrees(partly)


@pytest.mark.slow
@pytest.mark.parametrize("mix", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("pool_factor", [1.0, 3.0, 100.0])
def test_no_weight_is_above_its_bound_and_the_floor_is_what_bounds_it(mix, pool_factor):
    context, m = context_of(), 20
    pool = min(N, pool_factor * m)
    largest = max(
        of(mix=mix, pool_factor=pool_factor).select(context, m, rng(seed)).weights.max() for seed in range(50)
    )
    u = N / pool
    bound = max(u, u * pool / (mix * m))
    assert largest <= bound * (1 + 1e-9)
    if mix == 1:
        assert largest == pytest.approx(N / m)


@pytest.mark.parametrize("seed", range(4))
def test_a_planted_sample_is_drawn_wherever_it_stands(seed):
    """One sample of a wrong label, a model that is sure of all the others: indices are those of the data."""
    order = rng(seed).permutation(N)
    X = np.zeros((N, D), np.float32)
    y = np.arange(N) % CLASSES
    X[np.arange(N), y] = 1.0
    y[7] = (y[7] + 1) % CLASSES
    model = nn.Linear(D, CLASSES)
    with torch.no_grad():
        model.weight.copy_(30 * torch.eye(CLASSES, D))
        model.bias.zero_()
    place = int(np.flatnonzero(order == 7)[0])
    context = SelectionContext(X[order], y[order], model=model)
    core = of(pool_factor=1000.0, mix=0.1).select(context, 10, rng(seed))
    assert place in core.indices
    assert core.weights[core.indices == place] == pytest.approx(1.0)  # certain: it stands for itself
    # power: a uniform draw has it once in fifteen
    assert np.mean([place in of(mix=1.0).select(context, 10, rng(s)).indices for s in range(30)]) < 0.5


def test_gradients_of_a_pool_are_those_rows_of_all():
    rows = rng().permutation(N)[:40]
    pool = context_of().gradients_of(rows)
    whole = context_of().gradients()
    np.testing.assert_allclose(pool.residuals, whole.residuals[rows], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(pool.inputs, whole.inputs[rows], rtol=1e-4, atol=1e-6)


def test_only_the_pool_is_paid_for():
    context = context_of()
    of(pool_factor=3.0).select(context, 20, rng())
    assert context.costs["gradients"].samples == 60
    context = context_of()
    context.gradients()
    of(pool_factor=3.0).select(context, 20, rng())
    assert context.costs["gradients"].samples == N  # known already: not computed again


@pytest.mark.parametrize("every", [1, 4, 20])
def test_the_pool_costs_the_share_of_training_that_is_stated(every):
    context = context_of(4000)
    AdaptiveCoreset(select_every=every).select(context, 40, rng())
    assert context.costs["gradients"].samples == 3 * every * 40


@pytest.mark.parametrize(("epochs", "left"), [(2, 2), (25, 5), (40, 20)])
def test_scores_are_for_the_epochs_that_are_left(epochs, left):
    """A run that ends before the next draw is due gets no more of them than its training is worth."""
    context = context_of(4000, n_epochs=epochs).at(20 if epochs > 20 else 0)
    context.select_every = 20
    AdaptiveCoreset().select(context, 10, rng())
    assert context.costs["gradients"].samples == 10 * 3 * left
    assert AdaptiveCoreset().settled(context).every == left
    assert AdaptiveCoreset().settled(context).correction == 0.475  # no later draw would mend a bias


def test_a_warm_start_knows_how_long_it_runs():
    """50 epochs are asked for, 28 are run: at the 23rd five are left."""
    context = context_of(4000, n_epochs=50).at(23)
    context.select_every = 10
    assert Warm(AdaptiveCoreset()).phases(50, 0.1).total == 28
    Warm(AdaptiveCoreset()).select(context, 400, rng())
    assert context.costs["gradients"].samples == min(4000, 400 * 3 * 5)
    context = context_of(4000, n_epochs=50).at(23)
    context.select_every = 10
    Warm(AdaptiveCoreset()).select(context, 40, rng())
    assert context.costs["gradients"].samples == 40 * 3 * 3  # 26 epochs for so few samples


def test_what_the_context_knows_of_redraws_is_used():
    context, told = context_of(4000), context_of(4000)
    told.select_every = 20
    for each in (context, told):
        AdaptiveCoreset().select(each, 40, rng())
    assert told.costs["gradients"].samples > context.costs["gradients"].samples


@pytest.mark.parametrize("correction", [0.0, 0.3, 1.0])
def test_partial_correction_is_a_power_with_the_same_sum(correction):
    context = context_of()
    full, partly = (of(correction=c).select(context, 30, rng()) for c in (1.0, correction))
    np.testing.assert_array_equal(full.indices, partly.indices)
    expected = full.weights**correction
    np.testing.assert_allclose(partly.weights, expected * full.weights.sum() / expected.sum())
    assert (partly.guarantee is None) == (correction < 1)


@pytest.mark.parametrize(
    ("every", "settings"), [(1, (0.2, 0.0, 3.0, 1)), (4, (0.425, 0.375, 12.0, 4)), (20, (0.485, 0.475, 60.0, 20))]
)
def test_defaults_follow_the_epochs_between_two_draws(every, settings):
    context, mix, correction, factor = context_of(), *settings[:3]
    context.select_every = every
    assert AdaptiveCoreset().settled(context) == pytest.approx(settings)
    assert AdaptiveCoreset(select_every=every).settled(context_of()) == pytest.approx(settings)
    given = AdaptiveCoreset(mix=0.3, correction=0.0, pool_factor=2.0)
    assert given.settled(context) == (0.3, 0.0, 2.0, every)
    found = AdaptiveCoreset().select(context, 30, rng())
    same = AdaptiveCoreset(mix=mix, correction=correction, pool_factor=factor).select(context, 30, rng())
    np.testing.assert_allclose(found.weights, same.weights)


@pytest.mark.parametrize(
    ("loss", "is_bounded"),
    [
        ("cross_entropy", True),
        ("mse", False),
        ("huber", True),
        (nn.CrossEntropyLoss(), True),
        (nn.MSELoss(), False),
        (lambda outputs, targets: (outputs[:, 0] - targets) ** 4, False),
    ],
    ids=["cross_entropy", "mse", "huber", "CrossEntropyLoss", "MSELoss", "own"],
)
def test_losses_without_a_bounded_slope_are_corrected_in_full(loss, is_bounded):
    assert AdaptiveCoreset(select_every=1).settled(context_of(loss=loss)).correction == (0 if is_bounded else 1)


@pytest.mark.parametrize("seed", range(3))
def test_no_row_contributes_more_than_its_share_of_the_norms(seed):
    """Norms that differ by orders of magnitude: unbiased weights bound what each row adds to the gradient."""
    given = rng(seed).normal(size=(N, 4)) * rng(seed + 9).lognormal(0, 1.5, (N, 1))
    given[5] *= 1000.0 / np.linalg.norm(given[5])
    norms = np.linalg.norm(given, axis=1)
    strategy = of(pool_factor=1000.0, mix=0.5)
    core = strategy.select(SelectionContext(data()[0], gradients=given), 20, rng(seed))
    others = core.indices != 5
    contributions = core.weights * norms[core.indices]
    share = norms.sum() / (0.5 * 20)
    assert np.all(contributions <= np.maximum(norms[core.indices], share) * (1 + 1e-9))  # itself, if it is certain
    assert contributions.max() > share  # power: some row is above its even share, and allowed to be
    assert contributions[~others] == pytest.approx([norms[5]])
    partly = of(pool_factor=1000.0, mix=0.5, correction=0.0).select(
        SelectionContext(data()[0], gradients=given), 20, rng(seed)
    )
    assert np.max(partly.weights * norms[partly.indices]) > 4 * norms[5]  # power: uncorrected, it counts n/m times


@pytest.mark.parametrize("loss", ["mse", "l1", "huber"])
def test_regression_draws_by_residuals_times_features(loss):
    X, _ = data(400)
    y = X[:, 0] + 0.1 * X[:, 1]
    y[11] += 40.0
    context = SelectionContext(X, y, model=network(1), loss=loss)
    found = context.gradients()
    outputs = network(1)(torch.from_numpy(X)).detach().numpy()[:, 0]
    features = network(1)[:2](torch.from_numpy(X)).detach().numpy()
    slopes = {"mse": 2 * (outputs - y), "l1": np.sign(outputs - y), "huber": np.clip(outputs - y, -1, 1)}[loss]
    norms = np.abs(slopes) * np.sqrt((features**2).sum(1) + 1)
    np.testing.assert_allclose(found.sq_norms() ** 0.5, norms, rtol=1e-3)
    core = of(pool_factor=1000.0).select(context, 40, rng())
    assert core.size == 40
    assert loss != "mse" or 11 in core.indices


@pytest.mark.slow
def test_per_class_budgets_and_minima():
    X, _ = data()
    y = np.repeat([0, 1, 2], [120, 25, 5])
    context = SelectionContext(X, y, model=network())
    core = PerClass(of(), 3).select(context, 30, rng())
    counts = np.bincount(y[core.indices])
    assert counts[2] == 3
    assert counts.sum() == 30
    for label in range(3):  # weights are of the class
        sums = [
            core.weights[y[core.indices] == label].sum()
            for core in (PerClass(of()).select(context, 60, rng(seed)) for seed in range(60))
        ]
        assert np.mean(sums) == pytest.approx((y == label).sum(), rel=0.15)


def test_a_perfect_model_is_drawn_from_uniformly():
    given = np.zeros((N, 4))
    core = PLAIN.select(SelectionContext(data()[0], gradients=given), 30, rng())
    np.testing.assert_allclose(core.weights, N / 30)
    assert core.size == 30


def test_gradients_that_are_no_numbers_are_refused():
    given = np.ones((N, 4))
    given[3] = np.nan
    with pytest.raises(CoresiftError, match="must be finite"):
        of(pool_factor=1000.0).select(SelectionContext(data()[0], gradients=given), 30, rng())


def test_without_a_model_the_draw_is_the_model_free_one():
    X, y = data()
    core = AdaptiveCoreset().select(SelectionContext(X, y), 30, rng())
    np.testing.assert_allclose(core.weights, N / 30)
    assert "there is no model" in core.method


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_tiny_data(n):
    for size in range(1, n + 1):
        core = AdaptiveCoreset().select(context_of(n), size, rng())
        assert core.size == size
        core = of(pool_factor=1.0).select(context_of(n), size, rng())
        np.testing.assert_allclose(core.weights, n / size)


def test_mini_batches_are_drawn_by_their_mean_gradients():
    context = context_of()
    core = PerBatch(of(), 5).select(context, 30, rng())
    assert core.size == 30
    assert context.costs["gradients"].samples == N
    sums = [PerBatch(of(), 5).select(context, 30, rng(seed)).weights.sum() for seed in range(100)]
    assert np.mean(sums) == pytest.approx(N, abs=5 * np.std(sums) / 10 + 1e-9)


def test_it_is_registered_with_and_without_a_warm_start():
    assert isinstance(registry()["ADAPTIVE-CORESET"], AdaptiveCoreset)
    warm = registry()["ADAPTIVE-CORESET-WARM"]
    assert isinstance(warm, Warm)
    assert isinstance(warm.strategy, AdaptiveCoreset)


class Stop(Exception):
    pass


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_weights(tmp_path):
    X, y = data(300)

    def run(model, **more):
        return train(model, (X, y), AdaptiveCoreset(), 30, epochs=6, select_every=2, device="cpu", seed=3, **more)

    def stop(metrics):
        if metrics["epoch"] == 3:
            raise Stop

    whole = network()
    run(whole)
    with pytest.raises(Stop):
        run(network(), out=tmp_path / "run", checkpoint_seconds=0.0, on_epoch=stop)
    resumed = network()
    run(resumed, out=tmp_path / "run", checkpoint_seconds=0.0)
    for one, two in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"mix": 0.0}, "mix"),
        ({"mix": 1.1}, "mix"),
        ({"mix": "x"}, "mix"),
        ({"mix": True}, "mix"),
        ({"mix": math.nan}, "mix"),
        ({"correction": -0.1}, "correction"),
        ({"correction": 2}, "correction"),
        ({"pool_factor": 0.5}, "pool_factor"),
        ({"pool_factor": math.inf}, "pool_factor"),
        ({"pool_factor": "all"}, "pool_factor"),
        ({"select_every": 0}, "select_every"),
    ],
    ids=str,
)
def test_settings_that_cannot_be(changes, names):
    with pytest.raises(CoresiftError, match=names):
        of(**changes).select(context_of(), 20, rng())
