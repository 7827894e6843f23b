"""Strategies for tables: uniform, stratified, covering, grown and linear subsets; ``auto`` decides by evidence."""

import time
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from .._errors import InvalidInputError
from .._progress import Display, OnPass, logger
from .._threads import one_thread
from .._validation import parse_budget
from ..core.budgets import random_budgets
from ..rows.engines import open_engine
from ..rows.rows import Block, Labels, Rows, check_block, join_labels
from .coreset import Coreset
from .covering import Floats, cover_rows, dense_centred, grown_rows, in_units, principal, proxy_targets
from .files import run_record
from .fit_options import FitOptions, plan_fit
from .fitting import Runner
from .judging import Chooser, Examples, compared_size, comparison_operations, estimates, rare_classes
from .linear_coreset import LinearCoreset
from .linear_rows import MOST_CLASSES
from .options import FLOPS, LINEAR_LOSSES, Plan, SelectOptions, priced
from .selecting import Report, Selection
from .uniform import even_draw

_N_COMPONENTS = 50  # more columns are projected before distances are computed
_ENOUGH_ROWS, _ENOUGH_TIMES = 20_000, 3  # that a subset grows from: rows, and times its size
_CENTERS = 1500  # of the kernel regression that says where it grows
_ROOT = 0.5  # the power of class sizes that serves rare classes: of covers, and of what "auto" falls back on
# what may beat a stratified draw, for boosting nothing; where a class is rare, "fixed" as well
_CANDIDATES = {"linear": ("linear",), "kernel": ("cover",), "neighbours": ("cover",), "network": ("fixed",)}
_LARGEST = 2e9  # bytes of rows that "auto" loads if no limit is given
_MOST_PARAMETERS = 1000  # of a linear model
_ROWS_PER_PARAMETER = 3  # below which a two-step draw has nothing to go by


def plan_strategy(rows: Rows, options: SelectOptions) -> Plan[SelectOptions]:
    """The plan of a strategy that is not a draw by sensitivity; distances between rows need them in memory."""
    name, budget, n, d = options.strategy, parse_budget(options.budget, rows.n), rows.n, rows.d
    if name == "stratified" and not rows.has_labels:
        raise InvalidInputError("strategy = 'stratified' needs labels: pass labels, or name their column as label.")
    if name in ("fixed", "linear") and not (rows.has_labels or rows.has_targets):
        raise InvalidInputError(f"strategy = {name!r} needs a label, or a target for a regression.")
    if name == "linear":
        fit: Plan[Any] = plan_fit(rows, _asked(rows, options))
        return replace(fit, options=options)
    passes, loaded, work, why = ["labels and weights"], 0.0, 0.0, ""
    if name in ("cover", "fixed"):
        passes += ["load"]
        loaded, work = 3.0 * n * d * 8, _operations(name, n, d, budget)
        why = " Distances between rows need them in memory."
    elif name == "auto":
        kind, fewer = _kind(options), compared_size(budget, n)
        usual = _candidates(kind, is_regression=rows.has_targets)
        costs = {each: partial(_operations, each, d=d, budget=fewer) for each in (*usual, "fixed")}
        work = comparison_operations([costs[each] for each in usual], n, fewer, kind)
        passes += ["comparison"] if work else []
        rare = comparison_operations(list(costs.values()), n, fewer, kind)
        if rows.has_labels and (seconds := (rare - work) / FLOPS) >= 1.0:
            why = f" If a class is rare, more is compared, which takes about {seconds:.0f} s more."
    model = "" if options.model is None else f" for {options.model}"
    aim = f"Choosing {budget:,} rows{model}: strategy {name}.{why}"
    return priced(rows, options, budget, aim, passes, kept=n * 24.0, loaded=loaded, work=work)


def run_strategy(made: Plan[SelectOptions], *, on_pass: OnPass | None = None) -> Selection:
    """Do what was planned: choose rows by a strategy that is not a draw by sensitivity."""
    rows, options = made.rows, made.options
    name, reason, size = str(options.strategy), "", int(made.budget or 0)
    with open_engine(options.engine, rows, options.workers) as engine:
        runner = Runner(rows, engine, on_pass)
        if name == "linear":  # nothing is kept per row
            core, reason = _linear(runner, options, size), f"{_asked(rows, options).model} loss"
            own = rows.take(core.indices).labels
            codes, names = (None, None) if own is None else (own.codes, own.names)
        else:
            table = _table(runner, options)
            if name == "auto":
                name, reason = decide(table, size, runner)
                if name == "stratified" and table.power < 1.0:
                    reason += f"; classes by their sizes to the power of {table.power:g}, so that rare ones get more"
                logger.info("auto: %s, %s", name, reason)
            core = _linear(runner, options, size) if name == "linear" else _choose(name, table, size)
            codes, names = None if table.codes is None else table.codes[core.indices], table.names
    labels = sizes = None
    if codes is not None and names is not None:
        labels = [names[code] for code in codes]
        sizes = dict(zip(map(str, names), np.bincount(codes, minlength=len(names)).tolist(), strict=True))
    report = Report(strategy=name, reason=reason, class_sizes=sizes, seconds=dict(runner.seconds))
    return Selection(core, rows, labels, run_record(made), report)


