r"""Sensitivities of the Gaussian loss, :math:`s(p) = \sup_{|x| \le R} w_p f(p,x) / F(x)`, bounded and exact.

Coordinates are those of :class:`~coresift.core.points.Points`: the weighted mean is the origin and the centre of the
query ball. ``shares`` are the weights divided by their sum; a point of share 0 has sensitivity 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .ascent import Atoms, ascend
from .bound import SensitivityBound, log_shares, rounding_slack
from .points import GEMM_BLOCK_BYTES, Block, Points, row_slices, squared_distances, squared_norms

CELLS_TOLERANCE = 1e-3  # a certificate within 0.1 % of the best one that these cells can give
EXACT_TOLERANCE = 1e-6
MAX_STEPS = 1000


def closed_form(
    sq_norms: np.ndarray,
    shares: np.ndarray,
    second_moment: float,
    radius: float,
    slack: float = 0.0,
    from_mean: np.ndarray | None = None,
) -> SensitivityBound:
    r"""The one-atom certificate, from distances alone.

    .. math:: s(p) \le \frac{w_p}{W} \exp\bigl( V + R^2 - (|p - \mu| - R)^2 \bigr)

    Jensen's inequality gives :math:`F(x) \ge W \exp(-V - |x-\mu|^2)`; what remains, :math:`-|p|^2 + 2 p \cdot x`, is
    largest at :math:`x = R p/|p|`. The total is at most :math:`e^{V+R^2}`, in any dimension. O(n) once the distances
    are known. ``slack`` covers their rounding (:func:`~coresift.core.bound.rounding_slack`).

    For a ball that is not centred at the mean of these shares, ``from_mean`` holds the distances :math:`|p - \mu|`, and

    .. math:: s(p) \le \frac{w_p}{W} \exp\bigl( M - |p|^2 + 2 R |p - \mu| \bigr), \qquad M = V + |\mu|^2,

    with the second moment M about the centre of the ball, which is V where the two agree.
    """
    log_values = log_shares(shares)
    if from_mean is None:
        log_values += (second_moment + radius**2 + slack) - (np.sqrt(sq_norms) - radius) ** 2
    else:
        log_values += 2.0 * radius * from_mean - sq_norms + (second_moment + slack)
    np.minimum(log_values, 0.0, out=log_values)
    return SensitivityBound(log_values, "closed-form", True, "Jensen's inequality at the mean; valid for every radius.")


@dataclass(frozen=True)
class Cells:
    """Mass, mean and variance of the cells of a partition of the points; masses sum to 1."""

    mass: np.ndarray  # (k,) all positive
    means: np.ndarray  # (k, d)
    variances: np.ndarray  # (k,)

    @cached_property
    def frame(self) -> tuple[np.ndarray | None, np.ndarray]:
        """The means, in a basis (d, k) of their span and one more coordinate where that is shorter."""
        k, d = self.means.shape
        if k + 1 >= d:
            return None, self.means
        basis = np.linalg.qr(self.means.T)[0]
        return basis, np.column_stack([self.means @ basis, np.zeros(k)])


class CellSums:
    """Sums over the cells of a partition, fed with blocks and merged with sums over other rows.

    Every point belongs to the nearest of ``centers`` (scaled coordinates). A variance is taken about the centre, less
    the squared way from centre to mean, which loses no digits when the cell is small and far from the origin.
    """

    def __init__(self, centers: np.ndarray) -> None:
        k, d = centers.shape
        self.centers = centers
        self.mass, self.sums, self.moments = np.zeros(k), np.zeros((k, d)), np.zeros(k)

    def update(self, block: Block, share: np.ndarray) -> None:
        k = len(self.mass)
        distances = squared_distances(block, self.centers)
        nearest = distances.argmin(axis=1)
        self.mass += np.bincount(nearest, weights=share, minlength=k)
        self.moments += np.bincount(nearest, weights=share * distances.min(axis=1), minlength=k)
        self.sums += block.group_sums(share, nearest, k)

    def merge(self, other: CellSums) -> None:
        self.mass += other.mass
        self.sums += other.sums
        self.moments += other.moments

    def finish(self) -> Cells:
        """The cells that have mass, scaled to a total mass of 1."""
        full = self.mass > 0
        mass = self.mass[full]
        means = self.sums[full] / mass[:, None]
        variances = self.moments[full] / mass - squared_norms(means - self.centers[full])
        return Cells(mass / mass.sum(), means, np.maximum(variances, 0.0))


@dataclass(frozen=True)
class Problem:
    """Whose sensitivities are wanted: scaled points, their squared norms and shares, and the radius of the ball."""

    points: Points
    sq_norms: np.ndarray
    shares: np.ndarray
    radius: float


def cells_bound(problem: Problem, summary: Cells, start: SensitivityBound) -> SensitivityBound:
    """The certificate of k atoms by dual ascent; never above ``start``, the closed form.

    Two products of (points x k) by (k x r) a step, ``r = min(d, k + 1)``: the ascent only sees inner products with
    the means, so it runs in their span plus the one direction in which a point sticks out of it.
    """
    k, points = len(summary.mass), problem.points
    basis, means = summary.frame
    atoms = Atoms(Block(means), np.log(summary.mass) - squared_norms(summary.means) - summary.variances)

    def coordinates() -> Iterator[tuple[slice, np.ndarray]]:
        for rows, block in points.blocks(extra_columns=2 * k + 8 * means.shape[1]):
            if basis is None:
                yield rows, block.dense()
                continue
            inside = block.dot(basis.T)
            # rounding may hide a part of what sticks out: a longer |p - m| is safe, a shorter one is not
            hidden = 2e-15 * np.sqrt(points.d) * (block.sq_norms + block.sq_shift)
            outside = np.maximum(block.sq_norms - squared_norms(inside), 0.0) + hidden
            yield rows, np.column_stack([inside, np.sqrt(outside)])

    curvature = 4.0 * float(squared_norms(means).max())
    log_values, gap = _ascend_blocks(problem, start, coordinates(), atoms, curvature, tol=0.5 * CELLS_TOLERANCE)
    note = f"Jensen's inequality in {k} cells and convex duality; valid for every radius."
    return SensitivityBound(log_values, "cells", True, note, gap)


def row_atoms(problem: Problem) -> Atoms:
    """Every point of positive share an atom."""
    positive = np.flatnonzero(problem.shares > 0)
    offsets = np.log(problem.shares[positive]) - problem.sq_norms[positive]
    return Atoms(problem.points.gather(positive), offsets)


def exact(problem: Problem, start: SensitivityBound, atoms: Atoms | None = None) -> SensitivityBound:
    """The sensitivities themselves: every point an atom, ascent until certificate and value agree to 1e-6.

    O(n^2 d) a step, some ten steps on ordinary data; memory is one block of points against all points. ``atoms`` are
    those of all points, where ``problem`` holds only some of them.
    """
    points = problem.points
    atoms = row_atoms(problem) if atoms is None else atoms
    n_atoms = len(atoms.offsets)

    def coordinates() -> Iterator[tuple[slice, np.ndarray]]:
        for rows in row_slices(points.n, 8.0 * (n_atoms + 8 * points.d), GEMM_BLOCK_BYTES):
            yield rows, points.gather(rows).dense()

    curvature = 4.0 * points.max_norm**2
    log_values, gap = _ascend_blocks(problem, start, coordinates(), atoms, curvature, tol=0.5 * EXACT_TOLERANCE)
    note = "Concave maximisation with a duality gap per point; valid for every radius."
    return SensitivityBound(log_values, "exact", True, note, gap)


def _ascend_blocks(
    problem: Problem,
    start: SensitivityBound,
    coordinates: Iterator[tuple[slice, np.ndarray]],
    atoms: Atoms,
    curvature: float,
    tol: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Ascend for all points: the least of the certificates, ``start`` and 1 (as logarithms), and the gaps.

    Callers ask for half of the tolerance that they promise: the slack for rounding adds to the gap.
    """
    log_values = start.log_values.copy()
    gap = np.zeros(len(log_values))
    slack = rounding_slack(problem.points.rounding_norm, problem.radius)
    for rows, p in coordinates:
        own = np.flatnonzero(problem.shares[rows] > 0)
        if len(own) > 0:
            at = own + rows.start
            constant = np.log(problem.shares[at]) - problem.sq_norms[at]
            known = log_values[at] - constant
            found = ascend(p[own], atoms, problem.radius, known, curvature, tol, MAX_STEPS)
            log_values[at] = np.minimum(log_values[at], constant + found.upper + slack)
            gap[at] = np.maximum(log_values[at] - (constant + found.lower), 0.0)
    return log_values, gap
