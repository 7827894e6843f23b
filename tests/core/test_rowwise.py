"""Linear algebra by blocks of rows, each part against its definition."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from coresift.core.lewis import BLOCK_BYTES, graded_svd, row_blocks, whitening_error
from coresift.core.lewis_passes import add_gram, row_norms, stacked_qr


@pytest.mark.parametrize("d", [3, 3000])
@pytest.mark.parametrize("kind", ["float64", "float32", "sparse"])
def test_blocks_are_the_rows_in_order_and_of_bounded_size(kind, d):
    n = 200_000 if d == 3 else 600
    X = np.arange(n * d, dtype=np.float64).reshape(n, d) % 97
    given = {"float64": X, "float32": X.astype(np.float32), "sparse": sp.csr_array(X)}[kind]
    found = list(row_blocks(given))
    assert [rows.start for rows, _ in found] == [0, *(rows.stop for rows, _ in found[:-1])]
    assert found[-1][0].stop == n
    for rows, block in found:
        assert block.dtype == np.float64
        np.testing.assert_array_equal(block, X[rows])
        assert np.shares_memory(block, X) == (kind == "float64")
    # as many rows as fit, but 256 at least: wide rows would make blocks too low for BLAS
    full = max(BLOCK_BYTES // (8 * d), 256)
    assert {len(block) for _, block in found[:-1]} == {full}


def test_gram_matrix_of_rows_over_their_weights():
    rng = np.random.default_rng(0)
    Y, w, g = rng.normal(size=(9, 3)), rng.exponential(size=9), rng.exponential(size=9)
    Y[4], w[4] = np.inf, 0.0  # overflowed, and without weight
    g[5] = 0.0  # without a norm: a row of zeros, in effect
    gram = np.eye(3)
    expected = gram + sum(w[i] / g[i] * np.outer(Y[i], Y[i]) for i in range(9) if i not in (4, 5))
    with np.errstate(invalid="ignore"):
        add_gram(gram, Y.copy(), w, g)
    np.testing.assert_allclose(gram, expected, rtol=1e-12)


@pytest.mark.parametrize("exponent", [-300, -160, -139, 0, 100, 150])
def test_norms_of_rows_of_any_size(exponent):
    rows = np.array([[3.0, 4.0, 0.0], [1.0, 2.0, 2.0], [0.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    found = row_norms(np.concatenate((10.0**exponent * rows, rows)))
    expected = np.array([5.0, 3.0, 0.0, 1.0])
    np.testing.assert_allclose(found, np.concatenate((10.0**exponent * expected, expected)), rtol=1e-14)


def test_few_rows_and_none_have_a_triangular_factor_too():
    assert stacked_qr([], 3).shape == (0, 3)
    R = stacked_qr([np.array([[1.0, 2.0, 3.0]])], 3)
    np.testing.assert_allclose(np.abs(R), [[1.0, 2.0, 3.0]])


def test_the_rounding_of_a_whitener_is_that_of_its_condition_whatever_the_scales_of_columns():
    rng = np.random.default_rng(1)
    Q = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    eps = np.finfo(float).eps
    margin, inverse = whitening_error(Q, np.ones(4))
    assert margin == pytest.approx(4.0 * 2.0 * eps)  # condition 1 in four dimensions
    np.testing.assert_allclose(inverse, Q.T, atol=1e-14)
    scales = np.array([1e-9, 1.0, 1e7, 2.0])
    again, inverse = whitening_error(scales[:, None] * Q, scales)
    assert again == pytest.approx(margin)
    np.testing.assert_allclose(inverse, Q.T, atol=1e-14)
    worse = Q * np.array([1.0, 1.0, 1.0, 1e-6])
    assert 1e5 * margin < whitening_error(worse, np.ones(4))[0] < 1e7 * margin
    # a column without a scale has no part in it
    wide, inverse = whitening_error(np.vstack((Q, np.zeros((1, 4)))), np.append(np.ones(4), 0.0))
    assert inverse.shape == (4, 4)
    assert wide == pytest.approx(4.0 * 5**0.5 * eps)


def exact_products(V):
    """``V^T V`` in rational numbers: floats of very different size leave nothing to rounding."""
    columns = [[Fraction(float(v)) for v in column] for column in V.T]
    return np.array([[float(sum(a * b for a, b in zip(x, y, strict=True))) for y in columns] for x in columns])


@pytest.mark.parametrize("shape", ["triangular", "full", "ordinary"])
@pytest.mark.parametrize("order", ["falling", "rising", "mixed"])
@pytest.mark.parametrize("unit", [1.0, 1e150, 1e-130])
def test_singular_vectors_of_graded_columns_keep_every_entry(shape, order, unit):
    rng = np.random.default_rng(2)
    grades = {"falling": [6.0, 2, -2, -6], "rising": [-6.0, -2, 2, 6], "mixed": [2.0, -6, 6, -2]}[order]
    core = rng.normal(size=(4, 4)) + 3.0 * np.eye(4)
    if shape == "triangular":
        core = np.triu(core)
    scales = unit * (10.0 ** np.array(grades) if shape != "ordinary" else np.ones(4))
    factor, whitener = core * scales, np.linalg.inv(core) / scales[:, None]
    s, V, to_u = graded_svd(factor, whitener)
    assert np.all(s > 0)
    np.testing.assert_allclose(exact_products(V), np.eye(4), atol=1e-12)
    # |F e_j| = |diag(s) V^T e_j|, and the same of the inverse, to the relative accuracy of each column
    np.testing.assert_allclose(np.linalg.norm(V * (s / unit), axis=1), np.linalg.norm(factor / unit, axis=0), rtol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(to_u * unit, axis=1), np.linalg.norm(whitener * unit, axis=1), rtol=1e-9)
    x = rng.normal(size=(7, 4)) / scales
    np.testing.assert_allclose(np.linalg.norm((x @ V) * s, axis=1), np.linalg.norm(x @ factor.T, axis=1), rtol=1e-8)


def test_singular_vectors_of_fewer_rows_than_columns_and_of_none():
    rng = np.random.default_rng(3)
    factor = rng.normal(size=(2, 4)) * np.array([1e6, 1.0, 0.0, 1e-6])
    s, V, to_u = graded_svd(factor, np.linalg.pinv(factor))
    np.testing.assert_allclose(exact_products(V), np.eye(2), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(V * s, axis=1), np.linalg.norm(factor, axis=0), rtol=1e-9)
    np.testing.assert_allclose(to_u, V / s)
    s, V, to_u = graded_svd(np.zeros((0, 3)), np.zeros((3, 0)))
    assert (s.shape, V.shape, to_u.shape) == ((0,), (3, 0), (3, 0))


@pytest.mark.parametrize("unit", [1e-160, 1e160])
def test_singular_values_of_tiny_and_of_huge_factors(unit):
    """Their squares are no floats; in other units it is the same matrix."""
    core = np.random.default_rng(6).normal(size=(3, 3)) + 2.0 * np.eye(3)
    expected = graded_svd(core, np.linalg.inv(core))
    s, V, to_u = graded_svd(core * unit, np.linalg.inv(core) / unit)
    np.testing.assert_allclose(s / unit, expected[0], rtol=1e-12)
    np.testing.assert_allclose(np.abs(V), np.abs(expected[1]), rtol=1e-9)
    np.testing.assert_allclose(np.abs(to_u) * unit, np.abs(expected[2]), rtol=1e-9)
