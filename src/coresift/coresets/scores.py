"""The last pass: the bounds of all rows, kept for later draws, or turned into a draw on the way."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.bound import LARGEST_EXPONENT, SensitivityBound
from ..rows.rows import Block
from .bounds import RowBound, by_group
from .fitting import BoundSpec, Runner, prepare
from .keys import KeyPool
from .values import QueryBall


def log_unit_of(log_values: np.ndarray) -> float:
    """The logarithm of the unit of scores: 0, or the largest bound where it is above 1."""
    return max(float(log_values.max(initial=0.0)), 0.0)


def draw_scores(log_values: np.ndarray, shares: np.ndarray, log_unit: float) -> np.ndarray:
    """Scores to draw by, in units of ``exp(log_unit)``: the sensitivities, but never below the share of the weight.

    The floor is still a certificate and adds at most 1 to the total. It bounds what a draw adds to a weight by
    ``W t / m``: without it a point far outside the ball, to which no query is sensitive, would be drawn once in
    ages with a weight to match. "paper" and "lemma" can exceed what floats hold: in units of the largest, what would
    vanish stays drawable.
    """
    if log_unit == 0.0:
        scores = np.maximum(np.exp(log_values), shares)
    else:
        log_scores = np.clip(log_values - log_unit, -LARGEST_EXPONENT, LARGEST_EXPONENT)
        scores = np.maximum(np.exp(log_scores), shares * np.exp(-log_unit))
    scores[shares == 0] = 0.0
    return scores


def uniform_factor(scores: np.ndarray, shares: np.ndarray) -> float:
    """How many times more points plain sampling needs for the same guarantee, at most.

    All shares must be multiplied by it, times the total of the scores, to dominate the scores.
    """
    with np.errstate(over="ignore"):
        excess = np.divide(scores, shares, out=np.zeros(len(shares)), where=shares > 0)
    return float(excess.max()) / float(scores.sum())


class Collected:
    """The logarithms of all bounds, their duality gaps and the weights, in order: two or three numbers a row."""

    def __init__(self, bound: RowBound) -> None:
        self.bound = bound
        self.parts: list[tuple[np.ndarray, np.ndarray | None, np.ndarray]] = []

    def update(self, block: Block) -> None:
        """Add a block of rows."""
        self.parts.append((*self.bound.with_gap(block, None), block.weights.copy()))

    def merge(self, other: Collected) -> None:
        """Add those of later rows."""
        self.parts += other.parts

    def finish(self) -> tuple[SensitivityBound, np.ndarray]:
        """The bounds and the weights of all rows."""
        log_values, gaps, weights = zip(*self.parts, strict=True)
        gap = None if gaps[0] is None else np.concatenate(gaps)
        bound = self.bound
        found = SensitivityBound(np.concatenate(log_values), bound.name, bound.is_certified, bound.note, gap)
        return found, np.concatenate(weights)


def bound_of(runner: Runner, spec: BoundSpec, rng: np.random.Generator, ball: QueryBall) -> SensitivityBound:
    """The bounds of all rows for a given ball."""
    prepared = prepare(runner, spec, rng, ball=ball)
    return runner.run("sensitivities", Collected(prepared.bound)).finish()[0]


class Scores:
    """Totals and largest of the bounds in every group, and the draw by keys; other rows are not kept."""

    def __init__(
        self, bound: RowBound, pool: KeyPool, log_unit: float, labels: dict[Any, int] | None
    ) -> None:
        g = len(bound.geometry.mass)
        self.bound, self.pool, self.log_unit, self.labels = bound, pool, log_unit, labels
        self.total, self.score_total = np.zeros(g), np.zeros(g)
        self.largest, self.largest_excess = np.zeros(g), np.zeros(g)  # bound; score / share

    def update(self, block: Block) -> None:
        """Add a block of rows."""
        geometry = self.bound.geometry
        groups = geometry.groups(block)
        shares = geometry.shares(block, groups)
        log_values = self.bound.log_values(block, groups)
        scores = draw_scores(log_values, shares, self.log_unit)
        values = np.exp(np.minimum(log_values, LARGEST_EXPONENT))
        with np.errstate(over="ignore"):
            excess = np.divide(scores, shares, out=np.zeros(len(shares)), where=shares > 0)
        for group, rows in by_group(groups, len(shares)):
            self.total[group] += values[rows].sum()
            self.score_total[group] += scores[rows].sum()
            self.largest[group] = max(self.largest[group], float(values[rows].max()))
            self.largest_excess[group] = max(self.largest_excess[group], float(excess[rows].max()))
        attached = {}
        if self.labels is not None and block.labels is not None:
            names = np.array([self.labels[name] for name in block.labels.names], dtype=np.int32)
            attached["label"] = names[block.labels.codes]
        # a weight too small to have a share of the total counts as none
        weights = np.where(shares > 0, block.weights, 0.0)
        self.pool.update(block.start, scores, weights, groups, **attached)

    def merge(self, other: Scores) -> None:
        """Add the scores of later rows."""
        self.total += other.total
        self.score_total += other.score_total
        self.largest = np.maximum(self.largest, other.largest)
        self.largest_excess = np.maximum(self.largest_excess, other.largest_excess)
        self.pool.merge(other.pool)

    @property
    def uniform_factor(self) -> float:
        """As :func:`uniform_factor`, of the group where it is largest."""
        used = self.score_total > 0
        return float(np.max(self.largest_excess[used] / self.score_total[used]))
