"""Which rows a model is fitted on: the rules of :class:`CoresetClassifier` and :class:`CoresetRegressor`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import get_tags

from .._containers import take_rows
from .._errors import InvalidInputError
from .._validation import check_budget, check_count, check_features
from ..core.budgets import class_budgets
from .coreset import Coreset
from .improve import normalized
from .linear_coreset import LinearCoreset
from .linear_models import penalised_loss
from .linear_rows import CLASSIFIERS

FEW_ROWS = 1000  # a fit to so few takes no time
MOST_PARAMETERS = 1000  # of a linear model, whose Hessian is formed
_ROWS_PER_CLASS = 3  # the first third of the draw has a row of each class, if it has as many rows
_PILOT_ROWS = 2000


@dataclass(frozen=True)
class Task:
    """A model and the rows that it is to be fitted on; ``classes`` and ``codes`` if each row has one label."""

    model: Any
    X: Any
    y: Any
    weights: np.ndarray
    is_weighted: bool  # whether the model takes weights
    classes: np.ndarray | None = None
    codes: np.ndarray | None = None

    @property
    def kind(self) -> str:
        return type(self.model).__name__


@dataclass(frozen=True)
class Choice:
    """A coreset, the rule that chose it, and the model to fit with these weights times ``factor``."""

    core: Coreset
    rule: str
    model: Any
    factor: float = 1.0


@dataclass(frozen=True)
class Objective:
    """A loss that draws are made for, and the penalty ``alpha(W, n)`` of the mean loss of n rows of total weight W."""

    loss: str
    alpha: Callable[[float, int], float]
    threshold: float | None = None
    is_similar: bool = False  # the model has another loss or penalty


def choose(task: Task, size: Any, rng: np.random.Generator) -> Choice:
    """Choose all rows if they are few, by the loss if the model is linear, and else uniformly within each class."""
    n_used = int(np.count_nonzero(task.weights))
    count = wanted_size(size, n_used)
    if count == n_used:
        return Choice(all_rows(task.weights), f"all rows: there are {n_used:,}", task.model)
    if get_tags(task.model).input_tags.pairwise:
        return Choice(all_rows(task.weights), "all rows: X is a matrix of pairs of rows", task.model)
    if not task.is_weighted:
        drawn = drawn_rows(task.weights, task.codes, count, rng)
        return Choice(drawn, f"{drawn.method} draw: {task.kind} takes no sample_weight", task.model)
    goal = objective(task, rng)
    made = None if goal is None else linear_choice(task, goal, count, rng)
    if made is None:
        drawn = normalized(drawn_rows(task.weights, task.codes, count, rng))
        why = "is not a linear model of a known loss" if goal is None else "has too many parameters or too few rows"
        made = Choice(drawn, f"{drawn.method} draw: {task.kind} {why}", task.model)
    if goal is None:
        return made
    # the penalty must mean the same for the coreset: SGD divides by the number of rows, whatever they weigh
    mass, n = float(task.weights.sum()), len(task.weights)
    return replace(made, factor=goal.alpha(mass, made.core.size) / goal.alpha(mass, n) if goal.alpha(mass, n) else 1.0)


def wanted_size(size: Any, n: int) -> int:
    """Number of rows to choose among ``n``: an integer as it is, a fraction only if there are more than a few."""
    if isinstance(size, Integral):
        return min(check_count(size, "size"), n)
    wanted = check_budget(size, n)
    return wanted if n > FEW_ROWS else n


def all_rows(weights: np.ndarray) -> Coreset:
    """All rows of positive weight."""
    used = np.flatnonzero(weights)
    return Coreset(used, weights[used], len(weights), method="all", total_weight=float(weights.sum()))


def drawn_rows(weights: np.ndarray, codes: np.ndarray | None, size: int, rng: np.random.Generator) -> Coreset:
    """Draw rows of positive weight uniformly; if there are classes, in proportion to their rows, at least one of each.

    Row i of a class of which m of n rows are drawn weighs ``w_i n / m``: weighted sums are unbiased.
    """
    used = np.flatnonzero(weights)
    classes, numbers = np.unique(np.zeros(len(used)) if codes is None else codes[used], return_inverse=True)
    if size < len(classes):
        raise InvalidInputError(f"size: {size} rows cannot hold {len(classes)} classes; one row of each is needed.")
    counts = np.bincount(numbers)
    sizes = class_budgets(counts, size, min_per_class=1)
    chosen = [rng.choice(used[numbers == c], sizes[c], replace=False) for c in range(len(classes))]
    drawn = [weights[rows] * (n / m) for rows, n, m in zip(chosen, counts, sizes, strict=True)]
    method = "uniform" if codes is None else "stratified"
    total = float(weights.sum())
    return Coreset(np.concatenate(chosen), np.concatenate(drawn), len(weights), method=method, total_weight=total)


def linear_choice(task: Task, goal: Objective, size: int, rng: np.random.Generator) -> Choice | None:
    """A coreset of a linear model by its loss; None if that is too large a problem, or too few rows."""
    X, weights, codes = check_features(task.X, finite=False), task.weights, task.codes
    n_classes = 0 if codes is None else len(np.unique(codes[weights > 0]))
    loss, target = goal.loss, task.y if codes is None else codes
    if codes is not None and loss not in CLASSIFIERS:
        target = 2.0 * codes - 1.0
    if n_classes > 2:
        loss, target = "logistic", codes
    if (X.shape[1] + 1) * (n_classes if n_classes > 2 else 1) > MOST_PARAMETERS or size < _ROWS_PER_CLASS * n_classes:
        return None
    factors, model = _class_factors(task)
    seen = weights * factors
    alpha = goal.alpha(float(seen.sum()), len(weights))
    maker = LinearCoreset(
        loss, alpha=alpha, fit_intercept=bool(task.model.fit_intercept), threshold=goal.threshold, random_state=rng
    )
    core = normalized(maker.fit(X, target, seen).sample(size))
    core = replace(core, weights=core.weights / factors[core.indices], total_weight=float(weights.sum()))
    rule = f"two-step draw for the {loss} loss, alpha = {alpha:.3g}"
    if goal.is_similar or loss != goal.loss:
        rule += f", the nearest to that of {task.kind}"
    return Choice(core, rule, model)


def _class_factors(task: Task) -> tuple[np.ndarray, Any]:
    """What the model multiplies the weights of the rows by, and the model with these class weights spelled out.

    "balanced" weights are those of all rows, not of the coreset.
    """
    given = getattr(task.model, "class_weight", None)
    if given is None or task.codes is None or task.classes is None:
        return np.ones(len(task.weights)), task.model
    names = task.classes.tolist()
    if isinstance(given, dict):
        by_class = np.array([float(given.get(name, 1.0)) for name in names])
    else:
        masses = np.bincount(task.codes, task.weights, len(names))
        by_class = masses.sum() / (np.count_nonzero(masses) * np.where(masses > 0, masses, np.inf))
        by_class[masses == 0] = 1.0
    if not by_class.min() > 0:
        raise InvalidInputError(f"class_weight = {given!r:.80}: every class needs a weight above 0.")
    return by_class[task.codes], clone(task.model).set_params(class_weight=dict(zip(names, by_class, strict=True)))


def objective(task: Task, rng: np.random.Generator) -> Objective | None:
    """What a linear model minimises, or the most similar problem that draws are made for."""
    has_outputs = task.codes is None and np.ndim(task.y) > 1 and np.shape(task.y)[1] > 1
    if has_outputs or task.kind.endswith("CV"):  # several penalties
        return None
    try:
        found = penalised_loss(task.model)
        return Objective(found["loss"], found["alpha"], found.get("threshold"))
    except InvalidInputError:
        return _SIMILAR[task.kind](task, rng) if task.kind in _SIMILAR else None


def _similar(loss: str, strength: str) -> Callable[[Task, np.random.Generator], Objective]:
    """The loss of an L2 penalty of the same strength, which is C, or alpha of the mean loss."""

    def similar(task: Task, rng: np.random.Generator) -> Objective:
        value = float(getattr(task.model, strength))
        if strength == "C":
            return Objective(loss, lambda mass, _n: 1.0 / (value * mass), is_similar=True)
        own = "logistic" if getattr(task.model, "loss", None) == "log_loss" else loss
        is_sgd = task.kind.startswith("SGD")
        return Objective(own, lambda mass, n: value * n / mass if is_sgd else value, is_similar=True)

    return similar


def _huber(task: Task, rng: np.random.Generator) -> Objective:
    """HuberRegressor also fits the scale of the residuals: estimate it from a few rows, then keep it."""
    pilot = drawn_rows(task.weights, None, min(_PILOT_ROWS, int(np.count_nonzero(task.weights))), rng)
    sigma = float(clone(task.model).fit(*(take_rows(given, pilot.indices) for given in (task.X, task.y))).scale_)
    epsilon, strength = float(task.model.epsilon), float(task.model.alpha)
    return Objective("huber", lambda mass, _n: strength * sigma / mass, threshold=epsilon * sigma, is_similar=True)


_SIMILAR: dict[str, Callable[[Task, np.random.Generator], Objective]] = {
    "LogisticRegression": _similar("logistic", "C"),
    "LinearSVC": _similar("squared_hinge", "C"),
    "SGDClassifier": _similar("squared_hinge", "alpha"),
    "SGDRegressor": _similar("squared", "alpha"),
    "Lasso": _similar("squared", "alpha"),
    "ElasticNet": _similar("squared", "alpha"),
    "HuberRegressor": _huber,
}
