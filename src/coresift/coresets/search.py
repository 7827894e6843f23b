"""Search of hyper-parameters on nested subsets: many candidates on few rows, few candidates on many."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.stats import rankdata
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import GridSearchCV, ParameterGrid, ParameterSampler, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import Bunch, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, process_routing
from sklearn.utils.parallel import Parallel, delayed

from .._errors import InvalidInputError
from .._progress import Progress, logger
from .._validation import check_bool, check_count, check_features, check_generator, check_weights
from ..core.racing import Fidelity, extrapolated, is_behind, rank_agreement, survivors
from ..rows.columns import n_rows, take_rows
from . import fit_rules as rules
from .linear_rows import check_labels

_ROWS_PER_PARAMETER = 50
_KEPT = 3  # at most a third of the candidates goes on
_LITTLE = 0.3  # rank agreement below which small subsets say little of large ones


class Fold(NamedTuple):
    """The training and test rows of a fold, and the ladder of subsets of the former; all as row numbers of the data."""

    train: np.ndarray
    test: np.ndarray
    ladder: list[rules.Choice]


class Scored(NamedTuple):
    """The score of a candidate on one fold, or the error that kept it from one, and what it took."""

    score: float
    fit_time: float
    score_time: float
    error: str = ""


@dataclass(frozen=True)
class SearchRun:
    """The data of one search, and how models are fitted to it and scored."""

    estimator: Any
    X: Any
    y: Any
    weights: np.ndarray
    argument: str | None  # of ``fit``, that takes weights
    routed: Any
    scorer: Any
    n_jobs: int | None

    @cached_property
    def labels(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """The classes, and the class of each row; None for a regression."""
        return check_labels(self.y) if is_classifier(self.estimator) else (None, None)

    def folds(self, cv: Any, ladder: Any, candidates: list[dict[str, Any]], rng: np.random.Generator) -> list[Fold]:
        """Split the rows, then choose the subsets of each training fold."""
        classes, codes = self.labels
        splitter = check_cv(cv, self.y, classifier=classes is not None)
        model = _middle([clone(self.estimator).set_params(**params) for params in candidates])
        folds = []
        for number, split in enumerate(splitter.split(self.X, self.y, **self.routed.splitter.split)):
            train, test = (np.arange(len(self.weights))[rows] for rows in split)
            train = np.sort(train[self.weights[train] > 0])
            if classes is not None and codes is not None:
                missing = np.setdiff1d(np.arange(len(classes)), codes[train])
                if missing.size:
                    text = f"cv: the training rows of fold {number} have no row of class {classes[missing[0]]!r}"
                    advice = "Use stratified folds, fewer of them, or leave out classes of few rows"
                    raise InvalidInputError(f"{text}. {advice}.")
            counts = rules.check_ladder(ladder, len(train), 1 if classes is None else len(classes), "ladder")
            folds.append((train, test, counts, int(rng.integers(2**63))))
        ladders = Parallel(self.n_jobs)(delayed(self._ladder)(model, train, *how) for train, _, *how in folds)
        return [Fold(train, test, ladder) for (train, test, *_), ladder in zip(folds, ladders, strict=True)]

    def _ladder(self, model: Any, train: np.ndarray, counts: list[int], seed: int) -> list[rules.Choice]:
        X, y = take_rows(self.X, train), take_rows(self.y, train)
        if isinstance(model, Pipeline):  # rows are compared as the last step sees them
            X = clone(model[:-1]).fit_transform(X, y) if len(model) > 1 else X
            model = model[-1]
        task = replace(self._task(model, train), X=X, y=y)
        choices = rules.nested_choices(task, _enough(task, counts), np.random.default_rng(seed))
        cores = [replace(c.core, indices=train[c.core.indices], n_samples=len(self.weights)) for c in choices]
        return [replace(choice, core=core) for choice, core in zip(choices, cores, strict=True)]

    def _task(self, model: Any, train: np.ndarray) -> rules.Task:
        classes, codes = self.labels
        is_weighted = self.argument is not None and rules.takes_weights(model)
        own = None if codes is None else codes[train]
        return rules.Task(model, None, None, self.weights[train], is_weighted, classes, own)

    def scores(
        self, candidates: list[dict[str, Any]], folds: list[Fold], step: int, progress: Progress
    ) -> list[list[Scored]]:
        """Fit every candidate on the subset of every fold, and score it on the whole test fold."""
        parallel = Parallel(self.n_jobs, return_as="generator")
        scored = []
        for one in parallel(delayed(self._scored)(params, fold, step) for params in candidates for fold in folds):
            scored.append(one)
            progress()
        failed = [one.error for one in scored if one.error]
        if len(failed) == len(scored):
            raise InvalidInputError(f"params: every candidate failed to fit, the first with: {failed[0]}")
        if failed:
            logger.warning("search: %d of %d fits failed, the first with: %s", len(failed), len(scored), failed[0])
        return [scored[i : i + len(folds)] for i in range(0, len(scored), len(folds))]

    def _scored(self, params: dict[str, Any], fold: Fold, step: int) -> Scored:
        choice = fold.ladder[step]
        core = choice.core
        model = clone(self.estimator).set_params(**params)
        last = _last(model)
        if getattr(last, "class_weight", None) == "balanced":  # the balance of all training rows, not of a subset
            last.set_params(class_weight=rules.row_factors(self._task(last, fold.train))[1].class_weight)
        X, y, weights = core.take(self.X, self.y)
        given = {name: rules.cut(value, core) for name, value in self.routed.estimator.fit.items()}
        if self.argument is not None and core.method == "two-step":  # the fit is that of all rows, penalty and all
            given[self.argument] = choice.factor * weights
        elif self.argument is not None and np.ptp(self.weights) > 0:  # otherwise an even draw needs none
            given[self.argument] = weights * (core.size / weights.sum())
        started = time.perf_counter()
        try:
            model.fit(X, y, **given)
        except Exception as error:  # a model may refuse its parameters in any way
            return Scored(np.nan, time.perf_counter() - started, 0.0, f"{type(error).__name__}: {error}")
        fitted = time.perf_counter()
        X, y = take_rows(self.X, fold.test), take_rows(self.y, fold.test)
        extra = {name: take_rows(value, fold.test) for name, value in self.routed.scorer.score.items()}
        try:
            score = float(self.scorer(model, X, y, **extra))
        except AttributeError as error:  # no predict_proba
            name = type(model).__name__
            raise InvalidInputError(f"scoring = {self.scorer!r:.60} needs what {name} lacks: {error}") from error
        return Scored(score, fitted - started, time.perf_counter() - fitted)


def _enough(task: rules.Task, counts: list[int]) -> list[int]:
    """For a linear model the first size with 50 rows a parameter, from which on more rows change nothing."""
    if not task.is_weighted or rules.objective(task) is None:
        return counts
    n_outputs = 1 if task.classes is None else max(1, len(task.classes) - 1)
    n_parameters = (check_features(task.X, finite=False).shape[1] + 1) * n_outputs
    enough = [count for count in counts if count >= _ROWS_PER_PARAMETER * n_parameters]
    return enough[:1] or counts[-1:]


def _last(model: Any) -> Any:
    return model[-1] if isinstance(model, Pipeline) else model


def _middle(models: list[Any]) -> Any:
    """The model that subsets are chosen for: of linear ones that of the median penalty, otherwise the first."""
    goals = [rules.objective(rules.Task(_last(model), None, np.zeros(1), np.ones(1), True)) for model in models]
    alphas = [np.nan if goal is None else goal.alpha(1.0, 1) for goal in goals]
    order = np.argsort(alphas)  # NaN last
    n_linear = int(np.count_nonzero(~np.isnan(alphas)))
    return models[int(order[n_linear // 2])] if n_linear else models[0]


def candidates_of(params: Any, n_iter: int | None, seed: int | None) -> list[dict[str, Any]]:
    """Return all combinations of ``params``, or ``n_iter`` of them, drawn."""
    drawn = None if n_iter is None else ParameterSampler(params, check_count(n_iter, "n_iter"), random_state=seed)
    if not (found := list(drawn or ParameterGrid(params))):
        raise InvalidInputError(f"params = {params!r:.80} has no candidates.")
    return found


def as_results(records: list[dict[str, Any]], n_folds: int) -> dict[str, Any]:
    """Return ``cv_results_`` in the form of scikit-learn: one entry per candidate and step."""
    scores = np.array([[one.score for one in record["scored"]] for record in records])
    results: dict[str, Any] = {name: np.array([each[name] for each in records]) for name in ("iter", "n_resources")}
    for name in ("fit_time", "score_time"):
        times = np.array([[getattr(one, name) for one in record["scored"]] for record in records])
        results[f"mean_{name}"], results[f"std_{name}"] = times.mean(axis=1), times.std(axis=1)
    results["params"] = [record["params"] for record in records]
    for name in sorted({name for params in results["params"] for name in params}):
        column = np.ma.MaskedArray(np.empty(len(records), dtype=object), mask=True)
        for i, params in enumerate(results["params"]):
            if name in params:
                column[i] = params[name]
        results[f"param_{name}"] = column
    for fold in range(n_folds):
        results[f"split{fold}_test_score"] = scores[:, fold]
    means = results["mean_test_score"] = scores.mean(axis=1)
    results["std_test_score"] = scores.std(axis=1)
    results["mean_expected_score"] = np.array([record["expected"] for record in records])
    worst = np.nanmin(means) - 1.0
    results["rank_test_score"] = rankdata(-np.nan_to_num(means, nan=worst), method="min").astype(np.int32)
    return results


class CoresetSearchCV(GridSearchCV):
    r"""Search hyper-parameters by cross-validation on nested coresets, and refit the best on all rows.

    All candidates are fitted on the two smallest subsets of each training fold, those that may still be the best on
    the next larger one, and so on; test folds are always complete. From the second step on, scores are extrapolated to
    all rows, as :math:`a - b / \sqrt m`, and a step keeps the candidates that are then not behind the leader beyond
    chance (a paired test over folds), at least two and at most a third. The search ends early when one candidate leads
    two steps in a row with all others behind it.

    Linear models get one step of :class:`LinearCoreset`, the first with 50 rows a parameter, as their fits are those of
    all rows. Other models get stratified or uniform draws.

    Parameters
    ----------
    estimator : estimator
        A classifier or regressor, or a pipeline that ends in one.
    params : dict or list of dicts
        Values to try, as in ``GridSearchCV``; with ``n_iter``, lists or distributions, as in ``RandomizedSearchCV``.
    ladder : sequence of int or float
        Increasing sizes of the subsets: fractions of a training fold, or numbers of rows. A last size of 1.0 compares
        the candidates that are left on all rows.
    n_iter : int, optional
        Number of candidates to draw from ``params``; by default all combinations.
    cv, scoring, refit, n_jobs
        As in ``GridSearchCV``, with one score; ``refit`` fits the best candidate on all rows.
    random_state : None, int or Generator
        Seed for the subsets and the candidates that ``n_iter`` draws. Folds have their own, in ``cv``.

    Attributes
    ----------
    cv_results_ : dict of arrays
        As in ``HalvingGridSearchCV``: one entry per candidate and step, with ``iter`` and ``n_resources``; also
        ``mean_expected_score``, extrapolated to all rows.
    best_params_, best_score_, best_index_, best_estimator_
        The best candidate of the last step by its expected score; ``best_estimator_`` only with ``refit``.
    fidelity_ : list of Fidelity
        Rank agreement of each step with the next: Spearman's correlation and its standard error over folds.
    is_separated_, rule_ : bool, str
        Whether all candidates of the last step but the best are behind beyond chance; how the rows were chosen.
    n_resources_, n_candidates_ : list of int
        Rows of a training subset, and candidates, in each step.
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

    multimetric_ = False

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
    ) -> None:
        self.estimator, self.params, self.ladder, self.n_iter = estimator, params, ladder, n_iter
        self.cv, self.scoring, self.refit, self.n_jobs = cv, scoring, refit, n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> Self:
        """Run the search, and refit the best candidate on all rows.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`CoresetClassifier.fit`; scores are not weighted.
        **fit_params
            ``groups`` for the splitter, other arguments for the estimator's ``fit``; with scikit-learn's metadata
            routing enabled, whatever was requested. Those with one entry a row are cut to the rows of a subset.
        """
        check_bool(self.refit, "refit")
        rules.check_model(self.estimator, y, "classifier or a regressor")
        if isinstance(self.scoring, Mapping | list | tuple | set):
            raise InvalidInputError(f"scoring = {self.scoring!r:.80} must be one score, or None for the estimator's.")
        X, y = indexable(X, y)
        rng = check_generator(self.random_state)
        seed = None if self.n_iter is None else int(rng.integers(2**32))
        candidates = candidates_of(self.params, self.n_iter, seed)
        given, argument = {}, rules.weight_argument(self.estimator)
        routed = self._routed(fit_params)
        self.scorer_ = check_scoring(self.estimator, self.scoring)
        weights = check_weights(sample_weight, n_rows(X))
        if sample_weight is not None:
            if argument is None:
                raise InvalidInputError(f"sample_weight: {type(self.estimator).__name__} takes none.")
            given = {argument: weights}
        run = SearchRun(self.estimator, X, y, weights, argument, routed, self.scorer_, self.n_jobs)
        self._race(run, run.folds(self.cv, self.ladder, candidates, rng), candidates)
        if self.refit:
            started = time.perf_counter()
            best = clone(self.estimator).set_params(**self.best_params_)
            self.best_estimator_ = best.fit(X, y, **routed.estimator.fit, **given)
            self.refit_time_ = time.perf_counter() - started
            if hasattr(best, "feature_names_in_"):
                self.feature_names_in_ = best.feature_names_in_
        return self

    def _routed(self, fit_params: dict[str, Any]) -> Any:
        if get_config()["enable_metadata_routing"]:
            return process_routing(self, "fit", **fit_params)
        groups = {"groups": fit_params.pop("groups")} if "groups" in fit_params else {}
        return Bunch(estimator=Bunch(fit=fit_params), splitter=Bunch(split=groups), scorer=Bunch(score={}))

    def _race(self, run: SearchRun, folds: list[Fold], candidates: list[dict[str, Any]]) -> None:
        sizes = [min(step.core.size for step in steps) for steps in zip(*(fold.ladder for fold in folds), strict=True)]
        n = min(len(fold.train) for fold in folds)
        work = len(folds) * sum(len(candidates) / (_KEPT if step > 1 else 1) for step in range(len(sizes)))
        progress = Progress("search", work, unit="fits")
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
        if self.fidelity_ and self.fidelity_[0].correlation < _LITTLE:
            text = "search: ranks on %d and %d rows agree by %.2f only, so small subsets say little of this model"
            text += "; search on all rows, or with a ladder that begins higher and ends with 1.0."
            logger.warning(text, *sizes[:2], self.fidelity_[0].correlation)
        self.n_resources_ = sizes[: len(self.n_candidates_)]
        self.rule_, self.n_splits_ = folds[0].ladder[0].rule, len(folds)
        self.cv_results_ = as_results(records, self.n_splits_)
        last = np.flatnonzero(self.cv_results_["iter"] == self.cv_results_["iter"].max())
        self.best_index_ = int(last[np.nanargmax(self.cv_results_["mean_expected_score"][last])])
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        self.best_params_ = self.cv_results_["params"][self.best_index_]

    def get_metadata_routing(self) -> MetadataRouter:
        """Routing for scikit-learn: ``sample_weight`` is used here, the rest goes to estimator, splitter and scorer."""
        return super().get_metadata_routing().add_self_request(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags = get_tags(self.estimator).target_tags
        return tags
