"""k-center, herding, facility location and graph cut against brute force, planted points and memory."""

import tracemalloc
from itertools import combinations

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

from coresift import InvalidInputError
from coresift.coresets.covering import principal
from coresift.selection import Cover, FacilityLocation, GraphCut, Herding, KCenter, PerBatch, PerClass, SelectionContext
from coresift.selection.facility import graph_facilities, neighbour_graph


def rng(seed=0):
    return np.random.default_rng(seed)


def points(n, d=4, seed=0, dtype=np.float64):
    return rng(seed).normal(size=(n, d)).astype(dtype)


def distance_matrix(X):
    return cdist(X, X)


def chosen(strategy, X, size, y=None, **options):
    return strategy.select(SelectionContext(X, y, **options), size, rng(1))


METHODS = {
    "k-center": KCenter(features="raw"),
    "herding": Herding(features="raw"),
    "facility": FacilityLocation(features="raw"),
    "graph cut": GraphCut(features="raw"),
}
everyone = pytest.mark.parametrize("name", METHODS)


def radius(D, rows):
    return D[:, rows].min(axis=1).max()


def greedy(n, size, gain):
    """Plain greedy: all gains at every step, the first of equal ones."""
    picks = []
    while len(picks) < size:
        values = [-np.inf if row in picks else gain(picks, row) for row in range(n)]
        picks.append(int(np.argmax(values)))
    return picks


@pytest.mark.parametrize("seed", range(5))
def test_k_center_is_farthest_first_and_within_twice_the_best(seed):
    X = points(13, 2, seed)
    D = distance_matrix(X)
    picks = KCenter()._picked(SelectionContext(X), X, 4, np.zeros(0, dtype=np.int64))[0].tolist()
    assert picks[0] == np.argmin(np.linalg.norm(X - X.mean(axis=0), axis=1))
    for t in range(1, 4):
        assert picks[t] == np.argmax(D[:, picks[:t]].min(axis=1))
    best = min(radius(D, list(each)) for each in combinations(range(13), 4))
    assert best <= radius(D, picks) <= 2 * best


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(4))
def test_isolated_points_are_found_by_k_center_wherever_they_stand(seed, dtype):
    X = points(300, 5, seed, dtype)
    places = rng(seed).choice(300, 4, replace=False)
    X[places] = 50.0 * np.eye(5, dtype=dtype)[:4]
    X += 1000.0  # far from the origin: float32 must not lose the distances
    core = chosen(KCenter(features="raw"), X, 6)
    assert set(places) <= set(core.indices.tolist())
    assert not set(places) <= set(chosen(Herding(features="raw"), X, 6).indices.tolist())  # so the test can fail


@pytest.mark.parametrize(("kind", "most"), [(KCenter, 0.3), (Herding, 0.3), (GraphCut, 1.5)])
def test_no_matrix_of_pairs_is_allocated(kind, most):
    X = points(20_000, 64, dtype=np.float32)
    kind().select(SelectionContext(X[:100]), 2, rng())  # what is imported late
    tracemalloc.start()
    try:
        kind().select(SelectionContext(X), 200, rng())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most * X.nbytes


def is_farthest_first(X, size):
    """Whether every pick of k-center is as far from the earlier ones as any row, to six digits."""
    picks = KCenter()._picked(SelectionContext(X), X, size, np.zeros(0, dtype=np.int64))[0]
    X = X.astype(np.float64)
    near = np.linalg.norm(X - X[picks[0]], axis=1)
    for pick in picks[1:]:
        if near[pick] < (1 - 1e-6) * near.max():
            return False
        near = np.minimum(near, np.linalg.norm(X - X[pick], axis=1))
    return len(set(picks.tolist())) == size


@pytest.mark.parametrize(("shift", "outlier"), [(0.0, 1e6), (50.0, 0.0), (3000.0, 0.0), (3000.0, 1e6)])
def test_k_center_copies_no_data_however_they_lie(shift, outlier):
    X = points(20_000, 64) + shift
    X[17, 0] += outlier
    X = X.astype(np.float32)
    tracemalloc.start()
    try:
        KCenter().select(SelectionContext(X), 30, rng())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.3 * X.nbytes
    assert is_farthest_first(X, 30)


