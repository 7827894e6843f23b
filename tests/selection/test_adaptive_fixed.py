"""One subset for many networks: it is kept, spread over the strata, and goes where the proxy is wrong."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.kernel_ridge import KernelRidge

from coresift import CoresiftError
from coresift.coresets import covering
from coresift.coresets.covering import _residuals, _with_norms, grown_rows, proxy_targets
from coresift.selection import FixedCoreset, PerBatch, SelectionContext, registry

N, D = 400, 6


def data(n=N, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = rng.normal(size=(n, D))
    X[:, 0] += 3 * y
    return X, y


def rng(seed=1):
    return np.random.default_rng(seed)


def selected(X, y=None, size=40, seed=0, **settings):
    return FixedCoreset(**settings).select(SelectionContext(X, y, seed=seed), size, rng())


def grown(X, y, seed=0, *, has_classes=True, bandwidth=None, **how):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in how.items():
            patch.setattr(covering, f"_{name.upper()}", value)
        if bandwidth is not None:
            patch.setattr(covering, "median_distance", lambda *_: 2.0 * bandwidth)
        return grown_rows(X, *proxy_targets(y, has_classes), 40, rng(seed))


def test_it_is_kept_for_the_run_whatever_the_generator_and_the_epoch():
    context = SelectionContext(*data())
    first = FixedCoreset().select(context, 40, rng(1))
    assert FixedCoreset().select(context.at(20), 40, rng(2)) == first
    assert FixedCoreset().select(SelectionContext(*data()), 40, rng(3)) == first
    assert context.costs["proxy (fixed-coreset)"].calls == 1
    assert FixedCoreset().select(SelectionContext(*data(), seed=1), 40, rng(1)) != first
    np.testing.assert_allclose(first.weights, N / 40)


def test_settings_of_two_strategies_are_not_mixed_up_in_one_run():
    context = SelectionContext(*data())
    cores = [FixedCoreset(labels=labels).select(context, 40, rng()) for labels in (True, False)]
    assert cores[0] != cores[1]
    assert FixedCoreset(labels=True).select(context, 40, rng()) == cores[0]


def test_the_proxy_is_kernel_ridge_regression():
    X, y = data()
    targets = np.eye(3)[y]
    chosen, scale = np.arange(0, N, 10), 2.0
    found = _residuals(_with_norms(X / scale), targets, chosen, rng(), 2000)
    mean = targets[chosen].mean(axis=0)
    other = KernelRidge(alpha=0.01, kernel="rbf", gamma=0.5 / scale**2).fit(X[chosen], targets[chosen] - mean)
    np.testing.assert_allclose(found, np.linalg.norm(targets - mean - other.predict(X), axis=1), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_the_first_round_gives_every_class_its_share(seed):
    X, _ = data()
    y = np.repeat([0, 1, 2], [250, 100, 50])
    counts = np.bincount(y[grown(X, y, seed, growth=1)])
    assert np.all(np.abs(counts - 40 * np.array([250, 100, 50]) / N) < 1)


@pytest.mark.parametrize("seed", range(3))
def test_later_rounds_go_where_the_labels_are_hard_to_tell(seed):
    """Half of the rows lie in a region where the label alternates quickly; the proxy knows the rest after a few."""
    own = rng(seed)
    X = own.uniform(0, 1, size=(N, 1))
    hard = np.arange(N) < N // 2
    X[~hard] += 5
    y = np.where(hard, (X[:, 0] * 12).astype(int) % 2, 0)
    share = np.mean(hard[grown(X, y, seed, bandwidth=0.1, power=2.0)])
    even = np.mean(hard[grown(X, y, seed, bandwidth=0.1, mix=1.0)])
    assert share > 0.65
    assert even < share  # power: a draw by the floor alone does not


def test_regression_goes_where_the_function_is_steep():
    X = np.linspace(0, 1, N)[:, None]
    y = np.where(X[:, 0] > 0.7, np.sin(80 * X[:, 0]), 0.0)
    rows = grown(X, y, has_classes=False, bandwidth=0.05, power=4.0)
    assert np.mean(X[rows] > 0.7) > 0.5  # three tenths of the rows
    assert selected(X, np.stack([y, y], axis=1), features="raw").size == 40


def test_a_permutation_of_the_input_moves_no_label_to_another_row():
    """A single row of its own class, far away from all others: after the first rounds it is what the proxy misses."""
    X, y = data()
    X[:, 0] += 10 * y
    X[0], y[0] = 90.0, 3
    order = rng(5).permutation(N)
    place = int(np.flatnonzero(order == 0)[0])
    assert place in grown(X[order], y[order], bandwidth=3.0, power=20.0, mix=0.01)


def test_without_targets_the_cells_are_sampled():
    X, y = data()
    core = selected(X)
    assert core.size == 40
    counts = np.bincount(y[core.indices], minlength=3)  # the cells follow the clusters without knowing the labels
    assert np.all(np.abs(counts - 40 * np.bincount(y) / N) < 7)
    assert PerBatch(FixedCoreset(), 4).select(SelectionContext(X, y), 40, rng()).size == 40


def test_targets_that_may_not_be_looked_at_change_nothing():
    X, y = data()
    unlabelled = selected(X)
    for labels in (y, y[::-1].copy(), X[:, 0]):
        assert selected(X, labels, labels=False) == unlabelled
    assert selected(X, y) != unlabelled


def test_sparse_and_constant_features():
    X, y = data()
    assert selected(sp.csr_matrix(np.maximum(X, 0)), y, features="raw").size == 40
    assert selected(np.ones((N, 3)), y, features="raw").size == 40
    assert selected(np.ones((N, 3)), np.zeros(N, dtype=int)).size == 40


@pytest.mark.parametrize("size", [1, 2, 5, N - 1])
def test_any_size_of_any_pool(size, monkeypatch):
    monkeypatch.setattr("coresift.selection.fixed._MOST", 10)
    X, y = data()
    core = selected(X, y, size)
    assert core.size == size
    assert np.all(np.diff(core.indices) > 0)


def test_a_smaller_pool_is_drawn_from_at_random(monkeypatch):
    monkeypatch.setattr("coresift.selection.fixed._MOST", 30)
    X, y = data()
    kept = {tuple(selected(X, y, 20, seed=seed).indices) for seed in range(3)}
    assert len(kept) == 3


def test_targets_and_features_that_are_no_numbers():
    X, y = data()
    with pytest.raises(CoresiftError, match="y contains NaN"):
        selected(X, np.where(np.arange(N) == 3, np.nan, X[:, 0]))
    with pytest.raises(CoresiftError, match="X contains infinity in column 0, row 3"):
        selected(np.where(np.arange(N)[:, None] == 3, np.inf, X), y, features="raw")


@pytest.mark.parametrize(("changes", "names"), [({"seed": -1}, "seed"), ({"features": "x"}, "features")], ids=str)
def test_settings_that_cannot_be(changes, names):
    with pytest.raises(CoresiftError, match=names):
        selected(*data(), **changes)


def test_it_is_registered():
    assert isinstance(registry()["FIXED-CORESET"], FixedCoreset)
    assert "FIXED-CORESET-WARM" in registry()
    assert dataclasses.is_dataclass(FixedCoreset)


@pytest.mark.parametrize("kind", [str, float, np.int32])
def test_names_of_classes_may_be_of_any_type(kind):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 4)), rng.integers(3, size=200)
    expected = FixedCoreset().select(SelectionContext(X, y), 20, rng)
    assert FixedCoreset().select(SelectionContext(X, y.astype(kind)), 20, rng) == expected
    numbers = rng.permutation(200).astype(float)  # whole numbers, and as many as samples: no classes
    assert FixedCoreset().select(SelectionContext(X, numbers), 20, rng).size == 20


def test_it_falls_back_to_a_stratified_draw_unless_held_out_rows_say_that_it_helps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Labels without any relation to X: nothing can help. A ring of a rare class: the rows at its edge do, and much."""
    own = np.random.default_rng(0)
    X = own.normal(size=(4000, 2))
    noise, ring = own.integers(2, size=4000), (np.abs(np.linalg.norm(X, axis=1) - 2.6) < 0.06).astype(int)
    assert 0 < ring.mean() < 0.02
    plain = FixedCoreset().select(SelectionContext(X, noise), 100, own)
    assert plain.method.startswith("fixed-coreset (stratified: accuracy ")
    assert "a stratified draw is used instead" in caplog.text
    assert np.abs(np.bincount(noise[plain.indices]) - 100 * np.bincount(noise) / 4000).max() <= 1
    caplog.clear()
    grown = FixedCoreset().select(SelectionContext(X, ring), 200, own)
    assert grown.method == "fixed-coreset"
    assert caplog.text == ""
    assert ring[grown.indices].sum() > 3 * 200 * ring.mean()
    assert FixedCoreset(check=False).select(SelectionContext(X, noise), 100, own).method == "fixed-coreset"
    FixedCoreset(labels=False).select(SelectionContext(X, noise), 60, own)
    assert caplog.text == ""  # there is no proxy
