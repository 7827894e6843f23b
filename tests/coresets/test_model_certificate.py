"""Certificates of fitted linear models: every estimator, the problem that it solves, and bad input."""

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import (
    ElasticNet,
    HuberRegressor,
    Lasso,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    Perceptron,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    RidgeCV,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC, LinearSVR

from coresift import (
    InvalidInputError,
    InvalidTypeError,
    LinearModel,
    ModelCertificate,
    certify_model,
    fit_model,
    open_rows,
)
from coresift.coresets.fitting import Runner
from coresift.coresets.linear_rows import linear_rows
from coresift.coresets.model_certificate import certify_linear
from coresift.rows.engines import open_engine

RNG = np.random.default_rng(0)
N, D = 600, 4
X = RNG.normal(size=(N, D)) * [1.0, 3.0, 0.2, 1.0] + [0.0, 5.0, 1.0, -2.0]
Z = (X - X.mean(axis=0)) @ [1.0, -0.4, 2.0, 0.5] - 0.5
BINARY = np.where(Z + RNG.logistic(size=N) > 0, "yes", "no")
MULTI = np.argmax(np.outer(Z, [1.0, -1.0, 0.0]) + RNG.gumbel(size=(N, 3)), axis=1) + 5
TARGET = Z + RNG.normal(size=N) + 30.0
COUNTS = RNG.poisson(np.exp(np.clip(Z, -4, 3)))
WEIGHTS = RNG.choice([0.0, 0.5, 1.0, 4.0], size=N)
EXACT = {"tol": 1e-10, "max_iter": 10_000}

FITTED_TO_THE_END = [
    (LogisticRegression(**EXACT), BINARY),
    (LogisticRegression(C=0.01, class_weight="balanced", **EXACT), BINARY),
    (LogisticRegression(fit_intercept=False, class_weight={"yes": 3.0}, **EXACT), BINARY),
    (LogisticRegression(solver="liblinear", intercept_scaling=2.0, **EXACT), BINARY),
    (LogisticRegression(solver="newton-cholesky", **EXACT), MULTI),
    (LogisticRegressionCV(Cs=3, cv=3, **EXACT), BINARY),
    (LinearSVC(dual=False, **EXACT), BINARY),
    (LinearSVC(dual=False, intercept_scaling=5.0, C=0.01, class_weight="balanced", **EXACT), BINARY),
    (LinearSVC(dual=False, fit_intercept=False, **EXACT), BINARY),
    (Ridge(3.0), TARGET),
    (Ridge(0.0), TARGET),
    (RidgeCV(), TARGET),
    (RidgeClassifier(10.0, class_weight={"no": 2.0}), BINARY),
    (LinearRegression(), TARGET),
    (LinearRegression(fit_intercept=False), TARGET),
    (PoissonRegressor(alpha=0.1, **EXACT), COUNTS),
    (PoissonRegressor(alpha=0.1, fit_intercept=False, **EXACT), COUNTS),
]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("model, y", FITTED_TO_THE_END, ids=lambda value: getattr(type(value), "__name__", ""))
def test_a_model_fitted_to_the_end_is_certified_to_the_last_digits(model, y, weights):
    """Any error in loss, penalty, weights or intercept would leave a gap of percents."""
    certificate = certify_model(model.fit(X, y, sample_weight=weights), X, y, sample_weight=weights)
    assert 0 <= certificate.relative < 1e-9
    assert certificate.objective - certificate.lower_bound <= certificate.excess
    assert certificate.found <= certificate.excess
    assert certificate.n_passes <= 3


@pytest.mark.parametrize(
    "model, y",
    [
        (SGDClassifier(loss="log_loss", alpha=0.01, random_state=0), BINARY),
        (SGDClassifier(loss="squared_hinge", alpha=0.1, eta0=1e-3, learning_rate="invscaling", random_state=0), BINARY),
        (SGDClassifier(loss="squared_error", alpha=0.1, eta0=1e-3, learning_rate="invscaling", random_state=0), BINARY),
        (SGDRegressor(alpha=0.1, eta0=1e-3, random_state=0), TARGET),
        (SGDRegressor(loss="huber", epsilon=0.5, alpha=0.1, random_state=0), TARGET),
    ],
    ids=lambda value: getattr(value, "loss", ""),
)
def test_stochastic_gradient_descent(model, y):
    model.set_params(max_iter=200, tol=None)
    certificate = certify_model(
        model.fit((X - X.mean(axis=0)) / X.std(axis=0), y), (X - X.mean(axis=0)) / X.std(axis=0), y
    )
    assert 0 < certificate.found <= certificate.excess <= 1.1 * certificate.found + 1e-12
    assert certificate.relative < 0.2


def test_the_objective_is_that_of_the_estimators():
    certificate = certify_model(Ridge(3.0).fit(X, TARGET), X, TARGET)
    ridge = Ridge(3.0).fit(X, TARGET)
    expected = (np.sum((TARGET - ridge.predict(X)) ** 2) + 3.0 * np.sum(ridge.coef_**2)) / (2 * N)
    assert certificate.objective == pytest.approx(expected, rel=1e-12)
    assert certificate.alpha == pytest.approx(3.0 / N)
    svc = LinearSVC(C=0.5, intercept_scaling=2.0, dual=False).fit(X, BINARY)
    margins = np.where(BINARY == "yes", 1, -1) * svc.decision_function(X)
    penalty = 0.5 * (np.sum(svc.coef_**2) + (svc.intercept_[0] / 2.0) ** 2)
    expected = (0.5 * np.sum(np.maximum(0, 1 - margins) ** 2) + penalty) / (0.5 * N)
    assert certify_model(svc, X, BINARY).objective == pytest.approx(expected, rel=1e-12)


def test_against_another_solver():
    """SciPy minimises the multinomial loss with its own derivatives; the excess of a sample's fit is as it says."""
    part = LogisticRegression(C=1.0).fit(X[:100], MULTI[:100])
    y = MULTI - 5

    def objective(flat):
        theta = flat.reshape(3, D + 1)
        z = X @ theta[:, :D].T + theta[:, D]
        losses = np.logaddexp.reduce(z, axis=1) - z[np.arange(N), y]
        return losses.mean() + 0.5 * 1e-3 * np.sum(theta[:, :D] ** 2)

    best = minimize(objective, np.zeros(3 * (D + 1)), method="BFGS", options={"gtol": 1e-7}).fun
    certificate = certify_model(part, X, MULTI, alpha=1e-3)
    true = objective(np.column_stack([part.coef_, part.intercept_]).ravel()) - best
    assert true - 1e-9 <= certificate.excess <= 1.1 * true
    assert certificate.relative == pytest.approx(certificate.excess / certificate.lower_bound)
    assert certificate.lower_bound <= best + 1e-9


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_models_fitted_to_a_part_of_the_rows(share):
    part = slice(0, int(share * N))
    model = LogisticRegression(C=1e3 / N, **EXACT).fit(X[part], BINARY[part])
    full = LogisticRegression(C=1e3 / N, **EXACT).fit(X, BINARY)
    certificate = certify_model(model, X, BINARY)
    true = certificate.objective - certify_model(full, X, BINARY).objective
    assert true <= certificate.excess <= 1.1 * true + 1e-12


def test_a_pair_of_coefficients_and_intercept():
    model = LogisticRegression(**EXACT).fit(X, BINARY)
    known = certify_model(model, X, BINARY)
    for pair in ((model.coef_, model.intercept_), (model.coef_[0], model.intercept_[0])):
        given = certify_model(pair, X, BINARY, loss="logistic", alpha=1.0 / N)
        assert given.objective == known.objective
        assert given.excess == pytest.approx(known.excess, abs=1e-12)
    flipped = certify_model((-model.coef_[0], -model.intercept_[0]), X, BINARY, loss="logistic", alpha=1.0 / N)
    assert flipped.relative > 0.1
    none = LogisticRegression(fit_intercept=False, **EXACT).fit(X, BINARY)
    assert certify_model((none.coef_, None), X, BINARY, loss="logistic", alpha=1.0 / N).relative < 1e-9
    assert certify_model((none.coef_, 0.0), X, BINARY, loss="logistic", alpha=1.0 / N).relative > 1e-6
    huber = certify_model((np.zeros(D), 30.0), X, TARGET, loss="huber", alpha=0.1, threshold=1.5)
    assert 0 < huber.found <= huber.excess <= 1.1 * huber.found


def test_constant_and_collinear_columns_zero_weights_and_single_precision():
    wide = np.column_stack([X, np.full(N, 7.0), np.zeros(N), X[:, 0], X[:, 0] + 1e-10 * X[:, 1]]).astype(np.float32)
    model = LogisticRegression(**EXACT).fit(wide.astype(float), BINARY, sample_weight=WEIGHTS)
    assert certify_model(model, wide, BINARY, sample_weight=WEIGHTS).relative < 1e-9
    with pytest.raises(InvalidInputError, match="depend on each other"):
        certify_model(LinearRegression().fit(wide, TARGET), wide, TARGET)


def test_a_penalty_that_underflows_proves_nothing():
    huge = X * [1e135, 1.0, 1.0, 1.0]
    found = certify_model((np.zeros(D), 0.0), huge, BINARY, loss="logistic", alpha=1e-60)
    assert found.lower_bound == 0
    assert found.excess >= found.objective


def test_sparse_rows_and_frames_say_the_same():
    masked = np.where(np.abs(X) > 1.0, X, 0.0)
    model = LogisticRegression(C=0.1).fit(masked, BINARY)
    dense = certify_model(model, masked, BINARY)
    sparse = certify_model(model, sp.csr_matrix(masked), BINARY)
    assert sparse.excess == pytest.approx(dense.excess, rel=0.1, abs=1e-12)
    frame = pd.DataFrame(masked, columns=list("abcd"))
    assert certify_model(LogisticRegression(C=0.1).fit(frame, BINARY), frame, BINARY) == dense


def test_many_parameters_without_a_hessian():
    rng = np.random.default_rng(5)
    wide = rng.normal(size=(300, 700)) / 20
    y = np.argmax(wide[:, :3] + rng.gumbel(size=(300, 3)), axis=1)
    model = LogisticRegression(C=1.0, tol=1e-2).fit(wide, y)
    better = LogisticRegression(C=1.0, **EXACT).fit(wide, y)
    certificate = certify_model(model, wide, y)
    true = certificate.objective - certify_model(better, wide, y).objective
    assert true <= certificate.excess <= 2 * true


def test_files_and_workers_say_the_same_as_memory(tmp_path):
    n = 60_000
    rng = np.random.default_rng(1)
    big = rng.normal(size=(n, 8))
    label = (big[:, 0] + rng.logistic(size=n) > 1).astype(np.int64)
    half = n // 2
    columns = [f"c{i}" for i in range(8)]
    for part, rows in enumerate((slice(0, half), slice(half, n))):
        frame = pd.DataFrame(big[rows], columns=columns).assign(y=label[rows])
        frame.to_parquet(tmp_path / f"{part}.parquet", row_group_size=10_000)
    model = LogisticRegression(C=1e-3).fit(pd.DataFrame(big[:2000], columns=columns), label[:2000])
    memory = certify_model(model, big, label)
    stored = open_rows(tmp_path, label="y")
    assert certify_model(model, stored) == memory
    with open_engine("local", stored, 2) as engine:
        rows = linear_rows(stored, None, is_classifier=True, runner=Runner(stored, engine))
        problem = rows.problem(rows.loss("logistic"), 1e3 / n)
        workers = certify_linear(rows, problem, problem.from_data(model.coef_, model.intercept_))
    assert workers.excess == memory.excess
    assert workers.n_passes == memory.n_passes - 1  # the survey was made before


def test_searches_and_meta_estimators_are_looked_into():
    search = GridSearchCV(LogisticRegression(**EXACT), {"C": [0.1, 1.0]}, cv=2).fit(X, BINARY)
    assert certify_model(search, X, BINARY) == certify_model(search.best_estimator_, X, BINARY)


def test_it_describes_itself():
    certificate = certify_model(LogisticRegression(C=0.01).fit(X[:300], BINARY[:300]), X, BINARY)
    assert isinstance(certificate, ModelCertificate)
    text = f"At most {100 * certificate.relative:.2g} % above the smallest possible loss; proved, in 3 passes."
    assert str(certificate) == text
    far = certify_model((np.full(D, 300.0), 0.0), X, COUNTS, loss="poisson", alpha=0.1)
    assert far.excess == np.inf
    assert far.relative == np.inf
    assert "nothing can be proved" in str(far)
    perfect = certify_model((np.zeros(D), 0.0), X, np.zeros(N), loss="squared", alpha=0.1)
    assert (perfect.excess, perfect.relative) == (0.0, 0.0)


@pytest.mark.parametrize(
    "model, y, message",
    [
        (LogisticRegression(l1_ratio=0.5, solver="saga", max_iter=10_000), BINARY, "L1 penalty"),
        (LogisticRegression(C=np.inf), BINARY, "alpha = 0"),
        (LinearSVC(loss="hinge", max_iter=100_000), BINARY, "loss='hinge'"),
        (LinearSVC(dual=False), MULTI, "each class against the rest"),
        (RidgeClassifier(), MULTI, "each class against the rest"),
        (Ridge(positive=True), TARGET, "positive=True"),
        (PoissonRegressor(alpha=0.0), COUNTS, "alpha = 0"),
        (SGDClassifier(loss="hinge"), BINARY, "'hinge'"),
        (SGDClassifier(loss="log_loss"), MULTI, "each class against the rest"),
        (SGDRegressor(penalty="l1"), TARGET, "L1 penalty"),
        (HuberRegressor(max_iter=1000), TARGET, "HuberRegressor.*scale"),
        (Lasso(), TARGET, "Lasso.*L1"),
        (ElasticNet(), TARGET, "ElasticNet.*L1"),
        (LinearSVR(loss="squared_epsilon_insensitive", dual=False), TARGET, "LinearSVR"),
        (Perceptron(), BINARY, "Perceptron"),
        (SVC(kernel="rbf"), BINARY, "no coef_"),
        (make_pipeline(StandardScaler(), LogisticRegression()), BINARY, re.escape("pipeline[:-1].transform(X)")),
    ],
    ids=lambda value: getattr(type(value), "__name__", "")[:12],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_cannot_be_certified_is_refused_by_name(model, y, message):
    with pytest.raises(InvalidInputError, match=message):
        certify_model(model.fit(X, y), X, y)


def test_bad_input():
    model = LogisticRegression().fit(pd.DataFrame(X, columns=list("abcd")), BINARY)
    with pytest.raises(InvalidInputError, match="3 columns, but the model was fitted on 4"):
        certify_model(model, X[:, :3], BINARY)
    with pytest.raises(InvalidInputError, match="column 0 is 'b', but the model was fitted on 'a'"):
        certify_model(model, pd.DataFrame(X, columns=list("bacd")), BINARY)
    with pytest.raises(InvalidInputError, match="labels are 'no', 'x', but the classes of the model are 'no', 'yes'"):
        certify_model(model, X, np.where(BINARY == "yes", "x", "no"))
    with pytest.raises(InvalidInputError, match="always 'no'"):
        certify_model(model, X, np.full(N, "no"))
    with pytest.raises(InvalidInputError, match="below 0"):
        certify_model(PoissonRegressor().fit(X, COUNTS), X, COUNTS - 1)
    with pytest.raises(InvalidInputError, match="not fitted"):
        certify_model(LogisticRegression(), X, BINARY)
    with pytest.raises(InvalidTypeError, match="fitted linear model or a pair"):
        certify_model("model", X, BINARY)
    with pytest.raises(InvalidInputError, match="does not say loss and alpha"):
        certify_model((np.zeros(D), 0.0), X, BINARY)
    with pytest.raises(InvalidInputError, match="give both, or neither"):
        certify_model(model, X, BINARY, loss="squared_hinge")
    with pytest.raises(InvalidInputError, match="needs threshold"):
        certify_model((np.zeros(D), 0.0), X, TARGET, loss="huber", alpha=1.0)
    with pytest.raises(InvalidInputError, match="tuple of 3"):
        certify_model((np.zeros(D), 0.0, 1.0), X, TARGET, loss="squared", alpha=1.0)
    with pytest.raises(InvalidInputError, match="NaN"):
        certify_model((np.full(D, np.nan), 0.0), X, TARGET, loss="squared", alpha=1.0)
    with pytest.raises(InvalidInputError, match="intercept"):
        certify_model((np.zeros(D), [0.0, 1.0]), X, TARGET, loss="squared", alpha=1.0)
    with pytest.raises(InvalidInputError, match="alpha = -1"):
        certify_model((np.zeros(D), 0.0), X, TARGET, loss="squared", alpha=-1)
    with pytest.raises(InvalidInputError, match="2 columns; one target"):
        certify_model(Ridge().fit(X, np.column_stack([TARGET, TARGET])), X, np.column_stack([TARGET, TARGET]))
    with pytest.raises(InvalidInputError, match="2 rows of coefficients"):
        certify_model(Ridge().fit(X, np.column_stack([TARGET, TARGET])), X, TARGET)


def dense(loss, A, y, w, alpha, theta):
    """Objective (in extended precision), gradient and Hessian, written out once more; the last column is free."""
    z, sign, kept = A @ theta, np.where(y == 1, 1.0, -1.0), np.append(np.ones(A.shape[1] - 1), 0.0)
    wide = np.asarray(A, np.longdouble) @ np.asarray(theta, np.longdouble)
    if loss == "logistic":
        value, p = np.logaddexp(0, -sign * wide), 1 / (1 + np.exp(-z))
        slope, bend = p - (y == 1), p * (1 - p)
    elif loss == "squared_hinge":
        value, short = np.maximum(0, 1 - sign * wide) ** 2, np.maximum(0, 1 - sign * z)
        slope, bend = -2 * sign * short, 2.0 * (short > 0)
    elif loss == "poisson":
        value = np.exp(wide) - y * wide + np.where(y > 0, y * np.log(np.maximum(y, 1)) - y, 0)
        slope, bend = np.exp(z) - y, np.exp(z)
    else:
        size, near = np.abs(wide - y), np.minimum(np.abs(wide - y), 0.7 if loss == "huber" else np.inf)
        value, limit = near * (size - near / 2), 0.7 if loss == "huber" else np.inf
        slope, bend = np.clip(z - y, -limit, limit), 1.0 * (np.abs(z - y) <= limit)
    F = (w @ value) / w.sum() + alpha / 2 * np.sum(kept * np.asarray(theta, np.longdouble) ** 2)
    gradient = A.T @ (w * slope) / w.sum() + alpha * kept * theta
    return F, gradient, A.T @ (A * (w * bend)[:, None]) / w.sum() + alpha * np.diag(kept)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    loss=st.sampled_from(["logistic", "squared", "squared_hinge", "poisson", "huber"]),
    alpha=st.sampled_from([1e-4, 1e-2, 1.0]),
    distance=st.sampled_from([1e-6, 1e-3, 0.1, 1.0]),
    tolerance=st.sampled_from([0.0, 1e-6, 1e-2]),
)
def test_certificates_are_never_below_the_excess_by_a_dense_solver(seed, loss, alpha, distance, tolerance):
    rng = np.random.default_rng(seed)
    A = np.column_stack([rng.normal(size=(50, 3)) * [1.0, 0.3, 2.0] + [0.0, 1.0, 0.0], np.ones(50)])
    w, z = rng.choice([0.0, 0.5, 1.0, 3.0], size=50), A @ rng.normal(size=4)
    y = {"logistic": z + rng.logistic(size=50) > 0, "poisson": rng.poisson(np.exp(np.clip(z, -3, 2)))}
    y = y.get(loss, z + rng.normal(size=50) > 0 if loss == "squared_hinge" else z + rng.normal(size=50)) * 1.0
    is_classifier = loss in ("logistic", "squared_hinge")
    if is_classifier:
        y[:2], w[:2] = (0.0, 1.0), 1.0
    else:
        w[:2] = 1.0
    best = np.zeros(4)
    for _ in range(60):
        F, gradient, hessian = dense(loss, A, y, w, alpha, best)
        step, length = -np.linalg.lstsq(hessian + 1e-12 * np.eye(4), gradient)[0], 1.0
        while length > 1e-12 and dense(loss, A, y, w, alpha, best + length * step)[0] > F:
            length /= 2
        best = best + length * step
        if np.abs(step).max() < 1e-14:
            break
    least = dense(loss, A, y, w, alpha, best)[0]
    theta = best + distance * rng.normal(size=4)
    excess = float(dense(loss, A, y, w, alpha, theta)[0] - least)
    about = {"loss": loss, "alpha": alpha, "threshold": 0.7 if loss == "huber" else None, "sample_weight": w}
    found = certify_model((theta[:3], theta[3]), A[:, :3], y, **about, tolerance=tolerance)
    assert found.excess >= excess
    if found.relative < 0.01 and tolerance == 0:
        assert found.excess <= 2 * excess + 1e-12
    # any first guess of the step gives a valid bound
    rows = linear_rows(A[:, :3], y, w, is_classifier=is_classifier)
    problem = rows.problem(rows.loss(loss, 0.7), alpha)
    at = problem.from_data(theta[None, :3], theta[3:])
    guess = rng.normal(size=(1, 4)) * distance
    assert certify_linear(rows, problem, at, tolerance=1e9, step=guess).excess >= excess
    assert certify_linear(rows, problem, at, tolerance=tolerance, step=guess).excess >= excess


def test_a_tolerance_saves_passes_and_is_kept():
    model = LogisticRegression().fit(X[:300], BINARY[:300])
    loose, close = (certify_model(model, X, BINARY, tolerance=tolerance) for tolerance in (1.0, 0.0))
    assert loose.n_passes < close.n_passes
    assert close.relative <= loose.relative <= 1.0


def test_a_saved_model_is_certified_as_it_was(tmp_path):
    table = pd.DataFrame(X, columns=list("abcd"))
    for intercept in (True, False):
        fitted = fit_model(
            table.assign(y=BINARY), 200, label="y", alpha=0.01, fit_intercept=intercept, tolerance=0.0, preparation=None
        )
        fitted.save(tmp_path / "model.json")
        found = certify_model(LinearModel.load(tmp_path / "model.json"), table, BINARY)
        assert found.objective == pytest.approx(fitted.certificate.objective, rel=1e-12)
        assert found.relative == pytest.approx(fitted.certificate.relative, rel=0.2)
        assert certify_model(fitted, table, BINARY, alpha=0.02).alpha == 0.02
    with pytest.raises(InvalidInputError, match="column 0 is 'b'"):
        certify_model(fitted, table[list("bacd")], BINARY)
