"""Sample sizes: known values, exact tails of the extremal draws, and the constants of the nets."""

from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import binom

from coresift.core.sizes import (
    SampleSize,
    covering,
    covering_laplacian,
    dimension_free,
    expected_error,
    finite,
    moments,
    paper_formula,
    rounded_up,
    vc,
)

totals = st.floats(1.0, 1e4)
errors = st.floats(0.01, 0.95)
deltas = st.floats(1e-6, 0.5)


def test_values_worked_out_by_hand():
    assert rounded_up(covering(1.72, 2, 1.0, 1.0, 0.1, 0.05)) == 3003
    assert rounded_up(dimension_free(1.0, 1.0, np.exp(-1.43), 0.1, 0.05)) == 13022
    assert rounded_up(covering(np.exp(1.43), 64, 1.0, 1.0, 0.1, 0.05)) == pytest.approx(347_509, rel=0.02)
    # d' ln t + ln(1/delta) at t = 10, d' = 3
    assert paper_formula(10.0, 3, 0.1, 0.05) == pytest.approx(1000 * (3 * np.log(10) + np.log(20)))


@pytest.mark.slow
@given(t=totals, eps=errors, delta=deltas, n_queries=st.integers(1, 10**6))
def test_extremal_draws_fail_no_more_often_than_stated(t, eps, delta, n_queries):
    # the draw that deviates most is t times a coin of probability 1/t: its tails are binomial, hence exact
    m = rounded_up(finite(t, np.log(n_queries), eps, delta))
    if m > 10**7:
        return
    slack = 1e-9 * m
    above = binom.sf(np.floor(m * (1 + eps) / t + slack), m, 1 / t)
    below = binom.cdf(np.ceil(m * (1 - eps) / t - slack) - 1, m, 1 / t)
    assert n_queries * (above + below) <= delta


@pytest.mark.parametrize(("t", "eps"), [(2.0, 0.1), (5.0, 0.2), (50.0, 0.1)])
def test_a_third_of_the_size_would_not_do(t, eps):
    m = rounded_up(finite(t, 0.0, eps, 0.05)) // 3
    assert binom.sf(np.floor(m * (1 + eps) / t), m, 1 / t) > 0.05


def kl_to_40_digits(a, b):
    return a * (a / b).ln() + (1 - a) * ((1 - a) / (1 - b)).ln()


@pytest.mark.parametrize("t", [1.0000001, 1.5, 3.0, 1e3, 1e9])
@pytest.mark.parametrize("eps", [1e-7, 1e-3, 0.1, 0.49, 0.999])
def test_divergence_keeps_its_digits(t, eps):
    getcontext().prec = 60
    T, E = Decimal(t), Decimal(eps)
    rate = kl_to_40_digits((1 - E) / T, 1 / T)
    if 1 + E < T:
        rate = min(rate, kl_to_40_digits((1 + E) / T, 1 / T))
    assert finite(t, 1.0, eps, 0.05) == pytest.approx(float((1 + Decimal(np.log(40.0))) / rate), rel=1e-6)


def test_the_upper_side_at_its_end():
    # 1 + eps = t: the upper tail is (1/t)^m, so kl(1, 1/t) = ln t; just above it cannot happen at all
    m = finite(1.5, 0.0, 0.5, 0.05)
    below = 0.5 / 1.5 * np.log(0.5) + (1.0 / 1.5) * np.log((1.0 / 1.5) / (0.5 / 1.5))
    assert m == pytest.approx(np.log(40.0) / min(np.log(1.5), below))
    assert finite(1.0, 0.0, 0.3, 0.05) == 0.0  # t = 1: every draw gives the sum itself
    assert rounded_up(0.0) == 1


@pytest.mark.slow
@given(t=totals, eps=st.floats(0.01, 0.8), delta=deltas, d=st.integers(1, 50))
def test_more_is_asked_more_is_needed(t, eps, delta, d):
    slightly = 1 + 1e-4  # the split is found to five digits or so
    for size in (
        lambda t, d, eps, delta: finite(t, np.log(d), eps, delta),
        lambda t, d, eps, delta: covering(t, d, 1.0, 1.0, eps, delta),
        lambda t, d, eps, delta: covering_laplacian(t, d, 1.0, eps, delta),
    ):
        here = size(t, d, eps, delta)
        assert size(t, d, eps * 1.2, delta) <= here * slightly
        assert size(t, d, eps, min(2 * delta, 0.9)) <= here * slightly
        assert size(t, d + 1, eps, delta) >= here / slightly
        assert size(t * 1.1, d, eps, delta) >= here / slightly
    assert dimension_free(t, t, 0.3, eps, delta) >= dimension_free(t, t, 0.3, eps * 1.2, delta)
    here = moments(t, d, eps, delta)
    assert moments(t, d, eps * 1.2, delta) <= here
    assert moments(t, d, eps, min(2 * delta, 0.9)) <= here
    assert moments(t * 1.1, d, eps, delta) >= here
    assert moments(t, d + 1.0, eps, delta) >= here


