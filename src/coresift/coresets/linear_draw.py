"""Draw rows for a linear model in two steps, a pilot by leverage, the rest by slopes; calibrate their weights."""

from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import scipy.sparse as sp

from ..core.budgets import class_budgets, random_budgets
from ..core.calibration import Calibration, SlopeTotals, medians
from ..core.draw import KeyPool
from ..core.linear import Leverage, LinearProblem, LossSums, fit_linear
from ..core.points import GEMM_BLOCK_BYTES, Matrix, row_slices, stacked
from ..rows.rows import Block
from .linear_rows import LinearRows, Response

_PILOT_SHARE = 0.4
_PILOT_TOLERANCE = 1e-6  # far below the noise of the pilot
_LEAST_OF_A_CLASS = 10  # rows in the pilot, if the class has them and the pilot has room
_PILOT_MIX = (0.4, 0.3, 0.3)  # of the weight, the root of the leverage, the leverage
_REST_MIX = (0.6, 0.3, 0.1)  # of slope times root of leverage, the pilot's scores, the weight
# shares of the way to the totals of all rows, and ridges: part of the way where the whole overshoots, and a larger
# ridge where rare combinations of columns and classes could only be matched by extreme weights
_TRIALS = ((1.0, 1e-4), (0.3, 1e-4), (1.0, 1e-2))
_MANY_ROWS = 50  # a parameter, from which on the first trial is the best
_BOUNDS, _BOUNDS_OF_CLASSES = (0.1, 10.0), (0.2, 5.0)
_MOST_ROUNDS = 6
_FIT_TOLERANCE = 1e-14
MOST_FEATURES = 4000


@dataclass(frozen=True)
class WeightedRows:
    """Rows in memory: their numbers, features, response, weights in the draw and weights in the data."""

    indices: np.ndarray
    X: Matrix
    y: np.ndarray
    weights: np.ndarray
    own: np.ndarray

    def joined(self, other: "WeightedRows") -> "WeightedRows":
        order = np.argsort(np.concatenate([self.indices, other.indices]))
        pairs = ((getattr(self, part.name), getattr(other, part.name)) for part in fields(self))
        return WeightedRows(*(stacked(list(pair))[order] for pair in pairs))


