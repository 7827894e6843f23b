import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st
from scipy.optimize import brentq
from sklearn.datasets import load_digits

from coresift import Coreset, CoresiftError, RBFCoreset
from paper.networks import NetworkAudit, NetworkComparison, RBFNetworkCoreset
from paper.signed_coreset import SignedCoreset, SignedNetworkCoreset

seeds = st.integers(0, 2**32 - 1)
CONSTRUCTIONS = (RBFNetworkCoreset, SignedNetworkCoreset)
BOUNDS = ("closed-form", "cells", "exact")


def draw_data(seed, n=60, d=2, n_outputs=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 10 * rng.normal(size=d)
    y = rng.normal(size=(n, n_outputs)) + rng.normal()
    y[rng.random(y.shape) < 0.1] = 0.0
    w = rng.exponential(size=n)
    w[rng.random(n) < 0.1] = 0.0
    w[0] = 1.0
    return X, (y[:, 0] if n_outputs == 1 else y), w


def ball_queries(est, rng, count):
    u = rng.normal(size=(count, len(est.center_)))
    u *= (est.radius * rng.random((count, 1)) ** 0.5) / np.linalg.norm(u, axis=1, keepdims=True)
    return u  # scaled


def family_shares(est, X, y, w, queries):
    """(families, queries, n) shares of each row in each sum, computed directly."""
    z = (X - est.center_) / est.scale_
    squares = ((z[None] - queries[:, None]) ** 2).sum(axis=2)
    sums = [w * np.maximum(s * y, 0) * np.exp(-squares) for s in (1, -1) if np.any(w * s * y > 0)]
    if type(est) is RBFNetworkCoreset:
        sums += [w * np.exp(-2 * squares), np.tile(w * y**2, (len(queries), 1))]
    return np.array([s / s.sum(axis=1, keepdims=True) for s in sums])


@pytest.mark.slow
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize("bound", BOUNDS)
@settings(max_examples=15)
@given(seed=seeds, radius=st.floats(0.1, 3.0))
def test_no_query_of_any_family_beats_the_bound(construction, bound, seed, radius):
    X, y, w = draw_data(seed)
    est = construction(radius, bandwidth="median", bound=bound, n_cells=5, random_state=0).fit(X, y, w)
    assert est.is_certified_
    rng = np.random.default_rng(seed)
    queries = np.concatenate((ball_queries(est, rng, 40), np.zeros((1, 2))))
    z = (X - est.center_) / est.scale_
    norms = np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
    queries = np.concatenate((queries, z * np.minimum(1, radius / norms), z * (radius / norms)))
    shares = family_shares(est, X, y, w, queries)
    assert (shares.max(axis=(0, 1)) <= est.sensitivities_ * (1 + 1e-9)).all()


def test_exact_is_attained_by_some_family():
    """The largest share over families and a fine grid of queries comes close to every sensitivity."""
    X, y, w = draw_data(3, n=15)
    for construction in CONSTRUCTIONS:
        est = construction(1.0, bandwidth="median", bound="exact").fit(X, y, w)
        grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 81)] * 2), axis=-1).reshape(-1, 2)
        norms = np.linalg.norm(grid, axis=1)
        grid = np.concatenate((grid[norms <= 1], grid[norms > 0.9] / norms[norms > 0.9, None]))
        found = family_shares(est, X, y, w, grid).max(axis=(0, 1))
        np.testing.assert_allclose(found, est.sensitivities_, rtol=2e-2, atol=1e-12)


