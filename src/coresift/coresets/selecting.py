"""``select``: a coreset from arrays or from files of any size, in a few passes, and what came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._errors import InvalidInputError
from .._progress import OnPass, logger
from .._threads import one_thread
from .._validation import check_seed
from ..core.budgets import random_budgets
from ..core.draw import Draw, DrawTable, KeyPool, guess_bars
from ..rows.engines import open_engine
from ..rows.opening import open_rows
from .bounds import AS_GOOD, Geometry, draw_scores, log_unit_of, uniform_factor, uniform_in_words
from .coreset import Coreset, Guarantee, QueryBall
from .files import ChosenRows, run_record
from .fitting import Prepared, Runner, all_bounds, children, prepare
from .options import Plan, SelectOptions, plan
from .passes import QuerySums, Scores, random_queries

if TYPE_CHECKING:
    from ..rows.preparation import Preparation

_QUERIES, _CLASSES = 1, 2  # keep their streams apart from others of the same seed
_SAFE_EXPONENT = 600.0
_NOTHING_PROVED = "nothing is proved for this draw; coresift certify says more."
_MOST_CLASSES = 12  # that are printed
_NOTABLE = 0.02  # of the total weight


def select(
    data: Any,
    budget: str | int | float | None = None,
    *,
    sample_weight: Any = None,
    labels: Any = None,
    targets: Any = None,
    columns: Sequence[str] | None = None,
    embedding: str | None = None,
    label: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    filesystem: Any = None,
    image_size: int = 32,
    preparation: Preparation | str | None = "auto",
    strategy: str | None = None,
    model: str | None = None,
    power: float | None = None,
    alpha: float = 1e-4,
    threshold: float | None = None,
    calibrate: bool = True,
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
    random_state: Any = 0,
    workers: int = 1,
    engine: str = "local",
    max_memory: str | float | None = None,
    on_pass: OnPass | None = None,
) -> Selection:
    """Choose rows, with weights, from data that may be larger than memory.

    Parameters
    ----------
    data, sample_weight, labels, targets, columns, embedding, label, target, weight, filesystem, image_size
        What to read: see :func:`open_rows`.
    preparation : "auto", None or Preparation
        "auto" turns the columns of a table into standardised numbers (:class:`Preparation`); None takes numbers as they
        are, as arrays always are. ``Selection.rows.preparation`` is what was learnt.
    budget : int, float or str
        Rows to choose: a number, a fraction, or a percentage such as ``"5%"``. Or pass ``eps``.
    strategy : {"auto", "uniform", "stratified", "cover", "fixed", "linear", "rbf"}, optional
        "uniform" and "stratified" draw rows alike, or in each class. "cover" takes the row nearest to each centre of
        k-means, "fixed" grows where a kernel regression errs, "linear" is the draw of :class:`LinearCoreset`, and
        "rbf", the default without labels and targets, draws by Gaussian sensitivities: the options from ``loss`` to
        ``n_queries`` imply it. "auto", the default with them, compares what may suit the model with a stratified draw
        on held-out rows, and says why it decides.
    model : {"boosting", "linear", "kernel", "neighbours", "network"}, optional
        What will be fitted to the rows, for "auto"; "boosting" by default. Or the loss of a linear model, which means
        the strategy "linear": ``alpha``, ``threshold`` and ``calibrate`` are then those of :class:`LinearCoreset`.
    power : float in (0, 1], optional
        Classes get shares by this power of their sizes: 0.5 for "cover", and for "auto" if a class is rare, else 1.
    loss, bandwidth, radius, bound, n_cells
        "gaussian" as in :class:`RBFCoreset`, or "laplacian" as in :class:`LaplacianCoreset`.
    method : {"systematic", "keys", "iid"}, optional
        As in :meth:`RBFCoreset.sample`. "keys", the default above five million rows, keeps the chosen rows only, the
        others about 100 bytes of every row.
    eps, delta : float
        Instead of a budget: a relative error for all queries of the ball, and the probability of missing it; the size
        is that of :meth:`RBFCoreset.sample_size`. Draws are then independent ("iid").
    per_class : bool
        A coreset for each label, in proportion to its rows, of at least ``min_per_class`` (0). If the budget leaves
        out classes, chance decides which, and the weights make up for it.
    normalize : bool, default False
        Scale the weights to sum to that of the rows, of each class if ``per_class``; not with ``eps``. Draws by keys
        miss it by about one over the root of the budget, and scaling biases the weights by the square of that.
    n_queries : int, default 32
        Random queries at which the result is compared with all rows, in one more pass; 0 for none.
    random_state : None, int or Generator, default 0
        The same seed gives the same rows, from memory or files, whatever the workers.
    workers, engine : int, {"local", "ray"}
        Threads that read and compute. "ray" joins ``RAY_ADDRESS``, or what the program has joined, or starts its own
        cluster; one worker means all its cores.
    max_memory : str or number of bytes, optional
        Refuse to start if more would be needed.
    on_pass : callable, optional
        Called before each pass with its name and its number of rows; what it returns, if that is callable, is called
        with the number of rows that were finished since.

    Returns
    -------
    Selection
        ``.coreset``, ``.labels``, ``.report``, and ``.save(path)``.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((2000, 8))
    >>> select(X, "5%", bandwidth=3.0).coreset.size
    100
    """
    given = dict(locals())
    del given["data"], given["on_pass"]
    given["seed"] = check_seed(given.pop("random_state"), np.random.default_rng())
    options = SelectOptions(**{option.name: given.pop(option.name) for option in fields(SelectOptions)})
    rows = open_rows(data, **given, engine=engine, workers=workers, on_pass=on_pass)
    return run(plan(rows, options), on_pass=on_pass)


@dataclass(frozen=True)
class Report:
    """Figures of a selection by a ``strategy``; those of sensitivities and errors belong to the strategy "rbf".

    ``bound_note`` and ``is_certified`` describe the bound, of sum ``total_sensitivity``; ``worst_error_found`` and
    ``mean_error_found`` are errors at ``n_queries`` random queries, ``seconds`` times of passes, ``class_sizes`` rows.

    >>> select(np.random.default_rng(0).normal(size=(1000, 3)), 100).report.uniform_is_as_good
    True
    """

    strategy: str = "rbf"
    reason: str = ""
    """Why "auto" chose the strategy."""
    total_sensitivity: float | None = None
    spread: float | None = None
    """The largest sensitivity over the mean."""
    uniform_factor: float | None = None
    """How many times more rows plain sampling needs for the same guarantee, at most."""
    bound_note: str = ""
    is_certified: bool = False
    n_queries: int = 0
    worst_error_found: float | None = None
    mean_error_found: float | None = None
    class_sizes: dict[str, int] | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def uniform_is_as_good(self) -> bool:
        """Whether plain sampling needs hardly more rows."""
        return self.uniform_factor is not None and self.uniform_factor <= AS_GOOD


@dataclass(frozen=True)
class Selection(ChosenRows):
    """The ``coreset`` chosen from ``rows`` with its ``labels``, a ``report``, and what repeats the choice (``run``).

    >>> print(select(np.random.default_rng(0).normal(size=(1000, 3)), 100, strategy="uniform").lines()[0])
    Chosen: 100 of 1,000 rows, strategy uniform.
    """

    report: Report

    def lines(self) -> list[str]:
        """What came out, in words."""
        core, report = self.coreset, self.report
        chosen = f"Chosen: {core.size:,} of {core.n_samples:,} rows"
        if report.total_sensitivity is None:
            text = [f"{chosen}, strategy {report.strategy}{report.reason and f': {report.reason}'}."]
            if report.class_sizes:
                shown = [f"{name or '(empty)'} {count:,}" for name, count in report.class_sizes.items()]
                text.append(f"Classes: {', '.join(shown[:_MOST_CLASSES])}{' ...' * (len(shown) > _MOST_CLASSES)}.")
            return text
        text = [
            f"{chosen}. Total sensitivity {report.total_sensitivity:.3g} "
            f"(the least possible is {len(report.class_sizes or [1])}), largest over mean {report.spread:.3g}, "
            f"bound {core.bound}.",
            f"Guaranteed: {core.guarantee or _NOTHING_PROVED}",
        ]
        worst, mean = report.worst_error_found, report.mean_error_found
        if worst is not None and mean is not None:
            found = f"relative error {worst:.3g} at the worst of {report.n_queries} random queries"
            text.append(f"Found: {found}, {mean:.3g} on average.")
        text.append(uniform_in_words(report.uniform_factor or 1.0))
        share = float(core.weights.sum()) / core.total_weight if core.total_weight else 1.0
        if abs(share - 1.0) > _NOTABLE:
            found = f"The weights sum to {share:.3g} times the weight of the rows, by chance"
            text.append(f"{found}; where that matters, normalize=True (--normalize) scales them.")
        if not report.is_certified:
            text.append(f"The bound is not a certificate here. {report.bound_note}")
        return text

    def as_dict(self) -> dict[str, Any]:
        """What came out, for programs."""
        core = self.coreset
        return {
            "size": core.size,
            "rows": core.n_samples,
            "method": core.method,
            "bound": core.bound,
            "guarantee": core.guarantee and core.guarantee.as_dict(),
            **asdict(self.report),
            "uniform_is_as_good": self.report.uniform_is_as_good,
            "run": self.run,
        }


class _Drawn(NamedTuple):
    """A draw, and what was found on the way."""

    core: Coreset
    prepared: Prepared
    largest: float  # sensitivity
    uniform_factor: float
    labels: np.ndarray | None = None  # numbers of the labels of the chosen rows, if they were kept
    class_sizes: np.ndarray | None = None


def run(made: Plan[SelectOptions], *, on_pass: OnPass | None = None) -> Selection:
    """Return the selection that was planned (``made``); ``on_pass`` is as in :func:`select`.

    >>> run(plan(open_rows(np.eye(20)), SelectOptions(budget=5))).coreset.size
    5
    """
    rows, options = made.rows, made.options
    if options.resolved(rows) != "rbf":
        from .strategies import run_strategy

        return run_strategy(made, on_pass=on_pass)
    with open_engine(options.engine, rows, options.workers) as engine, one_thread():
        runner = Runner(rows, engine, on_pass)
        draw = {"keys": _by_keys, "systematic": _by_scores, "iid": _by_estimator}[str(options.method)]
        drawn = draw(runner, made)
        errors = _errors(runner, options, drawn) if options.n_queries else np.zeros(0)
    core, names = drawn.core, list(drawn.prepared.labels or ())
    labels = None if drawn.labels is None else [names[code] for code in drawn.labels]
    sizes = None if drawn.class_sizes is None else dict(zip(map(str, names), drawn.class_sizes.tolist(), strict=True))
    total = core.total_sensitivity
    assert total is not None
    report = Report(
        total_sensitivity=total,
        spread=drawn.largest * rows.n / total,
        uniform_factor=drawn.uniform_factor,
        bound_note=drawn.prepared.bound.note,
        is_certified=drawn.prepared.bound.is_certified,
        n_queries=len(errors),
        worst_error_found=float(errors.max()) if len(errors) else None,
        mean_error_found=float(errors.mean()) if len(errors) else None,
        class_sizes=sizes,
        seconds=dict(runner.seconds),
    )
    return Selection(core, rows, labels, run_record(made), report)


def _by_keys(runner: Runner, made: Plan[SelectOptions]) -> _Drawn:
    """Draw while the bound is computed: nothing is kept per row except for the winners."""
    options = made.options
    rng = children(np.random.default_rng(options.seed), 2)[0]  # as the estimator's fit
    prepared = prepare(runner, options.spec, rng, per_class=options.per_class, is_sampled=True)
    geometry, sample, bound = prepared.geometry, prepared.sample, prepared.bound
    sizes, factors = _sizes(made, geometry)
    log_values = sample.log_values(bound)
    log_unit = log_unit_of(log_values)
    shares = sample.weights / geometry.mass[sample.groups]
    bars = guess_bars(draw_scores(log_values, shares, log_unit), sample.inverse_rates, sizes, sample.groups)
    for what, bar in (("draw", bars), ("draw again", None)):
        found = runner.run(what, Scores(bound, KeyPool(options.seed, sizes, bar), log_unit, prepared.labels))
        if found.pool.is_complete():  # else the guess was too low: rare, and the result is the same
            break
    columns, draws = found.pool.winners()
    core = _joined(made, prepared, dict(enumerate(draws)), factors, float(found.total.sum()))
    largest, class_sizes = float(found.largest.max()), sizes if options.per_class else None
    return _Drawn(core, prepared, largest, found.uniform_factor, columns.get("label"), class_sizes)


def _by_scores(runner: Runner, made: Plan[SelectOptions]) -> _Drawn:
    """Draw from the scores of all rows or, if asked, from those of each class."""
    options, rng = made.options, np.random.default_rng(made.options.seed)
    fit_rng, class_rng = children(rng, 2)
    draw_rng = class_rng if options.per_class else np.random.default_rng(options.seed)  # as `sample`
    prepared = prepare(runner, options.spec, fit_rng, per_class=options.per_class, is_sampled=bool(options.n_queries))
    bound, weights, codes = all_bounds(runner, prepared.bound, prepared.labels)
    groups = codes if codes is not None and options.per_class else np.zeros(len(weights), dtype=np.int32)
    shares = prepared.geometry.shares(weights, groups)
    values = bound.values
    scores = draw_scores(bound.log_values, shares, log_unit_of(bound.log_values), values)
    weights = np.where(shares > 0, weights, 0.0)
    (sizes, factors), draws, factor = _sizes(made, prepared.geometry), {}, 0.0
    for group in map(int, np.flatnonzero(prepared.geometry.mass > 0)):
        rows = np.flatnonzero(groups == group)
        factor = max(factor, uniform_factor(scores[rows], shares[rows]))
        if sizes[group]:
            drawn = DrawTable(scores[rows], weights[rows]).draw(int(sizes[group]), str(options.method), draw_rng)
            draws[group] = drawn._replace(indices=rows[drawn.indices])
    core = _joined(made, prepared, draws, factors, float(values.sum()))
    labels, class_sizes = None if codes is None else codes[core.indices], sizes if options.per_class else None
    return _Drawn(core, prepared, float(values.max()), factor, labels, class_sizes)


def _sizes(made: Plan[SelectOptions], geometry: Geometry) -> tuple[np.ndarray, np.ndarray]:
    """The budget of each group, and the factor of its weights."""
    budget = made.budget or 0
    if not made.options.per_class:
        return np.array([budget]), np.ones(1)
    rng = np.random.default_rng([made.options.seed, _CLASSES])
    return random_budgets(geometry.counts, budget, rng, min_per_class=made.options.min_per_class)


def _joined(
    made: Plan[SelectOptions], prepared: Prepared, draws: dict[int, Draw], factors: np.ndarray, total: float
) -> Coreset:
    """One coreset of the draws of all groups; ``factors`` make up for the groups that were left out."""
    options, geometry = made.options, prepared.geometry
    indices = np.concatenate([draw.indices for draw in draws.values()])
    weights = [draw.weights for draw in draws.values()]
    if options.normalize:
        weights = [w * (geometry.mass[group] / (w.sum() or 1.0)) for group, w in zip(draws, weights, strict=True)]
    weights = [w * factors[group] for group, w in zip(draws, weights, strict=True)]
    order = np.argsort(indices)
    return Coreset(
        indices[order],
        np.concatenate(weights)[order],
        n_samples=made.rows.n,
        method=str(options.method),
        seed=options.seed,
        total_sensitivity=total,
        bound=prepared.bound.name,
        ball=QueryBall(options.loss, geometry.center, geometry.scale, options.spec.radius),
        total_weight=float(geometry.mass.sum()),
        adjustments=("normalized",) if options.normalize else (),
    )


def _by_estimator(runner: Runner, made: Plan[SelectOptions]) -> _Drawn:
    """Fit the estimator and draw independently, with its guarantee; the size may follow from the error."""
    from .estimators import LaplacianCoreset, RBFCoreset

    options = made.options
    kind = LaplacianCoreset if options.loss == "laplacian" else RBFCoreset
    estimator = kind(random_state=options.seed)  # its other parameters are in ``spec``
    fit = estimator.fit_rows(runner=runner, spec=options.spec, is_sampled=bool(options.n_queries))
    assert fit.prepared is not None
    size, guarantee = made.budget or 0, None
    if options.eps is not None:
        needed = estimator.sample_size(options.eps, delta=options.delta)
        if not needed.is_smaller_than_data:
            draws = f"{needed.size:,} independent draws ({needed.argument}), no fewer than the {runner.rows.n:,} rows"
            advice = "keep them all, or ask for a larger eps or for a budget"
            raise InvalidInputError(f"eps = {options.eps:g} needs {draws}: {advice}.")
        size = needed.size
        guarantee = Guarantee("all", options.eps, options.delta, needed.argument, options.spec.radius, size)
    method, seed = str(options.method), options.seed
    core = estimator.sample(size, method=method, random_state=seed, normalize=options.normalize)
    core = replace(core, guarantee=guarantee or core.guarantee)
    labels = None if fit.codes is None else fit.codes[core.indices]
    return _Drawn(core, fit.prepared, float(estimator.sensitivities_.max()), estimator.uniform_factor_, labels)


def _errors(runner: Runner, options: SelectOptions, drawn: _Drawn) -> np.ndarray:
    """Relative errors at random queries; none if the sums there are too small."""
    geometry, radius = drawn.prepared.geometry, options.spec.radius
    rng = np.random.default_rng([options.seed, _QUERIES])
    queries = random_queries(geometry, drawn.prepared.sample.X, radius, options.n_queries, rng)
    sums = QuerySums(geometry, options.loss, queries, drawn.core.indices, drawn.core.weights)
    if not sums.floor.max() < _SAFE_EXPONENT:
        logger.warning("sums at random queries are too small to be compared: no error is found or stated")
        return np.zeros(0)
    return runner.run("check", sums).errors()