def _asked(rows: Rows, options: SelectOptions) -> FitOptions:
    return options.fit_options(loss="logistic" if rows.has_labels else "squared")


def _linear(runner: Runner, options: SelectOptions, size: int) -> Coreset:
    maker = LinearCoreset(_asked(runner.rows, options).model, alpha=options.alpha, threshold=options.threshold)
    with one_thread():
        maker.fit_rows(runner=runner)
        return maker.sample(size, calibrate=options.calibrate, random_state=options.seed)


def _columns(block: Block) -> tuple[np.ndarray, Labels | None, np.ndarray | None]:
    """Weights, labels and targets of a block; refuse what is not finite."""
    check_block(block)
    return block.weights.copy(), block.labels, None if block.targets is None else block.targets.copy()


@dataclass(frozen=True)
class _Table:
    """What strategies choose from: rows with weights, and class numbers with their names, or targets."""

    rows: Rows
    options: SelectOptions
    display: Display
    weights: Floats
    y: np.ndarray | None
    names: list[Any] | None

    @property
    def used(self) -> np.ndarray:
        return np.flatnonzero(self.weights)

    @property
    def codes(self) -> np.ndarray | None:
        return None if self.names is None else self.y

    @property
    def counts(self) -> np.ndarray | None:
        return None if self.codes is None else np.bincount(self.codes[self.used])

    @property
    def power(self) -> float:
        """The power of class sizes in a stratified draw; "auto" gives rare classes more than their share."""
        is_rare = self.options.strategy == "auto" and self.counts is not None and len(rare_classes(self.counts)) > 0
        return self.options.power or (_ROOT if is_rare else 1.0)

    @cached_property
    def examples(self) -> Examples:
        with self.rows.load() as block:
            X = dense_centred(block.X)
        return Examples(X, np.zeros(len(X)) if self.y is None else self.y, len(self.names or ()))

    @cached_property
    def ways(self) -> dict[str, Chooser]:
        return choosers(self)


def _table(runner: Runner, options: SelectOptions) -> _Table:
    """Weights, and labels or targets, of all rows: one pass."""
    rows = runner.rows
    weights, labels, targets = zip(*runner.collect("labels and weights", _columns), strict=True)
    y, names = np.concatenate(targets) if rows.has_targets else None, None
    if rows.has_labels:
        found = join_labels(list(labels))
        order = sorted(range(len(found.names)), key=lambda i: str(found.names[i]))  # the same from files and arrays
        y, names = np.argsort(order)[found.codes], [found.names[i] for i in order]
        if len(names) > MOST_CLASSES:
            text = f"{rows.name}: the label has {len(names):,} different values, such as {names[0]!r}"
            most = f"more than the {MOST_CLASSES:,} classes that are possible"
            raise InvalidInputError(f"{text}, {most}. For a regression name it as the target.")
    return _Table(rows, options, runner.display, np.concatenate(weights), y, names)


def _choose(name: str, table: _Table, size: int) -> Coreset:
    """The rows of one strategy; ``cover`` and ``fixed`` compare rows with rows, so they load them."""
    options, used = table.options, table.used
    if size > len(used):
        raise InvalidInputError(f"budget: {size:,} rows, but only {len(used):,} have a weight above 0.")
    rng, total = np.random.default_rng(options.seed), float(table.weights.sum())
    about: dict[str, Any] = {"seed": options.seed, "total_weight": total}
    if name in ("uniform", "stratified"):
        codes = table.codes if name == "stratified" else None
        return replace(even_draw(table.weights, codes, size, rng, power=table.power), method=name, **about)
    rows, weights = table.ways[name](used, size, rng)
    return Coreset(rows, weights, table.rows.n, method=name, **about)


