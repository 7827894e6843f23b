"""Drawing from fitted estimators: repeatable, fresh each time, of the size asked for, unbiased."""

import numpy as np
import pytest
from sklearn.base import clone

from coresift import LaplacianCoreset, RBFCoreset
from coresift.coresets.options import BOUNDS

ESTIMATORS = [RBFCoreset, LaplacianCoreset]
METHODS = ["systematic", "iid", "keys"]

_rng = np.random.default_rng(0)
X = _rng.standard_t(3, size=(300, 3))
W = _rng.gamma(1.0, size=300)


@pytest.mark.parametrize("cls", ESTIMATORS)
@pytest.mark.parametrize("method", METHODS)
def test_seeds_repeat_draws(cls, method):
    est = cls(random_state=0).fit(X, sample_weight=W)
    for seed in (0, 1, 2**40, np.int64(5)):
        first = est.sample(30, method=method, random_state=seed)
        assert first == est.sample(30, method=method, random_state=seed)
        assert first.seed == seed
    assert est.sample(30, method=method, random_state=0) != est.sample(30, method=method, random_state=1)
    generators = [np.random.default_rng(9) for _ in range(2)]
    drawn = [est.sample(30, method=method, random_state=rng) for rng in generators]
    assert drawn[0] == drawn[1]
    assert drawn[0] != est.sample(30, method=method, random_state=generators[0])  # it has moved on


@pytest.mark.parametrize("cls", ESTIMATORS)
@pytest.mark.parametrize("method", METHODS)
def test_successive_draws_differ_and_each_can_be_repeated(cls, method):
    est = cls(random_state=0).fit(X)
    draws = [est.sample(30, method=method) for _ in range(20)]
    # systematic draws have one uniform number, and at most n different results
    assert len({core.indices.tobytes() for core in draws}) >= (15 if method == "systematic" else 20)
    assert len({core.seed for core in draws}) == 20
    for core in draws:
        assert est.sample(30, method=method, random_state=core.seed) == core


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_the_random_state_of_the_estimator_repeats_the_sequence(cls):
    one, two = (cls(random_state=3, bound="cells", n_cells=5).fit(X) for _ in range(2))
    other = cls(random_state=4, bound="cells", n_cells=5).fit(X)
    np.testing.assert_array_equal(one.sensitivities_, two.sensitivities_)
    for method in METHODS:
        drawn = one.sample(30, method=method)
        assert drawn == two.sample(30, method=method)
        assert drawn != other.sample(30, method=method)
    again = one.fit(X).sample(30)
    assert again == two.fit(X).sample(30)
    unseeded = [cls().fit(X).sample(30) for _ in range(2)]
    assert unseeded[0] != unseeded[1]


def test_the_seed_given_does_not_advance_the_sequence():
    one, two = (RBFCoreset(random_state=0).fit(X) for _ in range(2))
    one.sample(10, random_state=77)
    assert one.sample(10) == two.sample(10)


def test_global_randomness_is_not_touched():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    RBFCoreset(bandwidth="median", bound="cells").fit(X).sample(30)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("size", "count"),
    [(1, 1), (7, 7), (300, 300), (1.0, 300), (0.05, 15), (0.051, 16), (1e-9, 1), (np.float32(0.5), 150)],
)
def test_sizes(method, size, count):
    core = RBFCoreset(random_state=0).fit(X, sample_weight=W).sample(size, method=method)
    if method == "iid":
        assert core.n_draws == count
        assert 1 <= core.size <= count
    else:
        assert core.n_draws is None
        assert core.size == count
    assert core.n_samples == 300
    assert np.all(np.diff(core.indices) > 0)
    if count == 300 and method != "iid":  # all rows, as they are
        np.testing.assert_array_equal(core.weights, W)


@pytest.mark.parametrize("cls", ESTIMATORS)
@pytest.mark.parametrize("method", METHODS)
def test_weights_sum_to_the_total_on_average(cls, method):
    """The estimator's own variance gives the tolerance; weights of one each, or twice as large, fail."""
    est = cls(random_state=1, bandwidth="median").fit(X, sample_weight=W)
    sums, plain = np.empty(400), np.empty(400)
    for i in range(400):
        core = est.sample(25, method=method)
        sums[i], plain[i] = core.weights.sum(), W[core.indices].sum() * 300 / 25
    tolerance = 5 * sums.std(ddof=1) / np.sqrt(400)
    assert abs(sums.mean() - W.sum()) < tolerance
    assert abs(plain.mean() - W.sum()) > tolerance
    assert tolerance < 0.1 * W.sum()


