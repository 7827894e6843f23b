"""The same rows in any container give the same sensitivities and the same coreset; memory stays by blocks."""

import resource
import sys
import time
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from coresift import LaplacianCoreset, RBFCoreset, audit

CASES = [(RBFCoreset, b) for b in ("closed-form", "cells", "exact", "paper", "lemma")] + [
    (LaplacianCoreset, b) for b in ("cells", "exact", "paper")
]


def _values():
    """Multiples of 1/8 that every width holds exactly, half of them zero."""
    rng = np.random.default_rng(0)
    return np.round(8 * rng.normal(size=(90, 6))) / 8 * (rng.random((90, 6)) < 0.5)


def _memmap(X, tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, X)
    return np.load(path, mmap_mode="r")


def _strided(X, tmp_path):
    wide = np.full((2 * len(X), 3 * X.shape[1]), np.nan)
    wide[::2, ::3] = X
    return wide[::2, ::3]


def _read_only(X, tmp_path):
    X = X.copy()
    X.setflags(write=False)
    return X


def _pandas(X, tmp_path):
    return pytest.importorskip("pandas").DataFrame(X, columns=list("abcdef"))


def _polars(X, tmp_path):
    return pytest.importorskip("polars").DataFrame(X, schema=list("abcdef"))


DENSE = {
    "list": lambda X, _: X.tolist(),
    "tuple of rows": lambda X, _: tuple(map(tuple, X)),
    "float32": lambda X, _: X.astype(np.float32),
    "Fortran": lambda X, _: np.asfortranarray(X),
    "strided": _strided,
    "reversed": lambda X, _: X[::-1].copy()[::-1],
    "read-only": _read_only,
    "memmap": _memmap,
    "objects": lambda X, _: X.astype(object),
    "float16": lambda X, _: X.astype(np.float16),
    "matrix in pandas": _pandas,
    "polars": _polars,
}
SPARSE = {
    "csr_array": lambda X, _: sp.csr_array(X),
    "csr_matrix": lambda X, _: sp.csr_matrix(X),
    "csc": lambda X, _: sp.csc_array(X),
    "coo": lambda X, _: sp.coo_array(X),
    "float32 csr": lambda X, _: sp.csr_array(X.astype(np.float32)),
    "64-bit indices": lambda X, _: _wide_indices(X),
    "explicit zeros": lambda X, _: _explicit_zeros(X),
}


def _wide_indices(X):
    S = sp.csr_array(X)
    S.indices, S.indptr = S.indices.astype(np.int64), S.indptr.astype(np.int64)
    return S


def _explicit_zeros(X):
    rows, columns = np.indices(X.shape).reshape(2, -1)
    return sp.csr_array((X.ravel(), (rows, columns)), shape=X.shape)


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "bound"), CASES)
@pytest.mark.parametrize("container", [*DENSE, *SPARSE])
def test_containers_agree(cls, bound, container, tmp_path):
    X = _values()
    w = np.random.default_rng(1).gamma(1.0, size=90)
    given = (DENSE | SPARSE)[container](X, tmp_path)
    for bandwidth in (None, "median"):
        plain = cls(bandwidth=bandwidth, bound=bound, n_cells=8, random_state=0).fit(X, sample_weight=w)
        other = cls(bandwidth=bandwidth, bound=bound, n_cells=8, random_state=0).fit(given, sample_weight=w)
        np.testing.assert_allclose(other.sensitivities_, plain.sensitivities_, rtol=1e-9)
        np.testing.assert_allclose(other.center_, plain.center_, atol=1e-14)
        assert other.scale_ == pytest.approx(plain.scale_, rel=1e-12)
        for method in ("systematic", "iid", "keys"):
            a, b = plain.sample(20, method=method), other.sample(20, method=method)
            np.testing.assert_array_equal(a.indices, b.indices)
            np.testing.assert_allclose(a.weights, b.weights, rtol=1e-9)
    # enough steps to arrive: a search that is cut short may be anywhere, by the last digit of a start
    found = audit(given, b, sample_weight=w, n_starts=2, n_random=20, max_iter=30)
    expected = audit(X, a, sample_weight=w, n_starts=2, n_random=20, max_iter=30)
    assert found.worst_error == pytest.approx(expected.worst_error, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16, bool])
