r"""Lower bounds on the smallest loss of a linear model, by duality, and the search for a good one.

For slopes ``a_i`` with ``sum_i w_i a_i = 0`` (free intercept), ``g = sum_i w_i a_i x_i / W`` and any reference scores
``z_i = theta . x_i``, with penalties ``p_j`` of half the squared coefficients (docs/theory.md has the proof):

.. math:: F^* \ge \frac1W \sum_i w_i (a_i z_i - l_i^*(a_i))
          + \sum_j \Big( \frac{p_j}{2} \theta_j^2 - \frac{(g_j + p_j \theta_j)^2}{2 p_j} \Big)

The slopes are linearised ones of a Newton step: ``a_i = l'_i(x_i . base) + l''_i(x_i . base) x_i . step``, so the gap
falls with the fourth power of the step, whatever ``alpha``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, eigvalsh, solve_triangular
from scipy.optimize import LbfgsInvHessProduct

from .._errors import InvalidInputError
from .linear import LinearProblem, LossSums, solve_positive
from .linear_losses import Multinomial, Squared
from .points import Matrix

_UNIT = 2.0**-53
_ROWS = 1024  # of a matrix product: sums of that many terms, and the sum of these, are the rounding errors to bound
_PAIRWISE = 40  # roundings of NumPy's pairwise sum of _ROWS terms, and of each term
_CLOSE = 1.1  # certificate over the excess that was found at which the search stops
_LONGEST = 10.0  # step, relative to theta
_MEMORY = 20  # steps that a quasi-Newton direction remembers


class DualSums(LossSums):
    """The loss at ``theta`` with its derivatives, and the dual point of the Newton step ``step`` from ``base``."""

    summed = (*LossSums.summed, "supports", "totals", "pulls", "sizes", "squares", "at_zero", "bend")

    def __init__(
        self, problem: LinearProblem, theta: np.ndarray, order: int, base: np.ndarray, step: np.ndarray | None = None
    ) -> None:
        super().__init__(problem, theta, order)
        self.base, self.step = base, step
        self.n_sums = 0  # additions that a sum of at most _ROWS terms went through
        self.sizes = self.squares = self.at_zero = 0.0
        # two dual points that can be mixed: slopes of either sign, or (multinomial) slopes and labels
        self.supports, self.totals = np.zeros(2), np.zeros((2, problem.loss.n_outputs))
        self.pulls = np.zeros((2, *problem.shape))
        self.bend = np.zeros((problem.loss.n_outputs,) * 2)  # second derivatives by the intercepts, for order 1

    def add(self, X: Matrix, y: np.ndarray, weights: np.ndarray, *others: LossSums) -> None:
        if not weights.all():
            used = np.flatnonzero(weights)
            X, y, weights = X[used], y[used], weights[used]
        for start in range(0, len(y), _ROWS):
            part = slice(start, start + _ROWS)
            super().add(X[part], y[part], weights[part], *others)

    def add_columns(self, A: Matrix, y: np.ndarray, weights: np.ndarray) -> None:
        super().add_columns(A, y, weights)
        loss = self.problem.loss
        with np.errstate(over="ignore", invalid="ignore"):
            z = A @ self.base.T
            a = loss.slopes(z, y)
            if self.step is None:
                self.at_zero += float(np.sum(weights * loss.values(np.zeros_like(z), y)))
            else:
                a = a + loss.turns(z, y, A @ self.step.T)
                z = A @ self.reference.T  # not z + along: their rounding errors can be larger
            a = loss.nearest_slopes(a, y)
            values, sizes = loss.supports(a, z, y)
            if isinstance(loss, Multinomial):
                parts = [a, -np.eye(loss.n_outputs)[y]]
                self.supports[0] += np.sum(weights * values)
            else:
                parts = [np.maximum(a, 0.0), np.minimum(a, 0.0)]
                self.supports += [np.sum(np.where(part[:, 0] != 0, weights * values, 0.0)) for part in parts]
            self.sizes += float(np.sum(weights * sizes))
            self.squares += float(np.sum(weights[:, None] * a**2))
            if self.order == 1:
                c = loss.curvatures(A @ self.theta.T, y)
                self.bend += np.diag(weights @ c) - (c.T @ (weights[:, None] * c) if loss.n_outputs > 1 else 0.0)
            for i, part in enumerate(parts):
                # along contiguous rows NumPy sums in pairs
                self.totals[i] += np.ascontiguousarray((weights[:, None] * part).T).sum(axis=1)
                self.pulls[i] += (A.T @ (weights[:, None] * part)).T
        self.n_sums += 1

    def merge(self, other: Self) -> None:
        super().merge(other)
        self.n_sums = max(self.n_sums, other.n_sums) + 1

    @property
    def reference(self) -> np.ndarray:
        return self.base if self.step is None else self.base + self.step

    def score_error(self, theta: np.ndarray, rms: np.ndarray) -> float:
        """A bound on the root mean square of the rounding errors of the scores of ``theta``."""
        coef, intercept = self.problem.to_data(theta)
        sizes = np.sum(np.abs(theta) @ rms) + np.sum(np.abs(coef) @ np.abs(self.problem.shift) + np.abs(intercept))
        return (self.problem.n_columns + 8) * _UNIT * float(sizes)

    def rounding(self, theta: np.ndarray, rms: np.ndarray) -> float:
        """A bound on what rounding changes in F, or in the mean of the supports, at the scores of ``theta``."""
        sums = 4.0 * (_PAIRWISE + self.n_sums) * self.sizes / self.weight
        penalty = (self.problem.n_columns + 8) * float((theta**2 @ self.problem.penalties).sum())
        return _UNIT * (sums + penalty) + np.sqrt(self.squares / self.weight) * self.score_error(theta, rms)

    def lower_bound(self, rms: np.ndarray) -> tuple[float, float]:
        """A lower bound on the minimum of F, and what rounding cost; ``rms``: root mean squares of the columns."""
        penalties, theta = self.problem.penalties, self.reference
        drift = 0.0  # of the share that the second dual point has, by rounding
        if not (self.problem.fit_intercept and penalties[-1] == 0.0):
            shares = np.array([1.0, 0.0 if isinstance(self.problem.loss, Multinomial) else 1.0])
            support, pull = float(shares @ self.supports), np.tensordot(shares, self.pulls, 1)
        elif isinstance(self.problem.loss, Multinomial):
            support, pull, drift = self._mixed()
        else:  # scale down the slopes of the heavier sign until they are balanced: l*(c a) <= c l*(a) for c in [0, 1]
            masses = np.abs(self.totals[:, 0])
            shares = np.divide(masses.min(), masses, out=np.ones(2), where=masses > 0)
            support, pull = float(shares @ self.supports), np.tensordot(shares, self.pulls, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            error = 4.0 * (_ROWS + self.n_sums) * _UNIT * np.sqrt(self.squares / self.weight) + 2.0 * drift
            missing = np.abs(pull / self.weight + penalties * theta) + error * rms
            missing += 4.0 * _UNIT * penalties * np.abs(theta)
            held = penalties > 0
            quadratic = 0.5 * penalties * theta**2
            quadratic[:, held] -= missing[:, held] ** 2 / (2.0 * penalties[held])
            slack = self.rounding(theta, rms)
            bound = float(support / self.weight + quadratic.sum()) - slack
        is_valid = held[: len(self.problem.shift)].all() and np.isfinite(bound)  # a penalty can underflow
        return (bound, slack) if is_valid else (-np.inf, slack)

    def _mixed(self) -> tuple[float, np.ndarray, float]:
        """Mix probabilities with constant ones until each class has as much as the labels give it."""
        surplus, labels = self.totals[0], -self.totals[1]
        given = np.maximum(labels + surplus, 1e-300)
        share = float(np.max(surplus / given, initial=0.0))
        rest = np.maximum(share * given - surplus, 0.0)
        constant = rest / max(float(rest.sum()), 1e-300)
        # their loss is at least this, by the entropy of the constant probabilities
        columns = -self.pulls[1].sum(axis=0)
        pull = self.pulls[1] + np.outer(constant, columns)
        own = float((self.pulls[1] * self.reference).sum())
        support = own + float(constant @ (self.reference @ columns))
        error = 2.0 * (_PAIRWISE + self.n_sums) * _UNIT * (given + labels)  # of the surplus
        drift = float(np.max(error / given))
        distance = np.abs(self.reference @ columns + own) / self.weight
        slack = float((error + drift * given) @ distance) + drift * abs(float(self.supports[0]))
        support = (1.0 - share) * float(self.supports[0]) + share * support - slack
        return support, (1.0 - share) * self.pulls[0] + share * pull, drift


@dataclass(frozen=True)
class ModelCertificate:
    """A proved bound on ``F(theta) - F*``, the excess of the penalised mean loss over its minimum.

    Parameters
    ----------
    excess, relative : float
        Proved: ``F(theta) - F*`` is at most ``excess``, over ``F*`` at most ``relative``, infinite if that may be 0.
    objective, lower_bound : float
        F at the model, and what ``F*`` is at least: proved.
    found, n_passes : float, int
        The search met a model whose F is lower by ``found``, so the excess is at least that; passes over the rows.
    loss, alpha : str, float
        F is the weighted mean of the loss plus ``alpha / 2`` times the squared coefficients.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> from coresift import certify_model
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> proof = certify_model(LinearRegression().fit(X[:99], X[:99, 0] ** 2), X, X[:, 0] ** 2)
    >>> bool(0 < proof.found <= proof.excess)
    True
    """

    excess: float
    relative: float
    objective: float
    lower_bound: float
    found: float
    n_passes: int
    loss: str
    alpha: float

    def __str__(self) -> str:
        passes = f"in {self.n_passes} pass{'es' if self.n_passes != 1 else ''}"
        if np.isfinite(self.relative):
            return f"At most {percent(self.relative)} above the smallest possible loss; proved, {passes}."
        if np.isfinite(self.excess):
            return f"At most {self.excess:.3g} above the smallest possible loss, which may be 0; proved, {passes}."
        return f"The loss is infinite, so nothing can be proved ({passes})."


def percent(share: float) -> str:
    """A share in words, as in "0.012 %"."""
    return f"{100 * share:{',.0f' if 1 <= share < 1e4 else '.2g'}} %"


def _certificate(
    problem: LinearProblem, bound: float, found: float, value: float, lower: float, n_passes: int
) -> ModelCertificate:
    """What was proved and found about ``F(theta) - F*``, for a value ``F(theta)`` and a lower bound on ``F*``."""
    excess = max(bound, value - lower)
    relative = 0.0 if excess == 0 else float(excess / lower) if lower > 0 else np.inf
    return ModelCertificate(excess, relative, value, lower, found, n_passes, problem.loss.name, problem.alpha)


SumsAt = Callable[[np.ndarray, np.ndarray, np.ndarray | None], DualSums]


def bound_excess(
    sums_at: SumsAt,
    theta: np.ndarray,
    rms: np.ndarray,
    *,
    step: np.ndarray | None = None,
    tolerance: float = 0.0,
    anew: Callable[[], np.ndarray] | None = None,
    gram: np.ndarray | None = None,
    max_passes: int = 30,
) -> ModelCertificate:
    """Search for a lower bound close to the minimum, by steps from ``theta``; ``step`` is a first guess.

    Each ``sums_at(theta, base, step)`` is a pass over the rows. Steps are Newton's if the sums have Hessians, else
    quasi-Newton, preconditioned by ``gram``. If the first fails, the search starts from zero or from ``anew()``.
    """
    start = best = sums_at(theta, theta, step)
    value, value_slack = start.objective, start.rounding(theta, rms)
    if not np.isfinite(value + value_slack):
        return _certificate(start.problem, np.inf, 0.0, np.inf, 0.0, 1)
    lower, slack = start.lower_bound(rms)
    lower = max(lower, 0.0)
    directions = None if start.order > 1 else _Directions(start, gram)
    n_passes, length, is_used = 1, 1.0, False  # is the step at best used for a dual point?
    if step is None and value * start.weight > start.at_zero:  # far off, where curvatures may vanish or explode
        n_passes, other = (2, np.zeros_like(theta)) if anew is None else (3, anew())
        best, anew = sums_at(other, other, None), None
    while n_passes < max_passes:
        is_close = value + value_slack - lower <= _CLOSE * (value - best.objective)
        is_enough = value + value_slack - lower <= max(tolerance * lower, 4.0 * (value_slack + slack))
        if is_enough or (is_close and best.objective <= _CLOSE * lower):
            break
        step, fall = best.newton_step() if directions is None else directions.step(best)
        is_last = not fall > best.rounding(best.theta, rms)  # F cannot fall any further, but for rounding
        if (is_last and is_used) or length < 1e-9:
            break
        if not isinstance(start.problem.loss, Squared):  # whose curvatures cannot vanish by overflow
            longest = _LONGEST * (1.0 + float(np.sum(np.abs(best.theta) @ rms)))
            share = min(1.0, longest / max(float(np.sum(np.abs(step) @ rms)), 1e-300))
            step, fall = share * step, share * fall
        here, base = best.theta + length * step, best.theta
        tried = sums_at(here, base, step if directions is None else directions.balancing_step(best))
        n_passes, is_used = n_passes + 1, True
        found, now = tried.lower_bound(rms)
        if found > lower:
            lower, slack = found, now
        if is_last:
            break
        if tried.objective <= best.objective - 1e-4 * length * fall:
            best, length, is_used = tried, 1.0, directions is None
            continue
        if anew is not None:
            other, n_passes = anew(), n_passes + 2
            best, anew, is_used = sums_at(other, other, None), None, False
            continue
        rise = tried.objective - best.objective + length * fall
        length *= float(np.clip(0.5 * length * fall / rise, 0.1, 0.5)) if np.isfinite(rise) else 0.1
    bound = value + value_slack - lower
    return _certificate(start.problem, bound, max(value - best.objective, 0.0), value, lower, n_passes)


class _Directions:
    """Quasi-Newton directions (L-BFGS) that start from the curvature of the columns."""

    def __init__(self, start: DualSums, gram: np.ndarray | None) -> None:
        self.penalties = start.problem.penalties
        self.factor = np.sqrt(1.0 + self.penalties)  # of the curvature: a diagonal, or triangular
        if gram is not None:
            least = 1e-9 * max(float(gram.diagonal().max()), 1e-300)
            self.factor = cholesky(gram + np.diag(self.penalties + least), lower=True)
        self.pairs: list[tuple[np.ndarray, np.ndarray]] = []
        self.last: DualSums | None = None

    def step(self, sums: DualSums) -> tuple[np.ndarray, float]:
        """The direction at ``sums``, and by how much F falls along it at first."""
        gradient = sums.slope
        if self.last is not None and self.last is not sums:
            way, turn = sums.theta - self.last.theta, self._scaled(gradient - self.last.slope)
            way = way @ self.factor if self.factor.ndim > 1 else way * self.factor
            if np.sum(way * turn) > 0:
                self.pairs = [*self.pairs[1 - _MEMORY :], (way.ravel(), turn.ravel())]
        self.last = sums
        scaled = self._scaled(gradient)
        step = -scaled
        if self.pairs:
            unit = np.sqrt(np.dot(*self.pairs[-1]) / np.sum(self.pairs[-1][1] ** 2))  # the inverse curvature of late
            ways, turns = (np.array(side) for side in zip(*self.pairs, strict=True))
            step = -unit * LbfgsInvHessProduct(ways / unit, unit * turns).matvec(unit * scaled.ravel())
        made = self._scaled(step.reshape(gradient.shape), "T")
        return made, -float(np.sum(gradient * made))

    def balancing_step(self, sums: DualSums) -> np.ndarray:
        """Newton's step in the intercepts alone: the slopes that it predicts are balanced."""
        step = np.zeros_like(sums.theta)
        if sums.problem.fit_intercept and self.penalties[-1] == 0.0:
            step[:, -1] = -solve_positive(sums.bend / sums.weight, sums.slope[:, -1])
        return step

    def _scaled(self, values: np.ndarray, trans: str = "N") -> np.ndarray:
        if self.factor.ndim == 1:
            return values / self.factor
        return np.asarray(solve_triangular(self.factor, values.T, lower=True, trans=trans).T)


