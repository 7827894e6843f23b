"""Models fitted on a coreset: meta-estimators that choose the rows for the model they wrap."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils import get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, get_routing_for_object, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from .._containers import n_rows, take_rows
from .._errors import InvalidInputError
from .._validation import check_generator, check_weights
from .coreset import Coreset
from .fit_rules import all_rows, drawn_rows, wanted_size
from .improve import normalized
from .linear_rows import check_labels


def _delegated(name: str, about: str) -> Any:
    """A method of the fitted model, present if the model has it."""

    def method(self: _CoresetModel, X: Any) -> np.ndarray:
        return getattr(self._fitted(), name)(X)

    method.__name__, method.__doc__ = name, about
    return available_if(lambda self: hasattr(getattr(self, "estimator_", self.estimator), name))(method)


class _CoresetModel(MetaEstimatorMixin, BaseEstimator):
    estimator_: Any
    coreset_: Coreset
    rule_: str

    def __init__(self, estimator: Any, *, size: int | float = 0.1, random_state: Any = None) -> None:
        self.estimator = estimator
        self.size = size
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> Self:
        """Choose a coreset and fit a clone of ``estimator`` on it.

        Parameters
        ----------
        X : array-like, frame or sparse matrix of shape (n, d)
            Anything that ``estimator`` takes.
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
            Non-negative weights; a row of weight zero is never chosen. ``estimator`` must take weights, too.
        **fit_params
            Other arguments of the estimator's ``fit``, by scikit-learn's metadata routing, which must be enabled. Those
            with one entry a row are cut to the rows of the coreset.
        """
        if y is None:
            raise InvalidInputError("This estimator requires y to be passed, but the target y is None.")
        if fit_params and not get_config()["enable_metadata_routing"]:
            raise InvalidInputError(
                f"fit() takes {', '.join(fit_params)} only with sklearn.set_config(enable_metadata_routing=True)."
            )
        X, y = indexable(X, y)
        n, is_weighted = n_rows(X), takes_weights(self.estimator)
        if sample_weight is not None and not is_weighted:
            raise InvalidInputError(
                f"sample_weight: {type(self.estimator).__name__} takes none, so the rows cannot be weighted."
            )
        core, rule = self._chosen(X, y, check_weights(sample_weight, n))
        params = process_routing(self, "fit", **fit_params)["estimator"]["fit"]
        if core.size < n:
            X, y = (take_rows(given, core.indices) for given in (X, y))
            params = {name: _cut(value, core) for name, value in params.items()}
        if is_weighted and (sample_weight is not None or core.method != "all"):
            params = {**params, "sample_weight": core.weights.copy()}
        fitted = clone(self.estimator).fit(X, y, **params)
        # nothing is set before everything is known: a fit that fails leaves the estimator as it was
        self.estimator_, self.coreset_, self.rule_ = fitted, core, rule
        return self

    def _chosen(self, X: Any, y: Any, weights: np.ndarray) -> tuple[Coreset, str]:
        """The coreset, and in words by which rule it was chosen."""
        rng = check_generator(self.random_state)
        n_used = int(np.count_nonzero(weights))
        size = wanted_size(self.size, n_used)
        if size == n_used:
            return all_rows(weights), f"all rows: there are {n_used}"
        if get_tags(self.estimator).input_tags.pairwise:
            return all_rows(weights), "all rows: X is a matrix of pairs of rows"
        codes = self._codes(y)
        drawn = normalized(drawn_rows(weights, codes, size, rng))
        why = "is not a linear model of a known loss" if takes_weights(self.estimator) else "takes no sample_weight"
        return drawn, f"{drawn.method} draw: {type(self.estimator).__name__} {why}"

    def _codes(self, y: Any) -> np.ndarray | None:
        """The class of each row, None if there are no classes to draw from."""
        return None

    @property
    def n_features_in_(self) -> int:
        """Number of columns seen by ``fit``."""
        return self._fitted().n_features_in_

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the columns seen by ``fit``, if they all are strings."""
        return self._fitted().feature_names_in_

    def predict(self, X: Any) -> np.ndarray:
        """Predictions of ``estimator_``."""
        return self._fitted().predict(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The score of ``estimator_``, as its class defines it."""
        given = {} if sample_weight is None else {"sample_weight": sample_weight}
        return self._fitted().score(X, y, **given)

    def _fitted(self) -> Any:
        check_is_fitted(self, "estimator_")
        return self.estimator_

    def get_metadata_routing(self) -> MetadataRouter:
        """Routing for scikit-learn: ``sample_weight`` is used here, all else goes to ``estimator``."""
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=self).add_self_request(self).add(estimator=self.estimator, method_mapping=to_fit)

    def __sklearn_tags__(self) -> Any:
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags, tags.target_tags = own.input_tags, own.target_tags
        tags.classifier_tags = own.classifier_tags if tags.classifier_tags else None
        tags.regressor_tags = own.regressor_tags if tags.regressor_tags else None
        return tags


def takes_weights(estimator: Any) -> bool:
    """Whether ``fit`` takes ``sample_weight``: by its signature, or by metadata routing."""
    if has_fit_parameter(estimator, "sample_weight"):
        return True
    is_routed = get_config()["enable_metadata_routing"] and hasattr(estimator, "get_metadata_routing")
    return is_routed and bool(get_routing_for_object(estimator).consumes("fit", ["sample_weight"]))


def _cut(value: Any, core: Coreset) -> Any:
    """The rows of the coreset of a value that has one entry for each row; any other value as it is."""
    has_rows = not isinstance(value, str | dict) and (hasattr(value, "shape") or hasattr(value, "__len__"))
    return take_rows(value, core.indices) if has_rows and n_rows(value) == core.n_samples else value


class CoresetClassifier(_CoresetModel, ClassifierMixin, BaseEstimator):
    """A classifier fitted on a coreset."""

    def _codes(self, y: Any) -> np.ndarray | None:
        check_classification_targets(y)
        if type_of_target(y).startswith("multilabel") or type_of_target(y).endswith("multioutput"):
            return None
        return check_labels(y, n_rows(y))[1]

    @property
    def classes_(self) -> np.ndarray:
        """Labels, in ascending order."""
        return self._fitted().classes_

    predict_proba = _delegated("predict_proba", "Probabilities of the classes.")
    predict_log_proba = _delegated("predict_log_proba", "Logarithms of the probabilities of the classes.")
    decision_function = _delegated("decision_function", "Scores, positive for the second class if there are two.")


class CoresetRegressor(_CoresetModel, RegressorMixin, BaseEstimator):
    """A regressor fitted on a coreset."""
