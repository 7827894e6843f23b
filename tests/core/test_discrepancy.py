"""Kernel sums by tiles against dense matrices made by another library."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, strategies as st
from scipy.spatial.distance import cdist

from coresift.core import discrepancy
from coresift.core.discrepancy import (
    first_equal,
    kernel_matrix,
    laplacian_form,
    potential,
    quadratic_form,
    rounding_of_form,
    tile_slices,
)
from coresift.core.points import Points

LOSSES = ("gaussian", "laplacian")


def dense_kernel(Z, loss):
    """(n, n), distances from differences of coordinates: without cancellation."""
    return np.exp(-cdist(Z, Z, "sqeuclidean" if loss == "gaussian" else "euclidean"))


def make_points(X, center=None, scale=1.0):
    center = np.zeros(X.shape[1]) if center is None else center
    Z = ((X.toarray() if sp.issparse(X) else X).astype(np.float64) - center) / scale
    return Points(X, center, scale, float(np.linalg.norm(Z, axis=1).max())), Z


def tolerance(coefficients, loss):
    """Rounding of distances of about 1: of squares for the Gaussian, of roots of squares near 0 for the Laplacian."""
    return (1e-13 if loss == "gaussian" else 1e-7) * max(np.abs(coefficients).sum(), 1e-300) ** 2


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 40),
    d=st.integers(1, 6),
    loss=st.sampled_from(LOSSES),
    kind=st.sampled_from(["float64", "float32", "sparse"]),
    side=st.sampled_from([1, 7, 1024]),
)
def test_sums_are_those_of_the_dense_matrix(seed, n, d, loss, kind, side):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    X = sp.csr_array(X) if kind == "sparse" else X.astype(kind)
    points, Z = make_points(X, center=rng.normal(size=d), scale=2.5)
    K = dense_kernel(Z, loss)
    c = rng.normal(size=n) * (rng.random(n) < 0.7)
    rows = rng.integers(n, size=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discrepancy, "_SIDE", side)
        assert max(s.stop - s.start for s in tile_slices(points, 3000)) == side
        assert quadratic_form(points, c, loss) == pytest.approx(c @ K @ c, rel=0, abs=tolerance(c, loss))
        assert potential(points, rows, c, loss) == pytest.approx(K[rows] @ c, rel=0, abs=1e-6)
        distinct = np.unique(rows)
        matrix = kernel_matrix(points, distinct, loss)
    assert matrix == pytest.approx(K[np.ix_(distinct, distinct)], rel=0, abs=1e-7)
    assert matrix == pytest.approx(matrix.T, rel=0, abs=1e-7)
    assert (matrix.diagonal() == 1.0).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_million_pairs_in_several_tiles(loss):
    rng = np.random.default_rng(0)
    points, Z = make_points(rng.normal(size=(1500, 3)))
    c = rng.normal(size=1500)
    assert len(tile_slices(points, 1500)) == 2
    assert quadratic_form(points, c, loss) == pytest.approx(c @ dense_kernel(Z, loss) @ c, rel=1e-9)


def test_rows_without_a_coefficient_are_not_read():
    X = np.array([[0.0], [np.nan], [1.0]])
    points = Points(X, np.zeros(1), 1.0, 1.0)
    c = np.array([1.0, 0.0, -1.0])
    assert quadratic_form(points, c, "gaussian") == pytest.approx(2.0 - 2.0 * np.exp(-1.0), rel=1e-14)
    assert np.isfinite(potential(points, np.array([0, 2]), c, "gaussian")).all()
    assert quadratic_form(points, np.zeros(3), "gaussian") == 0.0


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("norm", [0.0, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("sparse", [False, True])
def test_rounding_is_covered_where_it_is_worst(loss, norm, sparse):
    # near duplicates far from the origin of the scaled rows: the expansion of the square loses most digits
    rng = np.random.default_rng(1)
    n, d = 60, 50
    X = rng.normal(size=(1, d))
    near = 1e-3 if loss == "gaussian" else 1e-12  # the root is worst at zero
    X = X / max(np.linalg.norm(X), 1e-300) * norm + near * rng.normal(size=(n, d)) / np.sqrt(d)
    points, Z = make_points(sp.csr_array(X) if sparse else X)
    c = rng.normal(size=n)
    error = abs(quadratic_form(points, c, loss) - c @ dense_kernel(Z, loss) @ c)
    assert error <= rounding_of_form(points, c, loss)
    if loss == "laplacian":
        assert laplacian_form(points, c) >= c @ dense_kernel(Z, loss) @ c
    if norm == 1e4:
        plain, _ = make_points(X - X[0])
        assert error > rounding_of_form(plain, c, loss)  # power: the allowance must grow with the norm
    if loss == "laplacian" and norm == 1.0:
        assert error > rounding_of_form(points, c, "gaussian")  # and be that of a root


@pytest.mark.parametrize("sparse", [False, True])
def test_the_allowance_of_distant_pairs_is_small_and_equal_rows_need_none(sparse):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    points, Z = make_points(sp.csr_array(X) if sparse else X)
    c = rng.normal(size=40)
    form = c @ dense_kernel(Z, "laplacian") @ c
    assert form <= laplacian_form(points, c) <= form + 1e-9
    assert rounding_of_form(points, c, "laplacian") > 1e-6  # what it was for all pairs
    doubled, _ = make_points(sp.csr_array(np.repeat(X, 2, axis=0)) if sparse else np.repeat(X, 2, axis=0))
    np.testing.assert_array_equal(first_equal(doubled), np.repeat(np.arange(0, 80, 2), 2))


def test_progress_counts_every_row_once():
    points, _ = make_points(np.random.default_rng(0).normal(size=(2500, 1)))
    seen = []
    quadratic_form(points, np.ones(2500), "gaussian", seen.append)
    assert sum(seen) == 2500
    assert len(seen) == 3


@pytest.mark.slow
def test_wide_rows_come_in_smaller_tiles():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 100_000)).astype(np.float32)
    points = Points(X, np.zeros(X.shape[1]), 300.0, 2.0)
    tracemalloc.start()
    value = quadratic_form(points, np.ones(300), "gaussian")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert value > 300.0
    assert peak < 400e6  # 300 rows as float64 are 240 MB, and a block of them is held up to three times
