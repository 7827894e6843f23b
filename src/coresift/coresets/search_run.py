"""The work of a search: subsets of the training folds, fits and scores of candidates on them, a table of results."""

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata
from sklearn.base import clone, is_classifier
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils.parallel import Parallel, delayed

from .._containers import take_rows
from .._errors import InvalidInputError
from .._progress import Progress, logger
from .._validation import check_features
from .fit_rules import Choice, Task, objective, row_factors
from .linear_rows import check_labels
from .nested import check_ladder, nested_choices
from .wrapping import cut, takes_weights

_ROWS_PER_PARAMETER = 50


class Fold(NamedTuple):
    """The training and test rows of a fold, and the ladder of subsets of the former; all as row numbers of the data."""

    train: np.ndarray
    test: np.ndarray
    ladder: list[Choice]


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
                    raise InvalidInputError(
                        f"cv: the training rows of fold {number} have no row of class {classes[missing[0]]!r}. "
                        "Use stratified folds, fewer of them, or leave out classes of few rows."
                    )
            counts = check_ladder(ladder, len(train), 1 if classes is None else len(classes), "ladder")
            folds.append((train, test, counts, int(rng.integers(2**63))))
        ladders = Parallel(self.n_jobs)(delayed(self._ladder)(model, train, *how) for train, _, *how in folds)
        return [Fold(train, test, ladder) for (train, test, *_), ladder in zip(folds, ladders, strict=True)]

    def _ladder(self, model: Any, train: np.ndarray, counts: list[int], seed: int) -> list[Choice]:
        X, y = take_rows(self.X, train), take_rows(self.y, train)
        if isinstance(model, Pipeline):  # rows are compared as the last step sees them
            X = clone(model[:-1]).fit_transform(X, y) if len(model) > 1 else X
            model = model[-1]
        task = replace(self._task(model, train), X=X, y=y)
        choices = nested_choices(task, _enough(task, counts), np.random.default_rng(seed))
        cores = [replace(c.core, indices=train[c.core.indices], n_samples=len(self.weights)) for c in choices]
        return [replace(choice, core=core) for choice, core in zip(choices, cores, strict=True)]

    def _task(self, model: Any, train: np.ndarray) -> Task:
        classes, codes = self.labels
        is_weighted = self.argument is not None and takes_weights(model)
        own = None if codes is None else codes[train]
        return Task(model, None, None, self.weights[train], is_weighted, classes, own)

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
            last.set_params(class_weight=row_factors(self._task(last, fold.train))[1].class_weight)
        X, y, weights = core.take(self.X, self.y)
        given = {name: cut(value, core) for name, value in self.routed.estimator.fit.items()}
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


def _enough(task: Task, counts: list[int]) -> list[int]:
    """For a linear model the first size with 50 rows a parameter, from which on more rows change nothing."""
    if not task.is_weighted or objective(task, np.random.default_rng(0)) is None:
        return counts
    n_outputs = 1 if task.classes is None else max(1, len(task.classes) - 1)
    n_parameters = (check_features(task.X, finite=False).shape[1] + 1) * n_outputs
    enough = [count for count in counts if count >= _ROWS_PER_PARAMETER * n_parameters]
    return enough[:1] or counts[-1:]


def _last(model: Any) -> Any:
    return model[-1] if isinstance(model, Pipeline) else model


def _middle(models: list[Any]) -> Any:
    """The model that subsets are chosen for: of linear ones that of the median penalty, otherwise the first."""
    rng = np.random.default_rng(0)
    goals = [objective(Task(_last(model), None, np.zeros(1), np.ones(1), True), rng) for model in models]
    alphas = [np.nan if goal is None else goal.alpha(1.0, 1) for goal in goals]
    order = np.argsort(alphas)  # NaN last
    n_linear = int(np.count_nonzero(~np.isnan(alphas)))
    return models[int(order[n_linear // 2])] if n_linear else models[0]


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
