"""Leverage: against the singular value decomposition, and its invariances."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, strategies as st

from coresift.core.linear import Leverage, weighted_gram


def by_svd(A, w):
    """Leverage of rows, with positive weights, from an orthonormal basis."""
    U, s, _ = np.linalg.svd(A * np.sqrt(w)[:, None], full_matrices=False)
    U = U[:, s > 1e-10 * s[0]]
    return (U**2).sum(axis=1) / w, U.shape[1]


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(3, 40), p=st.integers(1, 6), copies=st.integers(0, 2))
def test_agrees_with_the_svd_also_with_collinear_columns(seed, n, p, copies):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, p)) * 10.0 ** rng.integers(-3, 4, p)
    A = np.hstack([A, A[:, :1] * 2.0 - A[:, -1:] * 3.0] + [np.zeros((n, 1))] * copies)
    w = rng.uniform(0.1, 5.0, n)
    found = Leverage(weighted_gram(A, w))
    expected, rank = by_svd(A / np.linalg.norm(A, axis=0).clip(1e-300), w)
    assert found.rank == rank
    np.testing.assert_allclose(found.of(A), expected, rtol=1e-5, atol=1e-9)


def test_sums_to_the_rank_and_bounds_what_a_row_can_do():
    rng = np.random.default_rng(0)
    A, w = rng.normal(size=(60, 5)), rng.uniform(0.0, 2.0, 60)
    h = Leverage(weighted_gram(A, w)).of(A)
    assert w @ h == pytest.approx(5)
    for _ in range(100):
        beta = rng.normal(size=5)
        assert np.all((A @ beta) ** 2 <= h * (w @ (A @ beta) ** 2) * (1 + 1e-12))
    i = int(np.argmax(h))  # attained, so that a larger value would be wrong as well
    beta = np.linalg.solve(weighted_gram(A, w), A[i])
    assert (A[i] @ beta) ** 2 == pytest.approx(h[i] * (w @ (A @ beta) ** 2))


def test_sparse_and_dense_agree():
    rng = np.random.default_rng(1)
    A = np.where(rng.random((50, 6)) < 0.3, rng.normal(size=(50, 6)), 0.0)
    w = np.ones(50)
    sparse = sp.csr_array(A)
    np.testing.assert_allclose(Leverage(weighted_gram(sparse, w)).of(sparse), Leverage(weighted_gram(A, w)).of(A))


def test_units_do_not_matter():
    rng = np.random.default_rng(2)
    A = rng.normal(size=(40, 3))
    scaled = A * np.array([1e-60, 1.0, 1e60])
    w = np.ones(40)
    np.testing.assert_allclose(Leverage(weighted_gram(scaled, w)).of(scaled), Leverage(weighted_gram(A, w)).of(A))