@given(t=totals, eps=errors, delta=deltas, expected=st.floats(0.0, 100.0))
def test_the_size_by_moments_solves_the_smaller_of_two_inequalities(t, eps, delta, expected):
    m, log_term, b = moments(t, expected, eps, delta), np.log(1 / delta), max(t - 1, 1)
    mean = expected / np.sqrt(m)
    by_range = mean + t * np.sqrt(log_term / (2 * m))
    by_variance = mean + np.sqrt(2 * log_term * (t - 1 + 2 * b * mean) / m) + b * log_term / (3 * m)
    assert min(by_range, by_variance) == pytest.approx(eps, rel=1e-6)


def brute_expected_error(Z, w, q, radius, least, is_centred):
    """Terms of the series, their tensors dense: with the variance of each, or with second moments alone."""
    squares, total = (Z**2).sum(axis=1), 0.0
    c = w * np.exp(-squares)
    gram, factor = Z @ Z.T, 1.0
    for k in range(40):
        Q = (c**2 / q) @ squares**k - (c @ gram**k @ c if is_centred else 0.0)
        total += factor * np.sqrt(max(Q, 0.0))
        factor *= 2 * radius / (k + 1)
    return total / least


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 4), st.sampled_from([1e-3, 0.5, 1.5]), st.sampled_from([0.1, 1.0, 2.0])
)
def test_expected_errors_are_those_of_dense_tensors(seed, d, width, radius):
    rng = np.random.default_rng(seed)
    Z, w, q = width * rng.normal(size=(15, d)), rng.random(15) ** 3, rng.random(15)
    w[3] = 0.0
    w, q, least = w / w.sum(), q / q.sum(), 0.3
    found = expected_error((Z**2).sum(axis=1), w, q, d, radius, np.log(least), 0.0)
    assert brute_expected_error(Z, w, q, radius, least, True) <= found * (1 + 1e-9) + 1e-11
    assert found <= brute_expected_error(Z, w, q, radius, least, False) * (1 + 1e-6) + 1e-6


def test_isotropic_parts_are_reached_on_a_line_and_on_a_circle():
    # one dimension: M_k is a number; points evenly on a circle: M_2 is a multiple of the identity
    line = np.array([[-1.0], [1.0]])
    angles = 2 * np.pi * np.arange(12) / 12
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    for Z in (line, circle):
        n, d = Z.shape
        w = np.full(n, 1 / n)
        found = expected_error(np.ones(n), w, w, d, 0.5, 0.0, 0.0)
        assert found == pytest.approx(brute_expected_error(Z, w, w, 0.5, 1.0, True), abs=1e-6)


def test_moments_of_far_points_say_nothing():
    far = expected_error(np.array([1e6]), np.ones(1), np.ones(1), 1, 1.0, -1e6, 0.0)
    assert far == np.inf
    assert rounded_up(moments(1.0, far, 0.1, 0.05)) == 9_000_000_000_000_000_000
    assert rounded_up(moments(1e305, 1.0, 0.01, 1e-9)) == 9_000_000_000_000_000_000


def grid_of_covering(t, d, radius, rho, eps, delta):
    e = eps * np.linspace(1e-3, 1 - 1e-3, 4000)
    room = np.minimum(np.log((1 + eps) / (1 + e)), np.log((1 - e) / (1 - eps)))
    return min(finite(t, d * np.log(1 + 2 * radius / (r / (4 * rho))), x, delta) for x, r in zip(e, room, strict=True))


@pytest.mark.parametrize(("t", "d", "radius", "rho"), [(1.72, 2, 1.0, 1.0), (4.2, 64, 1.0, 1.0), (30.0, 5, 2.0, 7.0)])
def test_covering_is_the_best_split(t, d, radius, rho):
    by_grid = grid_of_covering(t, d, radius, rho, 0.1, 0.05)
    found = covering(t, d, radius, rho, 0.1, 0.05)
    assert by_grid * (1 - 1e-3) <= found <= by_grid * (1 + 1e-6)


@pytest.mark.parametrize(("t", "d", "rho"), [(1.72, 2, 1.0), (30.0, 5, 7.0)])
def test_covering_of_space_is_the_best_split(t, d, rho):
    eps, delta, best = 0.1, 0.05, np.inf
    for e in eps * np.linspace(0.02, 0.98, 97):
        room = min(np.log((1 + eps) / (1 + e)), np.log((1 - e) / (1 - eps)))
        for outer in np.geomspace(rho**2 / (2 * room) * 1.01, rho**2 / room * 50, 97):
            eta = (room - rho**2 / (2 * outer)) / 2
            best = min(best, finite(t, d * np.log(1 + 2 * outer / eta), e, delta))
    found = covering_laplacian(t, d, rho, eps, delta)
    assert best * (1 - 1e-2) <= found <= best * (1 + 1e-4)


