"""The moment bound: its tensors against dense ones, and the bound against searches in extended precision."""

from math import factorial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, strategies as st

from coresift import RBFCoreset, audit
from coresift.core import moments
from coresift.core.certificate import certify_exact, log_floor
from coresift.core.discrepancy import silent
from coresift.core.points import Points, Subset


def make_points(Z, is_sparse=False):
    center = np.full(Z.shape[1], 0.25) if is_sparse else np.zeros(Z.shape[1])
    X = sp.csr_array(Z + center) if is_sparse else Z
    return Points(X, center, 1.0, float(np.linalg.norm(Z, axis=1).max()))


def tensor(Z, c, k):
    out = np.zeros((Z.shape[1],) * k) if k else np.zeros(())
    for z, weight in zip(Z, c, strict=True):
        power = np.ones(())
        for _ in range(k):
            power = np.multiply.outer(power, z)
        out = out + weight * power
    return out


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("side", [4, 1024])
def test_norms_are_those_of_dense_tensors(is_sparse, side, monkeypatch):
    monkeypatch.setattr("coresift.core.discrepancy._SIDE", side)
    rng = np.random.default_rng(0)
    Z, nu = rng.normal(size=(9, 3)), rng.normal(size=9)
    reach = float(np.linalg.norm(Z, axis=1).max())
    c = nu * np.exp(-(Z**2).sum(axis=1))
    sums = moments._PairSums(make_points(Z, is_sparse), nu)
    sums.start(7)
    sums.run(silent)
    c = c / np.exp(sums.top)
    assert sums.form == pytest.approx(nu @ np.exp(-((Z[:, None] - Z) ** 2).sum(axis=2)) @ nu)
    for k in range(7):
        T = tensor(Z / reach, c, k)
        folded = [np.abs(T)] if k == 0 else [np.linalg.norm(T.reshape(3, -1), 2)]
        if k == 4:
            folded.append(np.linalg.norm(T.reshape(9, 9), 2))
        expected = min(folded) if k <= 4 else np.linalg.norm(T)
        assert sums.sigma(k) == pytest.approx(float(expected), rel=1e-6)


def test_wide_rows_are_not_folded(monkeypatch):
    rng = np.random.default_rng(0)
    Z, nu = rng.normal(size=(20, 5)), rng.normal(size=20)
    folded = moments.pair_sums(make_points(Z), nu, 1.0, 0.0)
    monkeypatch.setattr(moments, "WIDEST_MATRIX", 4)
    monkeypatch.setattr(moments, "_WIDEST_SQUARE", 4)
    wide = moments.pair_sums(make_points(Z), nu, 1.0, 0.0)
    assert wide[0] == pytest.approx(folded[0])
    assert folded[1] < wide[1] < folded[1] + 1.0


def test_one_term_is_the_bound_itself():
    # a single row at the origin: N is constant
    assert moments.pair_sums(make_points(np.zeros((1, 2))), np.array([-0.5]), 1.0, 0.0)[1] == pytest.approx(np.log(0.5))
    assert moments.pair_sums(make_points(np.ones((2, 2))), np.zeros(2), 1.0, 0.0) == (0.0, -np.inf)


def test_two_rows_on_a_line_reach_it():
    # nu = +1 at 0, -1 at t: N(x) = 1 - e^{-t^2 + 2tx}, largest at x = R: all terms have one sign but the first
    t, R = 0.5, 1.0
    bound = moments.pair_sums(make_points(np.array([[0.0], [t]])), np.array([1.0, -1.0]), R, 0.0)[1]
    terms = abs(1 - np.exp(-(t**2))) + np.exp(-(t**2)) * np.expm1(2 * t * R)
    assert bound == pytest.approx(np.log(terms), abs=2e-4)


def test_a_series_that_is_too_long_is_left_to_the_discrepancy():
    Z = 100.0 * np.random.default_rng(0).normal(size=(5, 2))
    assert moments.pair_sums(make_points(Z), np.ones(5), 1.0, 0.0)[1] == np.inf


