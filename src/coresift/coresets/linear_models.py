"""What a fitted linear model minimises: its loss, penalty and intercept, read from the model."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from .._errors import InvalidInputError, InvalidTypeError
from .._validation import check_choice, check_number, check_numbers, check_positive
from .linear_rows import LARGEST_ALPHA
from .options import CLASSIFIERS, LINEAR_LOSSES

_OUTSIDE = {
    "HuberRegressor": "it also fits the scale of the residuals, which is another loss",
    "LinearSVR": "its loss is not one of those that can be certified",
    "Lasso": "its L1 penalty is not strongly convex",
    "ElasticNet": "its penalty has an L1 part",
    "Perceptron": "it minimises no penalised loss",
    "GridSearchCV": "it is not fitted with refit=True",
}
_SGD_LOSSES = {
    "log_loss": "logistic", "squared_hinge": "squared_hinge", "squared_error": "squared", "huber": "huber"
}  # fmt: skip


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
        raise InvalidInputError(
            f"model: {kind} cannot be certified: {why}. For another linear model pass loss= and alpha= as well; models "
            f"that are read: {', '.join(_READERS)}."
        )
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
        raise InvalidInputError(
            "model is a Pipeline, whose last step sees other columns than X. Certify that step on what it sees: "
            "certify_model(pipeline[-1], pipeline[:-1].transform(X), y)."
        )
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
