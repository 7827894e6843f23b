"""Coresets of least squares: exact subsets against fits on all rows, and certificates against dense algebra."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.linalg
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st
from pyarrow import parquet
from sklearn.decomposition import PCA
from sklearn.linear_model import Lasso, LinearRegression, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

from coresift import Coreset, InvalidInputError, LeastSquaresCoreset, SquaresCertificate, open_rows
from coresift.coresets import least_squares
from coresift.coresets.fitting import Runner
from coresift.coresets.uniform import uniform_coreset
from coresift.rows import rows as blocks
from coresift.rows.engines import open_engine


@parametrize_with_checks([LeastSquaresCoreset()])
def test_scikit_learn(estimator: Any, check: Any) -> None:
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("arrays of other libraries are not among the inputs")
    check(estimator)


def table(n: int = 3000, d: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Correlated, heavy-tailed columns of very different units, far from zero; some weights are zero."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(4, (n, d)) @ (np.eye(d) + 0.3 * rng.normal(size=(d, d)))
    y = X @ rng.normal(size=d) + np.sin(X[:, 0]) + rng.normal(size=n)
    X = X * np.logspace(-2, 3, d) + np.linspace(-50, 50, d) * np.logspace(-2, 3, d)
    return X, y, rng.exponential(size=n) * (rng.random(n) > 0.1)


def augmented(X: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
    """[X, 1, y]"""
    return np.column_stack([X, np.ones(len(X)), *([] if y is None else [y])])


def pencil(A: np.ndarray, w: np.ndarray, core: Coreset) -> np.ndarray:
    """Eigenvalues by dense algebra, in standardised columns; A of full rank with the constant second to last."""
    B = A.copy()
    others = [j for j in range(A.shape[1]) if np.ptp(A[:, j]) > 0]
    B[:, others] = (A[:, others] - A[:, others].mean(axis=0)) / A[:, others].std(axis=0)
    S = B[core.indices]
    return np.asarray(scipy.linalg.eigh((S.T * core.weights) @ S, (B.T * w) @ B, eigvals_only=True))


# The exact subset


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fits_on_the_exact_subset_are_those_on_all_rows(dtype: Any) -> None:
    X, y, w = table()
    X = X.astype(dtype).astype(np.float64)
    core = LeastSquaresCoreset().fit(X.astype(dtype), y, w).sample(exact=True)
    assert core.size <= 8 * 9 // 2
    assert (core.weights > 0).all()
    assert core.weights.sum() == pytest.approx(w.sum(), rel=1e-12)
    assert core.method == "exact"
    Xs, ys, ws = core.take(X, y)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    Zs = (Xs - X.mean(axis=0)) / X.std(axis=0)
    for model in (LinearRegression(), Ridge(3.0), Lasso(0.05, tol=1e-13, max_iter=100_000)):
        whole, part = (type(model)(**model.get_params()) for _ in range(2))
        whole.fit(Z, y, sample_weight=w)
        part.fit(Zs, ys, sample_weight=ws)
        np.testing.assert_allclose(part.coef_, whole.coef_, rtol=1e-8, atol=1e-8)
        assert part.intercept_ == pytest.approx(whole.intercept_, abs=1e-8)
        assert (whole.coef_ != 0).any()
    assert core.guarantee is not None
    assert core.guarantee.eps < 1e-9


def test_pca_on_the_exact_subset_is_that_of_all_rows() -> None:
    X, _, _ = table(d=5)
    X = (X - X.mean(axis=0)) / X.std(axis=0) * [5.0, 4.0, 3.0, 2.0, 1.0]
    core = LeastSquaresCoreset().fit(X).sample(exact=True)
    assert core.size <= 6 * 7 // 2
    Xs, ws = core.take(X)
    mean = ws @ Xs / ws.sum()
    np.testing.assert_allclose(mean, X.mean(axis=0), atol=1e-10)
    rows = np.sqrt(ws * (len(X) - 1) / ws.sum())[:, None] * (Xs - mean)
    values, axes = scipy.linalg.eigh(rows.T @ rows / (len(X) - 1))
    pca = PCA().fit(X)
    np.testing.assert_allclose(values[::-1], pca.explained_variance_ * (len(X) - 1) / len(X), rtol=1e-8)
    np.testing.assert_allclose(np.abs(np.sum(axes[:, ::-1].T * pca.components_, axis=1)), 1.0, atol=1e-8)


@settings(max_examples=20, deadline=None)
@given(
    n=st.integers(2, 400), d=st.integers(1, 5), seed=st.integers(0, 10**6), kind=st.sampled_from(["", "one-hot", "y"])
)
def test_exact_subset_properties(n: int, d: int, seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_t(2, (n, d))
    if kind == "one-hot":
        X = np.column_stack([X[:, :1], np.eye(d)[rng.integers(0, d, n)]])  # collinear with the constant
    y = X.sum(axis=1) if kind == "y" else rng.normal(size=n)
    w = rng.integers(0, 4, n).astype(float)
    w[0] = 1.0
    est = LeastSquaresCoreset().fit(X, y, w)
    core = est.sample(exact=True)
    most = est.rank_ * (est.rank_ + 1) // 2
    assert core.size <= max(most, np.count_nonzero(w) if n <= most else 0)
    assert (core.weights > 0).all()
    A = augmented(X, y)
    gram, S = (A.T * w) @ A, A[core.indices]
    unit = np.sqrt(np.maximum(gram.diagonal(), 1e-300))
    np.testing.assert_allclose(((S.T * core.weights) @ S - gram) / unit / unit[:, None], 0.0, atol=1e-10)


def test_few_rows_are_all_kept_with_their_weights() -> None:
    X, y, w = table(n=30)
    core = LeastSquaresCoreset().fit(X, y, w).sample(exact=True)
    np.testing.assert_array_equal(core.indices, np.flatnonzero(w))
    np.testing.assert_array_equal(core.weights, w[w > 0])


def test_collinear_columns_need_fewer_rows() -> None:
    X, y, _ = table(d=4)
    doubled = np.hstack([X, 2.0 * X + 1.0, np.full((len(X), 1), 7.0)])
    est = LeastSquaresCoreset().fit(doubled, y)
    assert est.rank_ == 6
    core = est.sample(exact=True)
    assert core.size <= 6 * 7 // 2
    A = (doubled - doubled.mean(axis=0)) / np.where(doubled.std(axis=0) > 0, doubled.std(axis=0), 1.0)
    np.testing.assert_allclose(
        (A[core.indices].T * core.weights) @ A[core.indices] / len(A), A.T @ A / len(A), atol=1e-9
    )


def test_more_columns_than_exact_takes_are_refused() -> None:
    X = np.random.default_rng(0).normal(size=(100, 65))
    with pytest.raises(InvalidInputError, match=r"exact=True takes at most 64 columns, but X has 65"):
        LeastSquaresCoreset().fit(X).sample(exact=True)


# The certificate


@pytest.mark.parametrize("has_target", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_certificate_is_the_pencil_of_all_rows(has_target: bool, seed: int) -> None:
    X, y, w = table(seed=seed)
    est = LeastSquaresCoreset(random_state=seed).fit(X, y if has_target else None, w)
    core = est.sample(300)
    found = est.certify(core)
    values = pencil(augmented(X, y if has_target else None), w, core)
    assert found.lowest == pytest.approx(values[0], abs=1e-8)
    assert found.highest == pytest.approx(values[-1], abs=1e-8)
    assert found.lowest <= values[0] + 1e-10
    assert found.highest >= values[-1] - 1e-10
    assert found.rank == est.rank_ == len(values)
    assert core.guarantee is not None
    assert core.guarantee.eps == pytest.approx(found.eps, rel=1e-12)
    assert "all queries (extreme eigenvalues)" in str(core.guarantee)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_no_theta_beats_the_certificate(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y, w = table(n=400, d=3, seed=seed % 7)
    est = LeastSquaresCoreset(random_state=seed).fit(X, y, w)
    core = est.sample(60)
    found, A = est.certify(core), augmented(X, y)
    S = A[core.indices]
    # random directions, and the worst one by dense algebra
    unit = A.std(axis=0) + np.abs(A.mean(axis=0))
    thetas = rng.normal(size=(5, 50)) / unit[:, None]
    worst = scipy.linalg.eigh((S.T * core.weights) @ S / unit / unit[:, None], (A.T * w) @ A / unit / unit[:, None])[1]
    for theta in (*thetas.T, *(worst / unit[:, None]).T):
        ratio = (core.weights @ (S @ theta) ** 2) / (w @ (A @ theta) ** 2)
        assert found.lowest - 1e-8 <= ratio <= found.highest + 1e-8
        assert abs(ratio - 1.0) <= found.eps + 1e-8


@pytest.mark.parametrize("seed", range(4))
def test_excess_bounds_hold_for_fits_on_the_draw(seed: int) -> None:
    X, y, w = table(seed=seed)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    est = LeastSquaresCoreset(random_state=seed).fit(Z, y, w)
    core = est.sample(600)
    found = est.certify(core)
    Zs, ys, ws = core.take(Z, y)
    assert found.excess <= found.penalized_excess <= (1 + found.eps) / (1 - found.eps) - 1 + 1e-12
    assert found.excess <= (found.eps / (1 - found.eps)) ** 2 + 1e-12

    def objective(model: Any, penalty: float) -> float:
        return float(w @ (y - model.predict(Z)) ** 2 + penalty)

    for alpha in (1e-9, 500.0):
        whole, part = Ridge(alpha).fit(Z, y, w), Ridge(alpha).fit(Zs, ys, ws)
        best, reached = (objective(model, alpha * float(model.coef_ @ model.coef_)) for model in (whole, part))
        assert best * (1 - 1e-9) <= reached <= (1 + found.excess) * best
    # scikit-learn divides the squares by twice the total weight
    whole, part = (Lasso(0.2, tol=1e-10).fit(*a) for a in ((Z, y, w), (Zs, ys, ws * (w.sum() / ws.sum()))))
    factor = 2.0 * w.sum() * 0.2
    best, reached = (objective(model, factor * float(np.abs(model.coef_).sum())) for model in (whole, part))
    assert best <= reached * (1 + 1e-9)


def test_certificate_of_any_subset() -> None:
    X, y, _ = table()
    est = LeastSquaresCoreset(random_state=0).fit(X, y)
    everything = est.certify(Coreset(np.arange(len(X)), np.ones(len(X)), len(X)))
    assert everything.eps < 1e-9
    assert est.certify(uniform_coreset(len(X), 300, 0)).eps > est.certify(est.sample(300)).eps
    few = est.certify(Coreset([1, 2], [1.0, 1.0], len(X)))
    assert (few.lowest, few.excess) == (0.0, np.inf)
    assert est.sample(4).guarantee is None
    assert isinstance(everything, SquaresCertificate)
    with pytest.raises(InvalidInputError, match=r"another loss.*LeastSquaresCoreset has its own certify"):
        est.sample(300).certify(X)
    assert "least-squares" in str(everything)
    with pytest.raises(InvalidInputError, match="drawn from 3 rows"):
        est.certify(Coreset([1], [1.0], 3))


@pytest.mark.parametrize("seed", range(2))
def test_draws_are_unbiased(seed: int) -> None:
    """Every mean weight is within five standard errors of the input weight, which weights of 1 are not."""
    rng = np.random.default_rng(seed)
    X, w = rng.standard_t(2, (40, 2)), rng.exponential(size=40) + 0.1
    est = LeastSquaresCoreset(random_state=seed).fit(X, sample_weight=w)
    draws = np.zeros((1000, 40))
    for draw in draws:
        core = est.sample(12)
        draw[core.indices] = core.weights
    errors = (draws.mean(axis=0) - w) / (draws.std(axis=0) / np.sqrt(len(draws)))
    assert np.abs(errors).max() < 5.0
    counts = ((draws > 0).mean(axis=0) * 40 / 12 - w) / (draws.std(axis=0) / np.sqrt(len(draws)))
    assert np.abs(counts).max() > 5.0


# Inputs


def test_same_subset_from_memory_files_and_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "TASK_BYTES", 1)  # every row group is a task
    X, y, w = table(n=70_000)  # three groups of blocks, two tasks
    columns = {f"x{i}": column for i, column in enumerate(X.T)}
    parquet.write_table(pa.table({**columns, "y": y, "w": w}), tmp_path / "rows.parquet", row_group_size=30_000)
    expected = LeastSquaresCoreset(random_state=1).fit(X, y, w)
    draw, exact = expected.sample(200), expected.sample(exact=True)
    rows = open_rows(tmp_path / "rows.parquet", target="y", weight="w")
    for workers in (1, 2):
        est = LeastSquaresCoreset(random_state=1)
        with open_engine("local", rows, workers) as engine:
            est.fit_rows(runner=Runner(rows, engine))
            assert est.sample(200) == draw
            assert est.sample(exact=True) == exact
    monkeypatch.setattr(least_squares, "LOADED_BYTES", 500_000)  # rows in a temporary file
    assert LeastSquaresCoreset(random_state=1).fit(rows).sample(exact=True) == exact
    assert exact.size <= 36


def test_sparse_frames_and_pickles() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 5)) * (rng.random((500, 5)) < 0.4)
    est = LeastSquaresCoreset(random_state=0).fit(X)
    core = est.sample(50)
    assert (
        LeastSquaresCoreset(random_state=0).fit(sp.csr_matrix(X)).sample(50).indices.tolist() == core.indices.tolist()
    )
    named = LeastSquaresCoreset(random_state=0).fit(pd.DataFrame(X, columns=list("abcde")))
    assert named.feature_names_in_.tolist() == list("abcde")
    assert named.sample(50) == core
    assert est.sample(50, random_state=core.seed) == core
    with pytest.raises(InvalidInputError, match="fit again"):
        pickle.loads(pickle.dumps(est)).sample(10)


def test_coresets_are_saved_with_their_guarantee(tmp_path: Path) -> None:
    X, y, _ = table(n=500)
    core = LeastSquaresCoreset(random_state=0).fit(X, y).sample(exact=True)
    core.save(tmp_path / "core.npz")
    assert Coreset.load(tmp_path / "core.npz") == core


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y, w: X.__setitem__((7, 2), np.nan), r"NaN in column 2, row 7"),
        (lambda X, y, w: X.__setitem__((7, 2), 1e200), r"1e\+200 in column 2, row 7"),
        (lambda X, y, w: y.__setitem__(3, np.inf), "y"),
        (lambda X, y, w: w.__setitem__(3, -1.0), r"sample_weight\[3\] = -1"),
        (lambda X, y, w: w.fill(0.0), "zero|positive"),
    ],
)
def test_bad_numbers_are_refused(change: Any, message: str) -> None:
    X, y, w = table(n=100)
    change(X, y, w)
    with pytest.raises(InvalidInputError, match=message):
        LeastSquaresCoreset().fit(X, y, w)


def test_bad_arguments_are_refused() -> None:
    X, y, _ = table(n=100)
    est = LeastSquaresCoreset().fit(X, y)
    for arguments in ({}, {"size": 10, "exact": True}):
        with pytest.raises(InvalidInputError, match="exact=True"):
            est.sample(**arguments)
    with pytest.raises(InvalidInputError, match="between 1 and the number of samples"):
        est.sample(101)
    with pytest.raises(InvalidInputError, match="2 columns; one target"):
        LeastSquaresCoreset().fit(X, np.column_stack([y, y]))
    with pytest.raises(InvalidInputError, match="y does not go with Rows"):
        LeastSquaresCoreset().fit(open_rows(X), y)


def test_constant_data() -> None:
    est = LeastSquaresCoreset(random_state=0).fit(np.full((50, 3), 2.0), np.ones(50))
    assert est.rank_ == 1
    core = est.sample(exact=True)
    assert (core.size, core.weights.sum()) == (1, pytest.approx(50.0))
    assert est.sample(5).guarantee is not None
