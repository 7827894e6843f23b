"""Centre, spread and blocks of rows, against plain NumPy and against exact arithmetic."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from coresift.core.points import (
    Moments,
    Points,
    _common_row,
    _largest_entry,
    moments,
    row_slices,
)


def _shares(rng, n):
    w = rng.gamma(1.0, size=n)
    return w / w.sum()


@given(n=st.integers(0, 500), bytes_per_row=st.floats(0, 1e4), budget=st.integers(1, 5000))
def test_row_slices_cover_every_row_once_within_the_budget(n, bytes_per_row, budget):
    slices = list(row_slices(n, bytes_per_row, budget))
    assert [i for s in slices for i in range(s.start, s.stop)] == list(range(n))
    assert all(s.stop - s.start == 1 or (s.stop - s.start) * bytes_per_row <= budget for s in slices)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("container", [np.asarray, np.asfortranarray, sp.csr_array])
def test_moments_are_the_weighted_mean_and_distances(container, dtype):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(300, 7)) * (rng.random((300, 7)) < 0.5) + 0.5).astype(dtype)
    shares = _shares(rng, 300)
    found = moments(container(X), shares)
    exact = X.astype(np.float64)
    mean = shares @ exact
    squares = ((exact - mean) ** 2).sum(axis=1)
    assert found.unit == 1.0
    np.testing.assert_allclose(found.mean, mean, rtol=1e-13)
    np.testing.assert_allclose(found.sq_norms, squares, rtol=1e-11)
    assert found.variance == pytest.approx(shares @ squares, rel=1e-12)
    assert found.max_norm == pytest.approx(np.sqrt(squares.max()), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e-70, 1.0, 1e70, 1e150, 1e299])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_moments_scale_with_the_data_at_any_magnitude(container, scale):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(60, 4))
    shares = _shares(rng, 60)
    plain, scaled = moments(X, shares), moments(container(X * scale), shares)
    np.testing.assert_allclose(scaled.mean, plain.mean * scale, rtol=1e-12, atol=1e-15 * scale)
    assert scaled.max_norm == pytest.approx(plain.max_norm * scale, rel=1e-12)
    np.testing.assert_allclose(
        scaled.scaled_sq_norms(scaled.max_norm), plain.scaled_sq_norms(plain.max_norm), rtol=1e-11
    )
    assert scaled.scaled_variance(scaled.max_norm) == pytest.approx(
        plain.scaled_variance(plain.max_norm), rel=1e-11
    )


@pytest.mark.parametrize("offset", [1e4, 1e8, 1e12])
def test_a_huge_offset_loses_no_digits_of_the_distances(offset):
    rng = np.random.default_rng(2)
    X = offset + rng.normal(size=(200, 3))
    shares = np.full(200, 1 / 200)
    found = moments(X, shares)
    # the stored centre is a float: distances are to it, and the mean is within the stated error of it
    np.testing.assert_allclose(found.scaled_sq_norms(1.0), ((X - found.mean) ** 2).sum(axis=1), rtol=1e-12)
    exact_mean = [sum(Fraction(v) for v in column) / 200 for column in X.T]
    miss = np.sqrt(sum(float(Fraction(m) - e) ** 2 for m, e in zip(found.mean, exact_mean, strict=True)))
    assert miss <= found.center_error <= 1e-14 * offset


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(
    "row", [[0.1, 0.2, 0.3], [1e8 + 0.1, 0.0, -7.3], [0.0, 0.0, 0.0], [1e-200, 3e-200, 0.0]]
)
def test_equal_rows_have_no_spread_however_many_they_are(container, row):
    # 0.1 added 150,000 times is off by 1e-12 of itself
    X = np.tile(np.array(row), (150_000, 1))
    found = moments(container(X), np.full(len(X), 1 / len(X)))
    assert found.mean.tolist() == row
    assert found.max_norm == found.variance == 0.0
    assert not found.sq_norms.any()


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_rows_an_ulp_apart_are_not_equal(container):
    X = np.array([[1e8, 1.0], [np.nextafter(1e8, 2e8), 1.0]])
    found = moments(container(X), np.array([0.5, 0.5]))
    if container is np.asarray:
        assert found.max_norm == pytest.approx(np.spacing(1e8), rel=0.6)
    assert found.center_error >= np.spacing(1e8) / 2


def test_rows_of_weight_zero_move_neither_centre_nor_spread():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(50, 3))
    shares = _shares(rng, 50)
    plain = moments(X, shares)
    for far in (1e3, 1e100, 1e200, -1e299):
        found = moments(np.vstack([X, np.full((2, 3), far)]), np.append(shares, [0, 0]))
        np.testing.assert_allclose(found.mean, plain.mean, rtol=1e-12)
        assert found.max_norm == pytest.approx(plain.max_norm, rel=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("container", [np.array, sp.csr_array])
@pytest.mark.parametrize("share", [0.0, 0.1])
def test_whatever_is_not_finite_shows_in_the_distances(container, value, share):
    X = np.ones((20, 3))
    X[7, 1] = value
    shares = np.full(20, (1 - share) / 19)
    shares[7] = share
    assert not np.isfinite(moments(container(X), shares).sq_norms).all()


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_sparse_blocks_answer_like_dense_ones(shift):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(30, 6)) * (rng.random((30, 6)) < 0.3)
    center, scale = np.full(6, shift), 2.5
    dense, sparse = Points(X, center, scale, 1.0), Points(sp.csr_array(X), center, scale, 1.0)
    others, coefficients = rng.normal(size=(4, 6)), rng.normal(size=(30, 4))
    a, b = dense.gather(slice(0, 30)), sparse.gather(slice(0, 30))
    assert a.shift is None
    assert sp.issparse(b.rows)
    np.testing.assert_allclose(a.rows, (X - center) / scale)
    for left, right in [
        (a.dense(), b.dense()),
        (a.dot(others), b.dot(others)),
        (a.weighted_sum(coefficients), b.weighted_sum(coefficients)),
        (a.sq_norms, b.sq_norms),
        (dense.take(np.array([3, 1])), sparse.take(np.array([3, 1]))),
    ]:
        np.testing.assert_allclose(right, left, atol=1e-13)
    np.testing.assert_allclose(dense.to_data(dense.to_scaled(others)), others, atol=1e-14)
    assert dense.rounding_norm == 1.0
    assert sparse.rounding_norm == pytest.approx(max(1.0, np.linalg.norm(center / scale)))


def test_blocks_are_small_and_float64():
    X = np.random.default_rng(5).normal(size=(5000, 40)).astype(np.float32)
    seen = 0
    for rows, block in Points(X, np.zeros(40), 1.0, 1.0).blocks(budget=1 << 16):
        assert block.dense().dtype == np.float64
        assert block.dense().nbytes <= 1 << 16
        np.testing.assert_array_equal(block.dense(), X[rows])
        seen += rows.stop - rows.start
    assert seen == 5000


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_the_largest_entry_is_one_of_positive_weight_and_of_either_sign(container):
    X = np.array([[1.0, -3.0], [2.0, 0.0], [0.0, 50.0]])
    everything, some = np.ones(3, dtype=bool), np.array([True, True, False])
    assert _largest_entry(container(X), everything) == 50.0
    assert _largest_entry(container(-X), everything) == 50.0
    assert _largest_entry(container(X), some) == 3.0
    assert _largest_entry(container(-X), some) == 3.0
    X[2, 0] = np.nan  # shows, whatever its weight
    assert np.isnan(_largest_entry(container(X), some))


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_a_common_row_is_that_of_the_rows_with_weight(container):
    X = np.array([[7.0, 7.0, 7.0], [1.0, 0.0, -2.0], [1.0, 0.0, -2.0]])
    everything, some = np.ones(3, dtype=bool), np.array([False, True, True])
    assert _common_row(container(X), everything) is None
    found = _common_row(container(X.astype(np.float32)), some)
    assert found.tolist() == [1.0, 0.0, -2.0]
    assert found.dtype == np.float64


@pytest.mark.parametrize("far", [1e3, -1e200])
def test_sparse_rows_of_weight_zero_move_neither_centre_nor_spread(far):
    rng = np.random.default_rng(6)
    X, shares = rng.normal(size=(50, 3)), _shares(rng, 50)
    found = moments(sp.csr_array(np.vstack([X, np.full((2, 3), far)])), np.append(shares, [0, 0]))
    plain = moments(X, shares)
    np.testing.assert_allclose(found.mean, plain.mean, rtol=1e-12)
    assert found.max_norm == pytest.approx(plain.max_norm, rel=1e-9)
    if far > 0:  # the square of the other is beyond floats, and shows in its distance
        assert found.variance == pytest.approx(plain.variance, rel=1e-9)


def test_a_pass_goes_in_blocks_of_the_stated_size():
    """Row by row it would take a hundred times as long, and as one block the memory of the data."""
    X = np.zeros((40_000, 200), dtype=np.float32)  # 64 MB in float64
    points = Points(X, np.zeros(200), 1.0, 1.0)
    assert [block.rows.nbytes for _, block in points.blocks()] == pytest.approx(
        [32 << 20, 29 << 20], rel=0.05
    )
    with_columns = [rows.stop - rows.start for rows, _ in points.blocks(extra_columns=200)]
    assert with_columns[:3] == [10485] * 3
    assert [s.stop - s.start for s in row_slices(1000, 1 << 12)] == [256, 256, 256, 232]


def test_squares_that_cancel_are_those_of_the_shift():
    X = np.eye(3)
    dense, sparse = (
        Points(c(X), np.full(3, 2.0), 0.5, 1.0).gather(slice(0, 3)) for c in (np.array, sp.csr_array)
    )
    assert dense.sq_shift == 0.0
    assert sparse.sq_shift == 48.0


def test_a_distance_of_zero_is_zero_in_any_unit():
    """Units whose ratio is too large for a float: what has a distance is infinitely far, what has none is not."""
    found = Moments(np.zeros(2), np.array([0.0, 1.0, 4.0]), 2.0**600, 1.0, 1.0, 0.0)
    assert found.scaled_sq_norms(2.0**-600).tolist() == [0.0, np.inf, np.inf]
    assert found.scaled_sq_norms(2.0**601).tolist() == [0.0, 0.25, 1.0]
    assert found.scaled_variance(2.0**601) == 0.25
    assert Moments(np.zeros(2), np.zeros(3), 2.0**600, 0.0, 0.0, 0.0).scaled_variance(2.0**-600) == 0.0


@pytest.mark.parametrize("function", [_largest_entry, _common_row])
def test_looks_at_all_entries_hold_a_block_and_not_the_data(function):
    X = np.ones((50_000, 64))  # 24 MiB, in blocks of 1 MiB
    positive = np.ones(50_000, dtype=bool)
    function(X[:100], positive[:100])
    tracemalloc.start()
    found = function(X, positive)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 << 20
    np.testing.assert_array_equal(found, X[0] if function is _common_row else 1.0)


def test_the_centre_is_known_to_a_few_roundings():
    X = np.random.default_rng(5).normal(size=(50, 3)) + 7.0
    shares = np.full(50, 0.02)
    exact = [sum(Fraction(float(x)) for x in column) / 50 for column in X.T]
    found = moments(X, shares)
    off = np.linalg.norm([float(Fraction(float(m)) - e) for m, e in zip(found.mean, exact, strict=True)])
    eps = np.finfo(float).eps
    assert off <= found.center_error
    assert found.center_error == pytest.approx(4.0 * eps * np.linalg.norm(found.mean))
    assert moments(1e200 * X, shares).center_error == pytest.approx(1e200 * found.center_error, rel=1e-6)
