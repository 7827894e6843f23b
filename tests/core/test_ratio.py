"""The log ratio of a subset to its data, and its gradient, against direct evaluation."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st
from scipy.special import logsumexp

from coresift.core import ratio as ratio_module
from coresift.core.points import Points, Subset
from coresift.core.ratio import LogRatio

EXPONENTS = {
    "gaussian": lambda Z, x: -np.sum((Z - x) ** 2, axis=1),
    "laplacian": lambda Z, x: -np.sqrt(np.sum((Z - x) ** 2, axis=1)),
}
LOSSES = list(EXPONENTS)


def direct(loss, Z, weights, rows, subset_weights, queries):
    """``g`` from its definition, one query at a time."""
    with np.errstate(divide="ignore"):
        log_w, log_v = np.log(weights), np.log(subset_weights)
    out = []
    for x in queries:
        exponents = EXPONENTS[loss](Z, x)
        out.append(logsumexp(exponents[rows] + log_v) - logsumexp(exponents + log_w))
    return np.array(out)


def problem(rng, n=120, d=3, m=15):
    X = rng.standard_normal((n, d)) * rng.uniform(0.3, 3.0)
    weights = rng.lognormal(0.0, 1.0, n)
    rows = rng.choice(n, m, replace=False)
    return X, weights, rows, rng.lognormal(2.0, 1.0, m)


def plain(X):
    return Points(X, np.zeros(X.shape[1]), 1.0, max_norm=float(np.linalg.norm(X, axis=1).max()))


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 6))
def test_value_is_the_definition(loss, seed, d):
    rng = np.random.default_rng(seed)
    X, weights, rows, v = problem(rng, d=d)
    weights[rng.random(len(weights)) < 0.2] = 0.0
    queries = rng.standard_normal((7, d))
    expected = direct(loss, X, weights, rows, v, queries)
    np.testing.assert_allclose(LogRatio(Subset(plain(X), weights, rows, v, loss=loss))(queries), expected, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 5))
def test_gradient_is_that_of_central_differences(loss, seed, d):
    rng = np.random.default_rng(seed)
    X, weights, rows, v = problem(rng, d=d)
    ratio = LogRatio(Subset(plain(X), weights, rows, v, loss=loss))
    queries = rng.standard_normal((5, d))
    distance = np.sqrt(((X[:, None] - queries) ** 2).sum(axis=2)).min(axis=0)
    queries = queries[distance > 0.01]  # the Laplacian has no gradient at the points themselves
    values, gradient = ratio.with_gradient(queries)
    np.testing.assert_allclose(values, ratio(queries), atol=1e-12)
    step = 1e-5
    for axis in range(d):
        shift = step * np.eye(d)[axis]
        difference = (
            direct(loss, X, weights, rows, v, queries + shift) - direct(loss, X, weights, rows, v, queries - shift)
        ) / (2 * step)
        # Central differences err by step^2 / 6 times a third derivative: below 1e-10 (12 + 2/0.01^2), plus rounding.
        np.testing.assert_allclose(gradient[:, axis], difference, atol=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_blocks_and_query_chunks_do_not_matter(loss, rng, monkeypatch):
    X, weights, rows, v = problem(rng, n=500)
    queries = rng.standard_normal((20, 3))
    whole = LogRatio(Subset(plain(X), weights, rows, v, loss=loss))
    values, gradient = whole.with_gradient(queries)
    nearest = whole.nearest(queries)
    monkeypatch.setattr(ratio_module, "_PASS_BYTES", 3000)  # about ten rows a block
    monkeypatch.setattr(ratio_module, "_MAX_COLUMNS", 7)
    parts = LogRatio(Subset(plain(X), weights, rows, v, loss=loss))
    np.testing.assert_allclose(parts.with_gradient(queries)[0], values, atol=1e-11)
    np.testing.assert_allclose(parts.with_gradient(queries)[1], gradient, atol=1e-10)
    np.testing.assert_array_equal(parts.nearest(queries), nearest)


@pytest.fixture
def rng():
    return np.random.default_rng(5)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("convert", [sp.csr_array, lambda X: X.astype(np.float32)])
def test_sparse_and_float32_data_give_the_same(loss, convert, rng):
    X = np.round(rng.standard_normal((200, 6)), 1).astype(np.float32).astype(np.float64)
    X[rng.random(X.shape) < 0.6] = 0.0
    center, scale = X.mean(axis=0), 1.7
    rows, v = np.arange(0, 200, 9), rng.random(23) + 0.5
    queries = rng.standard_normal((9, 6))
    answers = []
    for data in (X, convert(X)):
        ratio = LogRatio(Subset(Points(data, center, scale, max_norm=4.0), np.ones(200), rows, v, loss=loss))
        answers.append(ratio.with_gradient(queries))
    np.testing.assert_allclose(answers[1][0], answers[0][0], atol=1e-12)
    np.testing.assert_allclose(answers[1][1], answers[0][1], atol=1e-11)


@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_underflows_far_away_or_at_tiny_bandwidths(loss, rng):
    X, weights, rows, v = problem(rng)
    X *= 1e3  # distances of thousands of bandwidths: every loss value is zero in floating point
    queries = 1e3 * rng.standard_normal((6, 3))
    ratio = LogRatio(Subset(plain(X), weights, rows, v, loss=loss))
    values, gradient = ratio.with_gradient(queries)
    expected = direct(loss, X, weights, rows, v, queries)
    assert np.isfinite(values).all()
    assert np.isfinite(gradient).all()
    assert expected.min() < -100.0  # the regime that is meant
    np.testing.assert_allclose(values, expected, rtol=1e-9)


def test_the_laplacian_far_out_is_its_limit(rng):
    X, weights, rows, v = problem(rng)
    ratio = LogRatio(Subset(plain(X), weights, rows, v, loss="laplacian"))
    u = rng.standard_normal((10, 3))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    limit = logsumexp(X[rows] @ u.T, axis=0, b=v[:, None]) - logsumexp(X @ u.T, axis=0, b=weights[:, None])
    rho_sq = float(np.max(np.sum(X**2, axis=1)))
    for distance in (1e4, 1e6):
        # |t u| - |z - t u| = z.u - (|z|^2 - (z.u)^2) / (2t) + ...: both sums move by at most rho^2 / 2t
        np.testing.assert_allclose(ratio(distance * u), limit, atol=rho_sq / distance + 1e-8)
    assert np.abs(ratio(10.0 * u) - limit).max() > 1e-2


@pytest.mark.parametrize("loss", LOSSES)
def test_repeats_and_zero_weights_in_the_subset(loss, rng):
    X, weights, rows, v = problem(rng)
    queries = rng.standard_normal((4, 3))
    plain_ratio = LogRatio(Subset(plain(X), weights, rows, v, loss=loss))(queries)
    spare = np.setdiff1d(np.arange(len(X)), rows)[:3]
    messy_rows = np.concatenate((rows[::-1], rows, spare))
    messy_v = np.concatenate((0.25 * v[::-1], 0.75 * v, np.zeros(3)))
    messy = LogRatio(Subset(plain(X), weights, messy_rows, messy_v, loss=loss))(queries)
    np.testing.assert_allclose(messy, plain_ratio, atol=1e-12)


def test_an_empty_subset_has_ratio_zero(rng):
    X, weights, _, _ = problem(rng)
    ratio = LogRatio(Subset(plain(X), weights, np.array([3]), np.array([0.0])))
    values, gradient = ratio.with_gradient(np.zeros((2, 3)))
    assert np.isneginf(values).all()
    assert np.isfinite(gradient).all()
    assert np.isneginf(ratio.precise(np.zeros((2, 3)))).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_precise_repairs_what_cancellation_loses(loss):
    rng = np.random.default_rng(2)
    # A tight group, one bandwidth wide, 1e7 bandwidths from the origin: |z|^2 = 1e14 has an error of 0.01.
    X = np.concatenate((rng.standard_normal((30, 3)) + 1e7, -1e7 - rng.standard_normal((30, 3))))
    weights, rows, v = np.ones(60), np.arange(0, 60, 4), np.full(15, 4.0)
    queries = X[:5] + 0.1 * rng.standard_normal((5, 3))
    ratio = LogRatio(Subset(plain(X), weights, rows, v, loss=loss))
    expected = direct(loss, X, weights, rows, v, queries)
    np.testing.assert_allclose(ratio.precise(queries), expected, atol=1e-9)
    assert np.abs(ratio(queries) - expected).max() > 1e-4  # power: there was something to repair


@pytest.mark.parametrize("loss", LOSSES)
def test_precise_repairs_what_the_shift_of_sparse_rows_loses(loss):
    """Sparse rows are not centred: their squares are differences of squares of the offset, here of 10^16."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3)) + 1e8
    center = X.mean(axis=0)
    weights, rows, v = np.ones(120), np.arange(0, 120, 8), np.full(15, 8.0)
    queries = rng.standard_normal((9, 3))
    expected = direct(loss, X - center, weights, rows, v, queries)
    points = Points(sp.csr_array(X), center, 1.0, max_norm=float(np.linalg.norm(X - center, axis=1).max()))
    ratio = LogRatio(Subset(points, weights, rows, v, loss=loss))
    np.testing.assert_allclose(ratio.precise(queries), expected, atol=1e-6)
    assert np.abs(ratio(queries) - expected).max() > 1e-3  # power


