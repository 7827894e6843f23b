"""The certificate's two halves, discrepancy and floor, against dense sums and grids of queries."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, strategies as st
from scipy.spatial.distance import cdist

from coresift.core.certificate import certify_exact, certify_sampled, log_floor
from coresift.core.discrepancy import AllOrders
from coresift.core.moments import HighOrders
from coresift.core.points import Certificate, Points, Subset

LOSSES = ("gaussian", "laplacian")
POWER = {"gaussian": "sqeuclidean", "laplacian": "euclidean"}


def make_points(Z):
    return Points(Z, np.zeros(Z.shape[1]), 1.0, float(np.linalg.norm(Z, axis=1).max()))


def sums(x, Z, w, loss):
    return np.exp(-cdist(x, Z, POWER[loss])) @ w


def grid(radius, count=61):
    """Of the disc, its edge included."""
    ticks = np.linspace(-radius, radius, count)
    inside = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    angles = np.linspace(0, 2 * np.pi, 4 * count)
    edge = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.concatenate([inside[np.linalg.norm(inside, axis=1) <= radius], edge])


@st.composite
def problems(draw):
    """Weighted rows in the plane, not centred, of any width, weights over 12 orders; a subset with any weights."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 25))
    Z = rng.normal(size=(n, 2)) * draw(st.sampled_from([0.0, 0.01, 0.5, 1.0, 3.0]))
    Z += draw(st.sampled_from([0.0, 0.3, 2.0])) * rng.normal(size=2)
    w = 10 ** rng.uniform(-draw(st.sampled_from([0, 2, 12])), 0, n)
    subset = np.sort(rng.choice(n, size=draw(st.integers(0, n)), replace=False))
    v = rng.random(len(subset)) ** draw(st.sampled_from([0, 1, 5])) / max(len(subset), 1)
    return Z, w / w.sum(), subset, v


@pytest.mark.slow
@given(problems(), st.sampled_from([0.3, 1.0, 2.0]), st.sampled_from(LOSSES))
def test_no_query_of_a_dense_grid_is_above_the_bound_or_below_the_floor(problem, radius, loss):
    Z, w, subset, v = problem
    found = certify_exact(Subset(make_points(Z), w, subset, v, radius, loss))
    x = grid(radius)
    F, S = sums(x, Z, w, loss), sums(x, Z[subset], v, loss)
    assert (found.floor * (1 - 1e-12) <= F).all()
    assert (np.abs(S - F) <= found.discrepancy).all()
    assert (np.abs(S / F - 1) <= found.eps).all()


@pytest.mark.slow
@given(problems(), st.sampled_from(LOSSES))
def test_the_discrepancy_is_that_of_the_dense_matrix(problem, loss):
    Z, w, subset, v = problem
    found = certify_exact(Subset(make_points(Z), w, subset, v, 1.0, loss))
    K_SS, K_SP, K_PP = (np.exp(-cdist(a, b, POWER[loss])) for a, b in ((Z[subset], Z[subset]), (Z[subset], Z), (Z, Z)))
    square = v @ K_SS @ v - 2 * v @ K_SP @ w + w @ K_PP @ w
    # what is added for rounding: 1e-14 (4e-8 of the Laplacian) of (1 + |z|^2) times the squared mass
    width = 1 + make_points(Z).max_norm ** 2
    allowance = (1 + v.sum()) ** 2 * (1.1e-14 * width if loss == "gaussian" else 4.1e-8 * width**0.5) + 1e-14
    assert -1e-15 <= found.discrepancy**2 - max(square, 0.0) <= allowance
    assert found.eps <= found.discrepancy / found.floor
    assert found.eps == found.discrepancy / found.floor or loss == "gaussian"
    assert found.is_exact
    assert (found.confidence, found.n_sampled) == (1.0, None)


