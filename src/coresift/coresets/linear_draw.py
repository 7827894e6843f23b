"""Draw rows for a linear model in two steps: a pilot by leverage, then the rest by the slopes of the pilot's fit."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from ..core.budgets import random_budgets
from ..core.calibration import SlopeTotals
from ..core.keys import KeyPool
from ..core.leverage import Leverage
from ..core.linear import LinearProblem, fit_linear
from ..core.points import GEMM_BLOCK_BYTES, Matrix, row_slices, stacked
from ..rows.rows import Block
from .linear_rows import LinearRows, Response

_PILOT_SHARE = 0.4
_PILOT_TOLERANCE = 1e-6  # far below the noise of the pilot
_LEAST_OF_A_CLASS = 10  # rows in the pilot, if the class has them and the pilot has room
_PILOT_MIX = (0.4, 0.3, 0.3)  # of the weight, the root of the leverage, the leverage
_REST_MIX = (0.6, 0.3, 0.1)  # of slope times root of leverage, the pilot's scores, the weight


@dataclass(frozen=True)
class WeightedRows:
    """Rows in memory: their numbers, features, response, weights in the draw and weights in the data."""

    indices: np.ndarray
    X: Matrix
    y: np.ndarray
    weights: np.ndarray
    own: np.ndarray

    def joined(self, other: WeightedRows) -> WeightedRows:
        """These rows and others, in order."""
        order = np.argsort(np.concatenate([self.indices, other.indices]))
        pairs = ((getattr(self, part.name), getattr(other, part.name)) for part in fields(self))
        return WeightedRows(*(stacked(list(pair))[order] for pair in pairs))


@dataclass(frozen=True)
class RowScores:
    """Scores by which rows are drawn: of the pilot, or of the rest if ``theta``, the fit of the pilot, is given.

    The pilot mixes weight, root of the leverage and leverage, each of total about 1. ``sqrt(W rank)``, a bound, stands
    for the sum of ``w sqrt(h)``: any positive scores give unbiased draws. The rest adds the norm of the slope at
    ``theta`` times the root of the leverage, the optimal score with leverage in place of the unknown Hessian.
    """

    problem: LinearProblem
    leverage: Leverage
    mass: float
    theta: np.ndarray | None = None
    total: float = 0.0  # of the influence of all rows, about

    def of(self, A: Matrix, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Scores of weighted rows."""
        leverage, rank = self.leverage.of(A), max(self.leverage.rank, 1)
        even, root, plain = _PILOT_MIX
        values = even / self.mass + root * np.sqrt(leverage / rank) / np.sqrt(self.mass) + plain * leverage / rank
        if self.theta is None or not self.total > 0:
            return weights * values
        by_slope, by_pilot, even = _REST_MIX
        with np.errstate(over="ignore", invalid="ignore"):
            shares = np.nan_to_num(weights * (self.influence(A, y, leverage) / self.total))
        # a share of 1 makes a row certain: more would not help
        return weights * (by_pilot * values + even / self.mass) + by_slope * np.clip(shares, 0.0, 1.0)

    def influence(self, A: Matrix, y: np.ndarray, leverage: np.ndarray) -> np.ndarray:
        """The norm of the slope times the root of the leverage."""
        assert self.theta is not None
        slopes = self.problem.loss.slopes(A @ self.theta.T, y)
        return np.asarray(np.sqrt(np.square(slopes).sum(axis=1) * leverage))

    def fitted_to(self, pilot: WeightedRows) -> RowScores:
        """The scores of the rest, from the fit of the pilot.

        The total of the influence is estimated from one half of the pilot with the fit of the other: rows have small
        slopes at their own fit, and with a total that is too low the slopes would outweigh all else.
        """
        fitted, other = slice(0, None, 2), slice(1, None, 2)
        half = (pilot.X[fitted], pilot.y[fitted], pilot.weights[fitted])
        trial = replace(self, theta=fit_linear(self.problem, *half, tol=_PILOT_TOLERANCE).theta)
        A, weights = self.problem.columns(pilot.X[other]), pilot.weights[other]
        with np.errstate(over="ignore", invalid="ignore"):
            total = float(weights @ trial.influence(A, pilot.y[other], self.leverage.of(A)))
        mean = total / float(weights.sum()) if len(weights) else 0.0
        fit = fit_linear(self.problem, pilot.X, pilot.y, pilot.weights, tol=_PILOT_TOLERANCE)
        return replace(trial, theta=fit.theta, total=mean * self.mass)


