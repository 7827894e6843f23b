"""Nested coresets: subsets that contain one another, each with weights of its own, as a ladder of fidelities."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import indexable

from .._containers import n_rows, take_rows
from .._errors import InvalidInputError
from .._validation import check_budget, check_choice, check_generator, check_weights
from .coreset import Coreset
from .fit_rules import Choice, Task, choose, even_draw
from .linear_rows import check_labels
from .wrapping import takes_weights

NESTED = ("stratified", "uniform")


def nested_coresets(
    X: Any,
    y: Any,
    sizes: Sequence[int | float],
    *,
    strategy: Any = "stratified",
    sample_weight: Any = None,
    random_state: Any = None,
) -> list[Coreset]:
    """Choose coresets that contain one another: a ladder for comparing models on few rows first.

    The largest is chosen from all rows, and each smaller one from the next larger, as a coreset of weighted rows. So
    each of them has weights that stand for all rows, and a model can be moved up the ladder without forgetting rows.

    Parameters
    ----------
    X : array-like, frame or sparse matrix of shape (n, d)
    y : array-like of shape (n,)
        Labels or targets.
    sizes : sequence of int or float
        Increasing numbers of rows, or fractions of the rows.
    strategy : {"stratified", "uniform"} or estimator
        "stratified" gives every class its share of the rows, and at least one. For a model of scikit-learn the rows are
        chosen as :class:`CoresetClassifier` and :class:`CoresetRegressor` do, linear models by their own loss.
    sample_weight : array-like of shape (n,), optional
    random_state : None, int or Generator

    Returns
    -------
    list of Coreset, in the order of ``sizes``

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> small, large = nested_coresets(X, y, (0.05, 0.2), random_state=0)
    >>> small.size, large.size, set(small.indices) <= set(large.indices)
    (90, 360, True)
    """
    X, y = indexable(X, y)
    weights = check_weights(sample_weight, n_rows(X))
    is_named = not hasattr(strategy, "fit")
    name = check_choice(strategy, "strategy", NESTED) if is_named else ""
    has_classes = name == "stratified" or (not is_named and is_classifier(strategy))
    classes, codes = check_labels(y) if has_classes else (None, None)
    counts = check_ladder(sizes, int(np.count_nonzero(weights)), 1 if classes is None else len(classes), "sizes")
    model = None if is_named else strategy
    task = Task(model, X, y, weights, is_named or takes_weights(strategy), classes, codes)
    return [choice.core for choice in nested_choices(task, counts, check_generator(random_state))]


def check_ladder(sizes: Any, n_samples: int, n_classes: int, name: str) -> list[int]:
    """Return increasing numbers of rows from numbers or fractions; each has room for a row of every class."""
    if isinstance(sizes, str) or not isinstance(sizes, Sequence | np.ndarray) or len(sizes) == 0:
        raise InvalidInputError(f"{name} = {sizes!r:.60} must be a sequence of sizes, such as (0.03, 0.1, 0.3).")
    counts = [check_budget(size, n_samples, f"{name}[{i}]") for i, size in enumerate(sizes)]
    for i, (small, large) in enumerate(itertools.pairwise(counts)):
        if small >= large:
            raise InvalidInputError(
                f"{name} = {tuple(sizes)} must increase: {name}[{i}] is {small} of {n_samples} rows, the next {large}."
            )
    if counts[0] < n_classes:
        raise InvalidInputError(
            f"{name}[0] = {sizes[0]} is {counts[0]} of {n_samples} rows, fewer than the {n_classes} classes. "
            "Begin with a larger subset."
        )
    return counts


def nested_choices(task: Task, counts: list[int], rng: np.random.Generator) -> list[Choice]:
    """Choose the largest coreset from all rows, then each from the next larger; the smallest comes first."""
    n, total = len(task.weights), float(task.weights.sum())
    rows = np.arange(n)
    choices: list[Choice] = []
    for count in reversed(counts):
        if task.model is None:
            core = even_draw(task.weights, task.codes, count, rng)
            choice = Choice(core, f"{core.method} draw", None)
        else:
            choice = choose(task, count, rng)
        core = choice.core
        here = replace(core, indices=rows[core.indices], n_samples=n, total_weight=total)
        choices.append(replace(choice, core=here))
        rows, kept = here.indices, core.indices
        task = replace(
            task,
            X=take_rows(task.X, kept),
            y=take_rows(task.y, kept),
            weights=core.weights,
            codes=None if task.codes is None else task.codes[kept],
        )
    return choices[::-1]
