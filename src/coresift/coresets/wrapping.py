"""What meta-estimators share: methods of the model that they wrap, weights that it takes, arguments cut to rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from .._containers import n_rows, take_rows
from .coreset import Coreset


def delegated(name: str, about: str) -> Any:
    """A method of the fitted model, present if the model has it."""

    def method(self: Wrapper, X: Any) -> np.ndarray:
        return getattr(self._fitted(), name)(X)

    method.__name__, method.__doc__ = name, about
    return available_if(lambda self: hasattr(getattr(self, self._fitted_name, self.estimator), name))(method)


def attribute(name: str, about: str) -> Any:
    """An attribute of the fitted model."""
    return property(lambda self: getattr(self._fitted(), name), doc=about)


class Wrapper(MetaEstimatorMixin, BaseEstimator):
    """A meta-estimator whose fitted model answers for it."""

    estimator: Any
    _fitted_name = "estimator_"

    def _fitted(self) -> Any:
        check_is_fitted(self, self._fitted_name)
        return getattr(self, self._fitted_name)

    n_features_in_ = attribute("n_features_in_", "Number of columns seen by ``fit``.")
    feature_names_in_ = attribute("feature_names_in_", "Names of the columns seen by ``fit``, if they are strings.")
    predict = delegated("predict", "Predictions of the fitted model.")

    def __sklearn_tags__(self) -> Any:
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags, tags.target_tags = own.input_tags, own.target_tags
        return tags


class ClassifierMethods:
    """Methods of a wrapped classifier, each present if the model has it."""

    classes_ = attribute("classes_", "Labels, in ascending order.")
    predict_proba = delegated("predict_proba", "Probabilities of the classes.")
    predict_log_proba = delegated("predict_log_proba", "Logarithms of the probabilities of the classes.")
    decision_function = delegated("decision_function", "Scores, positive for the second class if there are two.")


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