def test_with_equal_targets_the_positive_family_is_the_gaussian_one():
    X, _, w = draw_data(0)
    plain = RBFCoreset(bound="closed-form").fit(X, sample_weight=w)
    est = SignedNetworkCoreset(bound="closed-form").fit(X, np.full(60, 7.0), w)
    np.testing.assert_allclose(est.sensitivities_, plain.sensitivities_, rtol=1e-9)
    assert list(est.family_totals_) == ["positive[0]"]


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@settings(max_examples=20)
@given(seed=seeds)
def test_loss_error_is_the_direct_loss_and_keeps_the_inequalities(construction, seed):
    X, y, w = draw_data(seed)
    rng = np.random.default_rng(seed)
    est = construction(1.5, bandwidth="median", bound="closed-form", random_state=0).fit(X, y, w)
    core = est.sample(20, method="iid")
    centers = ball_queries(est, rng, 4) * est.scale_ + est.center_
    a = rng.normal(size=4) * 10.0 ** rng.uniform(-2, 2)
    found = est.loss_error(centers, a)
    phi = np.exp(-((X[:, None] - centers) ** 2).sum(axis=2) / est.scale_**2) @ a
    merged = core if construction is RBFNetworkCoreset else core.merged()
    ys, phis, v = merged.take(y, phi)
    tol = 1e-10 * found.magnitude
    assert found.loss == pytest.approx(w @ (y - phi) ** 2, abs=tol)
    assert found.loss_coreset == pytest.approx(v @ (ys - phis) ** 2, abs=10 * tol)
    assert found.cross_error == pytest.approx(abs(v @ (ys * phis) - w @ (y * phi)), abs=tol)
    assert found.square_error == pytest.approx(abs(v @ phis**2 - w @ phi**2), abs=10 * tol)
    slack = 1 + 1e-9
    assert found.loss_error <= found.family_error * found.magnitude * slack
    assert found.cross_error <= found.family_error * found.cross_magnitude * slack
    assert found.relative_error == found.loss_error / found.magnitude
    if construction is SignedNetworkCoreset:  # the pair's own formula: both sets for every neuron
        g = [
            s.weights @ np.exp(-((X[s.indices, None] - centers) ** 2).sum(axis=2) / est.scale_**2)
            for s in (core.positive, core.negative)
        ]
        assert abs(a @ (g[0] - g[1]) - w @ (y * phi)) == pytest.approx(found.cross_error, abs=tol)


def test_right_hand_sides():
    X, y, w = draw_data(0, n=400)
    est = RBFNetworkCoreset(0.3, bandwidth=20.0, random_state=0).fit(X, y, w)
    est.sample(400, method="iid")
    network = ([est.center_, est.center_ + 1.0], [1.0, -2.0])
    found = est.loss_error(*network, eps=0.25)
    assert (found.bound, found.cross_bound) == (0.25 * found.magnitude, 0.25 * found.cross_magnitude)
    assert est.loss_error(*network, eps=None, delta=0.5).eps == pytest.approx(est.guaranteed_error(delta=0.5))
    pair = SignedNetworkCoreset(0.3, bandwidth=20.0, random_state=0).fit(X, y, w)
    pair.sample(200, method="iid")
    certified = pair.loss_error(*network)
    assert certified.loss_error <= certified.bound  # the certificate covers the square term too
    assert certified.cross_error <= certified.cross_bound <= certified.eps * certified.cross_magnitude
    of_pair = pair.loss_error(*network, eps=0.25)
    assert of_pair.bound is None  # nothing is claimed of the square term
    assert of_pair.cross_bound == 0.25 * of_pair.cross_magnitude


@pytest.mark.slow
def test_the_draw_at_hand_is_better_than_its_size_promises():
    X, y, w = draw_data(1, n=3000)
    est = RBFNetworkCoreset(0.5, bandwidth=10.0, random_state=0).fit(X, y, w)
    needed = est.sample_size(0.5, 0.1)
    core = est.sample(min(needed.size, 3000), method="iid")
    assert est.guaranteed_error(core, delta=0.1) == est.certify(core).eps < 0.1  # of the draw at hand
    fewer = SignedNetworkCoreset(0.5, bandwidth=10.0, random_state=0).fit(X, y, w).sample_size(0.5, 0.1)
    assert fewer.size < needed.size


