"""Meta-estimators: the wrapped model is fitted on a coreset chosen for it."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import (
    ElasticNet,
    HuberRegressor,
    Lasso,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from coresift import CoresetClassifier, CoresetRegressor, CoresiftError, LinearCoreset


@parametrize_with_checks(
    [
        CoresetClassifier(LogisticRegression()),  # all rows, as they are few
        CoresetClassifier(LogisticRegression(), size=60),
        CoresetClassifier(DecisionTreeClassifier(random_state=0), size=60),
        CoresetRegressor(Ridge()),
        CoresetRegressor(Ridge(), size=60),
    ]
)
def test_scikit_learn(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("arrays of other libraries are not among the inputs")
    check(estimator)


@pytest.fixture(autouse=True)
def _without_routing():
    with sklearn.config_context(enable_metadata_routing=False):
        yield


def classes(n=3000, d=4, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    scores = X @ rng.normal(size=(d, n_classes)) + rng.gumbel(size=(n, n_classes))
    return X, scores.argmax(axis=1)


def numbers(n=3000, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X @ rng.normal(size=d) + 0.3 * rng.normal(size=n)


class Recorder(ClassifierMixin, BaseEstimator):
    """Keep the arguments of ``fit``."""

    def fit(self, X, y, sample_weight=None, groups=None, note=None):
        self.X_, self.y_, self.weights_, self.groups_, self.note_ = X, y, sample_weight, groups, note
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


def test_the_model_is_fitted_on_the_weighted_coreset():
    X, y = classes()
    model = CoresetClassifier(Recorder(), size=0.1, random_state=0).fit(X, y)
    core = model.coreset_
    assert (core.size, core.n_samples, core.method) == (300, 3000, "stratified")
    np.testing.assert_array_equal(model.estimator_.X_, X[core.indices])
    np.testing.assert_array_equal(model.estimator_.y_, y[core.indices])
    np.testing.assert_allclose(model.estimator_.weights_, core.take(weights="mean")[-1])
    assert model.estimator_.weights_.mean() == pytest.approx(1.0)
    assert not hasattr(model.estimator, "X_")
    assert core.weights.sum() == pytest.approx(3000, rel=1e-12)
    for c in (0, 1):  # each class keeps its share
        assert core.weights[y[core.indices] == c].sum() == pytest.approx(np.sum(y == c), rel=0.02)


@pytest.mark.parametrize(
    ("size", "n", "expected"), [(0.1, 1000, 1000), (0.1, 1001, 101), (50, 200, 50), (500, 200, 200), (1.0, 2000, 2000)]
)
def test_few_rows_are_all_used(size, n, expected):
    X, y = classes(n)
    model = CoresetClassifier(Recorder(), size=size, random_state=0).fit(X, y)
    assert model.coreset_.size == expected
    if expected == n:
        assert model.coreset_.method == "all"
        assert model.estimator_.weights_ is None  # as if the model had been fitted alone
        assert "all rows" in model.rule_
        assert model.estimator_.X_ is X


def test_a_seed_repeats_and_others_differ():
    X, y = classes()
    chosen = [CoresetClassifier(Recorder(), random_state=s).fit(X, y).coreset_.indices.tolist() for s in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]


def test_every_class_is_in_the_coreset():
    X, y = classes(3000)
    names = np.array(["no", "yes", "rare"], dtype=object)[np.where(np.arange(3000) == 1234, 2, y)]
    for estimator in (KNeighborsClassifier(1), DecisionTreeClassifier(), LogisticRegression()):
        model = CoresetClassifier(estimator, size=30, random_state=0).fit(X, names)
        assert model.classes_.tolist() == ["no", "rare", "yes"]
        assert 1234 in model.coreset_.indices
        assert set(model.predict(X[:50])) <= {"no", "rare", "yes"}


def test_sizes_that_cannot_be():
    X, y = classes(n_classes=5)
    with pytest.raises(CoresiftError, match="size: 4 rows cannot hold 5 classes"):
        CoresetClassifier(DecisionTreeClassifier(), size=4).fit(X, y)
    for size in (0, -3, 0.0, 1.5, "10", None, True):
        with pytest.raises(CoresiftError, match="size"):
            CoresetClassifier(DecisionTreeClassifier(), size=size).fit(X, y)


def test_weights_of_the_rows():
    X, y = classes()
    w = np.random.default_rng(1).exponential(size=3000)
    w[::3] = 0.0
    model = CoresetClassifier(Recorder(), size=0.1, random_state=0).fit(X, y, sample_weight=w)
    core = model.coreset_
    assert np.all(core.indices % 3 != 0)
    assert core.size == 200
    assert core.weights.sum() == pytest.approx(w.sum(), rel=1e-12)
    ratios = core.weights / w[core.indices]
    for c in (0, 1):
        assert np.ptp(ratios[y[core.indices] == c]) < 1e-9
    with pytest.raises(CoresiftError, match="KNeighborsClassifier takes none"):
        CoresetClassifier(KNeighborsClassifier()).fit(X, y, sample_weight=w)


def test_a_model_that_takes_no_weights_gets_an_even_draw():
    X, y = classes()
    model = CoresetClassifier(KNeighborsClassifier(), size=0.1, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.coreset_.weights, 10.0, rtol=0.01)
    assert "takes no sample_weight" in model.rule_
    X, t = numbers()
    drawn = CoresetRegressor(KNeighborsRegressor(), size=0.1, random_state=0).fit(X, t).coreset_
    assert drawn.method == "uniform"
    np.testing.assert_allclose(drawn.weights, 10.0, rtol=1e-12)
    piped = CoresetRegressor(make_pipeline(StandardScaler(), Ridge()), size=0.1, random_state=0).fit(X, t)
    assert "takes no sample_weight" in piped.rule_


def test_delegation():
    X, y = classes()
    model = CoresetClassifier(LogisticRegression(), random_state=0)
    assert hasattr(model, "predict_proba")
    assert hasattr(model, "decision_function")
    assert not hasattr(CoresetClassifier(SVC()), "predict_proba")
    assert not hasattr(CoresetClassifier(RandomForestClassifier()), "decision_function")
    for name in ("classes_", "n_features_in_", "feature_names_in_", "coreset_", "certificate_", "estimator_"):
        assert not hasattr(model, name)
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.fit(X, y)
    for name in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        np.testing.assert_array_equal(getattr(model, name)(X), getattr(model.estimator_, name)(X))
    assert model.score(X, y) == model.estimator_.score(X, y)
    assert model.n_features_in_ == 4
    assert is_classifier(model)
    assert is_regressor(CoresetRegressor(Ridge()))


def test_the_score_is_that_of_the_model():
    """PoissonRegressor scores by deviance, and not by the coefficient of determination."""
    X, t = numbers()
    counts = np.random.default_rng(0).poisson(np.exp(0.3 * t))
    model = CoresetRegressor(PoissonRegressor(), random_state=0).fit(X, counts)
    w = np.linspace(0, 1, 3000)
    assert model.score(X, counts, sample_weight=w) == model.estimator_.score(X, counts, sample_weight=w)


def test_a_model_that_validates_inside_gets_an_even_draw():
    """Its folds are scored without weights, so rows of unequal weight would mislead it."""
    X, y = classes()
    inner = LogisticRegressionCV(Cs=2, cv=2, l1_ratios=(0,), use_legacy_attributes=False, scoring="accuracy")
    assert CoresetClassifier(inner).fit(X, y).coreset_.method == "stratified"


def test_polars():
    polars = pytest.importorskip("polars")
    X, y = classes()
    model = CoresetClassifier(LogisticRegression(), random_state=0)
    model.fit(polars.DataFrame(X, schema=list("abcd")), polars.Series(y))
    plain = CoresetClassifier(LogisticRegression(), random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.coreset_.indices, plain.coreset_.indices)


def test_frames_keep_their_names():
    X, y = classes()
    frame = pd.DataFrame(X, columns=list("abcd"), index=np.arange(3000)[::-1])
    model = CoresetClassifier(LogisticRegression(), random_state=0)
    model.fit(frame, pd.Series(np.where(y == 1, "yes", "no"), index=frame.index))
    assert model.feature_names_in_.tolist() == list("abcd")
    plain = CoresetClassifier(LogisticRegression(), random_state=0).fit(X, np.where(y == 1, "yes", "no"))
    np.testing.assert_array_equal(plain.coreset_.indices, model.coreset_.indices)
    np.testing.assert_allclose(plain.decision_function(X), model.decision_function(frame), rtol=1e-9)
    model.fit(X, y)
    assert not hasattr(model, "feature_names_in_")


def test_columns_that_only_the_model_understands():
    """Missing values and categories pass through to a model that takes them."""
    X, y = classes()
    letters = pd.Categorical(np.where(X[:, 1] > 0, "u", "v"))
    frame = pd.DataFrame({"x": np.where(X[:, 0] > 1, np.nan, X[:, 0]), "c": letters})
    boosted = HistGradientBoostingClassifier(max_iter=5, categorical_features="from_dtype")
    model = CoresetClassifier(boosted, size=0.2, random_state=0).fit(frame, y)
    assert model.score(frame, y) > 0.5


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix, sp.coo_array, sp.csc_array])
@pytest.mark.parametrize("estimator", [LogisticRegression(), DecisionTreeClassifier(random_state=0)])
def test_sparse(kind, estimator):
    X, y = classes()
    X = np.where(X > 0.5, X, 0.0)
    dense, sparse = (CoresetClassifier(estimator, random_state=0).fit(given, y) for given in (X, kind(X)))
    assert sparse.coreset_.method == dense.coreset_.method
    assert sparse.score(sp.csr_array(X), y) == pytest.approx(dense.score(X, y), abs=0.03)


def test_pipeline_grid_search_and_cross_validation():
    X, y = classes()
    inner = CoresetClassifier(LogisticRegression(), size=0.1, random_state=0)
    piped = Pipeline([("units", StandardScaler()), ("model", inner)])
    grid = {"model__estimator__C": [1e-4, 1.0], "model__size": [4, 200]}
    search = GridSearchCV(piped, grid, cv=2, scoring="neg_log_loss").fit(X, y)
    assert search.best_params_["model__estimator__C"] == 1.0
    best = search.best_estimator_["model"]
    assert best.coreset_.size == 200
    assert best.estimator_.C == 1.0
    scores = cross_val_score(inner, X, y, cv=3)
    full = cross_val_score(LogisticRegression(), X, y, cv=3)
    np.testing.assert_allclose(scores, full, atol=0.03)
    calibrated = CalibratedClassifierCV(CoresetClassifier(LinearSVC(), random_state=0), cv=2).fit(X, y)
    assert calibrated.score(X, y) > full.min() - 0.03
    X, t = numbers()
    assert cross_val_score(CoresetRegressor(Ridge(), random_state=0), X, t).min() > 0.8


def test_clone_and_pickle():
    X, y = classes()
    model = CoresetClassifier(LogisticRegression(C=0.5), size=200, random_state=3).fit(X, y)
    fresh = clone(model)
    assert fresh.get_params()["estimator__C"] == 0.5
    assert fresh.size == 200
    assert not hasattr(fresh, "estimator_")
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert len(pickle.dumps(model)) < X.nbytes / 2  # without the data


def test_weights_are_routed():
    X, y = classes()
    w = np.where(X[:, 0] > 0, 1.0, 0.0)
    with sklearn.config_context(enable_metadata_routing=True):
        inner = CoresetClassifier(Recorder(), random_state=0)
        with pytest.raises(ValueError, match="not explicitly set as requested or not requested"):
            GridSearchCV(inner, {"size": [0.2]}, cv=2).fit(X, y, sample_weight=w)
        asked = inner.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(asked, {"size": [0.2]}, cv=2, error_score="raise").fit(X, y, sample_weight=w)
        assert np.all(X[search.best_estimator_.coreset_.indices, 0] > 0)
        units = StandardScaler().set_fit_request(sample_weight=True)
        piped = make_pipeline(units, asked).fit(X, y, sample_weight=w)
        assert np.all(X[piped[-1].coreset_.indices, 0] > 0)
    piped = make_pipeline(StandardScaler(), inner).fit(X, y, coresetclassifier__sample_weight=w)
    assert np.all(X[piped[-1].coreset_.indices, 0] > 0)


def test_other_metadata_goes_to_the_model():
    X, y = classes()
    groups = np.arange(3000)
    with pytest.raises(CoresiftError, match=r"groups only with .*enable_metadata_routing"):
        CoresetClassifier(Recorder()).fit(X, y, groups=groups)
    with sklearn.config_context(enable_metadata_routing=True):
        model = CoresetClassifier(Recorder().set_fit_request(groups=True, note=True), random_state=0)
        model.fit(X, y, groups=groups, note="as it is")
        np.testing.assert_array_equal(model.estimator_.groups_, model.coreset_.indices)
        assert model.estimator_.note_ == "as it is"
        with pytest.raises(ValueError, match="groups"):
            CoresetClassifier(Recorder()).fit(X, y, groups=groups)


def test_a_pipeline_inside_takes_weights_by_routing():
    X, y = classes()
    with sklearn.config_context(enable_metadata_routing=True):
        steps = StandardScaler().set_fit_request(sample_weight=True), Recorder().set_fit_request(sample_weight=True)
        model = CoresetClassifier(make_pipeline(*steps), random_state=0).fit(X, y)
        np.testing.assert_allclose(model.estimator_[-1].weights_, model.coreset_.take(weights="mean")[-1])


def test_several_outputs_are_drawn_uniformly():
    X, t = numbers()
    model = CoresetRegressor(Ridge(), random_state=0).fit(X, np.column_stack([t, -t]))
    assert model.coreset_.method == "uniform"
    assert model.predict(X).shape == (3000, 2)
    labels = np.column_stack([t > 0, t > 1]).astype(int)
    model = CoresetClassifier(DecisionTreeClassifier(), random_state=0).fit(X, labels)
    assert model.coreset_.method == "uniform"
    assert model.predict(X).shape == (3000, 2)


def test_a_kernel_matrix_keeps_all_rows():
    X, y = classes(1200)
    model = CoresetClassifier(SVC(kernel="precomputed"), random_state=0).fit(X @ X.T, y)
    assert model.coreset_.size == 1200
    assert "a column for each" in model.rule_


def test_a_fit_that_fails_leaves_the_model_as_it_was():
    X, y = classes()
    model = CoresetClassifier(LogisticRegression(), random_state=0).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match=r"feature|column"):
        model.fit(X[:, :0], y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, y[:-1])
    np.testing.assert_array_equal(model.predict(X), before)


def skewed(n=6000, d=5, seed=0):
    """Few rows of large influence: what a uniform draw misses."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(3, size=(n, d))
    z = X @ np.linspace(1, -1, d) - 2
    return X, z, rng


