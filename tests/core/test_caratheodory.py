"""Fewer rows with the same sums: non-negative weights, at most the rank of them, and nothing lost to rounding."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from coresift.core.caratheodory import few_rows, gram_vector, reduced_weights


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 120),
    dims=st.integers(1, 12),
    rank=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    has_repeats=st.booleans(),
    has_zeros=st.booleans(),
)
def test_reduced_weights(n: int, dims: int, rank: int, seed: int, has_repeats: bool, has_zeros: bool) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, min(rank, dims))) @ rng.normal(size=(min(rank, dims), dims))
    weights = rng.exponential(size=n)
    if has_repeats:
        vectors = vectors[rng.integers(0, n, n)]
    if has_zeros:
        vectors[rng.random(n) < 0.2] = 0.0
        weights[rng.random(n) < 0.2] = 0.0
    found = reduced_weights(vectors, weights)
    assert (found >= 0).all()
    assert np.count_nonzero(found) <= min(rank, dims)
    assert not found[weights == 0].any()
    np.testing.assert_allclose(found @ vectors, weights @ vectors, atol=1e-10 * (weights @ np.abs(vectors)).sum())


def test_rows_of_a_basis_stay_as_they_are() -> None:
    weights = np.array([3.0, 0.5, 2.0])
    np.testing.assert_allclose(reduced_weights(np.eye(3), weights), weights, rtol=1e-14)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 900), r=st.integers(1, 6), seed=st.integers(0, 10**6), tail=st.sampled_from([1.5, 3.0, 30.0]))
def test_few_rows_keep_the_gram_matrix(n: int, r: int, seed: int, tail: float) -> None:
    A = np.random.default_rng(seed).standard_t(tail, (n, r))
    A[:, 0] = 1.0
    U = np.linalg.qr(A)[0]  # (n, min(n, r))
    rank = U.shape[1] * (U.shape[1] + 1) // 2
    rows, factors = few_rows(lambda start, end: U[start:end], n, rank)
    assert len(rows) <= rank
    assert (np.diff(rows) > 0).all() if len(rows) > 1 else True
    assert (factors > 0).all()
    np.testing.assert_allclose((U[rows].T * factors) @ U[rows], np.eye(U.shape[1]), atol=1e-12)
    if n <= rank:
        assert len(rows) == n
        assert (factors == 1).all()


@pytest.mark.parametrize("order", ["sorted", "repeated", "blocks of zeros"])
def test_awkward_orders(order: str) -> None:
    rng = np.random.default_rng(0)
    U = rng.normal(size=(3000, 4))
    if order == "sorted":
        U = U[np.argsort(U[:, 1])]
    elif order == "repeated":
        U = np.repeat(U[:7], 400, axis=0)
    else:
        U[:2500] = 0.0
    rows, factors = few_rows(lambda start, end: U[start:end], len(U), 10)
    assert len(rows) <= 10
    np.testing.assert_allclose((U[rows].T * factors) @ U[rows], U.T @ U, rtol=1e-11, atol=1e-9)


def test_intervals_halve_so_that_the_work_is_linear() -> None:
    U = np.random.default_rng(0).normal(size=(20_000, 3))
    seen = []

    def rows_of(start: int, end: int) -> np.ndarray:
        seen.append((start, end))
        return U[start:end]

    few_rows(rows_of, len(U), 6)
    rounds = np.cumsum([0, *(later < before for (before, _), (later, _) in itertools.pairwise(seen))])
    assert np.bincount(rounds).max() <= 12
    assert rounds[-1] + 1 <= np.log2(20_000 / 6) + 3
    assert sum(end - start for start, end in seen) <= 2.5 * len(U)


def test_vectors_have_the_inner_products_of_matrices() -> None:
    U = np.random.default_rng(0).normal(size=(10, 3))
    grams = [U[:4].T @ U[:4], U[4:].T @ U[4:]]
    vectors = np.array([gram_vector(U[:4]), gram_vector(U[4:])])
    expected = [[np.sum(a * b) for b in grams] for a in grams]
    np.testing.assert_allclose(vectors @ vectors.T, expected)
    np.testing.assert_allclose(np.sum([gram_vector(row[None]) for row in U[:4]], axis=0), vectors[0])
