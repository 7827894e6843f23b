"""Centre and spread of the rows, as the survey finds them, against plain NumPy and against exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from coresift import InvalidInputError
from coresift.coresets.fitting import array_runner, geometry_of
from coresift.coresets.options import BoundSpec


def array_geometry(X, w):
    return geometry_of(array_runner(X, w), BoundSpec("gaussian", "closed-form", None), np.random.default_rng(0))


def _weights(rng, n):
    return rng.gamma(1.0, size=n)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("container", [np.asarray, np.asfortranarray, sp.csr_array])
def test_the_weighted_mean_and_the_distances(container, dtype):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(300, 7)) * (rng.random((300, 7)) < 0.5) + 0.5).astype(dtype)
    w = _weights(rng, 300)
    found = array_geometry(container(X), w)
    exact = X.astype(np.float64)
    mean = np.average(exact, axis=0, weights=w)
    squares = ((exact - mean) ** 2).sum(axis=1)
    np.testing.assert_allclose(found.center, mean, rtol=1e-13)
    np.testing.assert_allclose(found.sq_norms(container(X)), squares / squares.max(), rtol=1e-11)
    assert found.variances[0] == pytest.approx(np.average(squares, weights=w) / squares.max(), rel=1e-12)
    assert found.scale == pytest.approx(np.sqrt(squares.max()), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e-70, 1.0, 1e70, 1e150, 1e299])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_everything_scales_with_the_data_at_any_magnitude(container, scale):
    rng = np.random.default_rng(1)
    X, w = rng.uniform(-1, 1, size=(60, 4)), _weights(rng, 60)
    plain, scaled = array_geometry(X, w), array_geometry(container(X * scale), w)
    np.testing.assert_allclose(scaled.center, plain.center * scale, rtol=1e-12, atol=1e-15 * scale)
    assert scaled.scale == pytest.approx(plain.scale * scale, rel=1e-12)
    np.testing.assert_allclose(scaled.sq_norms(container(X * scale)), plain.sq_norms(X), rtol=1e-11)
    np.testing.assert_allclose(scaled.variances, plain.variances, rtol=1e-11)


@pytest.mark.parametrize("offset", [1e4, 1e8, 1e12])
def test_a_huge_offset_loses_no_digits_of_the_distances(offset):
    rng = np.random.default_rng(2)
    X = offset + rng.normal(size=(200, 3))
    found = array_geometry(X, np.ones(200))
    # the stored centre is a float: distances are to it, and the mean is within the stated error of it
    squares = ((X - found.center) ** 2).sum(axis=1)
    np.testing.assert_allclose(found.sq_norms(X) * found.scale**2, squares, rtol=1e-12)
    exact_mean = [sum(Fraction(v) for v in column) / 200 for column in X.T]
    miss = np.sqrt(sum(float(Fraction(m) - e) ** 2 for m, e in zip(found.center, exact_mean, strict=True)))
    assert miss <= found.center_error * found.scale <= 1e-14 * offset


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("row", [[0.1, 0.2, 0.3], [1e8 + 0.1, 0.0, -7.3], [0.0, 0.0, 0.0], [1e-200, 3e-200, 0.0]])
def test_equal_rows_have_no_spread_however_many_they_are(container, row):
    # 0.1 added 150,000 times is off by 1e-12 of itself
    X = np.tile(np.array(row), (150_000, 1))
    found = array_geometry(container(X), np.ones(len(X)))
    assert found.center.tolist() == row
    assert found.max_norm == found.variances[0] == 0.0
    assert found.scale == 1.0
    if container is np.asarray:
        assert not found.sq_norms(X).any()


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_rows_an_ulp_apart_are_not_equal(container):
    X = np.array([[1e8, 1.0], [np.nextafter(1e8, 2e8), 1.0]])
    found = array_geometry(container(X), np.ones(2))
    if container is np.asarray:
        assert found.scale == pytest.approx(np.spacing(1e8), rel=0.6)
    assert found.center_error * found.scale >= np.spacing(1e8) / 2


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_rows_of_weight_zero_move_neither_centre_nor_spread(container):
    rng = np.random.default_rng(3)
    X, w = rng.normal(size=(50, 3)), _weights(rng, 50)
    plain = array_geometry(X, w)
    for far in (1e3, 1e60):
        found = array_geometry(container(np.vstack([X, np.full((2, 3), far)])), np.append(w, [0, 0]))
        np.testing.assert_allclose(found.center, plain.center, rtol=1e-12)
        assert found.scale == pytest.approx(plain.scale, rel=1e-9)
        np.testing.assert_allclose(found.variances, plain.variances, rtol=1e-9)
    with pytest.raises(InvalidInputError, match="bandwidths are possible"):
        array_geometry(np.vstack([X, np.full((2, 3), -1e299)]), np.append(w, [0, 0]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("container", [np.array, sp.csr_array])
@pytest.mark.parametrize("weight", [0.0, 0.1])
def test_whatever_is_not_finite_is_named(container, value, weight):
    X, w = np.ones((20, 3)), np.ones(20)
    X[7, 1], w[7] = value, weight
    with pytest.raises(InvalidInputError, match="in column 1, row 7"):
        array_geometry(container(X), w)