@pytest.mark.slow
def test_the_guarantee_holds_over_draws():
    """eps for delta = 0.2 and 40 draws: all of 30 random networks within the bound in at least 32 - 4 sigma of them.

    The eps is the least one for which ``sample_size`` asks for no more draws.
    """
    X, y, w = draw_data(2, n=2000)
    est = RBFNetworkCoreset(0.3, bandwidth=20.0, random_state=0).fit(X, y, w)
    rng = np.random.default_rng(0)
    networks = [
        (ball_queries(est, rng, 3) * est.scale_ + est.center_, rng.normal(size=3) * 10.0 ** rng.uniform(-1, 1))
        for _ in range(30)
    ]
    eps = brentq(lambda eps: est.sample_size(eps, 0.2).size - 500, 0.01, 0.999)
    kept, worst = 0, 0.0
    for seed in range(40):
        core = est.sample(500, method="iid", random_state=seed)
        found = [est.loss_error(c, a, core=core, eps=eps) for c, a in networks]
        kept += all(f.loss_error <= f.bound for f in found)
        worst = max(worst, max(f.relative_error for f in found))
    assert kept >= 32 - 4 * np.sqrt(40 * 0.8 * 0.2)
    assert worst > 0.005  # power: the draws do err, and a bound a hundredth of the size would fail
    assert eps < 1


@pytest.mark.slow
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize("method", ["iid", "systematic", "keys"])
@settings(max_examples=6)
@given(seed=seeds, d=st.sampled_from([2, 5]), n_outputs=st.integers(1, 2))
def test_no_network_found_beats_the_certificate(construction, method, seed, d, n_outputs):
    n_outputs = 1 if construction is SignedNetworkCoreset else n_outputs
    X, y, w = draw_data(seed, n=80, d=d, n_outputs=n_outputs)
    est = construction(0.8, random_state=0).fit(X, y, w)
    est.sample(30, method=method)
    certificate = est.certify()
    assert certificate.is_exact
    assert certificate.eps == max(certificate.cross, certificate.square, certificate.families["targets"]) < np.inf
    for n_neurons in (1, 3):
        worst = est.audit(n_neurons, n_starts=2, max_iter=30)
        assert worst.worst_error <= certificate.eps
        found = est.loss_error(worst.centers, worst.alphas)
        assert found.family_error <= certificate.eps * (1 + 1e-9)
        assert found.eps == est.guaranteed_error() <= certificate.eps
        assert found.loss_error <= found.bound
        assert found.cross_error <= found.cross_bound
        absolute = est.loss_error(worst.centers, np.abs(worst.alphas))
        assert absolute.square_error <= certificate.square * absolute.square


def test_certificates_of_drawn_networks_are_of_use():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2))
    est = RBFNetworkCoreset(random_state=0).fit(X, np.cos(2 * X[:, 0]) * X[:, 1])
    core = est.sample(400, method="iid", random_state=1)
    certificate = est.certify(core)
    # the figures of docs/rbf-networks.md
    assert est.sample_size(0.62, 0.05).size == pytest.approx(400, rel=0.02)
    assert certificate.eps == pytest.approx(0.119, abs=0.001)
    assert est.audit(n_starts=3).worst_error == pytest.approx(0.090, abs=0.002)
    digits = load_digits()
    of_digits = RBFNetworkCoreset(random_state=0).fit(digits.data, digits.target - 4.5)
    for method, expected in (("iid", 0.56), ("systematic", 0.51)):
        drawn = of_digits.sample(400, method=method, random_state=1)
        assert of_digits.sample_size(0.999, 0.05).size > 400
        assert of_digits.certify(drawn).eps == pytest.approx(expected, abs=0.006)
    assert "all networks with centres in the ball" in str(certificate)
    sampled = est.certify(core, method="sampled", n_sampled=500)
    assert not sampled.is_exact
    assert sampled.confidence == 0.95
    assert certificate.eps < sampled.eps < np.inf
    everything = est.sample(2000)
    assert est.certify(everything).eps < 1e-6


