import numpy as np
import pytest
from hypothesis import given, strategies as st

from coresift.core.points import Block, Points, Subset, squared_distances
from paper.networks.sums import Network, _Problem, loss_and_gradient, network_sums, ridge_outputs, worst_network

seeds = st.integers(0, 2**32 - 1)


def draw_problem(seed, n=30, d=3, n_neurons=4, n_outputs=2, nonnegative=False):
    """Points, weights, targets, centres and outputs of all magnitudes, and a weighted subset."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-1, 0.3)
    w = rng.exponential(size=n) * (rng.random(n) < 0.9)
    w[0] = 1.0
    y = rng.normal(size=(n, n_outputs)) * 10.0 ** rng.uniform(-2, 2)
    y[rng.random(y.shape) < 0.2] = 0.0
    centers = rng.normal(size=(n_neurons, d))
    a = rng.normal(size=(n_neurons, n_outputs)) * 10.0 ** rng.uniform(-2, 2)
    a = np.abs(a) if nonnegative else a
    rows = np.sort(rng.choice(n, n // 2, replace=False))
    v = rng.exponential(size=len(rows)) * 2
    return Points(X, np.zeros(d), 1.0, np.inf), w, y, centers, a, rows, v


@given(seeds)
def test_midpoint_identity(seed):
    rng = np.random.default_rng(seed)
    p, a, b = rng.normal(size=(3, 5)) * 10.0 ** rng.uniform(-3, 3)
    left = np.sum((p - a) ** 2) + np.sum((p - b) ** 2)
    right = 2 * np.sum((p - (a + b) / 2) ** 2) + np.sum((a - b) ** 2) / 2
    assert right == pytest.approx(left, rel=1e-12)


@given(seeds)
def test_gram_entries_are_gaussian_sums_of_half_the_square_bandwidth_at_midpoints(seed):
    points, w, y, centers, *_ = draw_problem(seed)
    gram = network_sums(points, w, y, centers).gram
    for i, a in enumerate(centers):
        for j, b in enumerate(centers):
            narrow = np.exp(-2 * np.sum((points.X - (a + b) / 2) ** 2, axis=1))
            assert gram[i, j] == pytest.approx(np.exp(-np.sum((a - b) ** 2) / 2) * (w @ narrow), rel=1e-9)


@given(seeds)
def test_the_expansion_is_the_loss(seed):
    points, w, y, centers, a, rows, v = draw_problem(seed)
    phi = np.exp(-((points.X[:, None] - centers) ** 2).sum(axis=2)) @ a
    sums = network_sums(points, w, y, centers)
    magnitude = w @ np.sum((np.abs(y) + np.exp(-((points.X[:, None] - centers) ** 2).sum(axis=2)) @ np.abs(a)) ** 2, 1)
    assert sums.cross(a) == pytest.approx(w @ np.sum(y * phi, axis=1), abs=1e-12 * magnitude)
    assert sums.square(a) == pytest.approx(w @ np.sum(phi**2, axis=1), rel=1e-9, abs=1e-12 * magnitude)
    assert sums.loss(a) == pytest.approx(w @ np.sum((y - phi) ** 2, axis=1), abs=1e-12 * magnitude)
    assert sums.magnitude(a) == pytest.approx(magnitude, rel=1e-10)
    drawn = network_sums(points, v, y, centers, rows)
    assert drawn.loss(a) == pytest.approx(v @ np.sum((y - phi)[rows] ** 2, axis=1), abs=1e-11 * drawn.magnitude(a))


@given(seeds, st.booleans())
def test_whole_loss_inequality(seed, nonnegative):
    """For any subset: with eps its largest error in the families, the loss errs by at most eps times the magnitude."""
    points, w, y, centers, a, rows, v = draw_problem(seed, nonnegative=nonnegative)
    truth = network_sums(points, w, y, centers)
    drawn = network_sums(points, v, y, centers, rows)
    eps = truth.largest_relative_error(drawn)
    slack = 1 + 1e-9
    assert abs(drawn.loss(a) - truth.loss(a)) <= eps * truth.magnitude(a) * slack
    assert abs(drawn.cross(a) - truth.cross(a)) <= eps * truth.cross_magnitude(a) * slack
    if nonnegative:
        assert abs(drawn.square(a) - truth.square(a)) <= eps * truth.square(a) * slack


def test_the_inequality_is_tight_and_needs_the_scale():
    """All weights off by one factor: a network of one sign, wrong about every target, attains it; the loss alone is no
    magnitude, for a network that interpolates has none."""
    points = Points(np.array([[0.0], [0.5]]), np.zeros(1), 1.0, np.inf)
    y, centers, a = np.array([[1.0], [2.0]]), np.array([[0.2]]), np.array([[-3.0]])
    truth = network_sums(points, np.ones(2), y, centers)
    drawn = network_sums(points, np.full(2, 1.25), y, centers)
    assert truth.largest_relative_error(drawn) == pytest.approx(0.25)
    assert drawn.loss(a) - truth.loss(a) == pytest.approx(0.25 * truth.magnitude(a))
    single = network_sums(points, np.array([2.0]), y, points.X[:1], rows=np.array([0]))
    fits = np.array([[1.0]])  # through the only point of the subset
    assert single.loss(fits) == pytest.approx(0.0, abs=1e-12)
    assert network_sums(points, np.ones(2), y, points.X[:1]).loss(fits) > 1


@given(seeds, st.booleans())
def test_paper_bounds_on_the_square_term(seed, nonnegative):
    points, w, y, centers, a, rows, v = draw_problem(seed, nonnegative=nonnegative)
    truth, drawn = network_sums(points, w, y, centers), network_sums(points, v, y, centers, rows)
    square, diagonal, count = truth.square(a), truth.diagonal(a), len(a)
    assert square <= count * diagonal * (1 + 1e-9)
    if nonnegative:
        assert diagonal <= square * (1 + 1e-9)
    eps = truth.largest_relative_error(drawn)
    assert square * (1 - eps) <= count * drawn.diagonal(a) * (1 + 1e-9) + 1e-12


@given(seeds)
def test_the_printed_pairing_of_the_paper_is_wrong_and_ours_is_exact(seed):
    """Erratum 7, with exact signed sets."""
    points, w, y, centers, a, *_ = draw_problem(seed, n_outputs=1)
    sums = network_sums(points, w, y, centers)
    truth = w @ (y[:, 0] * (np.exp(-squared_distances(Block(points.X), centers)) @ a)[:, 0])
    tol = 1e-10 * sums.cross_magnitude(a)
    assert sums.cross(a) == pytest.approx(truth, abs=tol)
    printed = np.sum(np.where(a > 0, a * sums.positive, a * sums.negative))
    # equal only if a_i > 0 meets no negative part and a_i < 0 twice ... : the difference is this sum
    gap = np.sum(np.where(a > 0, a * sums.negative, a * (2 * sums.negative - sums.positive)))
    assert printed - truth == pytest.approx(gap, abs=tol)


def test_no_error_of_zero_sums_and_infinite_error_of_what_appears_from_nothing():
    points = Points(np.zeros((1, 1)), np.zeros(1), 1.0, np.inf)
    empty = network_sums(points, np.ones(1), np.zeros((1, 1)), np.zeros((1, 1)))
    assert empty.largest_relative_error(empty) == 0.0
    some = network_sums(points, np.ones(1), np.ones((1, 1)), np.zeros((1, 1)))
    assert empty.largest_relative_error(some) == np.inf


@pytest.mark.slow
@given(seeds)
def test_gradient_against_finite_differences(seed):
    rng = np.random.default_rng(seed)
    points, w, y, centers, a, *_ = draw_problem(seed, n=12)
    y, a = y / np.abs(y).max(), a / np.abs(a).max()
    network = Network(centers, a, rng.normal(size=2), float(rng.uniform(-0.5, 0.5)))
    value, gradient = loss_and_gradient(points, w, y, network)
    residual = network.outputs(points) - y
    assert value == pytest.approx(w @ np.sum(residual**2, axis=1), rel=1e-12)
    flat, h = network.flat(), 1e-5
    for direction in np.eye(len(flat)):
        up, down = (loss_and_gradient(points, w, y, network.from_flat(flat + s * h * direction))[0] for s in (1, -1))
        slope = gradient.flat() @ direction
        # central differences: h^2 times a third derivative, and rounding over h
        assert (up - down) / (2 * h) == pytest.approx(slope, rel=1e-5, abs=1e-6 * (1 + value))


def test_flat_and_back():
    rng = np.random.default_rng(0)
    network = Network(rng.normal(size=(3, 2)), rng.normal(size=(3, 4)), rng.normal(size=4), 0.7)
    again = network.from_flat(network.flat())
    for name in ("centers", "alphas", "intercept", "log_bandwidth"):
        np.testing.assert_array_equal(getattr(again, name), getattr(network, name))


@given(seeds, st.sampled_from([0.0, 1e-3, 1.0]), st.booleans())
def test_ridge_outputs_solve_the_normal_equations(seed, ridge, fit_intercept):
    rng = np.random.default_rng(seed)
    H, w, y = rng.normal(size=(20, 4)), rng.exponential(size=20), rng.normal(size=(20, 2))
    a, b = ridge_outputs(H, w, y, ridge, fit_intercept)
    residual = H @ a + b - y
    np.testing.assert_allclose(H.T @ (w[:, None] * residual) + ridge * a, 0, atol=1e-9)
    if fit_intercept:
        np.testing.assert_allclose(w @ residual, 0, atol=1e-9)
    else:
        assert not b.any()


def test_ridge_outputs_of_equal_neurons_share_the_weight():
    H = np.ones((5, 1)) * np.array([[1.0, 1.0]])
    a, _ = ridge_outputs(H, np.ones(5), np.full((5, 1), 4.0), 0.0, False)
    np.testing.assert_allclose(a, 2.0)


@pytest.mark.slow
@given(seeds)
def test_gradient_of_the_search(seed):
    points, w, y, centers, a, rows, v = draw_problem(seed, n=12, n_neurons=2)
    problem = _Problem(Subset(points, w, rows, v, 1.5), y)
    a = np.where(np.abs(a) < 0.1, 0.1, a)  # |a| has a kink at 0
    vector = problem.joined(centers, a)
    inside = problem.network(vector)[0].centers
    assert (np.linalg.norm(inside, axis=1) < 1.5).all()
    value, gradient = problem.negative(vector, -1.0)
    drawn, truth = (network_sums(points, v, y, inside, rows), network_sums(points, w, y, inside))
    assert value == pytest.approx((drawn.loss(a) - truth.loss(a)) / truth.magnitude(a), abs=1e-9)
    h = 1e-6 * (1 + np.abs(vector))
    for i in range(len(vector)):
        step = np.zeros_like(vector)
        step[i] = h[i]
        slope = (problem.negative(vector + step, -1.0)[0] - problem.negative(vector - step, -1.0)[0]) / (2 * h[i])
        assert slope == pytest.approx(gradient[i], rel=1e-3, abs=1e-6)


def test_the_search_finds_a_planted_hole():
    """A subset without one cluster: a network that looks there alone sees an error of nearly 1; random ones do not."""
    rng = np.random.default_rng(0)
    X = np.concatenate((rng.normal(size=(200, 2)) * 0.2, rng.normal(size=(20, 2)) * 0.1 + [3.0, 0.0]))
    y = rng.normal(size=(220, 1))
    points = Points(X, np.zeros(2), 1.0, 3.5)
    found = worst_network(Subset(points, np.ones(220), np.arange(200), np.ones(200), 3.5), y, 2, rng, n_starts=4)
    assert 0.9 < found.worst_error <= 1.0
    assert found.mean_error < 0.5 * found.worst_error
    assert np.linalg.norm(found.centers - [3.0, 0.0], axis=1).min() < 1.0
    exact = worst_network(Subset(points, np.ones(220), np.arange(220), np.ones(220), 3.5), y, 2, rng, n_starts=2)
    assert exact.worst_error < 1e-9
