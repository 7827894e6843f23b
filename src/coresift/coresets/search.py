"""Search of hyper-parameters on nested subsets: many candidates on few rows, few candidates on many."""

import time
from collections.abc import Mapping
from math import ceil
from typing import Any, Self

import numpy as np
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import ParameterGrid, ParameterSampler, check_cv
from sklearn.utils import Bunch, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing

from .._containers import n_rows
from .._errors import InvalidInputError, InvalidTypeError
from .._progress import Progress
from .._validation import check_bool, check_count, check_generator, check_weights
from ..core.racing import Fidelity, extrapolated, is_behind, rank_agreement, survivors
from .search_run import Fold, SearchRun, as_results
from .wrapping import ClassifierMethods, Wrapper, weight_argument

_KEPT = 3  # at most a third of the candidates goes on


class CoresetSearchCV(ClassifierMethods, Wrapper):
    r"""Search hyper-parameters by cross-validation on nested coresets, and refit the best on all rows.

    All candidates are fitted on the two smallest subsets of each training fold, those that may still be the best on
    the next larger one, and so on. Folds are split before subsets are chosen, and test folds are always complete. From
    the second step on, scores are extrapolated to all rows, as :math:`a - b / \sqrt m`, and a step keeps the candidates
    that are then not behind the leader beyond chance (a paired test over folds), at least two and at most a third. The
    search ends early when one candidate leads two steps in a row with all others behind it.

    Subsets suit the model. Linear models get coresets of their own loss (:class:`LinearCoreset`): one step of them, the
    first with 50 rows a parameter, as their fits are those of all rows. Other classifiers get draws stratified by
    class, other regressors uniform ones; so does a model without ``sample_weight``. Such draws need no weights.

    Parameters
    ----------
    estimator : estimator
        A classifier or regressor, or a pipeline that ends in one.
    params : dict or list of dicts
        Values to try, as in ``GridSearchCV``; with ``n_iter``, lists or distributions, as in ``RandomizedSearchCV``.
    ladder : sequence of int or float
        Increasing sizes of the subsets: fractions of a training fold, or numbers of rows.
    n_iter : int, optional
        Number of candidates to draw from ``params``; by default all combinations.
    cv : int, splitter or iterable
    scoring : str, callable or None
        One score, where more is better; None uses the estimator's own.
    refit : bool
        Fit the best candidate on all rows.
    n_jobs : int, optional
        Processes, as in scikit-learn.
    random_state : None, int or Generator
        Seed for the subsets and the candidates that ``n_iter`` draws. Folds have their own, in ``cv``.
    verbose : int
        Above 0, log progress at WARNING level.

    Attributes
    ----------
    cv_results_ : dict of arrays
        As in ``HalvingGridSearchCV``: one entry per candidate and step, with ``iter`` and ``n_resources``; also
        ``mean_expected_score``, extrapolated to all rows.
    best_params_, best_score_, best_index_, best_estimator_
        The best candidate of the last step by its expected score; ``best_estimator_`` only with ``refit``.
    fidelity_ : list of Fidelity
        Rank agreement of each step with the next: Spearman's correlation and its standard error over folds.
    is_separated_ : bool
        Whether all candidates of the last step but the best are behind beyond chance. If not, they are as good as it
        as far as this search can tell.
    n_resources_, n_candidates_ : list of int
        Rows of a training subset, and candidates, in each step.
    rule_ : str
        How the rows were chosen, and why.
    scorer_, n_splits_, refit_time_, classes_, n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.svm import SVC
    >>> X, y = load_digits(return_X_y=True)
    >>> grid = {"C": [0.1, 1, 10], "gamma": [1e-4, 1e-3, 1e-2]}
    >>> search = CoresetSearchCV(SVC(), grid, ladder=(0.1, 0.3), random_state=0).fit(X, y)
    >>> search.best_params_["gamma"], search.n_candidates_
    (0.001, [9, 9])
    """

    _fitted_name = "best_estimator_"

    def __init__(
        self,
        estimator: Any,
        params: Any,
        *,
        ladder: Any = (0.03, 0.1, 0.3),
        n_iter: int | None = None,
        cv: Any = 5,
        scoring: Any = None,
        refit: bool = True,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.estimator, self.params, self.ladder, self.n_iter = estimator, params, ladder, n_iter
        self.cv, self.scoring, self.refit, self.n_jobs = cv, scoring, refit, n_jobs
        self.random_state, self.verbose = random_state, verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> Self:
        """Run the search, and refit the best candidate on all rows.

        Parameters
        ----------
        X : array-like, frame or sparse matrix of shape (n, d)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
            Weights of the rows in fits; scores are not weighted.
        **fit_params
            ``groups`` for the splitter, other arguments for the estimator's ``fit``; with scikit-learn's metadata
            routing enabled, whatever was requested. Those with one entry a row are cut to the rows of a subset.
        """
        check_bool(self.refit, "refit")
        if not hasattr(self.estimator, "fit") or isinstance(self.estimator, type):
            raise InvalidTypeError(f"estimator = {self.estimator!r:.80} must be a classifier or a regressor.")
        if isinstance(self.scoring, Mapping | list | tuple | set):
            raise InvalidInputError(f"scoring = {self.scoring!r:.80} must be one score, or None for the estimator's.")
        if y is None:
            raise InvalidInputError("This estimator requires y to be passed, but the target y is None.")
        X, y = indexable(X, y)
        rng = check_generator(self.random_state)
        candidates = self._candidates(rng)
        given, argument = {}, weight_argument(self.estimator)
        routed = self._routed(fit_params)
        self.scorer_ = check_scoring(self.estimator, self.scoring)
        weights = check_weights(sample_weight, n_rows(X))
        if sample_weight is not None:
            if argument is None:
                raise InvalidInputError(f"sample_weight: {type(self.estimator).__name__} takes none.")
            given = {argument: weights}
        run = SearchRun(self.estimator, X, y, weights, argument, routed, self.scorer_, self.n_jobs)
        folds = run.folds(self.cv, self.ladder, candidates, rng)
        self._race(run, folds, candidates)
        if self.refit:
            started = time.perf_counter()
            best = clone(self.estimator).set_params(**self.best_params_)
            self.best_estimator_ = best.fit(X, y, **routed.estimator.fit, **given)
            self.refit_time_ = time.perf_counter() - started
        return self

    def _candidates(self, rng: np.random.Generator) -> list[dict[str, Any]]:
        if self.n_iter is None:
            found = list(ParameterGrid(self.params))
        else:
            seed = int(rng.integers(2**32))
            found = list(ParameterSampler(self.params, check_count(self.n_iter, "n_iter"), random_state=seed))
        if not found:
            raise InvalidInputError(f"params = {self.params!r:.80} has no candidates.")
        return found

    def _routed(self, fit_params: dict[str, Any]) -> Any:
        if get_config()["enable_metadata_routing"]:
            return process_routing(self, "fit", **fit_params)
        groups = {"groups": fit_params.pop("groups")} if "groups" in fit_params else {}
        return Bunch(estimator=Bunch(fit=fit_params), splitter=Bunch(split=groups), scorer=Bunch(score={}))

    def _race(self, run: SearchRun, folds: list[Fold], candidates: list[dict[str, Any]]) -> None:
        sizes = [min(step.core.size for step in steps) for steps in zip(*(fold.ladder for fold in folds), strict=True)]
        n = min(len(fold.train) for fold in folds)
        work = len(folds) * sum(len(candidates) / (_KEPT if step > 1 else 1) for step in range(len(sizes)))
        progress = Progress("search", work, self.verbose, unit="fits")
        records: list[dict[str, Any]] = []
        self.fidelity_: list[Fidelity] = []
        self.n_candidates_: list[int] = []
        alive, before, leader = np.arange(len(candidates)), None, -1
        for step, size in enumerate(sizes):
            self.n_candidates_.append(len(alive))
            scored = run.scores([candidates[c] for c in alive], folds, step, progress)
            scores = hoped = expected = np.array([[one.score for one in row] for row in scored])
            if before is not None:
                self.fidelity_.append(rank_agreement(step - 1, before, scores))
                curve = (before, scores, (sizes[step - 1], size), n)
                hoped, expected = extrapolated(*curve), extrapolated(*curve, shrink=True)
            for c, row, mean in zip(alive, scored, expected.mean(axis=1), strict=True):
                about = {"iter": step, "n_resources": size, "params": candidates[c]}
                records.append(about | {"scored": row, "expected": mean})
            best = int(alive[survivors(expected, 1)[0]])
            self.is_separated_ = int(np.count_nonzero(~is_behind(expected))) == 1
            if len(alive) == 1 or (self.is_separated_ and best == leader):
                break
            leader, kept = best, np.flatnonzero(~np.isnan(scores).any(axis=1))
            if before is not None:  # after one step nothing is known about many rows, and only failures are dropped
                kept = np.union1d(survivors(hoped, ceil(len(alive) / _KEPT)), survivors(expected, 1))
            before, alive = scores[kept], alive[kept]
        self.n_resources_ = sizes[: len(self.n_candidates_)]
        self.rule_, self.n_splits_ = folds[0].ladder[0].rule, len(folds)
        self.cv_results_ = as_results(records, self.n_splits_)
        last = np.flatnonzero(self.cv_results_["iter"] == self.cv_results_["iter"].max())
        self.best_index_ = int(last[np.nanargmax(self.cv_results_["mean_expected_score"][last])])
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        self.best_params_ = self.cv_results_["params"][self.best_index_]

    def score(self, X: Any, y: Any, **params: Any) -> float:
        """The score of ``best_estimator_`` by ``scoring``."""
        return float(self.scorer_(self._fitted(), X, y, **params))

    def get_metadata_routing(self) -> MetadataRouter:
        """Routing for scikit-learn: to the estimator, the splitter and the scorer."""
        fit = MethodMapping().add(caller="fit", callee="fit")
        split = MethodMapping().add(caller="fit", callee="split")
        score = MethodMapping().add(caller="fit", callee="score").add(caller="score", callee="score")
        router = MetadataRouter(owner=self).add_self_request(self).add(estimator=self.estimator, method_mapping=fit)
        router.add(splitter=check_cv(self.cv, classifier=is_classifier(self.estimator)), method_mapping=split)
        return router.add(scorer=check_scoring(self.estimator, self.scoring), method_mapping=score)

    def __sklearn_tags__(self) -> Any:
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type, tags.classifier_tags = own.estimator_type, own.classifier_tags
        tags.regressor_tags = own.regressor_tags
        return tags