LINEAR = {
    "logistic": (LogisticRegression(C=0.5, tol=1e-8), "logistic loss"),
    "balanced": (LogisticRegression(C=0.5, tol=1e-8, class_weight="balanced"), "logistic loss"),
    "class weights": (LogisticRegression(C=0.5, tol=1e-8, class_weight={"yes": 5, "no": 0.5}), "logistic loss"),
    "squared hinge": (LinearSVC(tol=1e-8, dual=False), "squared_hinge loss"),
    "ridge classifier": (RidgeClassifier(), "squared loss"),
    "sgd": (SGDClassifier(loss="log_loss", alpha=0.1, average=True, random_state=0), "alpha = 0.1"),
    "ridge": (Ridge(100.0), "squared loss"),
    "least squares": (LinearRegression(), "alpha = 0"),
    "poisson": (PoissonRegressor(alpha=1e-3, tol=1e-8), "poisson loss, alpha = 0.001"),
    "sgd regressor": (SGDRegressor(alpha=0.1, average=True, random_state=0), "squared loss, alpha = 0.1"),
}


@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_model_is_closer_to_the_full_fit_than_on_a_uniform_draw(name):
    """Coefficients, in the units of their size; a wrong penalty on the coreset shows, as it is not small."""
    estimator, rule = LINEAR[name]
    X, z, rng = skewed()
    if is_classifier(estimator):
        y = np.where(z > 2 * rng.logistic(size=len(z)), "yes", "no")
        wrap = CoresetClassifier
    else:
        y = rng.poisson(np.exp(np.clip(z / 4, -5, 2))) if name == "poisson" else z + rng.standard_t(3, size=len(z))
        wrap = CoresetRegressor
    full = clone(estimator).fit(X, y).coef_
    ours, uniform = [], []
    for seed in range(4):
        model = wrap(estimator, size=400, random_state=seed).fit(X, y)
        assert rule in model.rule_
        assert model.coreset_.method == "two-step"
        assert model.coreset_.size == 400
        has_class_weight = getattr(estimator, "class_weight", None) is not None
        assert model.coreset_.weights.sum() == pytest.approx(6000, rel=0.1 if has_class_weight else 1e-9)
        ours.append(np.linalg.norm(model.estimator_.coef_ - full))
        some = np.random.default_rng(seed).choice(6000, 400, replace=False)
        given = np.full(400, 1.0 if "sgd" in name else 15.0)
        uniform.append(np.linalg.norm(clone(estimator).fit(X[some], y[some], sample_weight=given).coef_ - full))
    assert np.mean(ours) < np.mean(uniform) / (3 if "sgd" in name else 20)  # SGD does not reach the minimum


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(l1_ratio=1, solver="liblinear"),
        LinearSVC(loss="hinge", C=1e-3, max_iter=20_000),
        SGDClassifier(random_state=0),
        Lasso(0.1),
        ElasticNet(0.1),
        HuberRegressor(),
    ],
)
def test_rows_for_a_loss_that_is_not_covered_are_drawn_evenly(estimator):
    X, z, _ = skewed(2000)
    wrap, y = (CoresetClassifier, z > 0) if is_classifier(estimator) else (CoresetRegressor, z)
    model = wrap(estimator, size=400, random_state=0).fit(X, y)
    kind = "stratified" if is_classifier(estimator) else "uniform"
    assert model.rule_ == f"{kind} draw: {type(estimator).__name__} is not a linear model of a known loss"
    assert model.coreset_.method == kind


