"""Passes over pieces find what the estimators find in memory, for any workers, blocks and layouts of the files."""

import operator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, strategies as st
from pyarrow import parquet

from coresift import InvalidInputError, LaplacianCoreset, RBFCoreset, open_rows, select
from coresift.core.draw import DrawTable, KeyPool, guess_bars
from coresift.coresets import passes
from coresift.coresets.bounds import Geometry
from coresift.coresets.fitting import array_runner, geometry_of
from coresift.coresets.options import BoundSpec
from coresift.coresets.passes import Survey, extent
from coresift.rows import rows as blocks
from coresift.rows.arrays import ArrayRows
from coresift.rows.engines import Engine, run_pass


def cloud(n: int = 6000, d: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X[: n // 50] = 3.0 * X[: n // 50] + 4.0
    return X[rng.permutation(n)], rng.random(n) * (rng.random(n) > 0.1)  # some weights are zero


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks, tasks and pieces of few rows."""
    monkeypatch.setattr(blocks, "_LARGEST_BLOCK", 256)
    monkeypatch.setattr(blocks, "TASK_BYTES", 1 << 15)


def written(folder: Path, X: np.ndarray, w: np.ndarray, group: int = 900) -> Path:
    path = folder / f"rows-{group}.parquet"
    parquet.write_table(pa.table({**{f"x{i}": c for i, c in enumerate(X.T)}, "w": w}), path, row_group_size=group)
    return path


CASES: list[tuple[str, dict[str, Any]]] = [
    ("gaussian", {"bound": "closed-form"}),
    ("gaussian", {"bound": "closed-form", "bandwidth": 2.0, "radius": 2.0}),
    ("gaussian", {"bound": "cells", "bandwidth": "median", "n_cells": 20}),
    ("gaussian", {"bound": "cells", "bandwidth": 1.5}),
    ("laplacian", {"bound": "cells", "n_cells": 16}),
    ("gaussian", {"bound": "auto"}),
]


def estimator(loss: str, parameters: dict[str, Any]) -> Any:
    kind = RBFCoreset if loss == "gaussian" else LaplacianCoreset
    return kind(random_state=3, **parameters)


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("loss", "parameters"), CASES)
def test_sensitivities_and_rows_are_those_of_memory(tmp_path: Path, loss: str, parameters: dict[str, Any]) -> None:
    X, w = cloud()
    path = written(tmp_path, X, w)
    in_memory = estimator(loss, parameters).fit(X, sample_weight=w)
    passes = estimator(loss, parameters).fit(open_rows(path, weight="w"))
    np.testing.assert_allclose(passes.sensitivities_, in_memory.sensitivities_, rtol=1e-9)
    np.testing.assert_allclose(passes.center_, in_memory.center_, atol=1e-12)
    assert passes.scale_ == pytest.approx(in_memory.scale_, rel=1e-12)
    assert passes.uniform_factor_ == pytest.approx(in_memory.uniform_factor_)
    core = in_memory.sample(300, random_state=3)
    chosen = select(path, 300, weight="w", loss=loss, random_state=3, n_queries=0, preparation=None, **parameters)
    np.testing.assert_array_equal(chosen.coreset.indices, core.indices)
    np.testing.assert_allclose(chosen.coreset.weights, core.weights, rtol=1e-9)
    assert chosen.report.total_sensitivity == pytest.approx(in_memory.total_sensitivity_)
    assert chosen.report.uniform_factor == pytest.approx(in_memory.uniform_factor_)


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("bound", ["paper", "lemma"])
@pytest.mark.parametrize("deficient", [False, True])
def test_lewis_weights_by_passes(tmp_path: Path, bound: str, deficient: bool) -> None:
    X, w = cloud(2000, 4)
    if deficient:
        X[:, 1] = 7.0  # a constant column: the lifted rows span less
    path = written(tmp_path, X, w, group=300)
    in_memory = RBFCoreset(bound=bound, random_state=0).fit(X, sample_weight=w)
    passes = RBFCoreset(bound=bound, random_state=0).fit(open_rows(path, weight="w"))
    # both stop within 1e-3 of the fixed point, and both dominate
    np.testing.assert_allclose(passes.sensitivities_, in_memory.sensitivities_, rtol=3e-3)
    assert passes.is_certified_ == in_memory.is_certified_
    assert (passes.sensitivities_ > 0).sum() == (w > 0).sum()


@pytest.mark.usefixtures("small_blocks")
def test_laplacian_lemma_by_passes(tmp_path: Path) -> None:
    X, w = cloud(2000, 4)
    in_memory = LaplacianCoreset(bound="paper", random_state=0).fit(X, sample_weight=w)
    passes = LaplacianCoreset(bound="paper", random_state=0).fit(open_rows(written(tmp_path, X, w), weight="w"))
    np.testing.assert_allclose(passes.sensitivities_, in_memory.sensitivities_, rtol=3e-3)


@pytest.mark.slow
@pytest.mark.parametrize("bound", ["closed-form", "cells"])
def test_other_blocks_and_layouts_choose_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    X, w = cloud(20_000, 3)
    options: dict[str, Any] = {"weight": "w", "bandwidth": 1.0, "bound": bound, "n_queries": 0}
    one = select(written(tmp_path, X, w, 20_000), 2000, **options).coreset
    monkeypatch.setattr(blocks, "_LARGEST_BLOCK", 512)
    monkeypatch.setattr(blocks, "TASK_BYTES", 1 << 14)
    other = select(written(tmp_path, X, w, 777), 2000, **options).coreset
    assert len(np.intersect1d(one.indices, other.indices)) >= 0.999 * 2000
    assert one.size == other.size == 2000


def test_uniform_sampling_would_choose_other_rows(tmp_path: Path) -> None:
    """The agreement above is no accident of the seed: other scores give other rows."""
    X, w = cloud(20_000, 3)
    path = written(tmp_path, X, w)
    small, large = (select(path, 2000, weight="w", bandwidth=s, n_queries=0).coreset for s in (1.0, 1e3))
    assert len(np.intersect1d(small.indices, large.indices)) < 0.9 * 2000


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
@given(seed=st.integers(0, 50), n=st.integers(1, 700), shift=st.sampled_from([0.0, 1e3, 1e6]), by_label=st.booleans())
def test_moments_of_any_cut_are_those_of_all_rows(seed: int, n: int, shift: float, by_label: bool) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)) + shift
    w = rng.random(n) + 0.01
    y = rng.integers(3, size=n)
    source = ArrayRows(X, w, y if by_label else None)
    source.pieces = [type(source.pieces[0])(0, 0, a, a, min(100, n - a)) for a in range(0, n, 100)]  # many tasks
    near = X[0] + rng.standard_normal(3)
    found = run_pass(Engine(source), source, Survey(near, {"cells": (seed, 50)}, by_label), lambda _: None)
    for label in np.unique(y) if by_label else [None]:
        mine = slice(None) if label is None else y == label
        at = 0 if label is None else found.labels[label]
        mean = np.average(X[mine], axis=0, weights=w[mine])
        np.testing.assert_allclose(near + found.moments.mean[at], mean, rtol=1e-12, atol=1e-12)
        variance = w[mine] @ ((X[mine] - mean) ** 2).sum(axis=1) / w[mine].sum()
        # the mean errs by 1e-16 of the shift, the variance by that times the spread
        assert found.moments.variance[at] == pytest.approx(variance, rel=1e-9, abs=1e-9)
        assert found.moments.mass[at] == pytest.approx(w[mine].sum())
        assert found.moments.counts[at] == len(X[mine])


def geometry(X: Any, w: Any = None, bandwidth: Any = None) -> Geometry:
    spec = BoundSpec("gaussian", "closed-form", bandwidth)
    weights = np.ones(X.shape[0]) if w is None else w
    return geometry_of(array_runner(X, weights), spec, np.random.default_rng(0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("container", [np.asarray, np.asfortranarray, sp.csr_array])
def test_centre_bandwidth_and_variance_are_those_of_the_rows(container: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(300, 7)) * (rng.random((300, 7)) < 0.5) + 0.5).astype(dtype)
    w = rng.gamma(1.0, size=300)
    found = geometry(container(X), w)
    exact = X.astype(np.float64)
    mean = np.average(exact, axis=0, weights=w)
    squares = ((exact - mean) ** 2).sum(axis=1)
    np.testing.assert_allclose(found.center, mean, rtol=1e-12)
    assert found.scale == pytest.approx(np.sqrt(squares.max()), rel=1e-11)
    assert found.max_norm == pytest.approx(1.0, rel=1e-11)
    np.testing.assert_allclose(found.sq_norms(container(X)), squares / squares.max(), rtol=1e-9, atol=1e-13)
    assert found.variances[0] == pytest.approx(np.average(squares, weights=w) / squares.max(), rel=1e-11)


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e-70, 1e70, 1e150, 1e299])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_geometry_scales_with_the_data_at_any_magnitude(container: Any, scale: float) -> None:
    rng = np.random.default_rng(1)
    X, w = rng.uniform(-1, 1, size=(60, 4)), rng.gamma(1.0, size=60)
    plain, scaled = geometry(X, w), geometry(container(X * scale), w)
    np.testing.assert_allclose(scaled.center, plain.center * scale, rtol=1e-12, atol=1e-15 * scale)
    assert scaled.scale == pytest.approx(plain.scale * scale, rel=1e-11)
    assert scaled.variances[0] == pytest.approx(plain.variances[0], rel=1e-11)
    assert scaled.center_error == pytest.approx(plain.center_error, rel=1e-6)
    np.testing.assert_allclose(scaled.sq_norms(container(X * scale)), plain.sq_norms(X), rtol=1e-9)


@pytest.mark.parametrize("offset", [7.0, 1e4, 1e8, 1e12])
def test_an_offset_moves_the_centre_within_the_stated_error(offset: float) -> None:
    X = offset + np.random.default_rng(2).normal(size=(200, 3))
    found = geometry(X)
    np.testing.assert_allclose(found.sq_norms(X), ((X - found.center) ** 2).sum(axis=1) / found.scale**2, rtol=1e-9)
    exact_mean = [sum(map(Fraction, column)) / 200 for column in X.T]
    off = np.sqrt(sum(float(Fraction(m) - e) ** 2 for m, e in zip(found.center, exact_mean, strict=True)))
    assert off <= found.center_error * found.scale <= 1e-14 * offset


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("row", [[0.1, 0.2, 0.3], [1e8 + 0.1, 0.0, -7.3], [0.0, 0.0, 0.0], [1e-200, 3e-200, 0.0]])
def test_equal_rows_have_no_spread_however_many_they_are(container: Any, row: list[float]) -> None:
    # 0.1 added 150,000 times is off by 1e-12 of itself
    X = container(np.tile(np.array(row), (150_000, 1)))
    found = geometry(X)
    assert found.center.tolist() == row
    assert found.max_norm == found.variances[0] == 0.0
    assert found.scale == 1.0


def test_rows_an_ulp_apart_are_not_equal() -> None:
    found = geometry(np.array([[1e8, 1.0], [np.nextafter(1e8, 2e8), 1.0]]))
    assert found.scale == pytest.approx(np.spacing(1e8), rel=0.6)
    assert found.center_error * found.scale >= np.spacing(1e8) / 2


@pytest.mark.parametrize("far", [1e3, -1e60])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_rows_of_weight_zero_move_neither_centre_nor_spread(container: Any, far: float) -> None:
    rng = np.random.default_rng(3)
    X, w = rng.normal(size=(50, 3)), rng.gamma(1.0, size=50)
    plain = geometry(X, w)
    found = geometry(container(np.vstack([X, np.full((2, 3), far)])), np.append(w, [0, 0]))
    np.testing.assert_allclose(found.center, plain.center, rtol=1e-12)
    assert found.scale == pytest.approx(plain.scale, rel=1e-9)
    assert found.variances[0] == pytest.approx(plain.variances[0], rel=1e-9)
    with pytest.raises(InvalidInputError, match="at most 1e\\+70 bandwidths"):  # whose fourth power overflows
        geometry(container(np.vstack([X, np.full((2, 3), 1e100 * far)])), np.append(w, [0, 0]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("container", [np.array, sp.csr_array])
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_whatever_is_not_finite_is_refused(container: Any, value: float, weight: float) -> None:
    X, w = np.ones((20, 3)), np.ones(20)
    X[7, 1], w[7] = value, weight
    with pytest.raises(InvalidInputError, match="row 7"):
        geometry(container(X), w)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_extent_is_that_of_the_rows_with_weight(container: Any, sign: float) -> None:
    X = sign * np.array([[1.0, -3.0], [2.0, 0.0], [0.0, 50.0]])
    for w in (np.ones(3), np.array([1.0, 1.0, 0.0])):
        low, high = extent(blocks.Block(0, container(X), w))
        np.testing.assert_array_equal(low, X[w > 0].min(axis=0))
        np.testing.assert_array_equal(-high, X[w > 0].max(axis=0))
    assert (extent(blocks.Block(0, container(X), np.zeros(3))) == np.inf).all()


@given(seed=st.integers(0, 30), n=st.integers(1, 3000), off=st.floats(0, 3))
def test_the_farthest_row_is_found_or_bounded(seed: int, n: int, off: float) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    mean = X.mean(axis=0)
    near = mean + off * rng.standard_normal(2)
    found = Survey(near, {}, False)
    found.update(blocks.Block(0, X, np.ones(n), None))
    truth = np.linalg.norm(X - mean, axis=1).max()
    value, exact = found.farthest(mean)
    if exact:
        assert value == pytest.approx(truth, rel=1e-12)
    else:
        assert value >= truth * (1 - 1e-12)
    if off == 0 or n < passes._FARTHEST_KEPT:
        assert exact


def test_rows_on_a_sphere_need_and_get_a_pass_of_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X = X[np.argsort(X[:, 0])]  # and the first rows are no guide to the mean
    path, names = written(tmp_path, X, np.ones(5000)), [f"x{i}" for i in range(4)]
    chosen = select(path, 100, columns=names, bound="closed-form", preparation=None)
    assert "farthest row" in chosen.report.seconds
    ball = chosen.coreset.ball
    assert ball is not None
    assert ball.scale == pytest.approx(np.linalg.norm(X - X.mean(axis=0), axis=1).max(), rel=1e-12)


@pytest.mark.slow
@given(
    seed=st.integers(0, 1000),
    n=st.integers(1, 400),
    size=st.integers(1, 450),
    step=st.integers(1, 100),
    ties=st.booleans(),
)
def test_a_pool_fed_in_pieces_draws_what_the_table_draws(seed: int, n: int, size: int, step: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.random(n) * (rng.random(n) > 0.2)
    if ties:
        scores = np.where(scores > 0, 1e-308, 0.0)  # keys overflow: all are equal
    if not scores.any():
        scores[0] = 1.0
    weights = scores * 3.0
    pool = KeyPool(seed, np.array([size]))
    pool._limit = 50
    for start in range(0, n, step):
        part = slice(start, start + step)
        other = KeyPool(seed, np.array([size]))
        other.update(start, scores[part], weights[part], extra=np.arange(n)[part])
        pool.merge(other)
    (draw,) = pool.winners()[1]
    if not ties:
        expected = DrawTable(scores, weights).keys(size, seed)
        np.testing.assert_array_equal(draw.indices, expected.indices)
        np.testing.assert_array_equal(draw.weights, expected.weights)
    assert draw.indices.size == min(size, np.count_nonzero(scores))
    columns = pool.columns()
    np.testing.assert_array_equal(columns["extra"], columns["row"])


def test_groups_are_drawn_as_if_each_were_alone() -> None:
    rng = np.random.default_rng(0)
    n, sizes = 3000, np.array([50, 7, 400])
    scores, groups = rng.random(n), rng.integers(3, size=n)
    pool = KeyPool(9, sizes)
    for start in range(0, n, 250):
        part = slice(start, start + 250)
        pool.update(start, scores[part], scores[part], groups[part])
    for group, draw in enumerate(pool.winners()[1]):
        alone = np.where(groups == group, scores, 0.0)
        expected = DrawTable(alone, alone).keys(int(sizes[group]), 9)
        np.testing.assert_array_equal(draw.indices, expected.indices)
        np.testing.assert_array_equal(draw.weights, expected.weights)


def test_a_guessed_bar_saves_rows_and_a_low_one_is_noticed() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random(50_000) ** 2 + 1e-3
    sample = rng.choice(50_000, 2000, replace=False)
    rates = np.full(2000, 25.0)
    bars = guess_bars(scores[sample], rates, np.array([1000]), np.zeros(2000, dtype=int))
    guided, free = KeyPool(1, np.array([1000]), bars), KeyPool(1, np.array([1000]))
    for pool in (guided, free):
        pool._limit = 10**9  # nothing is sorted out before the end
        for first in range(0, 50_000, 2500):
            pool.update(first, *[scores[first : first + 2500]] * 2)
    assert guided._pending < 0.2 * free._pending
    assert guided.is_complete()
    np.testing.assert_array_equal(guided.winners()[1][0].indices, free.winners()[1][0].indices)
    low = KeyPool(1, np.array([1000]), bars / 10)
    low.update(0, scores, scores)
    assert not low.is_complete()


def test_a_function_of_blocks_is_reduced_in_the_order_of_the_rows() -> None:
    X = np.arange(2_000_000.0).reshape(-1, 20)
    runner = array_runner(X, np.ones(len(X)))
    starts = runner.collect("starts", lambda block: block.start)
    assert starts == sorted(starts)
    assert len(starts) > 1
    assert runner.reduce("largest", lambda block: float(block.X.max()), max) == X.max()
    assert runner.reduce("text", lambda block: f"{block.start} ", operator.add).split() == [
        str(start) for start in starts
    ]
    assert list(runner.seconds) == ["starts", "largest", "text"]
