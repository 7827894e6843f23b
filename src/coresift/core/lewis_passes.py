"""Passes for Lewis weights (:mod:`coresift.core.lewis`): with nothing kept per row, they run on clusters as well."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.linalg

from .points import squared_norms

_SAMPLE_BYTES = 1 << 24  # the warm start's rows
_ROUNDING = 2.0**-40  # of a row, per root of its columns: far above the least direction that is kept

Read = Callable[[Any], tuple[np.ndarray, np.ndarray]]
"""From a block to its rows (b, d), dense float64 and never written to, and their log-weights (b,)."""

Run = Callable[[str, Any], Any]
"""Runs a pass over all blocks, here or elsewhere, and returns it merged: from a label and a prototype that has
``update(block)`` and ``merge(other)``, which adds the pass over later rows."""


def run_over(blocks: Callable[[], Iterator[Any]]) -> Run:
    """Run passes in this process over what ``blocks()`` yields."""

    def run(_label: str, prototype: Any) -> Any:
        for block in blocks():
            prototype.update(block)
        return prototype

    return run


class Survey:
    """The first pass: range of the weights, largest entries, and for tall data every ``stride``-th row."""

    def __init__(self, read: Read, n_rows: int, n_columns: int) -> None:
        self.read = read
        wanted = _SAMPLE_BYTES // (8 * n_columns)
        stride = n_rows // wanted if wanted >= 32 * n_columns else 1
        self.stride = stride if stride >= 4 else 0  # a sample of half the rows saves nothing
        self.largest, self.smallest = -np.inf, np.inf  # logarithms of positive weights
        self.peaks = np.zeros(n_columns)
        self.sample: list[tuple[np.ndarray, np.ndarray]] = []

    def update(self, block: Any) -> None:
        self.add(*self.read(block))

    def add(self, rows: np.ndarray, log_w: np.ndarray) -> None:
        if not (held := log_w > -np.inf).all():
            rows, log_w = rows[held], log_w[held]
        if not len(rows):
            return
        self.largest = max(self.largest, float(log_w.max()))
        self.smallest = min(self.smallest, float(log_w.min()))
        np.maximum(self.peaks, np.maximum(rows.max(axis=0), -rows.min(axis=0)), out=self.peaks)
        if self.stride:
            self.sample.append((rows[:: self.stride].copy(), log_w[:: self.stride]))

    def merge(self, other: Self) -> None:
        self.largest, self.smallest = max(self.largest, other.largest), min(self.smallest, other.smallest)
        self.peaks = np.maximum(self.peaks, other.peaks)
        self.sample += other.sample

    @property
    def log_unit(self) -> float:
        return self.largest if self.largest > -np.inf else 0.0

    @property
    def has_hidden(self) -> bool:
        """Whether positive weights vanish beside the largest. They leave M, never the bound."""
        return self.smallest < np.inf and np.exp(self.smallest - self.largest) == 0.0

    @property
    def column_unit(self) -> np.ndarray:
        """(d,) powers of two, so that scaling is exact; 2^+-700 leaves room for products. 0 for columns of zeros."""
        exponent = np.clip(np.frexp(self.peaks)[1], -700, 700)
        return np.where(self.peaks > 0, np.ldexp(1.0, -exponent), 0.0)


@dataclass(frozen=True)
class Space:
    """The numerical row space of the rows in M, when it is not the whole space."""

    basis: np.ndarray  # (r, d) orthonormal, of the scaled columns
    column_unit: np.ndarray
    T: np.ndarray  # (d, r)
    noise: float

    def outside(self, rows: np.ndarray) -> np.ndarray:
        """(b,) whether a row has a part outside, above what the error of the basis and rounding make of it."""
        with np.errstate(over="ignore", invalid="ignore"):  # rows of weight zero can be of any size
            scaled = rows * self.column_unit
            beyond = row_norms(scaled - (scaled @ self.basis.T) @ self.basis)
            rounding = _ROUNDING * np.sqrt(len(self.column_unit)) * row_norms(scaled)
            found: np.ndarray = beyond > self.noise * row_norms(rows @ self.T) + rounding
        return found | (rows[:, self.column_unit == 0] != 0).any(axis=1)  # columns that only rows out of M use


@dataclass(frozen=True)
class WeightedRows:
    """Rows with their weights over the largest. The weight is 0 outside any of the spaces: such rows leave M."""

    read: Read
    log_unit: float
    spaces: tuple[Space, ...] = ()

    def __call__(self, block: Any) -> tuple[np.ndarray, np.ndarray]:
        rows, log_w = self.read(block)
        weights = np.exp(log_w - self.log_unit)
        if self.spaces:
            weights[self.outside(rows)] = 0.0
        return rows, weights

    def outside(self, rows: np.ndarray) -> np.ndarray:
        found = np.zeros(len(rows), dtype=bool)
        for space in self.spaces:
            found |= space.outside(rows)
        return found


class Triangle:
    """R of the weighted, scaled rows, by QR of blocks; ``rows`` maps a block to rows and their weights."""

    def __init__(self, rows: Read, column_unit: np.ndarray) -> None:
        self.rows, self.column_unit = rows, column_unit
        self.parts: list[np.ndarray] = []

    def update(self, block: Any) -> None:
        rows, w = self.rows(block)
        self._add((rows if w.all() else rows[w > 0]) * self.column_unit * w[w > 0, None])

    def merge(self, other: Self) -> None:
        self._add(other.finish())

    def finish(self) -> np.ndarray:
        self.parts = [stacked_qr(self.parts, len(self.column_unit))]
        return self.parts[0]

    def _add(self, rows: np.ndarray) -> None:
        self.parts.append(rows)
        if sum(map(len, self.parts)) >= 4 * len(self.column_unit):  # so that R is not factored over and over
            self.finish()


class Outside:
    """Whether any row of positive weight is outside a space, and whether any of those is in M."""

    def __init__(self, rows: WeightedRows, space: Space) -> None:
        self.rows, self.space = rows, space
        self.any = self.any_in_m = False

    def update(self, block: Any) -> None:
        rows, weights = self.rows(block)
        outside = self.space.outside(rows)
        self.any_in_m |= bool(np.any(outside & (weights > 0)))
        self.any |= bool(np.any(outside & (self.rows.read(block)[1] > -np.inf)))

    def merge(self, other: Self) -> None:
        self.any |= other.any
        self.any_in_m |= other.any_in_m


class Step:
    """The Gram matrix G of a factor T, and the sum of w|pT| (see the module)."""

    def __init__(self, rows: WeightedRows, T: np.ndarray) -> None:
        self.rows, self.T = rows, T
        self.gram = np.zeros((T.shape[1],) * 2)
        self.total = 0.0

    def update(self, block: Any) -> None:
        rows, weights = self.rows(block)
        with np.errstate(over="ignore", invalid="ignore"):  # rows of weight zero can be of any size
            whitened = rows @ self.T
            norms = row_norms(whitened)
            add_gram(self.gram, whitened, weights, norms)
        self.total += float(weights @ np.where(weights > 0, norms, 0.0))

    def merge(self, other: Self) -> None:
        self.gram += other.gram
        self.total += other.total

    def finish(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues of c G, ascending, and c T Q; c makes the weights sum to the rank."""
        unit = self.T.shape[1] / self.total
        eigenvalues, Q = scipy.linalg.eigh(self.gram, check_finite=False)
        return unit * eigenvalues, unit * (self.T @ Q)


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