@pytest.fixture
def few_are_many(monkeypatch):
    """Groups of rows and joint orders, as for many rows of many columns."""
    monkeypatch.setattr(moments, "_MANY", 0)
    monkeypatch.setattr(moments, "_WIDEST_SQUARE", 1)
    monkeypatch.setattr("coresift.core.discrepancy._SIDE", 8)


def joint_bound(Z, measures, scales, weights):
    """The bound on the orders from 3 on from dense tensors, with the mean of the matrices of several measures."""
    S = np.zeros((Z.shape[1],) * 2)
    for c in measures:
        for k, scale in enumerate(scales, 3):
            M = tensor(Z, c, k).reshape(Z.shape[1], -1)
            S += scale * M @ M.T / len(measures)
    return np.sqrt(np.linalg.eigvalsh(S)[-1] * (weights**2 / scales).sum())


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("worth", [1e9, 0.0])  # as few pairs as possible, and all of them
def test_groups_give_the_mean_of_their_matrices(is_sparse, worth, few_are_many, monkeypatch):
    monkeypatch.setattr(moments, "_WORTH", worth)
    rng = np.random.default_rng(0)
    Z, nu, seen = 0.5 * rng.normal(size=(60, 4)), np.concatenate([rng.normal(size=5), np.full(55, -0.05)]), []
    split = moments._grouped
    monkeypatch.setattr(moments, "_grouped", lambda own: seen.append(split(own)) or seen[-1])
    sums, done = moments._PairSums(make_points(Z, is_sparse), nu), []
    sums.start(6)
    high = sums.run_groups(1.5, done.append)
    assert sum(done) == 60
    common, *groups = seen[0]
    assert len(groups) > 2
    assert sorted(np.concatenate(seen[0])) == list(range(60))
    measures = []
    for group in groups if worth else [np.concatenate(groups)]:
        c = np.zeros(60)
        c[common], c[group] = sums.c[common], sums.c[group] * (len(groups) if worth else 1)
        measures.append(c)
    weights = np.array([(2 * 1.5 * sums.reach) ** k / np.prod(np.arange(1.0, k + 1)) for k in (3, 4, 5)])
    assert high == pytest.approx(joint_bound(Z / sums.reach, measures, sums.scales, weights), rel=1e-6)
    exact = nu @ np.exp(-((Z[:, None] - Z) ** 2).sum(axis=2)) @ nu
    assert (sums.form == pytest.approx(exact)) if not worth else (exact < sums.form < 1.5 * exact)
    assert joint_bound(Z / sums.reach, [sums.c], sums.scales, weights) <= high * (1 + 1e-9)


def test_equal_groups_lose_nothing(few_are_many, monkeypatch):
    """Copies of the same rows: equal groups give what all pairs give."""
    rng = np.random.default_rng(0)
    few = rng.normal(size=(6, 5))
    Z, nu = np.concatenate([few, *[few + 0.1] * 8]), np.concatenate([rng.normal(size=6), np.full(48, 0.02)])
    copies = [np.arange(6), *np.arange(6, 54).reshape(8, 6)]
    monkeypatch.setattr(moments, "_grouped", lambda own: copies)
    found = []
    for worth in (1e9, 0.0):
        monkeypatch.setattr(moments, "_WORTH", worth)
        found.append(moments.pair_sums(make_points(Z), nu, 0.5, 0.0))
    assert found[0][0] == pytest.approx(found[1][0])
    assert found[0][1] == pytest.approx(found[1][1])
    monkeypatch.setattr(moments, "_grouped", lambda own: [copies[0], np.arange(6, 12)])  # power: seven groups missing
    assert moments.pair_sums(make_points(Z), nu, 0.5, 0.0)[0] != pytest.approx(found[0][0], rel=1e-2)