@pytest.mark.slow
@given(problems(), st.sampled_from([0.3, 1.0, 2.0]))
def test_never_above_the_closed_formula(problem, radius):
    Z, w, subset, v = problem
    Z = Z - w @ Z  # the ball around the mean
    found = certify_exact(Subset(make_points(Z), w, subset, v, radius, "gaussian"))
    variance = w @ (Z**2).sum(axis=1)
    formula = np.exp(variance + radius**2) * found.discrepancy
    assert found.eps <= formula * (1 + 1e-9)


def test_the_closed_formula_is_reached_by_points_of_one_norm():
    # L(0) = -V then: duality can gain nothing over Jensen
    Z = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    found = certify_exact(
        Subset(make_points(Z), np.full(4, 0.25), np.array([0, 1]), np.array([0.4, 0.6]), 1.0, "gaussian")
    )
    assert found.floor == pytest.approx(np.exp(-2.0), rel=1e-10)
    assert found.eps <= np.exp(2.0) * found.discrepancy


def test_duality_sharpens_the_floor_of_clusters():
    rng = np.random.default_rng(0)
    corners = 2.0 * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1], [0, 0]])
    Z = np.repeat(corners, 20, axis=0) + 0.1 * rng.normal(size=(100, 2))
    w = np.full(100, 0.01)
    floor = np.exp(log_floor(make_points(Z), w, 1.0, "gaussian"))
    mean, second = np.linalg.norm(w @ Z), w @ (Z**2).sum(axis=1)
    jensen = np.exp(-(second + 2 * mean + 1))
    assert floor > 1.5 * jensen
    assert floor <= sums(grid(1.0), Z, w, "gaussian").min()


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 3),
    st.sampled_from([1e-3, 0.1, 1.0, 5.0, 2000.0]),
    st.sampled_from([0.0, 1e-9, 0.1, 1.0]),
)
def test_laplacian_over_all_of_space(seed, d, width, noise):
    rng = np.random.default_rng(seed)
    Z = width * rng.normal(size=(15, d)) + width * rng.normal(size=d)
    w = np.full(15, 1 / 15)
    v = w * np.exp(noise * rng.normal(size=15))
    points = make_points(Z)
    found = certify_exact(Subset(points, w, np.arange(15), v, np.inf, "laplacian"))
    assert found.radius == np.inf
    assert found.eps >= found.discrepancy / max(found.floor, 1e-300) * (1 - 1e-9) or found.floor == 0 or noise == 0
    # from inside the data to a million radii away, and the limit at infinity: sum v e^{q.u} / sum w e^{q.u}
    u = rng.normal(size=(200, d))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    tilt = Z @ u.T
    tilt = np.exp(tilt - tilt.max(axis=0))
    assert np.abs(v @ tilt / (w @ tilt) - 1).max() <= found.eps + 1e-12
    x = np.concatenate([Z, u * points.max_norm * 10 ** rng.uniform(-2, 6, size=(200, 1))])
    exponents = -cdist(x, Z)
    exponents -= exponents.max(axis=1, keepdims=True)
    ratio = np.exp(exponents) @ v / (np.exp(exponents) @ w)
    # distances are rounded to 1e-16 of themselves
    rounding = 1e-15 * cdist(x, Z).max(axis=1)
    assert (np.abs(ratio - 1) <= found.eps + 4 * rounding * ratio + 1e-12).all()


@given(st.floats(0.0, 5.0), st.floats(-1.0, 1.0), st.floats(1e-3, 50.0), st.floats(1.0, 1e3))
def test_how_little_changes_beyond_a_radius(norm, cosine, outer, factor):
    # q in the plane at an angle to the ray: |x| - |q - x| from |x| = A to factor A
    q = norm * np.array([cosine, np.sqrt(1 - cosine**2)])

    def gain(length):
        return length - np.linalg.norm(q - np.array([length, 0.0]))

    moved = gain(factor * outer) - gain(outer)
    assert -1e-9 <= moved <= norm**2 / (2 * outer) + 1e-9


