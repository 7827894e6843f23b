"""Models fitted on a coreset: meta-estimators that choose the rows for the model they wrap."""

from contextlib import suppress
from typing import Any, Self

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils import get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._errors import InvalidInputError
from .._validation import check_generator, check_weights
from ..rows.columns import n_rows, take_rows
from .coreset import Coreset
from .fit_rules import Task, check_model, choose, cut, takes_weights
from .linear_rows import check_labels
from .model_certificate import ModelCertificate, certify_model


def _delegated(name: str, about: str) -> Any:
    """A method of the fitted model, present if the model has it."""

    def method(self: Any, X: Any) -> np.ndarray:
        return getattr(self._fitted(), name)(X)

    method.__name__, method.__doc__ = name, about
    return available_if(lambda self: hasattr(getattr(self, "estimator_", self.estimator), name))(method)


def _attribute(name: str, about: str) -> Any:
    return property(lambda self: getattr(self._fitted(), name), doc=about)


class _CoresetModel(MetaEstimatorMixin, BaseEstimator):
    estimator_: Any
    coreset_: Coreset
    rule_: str
    _data: tuple[Any, Any, Any] | None
    _certificate: ModelCertificate | None

    def __init__(self, estimator: Any, *, size: int | float = 0.1, random_state: Any = None) -> None:
        self.estimator, self.size, self.random_state = estimator, size, random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, **fit_params: Any) -> Self:
        """Choose a coreset and fit a clone of ``estimator`` on it.

        Parameters
        ----------
        X, y : array-like, frame or sparse matrix of shape (n, d), array-like of shape (n,)
            Anything that ``estimator`` takes, and labels or targets. :func:`fit_model` reads files.
        sample_weight : array-like of shape (n,), optional
            Non-negative weights; a row of weight zero is never chosen. ``estimator`` must take weights, too.
        **fit_params
            Other arguments of the estimator's ``fit``, by scikit-learn's metadata routing, which must be enabled. Those
            with one entry per row are restricted to the rows of the coreset.
        """
        kind = "classifier" if isinstance(self, ClassifierMixin) else "regressor"
        check_model(self.estimator, y, kind)
        if get_tags(self.estimator).estimator_type not in (kind, None):
            raise InvalidInputError(f"estimator = {self.estimator!r:.80} is not a {kind}.")
        if fit_params and not get_config()["enable_metadata_routing"]:
            how = "sklearn.set_config(enable_metadata_routing=True)"
            raise InvalidInputError(f"fit() takes {', '.join(fit_params)} only with {how}.")
        X, y = indexable(X, y)
        is_weighted = takes_weights(self.estimator)
        if sample_weight is not None and not is_weighted:
            name = type(self.estimator).__name__
            raise InvalidInputError(f"sample_weight: {name} takes none, so the rows cannot be weighted.")
        params = process_routing(self, "fit", **fit_params)["estimator"]["fit"]
        weights = check_weights(sample_weight, n_rows(X))
        coded = check_labels(y) if kind == "classifier" and np.prod(np.shape(y)[1:]) == 1 else ()
        task = Task(self.estimator, X, y, weights, is_weighted, *coded)
        choice = choose(task, self.size, check_generator(self.random_state))
        core = choice.core
        if core.size < len(weights):
            params = {name: cut(value, core) for name, value in params.items()}
        if is_weighted and (sample_weight is not None or core.method != "all"):
            params = {**params, "sample_weight": choice.factor * core.weights}
        Xs, ys = (X, y) if core.size == len(weights) else (take_rows(given, core.indices) for given in (X, y))
        fitted = clone(choice.model).fit(Xs, ys, **params)
        # nothing is set before everything is known: a fit that fails leaves the estimator as it was
        self.estimator_, self.coreset_, self.rule_ = fitted, core, choice.rule
        self._data, self._certificate = (X, y, sample_weight), None
        return self

    def _fitted(self) -> Any:
        check_is_fitted(self, "estimator_")
        return self.estimator_

    n_features_in_ = _attribute("n_features_in_", "Number of columns seen by ``fit``.")
    feature_names_in_ = _attribute("feature_names_in_", "Names of the columns seen by ``fit``, if they are strings.")
    predict = _delegated("predict", "Predictions of the fitted model.")

    @property
    def certificate_(self) -> ModelCertificate | None:
        """A proved bound on the excess loss of ``estimator_`` over the best fit to all rows; None without a proof."""
        model = self._fitted()
        if self._certificate is None and hasattr(model, "coef_"):
            if self._data is None:
                raise AttributeError("certificate_ needs the data, which a copy does not carry: use certify_model.")
            X, y, sample_weight = self._data
            with suppress(InvalidInputError):  # its loss is unknown
                self._certificate = certify_model(model, X, y, sample_weight=sample_weight)
        return self._certificate

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {**state, "_data": None} if "_data" in state else state

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The score of ``estimator_``, as its class defines it."""
        given = {} if sample_weight is None else {"sample_weight": sample_weight}
        return self._fitted().score(X, y, **given)

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


class CoresetClassifier(_CoresetModel, ClassifierMixin, BaseEstimator):
    r"""Fit a classifier on a coreset that is chosen for it.

    The rules, in this order; ``rule_`` says which one was used:

    1. All rows, if ``size`` is a fraction and there are at most 1,000 of positive weight.
    2. A linear model of scikit-learn of up to 1,000 parameters: the draw of :class:`LinearCoreset` for the model's own
       loss and penalty: ``LogisticRegression``, and for two classes ``LinearSVC``, ``RidgeClassifier`` and
       ``SGDClassifier``, but not with the hinge or an L1 penalty.
    3. Anything else, and a model that takes no ``sample_weight``: a draw stratified by class. For trees and boosting no
       other was found to be better. A pipeline takes weights only by metadata routing: put it around this estimator.

    Every class gets at least one row. ``C``, ``alpha`` and ``class_weight="balanced"`` of a linear model mean what they
    mean on all rows. Choosing rows takes several passes: a single fit in memory may take as long as on all rows.

    Parameters
    ----------
    estimator : classifier
        The model; a clone is fitted.
    size : int or float, default 0.1
        Number of rows of the coreset, at most all; or a fraction of the rows.
    random_state : None, int or Generator
        Seed for the draw. The model has its own.

    Attributes
    ----------
    estimator_, classes_, n_features_in_, feature_names_in_
        The fitted model, whose predictions and ``score`` are used, and attributes of it.
    coreset_, rule_ : Coreset, str
        The rows that it was fitted on with their weights, and how they were chosen.
    certificate_ : ModelCertificate or None
        For a linear model with an L2 penalty: a proved bound on its excess loss over all rows, computed when first read
        from the data, of which a reference is kept, but not in pickles.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from coresift import CoresetClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 4))
    >>> y = rng.random(20_000) < 1 / (1 + np.exp(2 - X[:, 0]))
    >>> model = CoresetClassifier(LogisticRegression(), size=0.05, random_state=0).fit(X, y)
    >>> model.coreset_.size
    1000
    >>> model.certificate_.relative < 1e-3
    True
    """

    classes_ = _attribute("classes_", "Labels, in ascending order.")
    predict_proba = _delegated("predict_proba", "Probabilities of the classes.")
    predict_log_proba = _delegated("predict_log_proba", "Logarithms of the probabilities of the classes.")
    decision_function = _delegated("decision_function", "Scores, positive for the second class if there are two.")


class CoresetRegressor(_CoresetModel, RegressorMixin, BaseEstimator):
    """Fit a regressor on a coreset that is chosen for it.

    The rules are those of :class:`CoresetClassifier`, with a uniform draw in place of a stratified one. Linear models
    are ``Ridge``, ``LinearRegression``, ``PoissonRegressor`` and ``SGDRegressor``, with an L2 penalty and one output.

    Parameters
    ----------
    estimator : regressor
        The model; a clone is fitted.
    size, random_state
        As in :class:`CoresetClassifier`, whose attributes this estimator has too.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from sklearn.linear_model import Ridge
    >>> from coresift import CoresetRegressor
    >>> X, y = make_regression(20_000, 10, noise=50.0, random_state=0)
    >>> model = CoresetRegressor(Ridge(), size=400, random_state=0).fit(X, y)
    >>> model.certificate_.relative < 1e-4
    True
    """