@given(t=totals, eps=errors, delta=deltas, d=st.integers(1, 200))
def test_the_vc_size_solves_its_own_inequality(t, eps, delta, d):
    def needed(m):
        return 4 * t * (1 + eps) / eps**2 * (d * np.log(2 * np.e * m / d) + np.log(8 / delta))

    m = vc(t, d, eps, delta)
    assert m >= needed(m) * (1 - 1e-12)
    assert 0.99 * m < needed(0.99 * m)  # and hardly less would do
    assert m > d / 2  # where Sauer's lemma holds in this form


@pytest.mark.parametrize("t", [1e250, 1e305])
def test_totals_near_the_largest_float(t):
    for size in (
        finite(t, 1.0, 0.01, 1e-9),
        covering(t, 1000, 1e60, 1e60, 0.01, 1e-9),
        covering_laplacian(t, 1000, 1e60, 0.01, 1e-9),
        vc(t, 1000, 1e-9, 1e-9),
        paper_formula(t, 1000, 1e-9, 1e-9),
        dimension_free(t, t, 1e-300, 1e-9, 1e-9),
    ):
        assert rounded_up(size) == 9_000_000_000_000_000_000


def test_without_spread_no_net_is_needed():
    one_query = finite(1.0 + 1e-9, 0.0, 0.1, 0.05)
    assert covering(1.0 + 1e-9, 3, 1.0, 0.0, 0.1, 0.05) == pytest.approx(one_query, rel=1e-2)
    assert covering_laplacian(1.0 + 1e-9, 3, 0.0, 0.1, 0.05) == pytest.approx(one_query, rel=1e-2)


@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 4))
def test_log_ratios_are_as_lipschitz_as_the_nets_assume(seed, d):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(12, d)) * rng.lognormal()
    rho = np.linalg.norm(Z, axis=1).max()
    v, w = rng.random(12) ** 8, rng.random(12) ** 8
    x = rng.normal(size=d) * rng.lognormal()
    y = x + rng.normal(size=d) * rng.lognormal(sigma=2)

    def log_ratio(x, power):
        exponents = -(np.linalg.norm(Z - x, axis=1) ** power)
        return np.logaddexp.reduce(np.log(v) + exponents) - np.logaddexp.reduce(np.log(w) + exponents)

    step = np.linalg.norm(x - y)
    assert abs(log_ratio(x, 2) - log_ratio(y, 2)) <= 4 * rho * step * (1 + 1e-9)
    assert abs(log_ratio(x, 1) - log_ratio(y, 1)) <= 2 * step * (1 + 1e-9)
    length, outer = np.linalg.norm(x), rng.lognormal() * rho
    if length > outer:  # from outside to the projection
        moved = abs(log_ratio(x, 1) - log_ratio(x * outer / length, 1))
        assert moved <= rho**2 / (2 * outer) * (1 + 1e-9) + 1e-12


def test_lipschitz_constants_are_nearly_reached():
    # two opposite points, all weight of S on one, of F on the other: log S/F = 4 rho x, Laplacian 2 x
    Z, x = np.array([-1.0, 1.0]), np.array([-0.1, 0.1])
    for power, constant in ((2, 4.0), (1, 2.0)):
        f = np.exp(-(np.abs(Z[:, None] - x) ** power))
        slope = np.diff(np.log(f[1] / f[0]))[0] / 0.2
        assert slope == pytest.approx(constant)


def test_rounding_up_and_the_range_of_integers():
    assert [rounded_up(x) for x in (0.2, 1.0, 1.0000001, 41.0)] == [1, 1, 2, 41]
    assert rounded_up(1e300) == 9_000_000_000_000_000_000
    assert rounded_up(dimension_free(1.0, 1.0, 0.0, 0.1, 0.05)) == 9_000_000_000_000_000_000


def test_a_size_speaks():
    size = SampleSize(500, "covering", "all queries of the ball", 0.1, 0.05, 400, {"covering": 500, "plain": 450})
    assert int(size) == 500
    assert list(range(3))[: SampleSize(2, "covering", "x", 0.1, 0.05, 9)] == [0, 1]
    assert not size.is_smaller_than_data
    assert "Plain sampling needs 450" in size.note
    assert "only 400 rows, so no smaller subset is guaranteed in advance" in str(size)
    small = SampleSize(500, "finite", "3 queries", 0.1, 0.05, 501, {"finite": 500, "plain": 450})
    assert small.is_smaller_than_data
    assert "0.95" in small.note
    assert "No guarantee" not in small.note
    assert "Plain" not in small.note  # it is about all queries