@pytest.mark.parametrize("seed", range(5))
def test_herding_is_the_direct_loop(seed):
    X = points(40, 3, seed) + 5.0
    mean, picks, total = X.mean(axis=0), [], np.zeros(3)
    for t in range(9):
        far = np.linalg.norm(mean - (total + X) / (t + 1), axis=1)
        far[picks] = np.inf
        picks.append(int(np.argmin(far)))
        total += X[picks[-1]]
    np.testing.assert_array_equal(chosen(METHODS["herding"], X, 9).indices, np.sort(picks))
    drawn = [np.linalg.norm(X[rng(s).choice(40, 9, replace=False)].mean(axis=0) - mean) for s in range(50)]
    assert np.linalg.norm(X[picks].mean(axis=0) - mean) < min(drawn)  # an arg-max would be above all of them


@pytest.mark.parametrize("seed", range(3))
def test_herding_of_unit_vectors_is_wellings_rule(seed):
    X = points(40, 3, seed)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    w, picks = X.mean(axis=0), []
    for _ in range(9):
        values = X @ w
        values[picks] = -np.inf
        picks.append(int(np.argmax(values)))
        w += X.mean(axis=0) - X[picks[-1]]
    np.testing.assert_array_equal(chosen(METHODS["herding"], X, 9).indices, np.sort(picks))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("trade_off", [0.5, 2.0])
def test_graph_cut_is_the_plain_greedy_of_its_objective(seed, trade_off):
    X = points(25, 3, seed)
    U = X - X.mean(axis=0)
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    s = 0.5 * (1.0 + U @ U.T)

    def value(picks):
        return trade_off * s[:, picks].sum() - s[np.ix_(picks, picks)].sum()

    # s[e, e] enters once and each pair twice
    picks = greedy(25, 7, lambda picks, row: value([*picks, row]) - value(picks))
    core = chosen(GraphCut(features="raw", trade_off=trade_off), X, 7)
    np.testing.assert_array_equal(core.indices, np.sort(picks))


def objective(D, rows):
    return (D.max() - D[:, rows].min(axis=1)).sum()


@pytest.mark.parametrize("seed", range(3))
def test_facility_location_is_the_plain_greedy(seed):
    X = points(40, 3, seed)
    D = distance_matrix(X)
    picks = greedy(40, 6, lambda picks, row: objective(D, [*picks, row]))
    core = chosen(METHODS["facility"], X, 6)
    # two rows that would serve each other alone have equal gains, so the values are compared, not the rows
    assert objective(D, core.indices) == pytest.approx(objective(D, picks), rel=1e-12)
    np.testing.assert_array_equal(core.weights, np.bincount(D[:, core.indices].argmin(axis=1)))


@pytest.mark.parametrize("kind", ["blobs", "uniform"])
def test_the_neighbour_graph_is_nearly_as_good_as_the_exact_greedy(kind):
    X = points(3000, 8, 2)
    if kind == "blobs":
        X += 6 * points(30, 8, 3)[rng(4).integers(30, size=3000)]
    D = distance_matrix(X)
    exact, graph = (chosen(FacilityLocation(features="raw", max_exact=limit), X, 150).indices for limit in (3000, 1))
    drawn = rng(5).choice(3000, 150, replace=False)
    assert objective(D, graph) > 0.99 * objective(D, exact)
    cost = {
        name: D[:, rows].min(axis=1).sum() for name, rows in {"exact": exact, "graph": graph, "drawn": drawn}.items()
    }
    assert cost["graph"] < 1.05 * cost["exact"] < 1.05 * 0.97 * cost["drawn"]  # power: a uniform draw would fail


