"""Losses of linear models and their fits: calculus, convex conjugates, and scikit-learn as the oracle."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, strategies as st
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.svm import LinearSVC

from coresift.core.linear import LinearProblem, LossSums, fit_linear, newton, solve_positive
from coresift.core.linear_losses import Huber, Logistic, Multinomial, Poisson, Squared, SquaredHinge

LOSSES = [Logistic(), Multinomial(4), Squared(), Huber(0.7), SquaredHinge(), Poisson()]
NAMES = [loss.name for loss in LOSSES]
both = pytest.mark.parametrize("loss", LOSSES, ids=NAMES)


def responses(loss, rng, n):
    if loss.is_classifier:
        return rng.integers(0, max(2, loss.n_outputs), n)
    return rng.poisson(2.0, n).astype(float) if loss.name == "poisson" else rng.normal(size=n) * 2.0


@both
@given(seed=st.integers(0, 2**32 - 1))
def test_slopes_and_curvatures_are_derivatives(loss, seed):
    rng = np.random.default_rng(seed)
    z, y, step = rng.normal(size=(6, loss.n_outputs)) * 2.0, responses(loss, rng, 6), 1e-5
    if loss.name in ("huber", "squared_hinge"):  # away from the kinks of the slope
        sign = np.where(y == 1, 1.0, -1.0)
        kinks = np.abs(1.0 - sign * z[:, 0]) if loss.name == "squared_hinge" else np.abs(np.abs(z[:, 0] - y) - 0.7)
        z, y = z[kinks > 1e-3], y[kinks > 1e-3]
    for k in range(loss.n_outputs):
        up, down = z.copy(), z.copy()
        up[:, k] += step
        down[:, k] -= step
        slope = (loss.values(up, y) - loss.values(down, y)) / (2 * step)
        np.testing.assert_allclose(loss.slopes(z, y)[:, k], slope, rtol=1e-5, atol=1e-6)
        curvature = (loss.slopes(up, y) - loss.slopes(down, y)) / (2 * step)
        c = loss.curvatures(z, y)
        ours = c[:, k, None] * (np.eye(loss.n_outputs)[k] - (c if loss.n_outputs > 1 else 0.0))
        np.testing.assert_allclose(ours, curvature, rtol=1e-5, atol=1e-6)


@both
@given(seed=st.integers(0, 2**32 - 1))
def test_fenchel_young(loss, seed):
    """``l(z) + l*(a) >= a z`` for every slope a, with equality at the slope in z."""
    rng = np.random.default_rng(seed)
    z, y = rng.normal(size=(8, loss.n_outputs)) * 3.0, responses(loss, rng, 8)
    other = rng.normal(size=z.shape) * 3.0
    own, foreign = loss.slopes(z, y), loss.slopes(other, y)
    np.testing.assert_allclose(loss.values(z, y) + loss.conjugates(own, y), (own * z).sum(axis=1), rtol=1e-9, atol=1e-9)
    gap = loss.values(z, y) + loss.conjugates(foreign, y) - (foreign * z).sum(axis=1)
    assert gap.min() >= -1e-9
    assert (loss.values(z, y) >= 0).all()


@pytest.mark.parametrize(
    "loss", [Logistic(), Multinomial(3), Huber(0.7), SquaredHinge(), Poisson()], ids=lambda x: x.name
)
def test_conjugates_are_infinite_outside_the_slopes(loss):
    outside = {"logistic": 1.5, "multinomial": 1.5, "huber": 0.8, "squared_hinge": 1.0, "poisson": -3.5}[loss.name]
    a = np.full((1, loss.n_outputs), outside)
    y = np.array([3.0]) if loss.name == "poisson" else np.array([1])
    assert loss.conjugates(a, y)[0] == np.inf


@pytest.mark.parametrize("value", [-800.0, 800.0])
def test_sure_predictions_keep_their_digits(value):
    for loss in (Logistic(), Multinomial(2)):
        z = np.array([[value]]) if loss.n_outputs == 1 else np.array([[0.0, value]])
        y = np.array([1])
        assert loss.values(z, y)[0] == pytest.approx(max(0.0, -value))
        assert np.isfinite(loss.slopes(z, y)).all()
        assert np.isfinite(loss.conjugates(loss.slopes(z, y), y)).all()


def table(rng, n=300, d=4):
    X = rng.normal(size=(n, d)) * np.array([1e-2, 1.0, 30.0, 1.0]) + np.array([0.0, 5.0, -200.0, 0.0])
    return X, (X - X.mean(axis=0)) / X.std(axis=0) @ np.array([1.0, -0.5, 0.3, 0.0]), rng.uniform(0.0, 3.0, n)


def problem_of(loss, X, alpha, **options):
    return LinearProblem(loss, alpha, X.mean(axis=0), X.std(axis=0), **options)


def test_logistic_regression_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    X, z, w = table(rng)
    y, alpha = (rng.random(300) < 1 / (1 + np.exp(-z))).astype(int), 1e-2
    coef, intercept = problem_of(Logistic(), X, alpha).to_data(
        fit_linear(problem_of(Logistic(), X, alpha), X, y, w).theta
    )
    model = LogisticRegression(C=1 / (alpha * w.sum()), solver="newton-cholesky", tol=1e-12, max_iter=1000).fit(X, y, w)
    np.testing.assert_allclose(coef, model.coef_, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(intercept, model.intercept_, rtol=1e-5)


def test_multinomial_regression_agrees_with_scikit_learn():
    rng = np.random.default_rng(1)
    X, z, w = table(rng)
    y, alpha = (z > 0).astype(int) + (rng.random(300) < 0.3), 1e-2
    problem = problem_of(Multinomial(3), X, alpha)
    coef, intercept = problem.to_data(fit_linear(problem, X, y, w).theta)
    model = LogisticRegression(C=1 / (alpha * w.sum()), solver="newton-cholesky", tol=1e-12, max_iter=1000).fit(X, y, w)
    np.testing.assert_allclose(coef, model.coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(intercept - intercept.mean(), model.intercept_ - model.intercept_.mean(), rtol=1e-4)


def test_ridge_and_poisson_agree_with_scikit_learn():
    rng = np.random.default_rng(2)
    X, z, w = table(rng)
    alpha = 1e-2
    ridge = Ridge(alpha=alpha * w.sum(), solver="svd").fit(X, z + 3.0, w)
    problem = problem_of(Squared(), X, alpha)
    coef, intercept = problem.to_data(fit_linear(problem, X, z + 3.0, w).theta)
    np.testing.assert_allclose(coef[0], ridge.coef_, rtol=1e-8)
    np.testing.assert_allclose(intercept, ridge.intercept_, rtol=1e-8)
    y = rng.poisson(np.exp(z)).astype(float)
    poisson = PoissonRegressor(alpha=alpha, solver="newton-cholesky", tol=1e-12, max_iter=1000).fit(X, y, w)
    problem = problem_of(Poisson(), X, alpha)
    coef, intercept = problem.to_data(fit_linear(problem, X, y, w).theta)
    np.testing.assert_allclose(coef[0], poisson.coef_, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(intercept, poisson.intercept_, rtol=1e-5)


def test_linear_svc_penalises_its_intercept():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 3))
    y, alpha = (X[:, 0] + 0.5 + 0.5 * rng.normal(size=200) > 0).astype(int), 1e-2
    problem = LinearProblem(SquaredHinge(), alpha, np.zeros(3), np.ones(3), intercept_penalty=1.0)
    coef, intercept = problem.to_data(fit_linear(problem, X, y, np.ones(200)).theta)
    model = LinearSVC(C=1 / (alpha * 200), dual=False, tol=1e-10, max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(coef, model.coef_, rtol=1e-4)
    np.testing.assert_allclose(intercept, model.intercept_, rtol=1e-4)


@both
def test_sums_of_parts_merge_and_have_the_derivatives_of_the_objective(loss):
    rng = np.random.default_rng(4)
    X, _, w = table(rng, n=40)
    y, problem = responses(loss, rng, 40), problem_of(loss, X, 0.3)

    def sums(theta, order=2):
        parts = [LossSums(problem, theta, order) for _ in range(2)]
        for part, rows in zip(parts, (slice(0, 13), slice(13, 40)), strict=True):
            part.add(X[rows], y[rows], w[rows])
        parts[0].merge(parts[1])
        return parts[0]

    theta = rng.normal(size=problem.shape) * 0.5
    at, direction = sums(theta), rng.normal(size=problem.shape)
    gradient = at.gradient / at.weight + theta * problem.penalties
    step = 1e-6
    change = (sums(theta + step * direction, 0).objective - sums(theta - step * direction, 0).objective) / (2 * step)
    assert (gradient * direction).sum() == pytest.approx(change, rel=1e-5, abs=1e-7)
    assert at.newton_step()[1] >= 0


@both
def test_columns_are_standardised_for_the_numerics_only(loss):
    rng = np.random.default_rng(5)
    X, _, w = table(rng)
    y = responses(loss, rng, len(X))
    plain = LinearProblem(loss, 1e-2, np.zeros(4), np.ones(4))
    shifted = problem_of(loss, X, 1e-2)
    one, two = (fit_linear(problem, X, y, w) for problem in (plain, shifted))
    assert one.objective == pytest.approx(two.objective, rel=1e-8)
    back = shifted.from_data(*shifted.to_data(two.theta))
    np.testing.assert_allclose(back, two.theta, rtol=1e-9, atol=1e-9)


def test_sparse_rows_stay_sparse_and_agree():
    rng = np.random.default_rng(6)
    X = np.where(rng.random((200, 5)) < 0.3, rng.normal(size=(200, 5)), 0.0)
    y, w = (X[:, 0] + rng.normal(size=200) > 0).astype(int), np.ones(200)
    problem = LinearProblem(Logistic(), 1e-2, np.zeros(5), X.std(axis=0))
    assert sp.issparse(problem.columns(sp.csr_array(X)))
    one, two = (fit_linear(problem, rows, y, w).theta for rows in (X, sp.csr_array(X)))
    np.testing.assert_allclose(one, two, rtol=1e-8)


def test_many_parameters_are_fitted_without_a_hessian(monkeypatch):
    rng = np.random.default_rng(7)
    X, z, w = table(rng)
    y, problem = (z > 0).astype(int), problem_of(Logistic(), X, 1e-1)
    by_newton = fit_linear(problem, X, y, w)
    monkeypatch.setattr("coresift.core.linear._LARGEST_HESSIAN", 2)
    found = fit_linear(problem, X, y, w, tol=1e-14)
    assert found.hessian.size == 0
    assert found.objective == pytest.approx(by_newton.objective, rel=1e-8)


def test_singular_systems_have_a_shortest_solution():
    matrix = np.array([[2.0, 2.0], [2.0, 2.0]]) * 1e-30
    x = solve_positive(matrix, np.array([4.0, 4.0]) * 1e-30)
    np.testing.assert_allclose(matrix @ x, [4e-30, 4e-30], rtol=1e-9)
    np.testing.assert_allclose(x, [1.0, 1.0], rtol=0.1)  # along the kernel, rounding is divided by 1e-14


def test_newton_never_ends_above_its_start():
    rng = np.random.default_rng(8)
    X, _, w = table(rng)
    y, problem = rng.poisson(1.0, 300).astype(float), problem_of(Poisson(), X, 0.0)

    def at(theta, order=0):
        sums = LossSums(problem, theta, order)
        sums.add(X, y, w)
        return sums

    for far in (5.0, 1e4):  # where a whole step overflows, and where the loss does
        start = np.full(problem.shape, far)
        assert newton(at, start).objective < at(start).objective
        assert newton(at, start).objective == pytest.approx(fit_linear(problem, X, y, w).objective)