@pytest.mark.parametrize(("width", "noise"), [(0.1, 1e-3), (1.0, 1e-5), (1.0, 0.1), (3.0, 1.0)])
def test_laplacian_over_all_of_space_is_the_best_of_all_radii(width, noise):
    rng = np.random.default_rng(0)
    Z = width * (rng.normal(size=(30, 2)) + 0.5)
    w = np.full(30, 1 / 30)
    v = w * np.exp(noise * rng.normal(size=30))
    points = make_points(Z)
    found = certify_exact(Subset(points, w, np.arange(30), v, np.inf, "laplacian"))
    mean, second = np.linalg.norm(w @ Z), w @ (Z**2).sum(axis=1)
    A = points.max_norm * np.geomspace(0.4, 1e6, 20_001)
    with np.errstate(over="ignore"):
        inside = found.discrepancy * np.exp(np.sqrt(second + 2 * A * mean + A**2))
        best = ((1 + inside) * np.exp(points.max_norm**2 / (2 * A)) - 1).min()
    assert found.eps == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_rounding_is_added_to_the_discrepancy(loss):
    # two rows that are almost one: the discrepancy is below what rounding leaves of it
    Z = np.array([[0.6, 0.8], [0.6, 0.8 + 1e-9]])
    found = certify_exact(Subset(make_points(Z), np.array([0.5, 0.5]), np.array([0]), np.array([1.0]), 1.0, loss))
    least = 1e-14 if loss == "gaussian" else 1e-8  # of a kernel value
    assert least <= found.discrepancy**2 <= 10 * least


def test_how_little_changes_is_reached():
    # at a = |q|^2/(2A) the limit moves by all of rho^2/(2A): half of it would not do
    outer, norm = 4.0, 1.0
    a = norm**2 / (2 * outer)
    q = np.array([a, np.sqrt(norm**2 - a**2)])
    far = 1e7
    moved = (far - np.hypot(far - q[0], q[1])) - (outer - np.hypot(outer - q[0], q[1]))
    assert moved == pytest.approx(norm**2 / (2 * outer), rel=1e-5)


@pytest.mark.slow
@given(problems(), st.sampled_from(LOSSES), st.integers(0, 2**32 - 1))
def test_order_and_storage_do_not_matter(problem, loss, seed):
    Z, w, subset, v = problem
    found = certify_exact(Subset(make_points(Z), w, subset, v, 1.0, loss))
    order = np.random.default_rng(seed).permutation(len(Z))
    place = np.argsort(order)
    rows = place[subset]
    again = certify_exact(Subset(make_points(Z[order]), w[order], rows, v, 1.0, loss))
    sparse = make_points(Z)
    sparse.X = sp.csr_array(Z)
    for other in (again, certify_exact(Subset(sparse, w, subset, v, 1.0, loss))):
        assert other.floor == pytest.approx(found.floor, rel=1e-9)
        rounding = (1 + v.sum()) ** 2 * (1 + sparse.max_norm**2) * (1e-14 if loss == "gaussian" else 4e-8)
        assert other.discrepancy**2 == pytest.approx(found.discrepancy**2, rel=1e-9, abs=2 * rounding)


@pytest.mark.slow
@given(problems())
def test_rows_of_no_weight_change_nothing(problem):
    Z, w, subset, v = problem
    found = certify_exact(Subset(make_points(Z), w, subset, v, 1.0, "gaussian"))
    more = np.concatenate([Z, [[1e6, 1e6]]])
    points = Points(more, np.zeros(2), 1.0, make_points(Z).max_norm)
    again = certify_exact(Subset(points, np.append(w, 0.0), subset, v, 1.0, "gaussian"))
    assert again.eps == pytest.approx(found.eps, rel=1e-9)


def test_arguments_are_left_alone():
    Z = np.random.default_rng(0).normal(size=(9, 2))
    w, subset, v = np.full(9, 1 / 9), np.array([1, 4]), np.array([0.3, 0.7])
    copies = [a.copy() for a in (Z, w, subset, v)]
    certify_exact(Subset(make_points(Z), w, subset, v, 1.0, "gaussian"))
    certify_sampled(Subset(make_points(Z), w, subset, v, 1.0, "gaussian"), 10, 0.1, np.random.default_rng(0))
    assert all((a == b).all() for a, b in zip(copies, (Z, w, subset, v), strict=True))


