"""Linear algebra on matrices that are seen as blocks of rows: nothing here needs all rows at once."""

from collections.abc import Iterable, Iterator

import numpy as np
import scipy.linalg

from .points import Matrix, as_dense, row_slices, squared_norms

BLOCK_BYTES = 1 << 21  # a block, its product with a small matrix, and that matrix stay in cache
_MIN_BLOCK_ROWS = 256
_EPS = float(np.finfo(np.float64).eps)


def row_blocks(X: Matrix) -> Iterator[tuple[slice, np.ndarray]]:
    """Dense float64 blocks of rows; views when X is a float64 array."""
    n, d = X.shape
    for rows in row_slices(n, 8.0 * d, max(BLOCK_BYTES, 8 * d * _MIN_BLOCK_ROWS)):
        yield rows, as_dense(X[rows]).astype(np.float64, copy=False)


def stacked_qr(blocks: Iterable[np.ndarray], n_columns: int) -> np.ndarray:
    """R (at most d, d) of the rows of all blocks."""
    stack = np.vstack([np.zeros((0, n_columns)), *blocks])
    if not len(stack):
        return stack
    R: np.ndarray = scipy.linalg.qr(stack, mode="r", overwrite_a=True, check_finite=False)[0]
    return R[:n_columns]


def row_norms(rows: np.ndarray) -> np.ndarray:
    """Euclidean norms; a row that is not zero never gets zero, however small it is."""
    squares = squared_norms(rows)
    tiny = squares < 1e-280
    norms: np.ndarray = np.sqrt(squares)
    if tiny.any():
        few = rows[tiny]
        peak = np.abs(few).max(axis=1, initial=0.0)
        few = few / np.where(peak > 0, peak, 1.0)[:, None]
        norms[tiny] = peak * np.sqrt(squared_norms(few))
    return norms


def add_gram(gram: np.ndarray, Y: np.ndarray, weights: np.ndarray, g: np.ndarray) -> None:
    """Add sum_p (w_p / g_p) y_p y_p^T, which is T^T (sum a a^T / l) T for l = w g. Overwrites Y."""
    Y *= np.sqrt(np.divide(weights, g, out=np.zeros(len(g)), where=g > 1e-300))[:, None]
    if not weights.all():
        Y[weights == 0] = 0.0  # such a row may have overflowed
    gram += Y.T @ Y  # NumPy calls syrk, half the work of a product


def whitening_error(T: np.ndarray, column_unit: np.ndarray) -> tuple[float, np.ndarray]:
    """Relative error of |p T| by rounding, some sqrt(d) eps times the condition; and the inverse it is judged by.

    T = S T' with the columns of T' in the row space of A S, so M^(1/2) is T'^+ S^-1 up to a rotation; T'^+ (r, used
    columns) is returned. Scales of columns add nothing to the error: the condition is for equal ones.
    """
    used = column_unit > 0
    scaled = T[used] / column_unit[used, None]
    inverse = np.linalg.pinv(scaled, 0.1 * _EPS)
    norms = np.linalg.norm(inverse, axis=0)
    condition = np.linalg.norm(inverse / norms, 2) * np.linalg.norm(scaled * norms[:, None], 2)
    return 4.0 * float(np.sqrt(len(T))) * _EPS * float(condition), inverse


def graded_svd(factor: np.ndarray, whitener: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""s, V and V / s of F = Q diag(s) V^T, for F (r, d) of full row rank with right inverse T.

    Columns of very different magnitude spread the singular values beyond what bidiagonalisation resolves; Jacobi
    rotations (LAPACK's gejsv) find each to its own relative accuracy. V then has entries far below eps that matter,
    since s multiplies them. They follow from either of :math:`V = F^\top Q/s` and, for F of full column rank,
    :math:`V = TQs`, whose entry (j, k) errs by eps times :math:`|F_j|/s_k` and :math:`|T_j|s_k`: take the better one.
    """
    r = factor.shape[0]
    peak = float(np.abs(factor).max(initial=0.0))
    if peak > 0 and not 1e-100 < peak < 1e100:  # squares would vanish or overflow: in other units they do not
        s, V, to_u = graded_svd(factor / peak, whitener * peak)
        return s * peak, V, to_u / peak
    norms = np.linalg.norm(factor, axis=0)
    used = norms > 0
    if r == 0 or norms.max() <= 1e4 * norms[used].min():
        _, s, Vt = scipy.linalg.svd(factor, full_matrices=False, check_finite=False)
        return s, Vt.T, Vt.T / s
    peak = float(norms.max())
    s, V, Q, *_ = scipy.linalg.lapack.dgejsv(factor.T / peak, joba=3, jobu=0, jobv=0, jobr=0, jobp=0)
    s = s * peak
    if r < np.count_nonzero(used):
        return s, V, V / s
    to_u = whitener @ Q
    # largest entries instead of norms: the whitener of columns near 1e-200 has none that a float holds
    by_inverse = np.abs(whitener).max(axis=1)[:, None] * s < np.abs(factor).max(axis=0)[:, None] / s
    with np.errstate(over="ignore", invalid="ignore"):  # in entries that are not taken
        return s, np.where(by_inverse, to_u * s, factor.T @ Q / s), to_u
