"""Awkward but legal data: every bound, every way to draw, and the audit give finite answers and no warning."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st
from scipy.spatial.distance import pdist
from scipy.stats import ortho_group

from coresift import LaplacianCoreset, RBFCoreset, audit

CASES = [(RBFCoreset, b) for b in ("auto", "closed-form", "cells", "exact", "paper", "lemma")] + [
    (LaplacianCoreset, b) for b in ("auto", "cells", "exact", "paper")
]
CERTIFIED = [c for c in CASES if c[1] in ("closed-form", "cells", "exact")]
METHODS = ("systematic", "iid", "keys")

_rng = np.random.default_rng(0)
_X = _rng.normal(size=(40, 3))
DATA = {
    "one point": _X[:1],
    "two points": _X[:2],
    "one column": _X[:, :1],
    "one number": np.array([[3.7]]),
    "all equal": np.full((30, 3), 0.1),
    "all equal and far": np.full((30, 3), 1e8 + 0.1),
    "all zero": np.zeros((6, 2)),
    "duplicates": np.repeat(_X[:5], 6, axis=0),
    "constant columns": np.column_stack([_X, np.full(40, 7.0), np.zeros(40)]),
    "more columns than rows": _rng.normal(size=(6, 60)),
    "1e150": _X * 1e150,
    "1e-150": _X * 1e-150,
    "mixed columns": _X * [1e150, 1.0, 1e-150],
    "mixed rows": _X * 10.0 ** _rng.uniform(-8, 8, size=(40, 1)),
    "1e299": np.clip(_X, -1, 1) * 1e299,
    "denormal": _X * 1e-310,
    "huge offset": _X + 1e8,
    "huge offset in one column": _X + np.array([1e12, 0.0, 0.0]),
    "integers": np.round(_X * 10).astype(int),
    "one far point": np.vstack([_X, [[1e6, 0, 0]]]),
    "one line": np.outer(np.arange(30.0), [1.0, 2.0, 3.0]),
    "float32 extremes": (_X * 1e38).astype(np.float32) / 3,
}


def _check(cls, X, w=None, **params):
    est = cls(random_state=0, n_cells=5, **params).fit(X, sample_weight=w)
    n = X.shape[0]
    positive = np.ones(n, bool) if w is None else w > 0
    assert est.sensitivities_.shape == (n,)
    assert np.all(np.isfinite(est.sensitivities_))
    assert np.all(est.sensitivities_ >= 0)
    assert not est.sensitivities_[~positive].any()
    assert est.total_sensitivity_ >= 1 - 1e-9
    assert np.isfinite(est.total_sensitivity_)
    assert est.scale_ > 0
    if est.bound_ not in ("paper", "lemma"):
        assert np.all(est.sensitivities_ <= 1)
    assert est.advice()
    for method in METHODS:
        for size in {1, (n + 1) // 2, n}:
            core = est.sample(size, method=method)
            assert 1 <= core.size <= size
            assert np.all(np.isfinite(core.weights))
            assert np.all(core.weights > 0)
            assert np.all(positive[core.indices])
    found = audit(X, core, sample_weight=w, n_starts=3, n_random=16, max_iter=3)
    assert found.worst_error >= 0
    assert not np.isnan(found.worst_error)
    assert np.all(np.isfinite(found.worst_query))
    return est


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "bound"), CASES)
@pytest.mark.parametrize("name", DATA)
def test_awkward_data(name, cls, bound):
    for bandwidth in (None, "median"):
        _check(cls, DATA[name], bound=bound, bandwidth=bandwidth)


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "bound"), CASES)
@pytest.mark.parametrize("name", ["one point", "all equal", "all zero", "duplicates", "1e150", "1e-150", "one column"])
def test_awkward_sparse_data(name, cls, bound):
    dense = _check(cls, DATA[name], bound=bound)
    sparse = _check(cls, sp.csr_array(DATA[name]), bound=bound)
    np.testing.assert_allclose(sparse.sensitivities_, dense.sensitivities_, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "bound"), CASES)
@pytest.mark.parametrize("scale", [1e-250, 1e-12, 1.0, 1e200])
@pytest.mark.parametrize("orders", [12, 250])
def test_weights_over_many_orders_of_magnitude(cls, bound, orders, scale):
    w = 10 ** np.linspace(-orders, 0, 40) * scale
    if orders + np.abs(np.log10(scale)) > 300:
        w = np.maximum(w, 1e-300)
    for bandwidth in (None, "median"):
        _check(cls, _X, w, bound=bound, bandwidth=bandwidth)


def test_weights_that_span_more_than_floats_do():
    """A weight whose share of the total underflows counts as zero."""
    w = np.ones(40)
    w[:2] = 1e-300, 1e290
    for cls, bound in CASES:
        est = cls(bound=bound, random_state=0).fit(_X, sample_weight=w)
        assert est.sensitivities_[0] == 0.0
        assert 0 not in est.sample(1.0).indices


@pytest.mark.parametrize(("cls", "bound"), CASES)
def test_a_weight_of_zero_is_a_missing_row(cls, bound):
    w = np.random.default_rng(3).gamma(1.0, size=40)
    w[::4] = 0.0
    kept = np.flatnonzero(w)
    for bandwidth in (None, 0.7, 1e-4):
        whole = cls(bound=bound, bandwidth=bandwidth, n_cells=50, random_state=0).fit(_X, sample_weight=w)
        part = cls(bound=bound, bandwidth=bandwidth, n_cells=50, random_state=0).fit(_X[kept], sample_weight=w[kept])
        np.testing.assert_allclose(whole.sensitivities_[kept], part.sensitivities_, rtol=1e-5)
        assert not whole.sensitivities_[::4].any()
        assert whole.scale_ == pytest.approx(part.scale_)
        for method in METHODS:
            np.testing.assert_array_equal(whole.sample(40, method="systematic").indices, kept)
            assert np.all(np.isin(whole.sample(10, method=method).indices, kept))


@pytest.mark.parametrize(("cls", "bound"), CERTIFIED)
def test_only_one_row_of_weight(cls, bound):
    w = np.zeros(40)
    w[7] = 3.0
    est = _check(cls, _X, w, bound=bound, bandwidth=1.0)
    assert est.sensitivities_[7] == 1.0
    core = est.sample(5)
    assert core.indices.tolist() == [7]
    assert core.weights.tolist() == [3.0]


@pytest.mark.parametrize("bandwidth", [1e-60, 1e-20, 1e-5, 1e5, 1e20, 1e60])
@pytest.mark.parametrize(("cls", "bound"), CERTIFIED)
def test_extreme_bandwidths(cls, bound, bandwidth):
    est = _check(cls, _X, bound=bound, bandwidth=bandwidth)
    if bandwidth > 1:
        np.testing.assert_allclose(est.sensitivities_, 1 / 40, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("radius", [1e-300, 1e-10, 1e-3, 30.0, 1e5, 1e60])
@pytest.mark.parametrize("bound", ["auto", "closed-form", "cells", "exact", "paper", "lemma"])
def test_extreme_radii(bound, radius):
    est = _check(RBFCoreset, _X, bound=bound, radius=radius)
    if radius <= 1e-3 and bound == "exact":  # one query, the centre: the share is the sensitivity
        share = np.exp(-(((_X - est.center_) / est.scale_) ** 2).sum(axis=1))
        np.testing.assert_allclose(est.sensitivities_, share / share.sum(), rtol=5e-3)


@pytest.mark.parametrize(("cls", "bound"), CERTIFIED)
def test_equal_points_share_by_weight(cls, bound):
    w = np.random.default_rng(1).gamma(1.0, size=30)
    for name in ("all equal", "all equal and far"):
        est = cls(bound=bound, random_state=0).fit(DATA[name], sample_weight=w)
        np.testing.assert_allclose(est.sensitivities_, w / w.sum(), rtol=1e-6)


def test_many_equal_points_share_alike():
    """The mean of 200,000 equal rows is off in the last digits; the spread must not be."""
    for cls, bound in ((RBFCoreset, "closed-form"), (RBFCoreset, "cells"), (LaplacianCoreset, "cells")):
        est = cls(bound=bound, random_state=0, n_cells=4).fit(np.full((200_000, 2), 0.1))
        assert est.total_sensitivity_ == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(("cls", "bound"), CERTIFIED)
def test_an_offset_changes_nothing(cls, bound):
    plain = cls(bound=bound, random_state=0).fit(_X)
    for offset in (1e3, 1e6):
        moved = cls(bound=bound, random_state=0).fit(_X + offset)
        np.testing.assert_allclose(moved.sensitivities_, plain.sensitivities_, rtol=1e-14 * offset * 100 + 1e-5)


def test_the_rounding_of_the_centre_is_covered():
    """Far from the origin the mean is not a float: the ball sits beside it, and the closed form is about the mean.

    Mass 0.4 at a and 0.6 one ulp above, where the centre is rounded to, and a row of next to no weight at distance 1:
    its share at the query R is w e^{-1+2R} / (0.6 + 0.4 e^{-ulp^2 - 2 R ulp}), more than the closed form without slack.
    """
    ulp = np.spacing(1e8)
    X = np.array([[1e8], [1e8 + ulp], [1e8 + ulp + 1.0]])
    for radius in (0.5, 1.0, 3.0):
        est = RBFCoreset(radius, bandwidth=1.0, bound="closed-form").fit(X, sample_weight=[0.4, 0.6, 1e-13])
        assert est.center_[0] == X[1, 0]
        share = 1e-13 * np.exp(-1 + 2 * radius) / (0.6 + 0.4 * np.exp(-(ulp**2) - 2 * radius * ulp))
        assert np.log(est.sensitivities_[2]) >= np.log(share)
        np.testing.assert_allclose(est.sensitivities_[2], share, rtol=1e-6)


@pytest.mark.parametrize(("cls", "bound"), CERTIFIED)
def test_a_single_cell_at_the_centre(cls, bound):
    X = np.concatenate([_X, -_X])  # the mean is zero to the last digit
    est = cls(bound=bound, n_cells=1, random_state=0).fit(X)
    assert np.all(np.isfinite(est.sensitivities_))


clouds = st.builds(
    lambda seed, n, d: np.random.default_rng(seed).normal(size=(n, d)),
    st.integers(0, 10**6), st.integers(2, 25), st.integers(1, 5),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "bound"), [c for c in CERTIFIED if c[1] != "cells"])
@settings(max_examples=25)
@given(X=clouds, factor=st.floats(-100, 100), shift=st.floats(-10, 10), seed=st.integers(0, 1000))
def test_scaling_shifting_rotating_and_permuting(cls, bound, X, factor, shift, seed):
    rng = np.random.default_rng(seed)
    w = rng.gamma(1.0, size=len(X)) + 0.01
    values = cls(bound=bound).fit(X, sample_weight=w).sensitivities_
    tolerance = {"rtol": 5e-6, "atol": 1e-12}  # of exact: 1e-6 on either side
    moved = X * 10.0**factor + shift * 10.0**factor
    np.testing.assert_allclose(cls(bound=bound).fit(moved, sample_weight=w).sensitivities_, values, **tolerance)
    if X.shape[1] > 1:
        turned = X @ ortho_group.rvs(X.shape[1], random_state=seed)
        np.testing.assert_allclose(cls(bound=bound).fit(turned, sample_weight=w).sensitivities_, values, **tolerance)
    order = rng.permutation(len(X))
    permuted = cls(bound=bound).fit(X[order], sample_weight=w[order]).sensitivities_
    np.testing.assert_allclose(permuted, values[order], **tolerance)
    np.testing.assert_allclose(cls(bound=bound).fit(X, sample_weight=w * 1e-9).sensitivities_, values, **tolerance)
    # a bandwidth is a scaling
    scaled = cls(bound=bound, bandwidth=3.0).fit(3.0 * X, sample_weight=w).sensitivities_
    np.testing.assert_allclose(
        scaled, cls(bound=bound, bandwidth=1.0).fit(X, sample_weight=w).sensitivities_, **tolerance
    )


@pytest.mark.parametrize(("cls", "bound"), [(RBFCoreset, "exact"), (LaplacianCoreset, "exact")])
def test_a_weight_of_two_is_two_rows(cls, bound):
    w = np.random.default_rng(5).integers(1, 4, 40)
    weighted = cls(bound=bound).fit(_X, sample_weight=w)
    repeated = cls(bound=bound).fit(np.repeat(_X, w, axis=0))
    each = repeated.sensitivities_[np.cumsum(w) - 1]
    np.testing.assert_allclose(weighted.sensitivities_, w * each, rtol=5e-6)


@pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_median_bandwidth_is_the_median_positive_distance(metric, sparse):
    if sparse and metric != "euclidean":
        pytest.skip("sparse rows have one metric")
    X = np.repeat(_X + 5.0, 2, axis=0)  # half of the nearest pairs are equal
    distances = pdist(X, metric)
    est = LaplacianCoreset(metric=metric, bandwidth="median", random_state=0).fit(sp.csr_array(X) if sparse else X)
    assert est.scale_ == pytest.approx(np.median(distances[distances > 0]), rel=1e-12)
    if metric == "euclidean":
        assert RBFCoreset(bandwidth="median").fit(X).scale_ == pytest.approx(est.scale_)


@pytest.mark.parametrize("bandwidth", [None, "median"])
def test_a_far_row_without_weight_does_not_stretch_another_metric(bandwidth):
    plain = LaplacianCoreset(metric="cityblock", bandwidth=bandwidth, random_state=0).fit(_X)
    far = np.vstack([_X, [[1e3, 0.0, 0.0]]])
    est = LaplacianCoreset(metric="cityblock", bandwidth=bandwidth, random_state=0).fit(
        far, sample_weight=np.append(np.ones(40), 0.0)
    )
    assert est.scale_ == pytest.approx(plain.scale_)


@pytest.mark.parametrize("bound", ["paper", "lemma", "closed-form", "exact"])
def test_draws_know_the_total_of_their_scores(bound):
    """Scores may be kept relative to the largest; guarantees need them in their own unit, with the floor."""
    est = RBFCoreset(bound=bound).fit(_X)
    scores = np.maximum(est.sensitivities_, 1 / 40)
    assert est._draw_total == pytest.approx(scores.sum())
    assert est.uniform_factor_ == pytest.approx(40 * scores.max() / scores.sum())


def test_a_far_value_in_one_column_hides_no_dimension():
    """A sentinel of 10^6: in squares the other directions are below the rounding of the widest."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 12))
    X[:, 0] += np.where(np.arange(2000) % 10 == 0, 1e7, 0.0) - np.where(np.arange(2000) % 10 == 1, 1e7, 0.0)
    fitted = RBFCoreset(bandwidth=10.0, bound="cells", n_cells=3, random_state=0).fit(X)
    assert fitted._affine_rank() == 12
    flat = RBFCoreset(bandwidth=1.0, bound="closed-form").fit(X[:, :3] @ rng.standard_normal((3, 9)))
    assert flat._affine_rank() == 3


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize(("share", "n", "expected"), [(0.1, 100, 10), (0.1, 40, 4), (0.07, 100, 7)])
def test_a_narrow_fraction_means_what_it_says(kind, share, n, expected):
    fitted = RBFCoreset(bound="closed-form").fit(np.random.default_rng(0).standard_normal((n, 2)))
    assert fitted.sample(kind(share)).size == expected


