"""``select``: a coreset from arrays or from files of any size, in a few passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from .._errors import InvalidInputError
from .._progress import Progress, logger
from ..core.budgets import class_budgets
from ..rows.engines import open_engine
from ..rows.opening import open_rows
from ..rows.rows import Rows
from .base import children
from .budget import parse_budget
from .check import QuerySums, random_queries
from .coreset import Coreset
from .fitting import OnPass, Prepared, Runner, prepare
from .keys import KeyPool, guess_bars
from .options import SelectOptions
from .plan import Plan, make_plan
from .result import Report, Selection, run_record
from .scores import Scores, draw_scores, log_unit_of
from .values import Guarantee, QueryBall

_SOURCE = (
    "sample_weight",
    "labels",
    "columns",
    "embedding",
    "label",
    "weight",
    "filesystem",
    "image_size",
)
_QUERIES = 1  # keeps the stream of the queries apart from others of the same seed


def select(
    data: Any,
    budget: str | int | float | None = None,
    *,
    sample_weight: Any = None,
    labels: Any = None,
    columns: Sequence[str] | None = None,
    embedding: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    filesystem: Any = None,
    image_size: int = 32,
    loss: str = "gaussian",
    bandwidth: str | float | None = None,
    radius: float = 1.0,
    bound: str = "auto",
    n_cells: int = 64,
    method: str | None = None,
    eps: float | None = None,
    delta: float = 0.05,
    per_class: bool = False,
    min_per_class: int = 0,
    normalize: bool = False,
    n_queries: int = 32,
    seed: int = 0,
    workers: int = 1,
    engine: str = "local",
    max_memory: str | float | None = None,
    on_pass: OnPass | None = None,
) -> Selection:
    """Choose rows, with weights, from data that may be larger than memory.

    Parameters
    ----------
    data, sample_weight, labels, columns, embedding, label, weight, filesystem, image_size
        What to read; see :func:`open_rows`.
    budget : int, float or str
        Rows to choose: a number, a fraction, or a percentage such as ``"5%"``. Or pass ``eps``.
    loss : {"gaussian", "laplacian"}
    bandwidth, radius, bound, n_cells
        As in :class:`RBFCoreset` and :class:`LaplacianCoreset`.
    method : {"keys", "systematic", "iid"}
        "keys" (the default, except with ``eps``) keeps the chosen rows only, in data of any size. The others keep some
        fifty bytes of every row; "systematic", the default of :meth:`RBFCoreset.sample`, gives weights with less noise.
    eps, delta : float
        Instead of a budget: a relative error for all queries of the ball, and the probability of missing it; the size
        is that of :meth:`RBFCoreset.sample_size`. Draws are then independent ("iid").
    per_class : bool
        A coreset for each label, of a size in proportion to its rows, rounded up, and at least ``min_per_class`` (0).
        Sums over every class are kept, and so their total.
    normalize : bool, default False
        Scale the weights to sum to that of the rows, within each class if ``per_class``. Draws by keys err in that
        sum by about one over the root of the budget; scaled weights are biased by the square of that. Not with ``eps``.
    n_queries : int, default 32
        Random queries at which the result is compared with all rows, in one more pass; 0 for none.
    seed : int, default 0
        The same seed gives the same rows, from memory or files, whatever the workers.
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
    given = locals()
    options = SelectOptions(**{option.name: given[option.name] for option in fields(SelectOptions)})
    rows = open_rows(data, **{name: given[name] for name in _SOURCE})
    return run(plan(rows, options), on_pass=on_pass)


def plan(rows: Rows, options: SelectOptions) -> Plan:
    """What a selection will do, before it is done; refuse what cannot be done with these rows."""
    if options.per_class and not rows.has_labels:
        raise InvalidInputError("per_class needs labels: pass labels, or label, the name of their column.")
    if options.budget is not None:
        options = replace(options, budget=parse_budget(options.budget, rows.n))
    return make_plan(rows, options)


class _Drawn(NamedTuple):
    """A draw, its figures, and what was found on the way."""

    core: Coreset
    report: Report
    prepared: Prepared
    labels: np.ndarray | None = None  # numbers of the labels of the chosen rows, if they were kept


