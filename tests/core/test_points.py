"""Blocks of rows, against plain NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, strategies as st

from coresift.core.points import Points, row_slices


@given(n=st.integers(0, 500), bytes_per_row=st.floats(0, 1e4), budget=st.integers(1, 5000))
def test_row_slices_cover_every_row_once_within_the_budget(n, bytes_per_row, budget):
    slices = list(row_slices(n, bytes_per_row, budget))
    assert [i for s in slices for i in range(s.start, s.stop)] == list(range(n))
    assert all(s.stop - s.start == 1 or (s.stop - s.start) * bytes_per_row <= budget for s in slices)


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


def test_a_pass_goes_in_blocks_of_the_stated_size():
    """Row by row it would take a hundred times as long, and as one block the memory of the data."""
    X = np.zeros((40_000, 200), dtype=np.float32)  # 64 MB in float64
    points = Points(X, np.zeros(200), 1.0, 1.0)
    assert [block.rows.nbytes for _, block in points.blocks()] == pytest.approx([32 << 20, 29 << 20], rel=0.05)
    with_columns = [rows.stop - rows.start for rows, _ in points.blocks(extra_columns=200)]
    assert with_columns[:3] == [10485] * 3
    assert [s.stop - s.start for s in row_slices(200, 1 << 12)] == [128, 72]


def test_squares_that_cancel_are_those_of_the_shift():
    X = np.eye(3)
    dense, sparse = (Points(c(X), np.full(3, 2.0), 0.5, 1.0).gather(slice(0, 3)) for c in (np.array, sp.csr_array))
    assert dense.sq_shift == 0.0
    assert sparse.sq_shift == 48.0