def test_rounding_is_allowed_for_where_the_measure_cancels(few_are_many, monkeypatch):
    """Pairs of rows 1e-8 apart with opposite weights, against extended precision; without the allowance some fail."""
    is_above = {True: [], False: []}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        half, nu = 0.5 * rng.normal(size=(20, 4)), rng.normal(size=20)
        Z, nu = np.concatenate([half, half + 1e-8 * rng.normal(size=half.shape)]), np.concatenate([nu, -nu])
        for is_allowed in is_above:
            sums = moments._PairSums(make_points(Z), nu)
            sums.start(6)
            if not is_allowed:
                monkeypatch.setattr(sums, "_slacks", lambda k: (0.0, 0.0))
            high = sums.run_groups(1.0, silent)
            exact, reach = Z.astype(np.longdouble), np.longdouble(sums.reach)
            c = nu * np.exp(-(exact**2).sum(axis=1) - np.longdouble(sums.top))
            weights = np.array([(2.0 * sums.reach) ** k / np.prod(np.arange(1.0, k + 1)) for k in (3, 4, 5)])
            folded = [tensor(exact / reach, c, k).reshape(4, -1) for k in (3, 4, 5)]
            S = sum(scale * M @ M.T for scale, M in zip(sums.scales, folded, strict=True)).astype(float)
            is_above[is_allowed].append(high >= np.sqrt(np.linalg.eigvalsh(S)[-1] * (weights**2 / sums.scales).sum()))
    assert all(is_above[True])
    assert not all(is_above[False])


@pytest.mark.parametrize("how", ["plain", "reweight", "refine"])
@pytest.mark.parametrize("fraction", [0.01, 0.1])
def test_groups_cost_less_than_a_hundredth(how, fraction, monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 20)) * np.linspace(2.0, 0.5, 20)
    options = {} if how == "plain" else {how: True}
    core = RBFCoreset(random_state=0).fit(X).sample(int(2000 * fraction), random_state=0, **options)
    pairs = core.certify(X)
    monkeypatch.setattr(moments, "_MANY", 0)
    grouped = core.certify(X)
    assert grouped.eps != pairs.eps  # they were used
    assert grouped.eps <= 1.01 * pairs.eps
    assert (1 - 1e-9) * pairs.discrepancy <= grouped.discrepancy <= 1.05 * pairs.discrepancy
    assert grouped.eps >= audit(X, core, n_starts=4, n_random=100).worst_error


def test_rows_of_equal_weight_are_not_all_in_common():
    """A split has as few pairs as can be: rows that stand out are in common, the others in groups of one size."""
    own = np.concatenate([np.ones(20), np.full(2000, 1e-4)])
    common, *groups = moments._grouped(own[::-1])
    assert set(common) == set(range(2000, 2020))
    assert [len(group) for group in groups] == [250] * 8
    assert len(moments._grouped(np.ones(100))) == 2  # nothing to gain: all rows in one group
    assert len(moments._grouped(np.zeros(100))) == 9  # nothing to lose


def longest_error(Z, w, subset, v, radius, rng):
    """The largest error found, in extended precision: random queries of the ball, most of them on its edge."""
    x = rng.normal(size=(400, Z.shape[1]))
    x *= radius * rng.random((400, 1)) ** 0.1 / np.linalg.norm(x, axis=1, keepdims=True)
    x, Z, w, v = (np.asarray(part, dtype=np.longdouble) for part in (x, Z, w, v))
    exponents = 2 * x @ Z.T - (Z**2).sum(axis=1)
    exponents -= exponents.max(axis=1, keepdims=True)
    values = np.exp(exponents)
    difference = -w
    difference[subset] += v
    return float(np.abs(values @ difference / (values @ w)).max())


