r"""Kernel sums by blocks, and the maximum mean discrepancy of a weighted subset.

Both losses are positive definite, non-negative kernels with :math:`k(x,x) = 1`. In their Hilbert space the data
are one vector :math:`\mu_P = \sum_p w_p k(p, \cdot)`, the subset another, and :math:`F(x) = \langle \mu_P, k(x,
\cdot) \rangle`, so

.. math:: |S(x) - F(x)| \le \|\mu_S - \mu_P\| = \mathrm{MMD}(S, P) \quad\text{for all } x \text{ at once.}

With the signed coefficients :math:`\nu = v - w` on the rows, :math:`\mathrm{MMD}^2 = \nu^\top K \nu`: one
symmetric sweep over pairs of rows, in tiles, without a matrix of n by n or even m by n.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .points import Block, Points, row_slices

_TILE = 1 << 23  # bytes of a tile of kernel values: three of them fit into the last-level cache

Progress = Callable[[int], None]


def kernel_tile(loss: str, a: Block, b: Block) -> np.ndarray:
    """(len(a), len(b)) kernel values."""
    exponents = a.gram(b)
    exponents *= 2.0
    exponents -= a.sq_norms[:, None]
    exponents -= b.sq_norms
    np.minimum(exponents, 0.0, out=exponents)  # rounding may leave a distance below zero
    if loss == "laplacian":
        np.sqrt(np.negative(exponents, out=exponents), out=exponents)
        np.negative(exponents, out=exponents)
    return np.exp(exponents, out=exponents)


def quadratic_form(
    points: Points, coefficients: np.ndarray, loss: str, progress: Progress | None = None
) -> float:
    r""":math:`\sum_{ij} c_i c_j k(z_i, z_j)`, O(n^2 d / 2) time, a few tiles of memory; zero coefficients cost
    nothing."""
    rows = np.flatnonzero(coefficients)
    slices = list(row_slices(len(rows), 8.0 * np.sqrt(_TILE / 8.0), _TILE))
    total = 0.0
    for i, left in enumerate(slices):
        mine = points.gather(rows[left])
        c = coefficients[rows[left]]
        total += float(c @ kernel_tile(loss, mine, mine) @ c)
        for right in slices[i + 1 :]:
            tile = kernel_tile(loss, mine, points.gather(rows[right]))
            total += 2.0 * float(c @ (tile @ coefficients[rows[right]]))
        if progress is not None:
            progress(left.stop - left.start)
    return total


def potential(points: Points, at: np.ndarray, coefficients: np.ndarray, loss: str) -> np.ndarray:
    r"""(m,) sums :math:`\sum_j c_j k(z_i, z_j)` over all rows, at the rows ``at``; O(m n d) time."""
    rows = np.flatnonzero(coefficients)
    out = np.zeros(len(at))
    side = 8.0 * np.sqrt(_TILE / 8.0)
    for left in row_slices(len(at), side, _TILE):
        mine = points.gather(at[left])
        for right in row_slices(len(rows), side, _TILE):
            out[left] += kernel_tile(loss, mine, points.gather(rows[right])) @ coefficients[rows[right]]
    return out


def kernel_matrix(points: Points, rows: np.ndarray, loss: str) -> np.ndarray:
    """(m, m) kernel values of the rows with each other; for m of some thousands at most."""
    block = points.gather(rows)
    out = kernel_tile(loss, block, block)
    np.fill_diagonal(out, 1.0)
    return out


def rounding_of_form(points: Points, coefficients: np.ndarray, loss: str) -> float:
    """How far rounding may move a quadratic form: the kernel's error times the squared mass."""
    mass = float(np.abs(coefficients).sum())
    kernel_error = 1e-14 * (1.0 + points.rounding_norm**2)
    if loss == "laplacian":  # the root of a rounded square
        kernel_error = 4.0 * np.sqrt(kernel_error) * 1e-1
    return kernel_error * mass**2