def test_rows_without_weight_in_a_family_without_rows():
    X, y, w = draw_data(6)
    y, w = np.abs(y) + 0.1, np.where(np.arange(60) == 7, 0.0, w)
    y[7] = -1.0
    est = RBFNetworkCoreset(random_state=0).fit(X, y, w)
    core = Coreset([7, 8], [1.0, w.sum()], 60)
    assert est.certify(core).families["negative[0]"] == np.inf
    assert est.guaranteed_error(core) is None


@pytest.mark.slow
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize("method", ["iid", "systematic", "keys"])
def test_unbiased(construction, method):
    """The mean of the estimates over draws, within five of their own standard errors; wrong weights are seen."""
    X, y, w = draw_data(5, n=80)
    y = np.where(y == 0, 1.0, y)  # rows of target zero are in neither set of the pair
    est = construction(1.0, bandwidth="median", random_state=0).fit(X, y, w)
    a, centers = np.array([1.0, -2.0]), X[:2] * 0.3 + est.center_ * 0.7
    phi = np.exp(-((X[:, None] - centers) ** 2).sum(axis=2) / est.scale_**2) @ a
    loss = (y - phi) ** 2
    estimates, unweighted = [], []
    for seed in range(400):
        core = est.sample(20, method=method, random_state=seed)
        core = core if construction is RBFNetworkCoreset else core.merged()
        estimates.append(core.weights @ loss[core.indices])
        unweighted.append(w.sum() * loss[core.indices].mean())
    truth, tol = w @ loss, 5 * np.std(estimates) / 20
    assert abs(np.mean(estimates) - truth) < tol
    assert abs(np.mean(unweighted) - truth) > 5 * np.std(unweighted) / 20


def test_signed_pair():
    X, y, w = draw_data(4)
    est = SignedNetworkCoreset(random_state=0).fit(X, y, w)
    pair = est.sample(25)
    assert isinstance(pair, SignedCoreset)
    assert len(pair) == pair.size == 25 == len(pair.positive) + len(pair.negative)
    assert (y[pair.positive.indices] > 0).all()
    assert (y[pair.negative.indices] < 0).all()
    everything = est.sample(60)  # all rows that count, with their own weight times |y|
    for half, sign in ((everything.positive, 1), (everything.negative, -1)):
        np.testing.assert_array_equal(half.indices, np.flatnonzero(w * sign * y > 0))
        np.testing.assert_allclose(half.weights, (w * np.abs(y))[half.indices])
        assert half.total_weight == pytest.approx((w * np.abs(y))[y * sign > 0].sum())
    np.testing.assert_allclose(everything.merged().weights, w[(w > 0) & (y != 0)])
    assert "positive=" in repr(pair)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_targets_of_one_sign_work(construction, sign):
    X, y, w = draw_data(6)
    est = construction(random_state=0).fit(X, sign * (np.abs(y) + 0.1), w)
    name, other = ("positive", "negative") if sign > 0 else ("negative", "positive")
    assert f"{name}[0]" in est.family_totals_
    assert f"{other}[0]" not in est.family_totals_
    core = est.sample(10, method="iid")
    if construction is SignedNetworkCoreset:
        assert len(getattr(core, other)) == 0
        assert len(getattr(core, name)) > 0
    assert est.loss_error([est.center_], [1.0]).family_error < np.inf


def test_targets_that_are_all_zero():
    X, _, w = draw_data(7)
    est = RBFNetworkCoreset(random_state=0).fit(X, np.zeros(60), w)  # the square term is left
    assert list(est.family_totals_) == ["square"]
    assert est.sample(10).size == 10
    with pytest.raises(CoresiftError, match="y is zero in every row"):
        SignedNetworkCoreset().fit(X, np.zeros(60), w)


