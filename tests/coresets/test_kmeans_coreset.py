"""Coresets of k-means: unbiased draws, costs against scikit-learn, and where uniform draws are as good."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st
from pyarrow import parquet
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.utils.estimator_checks import parametrize_with_checks

from coresift import Coreset, InvalidInputError, KMeansCoreset, open_rows
from coresift.coresets.fitting import Runner
from coresift.coresets.uniform import uniform_coreset
from coresift.rows import rows as blocks
from coresift.rows.engines import open_engine


@parametrize_with_checks([KMeansCoreset(2)])
def test_scikit_learn(estimator: Any, check: Any) -> None:
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("arrays of other libraries are not among the inputs")
    check(estimator)


def islands(seed: int = 0) -> np.ndarray:
    """25 large and 24 small clusters on a grid, and a large one far away: most of the variance, no structure."""
    rng = np.random.default_rng(seed)
    grid = np.array([(i, j) for i in range(7) for j in range(7)], dtype=np.float64)
    sizes = [600] * 25 + [12] * 24
    parts = [rng.normal(center, 0.05, (size, 2)) for center, size in zip(grid, sizes, strict=True)]
    X = np.concatenate([*parts, rng.normal((1000.0, 0.0), 0.05, (4000, 2))])
    return X[rng.permutation(len(X))]


def cost_of(X: np.ndarray, centers: np.ndarray, weights: np.ndarray | None = None) -> float:
    return float(
        np.average(cdist(X, centers, "sqeuclidean").min(axis=1), weights=weights)
        * (len(X) if weights is None else weights.sum())
    )


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 200),
    d=st.integers(1, 4),
    k=st.integers(1, 8),
    seed=st.integers(0, 10**6),
    shift=st.sampled_from([0, 1e6]),
)
def test_costs_and_weights(n: int, d: int, k: int, seed: int, shift: float) -> None:
    rng = np.random.default_rng(seed)
    X, w = rng.standard_t(2, (n, d)) + shift, rng.exponential(size=n)
    if n < k:
        with pytest.raises(InvalidInputError, match=f"n_samples={n} .* n_clusters={k}"):
            KMeansCoreset(k).fit(X)
        return
    est = KMeansCoreset(k, random_state=seed).fit(X, sample_weight=w)
    size = int(rng.integers(1, n + 1))
    core = est.sample(size)
    assert core.size == size
    assert (core.weights >= w[core.indices] * (1 - 1e-12)).all()
    centers = X[rng.integers(0, n, k)] + 0.1
    found = est.cost(centers, core=core)
    assert found.all_rows == pytest.approx(cost_of(X, centers, w), rel=1e-7)
    assert found.coreset == pytest.approx(cost_of(X[core.indices], centers, core.weights), rel=1e-7)
    assert found.error == pytest.approx(abs(found.coreset / found.all_rows - 1.0))
    assert est.cost_ == pytest.approx(cost_of(X, est.centers_, w), rel=1e-6, abs=1e-9 * (1 + shift))
    assert len(est.centers_) <= k
    assert est.cost(centers, core=est.sample(n)).error < 1e-12


@pytest.mark.parametrize("seed", range(2))
def test_draws_are_unbiased(seed: int) -> None:
    """Every mean weight is within five standard errors of the input weight, which that of equal weights is not."""
    rng = np.random.default_rng(seed)
    X, w = rng.standard_t(2, (40, 2)), rng.exponential(size=40) + 0.1
    est = KMeansCoreset(3, random_state=seed).fit(X, sample_weight=w)
    draws = np.zeros((1000, 40))
    for draw in draws:
        core = est.sample(12)
        draw[core.indices] = core.weights
    noise = draws.std(axis=0) / np.sqrt(len(draws))
    assert np.abs((draws.mean(axis=0) - w) / noise).max() < 5.0
    assert np.abs(((draws > 0).mean(axis=0) * w.sum() / 12 - w) / noise).max() > 5.0


def test_scores_see_the_mean_the_centres_and_the_clusters() -> None:
    """The formula of the docstring, term by term."""
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(500, 3)), rng.exponential(size=500)
    est = KMeansCoreset(5, random_state=0).fit(X, sample_weight=w)
    distances = cdist(X, est.centers_, "sqeuclidean")
    nearest = distances.argmin(axis=1)
    mass = np.bincount(nearest, w)
    spread = np.square(X - np.average(X, axis=0, weights=w)).sum(axis=1)
    terms = (
        1 / w.sum(),
        spread / (w @ spread),
        distances.min(axis=1) / (w @ distances.min(axis=1)),
        1 / (5 * mass[nearest]),
    )
    expected = w / 4 * sum(terms)
    assert expected.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(w * est._scores.rates(X)[0], expected, rtol=1e-9)


def test_small_clusters_beside_a_distant_one_are_kept() -> None:
    X = islands()
    reached: dict[str, list[float]] = {"uniform": [], "coreset": []}
    for seed in range(3):
        est = KMeansCoreset(50, random_state=seed).fit(X)
        draws = {"uniform": uniform_coreset(len(X), 1500, seed), "coreset": est.sample(1500)}
        for name, core in draws.items():
            rows, weights = core.take(X)
            model = KMeans(50, n_init=5, random_state=seed).fit(rows, sample_weight=weights)
            reached[name].append(est.cost(model.cluster_centers_, core=core).all_rows)
    assert np.mean(reached["coreset"]) < 0.85 * np.mean(reached["uniform"])
    assert "draw the coreset" in est.advice()


def test_advice_says_where_uniform_draws_are_as_good() -> None:
    X = np.random.default_rng(0).normal(size=(20_000, 3))
    est = KMeansCoreset(5, random_state=0).fit(X)
    assert "With 400 rows" in est.advice()
    assert "Uniform sampling is as good here." in est.advice()
    uniform, coreset = zip(*(est._expected_excess(size) for size in (100, 1000, 10_000)), strict=True)
    assert uniform[0] > uniform[1] > uniform[2] > 0
    assert coreset[0] > coreset[1] > coreset[2] > 0


def test_expected_excess_is_about_what_is_reached() -> None:
    """One cluster: the excess of a mean of m rows is the variance over m, exactly in expectation."""
    rng = np.random.default_rng(1)
    X = rng.standard_t(4, (4000, 2))
    est = KMeansCoreset(1, random_state=0).fit(X)
    mean, best = X.mean(axis=0), np.square(X - X.mean(axis=0)).sum()
    excess: dict[str, list[float]] = {"uniform": [], "coreset": []}
    for seed in range(150):
        for name, core in (("uniform", uniform_coreset(len(X), 50, seed)), ("coreset", est.sample(50))):
            center = np.average(X[core.indices], axis=0, weights=core.weights)
            excess[name].append(len(X) * np.square(center - mean).sum() / best)
    uniform, coreset = est._expected_excess(50)
    assert np.mean(excess["uniform"]) == pytest.approx(uniform, rel=0.35)
    assert np.mean(excess["coreset"]) == pytest.approx(coreset, rel=0.35)


def test_same_rows_from_memory_files_and_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "TASK_BYTES", 1)  # every row group is a task
    rng = np.random.default_rng(0)
    X, w = rng.standard_t(3, (150_000, 3)), rng.exponential(size=150_000)
    columns = {f"x{i}": column for i, column in enumerate(X.T)}
    parquet.write_table(pa.table({**columns, "w": w}), tmp_path / "rows.parquet", row_group_size=60_000)
    expected = KMeansCoreset(6, random_state=1).fit(X, sample_weight=w).sample(200)
    rows = open_rows(tmp_path / "rows.parquet", weight="w")
    for workers in (1, 2):
        est = KMeansCoreset(6, random_state=1)
        with open_engine("local", rows, workers) as engine:
            est.fit_rows(runner=Runner(rows, engine))
            assert est.sample(200) == expected


def test_sparse_rows_and_pickles() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 5)) * (rng.random((800, 5)) < 0.4)
    est = KMeansCoreset(4, random_state=0).fit(X)
    core = est.sample(60)
    assert KMeansCoreset(4, random_state=0).fit(sp.csr_matrix(X)).sample(60).indices.tolist() == core.indices.tolist()
    assert est.sample(60, random_state=core.seed) == core
    copy = pickle.loads(pickle.dumps(est))
    assert copy.advice() == est.advice()
    with pytest.raises(InvalidInputError, match="fit again"):
        copy.sample(10)


@pytest.mark.parametrize("X", [np.full((50, 2), 3.0), np.repeat(np.eye(3), 20, axis=0)])
def test_fewer_distinct_rows_than_clusters(X: np.ndarray) -> None:
    est = KMeansCoreset(10, random_state=0).fit(X)
    assert est.cost_ == pytest.approx(0.0, abs=1e-12)
    assert est.sample(20).size == 20
    assert min(est._expected_excess(20)) >= 0.0
    assert "rows" in est.advice()


def test_bad_input_is_refused() -> None:
    X = np.random.default_rng(0).normal(size=(100, 3))
    with pytest.raises(InvalidInputError, match="n_clusters"):
        KMeansCoreset(0).fit(X)
    bad = X.copy()
    bad[4, 1] = np.nan
    with pytest.raises(InvalidInputError, match="NaN in column 1, row 4"):
        KMeansCoreset(2).fit(bad)
    est = KMeansCoreset(2, random_state=0).fit(X)
    core = est.sample(10)
    with pytest.raises(InvalidInputError, match="centers have 2 columns, but 3 were fitted"):
        est.cost(np.zeros((2, 2)), core=core)
    with pytest.raises(InvalidInputError, match="drawn from 5 rows"):
        est.cost(np.zeros((2, 3)), core=Coreset([0], [1.0], 5))
    with pytest.raises(InvalidInputError, match="between 1 and"):
        est.advice(101)
    with pytest.raises(InvalidInputError, match="sample_weight does not go with Rows"):
        KMeansCoreset(2).fit(open_rows(X), sample_weight=np.ones(100))