@dataclass(frozen=True)
class RowScores:
    """Scores by which rows are drawn: of the pilot, or of the rest if ``theta``, the fit of the pilot, is given.

    The pilot mixes weight, root of the leverage and leverage, each of total at most about 1. The rest adds the norm of
    the slope at ``theta`` times the root of the leverage, the optimal score with leverage for the unknown Hessian.
    """

    problem: LinearProblem
    leverage: Leverage
    mass: float
    theta: np.ndarray | None = None
    total: float = 0.0  # of the influence of all rows, about

    def of(self, A: Matrix, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
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
        assert self.theta is not None
        slopes = self.problem.loss.slopes(A @ self.theta.T, y)
        return np.asarray(np.sqrt(np.square(slopes).sum(axis=1) * leverage))

    def fitted_to(self, pilot: WeightedRows) -> "RowScores":
        # one half estimates the total of the influence at the fit of the other: at their own fit slopes are too small
        rough = fit_linear(self.problem, pilot.X[::2], pilot.y[::2], pilot.weights[::2], tol=_PILOT_TOLERANCE)
        trial = replace(self, theta=rough.theta)
        A, weights = self.problem.columns(pilot.X[1::2]), pilot.weights[1::2]
        with np.errstate(over="ignore", invalid="ignore"):
            total = float(weights @ trial.influence(A, pilot.y[1::2], self.leverage.of(A)))
        mean = total / float(weights.sum()) if len(weights) else 0.0
        fit = fit_linear(self.problem, pilot.X, pilot.y, pilot.weights, rough, tol=_PILOT_TOLERANCE)
        return replace(trial, theta=fit.theta, total=mean * self.mass)


@dataclass
class DrawPass:
    """Draw by keys, never rows in ``taken``; on the way sum ``totals``, and draw ``even`` by weight."""

    response: Response
    scores: RowScores
    pool: KeyPool
    taken: np.ndarray
    totals: SlopeTotals | None = None
    even: KeyPool | None = None

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
        for pool, drawn_by in ((self.pool, values), (self.even, block.weights)):
            if pool is not None:
                groups = y if len(pool.sizes) > 1 else None
                pool.update(block.start, drawn_by, block.weights, groups, X=block.X, y=y)

    def merge(self, other: Self) -> None:
        self.pool.merge(other.pool)
        if self.even is not None and other.even is not None:
            self.even.merge(other.even)
        if self.totals is not None and other.totals is not None:
            self.totals.merge(other.totals)


def drawn(pool: KeyPool) -> WeightedRows:
    """The rows that a pool has drawn, in their order."""
    columns, draws = pool.winners()
    indices = np.concatenate([draw.indices for draw in draws])
    weights = np.concatenate([draw.weights for draw in draws])[np.argsort(indices)]
    return WeightedRows(columns["row"], columns["X"], columns["y"], weights, columns["weight"])


def balanced(rows: WeightedRows, masses: np.ndarray) -> WeightedRows:
    """Scale the weights to the mass of each class; to that of all rows if there is one."""
    codes = rows.y if len(masses) > 1 else np.zeros(len(rows.y), dtype=np.int64)
    own = np.bincount(codes, rows.weights, len(masses))
    return replace(rows, weights=rows.weights * (masses / np.where(own > 0, own, 1.0))[codes])


def draw_two_steps(
    rows: LinearRows, problem: LinearProblem, leverage: Leverage, size: int, seed: int, *, with_even: bool = False
) -> tuple[WeightedRows, SlopeTotals | None, WeightedRows | None]:
    """Draw ``size`` rows, unbiased; also the totals of all rows at the parameters that the pilot gave.

    The pilot with its own weights and a draw from all other rows are unbiased together, whatever the scores. So is the
    pilot alone. The weights are the mean of both, by shares that depend on sizes alone. ``with_even`` adds a plain
    draw by weight, stratified by class.
    """
    seeds = [int(number) for number in np.random.SeedSequence(seed).generate_state(3, np.uint64)]
    n_rows = rows.moments.n_rows
    scores = RowScores(problem, leverage, rows.moments.mass)
    pilot_size = n_rows if size >= n_rows else max(1, round(_PILOT_SHARE * size))
    sizes, factors = np.array([pilot_size]), np.ones(1)
    even_sizes, masses = np.array([size]), np.array([rows.moments.mass])
    if rows.response.classes is not None:
        counts = rows.by_class(rows.moments.label_rows).astype(np.int64)
        least = min(_LEAST_OF_A_CLASS, pilot_size // len(counts))
        rng = np.random.default_rng(seeds[:2])
        sizes, factors = random_budgets(counts, pilot_size, rng, min_per_class=least, power=0.5)
        even_sizes = class_budgets(counts, min(size, n_rows), min_per_class=int(size >= len(counts)))
        masses = rows.by_class(rows.moments.label_mass)
    even_pool = KeyPool(seeds[2], even_sizes) if with_even else None
    pool, nothing = KeyPool(seeds[0], sizes), np.zeros(0, dtype=np.int64)
    first = rows.runner.run("pilot", DrawPass(rows.response, scores, pool, nothing, even=even_pool))
    pilot, even = drawn(first.pool), None if first.even is None else balanced(drawn(first.even), masses)
    if factors.max() > 1.0:  # a class without a row is made up for by those that have one by chance
        pilot = replace(pilot, weights=pilot.weights * factors[pilot.y])
    n_pilot = len(pilot.indices)
    left = size - n_pilot
    if n_pilot == n_rows or left <= 0:
        return pilot, None, even

    scores = scores.fitted_to(pilot)
    assert scores.theta is not None
    pool, totals = KeyPool(seeds[1], np.array([left])), SlopeTotals(problem, scores.theta)
    found = rows.runner.run("scores", DrawPass(rows.response, scores, pool, pilot.indices, totals))
    rest = drawn(found.pool)

    # variances of the two, up to a common factor, if all rows were alike
    alone = 1.0 / n_pilot - 1.0 / n_rows
    both = (1.0 - n_pilot / n_rows) ** 2 * (1.0 / left - 1.0 / max(n_rows - n_pilot, left))
    share = both / (alone + both)
    mixed = replace(pilot, weights=share * pilot.weights + (1.0 - share) * pilot.own)
    return mixed.joined(replace(rest, weights=(1.0 - share) * rest.weights)), found.totals, even


def calibrate_draw(
    rows: LinearRows, drawn: WeightedRows, fitted: LossSums, totals: SlopeTotals, tolerance: float
) -> tuple[WeightedRows, LossSums, int, np.ndarray | None]:
    """Calibrate a draw, whose fit is ``fitted``, at first to ``totals`` of all rows at other parameters.

    A subset with the sum of ``l' a`` of all rows at ``theta`` has their gradient there: its fit is a Newton step on the
    loss of all rows, with the Hessian of the subset. Where that overshoots, going part of the way helps. So each round
    fits several weightings; one pass finds the loss of all rows at each, and the totals for the next round. It ends
    when a round, which is dropped, does not lower the loss, or when little (``tolerance``) is left. Returns the rows
    with their weights, the sums of all rows at the fit, the rounds kept, and the expected step to the minimum.
    """
    problem = totals.problem
    A = problem.columns(drawn.X)
    bounds = _BOUNDS if problem.loss.n_outputs == 1 else _BOUNDS_OF_CLASSES
    tried = _TRIALS[:1] if len(drawn.y) >= _MANY_ROWS * fitted.theta.size else _TRIALS
    best: LossSums | None = None
    weights, n_kept, step = drawn.weights, 0, None
    candidates = [(weights, fitted)]
    for _ in range(_MOST_ROUNDS):
        features, targets = _features(totals, A, drawn)
        calibration, reached = Calibration(drawn.weights, features), weights @ features
        # with the curvatures, and without: fewer totals can be matched by smaller changes
        slopes, both = 1 + fitted.theta.size, len(targets)
        trials = [(slopes, *trial) for trial in tried]
        trials += [(both, *trial) for trial in tried[:2] if slopes < both <= MOST_FEATURES]
        for width, share, ridge in trials:
            goal = (reached + share * (targets - reached))[:width]
            made = drawn.weights * calibration.ratios(goal, ridge=ridge, bounds=bounds)
            candidates.append((made, fit_linear(problem, drawn.X, drawn.y, made, fitted, tol=_FIT_TOLERANCE)))
        found = rows.run("calibration", *(SlopeTotals(problem, fit.theta) for _, fit in candidates))
        at = int(np.argmin(np.nan_to_num([sums.objective for sums in found], nan=np.inf, posinf=np.inf)))
        if best is not None and not found[at].objective < best.objective:
            break
        n_kept += int(best is not None or at > 0)
        totals = best = found[at]
        weights, fitted = candidates[at]
        if not np.isfinite(best.objective):  # the mean of a Poisson model overflows, and with it the totals
            break
        if fitted.hessian.size:  # a step with the gradient of all rows and the Hessian of the subset
            fitted.gradient = best.gradient * (fitted.weight / best.weight)
            step, fall = fitted.newton_step()
            if 0.5 * fall < tolerance * best.objective:
                break
        candidates = []
    assert best is not None
    return replace(drawn, weights=weights), best, n_kept, step


def _features(totals: SlopeTotals, A: Matrix, drawn: WeightedRows) -> tuple[Matrix, np.ndarray]:
    """Features to be calibrated and their totals: ones, slopes, curvatures."""
    features, sums = totals.features(A, drawn.y), totals.totals
    ones = np.ones((len(drawn.y), 1))
    if not isinstance(features, np.ndarray):
        return sp.csr_array(sp.hstack([ones, features])), np.append(totals.weight, sums)
    if totals.problem.fit_intercept:  # about medians: a category that is absent from the draw is zero, and left out
        middle = np.append(medians(A[:, :-1], drawn.weights), 0.0)
        for values in (features, sums):
            parts = values.reshape(len(values), -1, len(middle))
            parts -= parts[:, :, -1:] * middle  # the last column is ones times the slope
    return np.hstack([ones, features]), np.append(totals.weight, sums)
