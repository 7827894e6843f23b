"""Calibrated weights: totals are reproduced, bounds are kept, and the curve is what it is said to be."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, strategies as st

from coresift.core.calibration import Calibration, SlopeTotals, medians
from coresift.core.linear import LinearProblem
from coresift.core.linear_losses import Logistic, Multinomial, Poisson

BOUNDS = (0.1, 10.0)


def reachable(seed, m=80, q=5, bounds=BOUNDS):
    """Features, and totals that some ratios well inside the bounds give."""
    rng = np.random.default_rng(seed)
    T = np.hstack([np.ones((m, 1)), rng.normal(size=(m, q)) * 10.0 ** rng.integers(-4, 5, q)])
    v = rng.uniform(0.5, 20.0, m)
    low, high = (1 + bounds[0]) / 2, (1 + bounds[1]) / 2
    return T, v, (v * np.clip(np.exp(0.2 * rng.normal(size=m)), low, high)) @ T


@given(seed=st.integers(0, 2**32 - 1), narrow=st.booleans())
def test_without_a_ridge_totals_are_reproduced_within_the_bounds(seed, narrow):
    bounds = (0.2, 5.0) if narrow else BOUNDS
    T, v, totals = reachable(seed, bounds=bounds)
    ratios = Calibration(v, T).ratios(totals, ridge=1e-12, bounds=bounds)
    assert ((ratios > bounds[0]) & (ratios < bounds[1])).all()
    missed = np.abs((v * ratios) @ T - totals) / np.sqrt((v @ T**2) * v.sum())
    assert missed.max() < 1e-6
    before = np.abs(v @ T - totals) / np.sqrt((v @ T**2) * v.sum())
    assert before.max() > 1e-3  # there was something to do


def test_correct_totals_change_nothing():
    T, v, _ = reachable(0)
    np.testing.assert_allclose(Calibration(v, T).ratios(v @ T, ridge=1e-4, bounds=BOUNDS), 1.0, atol=1e-12)


def test_small_changes_are_those_of_least_squares():
    """To first order the ratios are ``1 + T lambda`` with the lambda of the linear equations (Deville and Sarndal)."""
    T, v, totals = reachable(3)
    nearly = v @ T + 1e-5 * (totals - v @ T)
    ratios = Calibration(v, T).ratios(nearly, ridge=0.0, bounds=BOUNDS)
    at = np.linalg.solve(T.T @ (T * v[:, None]), nearly - v @ T)
    np.testing.assert_allclose(ratios - 1.0, T @ at, rtol=1e-3, atol=1e-9)


def test_impossible_totals_end_at_the_bounds_and_stay_finite():
    T, v, _ = reachable(1)
    ratios = Calibration(v, T).ratios(1e3 * (v @ np.abs(T)), ridge=1e-4, bounds=BOUNDS)
    assert np.isfinite(ratios).all()
    assert ratios.min() >= BOUNDS[0]
    assert ratios.max() <= BOUNDS[1]


def test_a_feature_absent_from_the_sample_is_left_out():
    T, v, totals = reachable(2)
    with_zero = np.insert(T, 3, 0.0, axis=1)
    np.testing.assert_allclose(
        Calibration(v, with_zero).ratios(np.insert(totals, 3, 17.0), ridge=1e-6, bounds=BOUNDS),
        Calibration(v, T).ratios(totals, ridge=1e-6, bounds=BOUNDS),
    )


def test_sparse_features_give_the_same_ratios():
    T, v, totals = reachable(4)
    np.testing.assert_allclose(
        Calibration(v, sp.csr_array(T)).ratios(totals, ridge=1e-4, bounds=BOUNDS),
        Calibration(v, T).ratios(totals, ridge=1e-4, bounds=BOUNDS),
        rtol=1e-6,
    )


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3), Poisson()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("is_sparse", [False, True])
def test_totals_are_the_weighted_sums_of_the_features(loss, is_sparse):
    rng = np.random.default_rng(5)
    X, w = rng.normal(size=(30, 4)), rng.uniform(size=30)
    y = rng.integers(0, max(loss.n_outputs, 2), 30)
    problem = LinearProblem(loss, 0.1, np.zeros(4), np.ones(4))
    given = sp.csr_array(X) if is_sparse else X
    parts = [SlopeTotals(problem, rng.normal(size=problem.shape))]
    parts.append(SlopeTotals(problem, parts[0].theta))
    for part, rows in zip(parts, (slice(0, 11), slice(11, 30)), strict=True):
        part.add(given[rows], y[rows], w[rows])
    parts[0].merge(parts[1])
    features = parts[0].features(problem.columns(given), y)
    np.testing.assert_allclose(parts[0].totals[0], w @ features, rtol=1e-9, atol=1e-12)
    assert features.shape[1] == 5 * (loss.n_outputs + (loss.n_outputs == 1))


def test_weighted_medians():
    A = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 1.0], [10.0, 0.0]])
    np.testing.assert_array_equal(medians(A, np.ones(4)), [2.0, 0.0])
    np.testing.assert_array_equal(medians(A, np.array([1.0, 1.0, 9.0, 1.0])), [3.0, 1.0])
