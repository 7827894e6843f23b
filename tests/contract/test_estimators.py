"""What every coreset estimator promises, whatever its loss."""

import copy
import inspect
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from coresift import CoresiftError, LaplacianCoreset, LinearCoreset, RBFCoreset

ESTIMATORS = [RBFCoreset, LaplacianCoreset]
BOUNDS = [(RBFCoreset, b) for b in ("auto", "closed-form", "cells", "exact", "paper", "lemma")] + [
    (LaplacianCoreset, b) for b in ("auto", "cells", "exact", "paper")
]
METHODS = ["systematic", "iid", "keys"]


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(80, 3))


# No check is expected to fail. The default bound is "auto"; the others run through the cheapest sparse and dense paths.
@parametrize_with_checks(
    [
        RBFCoreset(),
        LaplacianCoreset(),
        RBFCoreset(bound="cells", n_cells=3),
        LaplacianCoreset(bound="cells"),
        LinearCoreset(),
        LinearCoreset("squared"),
    ]
)
def test_scikit_learn(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("arrays of other libraries are not among the inputs")
    check(estimator)


@pytest.mark.parametrize("cls", [*ESTIMATORS, LinearCoreset])
def test_init_only_assigns(cls):
    sentinels = {name: object() for name in inspect.signature(cls).parameters}
    est = cls(**sentinels)  # nothing is checked, copied or computed
    assert vars(est) == sentinels
    assert est.get_params() == sentinels


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_params_round_trip_and_clone(cls, X):
    est = cls(n_cells=7, bandwidth=2.5, random_state=3).fit(X)
    fresh = clone(est)
    assert fresh.get_params() == est.get_params()
    with pytest.raises(NotFittedError):
        fresh.sample(5)
    fresh.set_params(bandwidth="median", n_cells=9)
    assert (fresh.bandwidth, fresh.n_cells) == ("median", 9)
    assert (est.bandwidth, est.n_cells) == (2.5, 7)
    with pytest.raises(ValueError, match="nonsense"):
        est.set_params(nonsense=1)
    assert "bandwidth=2.5" in repr(est)


@pytest.mark.parametrize(("cls", "bound"), BOUNDS)
def test_fitted_attributes(cls, bound, X):
    est = cls(bound=bound, random_state=0)
    assert est.fit(X) is est
    assert est.sensitivities_.shape == (80,)
    assert est.sensitivities_.dtype == np.float64
    assert np.all(est.sensitivities_ > 0)
    assert est.total_sensitivity_ == pytest.approx(est.sensitivities_.sum())
    np.testing.assert_allclose(est.center_, X.mean(axis=0), atol=1e-14)
    assert est.scale_ == pytest.approx(np.linalg.norm(X - X.mean(axis=0), axis=1).max())
    assert est.bound_ in ("closed-form", "cells", "exact", "paper", "lemma")
    assert bound in ("auto", est.bound_)
    assert isinstance(est.is_certified_, bool)
    assert est.bound_note_
    assert est.uniform_factor_ >= 1 / est.total_sensitivity_
    assert est.n_features_in_ == 3
    assert not hasattr(est, "feature_names_in_")
    assert f"{est.total_sensitivity_:.3g}" in est.advice()
    if est.bound_ not in ("paper", "lemma"):
        assert np.all(est.sensitivities_ <= 1)


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_auto_is_the_smallest_bound_that_is_cheap(cls, X):
    totals = {b: cls(bound=b, random_state=0).fit(X).total_sensitivity_ for c, b in BOUNDS if c is cls}
    assert totals["auto"] <= min(totals.values()) * (1 + 1e-6)
    big = np.random.default_rng(0).normal(size=(60_000, 3))
    assert cls(random_state=0).fit(big).bound_ == "cells"


def test_auto_takes_the_closed_form_when_nothing_is_to_gain(X):
    assert RBFCoreset(bandwidth=100.0).fit(X).bound_ == "closed-form"
    assert "as good" in RBFCoreset(bandwidth=100.0).fit(X).advice()


@pytest.mark.parametrize("cls", ESTIMATORS)
@pytest.mark.parametrize("copier", [copy.deepcopy, lambda est: pickle.loads(pickle.dumps(est))])
def test_a_copy_continues_the_same_sequence_of_draws(cls, copier, X):
    est = cls(random_state=0).fit(X)
    est.sample(10)
    twin = copier(est)
    for method in METHODS:
        assert twin.sample(10, method=method) == est.sample(10, method=method)
    np.testing.assert_array_equal(twin.sensitivities_, est.sensitivities_)


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_before_fit_there_is_nothing(cls):
    for call in (lambda e: e.sample(3), lambda e: e.advice()):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            call(cls())


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_column_names_are_recorded_and_forgotten(cls, X):
    pd = pytest.importorskip("pandas")
    est = cls().fit(pd.DataFrame(X, columns=["a", "b", "c"]))
    assert est.feature_names_in_.tolist() == ["a", "b", "c"]
    est.fit(X[:, :2])
    assert est.n_features_in_ == 2
    assert not hasattr(est, "feature_names_in_")
    with pytest.raises(CoresiftError, match="feature names"):
        est.fit(pd.DataFrame(X, columns=["a", 1, "c"]))


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_a_fit_that_fails_changes_nothing(cls, X):
    bad = X.copy()
    bad[3, 1] = np.nan
    failures = [
        ({}, {"X": bad}),
        ({}, {"X": X[:, :1], "sample_weight": -np.ones(80)}),
        ({}, {"X": X[:, :1], "sample_weight": np.ones(3)}),
        ({"bandwidth": 1e-200}, {"X": X[:, :1]}),
        ({"random_state": "x"}, {"X": X[:, :1]}),
        ({"bound": "exact", "max_exact": 5}, {"X": X[:, :1]}),
    ]
    for params, data in failures:
        fresh = cls(**params)
        before = dict(vars(fresh))
        with pytest.raises(CoresiftError):
            fresh.fit(**data)
        assert vars(fresh) == before
        with pytest.raises(NotFittedError):
            fresh.sample(2)

        est = cls(random_state=0).fit(X)
        twin = copy.deepcopy(est)
        with pytest.raises(CoresiftError):
            est.set_params(**params).fit(**data)
        assert vars(est).keys() - vars(twin).keys() <= {"_rows"}  # which copies do not carry
        assert est.n_features_in_ == 3
        assert est.sample(10, random_state=1) == twin.sample(10, random_state=1)


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_the_data_are_not_changed_and_draws_do_not_need_them(cls, X):
    before, w = X.copy(), np.random.default_rng(1).random(80)
    w_before = w.copy()
    est = cls(random_state=0).fit(X, sample_weight=w)
    est.sample(10)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(w, w_before)
    expected = est.sample(10, random_state=5)
    w[:] = 0.0  # what the caller does with the arrays afterwards is no concern of the estimator
    X[:] = 0.0
    assert est.sample(10, random_state=5) == expected


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_exact_refuses_many_rows_unless_forced(cls, X):
    with pytest.raises(CoresiftError, match=r"n_samples = 80 exceeds max_exact = 79.*max_exact=None"):
        cls(bound="exact", max_exact=79).fit(X)
    for limit in (80, None):
        assert cls(bound="exact", max_exact=limit).fit(X).bound_ == "exact"


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_y_is_ignored(cls, X):
    a, b = cls(random_state=0).fit(X), cls(random_state=0).fit(X, ["anything"])
    np.testing.assert_array_equal(a.sensitivities_, b.sensitivities_)