def test_rows_far_from_the_others_are_drawn_more_often():
    """What sensitivity sampling is for: planted isolated points are found."""
    cluster = np.random.default_rng(0).normal(size=(500, 2)) * 0.05
    planted = np.array([[4.0, 0.0], [0.0, 4.0], [-4.0, 0.0]])
    data = np.concatenate([cluster, planted])
    for est in (RBFCoreset(radius=5.0, bandwidth=1.0, random_state=0), LaplacianCoreset(bandwidth=0.1, random_state=0)):
        est.fit(data)
        assert est.sensitivities_[500:].min() > 10 * np.median(est.sensitivities_[:500])
        hits = np.mean([np.isin([500, 501, 502], est.sample(20).indices).all() for _ in range(20)])
        assert hits > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("est", [RBFCoreset(4.0, bandwidth=1.0), LaplacianCoreset(bandwidth=0.5)])
@pytest.mark.parametrize("method", METHODS)
def test_a_permutation_of_the_rows_permutes_nothing_but_the_rows(est, method):
    """Inclusion frequencies follow the row, not its place."""
    order = np.random.default_rng(2).permutation(300)
    plain, moved = (clone(est).set_params(random_state=0).fit(data) for data in (X, X[order]))
    np.testing.assert_allclose(moved.sensitivities_, plain.sensitivities_[order], rtol=1e-5)
    counts = np.zeros((2, 300))
    for _ in range(300):
        counts[0, plain.sample(30, method=method).indices] += 1
        counts[1, order[moved.sample(30, method=method).indices]] += 1
    share = counts.mean(axis=0) / 300
    sd = np.sqrt(np.maximum(share * (1 - share), 1e-3) * 2 / 300)
    assert np.all(np.abs(counts[0] - counts[1]) / 300 < 6 * sd)
    assert np.any(np.abs(counts[0] - counts[1][order]) / 300 > 6 * sd)  # in the wrong places they differ


def test_the_coreset_knows_where_it_comes_from():
    est = RBFCoreset(radius=2.0, bandwidth="median", random_state=0).fit(X, sample_weight=W)
    core = est.sample(0.2, method="iid")
    assert core.bound == est.bound_
    assert core.total_sensitivity == est.total_sensitivity_
    assert core.total_weight == pytest.approx(W.sum())
    assert core.ball.radius == 2.0
    assert core.ball.scale == est.scale_
    np.testing.assert_array_equal(core.ball.center, est.center_)
    assert LaplacianCoreset().fit(X).sample(3).ball.radius == np.inf


@pytest.mark.parametrize("bandwidth", [None, 30.0])
def test_guarantees_are_claimed_for_independent_draws_alone_and_solve_bernstein(bandwidth):
    est = RBFCoreset(bandwidth=bandwidth, random_state=0).fit(X)
    for method in ("systematic", "keys"):
        assert est.sample(200, method=method).guarantee is None
    proved = est.sample(200, method="iid").guarantee
    eps, t = proved.eps, proved.total
    assert (proved.queries, proved.delta, proved.radius, proved.size) == ("single", 0.05, 1.0, 200)
    assert 2 * np.exp(-200 * eps**2 / (2 * t * (1 + eps / 3))) == pytest.approx(0.05, rel=1e-9)
    assert t >= est.total_sensitivity_ * (1 - 1e-9)
    assert est.sample(1, method="iid").guarantee is None  # an error of 1 or more is no guarantee
    assert RBFCoreset(radius=0.1, bound="paper").fit(X).sample(300, method="iid").guarantee is None


def test_a_bound_that_is_named_but_not_made_is_not_replaced_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BOUNDS, "gaussian", (*BOUNDS["gaussian"], "forgotten"))
    with pytest.raises(NotImplementedError, match="forgotten"):
        RBFCoreset(bound="forgotten").fit(np.eye(3))