def run(made: Plan, *, on_pass: OnPass | None = None) -> Selection:
    """Do what was planned: fit and draw, then compare with all rows at random queries."""
    rows, options = made.rows, made.options
    with open_engine(options.engine, rows, options.workers) as engine:
        runner = Runner(rows, engine, on_pass or Progress)
        core, report, prepared, codes = (_by_keys if options.method == "keys" else _by_table)(runner, options)
        if options.n_queries:
            report = _with_errors(report, core, prepared, runner, options)
    labels = None
    if prepared.labels is not None:
        names = list(prepared.labels)
        if codes is None:
            own = rows.take(core.indices).labels
            assert own is not None
            names, codes = own.names, own.codes
        labels = [names[code] for code in codes]
    report = replace(report, seconds=dict(runner.seconds))
    return Selection(core, rows, labels, report, run_record(rows, options))


def _by_keys(runner: Runner, options: SelectOptions) -> _Drawn:
    """Draw while the bound is computed: nothing is kept per row except for the winners."""
    rng = children(np.random.default_rng(options.seed), 3)[0]  # as the estimator's fit
    spec = options.estimator().spec()
    prepared = prepare(runner, spec, rng, per_class=options.per_class, is_sampled=True)
    geometry, sample, bound = prepared.geometry, prepared.sample, prepared.bound
    sizes = np.array([options.budget])
    if options.per_class:
        sizes = class_budgets(geometry.counts, int(options.budget or 0), min_per_class=options.min_per_class)
    log_values = sample.log_values(bound)
    log_unit = log_unit_of(log_values)
    shares = sample.weights / geometry.mass[sample.groups]
    bars = guess_bars(draw_scores(log_values, shares, log_unit), sample.inverse_rates, sizes, sample.groups)
    found = runner.run("draw", Scores(bound, KeyPool(options.seed, sizes, bars), log_unit, prepared.labels))
    if not found.pool.is_complete():  # the guess was too low: rare, and the result is the same
        pool = KeyPool(options.seed, sizes)
        found = runner.run("draw again", Scores(bound, pool, log_unit, prepared.labels))
    draws = found.pool.draws()
    if options.normalize:
        totals = zip(draws, geometry.mass, strict=True)
        draws = [d._replace(weights=d.weights * (mass / (d.weights.sum() or 1.0))) for d, mass in totals]
    indices = np.concatenate([draw.indices for draw in draws])
    order = np.argsort(indices)
    total = float(found.total.sum())
    core = Coreset(
        indices[order],
        np.concatenate([draw.weights for draw in draws])[order],
        n_samples=runner.rows.n,
        method="keys",
        seed=options.seed,
        total_sensitivity=total,
        bound=bound.name,
        ball=QueryBall(options.loss, geometry.center, geometry.scale, spec.radius),
        total_weight=float(geometry.mass.sum()),
        adjustments=("normalized",) if options.normalize else (),
    )
    columns = found.pool.columns()
    labels = None
    if prepared.labels is not None:
        labels = columns["label"][np.isin(columns["row"], core.indices)]
    report = Report(
        total_sensitivity=total,
        spread=float(found.largest.max() * runner.rows.n / total),
        uniform_factor=found.uniform_factor,
        bound_note=bound.note,
        is_certified=bound.is_certified,
        class_sizes=_class_sizes(prepared, sizes) if options.per_class else None,
    )
    return _Drawn(core, report, prepared, labels)


def _class_sizes(prepared: Prepared, sizes: np.ndarray) -> dict[str, int]:
    return {str(name): int(size) for name, size in zip(prepared.labels or (), sizes, strict=True)}


def _by_table(runner: Runner, options: SelectOptions) -> _Drawn:
    """Fit the estimator, which keeps the scores of all rows, and sample; the size may follow from the error."""
    estimator = options.estimator()
    prepared = estimator.fit_rows(runner=runner, is_sampled=bool(options.n_queries)).prepared
    assert prepared is not None
    size, guarantee = options.budget, None
    if options.eps is not None:
        needed = estimator.sample_size(options.eps, delta=options.delta)
        if not needed.is_smaller_than_data:
            raise InvalidInputError(
                f"eps = {options.eps:g} needs {needed.size:,} independent draws ({needed.argument}), no fewer than the "
                f"{runner.rows.n:,} rows: keep them all, or ask for a larger eps or for a budget."
            )
        size, radius = needed.size, estimator.spec().radius
        guarantee = Guarantee("all", options.eps, options.delta, needed.argument, radius, size)
    core = estimator.sample(
        int(size or 0), method=str(options.method), random_state=options.seed, normalize=options.normalize
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
    return _Drawn(core, report, prepared)


def _with_errors(
    report: Report, core: Coreset, prepared: Prepared, runner: Runner, options: SelectOptions
) -> Report:
    rng = np.random.default_rng([options.seed, _QUERIES])
    radius = options.estimator().spec().radius
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