def test_the_greedy_on_a_graph_is_the_plain_greedy_of_its_objective():
    X = points(60, 3)
    D = distance_matrix(X).astype(np.float32)
    rows = np.argsort(D, axis=1)[:, :8]
    far = np.take_along_axis(D, rows, axis=1)
    weights, limits = rng(1).random(60) + 0.5, far.max(axis=1)
    capped = np.full((60, 60), np.inf)
    np.put_along_axis(capped, rows, far, axis=1)

    def value(picks):
        return weights @ np.maximum(limits - capped[:, picks].min(axis=1, initial=np.inf), 0.0)

    expected = greedy(60, 10, lambda picks, row: value([*picks, row]))
    found = graph_facilities(rows, far, 10, weights, np.zeros(0, dtype=np.int64))
    assert value(found.tolist()) == pytest.approx(value(expected), rel=1e-6)
    assert found.tolist() == expected
    kept = graph_facilities(rows, far, 10, weights, np.array([5, 7]))
    assert kept[:2].tolist() == [5, 7]


@pytest.mark.parametrize("n", [50, 6000])
def test_the_neighbours_of_a_row(n):
    X = points(n, 3, dtype=np.float32)
    rows, far = neighbour_graph(X, 10, rng())
    true = np.sort(distance_matrix(X[:50].astype(np.float64)) if n == 50 else cdist(X[:50], X))
    share = [len(np.intersect1d(rows[i], np.argsort(np.linalg.norm(X - X[i], axis=1))[:10])) / 10 for i in range(50)]
    assert np.mean(share) > 0.95
    assert all(i in rows[i] for i in range(n))
    np.testing.assert_allclose(np.sort(far[:50], axis=1)[:, 1], true[:, 1], atol=2e-3)


def test_equal_rows_make_no_large_matrix():
    """All of them are in one cell: compared with all others they would take a matrix of 780 MB."""
    X = np.concatenate((np.zeros((14_000, 2)), points(2000, 2))).astype(np.float32)
    tracemalloc.start()
    try:
        core = chosen(FacilityLocation(features="raw", max_exact=1), X, 600)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert core.size == 600
    assert 14_000 <= core.weights.max() < 14_200
    assert peak < 2e8


def test_a_pool_is_drawn_from_many_rows_and_weights_count_all():
    X = points(4000, 3)
    core = chosen(FacilityLocation(features="raw", max_exact=500), X, 5)  # 128 rows a pick are 640
    assert core.size == 5
    assert core.weights.sum() == 4000
    owner = cdist(X, X[core.indices]).argmin(axis=1)
    np.testing.assert_array_equal(core.weights, np.bincount(owner, minlength=5))


@everyone
@pytest.mark.parametrize("seed", range(3))
def test_a_permutation_of_the_input_permutes_the_output(name, seed):
    X, order = points(60, 3, seed), rng(seed).permutation(60)
    plain, moved = chosen(METHODS[name], X, 9), chosen(METHODS[name], X[order], 9)
    back = np.argsort(order[moved.indices])
    np.testing.assert_array_equal(order[moved.indices][back], plain.indices)
    np.testing.assert_array_equal(moved.weights[back], plain.weights)


@everyone
def test_rows_that_must_stay(name):
    X, y = points(80, 3), np.arange(80) % 2
    strategy = type(METHODS[name])(features="raw", include=[70, 3, 3])
    core = chosen(strategy, X, 6)
    assert {3, 70} <= set(core.indices.tolist())
    assert core.size == 6
    assert core.weights.sum() == pytest.approx(80)
    assert {3, 70} <= set(PerClass(strategy).select(SelectionContext(X, y), 6, rng()).indices.tolist())
    for wrong, budget in (([80], 6), ([-1], 6), ([0.5], 6), ([1, 2, 3], 2)):
        with pytest.raises(InvalidInputError, match="include"):
            chosen(type(METHODS[name])(features="raw", include=wrong), X, budget)
    for seed in range(10):  # some of ten classes get nothing, and which is chance: never without these rows
        tenths = SelectionContext(X, np.arange(80) % 10, seed=seed)
        budgets = PerClass(type(METHODS[name])(features="raw")).select(tenths, 5, rng(seed))
        if {0, 3} <= set((budgets.indices % 10).tolist()):
            assert {3, 70} <= set(PerClass(strategy).select(tenths, 5, rng(seed)).indices.tolist())
        else:
            with pytest.raises(InvalidInputError, match="include has 1 rows of a class whose budget is 0"):
                PerClass(strategy).select(tenths, 5, rng(seed))
    with pytest.raises(InvalidInputError, match="mini-batches"):
        PerBatch(strategy, 4).select(SelectionContext(X, y), 8, rng())