def test_the_refit_agrees_with_the_fit_of_the_coreset():
    """The penalty means the same: C sum v l + |w|^2 / 2 with weights that sum to n."""
    X, z, rng = skewed()
    y = (z > 2 * rng.logistic(size=len(z))).astype(int)
    model = CoresetClassifier(
        LogisticRegression(C=0.01, tol=1e-10, solver="newton-cholesky"), size=400, random_state=0
    ).fit(X, y)
    maker = LinearCoreset("logistic", alpha=1 / (0.01 * 6000), random_state=5).fit(X, y)
    again = maker.sample(400, random_state=model.coreset_.seed)
    np.testing.assert_array_equal(again.indices, model.coreset_.indices)
    coef, intercept = maker.model_
    np.testing.assert_allclose(model.estimator_.coef_, coef, atol=1e-5)
    np.testing.assert_allclose(model.estimator_.intercept_, intercept, atol=1e-5)
    Xs, ys, ws = model.coreset_.take(X, y)
    other = clone(model.estimator).fit(Xs, ys, ws / ws.mean())  # weights that sum to the size: another penalty
    assert np.abs(other.coef_ - coef).max() > 0.01
    ridge = CoresetRegressor(Ridge(3000.0), size=400, random_state=0).fit(X, z + rng.normal(size=len(z)))
    assert "alpha = 0.5" in ridge.rule_


