r"""The l1-SVD ("f-SVD") of weighted rows, from their Lewis weights, in passes that keep nothing per row.

For rows :math:`a_p = w_p\,p` the Lewis weights are the fixed point of :math:`\ell_p = \sqrt{a_p^\top M(\ell)^+ a_p}`,
:math:`M(\ell) = \sum_p a_p a_p^\top / \ell_p` (Cohen and Peng, "Lp row sampling by Lewis weights", 2015). For *any*
:math:`\ell > 0` on rows K that sums to the rank r, :math:`\tau_p = \sqrt{a_p^\top M^+ a_p}` and :math:`\kappa \ge
\max_K \tau/\ell`, the sensitivity :math:`\sup_x |a_p\cdot x|/|Ax|_1` is at most :math:`\min(1, \kappa\tau_p)`, and
:math:`r \le \sum\kappa\tau \le \kappa r`: docs/theory.md ("Lewis weights are the f-SVD"). One small matrix is the whole
state: :math:`\ell_p = c\,w_p|pT|` for a factor T (d, r), and a pass sums up :math:`\sum_K (w_p/|pT|)\,(pT)^\top(pT) =
Q\,\mathrm{diag}(\lambda)\,Q^\top`, which gives the next T and :math:`\kappa = (c\,\lambda_{\min})^{-1/2}`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from .lewis_passes import Outside, Run, Space, Step, Survey, Triangle, WeightedRows, row_norms, run_over
from .points import Matrix, as_dense, log_shares, row_slices

BLOCK_BYTES = 1 << 21  # a block, its product with a small matrix, and that matrix stay in cache
_MIN_BLOCK_ROWS = 256
_EPS = float(np.finfo(np.float64).eps)
_SAMPLE_TOL = 0.02
_MAX_GRAM_CONDITION = 1e10  # a Gram matrix beyond it has lost digits that the tolerance may need
_NEGLIGIBLE = 1e-80  # a column this small beside the largest weight is left to the rows outside
_MAX_STEPS = 40


@dataclass(frozen=True, eq=False)
class Lewis:
    """The factors that :func:`lewis_factor` finds; ``a_p = w_p p`` are the weighted rows."""

    rows: WeightedRows = field(repr=False)
    kappa: float  # of the early stop, with a margin for rounding; at most about 1 + tol once converged
    n_passes: int  # the survey and those for the rank included
    whitener: np.ndarray = field(repr=False)  # (d, r) T with |p T| = |U(p)| in the retained space: F T = I
    # (r, d) F with F^T F = M / kappa^2: |Fx|_2 <= |Ax|_1 <= kappa sqrt(r) |Fx|_2, up to the factor exp(rows.log_unit)
    factor: np.ndarray = field(repr=False)

    @property
    def rank(self) -> int:
        return self.factor.shape[0]

    def log_values(self, rows: np.ndarray, log_weights: np.ndarray) -> np.ndarray:
        r"""(b,) :math:`\log\min(1, \kappa\tau_p)`, bounds on log-sensitivities; ``-inf`` for a row or weight of 0."""
        with np.errstate(over="ignore", invalid="ignore"):  # rows of weight zero can be of any size
            log_values = log_shares(row_norms(rows @ self.whitener)) + (log_weights - self.rows.log_unit)
        log_values[self.rows.outside(rows)] = 0.0
        np.fmin(log_values, 0.0, out=log_values)  # rows out of M may overflow, to infinity or not-a-number: 1
        log_values[log_weights == -np.inf] = -np.inf
        return log_values

    @cached_property
    def svd(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """s (r,) and V (d, r) of ``factor = Q diag(s) V^T``, and ``V / s`` (d, r), which takes p to U(p)."""
        return graded_svd(self.factor, self.whitener)


def lewis_factor(run: Run, survey: Survey, tol: float, max_steps: int = _MAX_STEPS) -> Lewis:
    """Iterate to the Lewis weights of the surveyed rows until ``kappa - 1 <= tol``, or for ``max_steps`` passes."""
    n_passes = 1  # the survey

    def counted(label: str, prototype: Any) -> Any:
        nonlocal n_passes
        n_passes += 1
        return run(label, prototype)

    rows, units = WeightedRows(survey.read, survey.log_unit), survey.column_unit
    found = None
    if (T := _from_sample(survey)) is not None:
        found = _iterate(counted, rows, units, T, tol, max_steps, is_sample=True)
    if found is None:
        rows, units, T = _from_rows(counted, rows, units, survey.has_hidden)
        found = _iterate(counted, rows, units, T, tol, max_steps, is_sample=False)
    assert found is not None
    T, kappa = found
    factor = np.zeros(T.T.shape)
    if T.shape[1]:
        used = units > 0
        margin, inverse = whitening_error(T, units)
        kappa *= 1.0 + margin
        factor[:, used] = inverse / units[used] / kappa
    return Lewis(rows, kappa, n_passes, T * kappa, factor)


def _from_sample(survey: Survey) -> np.ndarray | None:
    """The whitening factor (d, r) of the sample, if fit for all rows: full rank on the columns in use."""
    if not survey.sample or survey.has_hidden:
        return None
    X, log_w = (np.concatenate(parts) for parts in zip(*survey.sample, strict=True))
    survey.sample.clear()
    inner = array_lewis(X, log_w, _SAMPLE_TOL)
    units = survey.column_unit
    used = units > 0
    if inner.rank < used.sum() or inner.rows.spaces:
        return None
    scaled = inner.factor[:, used] * units[used]
    if np.linalg.cond(scaled) ** 2 > _MAX_GRAM_CONDITION:
        return None
    T = np.zeros((len(units), inner.rank))
    T[used] = np.linalg.inv(scaled) * units[used, None]
    return T


def _from_rows(
    run: Run, rows: WeightedRows, units: np.ndarray, has_hidden: bool
) -> tuple[WeightedRows, np.ndarray, np.ndarray]:
    """The whitening factor of the rows with equal l, by QR; rows outside their numerical span are set aside."""
    while True:  # ends: each round but the last takes rows out of M
        R = run("QR", Triangle(rows, units)).finish()
        column_norms = np.linalg.norm(R, axis=0)
        # Householder QR errs by column, so unequal columns are equilibrated before the rank is decided.
        unit = np.divide(1.0, column_norms, out=np.zeros(len(units)), where=column_norms > _NEGLIGIBLE)
        _, sigma, Vt = scipy.linalg.svd(R * unit, full_matrices=False, check_finite=False)
        # a direction is kept, with a kappa that allows for its rounding, or is rounding; rows that see it are set aside
        noise = 16.0 * _EPS * float(np.sqrt(len(units))) * sigma.max(initial=0.0)
        Vt = Vt[sigma > 4.0 * noise]
        equilibrated = units * unit
        T = equilibrated[:, None] * (Vt.T / sigma[: len(Vt)])
        if len(Vt) == np.count_nonzero(units) and not has_hidden:
            return rows, equilibrated, T
        space = Space(Vt, equilibrated, T, noise)
        found = run("rank", Outside(rows, space))
        if found.any:
            rows = WeightedRows(rows.read, rows.log_unit, (*rows.spaces, space))
        if not found.any_in_m:
            return rows, equilibrated, T


def _iterate(
    run: Run, rows: WeightedRows, units: np.ndarray, T: np.ndarray, tol: float, max_steps: int, *, is_sample: bool
) -> tuple[np.ndarray, float] | None:
    """Run the fixed point from the factor T; None if T, a sample's, proves unfit. Returns a factor and its kappa."""
    if T.shape[1] == 0:
        return T, 1.0
    tol = max(tol, whitening_error(T, units)[0])  # below it kappa is noise
    history: list[float] = []  # of log kappa since the last extrapolation
    while True:
        eigenvalues, rotated = run("Lewis weights", Step(rows, T)).finish()
        if is_sample and eigenvalues[0] * _MAX_GRAM_CONDITION < eigenvalues[-1]:
            return None  # from the rows themselves, the eigenvalues of the first G lie in [1, sqrt(n r)]
        max_steps -= 1
        kappa = max(1.0, float(eigenvalues[0] ** -0.5))
        if kappa <= 1.0 + tol or max_steps <= 0:
            return rotated * eigenvalues**-0.5, kappa
        # The linearised map has eigenvalues in [0, 1/2]. When log kappa shrinks by c a pass, a step of
        # 1/(1-c) in log M removes the slowest part (Aitken). Any factor is valid: it risks only a pass.
        history.append(float(np.log(kappa)))
        rate = min(0.5, history[-1] / history[-2]) if len(history) >= 3 else 0.0
        rate, history = (rate, []) if rate > 0.2 else (0.0, history)
        T = rotated * eigenvalues ** (-0.5 / (1.0 - rate))


