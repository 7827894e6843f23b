"""Gradients as factors: every product agrees with the gradients multiplied out."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from coresift import InvalidInputError
from coresift.selection import Gradients


def some(seed=0, n=7, outputs=3, inputs=4, bias=True):
    rng = np.random.default_rng(seed)
    residuals, h = rng.normal(size=(n, outputs)), rng.normal(size=(n, inputs))
    return Gradients(residuals, np.hstack([h, np.ones((n, int(bias)))]) if inputs else None)


@given(st.integers(0, 99), st.integers(1, 4), st.integers(0, 4), st.booleans())
def test_products_of_factors_are_products_of_the_whole(seed, outputs, inputs, bias):
    a, b = some(seed, 6, outputs, inputs, bias), some(seed + 1, 4, outputs, inputs, bias)
    A, B = a.dense(), b.dense()
    assert A.shape == (6, a.width)
    np.testing.assert_allclose(a.products(b), B @ A.T, atol=1e-12)
    np.testing.assert_allclose(a.sq_norms(), (A**2).sum(axis=1), atol=1e-12)
    direction = np.random.default_rng(seed).normal(size=a.width)
    np.testing.assert_allclose(a.along(direction), A @ direction, atol=1e-12)
    weights = np.random.default_rng(seed).random(6)
    np.testing.assert_allclose(a.total(), A.sum(axis=0), atol=1e-12)
    np.testing.assert_allclose(a.total(weights), weights @ A, atol=1e-12)
    groups = [np.array([0, 5]), np.array([1, 2, 3]), np.array([4])]
    np.testing.assert_allclose(a.means(groups).dense(), [A[g].mean(axis=0) for g in groups], atol=1e-12)


def test_parts_of_a_layer():
    a = some()
    whole = a.dense().reshape(7, 3, 5)
    np.testing.assert_array_equal(a.of_output(1).dense(), whole[:, 1])
    np.testing.assert_array_equal(a.take(np.array([4, 2])).dense(), a.dense()[[4, 2]])


def test_factors_that_do_not_fit_are_refused():
    with pytest.raises(InvalidInputError, match="inputs has length 2, but residuals has 3 rows"):
        Gradients(np.zeros((3, 1)), np.zeros((2, 1)))
    with pytest.raises(InvalidInputError, match="residuals must be a two-dimensional array of floats"):
        Gradients(np.zeros(3))