@pytest.mark.parametrize("loss", LOSSES)
def test_precise_agrees_where_there_is_nothing_to_repair(loss, rng):
    X, weights, rows, v = problem(rng)
    ratio = LogRatio(Subset(plain(X), weights, rows, v, loss=loss))
    queries = np.concatenate((rng.standard_normal((4, 3)), X[rows[:3]], X[:3]))
    expected = direct(loss, X, weights, rows, v, queries)
    np.testing.assert_allclose(ratio.precise(queries), expected, atol=1e-11)


def test_nearest_rows_are_the_nearest(rng):
    X, weights, rows, v = problem(rng)
    weights[:40] = 0.0
    queries = rng.standard_normal((9, 3))
    squares = np.sum((X[:, None] - queries) ** 2, axis=2)
    data, subset = LogRatio(Subset(plain(X), weights, rows, v, loss="laplacian")).nearest(queries)
    np.testing.assert_array_equal(data, 40 + squares[40:].argmin(axis=0))
    np.testing.assert_array_equal(subset, np.sort(rows)[squares[np.sort(rows)].argmin(axis=0)])


@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e60])
@pytest.mark.parametrize("side", ["subset", "data"])
def test_precise_repairs_rows_that_matter_to_either_sum(side, scale):
    """At the query the other sum is e^64 times as large: judged by it alone, these rows would not be worth a repair."""
    rng = np.random.default_rng(3)
    near, far = 0.1 * rng.standard_normal((20, 3)), 0.1 * rng.standard_normal((20, 3)) + (8.0, 0.0, 0.0)
    X, query = np.concatenate((near, far)) + 1e7, np.full((1, 3), 1e7)
    # Weights of any magnitude; those of rows that a sum does not see are zero.
    weights, rows = np.full(40, scale), np.arange(20, 40)
    if side == "data":
        weights[:20], rows = 0.0, np.arange(40)
    v = np.full(len(rows), 3.0 * scale)
    ratio = LogRatio(Subset(plain(X), weights, rows, v))
    expected = direct("gaussian", X, weights, rows, v, query)
    np.testing.assert_allclose(ratio.precise(query), expected, atol=1e-9)
    assert np.abs(ratio(query) - expected).max() > 1e-4  # power


@pytest.mark.parametrize("weight", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("loss", LOSSES)
def test_equal_weights_count(loss, weight, rng):
    """Weights of one have a way of their own; other equal weights must not take it."""
    X, _, rows, v = problem(rng)
    weights, queries = np.full(len(X), weight), rng.standard_normal((5, X.shape[1]))
    found, slopes = LogRatio(Subset(plain(X), weights, rows, v, loss=loss)).with_gradient(queries)
    np.testing.assert_allclose(found, direct(loss, X, weights, rows, v, queries), atol=1e-9)
    unit = LogRatio(Subset(plain(X), np.ones(len(X)), rows, v / weight, loss=loss)).with_gradient(queries)[1]
    np.testing.assert_allclose(slopes, unit, atol=1e-9)
