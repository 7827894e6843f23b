"""How far a weighted subset is from its data at given queries: the logarithm of the ratio, and its gradient."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from .points import Block, Subset, row_slices, squared_distances, squared_norms

_EPS = float(np.finfo(np.float64).eps)
_PASS_BYTES = 1 << 22  # a block of exponents is read about eight times: it should stay in the cache
_MAX_COLUMNS = 64  # queries at a time: enough for BLAS, few enough for blocks of thousands of rows
_ROWS_BYTES = 1 << 25  # most that rows gathered by index may take at a time
_UNCERTAIN = 1e-12  # exponents less certain than this are recomputed by ``precise``
_NEGLIGIBLE = 50.0  # a row that is e^-50 of its sum does not matter, however wrong


class _TiltedSum:
    """``sum_p w_p exp(e_p)`` for k queries, with ``sum_p w_p exp(e_p) c_p (z_p - x)``, fed block by block."""

    def __init__(self, k: int, d: int | None) -> None:
        self.top = np.full(k, -np.inf)  # largest exponent so far
        self.total = np.zeros(k)  # sum of w_p exp(exponent - top)
        self.pulled = np.zeros(k)  # the same with c_p
        self.moment = None if d is None else np.zeros((k, d))  # the same with c_p z_p

    def add(
        self, columns: slice, exponents: np.ndarray, weights: np.ndarray, pull: np.ndarray | None, block: Block
    ) -> None:
        """Add the rows of a block, with ``exponents`` (b, columns), which are overwritten, and ``weights`` (b,)."""
        top = np.maximum(self.top[columns], exponents.max(axis=0, initial=-np.inf))
        finite_top = np.where(np.isfinite(top), top, 0.0)  # minus infinity: only rows of weight zero so far
        decay = np.exp(self.top[columns] - finite_top)
        exponents -= finite_top
        terms = np.exp(exponents, out=exponents)
        terms *= weights[:, None]
        self.top[columns] = top
        self.total[columns] = self.total[columns] * decay + terms.sum(axis=0)
        if self.moment is not None:
            if pull is not None:
                terms *= pull
                self.pulled[columns] = self.pulled[columns] * decay + terms.sum(axis=0)
            self.moment[columns] *= decay[:, None]
            self.moment[columns] += block.weighted_sum(terms)

    def log(self) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return self.top + np.log(self.total)

    def gradient(self, queries: np.ndarray) -> np.ndarray:
        """Gradient of ``log``, for the Gaussian half of it and up to a term of x alone."""
        assert self.moment is not None
        total = np.where(self.total > 0.0, self.total, 1.0)[:, None]
        return (self.moment - self.pulled[:, None] * queries) / total


class LogRatio:
    """``g(x) = log(S(x) / F(x))`` of a weighted subset against weighted data: 0 exactly if it is the data.

    The loss is ``exp(-|z - x|^2)`` or ``exp(-|z - x|)``. The exponent of the first has the gradient ``2 z - 2 x``,
    whose term of x cancels in the ratio; that of the second ``(z - x) / |z - x|``, with a kink at z, where 0 is used.
    """

    def __init__(self, subset: Subset) -> None:
        rows, position = np.unique(subset.rows, return_inverse=True)
        merged = np.bincount(position, weights=subset.weights, minlength=len(rows))
        self.points, self.weights, self.is_laplacian = subset.points, subset.shares, subset.loss == "laplacian"
        self.rows, self.subset_weights = rows[merged > 0.0], merged[merged > 0.0]

    def __call__(self, queries: np.ndarray) -> np.ndarray:
        """g at ``queries`` (k, d); minus infinity where the subset has no mass at all."""
        return _log_ratio(*self._sweep(queries, with_gradient=False))

    def with_gradient(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """g (k,) and its gradient (k, d): a difference of two tilted means."""
        subset, data = self._sweep(queries, with_gradient=True)
        slope = 1.0 if self.is_laplacian else 2.0
        return _log_ratio(subset, data), slope * (subset.gradient(queries) - data.gradient(queries))

    def precise(self, queries: np.ndarray) -> np.ndarray:
        """g without cancellation: rows that matter and whose exponent is uncertain are recomputed from ``z - x``."""
        subset, data = self._sweep(queries, with_gradient=False)
        floor = data.log() - np.log(self.weights.max())
        if self.rows.size:
            floor = np.minimum(floor, subset.log() - np.log(self.subset_weights.max()))
        return _log_ratio(*self._sweep(queries, with_gradient=False, floor=floor - _NEGLIGIBLE))

    def nearest(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row numbers of the nearest data row of positive weight and of the nearest subset row, each (k,), k modest."""
        best = np.full((2, len(queries)), np.inf)
        rows = np.zeros((2, len(queries)), dtype=np.int64)
        for span, block in self._blocks(len(queries)):
            square = squared_distances(block, queries)
            members = np.flatnonzero(self.weights[span]), self.rows[self._subset_span(span)] - span.start
            for which, among in enumerate(members):
                if among.size:
                    winner = among[square[among].argmin(axis=0)]
                    value = square[winner, np.arange(len(queries))]
                    rows[which] = np.where(value < best[which], span.start + winner, rows[which])
                    best[which] = np.minimum(value, best[which])
        return rows[0], rows[1]

    def _sweep(
        self, queries: np.ndarray, with_gradient: bool, floor: np.ndarray | None = None
    ) -> tuple[_TiltedSum, _TiltedSum]:
        k, d = queries.shape
        subset, data = (_TiltedSum(k, d if with_gradient else None) for _ in range(2))
        for span, block in self._blocks(k):
            inside = self._subset_span(span)
            local = self.rows[inside] - span.start
            for columns in row_slices(k, 1.0, _MAX_COLUMNS):
                at = queries[columns]
                square = squared_distances(block, at)
                if floor is not None:
                    self._repair(square, span, block, at, floor[columns])
                exponents = self._exponents(square)
                pull = None
                if with_gradient and self.is_laplacian:
                    # one over the distances; 0 where a difference is so short that its direction is noise
                    pull = np.divide(-1.0, exponents, out=np.zeros_like(exponents), where=exponents < -1e-7)
                if local.size:
                    own_pull = None if pull is None else pull[local]
                    own = replace(block, rows=block.rows[local])
                    subset.add(columns, exponents[local], self.subset_weights[inside], own_pull, own)
                weights = self.weights[span]
                exponents[weights == 0.0] = -np.inf  # such a row must not be the top
                data.add(columns, exponents, weights, pull, block)
        return subset, data

    def _exponents(self, square: np.ndarray) -> np.ndarray:
        """From squared distances, which are overwritten."""
        return np.negative(np.sqrt(square, out=square) if self.is_laplacian else square, out=square)

    def _blocks(self, k: int) -> Iterator[tuple[slice, Block]]:
        return self.points.blocks(extra_columns=2 * min(k, _MAX_COLUMNS), budget=_PASS_BYTES)

    def _subset_span(self, span: slice) -> slice:
        start, stop = np.searchsorted(self.rows, (span.start, span.stop))
        return slice(int(start), int(stop))

    def _repair(self, square: np.ndarray, span: slice, block: Block, queries: np.ndarray, floor: np.ndarray) -> None:
        """Recompute from differences the entries of ``square`` that matter and have lost digits."""
        magnitude = block.sq_norms[:, None] + squared_norms(queries) + block.sq_shift
        error, exponent = 4.0 * _EPS * magnitude, self._exponents(square.copy())
        if self.is_laplacian:  # d sqrt(s) = ds / (2 sqrt(s)); below s = error the root is all error
            error /= 2.0 * np.sqrt(np.maximum(square, error)) + np.finfo(np.float64).tiny
        # A difference of nearby vectors is accurate to eps times itself: worth it only where much cancelled.
        lost = (error > _UNCERTAIN) & (square < 1e-2 * magnitude) & (exponent + error >= floor)
        local, column = np.nonzero(lost)
        for part in row_slices(local.size, 16.0 * self.points.d, _ROWS_BYTES):
            rows = self.points.take(span.start + local[part])
            square[local[part], column[part]] = squared_norms(rows - queries[column[part]])


def _log_ratio(subset: _TiltedSum, data: _TiltedSum) -> np.ndarray:
    # Tops first: where they are the same row's, however large, they cancel without rounding.
    with np.errstate(divide="ignore"):
        return (subset.top - data.top) + np.log(subset.total / data.total)