def test_a_radius_that_is_changed_after_the_fit_promises_nothing():
    X = np.random.default_rng(0).standard_normal((500, 2))
    fitted = RBFCoreset(radius=0.5, bandwidth=1.0, random_state=0).fit(X)
    before = fitted.sample(100, method="iid", random_state=0), fitted.sample_size(0.5).size
    fitted.set_params(radius=4.0)
    assert (fitted.sample(100, method="iid", random_state=0), fitted.sample_size(0.5).size) == before
    assert before[0].ball.radius == 0.5
    assert fitted.fit(X).sample(10).ball.radius == 4.0


@pytest.mark.parametrize("seed", range(12))
def test_the_root_of_a_cancelled_square_is_bounded(seed):
    """Two rows at distance 7 from the origin: the heavy one is nearly the mean, and no bound is below a ratio there."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=3) + rng.choice([0.0, 0.1, 0.2, 0.4], size=(2, 1)) * rng.normal(size=(2, 3))
    X *= 7.0 / np.linalg.norm(X, axis=1, keepdims=True)
    weights, radius = np.array([1.0, 1.5e-7]), 5.0
    est = RBFCoreset(bound="closed-form", radius=radius, bandwidth=1.0).fit(X, sample_weight=weights)
    rows = X.astype(np.longdouble)
    away = rows[0] - rows[1]
    query = weights @ rows / weights.sum() + 0.999999 * radius * away / max(np.sqrt(away @ away), 1e-300)
    exponents = -((rows - query) ** 2).sum(axis=1)
    reached = 1 / (1 + weights[1] * np.exp(exponents[1] - exponents[0]))
    assert est.sensitivities_[0] >= reached
