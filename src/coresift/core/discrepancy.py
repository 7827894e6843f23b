r"""Kernel sums by blocks, and the maximum mean discrepancy of a weighted subset.

In the Hilbert space of the kernel the data are one vector :math:`\mu_P = \sum_p w_p k(p, \cdot)`, the subset another,
and for all x at once :math:`|S(x) - F(x)| \le \|\mu_S - \mu_P\| = \mathrm{MMD}(S, P)`. With :math:`\nu = v - w` on the
rows, :math:`\mathrm{MMD}^2 = \nu^\top K \nu`: one symmetric sweep over pairs of rows, in tiles.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from .points import Block, Points, row_slices, squared_norms

_NARROW = 256  # columns up to which copying the rows costs less than the passes over a tile that it saves
_LARGE = 1e6  # squared norms below which rounding, in double precision, moves an exponent by a millionth at most
_SIDE = 1024  # rows and columns of a tile of kernel values: three such tiles fit into the last-level cache
_ROWS_BYTES = 1 << 26  # most that the rows of one side of a tile may take
_HELD_BYTES = 1 << 28  # most that rows which many tiles share may take

Progress = Callable[[int], Any]


def silent(_rows: int) -> None:
    """Progress that nobody wants to know of."""


def kernel_tile(loss: str, a: Block, b: Block) -> np.ndarray:
    """(len(a), len(b)) kernel values, from ``2 a.b - |a|^2 - |b|^2``."""
    if a.shift is None and b.shift is None and a.rows.shape[1] <= _NARROW:
        exponents = a.left @ b.right.T  # in one product: each pass over the tile costs as much as ten columns
    else:
        exponents = a.gram(b)
        exponents *= 2.0
        exponents -= a.sq_norms[:, None]
        exponents -= b.sq_norms
    if loss != "gaussian" or max(a.sq_norms.max(), b.sq_norms.max()) > _LARGE:
        np.minimum(exponents, 0.0, out=exponents)  # rounding may leave a distance below zero
    if loss == "laplacian":
        np.sqrt(np.negative(exponents, out=exponents), out=exponents)
        np.negative(exponents, out=exponents)
    return np.exp(exponents, out=exponents)


def tile_slices(points: Points, count: int) -> list[slice]:
    """How to cut ``count`` rows for tiles: fewer at once where rows are wide."""
    width = 0 if points.is_sparse else points.d
    return list(row_slices(count, max(_ROWS_BYTES / _SIDE, 8.0 * width), _ROWS_BYTES))


def _blocks(points: Points, rows: np.ndarray) -> tuple[list[slice], Callable[[int], Block]]:
    """The slices of rows for tiles, and what gathers each: once if they are few, or else whenever asked."""
    slices = tile_slices(points, len(rows))
    n_held = len(slices) if 8 * (3 * points.d + 5) * len(rows) <= _HELD_BYTES else 0
    return slices, lru_cache(n_held)(lambda i: points.gather(rows[slices[i]]))


def symmetric_tiles(points: Points, rows: np.ndarray, loss: str) -> Iterator[tuple[slice, slice, np.ndarray]]:
    """Yield the tiles on and above the diagonal of the kernel matrix of the rows, with their rows and columns."""
    slices, block = _blocks(points, rows)
    for i, left in enumerate(slices):
        mine = block(i)
        own = kernel_tile(loss, mine, mine)
        np.fill_diagonal(own, 1.0)  # the root of a rounded zero would cost the Laplacian half the digits
        yield left, left, own
        for j in range(i + 1, len(slices)):
            yield left, slices[j], kernel_tile(loss, mine, block(j))


def quadratic_form(
    points: Points, coefficients: np.ndarray, loss: str, progress: Progress = silent, error: float = 0.0
) -> float:
    r""":math:`\sum_{ij} c_i c_j k(z_i, z_j)` in O(n^2 d / 2) time, with an allowance for an ``error`` of squares."""
    rows = np.flatnonzero(coefficients)
    c = coefficients[rows]
    sizes, total = np.abs(c), 0.0
    for left, right, tile in symmetric_tiles(points, rows, loss):
        pairs = float(c[left] @ (tile @ c[right]))
        if error:
            allowed = error / np.maximum(1.0 - tile, np.sqrt(error))
            if left == right:
                np.fill_diagonal(allowed, 0.0)
            pairs += float(sizes[left] @ (allowed @ sizes[right]))
        total += pairs if left == right else 2.0 * pairs
        if right.stop == len(rows):
            progress(left.stop - left.start)
    return total


def potential(
    points: Points, at: np.ndarray, coefficients: np.ndarray, loss: str, progress: Progress = silent
) -> np.ndarray:
    r"""(m,) sums :math:`\sum_j c_j k(z_i, z_j)` over all rows, at the rows ``at``; O(m n d) time."""
    rows = np.flatnonzero(coefficients)
    out, coefficients = np.zeros(len(at)), coefficients.astype(points.dtype)
    slices, block = _blocks(points, rows)
    for left in tile_slices(points, len(at)):
        mine = points.gather(at[left])
        for i, right in enumerate(slices):
            out[left] += kernel_tile(loss, mine, block(i)) @ coefficients[rows[right]]
        progress(left.stop - left.start)
    return out


def paired_squares(points: Points, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """(k,) squared distances of the rows ``left`` from the rows ``right``, one by one."""
    gathered = ((points.gather(left[part]), points.gather(right[part])) for part in tile_slices(points, len(left)))
    return np.concatenate([squared_norms(mine.rows - theirs.rows) for mine, theirs in gathered])


def kernel_matrix(points: Points, rows: np.ndarray, loss: str) -> np.ndarray:
    """(m, m) kernel values of the rows with each other; for m of some thousands at most."""
    out = np.empty((len(rows), len(rows)))
    for left, right, tile in symmetric_tiles(points, rows, loss):
        out[left, right] = tile
        out[right, left] = tile.T
    return out


def laplacian_form(points: Points, coefficients: np.ndarray, progress: Progress = silent) -> float:
    r"""An upper bound on the form of the Laplacian kernel, rounding included; cost as :func:`quadratic_form`.

    A squared distance errs by at most :math:`\delta`, its root r by :math:`\min(\sqrt\delta, \delta/r)`, and
    :math:`r \ge 1 - e^{-r}`. Coefficients of equal rows (:func:`first_equal`) are added up before.
    """
    error = 1e-14 * (1.0 + points.rounding_norm**2)
    of_sums = 1e-14 * float(np.abs(coefficients).sum()) ** 2  # and of the exponentials
    return quadratic_form(points, coefficients, "laplacian", progress, error) + of_sums


def first_equal(points: Points) -> np.ndarray:
    """(n,) the first row with the same bytes, for each row."""
    X, first, found = points.X, dict[bytes, int](), np.empty(points.n, dtype=np.int64)
    for row in range(points.n):
        if isinstance(X, np.ndarray):
            content = X[row].tobytes()
        else:
            own = slice(X.indptr[row], X.indptr[row + 1])
            content = X.indices[own].tobytes() + X.data[own].tobytes()
        found[row] = first.setdefault(blake2b(content, digest_size=16).digest(), row)
    return found


def rounding_of_form(points: Points, coefficients: np.ndarray, loss: str) -> float:
    """How far rounding may move a quadratic form: the kernel's error times the squared mass."""
    mass = float(np.abs(coefficients).sum())
    kernel_error = 1e-14 * (1.0 + points.rounding_norm**2)
    if loss == "laplacian":  # the root of a rounded square
        kernel_error = 4.0 * np.sqrt(kernel_error) * 1e-1
    return kernel_error * mass**2


@dataclass(frozen=True, eq=False)
class AllOrders:
    """The kernel of a loss, as :class:`~coresift.core.moments.HighOrders` is one."""

    points: Points
    loss: str

    def form(self, c: np.ndarray) -> float:
        return quadratic_form(self.points, c, self.loss)

    def potential(self, c: np.ndarray, at: np.ndarray, progress: Progress = silent) -> np.ndarray:
        return potential(self.points, at, c, self.loss, progress)

    def rounding(self, c: np.ndarray) -> float:
        return rounding_of_form(self.points, c, self.loss)

    def products(self, quadruples: np.ndarray) -> np.ndarray:
        r"""(k,) halves of :math:`\langle p - q, r - s \rangle`, of rows (4, k); their mean square: the covariance's."""
        p, q, r, s = quadruples
        squares = np.array([paired_squares(self.points, *ends) for ends in ((p, r), (q, s), (p, s), (q, r))])
        return np.array([0.5, 0.5, -0.5, -0.5]) @ np.exp(-squares if self.loss == "gaussian" else -np.sqrt(squares))
