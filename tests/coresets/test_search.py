"""Nested coresets, and the search on them."""

import itertools
from typing import ClassVar

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits, make_classification, make_regression
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from coresift import CoresetSearchCV, InvalidInputError, InvalidTypeError, nested_coresets


def table(n=3000, seed=0, **how):
    return make_classification(n, 8, n_informative=5, random_state=seed, **how)


@pytest.mark.parametrize("strategy", ["uniform", "stratified", LogisticRegression(), DecisionTreeClassifier()])
def test_each_coreset_is_part_of_the_next(strategy):
    X, y = table(weights=[0.9, 0.1])
    cores = nested_coresets(X, y, (0.05, 0.1, 600), strategy=strategy, random_state=0)
    assert [core.size for core in cores] == [150, 300, 600]
    for small, large in itertools.pairwise(cores):
        assert set(small.indices) <= set(large.indices)
    for core in cores:
        assert core.n_samples == len(X)
        assert core.weights.sum() == pytest.approx(len(X), rel=1e-9 if strategy != "uniform" else 1e-6)
        if strategy != "uniform":
            assert set(y[core.indices]) == {0, 1}
    again = nested_coresets(X, y, (0.05, 0.1, 600), strategy=strategy, random_state=0)
    assert cores == again


@pytest.mark.parametrize("seed", range(3))
def test_weights_of_nested_draws_are_unbiased_within_five_sigma(seed):
    rng = np.random.default_rng(seed)
    n, repeats = 40, 3000
    y = np.repeat([0, 1], [30, 10])
    weights = rng.uniform(0.5, 2.0, n)
    X, totals = np.zeros((n, 1)), np.zeros((repeats, n))
    for r in range(repeats):
        small, _ = nested_coresets(X, y, (12, 24), sample_weight=weights, random_state=rng)
        totals[r, small.indices] = small.weights
    error = totals.std(axis=0) / np.sqrt(repeats)
    assert (np.abs(totals.mean(axis=0) - weights) < 5 * error).all()
    assert (np.abs(totals.mean(axis=0) * 0.9 - weights) > 5 * error).any()  # power


def test_a_search_finds_what_a_full_search_finds_with_few_fits_on_many_rows():
    X, y = load_digits(return_X_y=True)
    grid = {"C": [0.01, 1, 100], "gamma": [1e-5, 1e-4, 1e-3, 1e-1]}
    ours = CoresetSearchCV(SVC(), grid, ladder=(0.05, 0.1, 0.3), random_state=0).fit(X, y)
    full = GridSearchCV(SVC(), grid).fit(X, y)
    of_ours = full.cv_results_["mean_test_score"][full.cv_results_["params"].index(ours.best_params_)]
    assert full.best_score_ - of_ours < 0.005
    assert ours.n_candidates_[:2] == [12, 12]  # the first step drops nothing
    assert 2 <= ours.n_candidates_[2] <= 4
    assert ours.n_resources_ == [72, 144, 432]
    last = ours.cv_results_["iter"] == 2
    expected = ours.cv_results_["mean_expected_score"]
    assert expected[ours.best_index_] == expected[last].max()
    assert ours.best_score_ == ours.cv_results_["mean_test_score"][ours.best_index_]
    assert set(full.cv_results_) <= set(ours.cv_results_)
    assert ours.best_estimator_.n_features_in_ == 64
    assert ours.best_estimator_.support_.max() > 1500  # refitted on all rows
    assert ours.score(X, y) == ours.best_estimator_.score(X, y)
    assert len(ours.fidelity_) == 2


