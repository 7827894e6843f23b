"""Certify a fitted linear model: what it minimises, and a proved bound on how far its loss is above the least one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from .._errors import InvalidInputError, InvalidTypeError
from .._validation import check_choice, check_number, check_numbers, check_positive
from ..core.duality import DualSums, ModelCertificate as ModelCertificate, bound_excess, exact_excess
from ..core.linear import LinearProblem
from ..core.linear_losses import Huber, Squared
from .linear_rows import LARGEST_ALPHA, LinearRows, linear_rows
from .options import CLASSIFIERS, LINEAR_LOSSES

_MOST_PARAMETERS = 2000  # for which a Hessian is formed
_MOST_PASSES = {2: 30, 1: 60}  # with Hessians, and without
_OUTSIDE = {
    "HuberRegressor": "it also fits the scale of the residuals, which is another loss",
    "LinearSVR": "its loss is not one of those that can be certified",
    "Lasso": "its L1 penalty is not strongly convex",
    "ElasticNet": "its penalty has an L1 part",
    "Perceptron": "it minimises no penalised loss",
    "GridSearchCV": "it is not fitted with refit=True",
}
_SGD_LOSSES = {"log_loss": "logistic", "squared_hinge": "squared_hinge", "squared_error": "squared", "huber": "huber"}


@dataclass(frozen=True)
class Objective:
    """A loss and its penalty, which is relative to the mean or the sum of the losses, or to their sum over n rows."""

    loss: str
    strength: float
    per: str = "mean"  # or "sum" or "rows"
    threshold: float | None = None
    intercept_penalty: float = 0.0

    def alpha(self, mass: float, n: int) -> float:
        """The penalty of the mean loss of n rows of total weight ``mass``."""
        return self.strength * {"mean": 1.0, "sum": 1.0 / mass, "rows": n / mass}[self.per]


@dataclass(frozen=True)
class DescribedModel:
    """A linear model and what it minimises; a classifier with a loss for targets takes the targets -1 and 1."""

    objective: Objective
    coef: np.ndarray  # (1 or K, d)
    intercept: np.ndarray | None  # (1 or K,)
    is_classifier: bool
    classes: np.ndarray | None = None
    class_weight: Any = None
    names: list[str] | None = None


def certify_model(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    loss: str | None = None,
    alpha: float | None = None,
    threshold: float | None = None,
    sample_weight: Any = None,
    tolerance: float = 0.0,
) -> ModelCertificate:
    r"""Return a bound, proved without a probability, on how far a fitted linear model is from the best over all rows.

    :math:`F(\theta) = \sum_i w_i l(\theta; x_i, y_i) / W + (\alpha / 2) |coef|^2`, and :math:`F^*` is its minimum over
    all models. The model may have been fitted to other rows, such as a coreset. ``docs/theory.md`` has the proof.

    Parameters
    ----------
    model : fitted estimator, LinearModel or tuple (coef, intercept)
        LogisticRegression, LogisticRegressionCV, LinearSVC (squared hinge), Ridge, RidgeCV, RidgeClassifier,
        LinearRegression, PoissonRegressor, SGDClassifier or SGDRegressor of scikit-learn: loss, penalty and class
        weights are read from the model, as if it had been fitted to these rows. Or coefficients of shape (d,) or (K,
        d), and an intercept or None; scores are positive for the second class.
    X, y, sample_weight : array, sparse matrix or frame, and array-likes of shape (n,); or Rows and None
        The rows, their labels or targets, and their weights, if any; ``Rows`` are opened with them.
    loss, alpha, threshold : str, float, float, optional
        For a pair, as in :class:`LinearCoreset`. Loss and alpha together replace what is read from an estimator, whose
        intercept is then free; alpha alone replaces its penalty.
    tolerance : float, default 0
        Stop when ``relative`` is at most this. By default the search stops within a tenth of the excess that it found.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.preprocessing import scale
    >>> from coresift import certify_model
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = scale(X)
    >>> print(certify_model(LogisticRegression().fit(X[:400], y[:400]), X, y))  # fitted to some of the rows
    At most 12 % above the smallest possible loss; proved, in 4 passes.
    """
    check_number(tolerance, "tolerance", at_least=0.0)
    described = read_model(model, loss, alpha, threshold)
    goal = described.objective
    rows = linear_rows(X, y, sample_weight, is_classifier=described.is_classifier)
    _check_columns(described, rows)
    mass, made = rows.moments.mass, rows.loss(goal.loss, goal.threshold)
    if len(described.coef) != made.n_outputs:
        needed = f"{made.name} regression of these rows needs {made.n_outputs}"
        text = f"model has {len(described.coef)} rows of coefficients; {needed}"
        raise InvalidInputError(f"{text}. One-versus-rest models are certified class by class.")
    signed = described.is_classifier and not made.is_classifier
    if signed and rows.response.classes is not None and len(rows.response.classes) > 2:
        raise InvalidInputError("A regression on the classes -1 and 1 needs two classes; certify them one by one.")
    factors = None
    if described.class_weight is not None and rows.response.classes is not None:
        masses = rows.by_class(rows.moments.label_mass)
        factors = class_factors(described.class_weight, rows.response.classes, masses)
        mass = float(factors @ masses)
    rows = replace(rows, response=replace(rows.response, factors=factors, signed=signed))
    strength, is_free = goal.alpha(mass, rows.runner.rows.n), described.intercept is not None
    problem = rows.problem(made, strength, fit_intercept=is_free, intercept_penalty=goal.intercept_penalty)
    theta = problem.from_data(described.coef, np.zeros(1) if described.intercept is None else described.intercept)
    found = certify_linear(rows, problem, theta, tolerance=tolerance)
    return replace(found, n_passes=found.n_passes + 1)  # the survey


@np.errstate(over="ignore", invalid="ignore")  # a loss may be infinite
def certify_linear(
    rows: LinearRows, problem: LinearProblem, theta: np.ndarray, tolerance: float = 0.0, step: np.ndarray | None = None
) -> ModelCertificate:
    """Certify ``theta``, in the columns of ``problem``; a good ``step``, the way to the minimum, saves passes."""
    order = 2 if theta.size <= _MOST_PARAMETERS else 1

    def sums_at(theta: np.ndarray, base: np.ndarray, step: np.ndarray | None) -> DualSums:
        return rows.run("certificate", DualSums(problem, theta, order, base, step))[0]

    moments, factors = rows.moments, rows.response.factors
    mean_squares = (moments.scatter / moments.mass + (moments.mean - problem.shift) ** 2) / problem.spread**2
    if factors is not None:
        mean_squares *= factors.max() * moments.mass / (factors @ rows.by_class(moments.label_mass))
    rms = 1.01 * np.sqrt(mean_squares) + 1e-15 * np.abs(moments.mean) / problem.spread  # of the columns, rounded
    rms = np.append(rms, 1.0) if problem.fit_intercept else rms
    gram = None
    if problem.alpha == 0.0:
        if type(problem.loss) is not Squared or order < 2:
            text = f"alpha = 0: without a penalty the {problem.loss.name} loss is not strongly convex"
            other = f"only the squared loss of at most {_MOST_PARAMETERS:,} columns can be certified"
            raise InvalidInputError(f"{text}, and {other}. Fit with a small penalty.")
        found = exact_excess(sums_at(theta, theta, None), rms)
    else:
        if order == 1 and problem.n_columns <= _MOST_PARAMETERS:
            squares = rows.least_squares(problem)
            gram = squares.hessian[0, :, 0] / squares.weight
        is_huber = isinstance(problem.loss, Huber) and order == 2  # which is flat far from the targets
        anew = (lambda: rows.least_squares(problem).newton_step()[0]) if is_huber else None
        limits: dict[str, Any] = {"max_passes": _MOST_PASSES[order], "tolerance": tolerance}
        found = bound_excess(sums_at, theta, rms, step=step, anew=anew, gram=gram, **limits)
    return replace(found, n_passes=found.n_passes + (gram is not None))


def _check_columns(model: DescribedModel, rows: LinearRows) -> None:
    ours, d = rows.runner.rows, model.coef.shape[1]
    if ours.d != d:
        raise InvalidInputError(f"{ours.name} has {ours.d} columns, but the model was fitted on {d}.")
    if model.names is not None and ours.names is not None and model.names != ours.names:
        at = next(i for i, (here, there) in enumerate(zip(ours.names, model.names, strict=True)) if here != there)
        text = f"{ours.name}: column {at} is {ours.names[at]!r}, but the model was fitted on {model.names[at]!r} there"
        raise InvalidInputError(f"{text}. Pass the columns of the fit, in the same order.")
    classes = rows.response.classes
    if model.classes is not None and classes is not None and not np.array_equal(model.classes, classes):
        known = f"the classes of the model are {_listed(model.classes)}"
        raise InvalidInputError(f"{ours.name}: the labels are {_listed(classes)}, but {known}.")


def _listed(classes: np.ndarray) -> str:
    return ", ".join(map(repr, classes[:5].tolist())) + (", ..." if len(classes) > 5 else "")


def read_model(model: Any, loss: str | None, alpha: float | None, threshold: float | None) -> DescribedModel:
    """Describe a fitted model of scikit-learn, or a pair ``(coef, intercept)``; ``loss`` and ``alpha`` override."""
    if loss is not None:
        check_choice(loss, "loss", LINEAR_LOSSES)
    if alpha is not None:
        check_number(alpha, "alpha", at_least=0.0, at_most=LARGEST_ALPHA)
    model = _innermost(model)
    class_weight = None
    if hasattr(model, "run"):  # a LinearModel
        model, loss, alpha, threshold = _saved(model, loss, alpha, threshold)
    if loss is not None and alpha is not None:
        if loss == "huber":
            if threshold is None:
                raise InvalidInputError("loss='huber' needs threshold=, the residual at which it becomes linear.")
            check_positive(threshold, "threshold")
        goal, is_classifier = Objective(loss, float(alpha), threshold=threshold), loss in CLASSIFIERS
    elif isinstance(model, tuple):
        raise InvalidInputError("model is a pair (coef, intercept), which does not say loss and alpha: pass both.")
    elif loss is not None:
        raise InvalidInputError(f"loss = {loss!r} was given without alpha; give both, or neither.")
    else:
        _refuse_one_versus_rest(model)
        goal, is_classifier = penalised_loss(model), hasattr(model, "classes_")
        class_weight = getattr(model, "class_weight", None)
        if alpha is not None:
            goal = replace(goal, strength=float(alpha), per="mean")
    if isinstance(model, tuple):
        coef, intercept = model
    else:
        coef = model.coef_
        intercept = getattr(model, "intercept_", 0.0) if getattr(model, "fit_intercept", True) else None
    made, names = _matrix(coef), getattr(model, "feature_names_in_", None)
    if intercept is not None:
        intercept = _vector(intercept, len(made))
    names = None if names is None else list(map(str, names))
    return DescribedModel(goal, made, intercept, is_classifier, getattr(model, "classes_", None), class_weight, names)


def _saved(model: Any, loss: str | None, alpha: float | None, threshold: float | None) -> tuple[Any, str, float, Any]:
    """A :class:`LinearModel` under the names of scikit-learn, and its loss, unless another one is asked for."""
    names = {} if model.names is None else {"feature_names_in_": model.names}
    about = {"coef_": model.coef, "intercept_": model.intercept, "classes_": model.classes, **names}
    made = SimpleNamespace(**about, fit_intercept=model.run.get("fit_intercept", True))
    alpha, threshold = (model.alpha if alpha is None else alpha), (threshold or model.threshold)
    return made, loss or model.loss, alpha, threshold


def penalised_loss(model: Any) -> Objective:
    """What a model of scikit-learn minimises, fitted or not."""
    kind = type(model).__name__
    if kind not in _READERS:
        why = _OUTSIDE.get(kind, "this model is not known")
        advice = f"For another linear model pass loss= and alpha= as well; models that are read: {', '.join(_READERS)}"
        raise InvalidInputError(f"model: {kind} cannot be certified: {why}. {advice}.")
    return _READERS[kind](model)


def class_factors(class_weight: Any, classes: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """(K,) what ``class_weight`` multiplies the weights of the rows of each class by; "balanced" by their masses."""
    if isinstance(class_weight, dict):
        if set(class_weight) - set(names := classes.tolist()) and set(names) - set(class_weight):  # as in scikit-learn
            raise InvalidInputError(f"class_weight = {class_weight!r:.80} has keys that are not among the classes.")
        return np.array([float(class_weight.get(name, 1.0)) for name in names])
    total = masses.sum()
    return np.asarray(total / (np.count_nonzero(masses) * np.where(masses > 0, masses, total)))


def _innermost(model: Any) -> Any:
    """The fitted model inside a search or a meta-estimator; a pipeline changes the columns."""
    if isinstance(model, tuple):
        if len(model) != 2:
            raise InvalidInputError(f"model is a tuple of {len(model)}; a pair (coef, intercept) is needed.")
        return model
    for attribute in ("best_estimator_", "estimator_"):
        model = getattr(model, attribute, model)
    if hasattr(model, "named_steps"):
        text = "model is a Pipeline, whose last step sees other columns than X. Certify that step on what it sees"
        raise InvalidInputError(f"{text}: certify_model(pipeline[-1], pipeline[:-1].transform(X), y).")
    if not any(hasattr(model, name) for name in ("get_params", "coef_", "run")):
        raise InvalidTypeError(f"model = {model!r:.60} must be a fitted linear model or a pair (coef, intercept).")
    if not hasattr(model, "coef_") and not hasattr(model, "run"):
        raise InvalidInputError(f"model: {type(model).__name__} is not fitted, or not linear: it has no coef_.")
    return model


def _refuse_one_versus_rest(model: Any) -> None:
    kind = type(model).__name__
    is_alone = not kind.startswith("Logistic") or getattr(model, "multi_class", "") == "ovr"
    if len(getattr(model, "classes_", ())) > 2 and (is_alone or model.solver == "liblinear"):
        raise InvalidInputError(f"model: this {kind} fits each class against the rest: certify the classes one by one.")


def _matrix(coef: Any) -> np.ndarray:
    dense = check_numbers(coef.toarray() if hasattr(coef, "toarray") else coef, "coef")
    made = dense[None] if dense.ndim == 1 else dense
    if made.ndim != 2 or made.size == 0:
        raise InvalidInputError(f"coef has shape {dense.shape}; it must be (d,) or (K, d).")
    if not np.isfinite(made).all():
        raise InvalidInputError("coef has entries that are NaN or infinite.")
    return made


def _vector(intercept: Any, outputs: int) -> np.ndarray:
    made = check_numbers(intercept, "intercept").reshape(-1)
    if len(made) not in (1, outputs) or not np.isfinite(made).all():
        raise InvalidInputError(f"intercept = {intercept!r:.60} must be finite, one number for each row of coef.")
    return np.broadcast_to(made, outputs).copy()


def _refuse_l1(model: Any, share: Any) -> None:
    if share:
        name = type(model).__name__
        raise InvalidInputError(f"model: this {name} has an L1 penalty; only L2 penalties can be certified.")


def _logistic(model: Any) -> Objective:
    penalty = getattr(model, "penalty", "deprecated")
    share = getattr(model, "l1_ratio_", getattr(model, "l1_ratio", None))  # from scikit-learn 1.8 on it says all
    has_share = share is not None and any(value for value in np.ravel(share))
    _refuse_l1(model, penalty == "l1" or (penalty in ("elasticnet", "deprecated") and has_share))
    inverse = np.inf if penalty is None else float(np.ravel(model.C_ if hasattr(model, "C_") else model.C)[0])
    by_liblinear = model.solver == "liblinear" and model.fit_intercept
    penalty = float(model.intercept_scaling) ** -2 if by_liblinear else 0.0
    return Objective("logistic", 1.0 / inverse, "sum", intercept_penalty=penalty)


def _svc(model: Any) -> Objective:
    if model.loss != "squared_hinge":
        raise InvalidInputError(f"model: LinearSVC(loss={model.loss!r}) cannot be certified; loss='squared_hinge' can.")
    _refuse_l1(model, model.penalty == "l1")
    penalty = float(model.intercept_scaling) ** -2 if model.fit_intercept else 0.0
    return Objective("squared_hinge", 1.0 / model.C, "sum", intercept_penalty=penalty)


def _squared(model: Any) -> Objective:
    kind = type(model).__name__
    if getattr(model, "positive", False):
        raise InvalidInputError(f"model: {kind}(positive=True) solves another problem: not certified.")
    strength = np.ravel(getattr(model, "alpha_", getattr(model, "alpha", 0.0)))
    if len(strength) != 1:
        raise InvalidInputError(f"model: this {kind} has {len(strength)} penalties; one is needed.")
    return Objective("squared", float(strength[0]), "sum")


def _sgd(model: Any) -> Objective:
    if model.loss not in _SGD_LOSSES:
        known = ", ".join(map(repr, _SGD_LOSSES))
        raise InvalidInputError(f"model: {type(model).__name__}(loss={model.loss!r}) cannot be certified; {known} can.")
    _refuse_l1(model, model.penalty == "l1" or (model.penalty == "elasticnet" and model.l1_ratio > 0))
    # it minimises the sum of the weighted losses over the number of rows
    strength = 0.0 if model.penalty is None else float(model.alpha)
    threshold = float(model.epsilon) if model.loss == "huber" else None
    return Objective(_SGD_LOSSES[model.loss], strength, "rows", threshold)


_READERS: dict[str, Callable[[Any], Objective]] = {
    "LogisticRegression": _logistic,
    "LogisticRegressionCV": _logistic,
    "LinearSVC": _svc,
    "Ridge": _squared,
    "RidgeCV": _squared,
    "RidgeClassifier": _squared,
    "LinearRegression": _squared,
    "PoissonRegressor": lambda model: Objective("poisson", float(model.alpha)),
    "SGDClassifier": _sgd,
    "SGDRegressor": _sgd,
}
