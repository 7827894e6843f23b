"""Which rows a model is fitted on: the rules of the meta-estimators, and ladders of nested subsets by these rules."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags, indexable
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import has_fit_parameter

from .._errors import InvalidInputError, InvalidTypeError
from .._validation import check_budget, check_choice, check_count, check_features, check_generator, check_weights
from ..rows.columns import n_rows, take_rows
from .certifying import normalized
from .coreset import Coreset
from .linear_coreset import LinearCoreset
from .linear_rows import check_labels
from .model_certificate import Objective, class_factors, penalised_loss
from .options import CLASSIFIERS
from .uniform import even_draw

_FEW_ROWS = 1000  # a fit to so few takes no time
_MOST_PARAMETERS = 1000  # of a linear model, whose Hessian is formed
_ROWS_PER_CLASS = 3  # so that the pilot of a draw has a row of each class
_NESTED = ("stratified", "uniform")


@dataclass(frozen=True)
class Task:
    """A model and the rows to fit it on, with ``classes`` and ``codes`` if each row has one label."""

    model: Any
    X: Any
    y: Any
    weights: np.ndarray
    is_weighted: bool  # whether the model takes weights
    classes: np.ndarray | None = None
    codes: np.ndarray | None = None


@dataclass(frozen=True)
class Choice:
    """A coreset, the rule that chose it, and the model to fit with its weights times ``factor``."""

    core: Coreset
    rule: str
    model: Any
    factor: float = 1.0


def choose(task: Task, size: Any, rng: np.random.Generator) -> Choice:
    """Choose all rows if they are few; by the loss if the model is linear; else uniformly, within each class."""
    n_used, mass = int(np.count_nonzero(task.weights)), float(task.weights.sum())
    if isinstance(size, Integral):
        count = min(check_count(size, "size"), n_used)
    elif (count := check_budget(size, n_used)) and n_used <= _FEW_ROWS:
        count = n_used
    is_pairwise = get_tags(task.model).input_tags.pairwise
    if count == n_used or is_pairwise:
        used = np.flatnonzero(task.weights)
        core = Coreset(used, task.weights[used], len(task.weights), method="all", total_weight=mass)
        why = "X has a column for each" if is_pairwise else "they are few"
        return Choice(core, f"all rows: {why}", task.model)
    goal = objective(task) if task.is_weighted else None
    made = None if goal is None else linear_choice(task, goal, count, rng)
    if made is None:
        n_classes = 1 if task.codes is None else len(np.unique(task.codes[task.weights > 0]))
        if count < n_classes:
            raise InvalidInputError(f"size: {count} rows cannot hold {n_classes} classes; one row of each is needed.")
        core = normalized(even_draw(task.weights, task.codes, count, rng))
        why = "is not a linear model of a known loss" if goal is None else "has too many parameters for the size"
        why = why if task.is_weighted else "takes no sample_weight"
        made = Choice(core, f"{core.method} draw: {type(task.model).__name__} {why}", task.model)
    if goal is None:  # a fixed C is meant for weights of mean 1
        return replace(made, factor=1.0 / float(made.core.weights.mean()))
    if goal.alpha(mass, 1) == 0:
        return made
    # the penalty must mean the same on the coreset: SGD divides the loss by the number of rows, whatever they weigh
    return replace(made, factor=goal.alpha(mass, made.core.size) / goal.alpha(mass, len(task.weights)))


def linear_choice(task: Task, goal: Objective, size: int, rng: np.random.Generator) -> Choice | None:
    """A coreset of a linear model by its loss; None if the model is too large, or the size too small."""
    X, weights, codes = check_features(task.X, finite=False), task.weights, task.codes
    n_classes = 0 if codes is None else len(np.unique(codes[weights > 0]))
    if (X.shape[1] + 1) * max(n_classes - 1, 1) > _MOST_PARAMETERS or size < _ROWS_PER_CLASS * n_classes:
        return None
    if task.classes is not None and codes is not None and n_classes < 2:
        only = task.classes[codes[weights > 0]][:1].tolist()[0]
        raise InvalidInputError(f"y: the label is always {only!r}: 1 class, but at least 2 are needed.")
    target = task.y if codes is None else codes if goal.loss in CLASSIFIERS else 2.0 * codes - 1.0
    factors, model = row_factors(task)
    seen = weights * factors
    alpha = goal.alpha(float(seen.sum()), len(weights))
    how: dict[str, Any] = {"fit_intercept": bool(task.model.fit_intercept), "threshold": goal.threshold}
    maker = LinearCoreset(goal.loss, alpha=alpha, **how, random_state=rng)
    core = normalized(maker.fit(X, target, seen).sample(size))
    core = replace(core, weights=core.weights / factors[core.indices], total_weight=float(weights.sum()))
    return Choice(core, f"two-step draw for the {goal.loss} loss, alpha = {alpha:.3g}", model)


def row_factors(task: Task) -> tuple[np.ndarray, Any]:
    """(n,) what the model multiplies the weights by, and the model with class weights that say so of any rows."""
    given = getattr(task.model, "class_weight", None)
    if given is None or task.codes is None or task.classes is None:
        return np.ones(len(task.weights)), task.model
    names = task.classes.tolist()
    by_class = class_factors(given, task.classes, np.bincount(task.codes, task.weights, len(names)))
    if not by_class.min() > 0:
        raise InvalidInputError(f"class_weight = {given!r:.80}: every class needs a weight above 0.")
    return by_class[task.codes], clone(task.model).set_params(class_weight=dict(zip(names, by_class, strict=True)))


def objective(task: Task) -> Objective | None:
    """What a linear model minimises, if :class:`LinearCoreset` has its loss; else None."""
    if type(task.model).__name__.endswith("CV") or (task.codes is None and np.prod(np.shape(task.y)[1:]) > 1):
        return None  # several penalties, or several targets
    try:
        goal = penalised_loss(task.model)
        is_usable = 0 <= goal.alpha(1.0, 1) < np.inf
    except (ArithmeticError, TypeError, ValueError):
        return None  # another loss; or bad parameters, which the model itself refuses best
    n_classes = 0 if task.classes is None else len(task.classes)
    return goal if is_usable and (n_classes <= 2 or goal.loss == "logistic") else None


def check_model(estimator: Any, y: Any, kind: str) -> None:
    """Refuse what cannot be fitted, and a missing ``y``."""
    if not hasattr(estimator, "fit") or isinstance(estimator, type):
        raise InvalidTypeError(f"estimator = {estimator!r:.80} must be a {kind}.")
    if y is None:
        raise InvalidInputError("This estimator requires y to be passed, but the target y is None.")


def takes_weights(estimator: Any) -> bool:
    """Whether ``fit`` takes ``sample_weight``: by its signature, or by metadata routing."""
    if has_fit_parameter(estimator, "sample_weight"):
        return True
    is_routed = get_config()["enable_metadata_routing"] and hasattr(estimator, "get_metadata_routing")
    return is_routed and bool(get_routing_for_object(estimator).consumes("fit", ["sample_weight"]))


def weight_argument(estimator: Any) -> str | None:
    """The argument of ``fit`` that takes the weights of rows; a pipeline hands them to its last step."""
    if takes_weights(estimator):
        return "sample_weight"
    if not isinstance(estimator, Pipeline) or get_config()["enable_metadata_routing"]:
        return None
    last = weight_argument(estimator[-1])
    return None if last is None else f"{estimator.steps[-1][0]}__{last}"


def cut(value: Any, core: Coreset) -> Any:
    """The rows of the coreset of a value that has one entry for each row; any other value as it is."""
    has_rows = not isinstance(value, str | dict) and (hasattr(value, "shape") or hasattr(value, "__len__"))
    return take_rows(value, core.indices) if has_rows and n_rows(value) == core.n_samples else value


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

    The largest is chosen from all rows, and each smaller one from the next larger, as a coreset of weighted rows: the
    weights of each stand for all rows.

    Parameters
    ----------
    X, y, sample_weight, random_state
        As in :class:`CoresetClassifier` and its ``fit``.
    sizes : sequence of int or float
        Increasing numbers of rows, or fractions of the rows.
    strategy : {"stratified", "uniform"} or estimator
        "stratified" gives every class its share of the rows, and at least one. For a model of scikit-learn the rows are
        chosen as :class:`CoresetClassifier` and :class:`CoresetRegressor` do, linear models by their own loss.

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
    name = check_choice(strategy, "strategy", _NESTED) if is_named else ""
    has_classes = name == "stratified" or (not is_named and is_classifier(strategy))
    classes, codes = check_labels(y) if has_classes else (None, None)
    counts = check_ladder(sizes, int(np.count_nonzero(weights)), 1 if classes is None else len(classes), "sizes")
    task = Task(None if is_named else strategy, X, y, weights, is_named or takes_weights(strategy), classes, codes)
    return [choice.core for choice in nested_choices(task, counts, check_generator(random_state))]


def check_ladder(sizes: Any, n_samples: int, n_classes: int, name: str) -> list[int]:
    """Return increasing numbers of rows from numbers or fractions; each has room for a row of every class."""
    if isinstance(sizes, str) or not isinstance(sizes, Sequence | np.ndarray) or len(sizes) == 0:
        raise InvalidInputError(f"{name} = {sizes!r:.60} must be a sequence of sizes, such as (0.03, 0.1, 0.3).")
    counts = [check_budget(size, n_samples, f"{name}[{i}]") for i, size in enumerate(sizes)]
    for i, (small, large) in enumerate(itertools.pairwise(counts)):
        if small >= large:
            steps = f"{name}[{i}] is {small} of {n_samples} rows, the next {large}"
            raise InvalidInputError(f"{name} = {tuple(sizes)} must increase: {steps}.")
    if counts[0] < n_classes:
        few = f"{counts[0]} of {n_samples} rows, fewer than the {n_classes} classes"
        raise InvalidInputError(f"{name}[0] = {sizes[0]} is {few}. Begin with a larger subset.")
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
        X, y = take_rows(task.X, kept), take_rows(task.y, kept)
        codes = None if task.codes is None else task.codes[kept]
        task = replace(task, X=X, y=y, weights=core.weights, codes=codes)
    return choices[::-1]