class DrawPass:
    """Draw by keys, never rows in ``taken``; ``totals`` are summed on the way."""

    def __init__(
        self, response: Response, scores: RowScores, pool: KeyPool, taken: np.ndarray, totals: SlopeTotals | None = None
    ) -> None:
        self.response, self.scores, self.pool, self.taken, self.totals = response, scores, pool, taken, totals

    def update(self, block: Block) -> None:
        y, problem = self.response.of(block), self.scores.problem
        values = np.empty(block.n)
        for part in row_slices(block.n, 16.0 * problem.n_columns, GEMM_BLOCK_BYTES):
            A = problem.columns(block.X[part])
            values[part] = self.scores.of(A, y[part], block.weights[part])
            if self.totals is not None:
                self.totals.add_columns(A, y[part], block.weights[part])
        first, last = np.searchsorted(self.taken, [block.start, block.start + block.n])
        values[self.taken[first:last] - block.start] = 0.0
        groups = y if len(self.pool.sizes) > 1 else None
        self.pool.update(block.start, values, block.weights, groups, X=block.X, y=y)

    def merge(self, other: DrawPass) -> None:
        self.pool.merge(other.pool)
        if self.totals is not None and other.totals is not None:
            self.totals.merge(other.totals)

    def drawn(self) -> WeightedRows:
        """The rows drawn, in their order."""
        columns, draws = self.pool.winners()
        indices = np.concatenate([draw.indices for draw in draws])
        weights = np.concatenate([draw.weights for draw in draws])[np.argsort(indices)]
        return WeightedRows(columns["row"], columns["X"], columns["y"], weights, columns["weight"])


def draw_two_steps(
    rows: LinearRows, problem: LinearProblem, leverage: Leverage, size: int, seed: int
) -> tuple[WeightedRows, SlopeTotals | None]:
    r"""Draw ``size`` rows, unbiased; also the totals of all rows at the parameters that the pilot gave.

    Given the pilot P, the rows of P with their own weights and a draw from all other rows are unbiased together,
    whatever the scores. So is the pilot alone. The weights returned are the mean of both, with a fixed share for each
    that depends on sizes alone. Without a pilot of every row there are two passes, else one and no totals.
    """
    seeds = [int(number) for number in np.random.SeedSequence(seed).generate_state(2, np.uint64)]
    n_rows = rows.moments.n_rows
    scores = RowScores(problem, leverage, rows.moments.mass)
    pilot_size = n_rows if size >= n_rows else max(1, round(_PILOT_SHARE * size))
    sizes, factors = np.array([pilot_size]), np.ones(1)
    if rows.response.classes is not None:
        counts = rows.by_class(rows.moments.label_rows).astype(np.int64)
        least = min(_LEAST_OF_A_CLASS, pilot_size // len(counts))
        rng = np.random.default_rng(seeds)
        sizes, factors = random_budgets(counts, pilot_size, rng, min_per_class=least, power=0.5)
    nothing = np.zeros(0, dtype=np.int64)
    pilot = rows.runner.run("pilot", DrawPass(rows.response, scores, KeyPool(seeds[0], sizes), nothing)).drawn()
    if factors.max() > 1.0:  # a class without a row is made up for by those that have one by chance
        pilot = replace(pilot, weights=pilot.weights * factors[pilot.y])
    n_pilot = len(pilot.indices)
    left = size - n_pilot
    if n_pilot == n_rows or left <= 0:
        return pilot, None

    scores = scores.fitted_to(pilot)
    assert scores.theta is not None
    pool, totals = KeyPool(seeds[1], np.array([left])), SlopeTotals(problem, scores.theta)
    found = rows.runner.run("scores", DrawPass(rows.response, scores, pool, pilot.indices, totals))
    rest = found.drawn()

    # variances of the two, up to a common factor, if all rows were alike
    alone = 1.0 / n_pilot - 1.0 / n_rows
    both = (1.0 - n_pilot / n_rows) ** 2 * (1.0 / left - 1.0 / max(n_rows - n_pilot, left))
    share = both / (alone + both)
    mixed = replace(pilot, weights=share * pilot.weights + (1.0 - share) * pilot.own)
    return mixed.joined(replace(rest, weights=(1.0 - share) * rest.weights)), found.totals
