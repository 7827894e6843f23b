"""Facility location against the plain greedy and against the best of all subsets."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from coresift.selection import Craig, Gradients, SelectionContext
from coresift.selection.facility import Distances, facility_location


def gradients(seed, n, outputs=2, inputs=3):
    rng = np.random.default_rng(seed)
    return Gradients(rng.normal(size=(n, outputs)), rng.normal(size=(n, inputs)))


def distance_matrix(a):
    A = a.dense()
    return np.linalg.norm(A[:, None] - A, axis=2)


def naive_greedy(D, size, weights):
    """All gains of max-distance-minus-distance at every step."""
    similarity, best, picks = D.max() - D, np.zeros(len(D)), []
    for _ in range(size):
        gains = np.maximum(similarity - best, 0.0) @ weights
        gains[picks] = -1.0
        picks.append(int(np.argmax(gains)))
        best = np.maximum(best, similarity[picks[-1]])
    return picks, float(best @ weights)


@pytest.mark.slow
@given(st.integers(0, 200), st.integers(2, 40), st.data())
def test_lazy_picks_are_those_of_the_plain_greedy(seed, n, data):
    size = data.draw(st.integers(1, n))
    weights = np.random.default_rng(seed).random(n) + 0.5
    a = gradients(seed, n)
    D = distance_matrix(a)
    picks, value = naive_greedy(D, size, weights)
    for limit in (0.0, 1e9):  # by blocks, and as a matrix
        distances = Distances(a, limit)
        assert distances.is_held == (limit > 0)
        rows, served = facility_location(distances, size, weights)
        assert rows.tolist() == picks
        assert D.max() * weights.sum() - D[rows].min(axis=0) @ weights == pytest.approx(value, rel=1e-9)
        assert served.sum() == pytest.approx(weights.sum())


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_value_reaches_one_minus_one_over_e_of_the_best(seed, size):
    a = gradients(seed, 11)
    D = distance_matrix(a)
    best = max((D.max() - D)[list(chosen)].max(axis=0).sum() for chosen in combinations(range(11), size))
    rows, _ = facility_location(Distances(a, 1e9), size, np.ones(11))
    value = D.max() * 11 - D[rows].min(axis=0).sum()
    assert (1 - 1 / np.e) * best <= value <= best * (1 + 1e-12)
    if size == 1:
        assert value == pytest.approx(best)


def test_weights_count_the_points_nearest_to_each_pick():
    a = gradients(3, 60)
    core = Craig().select(SelectionContext(np.zeros((60, 1)), gradients=a), 7, np.random.default_rng(0))
    nearest = distance_matrix(a)[core.indices].argmin(axis=0)
    np.testing.assert_array_equal(core.weights, np.bincount(nearest, minlength=7))
    error = np.linalg.norm(a.dense().sum(axis=0) - core.weights @ a.dense()[core.indices])
    assert error <= distance_matrix(a)[core.indices].min(axis=0).sum() + 1e-9  # as the docstring claims


def test_equal_points_are_picked_once_each_and_every_pick_stands_for_itself():
    a = Gradients(np.ones((9, 2)))
    core = Craig().select(SelectionContext(np.zeros((9, 1)), gradients=a), 4, np.random.default_rng(0))
    assert core.size == 4
    assert core.weights.min() >= 1
    assert core.weights.sum() == 9


def test_no_matrix_above_the_memory_limit(monkeypatch):
    import tracemalloc

    n, limit = 4000, 2**20
    a = gradients(0, n)
    monkeypatch.setattr("coresift.selection.facility._BLOCK_BYTES", limit)
    tracemalloc.start()
    Craig(memory_limit=limit).select(SelectionContext(np.zeros((n, 1)), gradients=a), 5, np.random.default_rng(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * n * n / 8  # the matrix would take 122 MiB; a few blocks of 1 MiB are used


@pytest.mark.parametrize("limit", [0.0, 1e9])
def test_few_gains_are_computed_anew(limit, monkeypatch):
    """In separate clumps a pick changes the gains of its own clump only: of each step some eight are looked at."""
    rng = np.random.default_rng(0)
    a = Gradients(np.repeat(10.0 * rng.normal(size=(20, 3)), 20, axis=0) + rng.normal(size=(400, 3)))
    distances, asked = Distances(a, limit), []
    plain = Distances.__call__

    def counted(self, positions):
        rows = plain(self, positions)
        asked.append(len(rows))
        return rows

    monkeypatch.setattr(Distances, "__call__", counted)
    rows, _ = facility_location(distances, 40, np.ones(400))
    assert rows.tolist() == naive_greedy(distance_matrix(a), 40, np.ones(400))[0]
    assert 800 < sum(asked) - 40 < 800 + 40 * 40  # the row of each pick is not a gain


@pytest.mark.parametrize("limit", [0.0, 1e9])
@pytest.mark.parametrize("block_bytes", [1, 1 << 24])
def test_distances_are_those_of_the_gradients(limit, block_bytes, monkeypatch):
    monkeypatch.setattr("coresift.selection.facility._BLOCK_BYTES", block_bytes)
    a = gradients(6, 12)
    distances = Distances(a, limit)
    assert distances.block_rows == (1 if block_bytes == 1 else (1 << 24) // 96)
    np.testing.assert_allclose(distances(slice(1, 4)), distance_matrix(a)[1:4], atol=1e-12)
    np.testing.assert_allclose(distances(np.array([7])), distance_matrix(a)[[7]], atol=1e-12)
    assert distances(np.array([5]))[0, 5] == 0.0


@pytest.mark.parametrize("spare, is_held", [(0.0, True), (-1.0, False)])
def test_a_matrix_that_just_fits_is_held(spare, is_held):
    assert Distances(gradients(0, 10), 8.0 * 10 * 10 + spare).is_held == is_held