@pytest.mark.parametrize("loss", LOSSES)
def test_the_sampled_form_is_the_stated_formula(loss):
    rng = np.random.default_rng(3)
    Z = 0.7 * rng.normal(size=(40, 2)) + 0.4
    w = rng.random(40)
    w /= w.sum()
    subset, v, N, delta = np.arange(0, 40, 3), np.full(14, 1 / 13), 60, 0.07
    found = certify_sampled(Subset(make_points(Z), w, subset, v, 1.0, loss), N, delta, np.random.default_rng(8))
    assert (found.is_exact, found.confidence, found.n_sampled) == (False, 1 - delta, N)
    squares = (Z**2).sum(axis=1)
    if loss == "gaussian":  # moments from order 3 on, with inner products stretched by 0.75
        t = 1.5 * Z @ Z.T
        K = np.exp(-squares[:, None] - squares) * (np.exp(t) - 1 - t - t**2 / 2)
    else:
        K = np.exp(-cdist(Z, Z))
    lengths = np.sqrt(K.diagonal())
    H = w @ lengths
    # the same samples, by inverting the distribution function
    uniform = np.random.default_rng(8).random(N // 4 + N // 2 + 4 * N)
    drawn = np.searchsorted(np.cumsum(w * lengths) / H, uniform)
    first, second, third = drawn[: N // 4], drawn[N // 4 : N // 4 + N // 2], drawn[N // 4 + N // 2 :].reshape(4, N)
    a = np.bincount(first, minlength=40) * H / lengths / len(first)
    a[subset] -= v
    norm_a, g = np.sqrt(a @ K @ a), K @ a
    values = (g * H / lengths)[second]
    V = w @ ((Z - w @ Z) ** 2).sum(axis=1)
    assert w @ np.exp(-cdist(Z, Z)) @ w >= np.exp(-np.sqrt(2 * V))
    if loss == "gaussian":
        trace, width = H**2, 2 * H
        terms = (K / np.outer(lengths, lengths))[third[:2].ravel(), third[2:].ravel()]
    else:
        trace, width = 1 - np.exp(-np.sqrt(2 * V)), np.sqrt(2)
        p, q, r, s = third
        terms = (K[p, r] - K[p, s] - K[q, r] + K[q, s]) / 2
    L = np.log(4 / delta)

    def mean_below(y, largest):  # the larger root m of m - mean = sqrt(2 h m L / N)
        slack = largest * L / (2 * len(y))
        return (np.sqrt(slack) + np.sqrt(y.mean() + slack)) ** 2

    moment = mean_below(values**2, (H * norm_a) ** 2)
    assert moment - (values**2).mean() == pytest.approx(np.sqrt(2 * (H * norm_a) ** 2 * moment * L / len(second)))
    U = values.mean() - v @ g[subset] + np.sqrt(2 * moment * L / len(second)) + width * norm_a * L / (3 * len(second))
    variance = min(trace, H**2 * np.sqrt(mean_below(terms**2, 1.0)))
    c = np.sqrt(2 * variance * L / len(first)) + width * L / (3 * len(first))
    bound = (c + np.sqrt(c**2 + 4 * U)) / 2
    if loss == "gaussian":
        c_p = -w * np.exp(-squares)
        c_p[subset] += v * np.exp(-squares[subset])
        low = abs(c_p.sum()) + 2 * np.linalg.norm(c_p @ Z) + 2 * np.linalg.norm(Z.T @ (Z * c_p[:, None]), 2)
        order = 2 / 0.75
        bound = (low + bound * np.sqrt(np.exp(order) - 1 - order - order**2 / 2)) * np.exp(-1.0)
    assert found.discrepancy == pytest.approx(bound, rel=1e-5)  # with allowances for rounding
    assert found.eps == pytest.approx(found.discrepancy / found.floor)


@pytest.mark.parametrize("kernel_of", ["high orders", *LOSSES])
@pytest.mark.parametrize("weights", ["equal", "skewed"])
def test_products_of_sampled_rows_bound_the_variance_in_every_direction(kernel_of, weights):
    rng = np.random.default_rng(5)
    Z = np.concatenate((0.7 * rng.normal(size=(50, 3)), rng.normal(size=(6, 3)) + 1.5))
    w = np.ones(56) if weights == "equal" else rng.pareto(1.0, 56) + 0.01
    w /= w.sum()
    points = make_points(Z)
    if kernel_of == "high orders":
        kernel = HighOrders(points, w > 0, 3, 1.0, 0.75)
        squares, t = (Z**2).sum(axis=1), 1.5 * Z @ Z.T
        K = np.exp(-squares[:, None] - squares) * (np.exp(t) - 1 - t - t**2 / 2)
        lengths = np.sqrt(K.diagonal())
        p, total = w * lengths / (w @ lengths), w @ lengths
        vectors, mean = K / np.outer(lengths, lengths) * total**2, 0.0
    else:
        kernel, p, total = AllOrders(points, kernel_of), w, 1.0
        vectors, mean = np.exp(-cdist(Z, Z, POWER[kernel_of])), 1.0
    # the covariance in coordinates of the rows: its eigenvalues are those of p^(1/2) G p^(1/2), G centred or not
    centred = np.eye(56) - mean * np.outer(np.ones(56), p)
    G = np.sqrt(p)[:, None] * (centred @ vectors @ centred.T) * np.sqrt(p)
    eigenvalues = np.linalg.eigvalsh(G)
    quadruples = rng.choice(56, (4, 400_000), p=p)
    squares = kernel.products(quadruples) ** 2
    assert squares.max() <= 1.0
    estimate = total**4 * squares.mean()
    tolerance = 5 * total**4 * squares.std() / np.sqrt(squares.size)  # fails by chance once in a million
    assert abs(estimate - (eigenvalues**2).sum()) < tolerance
    assert abs(estimate - eigenvalues.sum() ** 2) > tolerance  # power: the trace is another number
    assert eigenvalues.max() <= np.sqrt(estimate + tolerance) < eigenvalues.sum()


@pytest.mark.slow
@given(problems(), st.sampled_from(LOSSES))
def test_the_identity_and_the_ranges_behind_the_sampled_form(problem, loss):
    Z, w, subset, v = problem
    assume(len(subset) > 0)
    rng = np.random.default_rng(0)
    K = np.exp(-cdist(Z, Z, POWER[loss]))
    T = np.bincount(rng.choice(len(Z), size=7, p=w), minlength=len(Z)) / 7
    S = np.zeros(len(Z))
    S[subset] = v
    a, b, xi = T - S, w - S, T - w
    assert b @ K @ b == pytest.approx(a @ K @ b - xi @ K @ b, abs=1e-12)
    assert a @ K @ b == pytest.approx(w @ (K @ a) - S @ (K @ a), abs=1e-12)
    norm_a, norm_b = np.sqrt(max(a @ K @ a, 0)), np.sqrt(max(b @ K @ b, 0))
    g, h = K @ a, K @ b
    assert np.ptp(g) <= np.sqrt(2) * norm_a + 1e-7
    assert (w @ h - h <= np.sqrt(2) * norm_b + 1e-7).all()
    assert w @ h**2 - (w @ h) ** 2 <= norm_b**2 * (1 - w @ K @ w) + 1e-7


def test_a_floor_that_underflows_says_nothing():
    Z = 1000.0 * np.random.default_rng(0).normal(size=(20, 5))
    w = np.full(20, 0.05)
    for loss, radius in (("gaussian", 1.0), ("laplacian", 1.0), ("laplacian", np.inf)):
        found = certify_exact(Subset(make_points(Z), w, np.array([0]), np.array([1.0]), radius, loss))
        assert found.eps == np.inf
        assert found.floor == 0.0


def test_a_certificate_says_what_it_is():
    exact = Certificate(0.1234, 0.05, 0.4, "gaussian", 1.0, True, 1.0)
    assert str(exact) == "relative error at most 0.123 for all queries within radius 1 (gaussian, no probability)"
    sampled = Certificate(0.2, 0.05, 0.4, "laplacian", np.inf, False, 0.95, 100)
    assert "of space" in str(sampled)
    assert "with probability 0.95" in str(sampled)


def test_equal_rows_have_the_error_of_their_total_weight():
    """All of space, Laplacian: one place, so the ratio is the same everywhere."""
    points = Points(np.full((4, 2), 3.0), np.full(2, 3.0), 1.0, 0.0)
    found = certify_exact(Subset(points, np.full(4, 0.25), np.array([1]), np.array([1.3]), np.inf, "laplacian"))
    assert found.eps == pytest.approx(0.3, abs=1e-6)
    assert found.eps >= 0.3
    assert found.floor == 1.0


def test_the_sampled_form_of_a_subset_that_is_the_sample_and_of_none():
    """Estimates of which nothing is left; and no rows at all, whose error is 1."""
    points, w = make_points(np.eye(2)), np.full(2, 0.5)
    for seed in range(5):
        whole = certify_sampled(Subset(points, w, np.arange(2), w, 1.0), 2, 0.1, np.random.default_rng(seed))
        none = certify_sampled(Subset(points, w, np.zeros(0, int), np.zeros(0)), 10, 0.1, np.random.default_rng(seed))
        assert 0.0 <= whole.eps < none.eps
        assert none.eps >= 1.0


@pytest.mark.parametrize("bandwidth", [300.0, 1000.0, 5000.0])
def test_the_sampled_form_counts_moments_that_a_difference_would_round_to_zero(bandwidth):
    """Weights by which the orders 0, 1 and 2 vanish: of order 3 the kernel of such a bandwidth keeps 1e-12."""
    Z = np.array([[-1.5], [-0.5], [0.5], [1.5]]) / bandwidth
    w = np.full(4, 0.25)
    v = w + np.array([-1.0, 3.0, -3.0, 1.0]) * np.exp((Z[:, 0]) ** 2) / 13.0
    subset = Subset(make_points(Z), w, np.arange(4), v, 1.0, "gaussian")
    found = certify_sampled(subset, 10, 0.1, np.random.default_rng(0))
    queries = np.linspace(-1.0, 1.0, 201)[:, None].astype(np.longdouble)
    kernel = np.exp(-((queries - Z.astype(np.longdouble).T) ** 2))
    assert found.eps >= float(np.abs((kernel @ (v - w)) / (kernel @ w)).max()) > 1e-13
    assert found.eps <= 40.0 / bandwidth**3  # the certain tail, of order 3


@pytest.mark.parametrize("radius", [27.0, 1e3, 1e7, 1e60])
def test_the_sampled_form_of_a_large_ball_ends_and_says_nothing(radius):
    Z = np.random.default_rng(2).normal(size=(30, 3))
    for rows in (Z, np.zeros((30, 3))):
        subset = Subset(make_points(rows), np.full(30, 1 / 30), np.arange(3), np.full(3, 0.3), radius)
        found = certify_sampled(subset, 20, 0.1, np.random.default_rng(0))
        assert found.eps >= 0.1 - 1e-9  # at the origin, where all rows are in the second case
        assert not np.isnan(found.discrepancy)


def test_the_sampled_form_with_rows_so_far_that_they_are_never_drawn():
    Z = 0.7 * np.random.default_rng(2).normal(size=(30, 3))
    Z[7] = np.sqrt(740 / 3)  # its length in the space of the kernel is a denormal number
    subset = Subset(make_points(Z), np.full(30, 1 / 30), np.arange(10), np.full(10, 0.1), 0.03)
    found = certify_sampled(subset, 100, 0.1, np.random.default_rng(0))
    queries = 0.03 / np.sqrt(3) * np.array([[0, 0, 0], [1, 1, 1], [-1, -1, -1], [1, -1, 1]])
    ratios = sums(queries, Z[:10], np.full(10, 0.1), "gaussian") / sums(queries, Z, subset.shares, "gaussian")
    assert np.abs(ratios - 1.0).max() <= found.eps < np.inf