@everyone
def test_weights_sum_to_n_and_the_subset_is_kept(name):
    X = points(90, 3)
    context = SelectionContext(X)
    core = METHODS[name].select(context, 8, rng(1))
    assert core.weights.sum() == pytest.approx(90)
    assert name == "facility" or np.ptp(core.weights) == 0
    assert METHODS[name].select(context.at(7), 8, rng(2)) == core
    assert context.costs[METHODS[name].name].calls == 1


@everyone
def test_integers_sparse_matrices_and_nan(name):
    X = rng().integers(0, 9, size=(50, 4)).astype(np.uint8)
    plain = chosen(METHODS[name], X.astype(np.float64), 6)
    np.testing.assert_array_equal(chosen(METHODS[name], X, 6).indices, plain.indices)
    np.testing.assert_array_equal(chosen(METHODS[name], sparse.csr_array(X * 1.0), 6).indices, plain.indices)
    with pytest.raises(InvalidInputError, match="NaN"):
        chosen(METHODS[name], np.full((9, 2), np.nan), 3)


@pytest.mark.parametrize(("code", "every"), [(999999.0, 20), (-9999.0, 20), (99999.0, 2)])
def test_a_code_for_missing_values_does_not_cost_k_center_its_distances(code, every):
    """In float32 the squares of such a code leave nothing of distances near 1."""
    X = points(400, 8, 2)
    X[::every, 0] = code
    assert is_farthest_first(X.astype(np.float32), 40)
    assert is_farthest_first(X, 40)


def test_sparse_rows_of_few_columns_keep_all_of_them():
    X = points(300, 2) * [3.0, 1.0]
    X[77] = [0.0, 9.0]
    assert 77 in chosen(KCenter(), sparse.csr_matrix(X), 4).indices


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("gap", [0.0, 1e4, 1e5])
def test_two_distant_groups_are_served_by_their_own_picks(gap, dtype):
    X = points(600, 4, seed=2, dtype=dtype)
    X[:300, 0] += gap
    for strategy in (
        FacilityLocation(features="raw"),
        FacilityLocation(features="raw", max_exact=400),
        Cover(features="raw"),
    ):
        core = chosen(strategy, X, 20)
        D = cdist(X.astype(np.float64), X[core.indices].astype(np.float64))
        served = np.bincount(D.argmin(axis=1), minlength=20)
        if isinstance(strategy, FacilityLocation):  # a cell of k-means may be served by the pick of another
            np.testing.assert_array_equal(core.weights, served)
        uniform = cdist(X, X[rng(3).choice(600, 20, replace=False)].astype(np.float64)).min(axis=1).mean()
        assert D.min(axis=1).mean() < uniform
        assert core.weights.max() < 120  # half of the rows would be 300


def test_components_of_rows_far_from_the_origin_keep_their_variance():
    """scikit-learn's PCA forms the squares of uncentred float32 rows, and loses the differences."""
    X = points(1500, 120, seed=4) * np.where(np.arange(120) < 10, 5.0, 0.5)
    kept = [principal((X + offset).astype(np.float32), 50).var(axis=0).sum() for offset in (0.0, 1e4)]
    assert kept[0] / X.var(axis=0).sum() > 0.9
    assert kept[1] == pytest.approx(kept[0], rel=0.01)