def test_weights_and_zero_weights_of_a_linear_model():
    X, z, rng = skewed()
    y = (z > 2 * rng.logistic(size=len(z))).astype(int)
    w = rng.exponential(size=len(z))
    w[::2] = 0.0
    X[::2], y[1] = np.nan, 0  # rows without weight are not seen
    with pytest.raises(ValueError, match="NaN"):
        CoresetClassifier(LogisticRegression(), size=400).fit(X, y, sample_weight=w)
    X[::2] = 100.0
    model = CoresetClassifier(LogisticRegression(tol=1e-8), size=400, random_state=0).fit(X, y, sample_weight=w)
    full = LogisticRegression(tol=1e-8).fit(X, y, sample_weight=w)
    assert np.all(model.coreset_.indices % 2 == 1)
    np.testing.assert_allclose(model.estimator_.coef_, full.coef_, atol=0.02)


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(tol=1e-6),
        LinearSVC(),
        RidgeClassifier(),
        SGDClassifier(alpha=0.01, average=True, random_state=0),
    ],
)
def test_several_classes(estimator):
    X, y = classes(4000, n_classes=4)
    names = np.array(["d", "c", "b", "a"])[y]
    model = CoresetClassifier(estimator, size=600, random_state=0).fit(X, names)
    assert model.classes_.tolist() == ["a", "b", "c", "d"]
    is_logistic = type(estimator) is LogisticRegression  # the only one whose loss has a form for several classes
    assert ("two-step draw for the logistic loss" if is_logistic else "stratified draw") in model.rule_
    assert model.score(X, names) > clone(estimator).fit(X, names).score(X, names) - 0.02
    assert model.coreset_.weights.sum() == pytest.approx(4000)
    assert (model.certificate_ is None) == (not is_logistic)


