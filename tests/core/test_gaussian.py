"""Gaussian sensitivities: the closed form, cells and the exact value against cases whose answer is known."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, strategies as st

from coresift.core.gaussian import (
    CELLS_TOLERANCE,
    EXACT_TOLERANCE,
    Atoms,
    Cells,
    CellSums,
    Problem,
    ascend,
    cells_bound,
    closed_form,
    exact,
    lloyd_centers,
)
from coresift.core.points import Block, Points, rounding_slack
from paper.circle import lower_bound_circle


def cells(points, shares, centers):
    """The cells of all points, in one block."""
    sums = CellSums(centers)
    sums.update(points.gather(slice(0, points.n)), shares)
    return sums.finish()


def _problem(Z, w, radius):
    """Points as they are: their weighted mean is made the origin."""
    shares = np.asarray(w, dtype=float) / np.sum(w)
    Z = np.asarray(Z, dtype=float)
    Z = Z - shares @ Z
    sq_norms = (Z**2).sum(axis=1)
    points = Points(Z, np.zeros(Z.shape[1]), 1.0, float(np.sqrt(sq_norms.max())))
    problem = Problem(points, sq_norms, shares, radius)
    return problem, closed_form(sq_norms, shares, float(shares @ sq_norms), radius)


def _values(Z, w, radius):
    problem, start = _problem(Z, w, radius)
    return exact(problem, start).values


@pytest.mark.slow
@given(
    norms=st.lists(st.floats(0, 3), min_size=1, max_size=8),
    variance=st.floats(0, 2),
    radius=st.floats(0.01, 3),
    seed=st.integers(0, 100),
)
def test_closed_form_is_its_formula(norms, variance, radius, seed):
    w = np.random.default_rng(seed).gamma(1.0, size=len(norms)) + 1e-3
    shares = w / w.sum()
    r = np.array(norms)
    # not the completed square that the code uses
    expected = np.minimum(1.0, shares * np.exp(variance) * np.exp(-(r**2)) * np.exp(2 * radius * r))
    found = closed_form(r**2, shares, variance, radius)
    np.testing.assert_allclose(found.values, expected, rtol=1e-10)
    assert found.values.sum() <= np.exp(variance + radius**2) * (1 + 1e-12)
    assert found.is_certified


def test_closed_form_is_attained_when_the_mass_sits_at_the_mean():
    """One row of vanishing weight beside a heavy one: F(x) is the heavy one's term, and Jensen loses nothing."""
    w = np.array([1.0, 1e-12])
    for distance in (0.2, 1.0, 2.5):
        for radius in (0.5, 1.0, 2.0):
            problem, start = _problem([[0.0], [distance]], w, radius)
            truth = 1e-12 * np.exp(-(distance**2) + 2 * radius * distance)
            assert start.values[1] == pytest.approx(truth, rel=1e-9)
            assert exact(problem, start).values[1] == pytest.approx(truth, rel=1e-5)


@pytest.mark.parametrize("radius", [0.1, 1.0, 3.0])
def test_one_point_has_sensitivity_one(radius):
    problem, start = _problem([[3.0, -1.0]], [2.0], radius)
    assert start.values.tolist() == [1.0]
    assert exact(problem, start).values.tolist() == [1.0]


@pytest.mark.parametrize("radius", [0.1, 1.0, 3.0])
def test_equal_points_share_by_weight(radius):
    w = np.array([1.0, 2.0, 5.0])
    problem, start = _problem(np.full((3, 2), 4.0), w, radius)
    np.testing.assert_allclose(start.values, w / 8, rtol=1e-9)
    np.testing.assert_allclose(exact(problem, start).values, w / 8, rtol=1e-9)


@pytest.mark.parametrize("half", [0.05, 0.4, 1.5])
@pytest.mark.parametrize("radius", [0.3, 1.0, 3.0])
def test_two_points_in_closed_form(half, radius):
    """At +-a with equal weights: the share of one is 1/(1 + e^{-4 a x}), largest at x = R."""
    found = _values([[half, 0.0], [-half, 0.0]], [1.0, 1.0], radius)
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-4 * half * radius)), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("radius", [0.3, 1.0, 3.0])
def test_one_dimension_by_a_dense_grid(seed, radius):
    rng = np.random.default_rng(seed)
    z = rng.standard_t(2, size=25) * rng.choice([0.3, 1.0, 3.0])
    w = 10 ** rng.uniform(-3, 0, 25)
    z = z - w @ z / w.sum()
    grid = np.linspace(-radius, radius, 20_001)
    tilted = np.log(w) - z**2 + 2 * grid[:, None] * z
    tilted -= tilted.max(axis=1, keepdims=True)
    shares = np.exp(tilted)
    largest = (shares / shares.sum(axis=1, keepdims=True)).max(axis=0)
    found = _values(z[:, None], w, radius)
    assert np.all(found >= largest * (1 - 1e-9))
    # between grid points the concave logarithm gains at most |second derivative| h^2 / 8 <= 4 max|z|^2 h^2 / 8
    slack = 0.5 * (z**2).max() * (grid[1] - grid[0]) ** 2 + 2e-6
    np.testing.assert_array_less(np.log(np.maximum(found, 1e-300)), np.log(np.maximum(largest, 1e-300)) + slack + 1e-9)