@pytest.mark.parametrize("sparse", [False, True])
def test_integers_and_booleans_are_numbers(dtype, sparse):
    X = (np.abs(_values()) * 8).astype(dtype)
    given = sp.csr_array(X) if sparse else X
    for cls, bound in CASES:
        if sparse and bound == "cells":
            continue  # among so many ties rounding decides which cell a row belongs to; any partition is valid
        a = cls(bound=bound, random_state=0, n_cells=8).fit(X.astype(float))
        b = cls(bound=bound, random_state=0, n_cells=8).fit(given)
        np.testing.assert_allclose(b.sensitivities_, a.sensitivities_, rtol=1e-9)


def test_weights_in_any_container():
    X, w = _values(), np.random.default_rng(2).integers(1, 9, 90)
    expected = RBFCoreset().fit(X, sample_weight=w.astype(float)).sensitivities_
    given = [w, w.tolist(), w.astype(np.float32), tuple(w)]
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    for weights in [*given, pd.Series(w, index=range(100, 190)), pl.Series(w)]:
        np.testing.assert_array_equal(RBFCoreset().fit(X, sample_weight=weights).sensitivities_, expected)


def _peak(fit):
    tracemalloc.start()
    fit()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "bound"), [c for c in CASES if c[1] in ("closed-form", "cells")])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_second_copy_of_the_data(cls, bound, dtype):
    X = np.random.default_rng(0).standard_normal((60_000, 256), dtype=np.float32).astype(dtype)  # 61 or 123 MB
    cls(bound=bound, n_cells=4, random_state=0).fit(X[:100])  # imports
    # a few blocks of 32 MB and vectors of n; a float64 copy would be 123 MB
    assert _peak(lambda: cls(bound=bound, n_cells=4, random_state=0).fit(X)) < 75e6


def _tall(n, d=50_000, per_row=10):
    rng = np.random.default_rng(0)
    indptr = np.arange(0, n * per_row + 1, per_row)
    return sp.csr_array((rng.normal(size=n * per_row), rng.integers(0, d, n * per_row), indptr), shape=(n, d))


@pytest.mark.parametrize(
    ("cls", "bound"), [(RBFCoreset, "closed-form"), (RBFCoreset, "cells"), (LaplacianCoreset, "cells")]
)
def test_sparse_rows_are_never_densified_whole(cls, bound):
    X = _tall(20_000)  # 2.4 MB; dense it would be 8 GB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    est = cls(bound=bound, n_cells=16, random_state=0).fit(X)
    core = est.sample(0.01)
    took = time.perf_counter() - started
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (1 if sys.platform == "darwin" else 1024)
    assert core.size == 200
    assert est.total_sensitivity_ >= 1
    assert grown < 500e6
    assert took < 30


def test_time_grows_with_the_non_zeros_not_with_the_columns():
    def seconds(d):
        X = _tall(20_000, d)
        best = np.inf
        for _ in range(3):
            started = time.thread_time()
            RBFCoreset(bound="closed-form", random_state=0).fit(X)
            best = min(best, time.thread_time() - started)
        return best

    assert seconds(100_000) < 10 * seconds(1_000)  # a hundred times the columns


def test_tensors_of_a_network():
    """With a graph behind them, and of half the width: features as a model gives them."""
    torch = pytest.importorskip("torch")
    X = _values()
    w = 1.0 + np.arange(90) % 3
    expected = RBFCoreset(random_state=0).fit(X, sample_weight=w).sensitivities_
    for tensor in (torch.tensor(X, requires_grad=True), torch.tensor(X).bfloat16()):
        given = RBFCoreset(random_state=0).fit(tensor, sample_weight=torch.tensor(w, requires_grad=True))
        np.testing.assert_allclose(given.sensitivities_, expected, rtol=1e-5)
