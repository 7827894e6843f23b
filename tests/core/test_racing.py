"""Racing: who may still be the best, and how far rankings agree."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from coresift.core.racing import extrapolated, is_behind, rank_agreement, survivors


def test_behind_is_the_corrected_paired_t_test():
    scores = np.array([[0.90, 0.92, 0.91, 0.89, 0.93], [0.88, 0.90, 0.90, 0.88, 0.90], [0.91, 0.90, 0.92, 0.88, 0.92]])
    gaps = scores[0] - scores[1]
    t = gaps.mean() / np.sqrt((1 / 5 + 1 / 4) * gaps.var(ddof=1))  # Nadeau and Bengio, by hand
    assert t > stats.t.ppf(0.95, 4)
    assert is_behind(scores).tolist() == [False, True, False]
    closer = scores.copy()
    closer[1] += gaps.mean() * (1 - 0.99 * stats.t.ppf(0.95, 4) / t)  # just short of the level
    assert is_behind(closer).tolist() == [False, False, False]


def test_the_level_holds_if_all_candidates_are_alike():
    # power: without the correction for overlapping folds more than 5 % would be called behind
    rng = np.random.default_rng(0)
    called = np.mean([is_behind(rng.normal(size=(2, 5))).any() for _ in range(4000)])
    assert called <= 0.1  # two candidates, either may lead: twice the one-sided level at most
    clear = np.mean([is_behind(rng.normal([[0.0], [4.0]], size=(2, 5))).any() for _ in range(500)])
    assert clear > 0.9


def test_ties_are_not_behind_and_failures_are():
    scores = np.array([[0.5, 0.6], [0.5, 0.6], [np.nan, 0.9], [0.4, 0.5]])
    assert is_behind(scores).tolist() == [False, False, True, True]  # a constant gap has no spread
    assert survivors(scores, 4).tolist() == [0, 1]
    assert is_behind(np.array([[0.9], [0.1]])).tolist() == [False, False]  # one fold tells nothing


@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_survivors_hold_the_leader_and_respect_the_limit(n, folds, most, seed, broken):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, folds))
    scores[rng.random(n) < broken * 0.5] = np.nan
    n_good = int((~np.isnan(scores).any(axis=1)).sum())
    kept = survivors(scores, most)
    assert len(set(kept.tolist())) == len(kept) <= max(2, most)
    assert len(kept) >= min(2, max(1, n_good))
    if n_good:
        assert kept[0] == np.nanargmax(scores.mean(axis=1))
        assert not np.isnan(scores[kept]).any()


def test_rank_agreement_is_spearman_with_a_jackknife_error():
    rng = np.random.default_rng(1)
    before = rng.normal(size=(8, 5)) + np.arange(8)[:, None]
    after = rng.normal(size=(8, 5)) + np.arange(8)[:, None]
    found = rank_agreement(0, before, after)
    assert found.correlation == pytest.approx(stats.spearmanr(before.mean(axis=1), after.mean(axis=1)).statistic)
    parts = [
        stats.spearmanr(np.delete(before, k, 1).mean(1), np.delete(after, k, 1).mean(1)).statistic for k in range(5)
    ]
    assert found.error == pytest.approx(np.sqrt(4 / 5 * np.sum((parts - np.mean(parts)) ** 2)))
    assert rank_agreement(0, before, -before).correlation == -1.0
    assert np.isnan(rank_agreement(0, before[:2], after[:2]).correlation)
    assert np.isnan(rank_agreement(0, np.ones((4, 3)), after[:4, :3]).correlation)
    assert np.isnan(rank_agreement(0, before[:, :1], after[:, :1]).error)


def test_extrapolation_is_exact_on_its_own_curve():
    a, b = np.array([[0.9, 0.8], [0.7, 0.95]]), np.array([[1.0, 0.5], [0.1, 3.0]])
    curve = [a - b / np.sqrt(m) for m in (30, 100, 1000)]
    np.testing.assert_allclose(extrapolated(curve[0], curve[1], (30, 100), 1000), curve[2])
    assert not np.allclose(curve[1], curve[2], atol=1e-3)
    np.testing.assert_array_equal(extrapolated(curve[0], curve[1], (30, 100), 100), curve[1])


def test_shrunk_gains_keep_signal_and_drop_noise():
    rng = np.random.default_rng(0)
    before = np.zeros((20, 5))
    clear = np.repeat(rng.normal(size=(20, 1)), 5, axis=1)  # the same in every fold: no noise
    np.testing.assert_allclose(
        extrapolated(before, clear, (30, 100), 1000, shrink=True), extrapolated(before, clear, (30, 100), 1000)
    )
    noise = rng.normal(size=(20, 5))  # nothing but noise: all candidates gain alike, as far as one can tell
    factor = (100**-0.5 - 1000**-0.5) / (30**-0.5 - 100**-0.5)
    spread = (extrapolated(before, noise, (30, 100), 1000, shrink=True) - noise).mean(axis=1) / factor
    assert spread.std() < 0.5 * noise.mean(axis=1).std()
    assert spread.mean() == pytest.approx(noise.mean())
    broken = np.where(np.arange(20)[:, None] == 3, np.nan, clear)
    assert np.isnan(extrapolated(before, broken, (30, 100), 1000, shrink=True)).any(axis=1).tolist() == [
        row == 3 for row in range(20)
    ]
