"""What a fitted linear model minimises: its loss, penalty and intercept, read from the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._errors import InvalidInputError, InvalidTypeError
from .._validation import check_number, check_numbers, check_positive
from .linear_rows import CLASSIFIERS, LARGEST_ALPHA, check_linear_loss

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
class DescribedModel:
    """A linear model and the problem that it was fitted to solve.

    ``alpha(W, n)`` is the penalty of the mean loss for n rows of total weight W. ``is_classifier`` with a loss for
    targets means the targets -1 and 1.
    """

    loss: str
    alpha: Callable[[float, int], float]
    coef: np.ndarray  # (1 or K, d)
    intercept: np.ndarray | None  # (1 or K,)
    is_classifier: bool
    threshold: float | None = None
    intercept_penalty: float = 0.0
    classes: np.ndarray | None = None
    class_weight: Any = None
    names: list[str] | None = None


def read_model(model: Any, loss: str | None, alpha: float | None, threshold: float | None) -> DescribedModel:
    """Describe a fitted model of scikit-learn, or a pair ``(coef, intercept)``; ``loss`` and ``alpha`` override."""
    if loss is not None:
        check_linear_loss(loss)
    if alpha is not None:
        check_number(alpha, "alpha", at_least=0.0, at_most=LARGEST_ALPHA)
    model = _innermost(model)
    found: dict[str, Any]
    if loss is not None and alpha is not None:
        if loss == "huber":
            if threshold is None:
                raise InvalidInputError("loss='huber' needs threshold=, the residual at which it becomes linear.")
            check_positive(threshold, "threshold")
        found = {"loss": loss, "alpha": _fixed(alpha), "threshold": threshold, "is_classifier": loss in CLASSIFIERS}
    elif isinstance(model, tuple):
        raise InvalidInputError("model is a pair (coef, intercept), which does not say loss and alpha: pass both.")
    elif loss is not None:
        raise InvalidInputError(f"loss = {loss!r} was given without alpha; give both, or neither.")
    else:
        _refuse_one_versus_rest(model)
        found = penalised_loss(model) | {"is_classifier": hasattr(model, "classes_")}
        found["class_weight"] = getattr(model, "class_weight", None)
        if alpha is not None:
            found["alpha"] = _fixed(alpha)
    if isinstance(model, tuple):
        coef, intercept = model
    else:
        coef = model.coef_
        intercept = getattr(model, "intercept_", 0.0) if getattr(model, "fit_intercept", True) else None
    made, names = _matrix(coef), getattr(model, "feature_names_in_", None)
    return DescribedModel(
        coef=made,
        intercept=None if intercept is None else _vector(intercept, len(made)),
        classes=getattr(model, "classes_", None),
        names=None if names is None else list(map(str, names)),
        **found,
    )


def penalised_loss(model: Any) -> dict[str, Any]:
    """Loss, ``alpha(W, n)``, threshold and penalty of the intercept of a model of scikit-learn, fitted or not."""
    kind = type(model).__name__
    if kind not in _READERS:
        why = _OUTSIDE.get(kind, "this model is not known")
        raise InvalidInputError(
            f"model: {kind} cannot be certified: {why}. For another linear model pass loss= and alpha= as well; models "
            f"that are read: {', '.join(_READERS)}."
        )
    return _READERS[kind](model)


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
    if not hasattr(model, "get_params") and not hasattr(model, "coef_"):
        raise InvalidTypeError(f"model = {model!r:.60} must be a fitted linear model or a pair (coef, intercept).")
    if not hasattr(model, "coef_"):
        raise InvalidInputError(f"model: {type(model).__name__} is not fitted, or not linear: it has no coef_.")
    return model


def _refuse_one_versus_rest(model: Any) -> None:
    kind = type(model).__name__
    is_joint = (
        kind.startswith("Logistic") and model.solver != "liblinear" and getattr(model, "multi_class", "") != "ovr"
    )
    if len(getattr(model, "classes_", ())) > 2 and not is_joint:
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
        raise InvalidInputError(
            f"intercept = {intercept!r:.60} must be finite, one number for each of {outputs} rows of coef."
        )
    return np.broadcast_to(made, outputs).copy()


def _fixed(alpha: float) -> Callable[[float, int], float]:
    return lambda _mass, _rows: float(alpha)


def _per_weight(strength: Any) -> Callable[[float, int], float]:
    """A penalty of the sum of losses."""
    return lambda mass, _rows: float(strength) / mass


def _refuse_l1(model: Any, share: Any) -> None:
    if share:
        raise InvalidInputError(
            f"model: this {type(model).__name__} has an L1 penalty, which is not strongly convex; only L2 penalties "
            "can be certified."
        )


def _logistic(model: Any) -> dict[str, Any]:
    penalty = getattr(model, "penalty", "deprecated")
    share = getattr(model, "l1_ratio_", getattr(model, "l1_ratio", None))  # from scikit-learn 1.8 on it says all
    has_share = share is not None and any(value for value in np.ravel(share))
    _refuse_l1(model, penalty == "l1" or (penalty in ("elasticnet", "deprecated") and has_share))
    inverse = np.inf if penalty is None else float(np.ravel(model.C_ if hasattr(model, "C_") else model.C)[0])
    by_liblinear = model.solver == "liblinear" and model.fit_intercept
    return {
        "loss": "logistic",
        "alpha": _per_weight(1.0 / inverse),
        "intercept_penalty": float(model.intercept_scaling) ** -2 if by_liblinear else 0.0,
    }


def _svc(model: Any) -> dict[str, Any]:
    if model.loss != "squared_hinge":
        raise InvalidInputError(f"model: LinearSVC(loss={model.loss!r}) cannot be certified; loss='squared_hinge' can.")
    _refuse_l1(model, model.penalty == "l1")
    penalty = float(model.intercept_scaling) ** -2 if model.fit_intercept else 0.0
    return {"loss": "squared_hinge", "alpha": _per_weight(1.0 / model.C), "intercept_penalty": penalty}


def _squared(model: Any) -> dict[str, Any]:
    kind = type(model).__name__
    if getattr(model, "positive", False):
        raise InvalidInputError(f"model: {kind}(positive=True) solves another problem: not certified.")
    strength = np.ravel(getattr(model, "alpha_", getattr(model, "alpha", 0.0)))
    if len(strength) != 1:
        raise InvalidInputError(f"model: this {kind} has {len(strength)} penalties; one is needed.")
    return {"loss": "squared", "alpha": _per_weight(strength[0])}


def _poisson(model: Any) -> dict[str, Any]:
    return {"loss": "poisson", "alpha": _fixed(model.alpha)}


def _sgd(model: Any) -> dict[str, Any]:
    if model.loss not in _SGD_LOSSES:
        known = ", ".join(map(repr, _SGD_LOSSES))
        raise InvalidInputError(
            f"model: loss={model.loss!r} of {type(model).__name__} cannot be certified; {known} can."
        )
    _refuse_l1(model, model.penalty == "l1" or (model.penalty == "elasticnet" and model.l1_ratio > 0))
    # it minimises the sum of the weighted losses over the number of rows
    strength = 0.0 if model.penalty is None else float(model.alpha)
    return {
        "loss": _SGD_LOSSES[model.loss],
        "alpha": lambda mass, rows: strength * rows / mass,
        "threshold": float(model.epsilon) if model.loss == "huber" else None,
    }


_READERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "LogisticRegression": _logistic,
    "LogisticRegressionCV": _logistic,
    "LinearSVC": _svc,
    "Ridge": _squared,
    "RidgeCV": _squared,
    "RidgeClassifier": _squared,
    "LinearRegression": _squared,
    "PoissonRegressor": _poisson,
    "SGDClassifier": _sgd,
    "SGDRegressor": _sgd,
}