def choosers(table: _Table) -> dict[str, Chooser]:
    """Ways to choose rows in memory, by name."""
    examples, w, power = table.examples, table.weights, table.options.power
    X = examples.X
    features, _ = in_units(X)
    if X.shape[1] > _N_COMPONENTS:
        features = principal(features, _N_COMPONENTS)

    def cover(pool: np.ndarray, size: int, rng: np.random.Generator) -> Any:
        codes = np.zeros(len(pool), dtype=np.int64) if examples.codes is None else examples.codes[pool]
        sizes, factors = random_budgets(np.bincount(codes), size, rng, power=power or _ROOT)
        parts = []
        for group in np.flatnonzero(sizes):
            own = pool[codes == group]
            rows, weights = cover_rows(features[own], int(sizes[group]), rng, weights=w[own], display=table.display)
            parts.append((own[rows], factors[group] * weights))
        return tuple(np.concatenate(each) for each in zip(*parts, strict=True))

    def fixed(pool: np.ndarray, size: int, rng: np.random.Generator) -> tuple[Any, Any]:
        total, enough = w[pool].sum(), max(_ENOUGH_ROWS, _ENOUGH_TIMES * size)
        if len(pool) > enough:  # others add time, not quality
            codes = None if examples.codes is None else examples.codes[pool]
            pool = pool[even_draw(w[pool], codes, enough, rng, power=_ROOT).indices]
        targets, classes = proxy_targets(examples.y[pool], bool(examples.n_classes))
        rows = pool[grown_rows(features[pool], targets, classes, size, rng, table.display, max_centers=_CENTERS)]
        return rows, w[rows] * (total / w[rows].sum())

    def linear(pool: np.ndarray, size: int, rng: np.random.Generator) -> tuple[Any, Any]:
        maker = LinearCoreset(_asked(table.rows, table.options).model, random_state=rng)
        core = maker.fit(X[pool], examples.y[pool], w[pool]).sample(size)
        return pool[core.indices], core.weights

    return {"cover": cover, "fixed": fixed, "linear": linear}


def _operations(name: str, n: int, d: int, budget: int) -> float:
    """Operations of a chooser, roughly."""
    of_a_row = {"cover": 3.0 * budget, "fixed": 12.0 * min(budget, _CENTERS), "linear": 100.0}
    n = min(n, max(_ENOUGH_ROWS, _ENOUGH_TIMES * budget)) if name == "fixed" else n
    return n * min(d, _N_COMPONENTS) * of_a_row[name]


def _kind(options: SelectOptions) -> str:
    """The kind of model that is asked for; boosting unless it is said."""
    return "linear" if options.model in LINEAR_LOSSES else options.model or "boosting"


def _candidates(kind: str, is_regression: bool) -> tuple[str, ...]:
    """What is tried where no class is rare; covers did not help kernel regressions."""
    return () if kind == "kernel" and is_regression else _CANDIDATES.get(kind, ())


def decide(table: _Table, size: int, runner: Runner) -> tuple[str, str]:
    """Which strategy serves the model, and why: candidates by rule, and the choice by evidence from held-out rows."""
    model, counts = _kind(table.options), table.counts
    plain, largest = "uniform" if counts is None else "stratified", float(table.options.max_memory or _LARGEST)
    candidates = list(_candidates(model, is_regression=counts is None))
    if counts is not None and len(rare_classes(counts)) and "fixed" not in candidates:
        candidates.append("fixed")
    n_parameters = (table.rows.d + 1) * (1 if counts is None else max(len(counts) - 1, 1))
    if n_parameters > min(_MOST_PARAMETERS, size / _ROWS_PER_PARAMETER) and model == "linear":
        candidates[0] = "cover"
    if not candidates:
        why = "there are no classes" if counts is None else "no class is rare"
        return plain, f"{why}, and nothing else was found to help {model}"
    if table.rows.n * table.rows.row_bytes > largest:
        return plain, f"the rows take more than {largest / 1e9:.3g} GB of memory, which comparing {candidates} needs"
    started = time.perf_counter()
    rng, compared = np.random.default_rng([table.options.seed, 1]), {name: table.ways[name] for name in candidates}
    found = estimates(compared, table.examples, size, model, rng, runner.display, power=table.power)
    runner.seconds["comparison"] += time.perf_counter() - started
    if not found:
        return plain, "there are too few rows to hold some out and compare"
    best = max(found, key=lambda name: found[name].mine)
    if not found[best].is_better:
        return plain, f"{best} was not better for {model}: {found[best]}"
    return best, f"for {model}, {found[best]}"