def test_the_certificate_is_found_when_asked_for():
    X, z, rng = skewed()
    y = (z > 2 * rng.logistic(size=len(z))).astype(int)
    w = rng.exponential(size=len(z))
    model = CoresetClassifier(LogisticRegression(tol=1e-8), size=400, random_state=0).fit(X, y, sample_weight=w)
    bare = pickle.loads(pickle.dumps(model))
    found = model.certificate_
    full = LogisticRegression(tol=1e-10).fit(X, y, sample_weight=w)

    def objective(fitted):
        margins = (2 * y - 1) * fitted.decision_function(X)
        return (w @ np.logaddexp(0, -margins) + 0.5 * (fitted.coef_**2).sum()) / w.sum()

    excess = objective(model.estimator_) - objective(full)
    assert found.objective == pytest.approx(objective(model.estimator_), rel=1e-10)
    assert excess <= found.excess < 2 * excess + 1e-6
    assert found.relative < 1e-3
    assert model.certificate_ is found
    assert pickle.loads(pickle.dumps(model)).certificate_ == found
    with pytest.raises(AttributeError, match="needs the data"):
        _ = bare.certificate_
    assert CoresetClassifier(DecisionTreeClassifier()).fit(X, y).certificate_ is None
    few = CoresetClassifier(LogisticRegression(tol=1e-8)).fit(X[:500], y[:500])
    assert few.certificate_.relative < 1e-6