def exact_excess(sums: DualSums, rms: np.ndarray) -> ModelCertificate:
    """Squared loss without a penalty: ``F(theta) - F* = g^T H^-1 g / 2`` for the gradient g and the Hessian H."""
    size = sums.problem.n_columns
    hessian = sums.hessian.reshape(size, size) / sums.weight
    unit = np.sqrt(hessian.diagonal())
    scaled = hessian / np.maximum(unit, 1e-300) / np.maximum(unit, 1e-300)[:, None]
    least = float(eigvalsh(scaled, subset_by_index=[0, 0])[0]) if unit.min() > 0 else 0.0
    if least < 1e-8:
        text = "alpha = 0 and the columns (with the intercept) depend on each other: nothing can be proved."
        raise InvalidInputError(f"{text} Drop constant and redundant columns, or fit with a small penalty.")
    gradient = sums.gradient[0] / sums.weight / unit
    exact = float(gradient @ cho_solve(cho_factor(scaled), gradient))
    per_sum = 4.0 * (_ROWS + sums.n_sums + size) * _UNIT
    error = per_sum * float(np.sqrt(sums.squares / sums.weight)) + sums.score_error(sums.theta, rms)
    bound = 0.5 * (np.sqrt(exact * (1.0 + 4.0 * size * per_sum / least)) + error * np.sqrt(size / least)) ** 2
    bound += sums.rounding(sums.theta, rms)
    value = sums.objective
    return _certificate(sums.problem, float(bound), 0.5 * exact, value, max(value - float(bound), 0.0), 1)
