"""The search for the worst query, against grids, other optimisers and cases with a known answer."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import logsumexp

from coresift.core.audit import AuditResult, _both_ways, _Search, _spread_best, worst_query
from coresift.core.points import Points, Subset
from coresift.core.ratio import LogRatio

LOSSES = ["gaussian", "laplacian"]


def scaled(X, scale=None):
    """The points around their mean, in units of ``scale``, or of the largest distance from the mean."""
    center = X.mean(axis=0)
    farthest = float(np.linalg.norm(X - center, axis=1).max())
    scale = farthest if scale is None else scale
    return Points(X, center, scale, farthest / scale)


def direct_errors(points, weights, rows, subset_weights, loss, queries):
    """``|S/F - 1|`` at scaled queries, from its definition."""
    Z = points.take(np.arange(points.n))
    squares = np.sum((Z[:, None] - queries) ** 2, axis=2)
    exponents = -squares if loss == "gaussian" else -np.sqrt(squares)
    subset = logsumexp(exponents[rows], axis=0, b=subset_weights[:, None])
    return np.abs(np.expm1(subset - logsumexp(exponents, axis=0, b=weights[:, None])))


def search(points, weights, rows, subset_weights, loss, seed=0, radius=None, **options):
    if radius is None:
        radius = points.max_norm
    radius = radius if loss == "gaussian" else np.inf
    rng = np.random.default_rng(seed)
    return worst_query(Subset(points, weights, rows, subset_weights, radius, loss), rng, **options)


def drawn(rng, n, m, spread):
    """Weights and a subset; ``spread`` > 0 makes both uneven."""
    weights = rng.lognormal(0.0, spread, n)
    rows = np.sort(rng.choice(n, m, replace=False))
    return weights, rows, weights[rows] * (n / m) * rng.lognormal(0.0, 0.3 * spread, m)


def grid(points, loss, radius, side=91):
    """A grid over the ball with its boundary; for the Laplacian over a wider square, the points, and a far circle."""
    angles = np.linspace(0.0, 2.0 * np.pi, 500)
    circle = np.column_stack((np.cos(angles), np.sin(angles)))
    half = radius if loss == "gaussian" else 2.0 * points.max_norm
    axis = np.linspace(-half, half, side)
    square = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    if loss == "gaussian":
        return np.concatenate((square[np.sum(square**2, axis=1) <= radius**2], radius * circle))
    return np.concatenate((square, 1e5 * points.max_norm * circle, points.take(np.arange(points.n))))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize("bandwidths_wide", [0.3, 1.0, 3.0, 12.0])
@pytest.mark.parametrize("loss", LOSSES)
def test_no_grid_finds_a_worse_query_in_the_plane(loss, bandwidths_wide, spread, seed):
    rng = np.random.default_rng(seed)
    n, m = 100, 15
    X = rng.standard_normal((n, 2)) if seed % 2 else rng.standard_t(3, (n, 2))
    weights, rows, v = drawn(rng, n, m, spread)
    farthest = np.linalg.norm(X - X.mean(axis=0), axis=1).max()
    points = scaled(X, farthest / bandwidths_wide)
    radius = points.max_norm * (1.0, 0.5, 1.5)[seed]
    found = search(points, weights, rows, v, loss, radius=radius)
    on_grid = direct_errors(points, weights, rows, v, loss, grid(points, loss, radius)).max()
    assert found.worst_error >= on_grid / 1.01


def best_by_scipy(points, weights, rows, v, radius, rng, n_starts):
    """L-BFGS in the whole space mapped onto the ball, ``x = R y / sqrt(1 + |y|^2)``, both ways from random rows."""
    Z = points.take(np.arange(points.n))
    log_w, log_v = np.log(weights), np.log(v)

    def objective(y, sign):
        root = np.sqrt(1.0 + y @ y)
        x = radius * y / root
        exponents = -np.sum((Z - x) ** 2, axis=1)
        subset, data = exponents[rows] + log_v, exponents + log_w
        value = logsumexp(subset) - logsumexp(data)
        slope = 2.0 * (np.exp(subset - logsumexp(subset)) @ Z[rows] - np.exp(data - logsumexp(data)) @ Z)
        return -sign * value, -sign * radius * (slope / root - y * (y @ slope) / root**3)

    best = 0.0
    for start in Z[rng.choice(points.n, n_starts)]:
        inside = start / max(radius, np.linalg.norm(start)) * 0.95
        for sign in (1.0, -1.0):
            y = inside / np.sqrt(1.0 - inside @ inside)
            end = minimize(objective, y, args=(sign,), jac=True, method="L-BFGS-B")
            best = max(best, abs(np.expm1(-sign * end.fun)))
    return best


@pytest.mark.slow
@pytest.mark.parametrize("d, scale", [(10, None), (10, 2.0), (64, None), (64, 6.0)])
def test_many_runs_of_another_optimiser_find_no_worse_query(d, scale):
    rng = np.random.default_rng(d)
    X = rng.standard_normal((200, d))
    weights, rows, v = drawn(rng, 200, 30, 0.5)
    points = scaled(X, scale)
    found = search(points, weights, rows, v, "gaussian")
    assert found.worst_error >= best_by_scipy(points, weights, rows, v, points.max_norm, rng, 8) / 1.01


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, lambda X: X.astype(np.float32)])
@pytest.mark.parametrize("scale", [None, 0.01, 30.0])
def test_the_reported_error_is_the_error_at_the_reported_query(loss, convert, scale):
    rng = np.random.default_rng(4)
    X = np.round(rng.standard_normal((150, 4)), 2).astype(np.float32).astype(np.float64) + 3.0
    weights, rows, v = drawn(rng, 150, 20, 1.0)
    reference = scaled(X, scale)
    points = Points(convert(X), reference.center, reference.scale, reference.max_norm)
    found = search(points, weights, rows, v, loss)
    query = reference.to_scaled(found.worst_query)
    # A Laplacian query 1e6 radii away knows its distances to 1e6 eps of the data's size in bandwidths.
    tolerance = 1e-8 * max(1.0, reference.max_norm)
    error = direct_errors(reference, weights, rows, v, loss, query[None])[0]
    assert found.worst_error == pytest.approx(error, rel=tolerance, abs=tolerance)
    assert abs(found.worst_ratio - 1.0) == pytest.approx(found.worst_error, rel=1e-12)
    if loss == "gaussian":
        assert np.linalg.norm(query) <= found.radius * (1 + 1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale", [None, 0.05, 50.0])
def test_all_rows_with_their_own_weights_have_no_error(loss, scale):
    rng = np.random.default_rng(1)
    points = scaled(rng.standard_normal((300, 5)), scale)
    weights = 10.0 ** rng.uniform(-6, 6, 300)
    found = search(points, weights, np.arange(300), weights, loss)
    assert found.worst_error <= 1e-12
    assert found.mean_error <= 1e-12


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_too_large_by_a_factor_show_everywhere(loss):
    rng = np.random.default_rng(1)
    weights = rng.lognormal(0.0, 1.0, 300)
    found = search(scaled(rng.standard_normal((300, 5))), weights, np.arange(300), 1.3 * weights, loss)
    expected = pytest.approx(0.3, abs=1e-12)
    assert found.worst_error == expected
    assert found.worst_ratio == pytest.approx(1.3, abs=1e-12)
    assert found.mean_error == expected
    assert all(value == expected for value in found.quantiles.values())


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size", [1, 5])
def test_a_deleted_far_cluster_is_found(loss, size):
    rng = np.random.default_rng(3)
    place = np.full(6, 20.0)
    X = np.concatenate((rng.standard_normal((3000, 6)), place + 0.1 * rng.standard_normal((size, 6))))
    rows = np.arange(3000)
    points = scaled(X, 2.0)
    found = search(points, np.ones(len(X)), rows, np.ones(3000), loss)
    assert found.worst_error > 0.999
    assert found.worst_ratio < 1e-3


def test_a_subset_without_weight_is_wholly_wrong():
    points = scaled(np.random.default_rng(0).standard_normal((50, 3)))
    for loss in LOSSES:
        found = search(points, np.ones(50), np.array([4]), np.array([0.0]), loss)
        assert found.worst_error == 1.0
        assert found.worst_ratio == 0.0
        assert found.mean_error == 1.0


@pytest.mark.parametrize("loss", LOSSES)
def test_the_worst_direction_at_infinity_is_seen(loss):
    # Laplacian: left of all points the ratio rises to its limit, sum v e^{-q} / sum w e^{-p}, and never reaches it.
    X = np.array([[-1.0], [0.0], [1.0]])
    points = Points(X, np.zeros(1), 1.0, 1.0)
    rows, v = np.array([0, 2]), np.array([1.5, 1.5])
    found = search(points, np.ones(3), rows, v, loss, radius=50.0)
    if loss == "laplacian":
        limit = 3.0 * np.cosh(1.0) / (1.0 + 2.0 * np.cosh(1.0)) - 1.0
        assert found.worst_error >= limit * (1 - 1e-5)
    else:  # far from the points only the nearest counts: the ratio tends to its v/w
        assert found.worst_error == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "X",
    [np.zeros((1, 3)), np.ones((7, 2)), np.arange(5.0)[:, None], np.eye(3)[[0, 0, 1, 1, 2]], np.eye(2, 40)],
    ids=["one point", "all equal", "a line", "duplicates", "n < d"],
)
def test_awkward_data(X, loss):
    center = X.mean(axis=0)
    points = Points(X, center, 1.0, float(np.linalg.norm(X - center, axis=1).max()))
    found = search(points, np.ones(len(X)), np.array([0]), np.array([1.5 * len(X)]), loss, radius=1.0)
    assert np.isfinite(found.worst_query).all()
    query = points.to_scaled(found.worst_query)
    v = np.array([1.5 * len(X)])
    error = direct_errors(points, np.ones(len(X)), np.array([0]), v, loss, query[None])[0]
    assert found.worst_error == pytest.approx(error, abs=1e-8)
    if len(np.unique(X, axis=0)) == 1:
        assert found.worst_error == pytest.approx(0.5, abs=1e-12)


def test_rows_of_weight_zero_do_not_count():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((80, 3))
    extra = np.concatenate((X, 5.0 + rng.standard_normal((20, 3))))
    center = X.mean(axis=0)
    results = []
    for data in (X, extra):
        points = Points(data, center, 1.5, float(np.linalg.norm(X - center, axis=1).max()) / 1.5)
        weights = np.concatenate((np.ones(80), np.zeros(len(data) - 80)))
        results.append(search(points, weights, np.arange(0, 80, 8), np.full(10, 8.0), "gaussian"))
    assert results[1].worst_error == pytest.approx(results[0].worst_error, rel=1e-3)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_generator_decides_everything(loss):
    rng = np.random.default_rng(9)
    points = scaled(rng.standard_normal((400, 4)), 1.0)
    weights, rows, v = drawn(rng, 400, 40, 0.5)
    first, again, other = (search(points, weights, rows, v, loss, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.worst_query, again.worst_query)
    assert (first.mean_error, first.quantiles) == (again.mean_error, again.quantiles)
    assert first.mean_error != other.mean_error


def test_random_queries_are_half_uniform_and_half_rows_by_weight():
    # The subset lacks one heavy row at distance 20 (bandwidths) from the others: errors are 1 nearer to it, else 0.
    rng = np.random.default_rng(0)
    X = np.concatenate((np.zeros((99, 2)), [[1.0, 0.0]]))
    points = Points(X, np.zeros(2), 0.05, 20.0)
    weights = np.concatenate((np.full(99, 0.2 / 99), [0.8]))
    rows, v = np.arange(99), weights[:99]
    found = worst_query(Subset(points, weights, rows, v, 20.0, "gaussian"), rng, n_random=20_000)
    # Of the disc of radius 20 the part beyond x = 10 has the share (arccos(1/2) - sqrt(3)/4) / pi = 0.1955.
    expected = 0.5 * 0.8 + 0.5 * (np.arccos(0.5) - np.sqrt(3.0) / 4.0) / np.pi
    # Five standard deviations of a mean of 20,000 numbers of [0, 1]; the border strip has less than 0.3 % of the disc.
    tolerance = 5.0 * np.sqrt(0.25 / 20_000) + 0.003
    assert abs(found.mean_error - expected) < tolerance
    by_row = 0.5 * 0.01 + 0.5 * 0.1955  # power: rows chosen uniformly
    radii = np.linspace(10.0, 20.0, 1001)
    by_radius = 0.5 * 0.8 + 0.5 * np.mean(np.arccos(10.0 / radii)) / np.pi / 2.0  # power: radii chosen uniformly
    assert abs(by_row - expected) > 2 * tolerance
    assert abs(by_radius - expected) > 1.5 * tolerance
    assert found.quantiles[0.5] <= found.quantiles[0.9] <= found.quantiles[0.99] <= found.worst_error


@pytest.mark.parametrize("loss", LOSSES)
def test_a_budget_bounds_the_work(loss):
    rng = np.random.default_rng(2)
    points = scaled(rng.standard_normal((2000, 5)), 0.5)
    weights, rows, v = drawn(rng, 2000, 100, 0.0)
    full = search(points, weights, rows, v, loss)
    bounded = search(points, weights, rows, v, loss, max_evaluations=2000 * 400)
    least = search(points, weights, rows, v, loss, max_evaluations=1)
    assert full.n_queries > 1500
    assert bounded.n_queries <= 500
    assert least.n_queries <= 100
    assert 0.0 < least.worst_error <= full.worst_error * 1.01


def test_chosen_queries_hold_the_rows_where_the_ratio_may_be_extreme():
    rng = np.random.default_rng(7)
    X = np.concatenate((rng.standard_normal((2000, 3)) * 0.1 + 3.0, rng.standard_normal((2000, 3)) * 0.1 - 3.0))
    X[5] = (0.0, 2.0, 0.0)  # inside, far from all others and from the subset
    X[6] = (9.0, 9.0, 9.0)  # the largest norm, and in the subset
    points = Points(X, np.zeros(3), 1.0, float(np.linalg.norm(X[6])))
    rows = np.arange(6, 4000, 40)
    v = np.full(len(rows), 40.0)
    v[50] = 41.0  # the largest v/w
    ratio = LogRatio(Subset(points, np.ones(4000), rows, v))
    queries = _Search(ratio, 20.0, rng, None).chosen_queries(8)  # one row of each kind
    for row in (5, 6, rows[50]):
        assert np.isclose(queries, X[row]).all(axis=1).any()
        assert np.isclose(queries, 20.0 * X[row] / np.linalg.norm(X[row])).all(axis=1).any()
    assert np.isclose(queries, 0.0).all(axis=1).any()
    assert len(queries) <= 9


def test_the_ascent_adds_to_what_random_queries_find():
    rng = np.random.default_rng(6)
    points = scaled(rng.standard_normal((1000, 20)))
    weights, rows, v = drawn(rng, 1000, 60, 0.0)
    without = search(points, weights, rows, v, "gaussian", max_iter=0)
    found = search(points, weights, rows, v, "gaussian")
    assert found.worst_error > 1.3 * without.worst_error


def test_the_result_says_found_and_is_frozen():
    points = scaled(np.random.default_rng(0).standard_normal((60, 2)))
    for loss, where in (("gaussian", "ball of radius 1"), ("laplacian", "R^d")):
        found = search(points, np.ones(60), np.arange(0, 60, 6), np.full(10, 6.0), loss)
        assert isinstance(found, AuditResult)
        assert "found" in repr(found)
        assert "guarantee" not in repr(found)
        assert where in str(found)
        with pytest.raises(AttributeError):
            found.worst_error = 0.0


def test_a_supremum_that_only_infinity_attains_is_reached():
    # S = {(0, 1), (0, -1)} with weights 3, and a third point (-3, 0) in the data. Going out along (1, 0) the share of
    # the third point falls to e^-3 / (2 + e^-3), and no finite query sees less of it.
    X = np.array([[0.0, 1.0], [0.0, -1.0], [-3.0, 0.0]])
    points = Points(X, np.zeros(2), 1.0, 3.0)
    found = search(points, np.ones(3), np.array([0, 1]), np.full(2, 3.0), "laplacian")
    limit = 3.0 / (1.0 + np.exp(-3.0) / 2.0) - 1.0
    assert limit * (1 - 1e-5) <= found.worst_error <= limit * (1 + 1e-9)
    assert np.linalg.norm(found.worst_query) > 1e3


@pytest.mark.parametrize("seed", range(4))
def test_a_laplacian_query_is_not_worse_at_the_rows_next_to_it(seed):
    rng = np.random.default_rng(seed)
    points = scaled(rng.standard_normal((3000, 2)), 0.05)
    weights, rows, v = drawn(rng, 3000, 300, 0.3)
    found = search(points, weights, rows, v, "laplacian", n_random=8, n_starts=6)
    Z = points.take(np.arange(3000))
    squares = np.sum((Z - points.to_scaled(found.worst_query)) ** 2, axis=1)
    beside = Z[[squares.argmin(), rows[squares[rows].argmin()]]]
    assert found.worst_error >= direct_errors(points, weights, rows, v, "laplacian", beside).max() * (1 - 1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_bandwidth_far_below_the_size_of_the_data(loss):
    # Triples of rows half a bandwidth apart, the triples a million bandwidths: |z|^2 - 2 z.x + |x|^2 errs by 1e-4.
    rng = np.random.default_rng(12)
    base = np.repeat(rng.standard_normal((40, 3)), 3, axis=0)
    points = scaled(base + 0.5e-6 * rng.standard_normal(base.shape), 1e-6)
    weights, rows, v = drawn(rng, 120, 60, 0.5)
    found = search(points, weights, rows, v, loss, n_random=200)
    query = points.to_scaled(found.worst_query)
    error = direct_errors(points, weights, rows, v, loss, query[None])[0]
    # The query is reported in units in which a bandwidth is 1e-6: 1e-10 bandwidths are rounded away. And at a query far
    # from all rows even the true squared distances are rounded.
    nearest = np.min(np.sum((points.take(np.arange(120)) - query) ** 2, axis=1))
    assert found.worst_error == pytest.approx(error, rel=1e-7 + 8 * np.finfo(float).eps * nearest)


def test_starts_are_the_best_queries_that_are_apart():
    queries = np.array([[0.0], [0.1], [0.4], [0.45], [2.0], [9.0]])
    values = np.array([5.0, 4.0, 3.0, 2.5, 2.0, -np.inf])
    # 0.1 is near 0, 0.45 near 0.4: they come last, the better one first; a ratio of zero is no start
    assert _spread_best(queries, values, 5, 0.3).tolist() == [0, 2, 4, 1, 3]
    assert _spread_best(queries, values, 2, 0.3).tolist() == [0, 2]
    assert _spread_best(queries, values, 4, 0.05).tolist() == [0, 1, 2, 4]
    assert _spread_best(queries, values, 9, 0.0).tolist() == [0, 1, 2, 3, 4]


def test_starts_go_both_ways_until_the_error_passes_what_a_low_ratio_can_reach():
    queries = np.arange(6.0)[:, None]
    for top, up in ((np.log(1.9), 2), (np.log(2.1), 3)):  # errors of 0.9 and 1.1
        values = np.array([-3.0, -2.0, 0.0, 0.1, 0.2, top])
        starts, signs = _both_ways(queries, values, 3, 0.1)
        assert signs.tolist() == [1.0] * up + [-1.0] * (3 - up)
        assert starts.ravel().tolist() == [5.0, 4.0, 3.0][:up] + [0.0, 1.0][: 3 - up]
    # a ratio that is too low everywhere, however much, is climbed both ways
    assert _both_ways(queries, np.full(6, -9.0), 3, 0.1)[1].tolist() == [1.0, 1.0, -1.0]


@pytest.mark.parametrize("seed, most", [(0, 78), (1, 55), (2, 61)])
def test_paths_of_one_hill_meet_in_few_steps(seed, most):
    """In a small ball there is one maximum and one minimum; six paths, three each way."""
    rng = np.random.default_rng(seed)
    points = scaled(rng.standard_normal((300, 8)), 1.0)
    weights, rows, v = drawn(rng, 300, 30, 0.5)
    state = _Search(LogRatio(Subset(points, weights, rows, v)), 0.5, rng, None)
    starts, signs = state.project(points.take(np.arange(6))), np.array([1.0, -1.0] * 3)
    ends, values = state._ascend(starts, signs, state.project, 1.0)
    np.testing.assert_allclose(state.ratio(ends), values, rtol=1e-9)
    assert np.ptp(values[::2]) < 1e-4
    assert np.ptp(values[1::2]) < 1e-4
    assert np.all(signs * values > signs * state.ratio(starts))
    assert np.linalg.norm(ends, axis=1).max() <= 0.5 * (1 + 1e-12)
    assert state.n_queries <= most


def test_what_is_left_is_counted_in_evaluations_and_pays_for_at_least_four_queries():
    points = scaled(np.random.default_rng(0).standard_normal((20, 2)))
    ratio = LogRatio(Subset(points, np.ones(20), np.arange(5), np.full(5, 4.0)))
    state = _Search(ratio, 1.0, np.random.default_rng(1), 20 * 50)
    assert [state.affordable(100), state.affordable(30), state.affordable(100, share=0.25)] == [50, 30, 12]
    state.spend(10)
    assert (state.n_queries, state.left, state.affordable(100)) == (10, 20 * 40, 40)
    state.evaluate(np.zeros((3, 2)))
    assert (state.n_queries, state.left, len(state.queries), len(state.values)) == (13, 20 * 37, 3, 3)
    state.spend(36)
    assert state.affordable(100) == 4
    assert _Search(ratio, 1.0, np.random.default_rng(1), None).affordable(10**9) == 10**9


def test_the_fewest_chosen_queries_hold_one_row_of_each_kind():
    X = np.arange(40.0)[:, None] - 20.0
    ratio = LogRatio(Subset(Points(X, np.zeros(1), 1.0, 20.0), np.ones(40), np.array([20, 25]), np.array([20.0, 22.0])))
    queries = _Search(ratio, 30.0, np.random.default_rng(0), None).chosen_queries(2)
    assert {0.0, 5.0, -20.0} <= set(queries.ravel().tolist())  # the centre, the largest v/w, the farthest
    assert {30.0, -30.0} <= set(queries.ravel().tolist())  # where their rays leave the ball


def test_cover_is_the_distance_from_the_subset_even_from_a_single_row():
    X = np.random.default_rng(3).standard_normal((30, 4))
    for rows in (np.array([7]), np.array([2, 7, 19])):
        ratio = LogRatio(Subset(Points(X, np.zeros(4), 1.0, 9.0), np.ones(30), rows, np.ones(len(rows))))
        norms, cover = _Search(ratio, 1.0, np.random.default_rng(0), None)._norms_and_cover()
        np.testing.assert_allclose(norms, np.linalg.norm(X, axis=1), rtol=1e-12)
        nearest = ((X[:, None] - X[rows]) ** 2).sum(axis=2).min(axis=1)
        np.testing.assert_allclose(cover, -nearest, atol=1e-12)


class Recorded:
    """A function of the plane instead of a ratio: what the ascent asks for, in order."""

    def __init__(self, function):
        self.function, self.asked = function, []

    def with_gradient(self, x):
        self.asked.append(x.copy())
        return self.function(x)


def ascent_of(function, starts, signs, *, radius=9.0, length=1.0, max_iter=50, left=None):
    """The points that the ascent looks at, the ends, their values, and what it spent."""
    points = Points(np.zeros((10, starts.shape[1])), np.zeros(starts.shape[1]), 1.0, 1.0)
    ratio = LogRatio(Subset(points, np.ones(10), np.arange(2), np.ones(2)))
    state = _Search(ratio, radius, np.random.default_rng(0), left, max_iter)
    state.ratio = recorded = Recorded(function)
    ends, values = state._ascend(starts, np.array(signs), state.project, length)
    return recorded.asked, ends, values, state


def parabola(peak, curvature=1.0):
    return lambda x: (-curvature * np.sum((x - peak) ** 2, axis=1), -2.0 * curvature * (x - peak))


@pytest.mark.parametrize("length", [1.0, 3.0])
def test_a_step_that_is_too_long_is_quartered_and_the_next_one_knows_the_curvature(length):
    """From 0 towards 0.01: a tenth of the domain, a quarter of that, a quarter again; then the secant is exact."""
    start = np.zeros((1, 1))
    asked, ends, values, state = ascent_of(parabola(0.01 * length), start, [1.0], length=length)
    path = [0.0, 0.1, 0.025, 0.00625, 0.01]
    np.testing.assert_allclose(np.ravel(asked), length * np.array(path), atol=1e-15)
    assert ends[0, 0] == pytest.approx(0.01 * length)
    assert values[0] == pytest.approx(0.0, abs=1e-12)
    assert (state.n_queries, state.left) == (5, np.inf)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_steps_up_a_slope_grow_fourfold_to_the_length_of_the_domain_and_end_at_the_border(sign):
    slope = np.array([[3.0, 4.0]]) / 7.0
    asked, ends, values, _ = ascent_of(
        lambda x: (x @ slope[0], np.repeat(slope, len(x), axis=0)), np.zeros((1, 2)), [sign], radius=3.0
    )
    lengths = [0.0, 0.1, 0.5, 1.5, 2.5, 3.0]
    np.testing.assert_allclose(np.concatenate(asked), sign * np.outer(lengths, slope[0] * 7.0 / 5.0), atol=1e-12)
    np.testing.assert_allclose(ends[0], sign * 3.0 * slope[0] * 7.0 / 5.0)
    assert values[0] == pytest.approx(sign * 3.0 * 5.0 / 7.0)


def test_a_path_may_be_worse_than_its_last_point_but_not_than_the_worst_of_the_last_four():
    """A height by the number of the visit: falls that stay above one of the four values before are accepted."""
    heights = [0.0, 1.0, 0.5, 0.2, 0.1, 0.3, 0.05, 0.2]
    visits = iter(heights)
    asked, ends, values, _ = ascent_of(
        lambda x: (np.full(1, next(visits)), np.ones((1, 1))), np.zeros((1, 1)), [1.0], max_iter=7, radius=1e9
    )
    moves = np.diff(np.ravel(asked))
    # 0, 1, 0.5, 0.2 and 0.1 are above 0, the start, which is forgotten after the fourth step; 0.3 is above 0.1;
    # 0.05 is below all of 0.5, 0.2, 0.1 and 0.3, so the last move begins again from there, shorter
    np.testing.assert_allclose(moves[:6], [0.1, 0.4, 1.0, 1.0, 1.0, 1.0])
    assert moves[6] == pytest.approx(0.25 - 1.0)
    assert (ends[0, 0], values[0]) == (pytest.approx(0.1), 1.0)


def test_an_ascent_ends_with_its_budget_and_after_so_many_steps():
    start, slope = np.zeros((2, 1)), lambda x: (x[:, 0], np.ones((len(x), 1)))
    assert len(ascent_of(slope, start, [1.0, 1.0], max_iter=3, radius=1e9)[0]) == 4
    asked, _, _, state = ascent_of(slope, start, [1.0, 1.0], radius=1e9, left=79.0)  # a look costs 2 times 10
    assert len(asked) == 3
    assert state.left == 19.0
    assert len(ascent_of(slope, start, [1.0, 1.0], radius=1e9, left=80.0)[0]) == 4


def test_a_path_that_gains_nothing_leaves_the_others_going():
    """One start at the peak, where the gradient is zero: it is looked at once."""
    asked, ends, values, _ = ascent_of(parabola(0.5), np.array([[0.5], [0.0]]), [1.0, 1.0])
    assert [len(x) for x in asked[:3]] == [2, 1, 1]
    np.testing.assert_allclose(ends, 0.5, atol=1e-2)
    assert values[0] == 0.0


@pytest.mark.parametrize("n_starts, expected", [(1, 3), (2, 3), (3, 3), (6, 6), (20, 20)])
def test_the_centre_is_two_of_the_starts_and_one_other_there_always_is(n_starts, expected, monkeypatch):
    points = scaled(np.random.default_rng(0).standard_normal((40, 2)), 0.1)
    ratio = LogRatio(Subset(points, np.ones(40), np.arange(5), np.full(5, 8.0)))
    state = _Search(ratio, 1.0, np.random.default_rng(1), None, 5)
    state.evaluate(state.random_queries(60))
    seen = []
    monkeypatch.setattr(
        state, "_ascend", lambda starts, signs, *rest: seen.append((starts, signs)) or (starts, np.zeros(len(starts)))
    )
    state.climb(n_starts)
    starts, signs = seen[0]
    assert len(starts) == len(signs) == expected
    assert not starts[-2:].any()
    assert signs[-2:].tolist() == [1.0, -1.0]
    assert len(state.queries) == len(state.values) == 60 + expected


@pytest.mark.parametrize("loss", LOSSES)
def test_every_query_is_counted(loss, monkeypatch):
    """Whatever is asked of the ratio is in ``n_queries``, but for the few that are computed a second time."""
    asked = []
    for name in ("__call__", "with_gradient"):
        plain = getattr(LogRatio, name)
        monkeypatch.setattr(LogRatio, name, lambda self, x, plain=plain: asked.append(len(x)) or plain(self, x))
    points = scaled(np.random.default_rng(0).standard_normal((50, 2)), 0.5)
    found = search(points, np.ones(50), np.arange(8), np.full(8, 6.0), loss, n_random=30, n_starts=5)
    assert found.n_queries == sum(asked)
    assert asked[0] == 30


def test_far_away_queries_are_half_random_and_half_in_the_direction_of_the_outermost_queries(monkeypatch):
    points = scaled(np.random.default_rng(0).standard_normal((50, 2)), 0.5)
    ratio = LogRatio(Subset(points, np.ones(50), np.arange(8), np.full(8, 6.0), loss="laplacian"))
    state = _Search(ratio, np.inf, np.random.default_rng(1), None, 3)
    state.evaluate(np.array([[0.1, 0.0], [0.0, -7.0], [5.0, 0.0], [0.2, 0.2]]))
    seen = []
    plain = LogRatio.__call__
    monkeypatch.setattr(LogRatio, "__call__", lambda self, x: seen.append(x.copy()) or plain(self, x))
    monkeypatch.setattr(state, "affordable", lambda wanted: min(wanted, 5))
    state.climb_far_away(2)
    (far,) = seen
    directions = far / (1e6 * points.max_norm)
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1.0)
    np.testing.assert_allclose(directions[-3:-1], [[0.0, -1.0], [1.0, 0.0]], atol=1e-12)
    np.testing.assert_allclose(directions[-1], [0.5**0.5] * 2)
    assert len(directions) == 5
    ends = state.queries[9:]
    np.testing.assert_allclose(np.linalg.norm(ends, axis=1), 1e6 * points.max_norm, rtol=1e-9)
    assert len(ends) == 2
    assert np.abs(state.values[9:]).max() >= np.abs(state.values[4:9]).max()  # the ascent starts from the best


def test_queries_are_projected_on_the_ball_and_left_alone_without_one():
    rng = np.random.default_rng(0)
    points = scaled(rng.normal(size=(20, 3)))
    queries = rng.normal(size=(50, 3)) * rng.uniform(0.1, 4.0, (50, 1))
    for radius in (0.7, np.inf):
        ratio = LogRatio(Subset(points, np.ones(20), np.arange(5), np.full(5, 4.0)))
        found = _Search(ratio, radius, rng, None).project(queries)
        lengths = np.linalg.norm(queries, axis=1)
        outside = lengths > radius
        np.testing.assert_array_equal(found[~outside], queries[~outside])
        np.testing.assert_allclose(found[outside], queries[outside] / lengths[outside, None] * radius)


def test_the_rows_next_to_the_worst_queries_are_tried():
    """Sixty-four queries are looked around at, those of the largest error, whether the ratio is too high or too low."""
    rng = np.random.default_rng(0)
    points = scaled(rng.normal(size=(300, 2)))
    ratio = LogRatio(Subset(points, np.ones(300), np.arange(5), np.full(5, 60.0), loss="laplacian"))
    search = _Search(ratio, np.inf, rng, None)
    search.queries = points.take(np.arange(10, 210))  # a row is the nearest to itself
    search.values = np.full(200, 1e-3)
    worst = rng.permutation(200)[:64]
    search.values[worst] = np.where(rng.random(64) < 0.5, 0.6, -0.9)
    tried = []
    search.evaluate = lambda queries: tried.append(queries)
    search.try_nearest_rows()
    wanted = points.take(10 + np.sort(worst))
    found = {row.tobytes() for row in tried[0]}
    assert {row.tobytes() for row in wanted} <= found
    assert len(found) <= 64 + 5  # and the nearest of the subset, which has five