def array_lewis(X: Matrix, log_weights: np.ndarray, tol: float, max_steps: int = _MAX_STEPS) -> Lewis:
    """Find the Lewis weights of the rows of an array."""
    run = run_over(lambda: weighted_blocks(X, log_weights))
    return lewis_factor(run, run("survey", Survey(tuple, *X.shape)), tol, max_steps)


def row_blocks(X: Matrix) -> Iterator[tuple[slice, np.ndarray]]:
    """Dense float64 blocks of rows; views when X is a float64 array."""
    n, d = X.shape
    for rows in row_slices(n, 8.0 * d, max(BLOCK_BYTES, 8 * d * _MIN_BLOCK_ROWS)):
        yield rows, as_dense(X[rows]).astype(np.float64, copy=False)


def weighted_blocks(X: Matrix, log_weights: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield dense float64 blocks of rows, and their log-weights."""
    for rows, block in row_blocks(X):
        yield block, log_weights[rows]


def whitening_error(T: np.ndarray, column_unit: np.ndarray) -> tuple[float, np.ndarray]:
    """Relative error of |p T|, some sqrt(d) eps times the condition; and the inverse of T in units of the columns."""
    used = column_unit > 0
    scaled = T[used] / column_unit[used, None]
    inverse = np.linalg.pinv(scaled, 0.1 * _EPS)
    norms = np.linalg.norm(inverse, axis=0)
    condition = np.linalg.norm(inverse / norms, 2) * np.linalg.norm(scaled * norms[:, None], 2)
    return 4.0 * float(np.sqrt(len(T))) * _EPS * float(condition), inverse


def graded_svd(factor: np.ndarray, whitener: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""s, V and V / s of F = Q diag(s) V^T, for F (r, d) of full row rank with right inverse T.

    Jacobi rotations (LAPACK's gejsv) find singular values of any spread, each to its own relative accuracy. Entries of
    V far below eps then matter. They follow from :math:`V = F^\top Q/s` and, for F of full column rank, from
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


@dataclass(frozen=True, eq=False)
class L1SVD:
    r"""Factors with :math:`|DV^\top x|_2 \le \sum_p w_p|p\cdot x| \le \kappa\sqrt r\,|DV^\top x|_2`, all x.

    ``kappa`` is at most 1 + tol and a margin for rounding, :math:`10^{-14}` for most data, up to 0.15 for nearly
    dependent columns; the lower inequality holds at any tolerance. Columns that agree to some :math:`10^{-13}` count as
    dependent: all of this then holds up to :math:`10^{-12}\sqrt d \sum_p w_p|p||x|`, in columns of equal length.

    Attributes
    ----------
    rank, n_passes : int, the rank r, and passes over the rows
    D : ndarray of shape (r, r), diagonal, positive
    V : ndarray of shape (d, r), orthonormal columns that span the rows of X
    U : ndarray of shape (n, r)
        :math:`U(p) = p\,V D^{-1}`, made on first use: it is as large as the data.
    lewis_weights : ndarray of shape (n,)
        :math:`\min(1, w_p|U(p)|_2) \ge \sup_x w_p|p\cdot x| / \sum_q w_q|q\cdot x|`; 1 outside the numerical row space.
    to_u : ndarray of shape (d, r), :math:`V D^{-1}`

    Examples
    --------
    >>> factors = l1_svd(np.random.default_rng(0).normal(size=(100, 3)))
    >>> factors.rank, factors.U.shape, bool(factors.lewis_weights.max() <= 1.0)
    (3, (100, 3), True)
    """

    D: np.ndarray
    V: np.ndarray
    lewis_weights: np.ndarray
    rank: int
    kappa: float
    n_passes: int
    to_u: np.ndarray = field(repr=False)
    _X: Matrix = field(repr=False)

    @cached_property
    def U(self) -> np.ndarray:
        U = np.empty((self._X.shape[0], self.rank))
        for rows, block in row_blocks(self._X):
            U[rows] = block @ self.to_u
        return U


def l1_svd(X: Matrix, sample_weight: np.ndarray | None = None, tol: float = 1e-3) -> L1SVD:
    """Find the factors for an array or CSR matrix that has been checked; :func:`coresift.l1_svd` is the public form."""
    log_weights = np.zeros(X.shape[0]) if sample_weight is None else log_shares(sample_weight)
    found = array_lewis(X, log_weights, tol)
    log_values = np.concatenate([found.log_values(*block) for block in weighted_blocks(X, log_weights)])
    diagonal, V, to_u = found.svd
    largest = np.exp(found.rows.log_unit)
    parts = (np.diag(diagonal * largest), V, np.exp(log_values))
    return L1SVD(*parts, found.rank, found.kappa, found.n_passes + 1, to_u / largest, X)
