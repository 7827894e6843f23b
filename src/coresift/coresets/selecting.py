"""``select``: a coreset from files of any size, in a few passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._errors import InvalidInputError
from .._progress import Progress, logger
from .._validation import check_choice, check_count, check_probability
from ..core.budgets import class_budgets
from ..core.draw import METHODS
from ..rows.engines import ENGINES, open_engine
from ..rows.opening import open_rows
from ..rows.rows import Rows
from .budget import parse_budget, parse_bytes, size_for_error
from .check import QuerySums, random_queries
from .coreset import Coreset, Guarantee, QueryBall
from .fitting import Estimator, OnPass, Prepared, Runner, prepare, sample_log_values
from .keys import KeyPool, guess_bars
from .laplacian import LaplacianCoreset
from .plan import Plan, is_small, make_plan
from .rbf import RBFCoreset
from .result import Report, Selection, run_record
from .row_bounds import Scores, draw_scores
from .scores import children

LOSSES = ("gaussian", "laplacian")


@dataclass(frozen=True)
class Options:
    """How to select; see :func:`select`."""

    budget: Any = None
    loss: str = "gaussian"
    bandwidth: Any = None
    radius: float = 1.0
    bound: str = "auto"
    n_cells: int = 64
    method: str | None = None
    eps: float | None = None
    delta: float = 0.05
    per_class: bool = False
    min_per_class: int = 0
    normalize: bool = False
    n_queries: int = 32
    seed: int = 0
    workers: int = 1
    engine: str = "local"
    max_memory: Any = None

    def estimator(self) -> Estimator:
        """The estimator that would do this in memory; its parameters are checked."""
        shared: dict[str, Any] = {
            "bandwidth": self.bandwidth,
            "bound": self.bound,
            "n_cells": self.n_cells,
            "random_state": self.seed,
        }
        if check_choice(self.loss, "loss", LOSSES) == "laplacian":
            made: Estimator = LaplacianCoreset(**shared)
        else:
            made = RBFCoreset(radius=self.radius, **shared)
        made._check_parameters()
        return made

    def check_alone(self) -> None:
        """Refuse what is wrong whatever the data."""
        self.estimator()
        check_choice(self.engine, "engine", ENGINES)
        for name, least in (("seed", 0), ("n_queries", 0), ("min_per_class", 0), ("workers", 1)):
            check_count(getattr(self, name), name, minimum=least)
        if self.min_per_class and not self.per_class:
            raise InvalidInputError(
                f"min_per_class = {self.min_per_class} needs per_class: a draw over all classes promises none."
            )
        if (self.budget is None) == (self.eps is None):
            raise InvalidInputError("give either a budget or eps: how many rows, or which error.")
        check_probability(self.delta, "delta")
        method = check_choice(self._chosen_method, "method", METHODS)
        if self.eps is not None:
            check_probability(self.eps, "eps")
            if method != "iid":
                raise InvalidInputError(f"eps is guaranteed for method='iid', not for method={method!r}.")
            if self.normalize:
                raise InvalidInputError(
                    "eps is guaranteed for weights as they are drawn: leave normalize out."
                )
        if self.max_memory is not None:
            parse_bytes(self.max_memory, "max_memory")

    @property
    def _chosen_method(self) -> str:
        return self.method or ("keys" if self.eps is None else "iid")

    def checked(self, source: Rows) -> Options:
        """The same with every choice made; refuses what does not go together."""
        self.check_alone()
        method = self._chosen_method
        if self.per_class and not source.has_labels:
            raise InvalidInputError("per_class needs the column of the labels: pass label.")
        if self.per_class and (method != "keys" or self.bound in ("exact", "paper", "lemma")):
            raise InvalidInputError(
                "per_class goes with method='keys' and the bounds 'auto', 'closed-form' and 'cells'."
            )
        budget = None if self.budget is None else parse_budget(self.budget, source.n)
        limit = None if self.max_memory is None else parse_bytes(self.max_memory, "max_memory")
        return replace(self, budget=budget, method=method, max_memory=limit)


def select(
    data: Any,
    budget: Any = None,
    *,
    columns: Sequence[str] | None = None,
    embedding: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    filesystem: Any = None,
    image_size: int = 32,
    on_pass: OnPass | None = None,
    **options: Any,
) -> Selection:
    """Choose rows of files that may be larger than memory, with weights.

    Parameters
    ----------
    data, columns, embedding, label, weight, filesystem, image_size
        What to read; see :func:`open_rows`.
    budget : int, float or str
        Rows to choose: a number, a fraction, or a percentage such as ``"5%"``. Or pass ``eps``.
    loss : {"gaussian", "laplacian"}
    bandwidth, radius, bound, n_cells
        As in :class:`RBFCoreset` and :class:`LaplacianCoreset`.
    method : {"keys", "systematic", "iid"}
        "keys" (the default) needs memory for the chosen rows only; the others for some fifty bytes of every row.
    eps, delta : float
        Instead of a budget: a relative error for all queries of the ball, and the probability of missing it. Draws are
        then independent ("iid").
    per_class : bool
        A coreset for each label, of a size in proportion to its rows, rounded up, and at least ``min_per_class`` (0).
        Sums over every class are kept, and so their total.
    normalize : bool, default False
        Scale the weights to sum to that of the rows, within each class where there are some. Draws by keys err in that
        sum by about one over the root of the budget; scaled weights are biased by the square of that. Not with ``eps``.
    n_queries : int, default 32
        Random queries at which the result is compared with all rows, in one more pass; 0 for none.
    seed : int, default 0
        The same seed gives the same rows, whatever the workers.
    workers : int, default 1
        Processes. With more than one, a script must guard its own start by ``if __name__ == "__main__"``.
    engine : {"local", "ray"}
        "ray" joins ``RAY_ADDRESS``, or what the program has joined, or starts its own; one worker means all cores.
    max_memory : str or number of bytes, optional
        Refuse to start if more would be needed.
    on_pass : callable, optional
        Told of each pass and its rows; returns a function that is told of finished rows.

    Returns
    -------
    Selection
        ``.coreset``, ``.labels``, ``.report``, and ``.save(path)``.

    Examples
    --------
    >>> import numpy as np
    >>> from coresift import select
    >>> X = np.random.default_rng(0).standard_normal((2000, 8))
    >>> select(X, "5%", bandwidth=3.0).coreset.size
    100
    """
    source = open_rows(
        data,
        columns=columns,
        embedding=embedding,
        label=label,
        weight=weight,
        filesystem=filesystem,
        image_size=image_size,
    )
    return run(plan(source, Options(budget=budget, **options)), on_pass=on_pass)


def plan(source: Rows, options: Options) -> Plan:
    """What a selection will do, before it is done; refuses what cannot be done."""
    options = options.checked(source)
    estimator = options.estimator()
    made = make_plan(source, options, estimator)
    if options.max_memory is not None and made.memory > options.max_memory:
        raise InvalidInputError(
            f"max_memory = {options.max_memory / 1e6:.0f} MB is less than the {made.memory / 1e6:.0f} MB that this "
            "needs: use fewer workers, a smaller budget or method='keys'."
        )
    return made


def run(made: Plan, *, on_pass: OnPass | None = None) -> Selection:
    """Do what was planned."""
    source, options = made.source, made.options
    estimator = options.estimator()
    with open_engine(options.engine, source, options.workers) as engine:
        runner = Runner(source, engine, on_pass or Progress)
        rng = children(np.random.default_rng(options.seed), 3)[0]
        if is_small(estimator, source, options.per_class):
            core, report, prepared = _in_memory(runner, estimator, options, rng)
            labels: Any = None
        elif options.method == "keys":
            core, report, prepared, labels = _by_keys(runner, estimator, options, rng)
        else:
            core, report, prepared = _by_table(runner, estimator, options)
            labels = None
        if options.n_queries:
            report = _with_errors(report, core, prepared, runner, options, rng)
    if source.has_labels and labels is None:
        labels = _labels_of(source, core.indices)
    names = [] if prepared.labels is None else list(prepared.labels)
    report = replace(report, seconds=dict(runner.seconds))
    return Selection(
        core, source, None if labels is None else _named(labels, names), report, run_record(source, options)
    )


def _by_keys(
    runner: Runner, estimator: Estimator, options: Options, rng: np.random.Generator
) -> tuple[Coreset, Report, Prepared, np.ndarray | None]:
    """Survey, bound, and the draw while the bound is computed: nothing of a row is kept but of the winners."""
    prepared = prepare(runner, estimator, rng, per_class=options.per_class)
    geometry = prepared.geometry
    sizes = (
        class_budgets(geometry.counts, options.budget, min_per_class=options.min_per_class)
        if options.per_class
        else np.array([options.budget])
    )
    log_values = sample_log_values(prepared.sample, prepared.bound)
    log_unit = max(float(log_values.max(initial=0.0)), 0.0)
    sample = prepared.sample
    shares = np.divide(
        sample.weights,
        geometry.mass[sample.groups],
        out=np.zeros(len(sample.weights)),
        where=sample.weights > 0,
    )
    bars = guess_bars(draw_scores(log_values, shares, log_unit), sample.inverse_rates, sizes, sample.groups)
    scores = runner.run(
        "draw", Scores(prepared.bound, KeyPool(options.seed, sizes, bars), log_unit, prepared.labels)
    )
    if not scores.pool.is_complete():  # the guess was too low: rare, and the result is the same
        pool = KeyPool(options.seed, sizes)
        scores = runner.run("draw again", Scores(prepared.bound, pool, log_unit, prepared.labels))
    draws = scores.pool.draws()
    if options.normalize:
        totals = zip(draws, geometry.mass, strict=True)
        draws = [d._replace(weights=d.weights * (mass / (d.weights.sum() or 1.0))) for d, mass in totals]
    rows = np.concatenate([draw.indices for draw in draws])
    order = np.argsort(rows)
    rows, weights = rows[order], np.concatenate([draw.weights for draw in draws])[order]
    columns = scores.pool.columns()
    labels = columns["label"][np.isin(columns["row"], rows)] if prepared.labels is not None else None
    core = _coreset(rows, weights, options, prepared, runner.source.n, float(scores.total.sum()))
    report = Report(
        total_sensitivity=float(scores.total.sum()),
        spread=float(scores.largest.max() * runner.source.n / scores.total.sum()),
        uniform_factor=float(scores.uniform_factors.max()),
        bound_note=prepared.bound.note,
        is_certified=prepared.bound.is_certified,
        class_sizes=_class_sizes(prepared, sizes) if options.per_class else None,
    )
    return core, report, prepared, labels


def _coreset(
    rows: np.ndarray, weights: np.ndarray, options: Options, prepared: Prepared, n_rows: int, total: float
) -> Coreset:
    geometry = prepared.geometry
    radius = float(options.radius) if options.loss == "gaussian" else np.inf
    return Coreset(
        rows,
        weights,
        n_samples=n_rows,
        method="keys",
        seed=options.seed,
        total_sensitivity=total,
        bound=prepared.bound.name,
        ball=QueryBall(options.loss, geometry.center, geometry.scale, radius),
        total_weight=float(geometry.mass.sum()),
        adjustments=("normalized",) if options.normalize else (),
    )


def _class_sizes(prepared: Prepared, sizes: np.ndarray) -> dict[str, int]:
    return {str(name): int(size) for name, size in zip(prepared.labels or (), sizes, strict=True)}


def _by_table(runner: Runner, estimator: Estimator, options: Options) -> tuple[Coreset, Report, Prepared]:
    """Draws that need the scores of all rows: two numbers a row."""
    runner.needs_reach = options.eps is not None
    estimator.fit(runner)
    assert runner.prepared is not None
    return _drawn(estimator, options, runner.prepared, estimator._table.weights)


def _in_memory(
    runner: Runner, estimator: Estimator, options: Options, rng: np.random.Generator
) -> tuple[Coreset, Report, Prepared]:
    """Few rows, or the exact bound: the estimator itself."""
    source = runner.source
    quick = replace(options, bound="auto").estimator()
    prepared = prepare(runner, quick, rng, exact_reach=True)
    with source.load() as loaded:
        estimator.fit(loaded.X, sample_weight=loaded.weights)
        return _drawn(estimator, options, prepared, loaded.weights)


def _drawn(
    estimator: Estimator, options: Options, prepared: Prepared, weights: np.ndarray
) -> tuple[Coreset, Report, Prepared]:
    """The draw of a fitted estimator, of the size asked for or of the size that the error needs."""
    size = options.budget
    guarantee = None
    if options.eps is not None:
        if not estimator.is_certified_:
            raise InvalidInputError(
                f"bound = {estimator.bound_!r} is not a certificate here: eps cannot be guaranteed."
            )
        shares = weights / weights.sum()
        size, argument = size_for_error(
            options.loss,
            options.radius,
            prepared.geometry,
            estimator._table.scores,
            shares,
            estimator._draw_total,
            options.eps,
            options.delta,
        )
        if size >= len(shares):
            raise InvalidInputError(
                f"eps = {options.eps:g} needs {size:,} independent draws ({argument}), no fewer than the "
                f"{len(shares):,} rows: keep them all, or ask for a larger eps or for a budget."
            )
        radius = float(options.radius) if options.loss == "gaussian" else np.inf
        guarantee = Guarantee("all", options.eps, options.delta, argument, radius, size)
    core = estimator.sample(
        size, method=str(options.method), random_state=options.seed, normalize=options.normalize
    )
    if guarantee is not None:
        core = replace(core, guarantee=guarantee)
    values = estimator.sensitivities_
    report = Report(
        total_sensitivity=estimator.total_sensitivity_,
        spread=float(values.max() / values.mean()),
        uniform_factor=estimator.uniform_factor_,
        bound_note=estimator.bound_note_,
        is_certified=estimator.is_certified_,
    )
    return core, report, prepared


def _with_errors(
    report: Report,
    core: Coreset,
    prepared: Prepared,
    runner: Runner,
    options: Options,
    rng: np.random.Generator,
) -> Report:
    radius = float(options.radius) if options.loss == "gaussian" else np.inf
    queries = random_queries(prepared.geometry, prepared.sample, radius, options.n_queries, rng)
    sums = QuerySums(prepared.geometry, options.loss, queries, core.indices, core.weights)
    if not sums.is_safe:
        logger.warning("sums at random queries are too small to be compared: no error is found or stated")
        return report
    errors = runner.run("check", sums).errors()
    return replace(
        report,
        n_queries=len(errors),
        worst_error_found=float(errors.max()),
        mean_error_found=float(errors.mean()),
    )


def _labels_of(source: Rows, rows: np.ndarray) -> list[Any]:
    """The labels of some rows."""
    labels = source.take(rows).labels
    assert labels is not None
    return [labels.names[code] for code in labels.codes]


def _named(labels: Any, names: list[Any]) -> list[Any]:
    return labels if isinstance(labels, list) else [names[code] for code in labels]