def test_a_search_says_where_small_subsets_tell_nothing(caplog):
    """Candidates that differ by noise alone are ranked anew at each step; those of the digits above are not."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2000, 5)), rng.integers(0, 2, 2000)
    search = CoresetSearchCV(
        DecisionTreeClassifier(random_state=0), {"max_depth": [1, 2, 3, 4, 5, 6, 7]}, random_state=2
    )
    search.set_params(ladder=(0.05, 0.2, 1.0)).fit(X, y)
    assert search.fidelity_[0].correlation < 0.3
    assert "say little of this model" in caplog.text
    assert search.n_resources_[-1] == 1600  # the last candidates on all rows
    caplog.clear()
    X, y = load_digits(return_X_y=True)
    CoresetSearchCV(SVC(), {"gamma": [1e-5, 1e-4, 1e-3, 1e-1]}, ladder=(0.1, 0.3), random_state=0).fit(X, y)
    assert caplog.text == ""


class Recorder(ClassifierMixin, BaseEstimator):
    """Remembers the rows of its fits and scores."""

    seen: ClassVar[list[tuple[str, frozenset]]] = []

    def __init__(self, power=1.0):
        self.power = power

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.seen.append(("fit", frozenset(X[:, 0])))
        return self

    def predict(self, X):
        self.seen.append(("predict", frozenset(X[:, 0])))
        return np.where(X[:, 1] > self.power, self.classes_[1], self.classes_[0])


def test_test_folds_are_complete_and_never_trained_on():
    X = np.column_stack([np.arange(3000.0), np.random.default_rng(0).normal(size=3000)])
    y = (X[:, 1] > 0).astype(int)
    Recorder.seen.clear()
    search = CoresetSearchCV(Recorder(), {"power": [0.0, 1.0, 2.0]}, ladder=(0.1, 0.5), cv=KFold(3), refit=False)
    search.fit(X, y)
    fits, tests = Recorder.seen[0::2], Recorder.seen[1::2]
    assert {len(rows) for kind, rows in tests} == {1000}
    assert {len(rows) for kind, rows in fits} == {200, 1000}
    assert all(not fit[1] & test[1] for fit, test in zip(fits, tests, strict=True))
    assert search.best_params_ == {"power": 0.0}
    assert not hasattr(search, "best_estimator_")
    assert "even" in search.rule_ or "takes no sample_weight" in search.rule_


def test_it_stops_when_the_leader_is_separated_and_climbs_when_not():
    X = np.column_stack([np.arange(6000.0), np.random.default_rng(0).normal(size=6000)])
    y = (X[:, 1] > 0).astype(int)
    steps = (0.02, 0.05, 0.1, 0.3)
    clear = CoresetSearchCV(Recorder(), {"power": [0.0, 1.0, 2.0, 3.0]}, ladder=steps, refit=False).fit(X, y)
    assert clear.is_separated_
    assert clear.n_candidates_ == [4, 4]  # two steps in a row, then the end
    tied = CoresetSearchCV(Recorder(), {"power": [0.0, -1e-9, 2.0, 3.0]}, ladder=steps, refit=False).fit(X, y)
    assert not tied.is_separated_
    assert tied.n_candidates_ == [4, 4, 2, 2]


def test_linear_models_get_coresets_of_their_loss_also_at_the_end_of_a_pipeline():
    X, y = table(6000)
    X = X * 1000 ** np.arange(8.0)[::-1] / 1000**4  # scales that only the scaler undoes
    pipe = make_pipeline(StandardScaler(), LogisticRegression())
    grid = {"logisticregression__C": [1e-4, 1e-2, 1, 100]}
    search = CoresetSearchCV(pipe, grid, ladder=(0.1, 0.3), random_state=0).fit(X, y)
    assert search.rule_.startswith("two-step draw for the logistic loss")
    full = GridSearchCV(pipe, grid).fit(X, y)
    table_ = dict(zip(map(str, full.cv_results_["params"]), full.cv_results_["mean_test_score"], strict=True))
    for params, score, step in zip(
        search.cv_results_["params"], search.cv_results_["mean_test_score"], search.cv_results_["iter"], strict=True
    ):
        if step == 1:
            assert abs(table_[str(params)] - score) < 0.005


def test_balanced_class_weights_mean_all_rows():
    X, y = table(8000, weights=[0.97, 0.03], flip_y=0)
    grid = {"C": [1e-3, 1e-1], "class_weight": ["balanced", None]}
    search = CoresetSearchCV(LogisticRegression(), grid, ladder=(0.1,), scoring="neg_log_loss", random_state=0).fit(
        X, y
    )
    full = GridSearchCV(LogisticRegression(), grid, scoring="neg_log_loss").fit(X, y)
    ours, theirs = search.cv_results_["mean_test_score"], full.cv_results_["mean_test_score"]
    np.testing.assert_allclose(ours, theirs, rtol=0.05)


def test_regression_sparse_frames_and_distributions():
    import scipy.sparse as sp
    from scipy.stats import loguniform

    X, y = make_regression(4000, 6, noise=20.0, random_state=0)
    search = CoresetSearchCV(Ridge(), {"alpha": loguniform(1e-3, 1e6)}, n_iter=8, random_state=0).fit(X, y)
    assert search.n_candidates_[0] == 8
    assert search.best_params_["alpha"] < 1e4
    again = CoresetSearchCV(Ridge(), {"alpha": loguniform(1e-3, 1e6)}, n_iter=8, random_state=0).fit(X, y)
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], again.cv_results_["mean_test_score"])
    sparse = CoresetSearchCV(Ridge(), {"alpha": [1.0, 1e5]}, random_state=0).fit(sp.csr_array(X), y)
    assert sparse.best_params_ == {"alpha": 1.0}
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abcdef"))
    named = CoresetSearchCV(Ridge(), {"alpha": [1.0, 1e5]}, random_state=0).fit(frame, pd.Series(y))
    assert named.feature_names_in_.tolist() == list("abcdef")


def test_weights_groups_clone_and_nesting():
    X, y = table(2500)
    weights = np.where(np.arange(2500) < 2000, 1.0, 0.0)
    search = CoresetSearchCV(LogisticRegression(), {"C": [1e-3, 1.0]}, ladder=(0.2,), random_state=0)
    garbage = np.where(weights > 0, y, 1 - y)
    with_weights = clone(search).fit(X, garbage, sample_weight=weights)
    np.testing.assert_allclose(
        with_weights.best_estimator_.coef_,
        LogisticRegression(**with_weights.best_params_).fit(X[:2000], y[:2000]).coef_,
        rtol=1e-3,
    )
    groups = np.arange(2500) % 7
    grouped = CoresetSearchCV(LogisticRegression(), {"C": [1e-3, 1.0]}, ladder=(0.2,), cv=GroupKFold(7), random_state=0)
    assert grouped.fit(X, y, groups=groups).n_splits_ == 7
    assert cross_val_score(search, X, y, cv=3).mean() > 0.7
    with sklearn.config_context(enable_metadata_routing=True):
        model = LogisticRegression().set_fit_request(sample_weight=True)
        routed = CoresetSearchCV(model, {"C": [1e-3, 1.0]}, ladder=(0.2,), cv=GroupKFold(7), random_state=0)
        routed.set_fit_request(sample_weight=True)
        assert routed.fit(X, y, sample_weight=weights, groups=groups).n_splits_ == 7


def test_sgd_keeps_its_penalty_and_jobs_change_nothing():
    X, y = table(4000)
    grid = {"alpha": [1e-4, 1e2]}
    one = CoresetSearchCV(SGDClassifier(random_state=0), grid, ladder=(0.2,), random_state=0).fit(X, y)
    assert one.best_params_ == {"alpha": 1e-4}
    two = CoresetSearchCV(SGDClassifier(random_state=0), grid, ladder=(0.2,), random_state=0, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"])


def test_failed_fits_are_left_behind(caplog):
    X, y = table(2000)
    grid = {"max_depth": [2, -5], "max_iter": [5]}
    search = CoresetSearchCV(HistGradientBoostingClassifier(), grid, ladder=(0.2, 0.5), random_state=0).fit(X, y)
    assert search.best_params_["max_depth"] == 2
    assert "5 of 10 fits failed" in caplog.text
    with pytest.raises(InvalidInputError, match="every candidate failed to fit"):
        CoresetSearchCV(HistGradientBoostingClassifier(), {"max_depth": [-5]}).fit(X, y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ladder": (0.3, 0.1)}, r"ladder = \(0.3, 0.1\) must increase"),
        ({"ladder": (0.1, 0.1)}, "must increase"),
        ({"ladder": (0.0, 0.1)}, r"ladder\[0\] = 0.0 must be above 0"),
        ({"ladder": ()}, "must be a sequence of sizes"),
        ({"ladder": (2, 100)}, "fewer than the 3 classes"),
        ({"scoring": ["accuracy", "f1"]}, "must be one score"),
        ({"estimator": SVC(), "params": {"C": [1.0]}, "scoring": "roc_auc_ovr"}, "needs what SVC lacks"),
        ({"params": {}, "n_iter": 0}, "n_iter = 0 must be at least 1"),
        ({"cv": KFold(3)}, "have no row of class"),
    ],
)
def test_bad_input_is_named(change, message):
    X, y = table(600, n_classes=3)
    order = np.argsort(y, kind="stable")  # sorted: plain folds lose a class
    settings = {"estimator": LogisticRegression(), "params": {"C": [0.1, 1.0]}, "ladder": (0.2, 0.5), **change}
    with pytest.raises(InvalidInputError, match=message):
        CoresetSearchCV(**settings).fit(X[order], y[order])


def test_bad_types_are_named():
    X, y = table(200)
    with pytest.raises(InvalidTypeError, match="must be a classifier or a regressor"):
        CoresetSearchCV(LogisticRegression, {"C": [1.0]}).fit(X, y)
    with pytest.raises(InvalidInputError, match="sample_weight: KNeighborsClassifier takes none"):
        CoresetSearchCV(KNeighborsClassifier(), {"n_neighbors": [3]}).fit(X, y, sample_weight=np.ones(200))
    with pytest.raises(InvalidInputError, match="strategy = 'best' is not one of"):
        nested_coresets(X, y, (0.1, 0.2), strategy="best")


@parametrize_with_checks(
    [
        CoresetSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, ladder=(0.5, 1.0), cv=2),
        CoresetSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, ladder=(0.5, 1.0), cv=2),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
