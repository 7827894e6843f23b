"""Matching pursuit against a plain reference that solves anew at every step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from coresift.selection import Gradients, GradMatch, SelectionContext
from coresift.selection._omp import nonnegative_omp


def reference(A, target, size, ridge, tol=1e-10):
    """Plain: all products, then non-negative least squares of the bordered system, from nothing."""
    picks, x = [], np.empty(0)
    for _ in range(size):
        residual = target - x @ A[picks]
        products = A @ residual
        products[picks] = -np.inf
        if np.linalg.norm(residual) <= tol * np.linalg.norm(target) or products.max() <= 1e-9:
            break
        picks.append(int(np.argmax(products)))
        S = A[picks]
        x = nnls(np.vstack([S.T, np.sqrt(ridge) * np.eye(len(S))]), np.append(target, np.zeros(len(S))))[0]
    return picks, x


def objective(A, target, picks, x, ridge):
    return np.sum((target - x @ A[picks]) ** 2) + ridge * np.sum(x**2)


@pytest.mark.slow
@given(st.integers(0, 300), st.integers(2, 30), st.sampled_from([0.0, 0.05, 0.5]), st.booleans())
def test_picks_and_residual_are_those_of_the_reference(seed, n, ridge, is_positive):
    rng = np.random.default_rng(seed)
    a = Gradients(rng.normal(size=(n, 2)), rng.normal(size=(n, 3)))
    if is_positive:  # as after a ReLU: atoms in one corner, many coefficients at zero
        a = Gradients(np.abs(a.residuals), np.abs(a.inputs))
    A, size = a.dense(), min(n, 12)
    target = A.sum(axis=0)
    expected, x_expected = reference(A, target, size, ridge)
    picks, x = nonnegative_omp(a, target, size, ridge)
    assert np.all(x >= 0)
    shared = min(len(picks), len(expected))  # near the end rounding decides when to stop
    assert picks[:shared].tolist() == expected[:shared]
    assert abs(len(picks) - len(expected)) <= 1
    scale = np.sum(target**2)
    assert objective(A, target, picks, x, ridge) == pytest.approx(
        objective(A, target, expected, x_expected, ridge), rel=1e-7, abs=1e-9 * scale
    )


@pytest.mark.parametrize(("n", "width", "size"), [(400, 12, 150), (300, 60, 40)])  # both ways to solve
def test_long_pursuits_do_not_drift(n, width, size):
    rng = np.random.default_rng(0)
    a = Gradients(np.abs(rng.normal(size=(n, width))))
    target = a.total()
    picks, x = nonnegative_omp(a, target, size, 0.5)
    S = a.dense()[picks]
    best = nnls(np.vstack([S.T, np.sqrt(0.5) * np.eye(len(S))]), np.append(target, np.zeros(len(S))))[0]
    np.testing.assert_allclose(x, best, atol=1e-6 * best.max())


def test_coefficients_of_the_wrong_sign_would_fit_better_and_are_not_taken():
    A = np.array([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0]])
    target = np.array([1.0, -1.0])
    _, x = nonnegative_omp(Gradients(A), target, 3)
    assert np.all(x >= 0)
    assert objective(A, target, [0, 1], np.array([11.0, -10.0]), 0.0) == pytest.approx(0.0)


def test_it_stops_where_the_target_is_matched_and_random_points_of_weight_one_fill_the_budget():
    rng = np.random.default_rng(0)
    A = np.zeros((50, 3))
    A[:, 0] = 1.0  # one pick of weight 50 matches all
    context = SelectionContext(np.zeros((50, 1)), gradients=Gradients(A))
    core = GradMatch(ridge=0.0).select(context, 10, rng)
    assert core.size == 10
    assert sorted(core.weights)[:9] == [1.0] * 9
    assert core.weights.max() == pytest.approx(50.0)
    assert "filled at random" in core.method
    other = GradMatch(ridge=0.0).select(context, 10, rng)
    assert not np.array_equal(core.indices, other.indices)


def test_within_a_class_only_its_own_row_of_the_layer_is_matched():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 20)
    a = Gradients(rng.normal(size=(40, 2)), rng.normal(size=(40, 3)))
    context = SelectionContext(np.zeros((40, 1)), y, gradients=a)
    for output, (positions, part) in enumerate(context.parts()):
        own = GradMatch().atoms(part).dense()
        np.testing.assert_array_equal(own, a.dense().reshape(40, 2, 4)[positions, output])
        assert GradMatch(own_output=False).atoms(part).width == 8


def test_the_weighted_gradient_is_close_and_closer_than_that_of_a_random_subset():
    rng = np.random.default_rng(1)
    a = Gradients(rng.normal(size=(500, 3)), rng.normal(size=(500, 8)))
    context = SelectionContext(np.zeros((500, 1)), gradients=a)
    core = GradMatch(ridge=1e-6).select(context, 20, rng)  # fewer than dimensions: nothing is filled
    target = a.total()

    def error(core):
        return np.linalg.norm(target - core.weights @ a.dense()[core.indices]) / np.linalg.norm(target)

    assert error(core) < 0.25
    assert min(error(_random(context, seed)) for seed in range(5)) > 0.5


def _random(context, seed):
    from coresift.selection import AdaptiveRandom

    return AdaptiveRandom().select(context, 20, np.random.default_rng(seed))
