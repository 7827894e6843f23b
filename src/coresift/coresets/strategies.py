"""Strategies for tables: uniform, stratified, covering, grown and linear subsets; ``auto`` decides by evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .._errors import InvalidInputError
from .._progress import Display, Progress, logger
from ..core.budgets import random_budgets
from ..rows.engines import open_engine
from ..rows.rows import Block, Rows, check_block, recode
from .amounts import parse_budget
from .coreset import Coreset
from .covering import Floats, cover_rows, dense_centred, principal
from .files import run_record
from .fitting import OnPass, Runner
from .growing import Growth, proxy_targets
from .judging import Chooser, Examples, estimates, rare_classes
from .linear_coreset import LinearCoreset
from .linear_rows import LINEAR_LOSSES
from .options import Plan, SelectOptions, priced
from .selecting import Report, Selection
from .uniform import even_draw

_N_COMPONENTS = 50  # more columns are projected before distances are computed
_COVER_POWER = 0.5
_CANDIDATES = {  # what may beat a stratified draw; where a class is rare, "fixed" as well
    "boosting": (),
    "linear": ("linear",),
    "kernel": ("cover",),
    "neighbours": ("cover",),
    "network": ("fixed",),
}
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
    passes, loaded, work = ["labels and weights"], 0.0, 0.0
    if name == "linear":
        passes += ["columns", "leverage", "pilot", "scores", *["calibration"] * 3]
        work = 2.0 * n * d * (d + 80.0)
    elif name in ("cover", "fixed"):
        passes += ["load"]
        loaded = 3.0 * n * d * 8
        work = n * min(d, 50) * (3.0 * budget if name == "cover" else 12.0 * min(budget, 2000))
    model = "" if options.model is None else f" for {options.model}"
    why = " Distances between rows need them in memory." if loaded else ""
    aim = f"Choosing {budget:,} rows{model}: strategy {name}.{why}"
    return priced(rows, options, budget, aim, passes, kept=n * 24.0, loaded=loaded, work=work)


def run_strategy(made: Plan[SelectOptions], *, on_pass: OnPass | None = None) -> Selection:
    """Do what was planned: choose rows by a strategy that is not a draw by sensitivity."""
    rows, options = made.rows, made.options
    display: Any = on_pass or Progress
    with open_engine(options.engine, rows, options.workers) as engine:
        runner = Runner(rows, engine, display)
        table = runner.run("labels and weights", _Columns()).table(rows, options, display)
        name, reason = str(options.strategy), ""
        if name == "auto":
            name, reason = decide(table, int(made.budget or 0))
            logger.info("auto: %s, %s", name, reason)
        core = _choose(name, table, runner, int(made.budget or 0))
    labels = sizes = None
    if table.codes is not None and table.names is not None:
        codes = table.codes[core.indices]
        labels = [table.names[code] for code in codes]
        counts = np.bincount(codes, minlength=len(table.names)).tolist()
        sizes = dict(zip(map(str, table.names), counts, strict=True))
    report = Report(strategy=name, reason=reason, class_sizes=sizes, seconds=dict(runner.seconds))
    return Selection(core, rows, labels, run_record(made), report)


class _Columns:
    """Weights, labels and targets of all rows: one pass; refuse what is not finite."""

    def __init__(self) -> None:
        self.parts: list[tuple[np.ndarray, np.ndarray | None, np.ndarray | None]] = []
        self.labels: dict[Any, int] = {}

    def update(self, block: Block) -> None:
        check_block(block)
        codes = None if block.labels is None else recode(block.labels, self.labels)[block.labels.codes]
        targets = None if block.targets is None else block.targets.copy()
        self.parts.append((block.weights.copy(), codes, targets))

    def merge(self, other: _Columns) -> None:
        to = np.array([self.labels.setdefault(name, len(self.labels)) for name in other.labels], dtype=np.int64)
        self.parts += [(weights, None if codes is None else to[codes], y) for weights, codes, y in other.parts]

    def table(self, rows: Rows, options: SelectOptions, display: Display) -> _Table:
        """What the pass found, with what strategies need besides."""
        weights, codes, targets = zip(*self.parts, strict=True)
        labels = np.concatenate(codes if rows.has_labels else targets) if rows.has_labels or rows.has_targets else None
        names = sorted(self.labels, key=str) if rows.has_labels else None  # the same order from files and arrays
        if names is not None and labels is not None:
            labels = np.argsort([self.labels[name] for name in names])[labels]
        return _Table(rows, options, display, np.concatenate(weights), labels, names)


class _Table(NamedTuple):
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
        """Rows of each class that have weight, if there are classes."""
        return None if self.codes is None else np.bincount(self.codes[self.used])

    def examples(self, X: Floats) -> Examples:
        return Examples(X, np.zeros(len(X)) if self.y is None else self.y, len(self.names or ()))


def _choose(name: str, table: _Table, runner: Runner, size: int) -> Coreset:
    """The rows of one strategy; ``cover`` and ``fixed`` compare rows with rows, so they load them."""
    options, used = table.options, table.used
    if size > len(used):
        raise InvalidInputError(f"budget: {size:,} rows, but only {len(used):,} have a weight above 0.")
    rng, total = np.random.default_rng(options.seed), float(table.weights.sum())
    about: dict[str, Any] = {"seed": options.seed, "total_weight": total}
    if name == "linear":
        maker = LinearCoreset(_linear_loss(table))
        maker.fit_rows(runner=runner)
        return maker.sample(size, random_state=options.seed)
    if name in ("uniform", "stratified"):
        codes = table.codes if name == "stratified" else None
        return replace(even_draw(table.weights, codes, size, rng, power=options.power or 1.0), method=name, **about)
    with table.rows.load() as block:
        X = dense_centred(block.X)
        rows, weights = choosers(table, X)[name](used, size, rng)
    return Coreset(rows, weights, table.rows.n, method=name, **about)


def _linear_loss(table: _Table) -> str:
    model = table.options.model
    return model if model in LINEAR_LOSSES else "squared" if table.codes is None else "logistic"


def choosers(table: _Table, X: Floats) -> dict[str, Chooser]:
    """Ways to choose rows in memory, by name."""
    features = X if X.shape[1] <= _N_COMPONENTS else principal(X, _N_COMPONENTS)
    examples, w, power = table.examples(X), table.weights, table.options.power

    def cover(pool: np.ndarray, size: int, rng: np.random.Generator) -> Any:
        codes = np.zeros(len(pool), dtype=np.int64) if examples.codes is None else examples.codes[pool]
        sizes, factors = random_budgets(np.bincount(codes), size, rng, power=power or _COVER_POWER)
        parts = []
        for group in np.flatnonzero(sizes):
            own = pool[codes == group]
            rows, weights = cover_rows(features[own], int(sizes[group]), rng, weights=w[own], display=table.display)
            parts.append((own[rows], factors[group] * weights))
        return tuple(np.concatenate(each) for each in zip(*parts, strict=True))

    def fixed(pool: np.ndarray, size: int, rng: np.random.Generator) -> tuple[Any, Any]:
        targets, classes = proxy_targets(examples.y[pool], bool(examples.n_classes))
        rows = pool[Growth().rows(features[pool], targets, classes, size, rng, table.display)]
        return rows, w[rows] * (w[pool].sum() / w[rows].sum())

    def linear(pool: np.ndarray, size: int, rng: np.random.Generator) -> tuple[Any, Any]:
        maker = LinearCoreset(_linear_loss(table), random_state=rng)
        core = maker.fit(X[pool], examples.y[pool], w[pool]).sample(size)
        return pool[core.indices], core.weights

    return {"cover": cover, "fixed": fixed, "linear": linear}


def decide(table: _Table, size: int) -> tuple[str, str]:
    """Which strategy serves the model, and why: candidates by rule, and the choice by evidence from held-out rows."""
    model, counts = table.options.model or "boosting", table.counts
    model = "linear" if model in LINEAR_LOSSES else model
    plain, largest = "uniform" if counts is None else "stratified", float(table.options.max_memory or _LARGEST)
    candidates = list(_CANDIDATES[model])
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
    with table.rows.load() as block:
        X, rng = dense_centred(block.X), np.random.default_rng([table.options.seed, 1])
        ways = choosers(table, X)
        found = estimates({name: ways[name] for name in candidates}, table.examples(X), size, model, rng)
    if not found:
        return plain, "there are too few rows to hold some out and compare"
    best = max(found, key=lambda name: found[name].mine)
    if not found[best].is_better:
        return plain, f"{best} was not better for {model}: {found[best]}"
    return best, f"for {model}, {found[best]}"