@pytest.mark.slow
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 6),
    st.sampled_from([1e-9, 1e-3, 0.3, 1.0, 3.0]),
    st.sampled_from([0.0, 1e-9, 1e-3]),
    st.sampled_from([0.1, 1.0, 3.0]),
    st.booleans(),
    st.booleans(),
)
def test_no_query_is_above_the_bound(seed, d, width, apart, radius, is_sparse, has_groups):
    """Near-duplicates of which the subset keeps one: the difference cancels to the last digits."""
    rng = np.random.default_rng(seed)
    half = width * rng.normal(size=(8, d)) + rng.choice([0.0, 1.0]) * rng.normal(size=d)
    Z = np.concatenate([half, half + apart * rng.normal(size=half.shape)])
    w = 10 ** rng.uniform(-rng.choice([0, 8]), 0, 8)
    w = np.concatenate([w, w]) / (2 * w.sum())
    v = 2.0 * w[:8] * (1.0 + rng.choice([0.0, 1e-12, 0.1]) * rng.normal(size=8))
    v = np.maximum(v, 0.0)
    with pytest.MonkeyPatch.context() as patch:
        if has_groups:
            patch.setattr(moments, "_MANY", 0)
            patch.setattr(moments, "_WIDEST_SQUARE", 1)
            patch.setattr(moments, "_WORTH", rng.choice([0.01, 1e9]))
        found = certify_exact(Subset(make_points(Z, is_sparse), w, np.arange(8), v, radius, "gaussian"))
    assert longest_error(Z, w, np.arange(8), v, radius, rng) <= found.eps


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.2, 1.0, 2.5]))
def test_never_above_the_discrepancy_over_the_floor(seed, radius):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(12, 3)) * rng.choice([0.1, 0.5, 1.0])
    w, v = np.full(12, 1 / 12), rng.random(4) / 4
    points = make_points(Z)
    difference = -w
    difference[:4] += v
    floor = log_floor(points, w, radius, "gaussian")
    square, log_bound = moments.pair_sums(points, difference, radius, floor + radius**2)
    # the tail is a part in 10^6 of the floor
    assert np.exp(log_bound - radius**2) <= np.sqrt(max(square, 0.0)) * (1 + 1e-9) + 2e-6 * np.exp(floor)


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("stretch", [0.01, 0.75, 1.9])
@pytest.mark.parametrize("first", [2, 3])
def test_sums_of_the_high_orders_are_those_of_their_series(first, stretch, is_sparse):
    """The whole kernel less the low moments, against the sum of the other terms; rows without use may overflow."""
    rng = np.random.default_rng(0)
    Z, c = 0.6 * rng.normal(size=(30, 3)), rng.normal(size=30)
    Z[7], c[7] = 1e3, 0.0
    points, used = make_points(Z, is_sparse), c != 0.0
    points.max_norm = float(np.linalg.norm(Z[used], axis=1).max())
    kernel = moments.HighOrders(points, used, first, 0.3, stretch)
    z = np.where(used[:, None], Z, 0.0)
    squares, t = (z**2).sum(axis=1), 2 * stretch * z @ z.T
    series = sum(t**k / factorial(k) for k in range(first, 120))
    K = np.exp(-squares[:, None] - squares) * series
    allowed = kernel.rounding(c)
    assert allowed < 1e-9
    assert abs(kernel.form(c) - c @ K @ c) <= allowed
    at = np.array([3, 0, 29])
    assert kernel.potential(c, at) == pytest.approx(K[at] @ c, abs=allowed)
    assert kernel.lengths()[used] == pytest.approx(np.sqrt(K.diagonal()[used]), abs=1e-7)
    order = 0.18 / stretch
    assert kernel.factor == pytest.approx(np.sqrt(np.exp(order) - sum(order**k / factorial(k) for k in range(first))))


def test_the_allowance_for_rounding_covers_numbers_far_above_one():
    """With a stretch above 1 a kernel value may be computed from large numbers."""
    Z = 3.0 * np.random.default_rng(0).normal(size=(30, 3))
    squares, c = (Z**2).sum(axis=1), np.full(30, 1 / 30)
    kernel = moments.HighOrders(make_points(Z), np.ones(30, dtype=bool), 3, 2.5, 1.9)
    computed_from = np.exp(np.abs(2 * 1.9 * Z @ Z.T) - squares[:, None] - squares)
    assert computed_from.max() > 1e3
    assert kernel.rounding(c) >= 2e-14 * c @ computed_from @ c