def test_every_point_of_the_circle_is_needed():
    circle = lower_bound_circle(40)
    radius = float(np.linalg.norm(circle[0]))
    found = _values(circle, np.ones(40), radius)
    assert np.all(found >= 0.5)
    assert found.sum() >= 20
    # seen only from the middle, none is
    assert np.all(_values(circle, np.ones(40), 0.01 * radius) < 0.5)


@pytest.mark.parametrize(("n", "d"), [(80, 2), (60, 12), (30, 50)])
def test_cells_are_mass_mean_and_variance_of_the_nearest(n, d):
    rng = np.random.default_rng(n)
    Z, shares = rng.normal(size=(n, d)), rng.dirichlet(np.ones(n))
    centers = Z[:5]
    found = cells(Points(Z, np.zeros(d), 1.0, 9.0), shares, centers)
    nearest = ((Z[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    for j in range(5):
        own, share = Z[nearest == j], shares[nearest == j]
        mean = share @ own / share.sum()
        assert found.mass[j] == pytest.approx(share.sum())
        np.testing.assert_allclose(found.means[j], mean, atol=1e-12)
        assert found.variances[j] == pytest.approx(share @ ((own - mean) ** 2).sum(axis=1) / share.sum(), abs=1e-12)


def test_cells_without_mass_are_dropped():
    Z, shares = np.array([[0.0], [1.0], [9.0]]), np.array([0.5, 0.5, 0.0])
    found = cells(Points(Z, np.zeros(1), 1.0, 9.0), shares, np.array([[0.5], [9.0], [50.0]]))
    assert found.mass.tolist() == [1.0]
    np.testing.assert_allclose(found.variances, 0.25)


@pytest.mark.parametrize(("n", "d", "k"), [(60, 2, 8), (60, 30, 5), (40, 12, 10)])
@pytest.mark.parametrize("radius", [0.3, 1.0, 3.0])
def test_any_partition_is_a_certificate_between_exact_and_closed_form(n, d, k, radius):
    """Also one that k-means would never choose; k + 1 < d takes the way through the span of the means."""
    rng = np.random.default_rng(k)
    problem, start = _problem(rng.normal(size=(n, d)) / np.sqrt(d), rng.gamma(1.0, size=n), radius)
    truth = exact(problem, start).values
    label = rng.integers(0, k, n)
    mass = np.bincount(label, problem.shares, k)
    Z = problem.points.take(np.arange(n))
    means = np.stack([np.bincount(label, problem.shares * column, k) for column in Z.T], axis=1) / mass[:, None]
    variances = np.bincount(label, problem.shares * ((Z - means[label]) ** 2).sum(axis=1), k) / mass
    found = cells_bound(problem, Cells(mass, means, variances), start)
    assert np.all(found.values >= truth * (1 - 1e-6))
    assert np.all(found.values <= start.values)
    assert found.gap is not None
    assert np.all(found.gap >= 0)
    single = cells_bound(problem, Cells(np.ones(1), np.zeros((1, d)), start_variance(problem)), start)
    np.testing.assert_allclose(single.values, start.values, rtol=1e-9)  # one cell is the closed form


def start_variance(problem):
    return np.array([problem.shares @ problem.sq_norms])


def test_as_many_cells_as_points_is_exact():
    rng = np.random.default_rng(0)
    problem, start = _problem(rng.normal(size=(30, 3)), rng.gamma(1.0, size=30), 1.0)
    Z = problem.points.take(np.arange(30))
    found = cells_bound(problem, Cells(problem.shares, Z, np.zeros(30)), start)
    truth = exact(problem, start).values
    np.testing.assert_allclose(found.values, truth, rtol=1.1e-3)  # the tolerance of cells: 0.1 %


@pytest.mark.parametrize("max_steps", [1, 2, 5, 1000])
def test_ascent_brackets_the_maximum_at_every_step(max_steps):
    """Stopped anywhere, upper is above and lower below the maximum; with steps enough they meet."""
    rng = np.random.default_rng(1)
    means, offsets, p = rng.normal(size=(20, 3)), rng.normal(size=20), rng.normal(size=(15, 3))
    atoms = Atoms(Block(means), offsets)
    curvature = 4 * (means**2).sum(axis=1).max()
    for radius in (0.3, 2.0):
        best = ascend(p, atoms, radius, np.full(15, np.inf), curvature, 1e-10, 20_000)
        found = ascend(p, atoms, radius, np.full(15, np.inf), curvature, 1e-6, max_steps)
        assert np.all(best.upper - best.lower < 1e-9)
        assert np.all(found.lower <= best.upper + 1e-9)
        assert np.all(found.upper >= best.lower - 1e-9)
        assert found.n_steps <= max_steps
        if max_steps == 1000:
            assert np.all(found.upper - found.lower <= 1e-6)


def test_an_upper_bound_that_is_known_already_is_kept():
    atoms = Atoms(Block(np.zeros((1, 1))), np.zeros(1))
    found = ascend(np.array([[1.0]]), atoms, 1.0, np.array([0.5]), 4.0, 1e-6, 100)
    # the maximum of 2x over |x| <= 1 is 2: the caller's word is not doubted
    assert found.upper.tolist() == [0.5]
    assert found.lower[0] == pytest.approx(2.0)


def test_points_without_weight_have_no_sensitivity_and_no_say():
    rng = np.random.default_rng(2)
    Z, w = rng.normal(size=(40, 2)), rng.gamma(1.0, size=40)
    w[:10] = 0.0
    problem, start = _problem(Z, w, 1.0)
    found = exact(problem, start)
    assert not found.values[:10].any()
    assert np.isfinite(found.gap).all()
    np.testing.assert_allclose(found.values[10:], _values(Z[10:], w[10:], 1.0), rtol=1e-6)


def test_a_row_without_weight_may_be_anywhere():
    """Its squared norm overflows; the bounds of the others stay what they are without it."""
    rng = np.random.default_rng(3)
    alone, start = _problem(rng.normal(size=(30, 2)), np.ones(30), 1.0)
    Z = np.vstack([alone.points.X, [[1e200, 0.0]]])
    shares, sq_norms = np.append(alone.shares, 0.0), np.append(alone.sq_norms, np.inf)
    summary = cells(alone.points, alone.shares, alone.points.X[:4])
    problem = Problem(Points(Z, np.zeros(2), 1.0, alone.points.max_norm), sq_norms, shares, 1.0)
    lengths = np.append(np.sqrt(alone.sq_norms), 0.0)
    more = closed_form(sq_norms, shares, float(alone.shares @ alone.sq_norms), 1.0, from_mean=lengths)
    found, expected = cells_bound(problem, summary, more), cells_bound(alone, summary, start)
    assert found.log_values[-1] == -np.inf
    assert found.gap[-1] == 0.0
    np.testing.assert_allclose(found.values[:-1], expected.values, rtol=1e-12)


def test_the_cells_of_a_long_block_are_those_of_the_nearest_centres():
    """So many rows that their products with the centres are computed in several parts."""
    rng = np.random.default_rng(5)
    Z, centers = rng.normal(size=(5000, 3)), rng.normal(size=(40, 3))
    found = cells(Points(Z, np.zeros(3), 1.0, 9.0), np.full(5000, 1 / 5000), centers)
    nearest = ((Z[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    mine = [Z[nearest == cell] for cell in np.unique(nearest)]
    np.testing.assert_allclose(found.mass, [len(rows) / 5000 for rows in mine], rtol=1e-12)
    np.testing.assert_allclose(found.means, [rows.mean(axis=0) for rows in mine], atol=1e-12)
    np.testing.assert_allclose(found.variances, [rows.var(axis=0).sum() for rows in mine], atol=1e-12)


def test_slack_covers_rounding_and_is_harmless():
    assert rounding_slack(1.0, 1.0) <= 1e-11
    assert rounding_slack(1e3, 1.0) >= 1e3**2 * np.finfo(float).eps * 100


@pytest.mark.parametrize("radius", [0.3, 1.0, 2.0])
def test_the_closed_form_of_a_ball_that_is_not_centred_at_the_mean(radius):
    rng = np.random.default_rng(3)
    z, shares = rng.normal(size=25) + 0.7, rng.dirichlet(np.ones(25))
    mean, second_moment = shares @ z, shares @ z**2
    found = closed_form(z**2, shares, second_moment, radius, from_mean=np.abs(z - mean)).values
    expected = shares * np.exp(second_moment) * np.exp(-(z**2)) * np.exp(2 * radius * np.abs(z - mean))
    np.testing.assert_allclose(found, np.minimum(expected, 1.0), rtol=1e-12)
    x = np.linspace(-radius, radius, 2001)[:, None]
    tilted = shares * np.exp(-((z - x) ** 2))
    largest = (tilted / tilted.sum(axis=1, keepdims=True)).max(axis=0)
    assert np.all(found >= largest)


def test_slack_is_added_to_both_closed_forms():
    z, shares = np.array([-1.0, 1.0]), np.array([0.5, 0.5])
    for from_mean in (None, np.abs(z)):
        plain, raised = (closed_form(z**2, shares, 1.0, 0.1, slack, from_mean) for slack in (0.0, 0.25))
        np.testing.assert_allclose(raised.log_values - plain.log_values, 0.25, rtol=1e-12)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_sums_over_parts_merge_to_the_sums_over_all(container):
    rng = np.random.default_rng(4)
    Z, shares = rng.normal(size=(40, 3)), rng.dirichlet(np.ones(40))
    whole, merged = cells(Points(container(Z), np.ones(3), 2.0, 9.0), shares, Z[:4]), CellSums(Z[:4])
    for part in (slice(0, 15), slice(15, 40)):
        sums = CellSums(Z[:4])
        sums.update(Points(container(Z[part]), np.ones(3), 2.0, 9.0).gather(slice(None)), shares[part])
        merged.merge(sums)
    found = merged.finish()
    np.testing.assert_allclose(found.mass, whole.mass, rtol=1e-12)
    np.testing.assert_allclose(found.means, whole.means, atol=1e-12)
    np.testing.assert_allclose(found.variances, whole.variances, atol=1e-12)
    assert len(whole.mass) > 1


def test_sparse_rows_have_the_sensitivities_of_dense_ones():
    """Around a centre that is not zero: the products of sparse rows are expanded, never formed."""
    rng = np.random.default_rng(5)
    Z = rng.normal(size=(30, 4)) * (rng.random((30, 4)) < 0.5)
    shares = rng.dirichlet(np.ones(30))
    center = shares @ Z
    sq_norms = ((Z - center) ** 2).sum(axis=1)
    found = []
    for container in (np.asarray, sp.csr_array):
        points = Points(container(Z), center, 1.0, float(np.sqrt(sq_norms.max())))
        problem = Problem(points, sq_norms, shares, 1.5)
        start = closed_form(sq_norms, shares, float(shares @ sq_norms), 1.5)
        found.append(exact(problem, start))
    np.testing.assert_allclose(found[1].values, found[0].values, rtol=2e-6)  # the tolerance of both
    assert np.all(found[1].values < np.minimum(start.values, 1.0) * (1 + 1e-12))


@pytest.mark.parametrize("radius", [0.3, 1.0])
def test_the_gap_is_how_far_the_ratio_reached_may_be_below(radius):
    """Two points at +-a: the truth is 1/(1 + e^{-4aR}), and ``log s - gap`` was reached by some query."""
    problem, start = _problem([[0.4], [-0.4]], [1.0, 1.0], radius)
    truth = -np.log1p(np.exp(-1.6 * radius))
    at_points = cells(problem.points, problem.shares, np.array([[0.4], [-0.4]]))
    for found, tolerance in (
        (exact(problem, start), EXACT_TOLERANCE),
        (cells_bound(problem, at_points, start), CELLS_TOLERANCE),
    ):
        assert np.all(found.log_values >= truth)
        assert np.all(found.log_values - found.gap <= truth + 1e-12)
        assert np.all(found.gap <= tolerance)
        assert np.all(found.gap > 0)
        assert found.is_certified


def test_cells_in_more_dimensions_than_the_data_have():
    """A plane turned into R^12 is the same problem; only there the ascent runs in the span of the means."""
    rng = np.random.default_rng(5)
    flat, w = rng.normal(size=(80, 2)), rng.gamma(1.0, size=80)
    turned = flat @ np.linalg.qr(rng.normal(size=(12, 12)))[0][:2]
    centers = rng.choice(80, 6, replace=False)
    found = []
    for Z in (flat, turned):
        problem, start = _problem(Z, w, 1.0)
        middle = problem.points.take(np.arange(80))[centers]
        found.append(cells_bound(problem, cells(problem.points, problem.shares, middle), start).values)
    np.testing.assert_allclose(found[1], found[0], rtol=2.2e-3)  # each is within the tolerance of cells, 0.1 %


def test_centres_of_cells_find_clusters_and_are_one_where_all_points_are_equal():
    rng = np.random.default_rng(0)
    planted = 50.0 * rng.normal(size=(7, 3))
    points = (planted[:, None] + 0.1 * rng.normal(size=(7, 20, 3))).reshape(-1, 3).astype(np.float32)
    for seed in range(5):
        found = lloyd_centers(points, 7, seed)
        means = points.astype(np.float64).reshape(7, 20, 3).mean(axis=1)
        assert found[np.lexsort(found.T)] == pytest.approx(means[np.lexsort(means.T)], rel=1e-6)
        assert (lloyd_centers(points, 7, seed) == found).all()
    assert lloyd_centers(np.ones((9, 2), dtype=np.float32), 4, 0).tolist() == [[1.0, 1.0]]