def test_vector_targets_sum_over_outputs():
    X, y, w = draw_data(8, n_outputs=3)
    est = RBFNetworkCoreset(1.0, bandwidth="median", random_state=0).fit(X, y, w)
    assert {"targets", "square", "positive[2]", "negative[0]"} <= est.family_totals_.keys()
    est.sample(25)
    centers, a = X[:2] * 0.3 + est.center_ * 0.7, np.random.default_rng(0).normal(size=(2, 3))
    found = est.loss_error(centers, a)
    parts = []
    for k in range(3):
        single = RBFNetworkCoreset(1.0, bandwidth=est.scale_, random_state=0).fit(X, y[:, k], w)
        parts.append(single.loss_error(centers, a[:, k], core=est.coreset_))
    for name in ("loss", "loss_coreset", "magnitude", "cross", "square"):
        assert getattr(found, name) == pytest.approx(sum(getattr(part, name) for part in parts), rel=1e-9)
    assert isinstance(est.audit(2, n_starts=2, max_iter=5), NetworkAudit)
    with pytest.raises(CoresiftError, match="3 outputs; the paper's pair is for one"):
        SignedNetworkCoreset().fit(X, y)


def test_audit_stays_in_the_ball_and_below_what_loss_error_says():
    X, y, w = draw_data(9, n=300)
    est = RBFNetworkCoreset(1.0, bandwidth="median", random_state=0).fit(X, y, w)
    est.sample(30)
    found = est.audit(3, n_starts=4, random_state=1)
    again = est.audit(3, n_starts=4, random_state=1)
    assert found.worst_error == again.worst_error
    assert found.worst_error > found.mean_error
    assert (np.linalg.norm(found.centers - est.center_, axis=1) <= est.scale_ * (1 + 1e-9)).all()
    direct = est.loss_error(found.centers, found.alphas)
    assert direct.relative_error == pytest.approx(found.worst_error, rel=1e-6)
    assert found.worst_error <= direct.family_error * (1 + 1e-9)
    assert "worst error found" in repr(found)


def test_sparse_rows_give_the_same():
    X, y, w = draw_data(10)
    X[np.abs(X - X.mean(axis=0)) < 0.3] = 0.0
    dense = RBFNetworkCoreset(1.0, bandwidth=5.0, random_state=0).fit(X, y, w)
    sparse = RBFNetworkCoreset(1.0, bandwidth=5.0, random_state=0).fit(sp.csr_matrix(X), y, w)
    np.testing.assert_allclose(sparse.sensitivities_, dense.sensitivities_, rtol=1e-6)
    core = dense.sample(20)
    one, two = (est.loss_error([dense.center_], [2.0], core=core) for est in (dense, sparse))
    assert two.loss == pytest.approx(one.loss, rel=1e-9)
    assert sparse.audit(2, core=core, n_starts=2, max_iter=5).worst_error > 0


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize("copier", [copy.deepcopy, lambda est: pickle.loads(pickle.dumps(est))])
def test_a_copy_draws_on_and_says_that_it_has_no_data(construction, copier):
    X, y, w = draw_data(11)
    est = construction(random_state=0).fit(X, y, w)
    twin = copier(est)
    mine, theirs = est.sample(20), twin.sample(20)
    if construction is SignedNetworkCoreset:
        mine, theirs = mine.merged(), theirs.merged()
    assert mine == theirs
    with pytest.raises(CoresiftError, match="fit again"):
        twin.loss_error([est.center_], [1.0])


def test_permuted_rows_give_permuted_sensitivities():
    X, y, w = draw_data(12)
    order = np.random.default_rng(0).permutation(60)
    est = RBFNetworkCoreset(bound="exact").fit(X, y, w)
    other = RBFNetworkCoreset(bound="exact").fit(X[order], y[order], w[order])
    np.testing.assert_allclose(other.sensitivities_, est.sensitivities_[order], rtol=1e-5)


def test_scaling_the_targets_changes_no_sensitivity():
    X, y, w = draw_data(13)
    est = RBFNetworkCoreset(bound="closed-form").fit(X, y, w)
    for factor in (1e-130, 1e100):
        np.testing.assert_allclose(
            RBFNetworkCoreset(bound="closed-form").fit(X, y * factor, w).sensitivities_, est.sensitivities_, rtol=1e-9
        )


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "the target y is None"),
        (np.r_[np.nan, np.ones(59)], "y contains NaN in row 0"),
        (np.r_[np.ones(59), np.inf], "y contains infinity in row 59"),
        (np.ones(59), "y has length 59, but X has 60 rows"),
        (np.ones((60, 2, 2)), "y has shape"),
        (["a"] * 60, "must be numbers"),
        (np.full(60, 1e200), "at most 1e"),
    ],
)
def test_bad_targets(y, message):
    X, _, _ = draw_data(0)
    est = RBFNetworkCoreset()
    before = dict(vars(est))
    with pytest.raises(CoresiftError, match=message):
        est.fit(X, y)
    assert vars(est) == before


