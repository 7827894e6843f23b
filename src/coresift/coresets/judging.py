"""Out-of-sample estimates: whether a way to choose rows serves a kind of model better than a stratified draw."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from .._progress import Display, Progress
from .._threads import SCIKIT_LEARN
from .covering import Floats, Rows, median_distance
from .uniform import even_draw

RARE = 0.02  # share of the rows below which a class is rare
_LEAST_ROWS = 1000  # with fewer, held-out rows say nothing
_MOST_ROWS = 40_000  # of which a fifth is held out
_MOST_CHOSEN = 4000  # of them; more if that is a smaller share than the one that is asked for
_MOST_TREES = 120  # of boosting, over all classes
_FOLDS = 5
_REPEATS = 2
_KERNEL_ROWS = 4000  # most that a kernel regression is fitted to
_FIT_OPERATIONS = 2e9  # half a second: a fit of another model, and its scores

Chooser = Callable[[Rows, int, Generator], tuple[Rows, Floats]]
"""From candidates (row numbers), a size and a generator to chosen candidates and their weights."""


@dataclass(frozen=True)
class Estimate:
    """Scores on held-out rows of a model that is fitted to chosen rows, and to a stratified draw of the same size."""

    score: str
    mine: float
    stratified: float
    error: float
    """Standard error of the difference, over folds of the held-out rows and repeated draws."""
    n_held_out: int

    @property
    def is_better(self) -> bool:
        return self.mine - self.stratified > self.error

    def __str__(self) -> str:
        both = f"{self.score} {self.mine:.3f} against {self.stratified:.3f} of a stratified draw"
        return f"{both} (+- {self.error:.3f}, {self.n_held_out:,} rows held out)"


@dataclass(frozen=True)
class Examples:
    """Rows with labels: class numbers, or targets if ``n_classes`` is 0."""

    X: Floats
    y: np.ndarray
    n_classes: int

    @property
    def codes(self) -> Rows | None:
        return self.y if self.n_classes else None


def rare_classes(counts: np.ndarray) -> Rows:
    """Classes that have rows, but less than a share of ``RARE``."""
    return np.flatnonzero((counts > 0) & (counts < RARE * counts.sum()))


def estimates(
    choosers: Mapping[str, Chooser],
    examples: Examples,
    size: int,
    model: str,
    rng: Generator,
    display: Display = Progress,
    *,
    power: float = 1.0,
) -> dict[str, Estimate]:
    """Choose rows of four fifths of the examples, fit a model of the kind to them, and score it on the others.

    The score is the average precision of rare classes, else the accuracy, or R squared. Empty if there are few rows.
    """
    n = min(len(examples.y), _MOST_ROWS)
    size = compared_size(size, len(examples.y))
    rare = rare_classes(np.bincount(examples.y)) if examples.n_classes else np.zeros(0, dtype=np.int64)
    if n < max(_LEAST_ROWS, 2 * size):
        return {}

    def stratified(pool: Rows, size: int, rng: Generator) -> tuple[Rows, Floats]:
        codes = None if examples.codes is None else examples.codes[pool]
        drawn = even_draw(np.ones(len(pool)), codes, size, rng, power=power)
        return pool[drawn.indices], drawn.weights

    ways: dict[str, Chooser] = {"stratified": stratified, **choosers}
    scores: dict[str, list[float]] = {name: [] for name in ways}
    progress = display("comparison", _REPEATS * len(ways), unit="fits")
    for _ in range(_REPEATS):
        order = rng.permutation(len(examples.y))[:n]
        if examples.n_classes:  # in every fold as many rows of a class
            order = order[np.argsort(examples.y[order], kind="stable")]
        held, pool = order[::_FOLDS], np.sort(np.delete(order, slice(None, None, _FOLDS)))
        for name, choose in ways.items():
            found = _predicted(examples, held, *choose(pool, size, rng), model, rng)
            parts = (slice(fold, None, _FOLDS) for fold in range(_FOLDS))
            scores[name] += [_score(examples, held[part], found[part], rare) for part in parts]
            progress()
    score = "average precision of the rare classes" if len(rare) else "accuracy" if examples.n_classes else "R squared"
    plain = np.array(scores.pop("stratified"))
    errors = {name: float(np.std(own - plain, ddof=1) / np.sqrt(len(plain))) for name, own in scores.items()}
    means = {name: float(np.mean(own)) for name, own in scores.items()}
    return {name: Estimate(score, means[name], float(plain.mean()), errors[name], len(held)) for name in scores}


def compared_size(size: int, n: int) -> int:
    """Rows that are chosen from the pool to compare; of many rows, fewer than are asked for."""
    return min(size, max(_MOST_CHOSEN, round(size * min(1.0, _MOST_ROWS / n))))


def comparison_operations(costs: Sequence[Callable[[int], float]], n: int, size: int, model: str) -> float:
    """Operations of `estimates`, roughly; ``costs`` are those of each chooser, by its number of candidates."""
    n_used = min(n, _MOST_ROWS)
    if not costs or n_used < max(_LEAST_ROWS, 2 * size):
        return 0.0
    fit = min(size, _KERNEL_ROWS) ** 3 / 3.0 if model in ("kernel", "network") else _FIT_OPERATIONS
    pool = n_used - n_used // _FOLDS
    return _REPEATS * (sum(cost(pool) for cost in costs) + (1 + len(costs)) * fit)


def _predicted(examples: Examples, held: Rows, rows: Rows, weights: Floats, model: str, rng: Generator) -> np.ndarray:
    """Scores of the classes, (n, k), or predictions, (n,), at the held-out rows."""
    if model in ("kernel", "network") and len(rows) > _KERNEL_ROWS:
        some = rng.choice(len(rows), _KERNEL_ROWS, replace=False)
        rows, weights = rows[some], weights[some]
    X, y, weights = examples.X[rows], examples.y[rows], weights / weights.mean()
    made = _models(model, examples.n_classes, X, rng)
    if examples.n_classes and len(np.unique(y)) < 2:
        return np.eye(examples.n_classes)[np.full(len(held), y[0])]
    given: dict[str, Any] = {} if model == "neighbours" else {"sample_weight": weights}
    with SCIKIT_LEARN, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no convergence: good enough to compare
        if not examples.n_classes or model in ("kernel", "network"):
            targets = np.eye(examples.n_classes)[y] if examples.n_classes else y
            return np.asarray(made.fit(X, targets, **given).predict(examples.X[held]))
        made.fit(X, y, **given)
        found = np.zeros((len(held), examples.n_classes))
        found[:, made.classes_] = made.predict_proba(examples.X[held])
        return found


def _models(model: str, n_classes: int, X: Floats, rng: Generator) -> Any:
    """A model of the kind, with scikit-learn's defaults as far as they serve."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

    if model in ("kernel", "network"):
        return KernelRidge(alpha=0.01, kernel="rbf", gamma=2.0 / median_distance(X, rng) ** 2)
    if model == "linear":
        return LogisticRegression() if n_classes else Ridge()
    if model == "neighbours":
        n_neighbors = min(5, len(X))
        return KNeighborsClassifier(n_neighbors) if n_classes else KNeighborsRegressor(n_neighbors)
    kind = HistGradientBoostingClassifier if n_classes else HistGradientBoostingRegressor
    rounds = min(30, max(10, _MOST_TREES // max(n_classes, 1)))
    return kind(max_iter=rounds, max_bins=63, early_stopping=False, random_state=0)


def _score(examples: Examples, held: Rows, found: np.ndarray, rare: Rows) -> float:
    from sklearn.metrics import average_precision_score, r2_score

    y = examples.y[held]
    if not examples.n_classes:
        return float(r2_score(y, found))
    if not len(rare):
        return float(np.mean(found.argmax(axis=1) == y))
    precisions = [average_precision_score(y == each, found[:, each]) for each in rare if (y == each).any()]
    return float(np.mean(precisions or [0.0]))