def test_a_balanced_model_is_certified_with_the_weights_of_all_rows():
    X, z, rng = skewed()
    y = (z > 3 + 2 * rng.logistic(size=len(z))).astype(int)
    estimator = LogisticRegression(C=0.1, tol=1e-8, class_weight="balanced")
    model = CoresetClassifier(estimator, size=400, random_state=0).fit(X, y)
    assert model.certificate_.relative < 1e-3
    assert model.estimator.class_weight == "balanced"
    assert model.estimator_.class_weight == pytest.approx({c: 3000 / np.sum(y == c) for c in (0, 1)})
    with pytest.raises(CoresiftError, match="every class needs a weight above 0"):
        CoresetClassifier(LogisticRegression(class_weight={0: 0}), size=400).fit(X, y)


def test_small_sizes_of_linear_models(caplog):
    X, y = classes(d=30)
    model = CoresetClassifier(LogisticRegression(), size=12, random_state=0).fit(X, y)
    assert model.coreset_.size == 12
    assert "not calibrated" in caplog.text
    wide = np.random.default_rng(0).normal(size=(1100, 1001))
    model = CoresetClassifier(LogisticRegression(max_iter=5000), random_state=0).fit(wide, wide[:, 0] > 0)
    assert model.rule_ == "stratified draw: LogisticRegression has too many parameters for the size"


@pytest.mark.parametrize(("estimator", "y", "message"), [
    (PoissonRegressor(), -np.ones(1500), "below 0"),
    (Ridge(), np.full(1500, np.inf), "y contains infinity"),
    (Ridge(), np.full(1500, "a"), "y"),
])  # fmt: skip
def test_bad_targets(estimator, y, message):
    with pytest.raises(CoresiftError, match=message):
        CoresetRegressor(estimator).fit(np.ones((1500, 2)) * np.arange(1500)[:, None], y)


def test_bad_labels():
    X, y = classes()
    with pytest.raises(CoresiftError, match=r"the label is always 0\.0: 1 class, but at least 2 are needed"):
        CoresetClassifier(LogisticRegression()).fit(X, np.zeros(3000))
    with pytest.raises(CoresiftError, match="NaN"):
        CoresetClassifier(LogisticRegression()).fit(X, np.where(y == 1, np.nan, 0.0))
    with pytest.raises(CoresiftError, match="Unknown label type"):
        CoresetClassifier(LogisticRegression()).fit(X, X[:, 0])


def test_bad_estimators():
    X, y = classes()
    for estimator in (None, LogisticRegression, "logistic"):
        with pytest.raises(CoresiftError, match="must be a classifier"):
            CoresetClassifier(estimator).fit(X, y)
    with pytest.raises(CoresiftError, match="is not a classifier"):
        CoresetClassifier(Ridge()).fit(X, y)
    with pytest.raises(CoresiftError, match="is not a regressor"):
        CoresetRegressor(LogisticRegression()).fit(X, y)


@pytest.mark.parametrize("C", [-1.0, 0, "large", None])
def test_bad_parameters_are_refused_by_the_model(C):
    X, y = classes()
    with pytest.raises(ValueError, match="'C' parameter of LogisticRegression"):
        CoresetClassifier(LogisticRegression(C=C)).fit(X, y)
