r"""The l1-SVD ("f-SVD") of a weighted set of rows, by Lewis weights.

For rows :math:`a_p = w_p\,p` the :math:`\ell_1` Lewis weights are the fixed point of

.. math:: \ell_p = \sqrt{a_p^\top M(\ell)^+ a_p}, \qquad M(\ell) = \sum_p a_p a_p^\top / \ell_p .

The map halves distances in log-space. For *any* :math:`\ell > 0` on a set K of rows, with :math:`\sum_K \ell
= r` the rank, :math:`\tau_p = \sqrt{a_p^\top M^+ a_p}` and :math:`\kappa = \max_K \tau/\ell`,

.. math:: |M^{1/2}x|_2 \le \kappa\,|Ax|_1, \qquad \textstyle\sum_K |a_p\cdot x| \le \sqrt r\,|M^{1/2}x|_2 .

Proof. :math:`|a_p\cdot x| \le \tau_p |M^{1/2}x|` (Cauchy-Schwarz), so :math:`|M^{1/2}x|^2 = \sum_K (a_p\cdot
x)^2/\ell_p \le \kappa\,|M^{1/2}x|\,|Ax|_1`; and :math:`\sum_K \sqrt{\ell_p}\,|a_p\cdot x|/\sqrt{\ell_p} \le
\sqrt{\sum_K \ell}\,|M^{1/2}x|`. Hence :math:`\min(1, \kappa\tau_p)` bounds the sensitivity :math:`\sup_x
|a_p\cdot x|/|Ax|_1` wherever the iteration stops, and :math:`r \le \sum\kappa\tau \le \kappa r`. Source of
the iteration: Cohen and Peng, "Lp row sampling by Lewis weights" (2015).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from .bound import log_shares
from .rowwise import RowBlocks, add_gram, graded_svd, row_blocks, row_norms, stacked_qr, whitening_error

_EPS = float(np.finfo(np.float64).eps)
_SAMPLE_BYTES = 1 << 24  # the warm start's rows
_SAMPLE_TOL = 0.02
_RANK_CUTOFF = 1e-12  # of the largest singular value: below, rounding of the rows outweighs a direction
_MAX_GRAM_CONDITION = 1e10  # a Gram matrix beyond it has lost digits that the tolerance may need
_NEGLIGIBLE = 1e-80  # a column this small beside the largest weight is left to the rows outside


@dataclass(frozen=True, eq=False)
class Lewis:
    r"""What :func:`lewis_weights` found; ``a_p = w_p p`` are the weighted rows.

    Attributes
    ----------
    log_values : ndarray of shape (n,)
        :math:`\log\min(1, \kappa\tau_p)`, which dominates the log-sensitivity of :math:`|a_p\cdot x|`;
        ``-inf`` for rows that are zero or have weight zero.
    outside : ndarray of shape (n,), bool, or None
        Rows with a part outside the retained space (their value is 1). None when there are none.
    rank : int
    kappa : float
        Factor of the early stop, with a margin for rounding; at most about 1 + tol once converged.
    n_passes : int
        Sweeps over all rows, the survey and those for the rank included.
    whitener : ndarray of shape (d, r)
        T with :math:`|p T|_2 = |U(p)|_2` for rows in the retained space: a right inverse of ``factor``.
    factor : ndarray of shape (r, d)
        F with :math:`F^\top F = M/\kappa^2`, for the weights divided by the largest, so
        :math:`|Fx|_2 \le |Ax|_1 \le \kappa\sqrt r\,|Fx|_2` up to the scale ``exp(log_scale)``.
    log_scale : float
        Logarithm of the largest weight.
    """

    log_values: np.ndarray
    outside: np.ndarray | None
    rank: int
    kappa: float
    n_passes: int
    whitener: np.ndarray = field(repr=False)
    factor: np.ndarray = field(repr=False)
    log_scale: float

    @property
    def values(self) -> np.ndarray:
        """The bounds, at most 1."""
        values: np.ndarray = np.exp(self.log_values)
        return values

    @property
    def total(self) -> float:
        """Their sum: at least the rank, at most kappa times it, when no row is outside."""
        return float(self.values.sum())

    @cached_property
    def svd(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """s (r,) and V (d, r) of ``factor = Q diag(s) V^T``, and ``V / s`` (d, r), which takes p to U(p)."""
        return graded_svd(self.factor, self.whitener)


@dataclass(frozen=True, eq=False)
class L1SVD:
    r"""Factors with :math:`|DV^\top x|_2 \le \sum_p w_p|p\cdot x| \le \kappa\sqrt r\,|DV^\top x|_2`, all x.

    ``kappa`` is at most 1 + tol (and a margin for rounding, near :math:`10^{-14}` on well-conditioned data).
    It is folded into D so that the lower inequality, the one that bounds sensitivities, holds at any
    tolerance.

    Attributes
    ----------
    D : ndarray of shape (r, r), diagonal, positive
    V : ndarray of shape (d, r), orthonormal columns that span the rows of X
    U : ndarray of shape (n, r)
        :math:`U(p) = p\,V D^{-1}`, made on first use: it is as large as the data.
    lewis_weights : ndarray of shape (n,)
        :math:`\min(1, w_p|U(p)|_2)`, which dominates :math:`\sup_x w_p|p\cdot x| / \sum_q w_q|q\cdot x|`; 1
        for a row with a part outside the numerical row space.
    """

    D: np.ndarray
    V: np.ndarray
    lewis_weights: np.ndarray
    rank: int
    kappa: float
    n_passes: int
    _X: np.ndarray | sp.csr_array = field(repr=False)
    _to_u: np.ndarray = field(repr=False)  # (d, r) V D^-1

    @cached_property
    def U(self) -> np.ndarray:
        """:math:`U(p) = p V D^{-1}` for each row."""
        U = np.empty((self._X.shape[0], self.rank))
        for rows, block in row_blocks(self._X):
            U[rows] = block @ self._to_u
        return U


def l1_svd(X: np.ndarray | sp.csr_array, sample_weight: np.ndarray | None = None, tol: float = 1e-3) -> L1SVD:
    r"""Find D, V: :math:`|DV^\top x|_2 \le \sum_p w_p|p\cdot x| \le (1+tol)\sqrt r\,|DV^\top x|_2`, all x.

    Parameters
    ----------
    X : ndarray or CSR of shape (n, d), float32 or float64
        Of any rank r; neither copied whole nor densified whole.
    sample_weight : ndarray of shape (n,), optional
    tol : float
        The weights dominate at any tolerance; a smaller one makes their total approach the rank.

    Returns
    -------
    L1SVD

    Notes
    -----
    O(n d^2) a pass; at ``tol=1e-3`` about four passes on Gaussian rows and six to ten on heavy tails. The
    definition is the paper's, with sqrt(rank) for its sqrt(d); the method is ours (see the module).
    """
    log_weights = None if sample_weight is None else log_shares(np.asarray(sample_weight, dtype=np.float64))
    found = lewis_weights(partial(row_blocks, X), X.shape[0], X.shape[1], log_weights, tol)
    diagonal, V, to_u = found.svd
    scale = np.exp(found.log_scale)  # of the weights
    return L1SVD(
        D=np.diag(diagonal * scale),
        V=V,
        lewis_weights=found.values,
        rank=found.rank,
        kappa=found.kappa,
        n_passes=found.n_passes,
        _X=X,
        _to_u=to_u / scale,
    )


def lewis_weights(
    blocks: RowBlocks,
    n_rows: int,
    n_columns: int,
    log_weights: np.ndarray | None,
    tol: float,
    max_passes: int = 60,
) -> Lewis:
    """Bound the l1 sensitivities of rows ``exp(log_weights) * p`` by Lewis weights (see the module).

    ``blocks()`` starts a sweep over the rows as dense float64 blocks, which are read only and not kept. Stops
    when ``kappa - 1 <= tol``, or after ``max_passes`` sweeps with what is then still a valid bound.

    Accuracy: the Gram matrix of each pass is that of the *whitened* rows ``p T``, close to the identity, so
    what is lost is proportional to the condition of the rows and not to its square. Directions below 1e-12 of
    the largest are dropped.
    """
    problem = _Problem(blocks, n_rows, n_columns, log_weights)
    sample, sample_log_weights = problem.survey()
    start = None
    if sample is not None:
        rows = partial(row_blocks, sample)
        inner = lewis_weights(rows, len(sample), n_columns, sample_log_weights, _SAMPLE_TOL)
        start = problem.start_from_sample(inner)
        del sample
    with np.errstate(over="ignore", invalid="ignore"):  # rows of weight zero can be of any size
        if start is None or not problem.iterate(*start, tol, max_passes):
            problem.iterate(*problem.start_from_rows(), tol, max_passes)
    return problem.finish()


class _Problem:
    """State of one computation: vectors of length n, and the whitening factor."""

    def __init__(self, blocks: RowBlocks, n: int, d: int, log_weights: np.ndarray | None) -> None:
        self.blocks, self.n, self.d, self.log_weights = blocks, n, d, log_weights
        largest = 0.0 if log_weights is None else float(np.max(log_weights))
        self.log_scale = largest if largest > -np.inf else 0.0
        # Weights that underflow here leave M, never the bound: that is taken from log_weights.
        self.weights = np.ones(n) if log_weights is None else np.exp(log_weights - self.log_scale)
        hidden = np.zeros(1) if log_weights is None else (self.weights == 0) & (log_weights > -np.inf)
        self.has_hidden = bool(hidden.any())
        self.column_scale: np.ndarray  # of the survey
        self.T: np.ndarray  # of the last pass, as kappa
        self.kappa: float
        self.norms = np.zeros(n)  # t_p = |p T|, so tau_p = w_p t_p
        self.outside: np.ndarray | None = None
        self.n_passes = 0

    def survey(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Column scales, and for tall data a systematic sample of the rows for the warm start."""
        wanted = _SAMPLE_BYTES // (8 * self.d)
        stride = max(1, self.n // wanted) if wanted >= 32 * self.d else 1
        peak = np.zeros(self.d)
        kept, kept_logs = [], []
        for rows, block in self._sweep():
            w = self.weights[rows]
            if not w.all():
                block, w = block[w > 0], w[w > 0]
            if w.size:
                np.maximum(peak, np.maximum(block.max(axis=0), -block.min(axis=0)), out=peak)
            if stride >= 4:
                kept.append(block[::stride].copy())
                kept_logs.append(np.log(w[::stride]))
        # powers of two, so that scaling commits no error; 2^+-700 leaves room for products of scales
        exponent = np.clip(np.frexp(peak)[1], -700, 700)
        self.column_scale = np.where(peak > 0, np.ldexp(1.0, -exponent), 0.0)
        if stride < 4:
            return None, None
        return np.concatenate(kept), np.concatenate(kept_logs)

    def start_from_sample(self, inner: Lewis) -> tuple[np.ndarray, None] | None:
        """The sample's whitening factor (d, r), if fit for all rows: full rank on the columns in use."""
        used = self.column_scale > 0
        if self.has_hidden or inner.rank < used.sum() or inner.outside is not None:
            return None
        scaled = inner.factor[:, used] * self.column_scale[used]
        if np.linalg.cond(scaled) ** 2 > _MAX_GRAM_CONDITION:
            return None
        T = np.zeros((self.d, inner.rank))
        T[used] = np.linalg.inv(scaled) * self.column_scale[used, None]
        return T, None

    def start_from_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Whitening factor of the rows with equal l, by QR; rows outside their numerical span are set aside.

        With equal l the singular values of M^(1/2) are those of A itself, and |Ax|_2 <= |Ax|_1 <= sqrt(n)
        |Ax|_2: a direction that is retained here stays usable for every later l.
        """
        scale = self.column_scale
        while True:  # ends: each round but the last takes rows out of M
            R = stacked_qr(self._weighted_rows(scale), self.d)
            column_norms = np.linalg.norm(R, axis=0)
            # Householder QR errs by column, so unequal columns are equilibrated before the rank is decided.
            unit = np.divide(1.0, column_norms, out=np.zeros(self.d), where=column_norms > _NEGLIGIBLE)
            _, sigma, Vt = scipy.linalg.svd(R * unit, full_matrices=False, check_finite=False)
            Vt = Vt[sigma > _RANK_CUTOFF * sigma.max(initial=0.0)]
            sigma = sigma[: Vt.shape[0]]
            self.column_scale = scale * unit
            T = self.column_scale[:, None] * (Vt.T / sigma)
            complete = Vt.shape[0] == np.count_nonzero(scale) and not self.has_hidden
            if complete or not self._set_aside(Vt, sigma.max(initial=0.0), T):
                break
        with np.errstate(divide="ignore"):
            return T, 1.0 / self.weights  # l_p = w_p g_p constant

    def _set_aside(self, Vt: np.ndarray, largest: float, T: np.ndarray) -> bool:
        """Mark rows with a part outside the retained space and take them out of M; whether that changed M.

        The basis errs by some eps * largest / sigma_j towards direction j, which moves a row by eps * largest
        * |p T|. What sticks out further is real, and such a row gets the bound 1. It must leave M as well:
        queries outside the space could cancel it, and then it would not hold down the other rows.
        """
        noise = 16.0 * _EPS * np.sqrt(self.d) * largest
        outside = np.zeros(self.n, dtype=bool)
        for rows, block in self._sweep():
            scaled = block * self.column_scale
            outside[rows] = row_norms(scaled - (scaled @ Vt.T) @ Vt) > noise * row_norms(block @ T)
            # columns that only rows out of M use have no scale
            missing = self.column_scale == 0
            outside[rows] |= (block[:, missing] != 0).any(axis=1)
        if self.log_weights is not None:
            outside &= self.log_weights > -np.inf
        changed = bool(np.any(outside & (self.weights > 0)))
        self.weights[outside] = 0.0
        if self.outside is not None:
            outside |= self.outside
        self.outside = outside if outside.any() else None
        return changed

    def iterate(self, T: np.ndarray, g: np.ndarray | None, tol: float, max_passes: int) -> bool:
        """Run the fixed point from the factor T of M(l), l = w g; False if T, a sample's, proves unfit."""
        rank = T.shape[1]
        self.T = T
        if rank == 0:
            self.kappa = 1.0
            return True
        from_sample = g is None
        tol = max(tol, whitening_error(T, self.column_scale)[0])  # below it kappa is noise
        history: list[float] = []
        plain = 0  # passes since the last extrapolation
        # l = unit * w * g sums to the rank
        unit = 1.0 if g is None else rank / np.count_nonzero(self.weights)
        while True:
            # The linearised map has eigenvalues in [0, 1/2]. When log kappa shrinks by c a pass, a step of
            # 1/(1-c) in log l removes the slowest part (Aitken). Any l > 0 is valid: it risks only a pass.
            step = 1.0
            if plain >= 2:
                rate = min(0.5, history[-1] / history[-2]) if history[-2] > 0 else 0.0
                if rate > 0.2:
                    step, plain = 1.0 / (1.0 - rate), -1
            plain += 1
            last = self.n_passes + 1 >= max_passes and g is not None
            g_next, gram, self.kappa = self._pass(T, g, unit, step, np.inf if last else 1.0 + tol)
            self.T = T
            if gram is None:
                return True
            if np.isfinite(self.kappa):
                history.append(float(np.log(self.kappa)))
            else:
                plain = 0
            eigenvalues, Q = scipy.linalg.eigh(gram, check_finite=False)
            if eigenvalues[0] * _MAX_GRAM_CONDITION < eigenvalues[-1]:
                # After start_from_rows the eigenvalues lie in [1, sqrt(n r)]; stopping is then still valid.
                return not from_sample
            unit = rank / float(self.weights @ g_next)
            T = T @ (Q * np.sqrt(unit / eigenvalues))
            g = g_next

    def _pass(
        self, T: np.ndarray, g: np.ndarray | None, unit: float, step: float, enough: float
    ) -> tuple[np.ndarray, np.ndarray | None, float]:
        """One sweep: t = |p T|, kappa = max t / (unit g), next g, and the whitened rows' Gram matrix for it.

        No Gram matrix is needed when kappa <= enough, so it is begun at the first row above; rows passed over
        are visited again if there is one. Returns None in its place when it was not needed.
        """
        gram = np.zeros((T.shape[1],) * 2)
        kappa = np.inf if g is None else 1.0
        counted_from = 0 if g is None else self.n
        g_next = np.empty(self.n)
        for rows, block in self._sweep():
            Y = block @ T
            t = self.norms[rows] = row_norms(Y)
            held = self.weights[rows] > 0  # K of the module's inequalities
            g_next[rows] = np.where(held, t, 0.0)
            if g is not None:
                counted = held & (g[rows] > 0)
                ratio = np.divide(t, unit * g[rows], out=np.ones(len(t)), where=counted)
                kappa = max(kappa, float(ratio.max(initial=1.0)))
                if step != 1.0:
                    g_next[rows] *= ratio ** (step - 1.0)
                if kappa > enough:
                    counted_from = min(counted_from, rows.start)
            if rows.start >= counted_from:
                add_gram(gram, Y, self.weights[rows], g_next[rows])
        if counted_from == self.n:
            return g_next, None, kappa
        if counted_from > 0:
            for rows, block in self.blocks():
                if rows.start >= counted_from:
                    break
                add_gram(gram, block @ T, self.weights[rows], g_next[rows])
        return g_next, gram, kappa

    def _weighted_rows(self, scale: np.ndarray) -> Iterator[np.ndarray]:
        for rows, block in self._sweep():
            w = self.weights[rows]
            yield (block if w.all() else block[w > 0]) * scale * w[w > 0, None]

    def _sweep(self) -> Iterator[tuple[slice, np.ndarray]]:
        self.n_passes += 1
        return self.blocks()

    def finish(self) -> Lewis:
        rank = self.T.shape[1]
        kappa, whitener, factor = 1.0, self.T, np.zeros((rank, self.d))
        if rank:
            used = self.column_scale > 0
            margin, inverse = whitening_error(self.T, self.column_scale)
            kappa = self.kappa * (1.0 + margin)
            whitener = self.T * kappa
            factor[:, used] = inverse / self.column_scale[used] / kappa
        with np.errstate(divide="ignore"):
            log_values = np.log(self.norms)
        log_values += np.log(kappa)
        if self.log_weights is not None:
            log_values += np.where(self.log_weights > -np.inf, self.log_weights - self.log_scale, 0.0)
        if self.outside is not None:
            log_values[self.outside] = 0.0
        np.fmin(log_values, 0.0, out=log_values)  # rows out of M may overflow, to infinity or not-a-number: 1
        if self.log_weights is not None:
            log_values[self.log_weights == -np.inf] = -np.inf
        return Lewis(log_values, self.outside, rank, kappa, self.n_passes, whitener, factor, self.log_scale)
