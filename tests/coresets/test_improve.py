"""sample(reweight=, refine=, normalize=) and sample_size, as the estimators offer them."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist

from coresift import CoresiftError, LaplacianCoreset, RBFCoreset
from coresift.core import quadrature
from coresift.coresets import certifying as _improve
from coresift.coresets.certifying import pool_size

ESTIMATORS = (RBFCoreset, LaplacianCoreset)
METHODS = ("systematic", "iid", "keys")


def cloud(n=400, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


# Refined and reweighted draws.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_refined_points_are_distinct_rows_of_the_pool(estimator, method, monkeypatch):
    X = cloud()
    est = estimator(random_state=0).fit(X)
    assert est.total_sensitivity_ < _improve._SMALL_TOTAL
    pool = est.sample(120, method=method, random_state=7)
    core = est.sample(30, method=method, random_state=7, refine=4)
    assert len(core) == 30
    from_draw = np.isin(core.indices, pool.indices)
    assert 0 < from_draw.sum() < 30  # the others were drawn by their weights
    monkeypatch.setattr(_improve, "_SMALL_TOTAL", 1.0)
    core = est.sample(30, method=method, random_state=7, refine=4)
    assert np.isin(core.indices, pool.indices).all()
    assert core.adjustments == ("refined", "reweighted")
    assert (core.weights >= 0).all()
    wider = est.sample(30, method=method, random_state=7, refine=8)
    assert len(wider) == 30
    assert not np.isin(wider.indices, pool.indices).all()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_reweight_is_the_method_of_the_coreset(estimator):
    X, w = cloud(), np.random.default_rng(1).random(400)
    est = estimator(random_state=0).fit(X, sample_weight=w)
    core = est.sample(40, random_state=3)
    inside, outside = est.sample(40, random_state=3, reweight=True), core.reweight(X, sample_weight=w)
    assert (inside.indices == core.indices).all()
    assert inside.weights == pytest.approx(outside.weights, rel=1e-4, abs=1e-4)
    assert inside.certificate.eps == pytest.approx(outside.certificate.eps, rel=1e-4)
    assert inside.adjustments == ("reweighted",)
    assert inside.certificate.eps == pytest.approx(inside.certify(X, sample_weight=w).eps, rel=1e-9)
    assert inside.seed == 3


def test_better_choices_give_better_certificates():
    X = cloud(1500, 5)
    est = RBFCoreset(random_state=0).fit(X)
    certified = {
        "iid": [est.sample(80, method="iid", random_state=s).certify(X).eps for s in range(5)],
        "reweighted": [est.sample(80, random_state=s, reweight=True).certificate.eps for s in range(5)],
        "refined": [est.sample(80, random_state=s, refine=True).certificate.eps for s in range(5)],
    }
    assert max(certified["refined"]) < 0.7 * min(certified["reweighted"])
    assert max(certified["reweighted"]) < 0.7 * min(certified["iid"])


def slope(sizes, errors):
    return np.polyfit(np.log(sizes), np.log(errors), 1)[0]


@pytest.mark.slow
def test_refined_certificates_fall_faster_than_the_root():
    X = cloud(4000, 5)
    est = RBFCoreset(random_state=0).fit(X)
    sizes = (25, 50, 100, 200)
    refined = [np.mean([est.sample(m, random_state=s, refine=True).certificate.eps for s in range(3)]) for m in sizes]
    iid = [np.mean([est.sample(m, method="iid", random_state=s).certify(X).eps for s in range(8)]) for m in sizes]
    # i.i.d.: -0.5; the mean of 8 has a standard deviation of some 6 %, which moves the slope by about 0.03
    assert slope(sizes, iid) == pytest.approx(-0.5, abs=0.12)
    assert slope(sizes, refined) < -0.8


def test_herding_where_the_factorisation_does_not_fit(monkeypatch):
    X = cloud(1500, 5)
    est = RBFCoreset(random_state=0).fit(X)
    greedy = est.sample(60, random_state=1, refine=True)
    monkeypatch.setattr(quadrature, "_GREEDY_BYTES", 1000)
    herded = est.sample(60, random_state=1, refine=True)
    assert len(herded) == 60
    assert not np.array_equal(herded.indices, greedy.indices)
    assert herded.certificate.eps < est.sample(60, random_state=1).certify(X).eps


def test_normalized_weights_sum_to_the_total():
    X, w = cloud(), np.random.default_rng(1).random(400)
    est = RBFCoreset(random_state=0).fit(X, sample_weight=w)
    plain = est.sample(40, random_state=3, method="iid")
    assert plain.weights.sum() != pytest.approx(w.sum(), rel=1e-6)
    core = est.sample(40, random_state=3, method="iid", normalize=True)
    assert core.weights.sum() == pytest.approx(w.sum(), rel=1e-12)
    assert core.weights / core.weights.sum() == pytest.approx(plain.weights / plain.weights.sum())
    assert core.adjustments == ("normalized",)
    assert plain.guarantee is None or core.guarantee is None  # what was proved was proved of the draw
    both = est.sample(40, random_state=3, refine=True, normalize=True)
    assert both.adjustments == ("refined", "reweighted", "normalized")
    assert both.weights.sum() == pytest.approx(w.sum(), rel=1e-12)
    assert both.certificate is None
    assert both.guarantee is None


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("orders", [0, 12])
def test_all_rows(estimator, orders):
    X, w = cloud(60), 10 ** np.random.default_rng(1).uniform(-orders, 0, 60)
    est = estimator(random_state=0).fit(X, sample_weight=w)
    core = est.sample(60, refine=True)
    assert len(core) == 60
    assert core.adjustments == ("reweighted",)  # there was nothing to choose
    # the draw of all rows is the data, and reweighting is never worse
    assert core.certificate.discrepancy**2 < (1e-12 if estimator is RBFCoreset else 1e-6)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    "X",
    [np.ones((1, 2)), np.ones((20, 2)), np.repeat(cloud(10), 3, axis=0), 1e150 * cloud(50), 1e-150 * cloud(50)],
    ids=["one row", "equal", "duplicates", "large", "small"],
)
def test_awkward_data(estimator, X):
    est = estimator(random_state=0).fit(X)
    size = max(1, len(X) // 4)
    for options in ({"reweight": True}, {"refine": True}, {"refine": 2, "normalize": True}):
        core = est.sample(size, **options)
        assert len(core) == size
        assert np.isfinite(core.weights).all()
        assert core.weights.sum() == pytest.approx(len(X), rel=0.5)
    assert est.sample_size(0.2).size >= 1
    assert est.sample_size(0.2, n_queries=5).size >= 1


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_weights_over_twelve_orders(estimator):
    X, w = cloud(200), 10 ** np.random.default_rng(1).uniform(-12, 0, 200)
    est = estimator(bandwidth="median", random_state=0).fit(X, sample_weight=w)
    core = est.sample(40, refine=True)
    assert np.isfinite(core.weights).all()
    assert core.certificate.eps <= est.sample(40).certify(X, sample_weight=w).eps


def test_sparse_rows_give_the_same():
    X = cloud(200, 6) * (np.random.default_rng(1).random((200, 6)) < 0.4)
    dense, sparse = (RBFCoreset(bandwidth=1.5, random_state=0).fit(data) for data in (X, sp.csr_array(X)))
    assert sparse.sample_size(0.2).candidates == dense.sample_size(0.2).candidates
    a, b = (est.sample(20, random_state=1, refine=True) for est in (dense, sparse))
    assert (a.indices == b.indices).all()
    assert a.certificate.eps == pytest.approx(b.certificate.eps, rel=1e-3)


@pytest.mark.parametrize("refine", [1, 0, -3, 0.5, 2.0, "x", [2]])
def test_bad_refine_is_refused(refine):
    with pytest.raises(CoresiftError, match="refine"):
        RBFCoreset(random_state=0).fit(cloud(20)).sample(5, refine=refine)


def test_what_refine_means():
    assert [pool_size(value, 10, 10**6) for value in (False, None, np.False_)] == [None] * 3
    assert [pool_size(value, 10, 10**6) for value in (2, np.int64(7))] == [20, 70]
    assert pool_size(True, 10, 10**6) == 4000  # few to choose from cost nothing
    assert pool_size(True, 5000, 10**6) == 20_000
    assert pool_size(np.True_, 10, 300) == 300  # no more than there are
    assert pool_size(8, 100, 300) == 300


@pytest.mark.parametrize("size", [0, 21, 0.0, 1.5, "x", True])
def test_bad_sizes_are_refused_whatever_is_asked(size):
    with pytest.raises(CoresiftError, match="size"):
        RBFCoreset(random_state=0).fit(cloud(20)).sample(size, refine=True, reweight=True)


@pytest.mark.parametrize("copied", [lambda est: pickle.loads(pickle.dumps(est)), copy.deepcopy])
def test_an_estimator_without_its_data_says_so(copied):
    X = cloud(50)
    est = RBFCoreset(random_state=0).fit(X)
    bare = copied(est)
    assert (bare.sample(10, random_state=1).indices == est.sample(10, random_state=1).indices).all()
    for call in (
        lambda: bare.sample(10, reweight=True),
        lambda: bare.sample(10, refine=True),
        lambda: bare.sample_size(0.1),
    ):
        with pytest.raises(CoresiftError, match="need the data, which a copied or unpickled estimator does not carry"):
            call()
    assert bare.sample(10, random_state=1).reweight(X).certificate is not None
    assert bare.fit(X).sample(10, refine=True).certificate is not None


@pytest.mark.parametrize("options", [{"reweight": True}, {"refine": True}])
def test_other_metrics_are_refused(options):
    est = LaplacianCoreset(metric="cityblock", random_state=0).fit(cloud(30))
    with pytest.raises(CoresiftError, match="metric='euclidean'"):
        est.sample(5, **options)


# Sizes.


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_sizes_grow_with_what_is_asked(estimator):
    est = estimator(random_state=0).fit(cloud(300, 2))
    sizes = [est.sample_size(eps).size for eps in (0.5, 0.3, 0.2, 0.1, 0.05)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1] / 50
    sizes = [est.sample_size(0.1, delta).size for delta in (0.5, 0.1, 0.01, 1e-6)]
    assert sizes == sorted(sizes)
    sizes = [est.sample_size(0.1, n_queries=k).size for k in (1, 10, 1000)]
    assert sizes == sorted(sizes)
    assert sizes[-1] <= est.sample_size(0.1).size
    assert est.sample_size(0.1, n_queries=10**30).size <= est.sample_size(0.1).size  # all queries are stronger
    assert est.sample_size(0.1, n_queries=10**300).argument != "finite"


def test_the_smallest_proved_size_is_taken_and_named():
    low, high = (RBFCoreset(random_state=0).fit(cloud(200, d)) for d in (2, 60))
    assert low.sample_size(0.1).argument == high.sample_size(0.1).argument == "moments"
    wide = RBFCoreset(6.0, bandwidth=1.0, random_state=0).fit(cloud(200, 2))  # the floor of the sum is far below it
    assert wide.sample_size(0.1).argument == "covering"
    for est in (low, high):
        for n_queries in (None, 3):
            found = est.sample_size(0.1, n_queries=n_queries)
            for_all = {"moments", "covering", "dimension-free", "vc", "plain", "paper"}
            assert set(found.candidates) == for_all | (set() if n_queries is None else {"finite"})
            assert found.argument not in ("plain", "paper")
            proved = [v for k, v in found.candidates.items() if k not in ("plain", "paper")]
            assert found.size == found.candidates[found.argument] == min(proved)
            assert all(isinstance(v, int) for v in found.candidates.values())
            assert min(found.candidates["plain"], found.candidates["paper"]) < 10 * found.size
            assert found.candidates["plain"] > found.candidates["moments"]  # draws by sensitivity need fewer


def test_sizes_by_hand():
    X, w = cloud(300, 2), np.random.default_rng(1).random(300)
    est = RBFCoreset(bound="exact", random_state=0).fit(X, sample_weight=w)
    found = est.sample_size(0.2, 0.1, n_queries=7)
    share = w / w.sum()
    s = np.maximum(est.sensitivities_, share)
    t = s.sum()
    a, b = 1.2 / t, 1 / t
    above = a * np.log(a / b) + (1 - a) * np.log((1 - a) / (1 - b)) if a < 1 else np.inf
    a = 0.8 / t
    below = a * np.log(a / b) + (1 - a) * np.log((1 - a) / (1 - b))
    assert found.candidates["finite"] == np.ceil((np.log(7) + np.log(20)) / min(above, below))
    Z = (X - est.center_) / est.scale_
    x = np.random.default_rng(0).normal(size=(20_000, 2))
    x *= np.minimum(1, 1 / np.linalg.norm(x, axis=1, keepdims=True))
    lowest = (np.exp(-cdist(x, Z, "sqeuclidean")) @ share).min()
    B, Q = t * (share / s).max(), t * (share**2 / s).sum()
    size = ((np.sqrt(Q) + B * np.sqrt(np.log(10))) / (0.2 * lowest)) ** 2
    assert size <= found.candidates["dimension-free"] <= 1.4 * size  # its floor is proved, not sampled
    assert found.candidates["paper"] == np.ceil(t / 0.04 * (3 * np.log(max(t, np.e)) + np.log(10)))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_size_that_reaches_the_data_says_so(estimator):
    est = estimator(random_state=0).fit(cloud(100, 2))
    found = est.sample_size(0.05)
    assert not found.is_smaller_than_data
    assert "only 100 rows, so no smaller subset is guaranteed in advance" in found.note
    assert f"{found.size:,} draws" in found.note
    many = estimator(bound="cells", bandwidth=20.0, random_state=0).fit(cloud(3000, 2)).sample_size(0.3)
    assert many.is_smaller_than_data
    assert "No guarantee" not in many.note


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eps": 0}, "eps"),
        ({"eps": 1}, "eps = 1 must be above 0 and below 1"),
        ({"eps": -0.1}, "eps"),
        ({"eps": np.nan}, "eps"),
        ({"eps": "x"}, "eps"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"n_queries": 0}, "n_queries = 0 must be at least 1"),
        ({"n_queries": 2.5}, "n_queries"),
        ({"n_queries": True}, "n_queries"),
    ],
)
def test_bad_arguments_of_sample_size_are_refused(arguments, message):
    est = RBFCoreset(random_state=0).fit(cloud(20))
    with pytest.raises(CoresiftError, match=message):
        est.sample_size(**({"eps": 0.1} | arguments))


def test_no_size_follows_from_a_bound_that_is_not_proved():
    est = RBFCoreset(radius=0.1, bandwidth=0.2, bound="paper", random_state=0).fit(cloud(50))
    assert not est.is_certified_
    with pytest.raises(CoresiftError, match="bound = 'paper' is not a certificate here, so no sample size follows"):
        est.sample_size(0.1)


def test_proved_but_huge_totals_give_huge_sizes():
    est = RBFCoreset(bandwidth=1e-2, bound="lemma", random_state=0).fit(cloud(50))
    assert est.sample_size(0.1).size == 9_000_000_000_000_000_000


def test_other_metrics_have_finite_sizes_only():
    est = LaplacianCoreset(metric="cityblock", random_state=0).fit(cloud(50))
    assert est.sample_size(0.1, n_queries=10).argument == "finite"
    assert set(est.sample_size(0.1, n_queries=10).candidates) == {"finite"}
    with pytest.raises(CoresiftError, match="pass n_queries"):
        est.sample_size(0.1)


# The dimension of the net.


def rank_of(X, w=None):
    return RBFCoreset(bandwidth=1.0, bound="closed-form").fit(X, sample_weight=w)._affine_rank()


def test_affine_rank():
    X = cloud(50, 4)
    assert rank_of(X) == 4
    assert rank_of(np.column_stack([X, X @ np.ones(4), np.full(50, 3.0)])) == 4
    assert rank_of(X[:3]) == 2
    assert rank_of(np.ones((5, 3))) == 1
    assert rank_of(X[:1]) == 1
    assert rank_of(sp.csr_array(X)) == 4
    line = np.column_stack([X[:, 0], np.zeros(50)])
    assert rank_of(line) == 1
    line[0, 1] = 1.0  # off the line, however light: a query near it sees it
    for weight in (1.0, 1e-14, 0.0):
        w = np.ones(50)
        w[0] = weight
        assert rank_of(line, w) == (2 if weight > 0 else 1)


def test_affine_rank_of_many_columns_takes_no_square_matrix():
    X = sp.random_array((10, 90_000), density=1e-4, rng=np.random.default_rng(0), format="csr")
    assert rank_of(X) == 9  # the number of rows less one; 90,000 squared would be 65 GB


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_choice_by_estimated_potentials_is_nearly_as_good(estimator, monkeypatch):
    X, w = cloud(3000, 3), np.random.default_rng(1).random(3000)
    est = estimator(random_state=0).fit(X, sample_weight=w)
    exact = est.sample(40, random_state=5, refine=8)
    monkeypatch.setattr(_improve, "_SAMPLED_ROWS", 900)
    monkeypatch.setattr(_improve, "_SAMPLED_FACTOR", 1)
    estimated = est.sample(40, random_state=5, refine=8)
    assert not np.array_equal(estimated.indices, exact.indices)
    assert estimated.adjustments == ("refined", "reweighted")
    # half way to the reweighted draw at most; the weights come from exact potentials
    drawn = est.sample(40, random_state=5, reweight=True)
    assert estimated.certificate.eps < 0.5 * (exact.certificate.eps + drawn.certificate.eps)
    again = estimated.reweight(X, sample_weight=w)
    assert again.certificate.eps == pytest.approx(estimated.certificate.eps, rel=1e-3)
    repeated = est.sample(40, random_state=5, refine=8)
    assert repeated == estimated
    monkeypatch.setattr(_improve, "_SAMPLED_ROWS", 1501)  # twice as many rows as there are data: not worth it
    assert est.sample(40, random_state=5, refine=8) == exact


@pytest.mark.parametrize("size", [1, 2, 5, 40, 41])
def test_a_mixed_pool_is_half_the_draw_and_half_by_weight(size):
    shares = np.random.default_rng(0).random(60)
    shares[::3] = 0.0
    drawn = np.flatnonzero(shares)[:size]
    pool = _improve.mixed_pool(drawn, shares, np.random.default_rng(1))
    assert len(pool) == min(len(drawn), 40)
    assert (np.diff(pool) > 0).all()
    assert (shares[pool] > 0).all()
    assert np.isin(drawn, pool).sum() >= (len(drawn) + 1) // 2


def test_a_mixed_pool_takes_heavy_rows_most_often():
    shares = np.full(1000, 1e-3 / 999)
    shares[777] = 0.999
    pools = [_improve.mixed_pool(np.arange(20), shares, np.random.default_rng(seed)) for seed in range(20)]
    assert all(777 in pool for pool in pools)
    others = np.concatenate([pool[(pool >= 20) & (pool != 777)] for pool in pools])
    assert len(np.unique(others)) > 100


@pytest.mark.slow
def test_refinement_sees_rows_that_no_query_sees_well(monkeypatch):
    """A third of the data is a shell far outside the ball: little to the sensitivities, a third to the certificate."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    shell = np.arange(3000) % 3 == 0
    X *= np.where(shell, 2.5, 0.5)[:, None]
    est = RBFCoreset(bandwidth=1.0, random_state=0).fit(X)
    assert est.sensitivities_[shell].mean() < 0.5 * est.sensitivities_[~shell].mean()
    assert est.total_sensitivity_ < _improve._SMALL_TOTAL
    mixed = np.mean([est.sample(100, refine=4, random_state=seed).certificate.eps for seed in range(3)])
    monkeypatch.setattr(_improve, "_SMALL_TOTAL", 1.0)
    drawn = np.mean([est.sample(100, refine=4, random_state=seed).certificate.eps for seed in range(3)])
    assert mixed < 0.9 * drawn


@pytest.mark.parametrize("kind", [RBFCoreset, LaplacianCoreset])
def test_advice_concludes_from_lower_bounds_alone(kind):
    """Distant points are all needed, and the exact bound proves it. Of duplicates half are, whatever the total."""
    far = 100.0 * np.arange(30.0)[:, None] * np.ones(2)
    options = {"bandwidth": 1.0, **({"radius": 5000.0} if kind is RBFCoreset else {})}
    assert "At least 30 rows are needed" in kind(bound="exact", **options).fit(far).advice()
    cells = kind(bound="cells", n_cells=2, random_state=0, **options).fit(far)
    assert cells.total_sensitivity_ > 15  # from loose cells nothing follows
    assert "promises nothing; try bound='exact'" in cells.advice()
    twice = kind(bound="exact", **options).fit(np.repeat(far, 2, axis=0))
    assert twice.total_sensitivity_ == pytest.approx(30.0, rel=1e-3)
    assert "promises nothing; refine=True may find a subset" in twice.advice()
    thrice = kind(bound="exact", **options).fit(np.repeat(far, 3, axis=0))
    assert "needed" not in thrice.advice()
