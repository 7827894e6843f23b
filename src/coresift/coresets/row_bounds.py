"""Sensitivity bounds as maps: from a block of rows, and what earlier passes found, to the logarithms of their bounds.

Rows are compared with their own group: one group for all, or one for each class. The ball of queries is common to the
groups, so coresets of groups are together a coreset of all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from ..core.bound import LARGEST_EXPONENT, SensitivityBound, rounding_slack
from ..core.gaussian import Cells, CellSums, Problem, cells_bound, closed_form
from ..core.laplacian import laplacian_cells
from ..core.points import Points, squared_norms
from ..rows.rows import Block
from .keys import KeyPool
from .survey import Geometry


class RowBound(Protocol):
    """A bound on the sensitivity of every row of a block, in its group."""

    name: str
    is_certified: bool
    note: str
    geometry: Geometry

    def log_values(self, block: Block, groups: np.ndarray | None) -> np.ndarray:
        """(b,) logarithms of the bounds."""


def shares_of(geometry: Geometry, block: Block, groups: np.ndarray | None) -> np.ndarray:
    """Weights over the mass of the group."""
    if groups is None:
        return block.weights / geometry.mass[0]
    mass = geometry.mass[groups]
    return np.divide(block.weights, mass, out=np.zeros(len(mass)), where=mass > 0)


def _by_group(groups: np.ndarray | None, n_rows: int) -> Iterator[tuple[int, slice | np.ndarray]]:
    """The groups that occur, and their rows."""
    if groups is None:
        yield 0, slice(0, n_rows)
        return
    for group in np.unique(groups):
        yield int(group), np.flatnonzero(groups == group)


class ClosedForm:
    """The one-atom certificate of :func:`coresift.core.gaussian.closed_form`."""

    name, is_certified = "closed-form", True
    note = "Jensen's inequality at the mean; valid for every radius."

    def __init__(self, geometry: Geometry, radius: float) -> None:
        self.geometry, self.radius = geometry, radius
        self.slack = rounding_slack(geometry.max_norm, radius) + 2.0 * radius * geometry.center_error

    def log_values(self, block: Block, groups: np.ndarray | None) -> np.ndarray:
        """(b,) logarithms of the bounds."""
        return self.bound(block, groups)[0].log_values

    def bound(
        self, block: Block, groups: np.ndarray | None
    ) -> tuple[SensitivityBound, np.ndarray, np.ndarray]:
        """The bound, squared norms and shares."""
        geometry = self.geometry
        centred = block.X.astype(np.float64, copy=False) - geometry.center
        sq_norms = squared_norms(centred) / geometry.scale**2
        shares = shares_of(geometry, block, groups)
        if groups is None:
            variance = float(geometry.variances[0])
            return closed_form(sq_norms, shares, variance, self.radius, self.slack), sq_norms, shares
        centred -= geometry.offsets[groups] * geometry.scale
        second = geometry.variances + squared_norms(geometry.offsets)
        from_mean = np.sqrt(squared_norms(centred)) / geometry.scale
        found = closed_form(sq_norms, shares, second[groups], self.radius, self.slack, from_mean)
        return found, sq_norms, shares


class GaussianCells:
    """The certificate of k atoms by dual ascent, :func:`coresift.core.gaussian.cells_bound`, per group."""

    name, is_certified = "cells", True

    def __init__(self, geometry: Geometry, radius: float, summaries: list[Cells]) -> None:
        self.geometry, self.radius, self.summaries = geometry, radius, summaries
        self.start = ClosedForm(geometry, radius)
        k = max(len(summary.mass) for summary in summaries)
        self.note = f"Jensen's inequality in {k} cells and convex duality; valid for every radius."

    def log_values(self, block: Block, groups: np.ndarray | None) -> np.ndarray:
        """(b,) logarithms of the bounds."""
        start, sq_norms, shares = self.start.bound(block, groups)
        log_values = start.log_values
        for group, rows in _by_group(groups, len(log_values)):
            if not self.geometry.mass[group] > 0:  # a class without weight: nothing of it is drawn
                continue
            own = SensitivityBound(log_values[rows], start.name, True, start.note)
            points = _points(self.geometry, block.X[rows])
            problem = Problem(points, sq_norms[rows], shares[rows], self.radius)
            log_values[rows] = cells_bound(problem, self.summaries[group], own).log_values
        return log_values


class LaplacianCells:
    """The certificate of k cells of the Laplacian loss, :func:`coresift.core.laplacian.laplacian_cells`, per group."""

    name, is_certified = "cells", True

    def __init__(self, geometry: Geometry, summaries: list[Cells]) -> None:
        self.geometry, self.summaries = geometry, summaries
        k = max(len(summary.mass) for summary in summaries)
        self.note = f"Jensen's inequality in {k} cells; valid for every query."

    def log_values(self, block: Block, groups: np.ndarray | None) -> np.ndarray:
        """(b,) logarithms of the bounds."""
        shares = shares_of(self.geometry, block, groups)
        log_values = np.empty(len(shares))
        for group, rows in _by_group(groups, len(shares)):
            points = _points(self.geometry, block.X[rows])
            log_values[rows] = laplacian_cells(points, shares[rows], self.summaries[group]).log_values
        return log_values


def _points(geometry: Geometry, X: np.ndarray) -> Points:
    return Points(X, geometry.center, geometry.scale, geometry.max_norm)


class GroupCells:
    """The cells of every group: one pass."""

    def __init__(self, geometry: Geometry, centers: list[np.ndarray]) -> None:
        self.geometry = geometry
        self.sums = [CellSums(group_centers) for group_centers in centers]

    def update(self, block: Block) -> None:
        """Add a block of rows."""
        groups = self.geometry.groups(block)
        shares = shares_of(self.geometry, block, groups)
        for group, rows in _by_group(groups, len(shares)):
            points = _points(self.geometry, block.X[rows])
            own = shares[rows]
            for part, scaled in points.blocks(extra_columns=2 * len(self.sums[group].mass)):
                self.sums[group].update(scaled, own[part])

    def merge(self, other: GroupCells) -> None:
        """Add the cells of later rows."""
        for mine, theirs in zip(self.sums, other.sums, strict=True):
            mine.merge(theirs)


def draw_scores(log_values: np.ndarray, shares: np.ndarray, log_unit: float) -> np.ndarray:
    """Scores in units of ``exp(log_unit)``: the bounds, but never below the share, and zero where the share is."""
    values = np.exp(np.minimum(np.maximum(log_values - log_unit, -LARGEST_EXPONENT), LARGEST_EXPONENT))
    return np.maximum(values, shares * np.exp(-log_unit), out=np.zeros(len(shares)), where=shares > 0)


class Scores:
    """Sums of the bounds of every group, and the draw by keys from them: the last pass."""

    def __init__(
        self, bound: RowBound, pool: KeyPool, log_unit: float, labels: dict[object, int] | None
    ) -> None:
        g = len(bound.geometry.mass)
        self.bound, self.pool, self.log_unit, self.labels = bound, pool, log_unit, labels
        self.total, self.score_total = np.zeros(g), np.zeros(g)
        self.largest_excess = np.zeros(g)  # score / share
        self.largest = np.zeros(g)

    def update(self, block: Block) -> None:
        """Add a block of rows."""
        geometry = self.bound.geometry
        groups = geometry.groups(block)
        shares = shares_of(geometry, block, groups)
        log_values = self.bound.log_values(block, groups)
        scores = draw_scores(log_values, shares, self.log_unit)
        values = np.exp(np.minimum(log_values, LARGEST_EXPONENT))
        positive = shares > 0
        with np.errstate(over="ignore"):
            excess = np.divide(scores, shares, out=np.zeros(len(shares)), where=positive)
        for group, rows in _by_group(groups, len(shares)):
            self.total[group] += values[rows].sum()
            self.score_total[group] += scores[rows].sum()
            self.largest[group] = max(self.largest[group], float(values[rows].max()))
            self.largest_excess[group] = max(self.largest_excess[group], float(excess[rows].max()))
        attached = {}
        if self.labels is not None and block.labels is not None:
            names = np.array([self.labels[name] for name in block.labels.names], dtype=np.int32)
            attached["label"] = names[block.labels.codes]
        weights = np.where(positive, block.weights, 0.0)
        self.pool.update(block.start, scores, weights, groups, **attached)

    def merge(self, other: Scores) -> None:
        """Add the scores of later rows."""
        self.total += other.total
        self.score_total += other.score_total
        for name in ("largest", "largest_excess"):
            setattr(self, name, np.maximum(getattr(self, name), getattr(other, name)))
        self.pool.merge(other.pool)

    @property
    def uniform_factors(self) -> np.ndarray:
        """How many times more points plain sampling needs, at most, per group."""
        return np.divide(
            self.largest_excess, self.score_total, out=np.ones(len(self.total)), where=self.score_total > 0
        )


class Collected:
    """The logarithms of all bounds and all weights, in order: two numbers a row, for draws that need them all."""

    def __init__(self, bound: RowBound) -> None:
        self.bound = bound
        self.parts: list[tuple[np.ndarray, np.ndarray]] = []

    def update(self, block: Block) -> None:
        """Add a block of rows."""
        self.parts.append((self.bound.log_values(block, None), block.weights.copy()))

    def merge(self, other: Collected) -> None:
        """Add those of later rows."""
        self.parts += other.parts
