"""Laplacian sensitivities are inverse densities."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, strategies as st
from scipy.spatial.distance import cdist

from coresift.core.gaussian import CellSums
from coresift.core.laplacian import laplacian_cells, laplacian_exact
from coresift.core.points import Points, euclidean_distances


def cells(points, shares, centers):
    """The cells of all points, in one block."""
    sums = CellSums(centers)
    sums.update(points.gather(slice(0, points.n)), shares)
    return sums.finish()


def _points(X, scale=1.0):
    center = np.asarray(X.mean(axis=0)).ravel()
    dense = X.toarray() if sp.issparse(X) else X
    return Points(X, center, scale, float(np.sqrt(((dense - center) ** 2).sum(axis=1).max())) / scale)


@pytest.mark.parametrize("scale", [0.3, 1.0, 40.0])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_exact_is_the_inverse_density(container, scale):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(70, 4)) * (rng.random((70, 4)) < 0.6)
    shares = rng.dirichlet(np.ones(70))
    found = laplacian_exact(_points(container(X), scale), shares)
    expected = shares / (np.exp(-cdist(X, X) / scale) @ shares)
    np.testing.assert_allclose(found.values, expected, rtol=1e-10)
    assert np.all(found.values >= expected * (1 - 1e-14))  # the slack is on the safe side
    assert found.is_certified


def test_known_values():
    two = laplacian_exact(_points(np.array([[0.0], [2.0]])), np.array([0.25, 0.75])).values
    np.testing.assert_allclose(two, [1 / (1 + 3 * np.exp(-2)), 1 / (1 + np.exp(-2) / 3)], rtol=1e-10)
    assert laplacian_exact(_points(np.array([[5.0]])), np.ones(1)).values.tolist() == [1.0]
    equal = laplacian_exact(_points(np.full((4, 2), 3.0)), np.array([0.1, 0.2, 0.3, 0.4]))
    np.testing.assert_allclose(equal.values, [0.1, 0.2, 0.3, 0.4], rtol=1e-10)


@given(seed=st.integers(0, 10_000), n=st.integers(1, 40), d=st.integers(1, 6), k=st.integers(1, 10))
def test_cells_dominate_exact_for_any_centres(seed, n, d, k):
    rng = np.random.default_rng(seed)
    X = rng.standard_t(2, size=(n, d)) * 10 ** rng.uniform(-2, 1)
    shares = rng.dirichlet(np.ones(n))
    points = _points(X)
    found = laplacian_cells(points, shares, cells(points, shares, rng.normal(size=(k, d))))
    truth = laplacian_exact(points, shares).values
    assert np.all(found.values >= truth * (1 - 1e-12))
    assert np.all(found.values <= 1)
    assert found.is_certified


def test_cells_of_single_points_are_exact():
    rng = np.random.default_rng(1)
    X, shares = rng.normal(size=(30, 3)), rng.dirichlet(np.ones(30))
    points = _points(X)
    found = laplacian_cells(points, shares, cells(points, shares, X - points.center))
    np.testing.assert_allclose(found.values, laplacian_exact(points, shares).values, rtol=1e-6)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_a_tiny_bandwidth_underflows_in_silence(container):
    rng = np.random.default_rng(2)
    X, shares = rng.normal(size=(20, 2)), np.append(np.zeros(4), np.full(16, 1 / 16))
    points = _points(container(X), 1e-6)
    assert laplacian_exact(points, shares).values.tolist() == [0.0] * 4 + [1.0] * 16
    found = laplacian_cells(points, shares, cells(points, shares, np.zeros((1, 2))))
    assert found.values.tolist() == [0.0] * 4 + [1.0] * 16


def test_close_pairs_keep_their_digits():
    """Distances of 1e-9 between points of norm 1 vanish in |a|^2 - 2ab + |b|^2."""
    rng = np.random.default_rng(3)
    a = rng.normal(size=(20, 5))
    b = np.concatenate([a + 1e-9 * rng.normal(size=a.shape), a, rng.normal(size=a.shape)])
    np.testing.assert_allclose(euclidean_distances(a, b), cdist(a, b), rtol=1e-9, atol=1e-20)


@pytest.mark.parametrize("metric", ["cityblock", "chebyshev", lambda a, b: float(np.abs(a - b).max())])
def test_other_metrics_are_measured_in_the_data(metric):
    rng = np.random.default_rng(4)
    X, shares = rng.normal(size=(25, 3)) + 100.0, rng.dirichlet(np.ones(25))
    found = laplacian_exact(_points(X, 2.0), shares, metric)
    np.testing.assert_allclose(found.values, shares / (np.exp(-cdist(X, X, metric) / 2) @ shares), rtol=1e-10)


@pytest.mark.parametrize("rows", [slice(0, 12), slice(5, 24)])
def test_sparse_rows_that_nearly_coincide_have_their_distance(rows):
    """The product of matrices loses it, so these pairs are measured; each with its own partner."""
    rng = np.random.default_rng(4)
    X = np.round(rng.normal(size=(12, 6)) * (rng.random((12, 6)) < 0.6), 1) + 5.0 * np.eye(12, 6)
    X = np.vstack([X, X * (1.0 + 1e-5 * np.arange(1.0, 13.0)[:, None])])
    S = sp.csr_array(X)
    np.testing.assert_allclose(euclidean_distances(S[rows], S), cdist(X[rows], X), rtol=1e-6, atol=1e-14)
