"""Any array: a result that keeps its promises, or a clear error; never a warning, never another exception.

Warnings are errors in this suite, so that an overflow that escapes fails these tests too.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from coresift import (
    Coreset,
    CoresiftError,
    LaplacianCoreset,
    QueryBall,
    RBFCoreset,
    StreamingCoreset,
    audit,
    l1_svd,
    open_rows,
    select,
)
from coresift.data import load_dataset
from coresift.selection import RBF, AdaptiveRandom, Full, Laplacian, PerClass, Random, SelectionContext

# What a caller may be told. TypeErrors and ValueErrors of ours derive from CoresiftError; of others none may come.
REFUSED = CoresiftError

EXPONENTS = st.integers(-310, 308)
NUMBERS = st.one_of(
    st.floats(-3, 3),
    st.integers(-5, 5).map(float),
    st.builds(lambda sign, power: sign * 10.0**power, st.sampled_from([-1.0, 1.0]), EXPONENTS),
)
SPECIAL = st.sampled_from([np.nan, np.inf, -np.inf, 5e-324, 1.7e308, -0.0])


@st.composite
def matrices(draw: st.DrawFn, special: bool = True, min_rows: int = 0, min_columns: int = 0) -> Any:
    """Rows and columns in many types, scales and containers; mostly finite."""
    shape = (draw(st.integers(min_rows, 12)), draw(st.integers(min_columns, 4)))
    entries = st.one_of(NUMBERS, SPECIAL) if special and draw(st.integers(0, 4)) == 0 else NUMBERS
    if draw(st.booleans()):  # one scale for all entries: mixtures of scales are mostly refused
        scale = 10.0 ** draw(st.integers(-300, 299))
        entries = st.floats(-3, 3).map(lambda value: value * scale)
    X = draw(hnp.arrays(np.float64, shape, elements=entries))
    if draw(st.booleans()) and shape[0] > 2:
        X[draw(st.integers(1, shape[0] - 1))] = X[0]  # equal rows
    kind = draw(st.sampled_from(KINDS))
    with np.errstate(all="ignore"):
        return KINDS_BY_NAME[kind](X)


def _object(X: np.ndarray) -> np.ndarray:
    return X.astype(object)


def _frame(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])


def _polars(X: np.ndarray) -> pl.DataFrame:
    return pl.DataFrame({f"c{i}": X[:, i] for i in range(X.shape[1])})


def _frozen(X: np.ndarray) -> np.ndarray:
    X.setflags(write=False)
    return X


KINDS_BY_NAME: dict[str, Any] = {
    "float64": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "float16": lambda X: X.astype(np.float16),
    "int": lambda X: np.nan_to_num(X).clip(-1e9, 1e9).astype(np.int64),
    "bool": lambda X: X > 0,
    "complex": lambda X: X.astype(np.complex128),
    "words": lambda X: X.astype(str),
    "objects": _object,
    "list": lambda X: X.tolist(),
    "frame": _frame,
    "polars": _polars,
    "csr": sp.csr_array,
    "coo": sp.coo_matrix,
    "fortran": np.asfortranarray,
    "frozen": _frozen,
    "strided": lambda X: np.repeat(X, 2, axis=0)[::2],
    "vector": lambda X: X.reshape(-1),
    "cube": lambda X: X[None],
}
KINDS = ["float64"] * 8 + ["float32"] * 3 + list(KINDS_BY_NAME)

WEIGHTS = st.one_of(
    st.none(),
    st.none(),
    hnp.arrays(np.float64, st.integers(0, 13), elements=st.floats(0, 5)),
    hnp.arrays(np.float64, st.integers(10, 12), elements=st.one_of(NUMBERS, SPECIAL)),
    st.sampled_from([1.0, 0.0, -1.0, "words", [1, None], np.ones((3, 2)), 1e300]),
)
SIZES = st.one_of(
    st.integers(1, 12),
    st.floats(0.01, 1.0),
    st.sampled_from([0, -1, 1.5, np.nan, np.inf, True, None, "3", 10**30, np.int8(3), np.float32(0.5)]),
)


def n_rows_of(X: Any) -> int:
    return len(X) if hasattr(X, "__len__") and not sp.issparse(X) else int(X.shape[0])


def check(core: Coreset, n: int, size: Any = None) -> None:
    assert core.n_samples == n
    assert 1 <= core.size <= n
    assert core.indices.dtype == np.int64
    assert (np.diff(core.indices) > 0).all()
    assert core.indices[0] >= 0
    assert core.indices[-1] < n
    assert np.isfinite(core.weights).all()
    assert (core.weights >= 0).all()
    if isinstance(size, int) and core.method != "iid":
        assert core.size <= size


ESTIMATORS = st.one_of(
    st.builds(
        RBFCoreset,
        bandwidth=st.sampled_from([None, "median", 1.0, 1e-300, 1e300, 0.0, -1.0, "words", np.nan]),
        radius=st.sampled_from([1.0, 1e-3, 50.0, 1e60, 0.0, np.inf, None]),
        bound=st.sampled_from(["auto", "closed-form", "cells", "exact", "paper", "lemma", "words"]),
        n_cells=st.sampled_from([1, 3, 64, 0, 2.5]),
        random_state=st.sampled_from([0, None, np.random.default_rng(1), -1, "words"]),
    ),
    st.builds(
        LaplacianCoreset,
        bandwidth=st.sampled_from([None, "median", 1.0, 1e-300, 1e300]),
        bound=st.sampled_from(["auto", "cells", "exact", "paper"]),
        n_cells=st.sampled_from([1, 64]),
        random_state=st.just(0),
    ),
    st.builds(RBFCoreset, bandwidth=st.sampled_from([None, "median"]), random_state=st.just(0)),
)


@pytest.mark.slow
@given(
    estimator=ESTIMATORS,
    X=matrices(),
    weights=WEIGHTS,
    size=SIZES,
    method=st.sampled_from(["systematic", "iid", "keys", "words"]),
)
@settings(max_examples=150)
def test_estimators(estimator: Any, X: Any, weights: Any, size: Any, method: str) -> None:
    try:
        estimator.fit(X, sample_weight=weights)
    except REFUSED:
        assert not hasattr(estimator, "sensitivities_")
        return
    n = n_rows_of(X)
    values = estimator.sensitivities_
    assert values.shape == (n,)
    assert np.isfinite(values).all()
    assert (values >= 0).all()
    assert estimator.total_sensitivity_ >= 0
    assert isinstance(estimator.advice(), str)
    try:
        core = estimator.sample(size, method=method)
    except REFUSED:
        return
    check(core, n, size)
    assert estimator.sample(size, method=method, random_state=core.seed) == core
    try:
        sample_size = estimator.sample_size(0.5, 0.1)
    except REFUSED:
        return
    assert int(getattr(sample_size, "size", getattr(sample_size, "n_draws", 1))) >= 1


@pytest.mark.slow
@given(X=matrices(special=False, min_rows=3, min_columns=1), weights=WEIGHTS, data=st.data())
@settings(max_examples=60)
def test_certificates_reweighting_and_audits(X: Any, weights: Any, data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from([RBFCoreset, LaplacianCoreset]))
    try:
        estimator = cls(random_state=0).fit(X, sample_weight=weights)
        core = estimator.sample(data.draw(st.integers(1, n_rows_of(X))))
    except REFUSED:
        return
    radius = data.draw(st.sampled_from([None, 1.0, 0.0, 1e-5, 1e5, np.nan]))
    for attempt in (
        lambda: (
            core.certify(
                X, sample_weight=weights, radius=radius, method=data.draw(st.sampled_from(["auto", "exact", "sampled"]))
            ).eps
        ),
        lambda: core.reweight(X, sample_weight=weights),
        lambda: estimator.sample(2, refine=True),
        lambda: audit(X, core, sample_weight=weights, n_starts=2).worst_error,
    ):
        try:
            found = attempt()
        except REFUSED:
            continue
        if isinstance(found, Coreset):
            check(found, n_rows_of(X))
        else:
            assert found >= 0 or np.isnan(found)


@pytest.mark.slow
@given(X=matrices(), tol=st.sampled_from([1e-3, 1e-1, 0.0, np.nan, "words"]))
@settings(max_examples=150)
def test_l1_svd(X: Any, tol: Any) -> None:
    try:
        found = l1_svd(X, tol=tol)
    except REFUSED:
        return
    assert np.isfinite(found.U).all()


@pytest.mark.slow
@given(
    X=matrices(),
    budget=st.one_of(SIZES, st.sampled_from(["5%", "200%", "-1%", "x%", "", "0", "1e400"])),
    method=st.sampled_from(["keys", "systematic", "iid"]),
    loss=st.sampled_from(["gaussian", "laplacian"]),
    bandwidth=st.sampled_from([None, "median", 1.0]),
)
@settings(max_examples=150)
def test_select_of_arrays_and_frames(X: Any, budget: Any, method: str, loss: str, bandwidth: Any) -> None:
    try:
        found = select(X, budget, method=method, loss=loss, bandwidth=bandwidth, n_queries=2)
    except REFUSED:
        return
    check(found.coreset, n_rows_of(X))
    assert all(isinstance(line, str) for line in found.lines())


@pytest.mark.slow
@given(X=matrices())
@settings(max_examples=100)
def test_sources_and_fits_of_them(X: Any) -> None:
    try:
        source = open_rows(X)
        rows = sum(block.n for block in source.blocks())
        assert rows == source.n == n_rows_of(X)
        fitted = RBFCoreset(random_state=0).fit(source)
    except REFUSED:
        return
    assert np.isfinite(fitted.sensitivities_).all()


@given(parts=st.lists(st.tuples(matrices(), WEIGHTS), min_size=1, max_size=4), size=st.integers(1, 5))
@settings(max_examples=60)
def test_streams(parts: list[tuple[Any, Any]], size: int) -> None:
    stream = StreamingCoreset(size, random_state=0)
    seen = 0
    for X, weights in parts:
        try:
            stream.partial_fit(X, sample_weight=weights)
        except REFUSED:
            continue
        seen += n_rows_of(X)
    assert stream.n_seen_ == seen
    try:
        check(stream.coreset(), seen)
    except REFUSED:
        return


STRATEGIES = [Random(), AdaptiveRandom(), Full(), RBF(), Laplacian(), PerClass(RBF()), PerClass(Random())]


@given(
    X=matrices(),
    y=hnp.arrays(np.int64, st.integers(0, 12), elements=st.integers(0, 3)),
    strategy=st.sampled_from(STRATEGIES),
    budget=st.integers(-1, 13),
)
@settings(max_examples=100)
def test_strategies(X: Any, y: np.ndarray, strategy: Any, budget: int) -> None:
    if data_is_tabular(X) and len(y) > 0:
        y = np.resize(y, n_rows_of(X))
    try:
        context = SelectionContext(X, y, seed=0)
        core = strategy.select(context, budget, np.random.default_rng(0))
    except REFUSED:
        return
    check(core, len(y))


def data_is_tabular(X: Any) -> bool:
    return hasattr(X, "shape") and len(X.shape) == 2


@pytest.mark.slow
@given(
    X=matrices(),
    y=st.one_of(
        hnp.arrays(np.int64, st.integers(0, 12), elements=st.integers(-3, 3)),
        hnp.arrays(np.float64, st.integers(0, 12), elements=NUMBERS | SPECIAL),
        hnp.arrays(np.str_, st.integers(0, 12)),
    ),
    task=st.sampled_from([None, "classification", "regression"]),
)
@settings(max_examples=100)
def test_data_sets_of_arrays(X: Any, y: np.ndarray, task: Any) -> None:
    if data_is_tabular(X) and len(y) > 0:
        y = np.resize(y, n_rows_of(X))
    try:
        data = load_dataset((X, y), task=task, test_fraction=0.5)
    except REFUSED:
        return
    for part in (data.train, data.test):
        assert np.isfinite(part.x).all()
        assert np.isfinite(part.y).all()


@given(
    indices=st.one_of(hnp.arrays(st.sampled_from([np.int64, np.int8, np.float64]), st.integers(0, 6)), WEIGHTS),
    weights=WEIGHTS,
    n=st.one_of(st.integers(-1, 20), SPECIAL),
)
@settings(max_examples=100)
def test_coresets_made_by_hand(indices: Any, weights: Any, n: Any) -> None:
    try:
        core = Coreset(indices, weights, n)
    except REFUSED:
        return
    assume(core.size)
    check(core, core.n_samples)
    assert len(core.take(np.arange(core.n_samples))[0]) == core.size


@given(center=matrices(), scale=NUMBERS | SPECIAL, radius=NUMBERS | SPECIAL)
def test_balls_made_by_hand(center: Any, scale: float, radius: float) -> None:
    try:
        ball = QueryBall("gaussian", center, scale, radius)
    except REFUSED:
        return
    assert ball.scale > 0
    assert ball.radius > 0
    assert np.isfinite(ball.center).all()


def test_refusals_are_value_and_type_errors() -> None:
    """What the tests above let pass is what callers of scikit-learn catch."""
    with pytest.raises(ValueError, match="X"):
        RBFCoreset().fit(np.full((3, 2), np.nan))
    with pytest.raises(TypeError, match="X"):
        RBFCoreset().fit(np.array([["a", "b"]]))


# What the tests above have found, kept by name.


def test_bandwidths_and_entries_at_the_ends_of_the_floats() -> None:
    """A power that overflowed, of a number that is multiplied by zero; and the largest numbers of all."""
    for X in ([[1e-54]], [[1e9, -1e9]]):
        fitted = LaplacianCoreset(bandwidth=1e-300).fit(X)
        assert fitted.sensitivities_.tolist() == [1.0]
    with pytest.raises(CoresiftError, match=r"X contains -1e\+308 in column 1, row 2"):
        RBFCoreset().fit([[0.0, 0.0], [0.0, 0.0], [0.0, -1e308]])
    for X in (np.full((4, 2), 1e198), np.arange(8.0).reshape(4, 2) * 1e-170, np.full((4, 2), 1e-170)):
        assert select(X, 2).coreset.size == 2


def test_l1_svd_in_any_unit() -> None:
    X = np.random.default_rng(0).standard_normal((20, 3))
    one = l1_svd(X)
    for unit in (1e-229, 1e229):
        other = l1_svd(X * unit)
        np.testing.assert_allclose(other.D, one.D * unit, rtol=1e-9)
        np.testing.assert_allclose(other.U @ other.D @ other.V.T, X * unit, atol=1e-9 * unit)
    with pytest.raises(CoresiftError, match="scale its columns"):
        l1_svd([[-1e-44, -4.0, 1e-213], [2.2e-311, 1e-213, 0.0], [2.2e-311, 1e224, -4.0]])


def test_a_frame_without_columns() -> None:
    with pytest.raises(CoresiftError, match="no column"):
        open_rows(pd.DataFrame(index=range(3)))


def test_a_test_sample_that_is_very_far_away(tmp_path: Path) -> None:
    data = load_dataset(([[0.0], [1e-200], [0.0]], [0, 1, 0]), test=([[1.0]], [0]))
    assert np.isfinite(data.test.x).all()


@pytest.mark.parametrize("content", [b"a\xff,b\n1,2\n", b"a,label\n1,\xff\n"])
def test_names_and_labels_that_are_no_text(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows.csv").write_bytes(content)
    label = "label" if b"label" in content else None
    with pytest.raises(CoresiftError, match=r"rows\.csv: "):
        list(open_rows(tmp_path / "rows.csv", label=label).blocks())
