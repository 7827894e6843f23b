"""Matching pursuit against a plain reference that solves anew at every step."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import nnls

from coresift.selection import Gradients, GradMatch, SelectionContext
from coresift.selection.gradmatch import _DualSystem, _GramSystem, _Pursuit, nonnegative_omp


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
    picks, x = nonnegative_omp(a, target, size, ridge, tol=1e-10)
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
    a = Gradients(rng.normal(size=(40, 2)), rng.normal(size=(40, 4)))
    context = SelectionContext(np.zeros((40, 1)), y, gradients=a)
    for output, (positions, part) in enumerate(context.parts()):
        own = a.dense().reshape(40, 2, 4)[positions, output]
        alone = GradMatch().select(SelectionContext(np.zeros((20, 1)), gradients=own), 2, np.random.default_rng(1))
        found = GradMatch().select(part, 2, np.random.default_rng(1))
        np.testing.assert_array_equal(found.indices, alone.indices)
        np.testing.assert_allclose(found.weights, alone.weights)


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


@pytest.mark.parametrize("kind", [_GramSystem, _DualSystem])
def test_an_error_of_the_inverse_is_gone_after_sixty_four_changes(kind):
    """Rounding adds up in the updates, so the inverse is made anew: what was wrong before does not count after."""
    rng = np.random.default_rng(0)
    rows, ridge = rng.normal(size=(80, 6 if kind is _DualSystem else 90)), 0.3
    target = rng.normal(size=rows.shape[1])
    system = kind(rows, target, ridge)
    errors = []
    for position in range(70):
        assert system.insert(position)
        if position == 40:
            system.remove(3)  # the 42nd change
        if position == 50:
            system.inverse *= 1.001
        A = rows[system.passive]
        exact = np.linalg.solve(A @ A.T + ridge * np.eye(len(A)), A @ target)
        errors.append(np.linalg.norm(system.solve() - exact) / np.linalg.norm(exact))
    assert max(errors[:50]) < 1e-9
    assert min(errors[50:62]) > 1e-6  # power: it is seen as long as it is there
    assert max(errors[62:]) < 1e-9
    assert system.n_changes == 71


@pytest.mark.parametrize("kind", [_GramSystem, _DualSystem])
def test_removals_leave_the_least_squares_of_the_rest(kind):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(9, 5 if kind is _DualSystem else 12))
    target = rng.normal(size=rows.shape[1])
    system = kind(rows, target, 0.2)
    for position in (4, 0, 7, 2, 8):
        system.insert(position)
    for place, left in ((1, [4, 7, 2, 8]), (3, [4, 7, 2]), (0, [7, 2])):
        system.remove(place)
        assert system.passive == left
        A = rows[left]
        np.testing.assert_allclose(
            system.solve(), np.linalg.solve(A @ A.T + 0.2 * np.eye(len(A)), A @ target), rtol=1e-9
        )


def test_an_atom_in_the_span_of_the_others_is_refused_and_leaves_no_trace():
    rows = np.array([[1.0, 0.0, 0.0], [1.0, 2.0, 0.0], [3.0, -1.0, 0.0], [0.0, 0.0, 1e-4]])
    system = _GramSystem(rows, np.array([1.0, 1.0, 1.0]), 0.0)
    assert system.insert(0)
    assert system.insert(1)
    before = system.solve()
    assert not system.insert(2)
    assert (system.passive, system.inverse.shape) == ([0, 1], (2, 2))
    np.testing.assert_array_equal(system.solve(), before)
    assert system.insert(3)  # short, but outside
    assert _GramSystem(rows, np.ones(3), 0.1).insert(2)
    pursuit = _Pursuit(np.array([1.0, 1.0, 1.0]), 3, 0.0)
    assert pursuit.add(rows[0])
    assert pursuit.add(rows[1])
    assert not pursuit.add(rows[2])
    assert (pursuit.count, len(pursuit.system.passive)) == (2, 2)


def test_the_solver_is_the_dual_one_for_more_atoms_than_dimensions_and_a_ridge():
    target = np.ones(5)
    kinds = {(size, ridge): type(_Pursuit(target, size, ridge).system) for size in (5, 6) for ridge in (0.0, 0.1)}
    assert kinds == {(5, 0.0): _GramSystem, (6, 0.0): _GramSystem, (5, 0.1): _GramSystem, (6, 0.1): _DualSystem}


@pytest.mark.parametrize("seed", range(6))
def test_every_step_is_the_best_of_all_non_negative_coefficients(seed):
    """By the conditions of optimality: no slope upwards anywhere, none at all where a coefficient is positive."""
    rng = np.random.default_rng(seed)
    rows = np.abs(rng.normal(size=(14, 6)))  # in one corner: atoms leave and return
    target = np.abs(rng.normal(size=6))
    pursuit = _Pursuit(target, 14, 0.05)
    has_left = False
    for atom in rows:
        pursuit.add(atom)
        x = pursuit.x[: pursuit.count]
        slopes = rows[: pursuit.count] @ (target - x @ rows[: pursuit.count]) - 0.05 * x
        assert np.all(x >= 0)
        assert np.all(slopes <= 1e-9)
        np.testing.assert_allclose(slopes[x > 0], 0.0, atol=1e-9)
        np.testing.assert_allclose(pursuit.residual(), target - x @ rows[: pursuit.count], atol=1e-12)
        has_left |= bool(np.any(x == 0))
    assert has_left  # power


def test_a_target_of_zero_and_a_size_of_one():
    A = np.array([[1.0, 0.0], [0.0, 2.0]])
    picks, x = nonnegative_omp(Gradients(A), np.zeros(2), 2)
    assert (picks.tolist(), x.tolist()) == ([], [])
    picks, x = nonnegative_omp(Gradients(A), np.array([1.0, 1.0]), 1)
    assert picks.tolist() == [1]  # the largest product, not the largest cosine
    np.testing.assert_allclose(x, [0.5])
    picks, x = nonnegative_omp(Gradients(A), np.array([1.0, -1.0]), 2)
    assert picks.tolist() == [0]  # a negative product cannot help
    # the tolerance is a share of the target: what is left after the second pick, 0.001 of it, is near enough
    near = np.array([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 1.0]])
    target = np.array([3.0, 4.0, 0.005])
    assert nonnegative_omp(Gradients(near), target, 3, tol=1.1e-3)[0].tolist() == [1, 0]
    assert nonnegative_omp(Gradients(near), target, 3, tol=0.9e-3)[0].tolist() == [1, 0, 2]


def test_a_pursuit_ends_when_the_gradient_is_matched():
    rng = np.random.default_rng(0)
    a = Gradients(np.abs(rng.normal(size=(300, 30))))
    target = a.total()
    picks, x = nonnegative_omp(a, target, 200)
    away = [np.linalg.norm(target - x[:k] @ a.dense()[picks[:k]]) for k in (len(picks) - 1, len(picks))]
    assert len(picks) < 200
    assert away[1] <= 1e-4 * np.linalg.norm(target) < away[0]