def test_bad_networks():
    X, y, w = draw_data(0)
    est = RBFNetworkCoreset(random_state=0).fit(X, y, w)
    with pytest.raises(CoresiftError, match="there is no coreset yet"):
        est.loss_error([est.center_], [1.0])
    core = est.sample(5)
    far = est.center_ + np.array([2.0 * est.scale_, 0.0])
    for centers, alphas, message in (
        ([far], [1.0], "radius = 1.0 is the limit"),
        ([[0.0]], [1.0], "centers has 1 columns"),
        ([est.center_], [1.0, 2.0], "alphas has length 2"),
        ([est.center_], [[1.0, 2.0]], "alphas has 2 outputs, but y has 1"),
        ([est.center_], [np.nan], "alphas contains NaN"),
    ):
        with pytest.raises(CoresiftError, match=message):
            est.loss_error(centers, alphas)
    with pytest.raises(CoresiftError, match="must be of type Coreset"):
        est.loss_error([est.center_], [1.0], core="core")
    with pytest.raises(CoresiftError, match="drawn from 7 rows"):
        est.audit(core=Coreset([0], [1.0], 7))
    with pytest.raises(CoresiftError, match="n_neurons = 0"):
        est.audit(0, core=core)
    assert isinstance(est.loss_error([est.center_], [1.0]), NetworkComparison)
    est.fit(X, y)
    assert not hasattr(est, "coreset_")  # drawn from the last fit


def test_guarantee_names_the_families():
    X, y, w = draw_data(0, n=400)
    est = RBFNetworkCoreset(0.3, bandwidth=20.0, random_state=0).fit(X, y, w)
    assert "each family of sums" in str(est.sample(300, method="iid").guarantee)
    assert est.sample(300).guarantee is None


def test_the_network_bounds_hold_near_the_mean_of_a_far_group():
    """|p - mean| from a difference of squares loses half of the digits, which the radius multiplies."""
    rng = np.random.default_rng(1)
    far, near = 1e4, 1e-4
    X = np.vstack([near * rng.standard_normal((4, 3)) + [far, 0, 0], rng.standard_normal((4, 3)) - [far, 0, 0]])
    y = np.r_[np.ones(4), -np.ones(4)]
    for bound in ("closed-form", "exact"):
        fitted = SignedNetworkCoreset(radius=far, bandwidth=1.0, bound=bound, random_state=0).fit(X, y)
        group = (X - fitted.center_).astype(np.longdouble)[:4]
        mean = group.mean(0)
        for row in range(4):
            query = (group[row] - mean) / np.sqrt(((group[row] - mean) ** 2).sum()) * far
            exponents = 2 * group @ query - (group**2).sum(1)
            shares = np.exp(exponents - exponents.max())
            assert shares[row] / shares.sum() <= fitted.sensitivities_[row] * (1 + 1e-9)


def test_a_guarantee_is_that_of_the_draw_at_hand():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((3000, 2)), np.zeros(3000)
    y[7] = 1.0
    network = RBFNetworkCoreset(bandwidth=6.0, bound="closed-form", random_state=0).fit(X, y)
    own = network.sample(2900, method="iid", random_state=0)
    other = RBFCoreset(bandwidth=6.0, bound="closed-form", random_state=0).fit(X)
    drawn = other.sample(2900, method="iid", random_state=1)
    for core in (own, drawn):  # what the subset itself proves, whoever drew it
        assert network.guaranteed_error(core) == network.certify(core).eps
