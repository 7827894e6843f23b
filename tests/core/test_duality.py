"""Lower bounds by duality: below the minimum whatever the rows, and close to it after a step or two."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st

from coresift.core.duality import DualSums, bound_excess
from coresift.core.linear import LinearProblem, fit_linear
from coresift.core.linear_losses import Huber, Logistic, Multinomial, Poisson, Squared, SquaredHinge

LOSSES = [Logistic(), Multinomial(3), Squared(), Huber(0.7), SquaredHinge(), Poisson()]
names = [loss.name for loss in LOSSES]


def responses(loss, z, rng):
    if isinstance(loss, Multinomial):
        y = np.argmax(np.outer(z, [1.0, -1.0, 0.2]) + rng.gumbel(size=(len(z), 3)), axis=1)
        y[:3] = [0, 1, 2]
        return y
    if loss.is_classifier:
        return (np.arange(len(z)) < 1) | (z + rng.logistic(size=len(z)) > 0.5)
    return (
        rng.poisson(np.exp(np.clip(z, -9, 3))).astype(float) if loss.name == "poisson" else z + rng.normal(size=len(z))
    )


def rows_of(loss, rng, n=60, d=3):
    X = rng.normal(size=(n, d))
    return X, np.asarray(responses(loss, X @ rng.normal(size=d), rng)).astype(float if not loss.is_classifier else int)


def rms(problem, X, weights):
    A = problem.columns(X)
    A = A if isinstance(A, np.ndarray) else A.toarray()
    return 1.01 * np.sqrt(weights @ A**2 / weights.sum())


def excess(problem, X, y, weights, theta, order=2, gram=None):
    def sums_at(theta, base, step):
        sums = DualSums(problem, theta, order, base, step)
        half = len(y) // 2
        sums.add(X[:half], y[:half], weights[:half])
        rest = DualSums(problem, theta, order, base, step)
        rest.add(X[half:], y[half:], weights[half:])
        sums.merge(rest)
        return sums

    return bound_excess(sums_at, theta, rms(problem, X, weights), gram=gram)


@pytest.mark.parametrize("loss", LOSSES, ids=names)
@pytest.mark.parametrize(
    "intercept, penalty", [(True, 0.0), (True, 0.25), (False, 0.0)], ids=["free", "penalised", "none"]
)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_the_bound_is_never_below_the_true_excess(loss, intercept, penalty, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    X, y = rows_of(loss, rng)
    X = X * 10.0 ** rng.integers(-2, 3, size=3) + data.draw(st.sampled_from([0.0, 5.0]))
    X[5:10] = X[:5] + 1e-9  # near duplicates
    weights = rng.choice([0.0, 1e-3, 1.0, 1e3], size=len(y), p=[0.2, 0.2, 0.5, 0.1])
    weights[:3] = 1.0  # every class
    alpha = 10.0 ** data.draw(st.integers(-6, 1))
    problem = LinearProblem(loss, alpha, np.zeros(3), X.std(axis=0), intercept, penalty)
    best = fit_linear(problem, X, y, weights)
    away = 10.0 ** data.draw(st.integers(-6, 1))
    theta = best.theta + away * rng.normal(size=problem.shape)
    if intercept and data.draw(st.booleans()):
        theta[:, -1] += 3.0 * np.arange(1, 1 + len(theta))
    found = excess(problem, X, y, weights, theta)
    true = found.objective - best.objective
    assert found.excess >= true
    assert found.lower_bound <= best.objective * (1 + 1e-14)
    assert found.found <= true + 1e-11 * found.objective


@pytest.mark.parametrize("loss", LOSSES, ids=names)
@pytest.mark.parametrize("seed", range(3))
def test_the_bound_is_tight_and_takes_few_passes(loss, seed):
    rng = np.random.default_rng(seed)
    X, y = rows_of(loss, rng, n=400)
    problem = LinearProblem(loss, 1e-5, X.mean(axis=0), X.std(axis=0))
    weights = rng.random(400)
    best = fit_linear(problem, X, y, weights)
    for away in (1e-5, 1e-3, 1e-2):
        theta = best.theta + away * rng.normal(size=problem.shape)
        found = excess(problem, X, y, weights, theta)
        true = found.objective - best.objective
        assert true <= found.excess <= 1.1 * true + 1e-12
        assert found.n_passes <= 4
    at_best = excess(problem, X, y, weights, best.theta)
    assert 0 <= at_best.excess <= 1e-11 * (1 + best.objective)  # the fit stops at a fall of 1e-12


@pytest.mark.parametrize("loss", LOSSES, ids=names)
def test_the_gradient_formula_of_a_penalised_problem(loss):
    """Without a step the gap is ``|grad F|^2 / (2 alpha)``, if everything is penalised alike."""
    rng = np.random.default_rng(4)
    X, y = rows_of(loss, rng)
    problem = LinearProblem(loss, 0.1, np.zeros(3), np.ones(3), fit_intercept=False)
    theta = 0.3 * rng.normal(size=problem.shape)
    sums = DualSums(problem, theta, 1, theta)
    sums.add(X, y, np.ones(60))
    gradient = sums.gradient / sums.weight + theta * problem.penalties
    bound, slack = sums.lower_bound(rms(problem, X, np.ones(60)))
    assert sums.objective - bound == pytest.approx(np.sum(gradient**2) / 0.2, rel=1e-9)
    assert 0 < slack < 1e-12 * (1 + sums.objective)


def test_the_same_formula_is_wrong_for_a_free_intercept():
    """Power: shifted by 3 in the intercept alone, the gap must not be that of the penalised coefficients."""
    rng = np.random.default_rng(0)
    X, y = rows_of(Logistic(), rng, n=200)
    problem = LinearProblem(Logistic(), 1.0, np.zeros(3), np.ones(3))
    weights = np.ones(200)
    best = fit_linear(problem, X, y, weights)
    theta = best.theta + np.array([[0.0, 0.0, 0.0, 3.0]])
    sums = DualSums(problem, theta, 1, theta)
    sums.add(X, y, weights)
    gradient = (sums.gradient / sums.weight + theta * problem.penalties)[:, :-1]
    true = sums.objective - best.objective
    assert np.sum(gradient**2) / 2.0 < true <= excess(problem, X, y, weights, theta).excess <= 1.1 * true


@pytest.mark.parametrize("loss", [Logistic(), SquaredHinge(), Multinomial(3)], ids=["logistic", "hinge", "multinomial"])
@pytest.mark.parametrize("alpha", [1e-1, 1e-4, 1e-8])
def test_separable_imbalanced_rows(loss, alpha):
    rng = np.random.default_rng(1)
    y = np.zeros(500, dtype=np.int64)
    y[:3], y[3:5] = 1, loss.n_outputs - 1 if loss.n_outputs > 1 else 1
    X = rng.normal(size=(500, 2)) + 20.0 * y[:, None]
    problem = LinearProblem(loss, alpha, X.mean(axis=0), X.std(axis=0))
    best = fit_linear(problem, X, y, np.ones(500))
    for away in (0.0, 1e-4, 1.0):
        theta = best.theta + away * rng.normal(size=problem.shape)
        found = excess(problem, X, y, np.ones(500), theta)
        true = found.objective - best.objective
        assert true <= found.excess <= 1.2 * true + 1e-11


@pytest.mark.parametrize("loss", LOSSES, ids=names)
def test_without_hessians(loss):
    """Quasi-Newton steps, from rows that are sparse: valid, and tight for small excesses."""
    rng = np.random.default_rng(2)
    X, y = rows_of(loss, rng, n=300, d=8)
    X[rng.random(X.shape) < 0.5] = 0.0
    weights, sparse = np.ones(300), sp.csr_array(X)
    problem = LinearProblem(loss, 1e-2, np.zeros(8), X.std(axis=0))
    best = fit_linear(problem, X, y, weights)
    theta = best.theta + 0.03 * rng.normal(size=problem.shape)
    A = problem.columns(X)
    for gram in (None, A.T @ A / 300):
        found = excess(problem, sparse, y, weights, theta, order=1, gram=gram)
        true = found.objective - best.objective
        assert true <= found.excess <= 2 * true


@pytest.mark.parametrize("loss", LOSSES, ids=names)
@given(seed=st.integers(0, 10**6), shrink=st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_moved_and_shrunk_slopes_stay_in_the_domain_of_the_conjugate(loss, seed, shrink):
    rng = np.random.default_rng(seed)
    y = rows_of(loss, rng)[1]
    wild = rng.normal(size=(60, loss.n_outputs)) * 3
    if isinstance(loss, Multinomial):
        wild -= wild.mean(axis=1, keepdims=True)
    a = loss.nearest_slopes(wild, y)
    full, less = loss.conjugates(a, y), loss.conjugates(shrink * a, y)
    assert np.isfinite(full).all()
    assert (less <= shrink * full + 1e-12 * (1 + np.abs(full))).all()  # l*(0) = 0 and l* is convex
    z = rng.normal(size=a.shape) * 3
    support, sizes = loss.supports(a, z, y)
    assert (support <= loss.values(z, y) + 1e-12 * (1 + sizes)).all()
    own = loss.slopes(z, y)
    np.testing.assert_array_equal(loss.nearest_slopes(own, y) - own, 0.0)
    np.testing.assert_allclose(loss.supports(own, z, y)[0], loss.values(z, y), rtol=1e-9, atol=1e-12)


def test_rounding_is_covered_in_long_double():
    """At the optimum the excess is about 1e-16: the bound is above what long doubles find."""
    rng = np.random.default_rng(3)
    X, y = rows_of(Logistic(), rng, n=3000)
    X = X + 1e4  # digits are lost in the scores
    problem = LinearProblem(Logistic(), 1e-3, X.mean(axis=0), X.std(axis=0))
    best = fit_linear(problem, X, y, np.ones(3000))
    coef, intercept = problem.to_data(best.theta)

    def objective(coef, intercept):
        z = X.astype(np.longdouble) @ coef.astype(np.longdouble) + np.longdouble(intercept[0])
        return np.logaddexp(0, np.where(y == 1, -z, z)).mean() + np.longdouble(0.0005) * np.sum(coef**2)

    found = excess(problem, X, y, np.ones(3000), problem.from_data(coef, intercept))
    assert abs(objective(coef[0], intercept) - found.objective) <= found.excess <= 1e-8
