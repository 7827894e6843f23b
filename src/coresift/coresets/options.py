"""What is asked of a selection, one object for Python, the command and its TOML file, and the plan that follows."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .._errors import InvalidInputError

if TYPE_CHECKING:
    from ..rows.rows import Rows
    from .fit_options import FitOptions

# Everything but this module is imported where it is used, so that the help of a command is quick.

BOUNDS = {
    "gaussian": ("auto", "closed-form", "cells", "exact", "paper", "lemma"),
    "laplacian": ("auto", "cells", "exact", "paper"),
}
LOSSES = tuple(BOUNDS)
STRATEGIES = ("auto", "uniform", "stratified", "cover", "fixed", "linear", "rbf")
LINEAR_LOSSES = ("logistic", "squared", "squared_hinge", "poisson", "huber")
CLASSIFIERS = ("logistic", "squared_hinge")
MODELS = ("boosting", "linear", "kernel", "neighbours", "network")
_RBF_OPTIONS = (
    *("loss", "bandwidth", "radius", "bound", "n_cells", "method", "eps", "delta"),
    *("per_class", "min_per_class", "normalize", "n_queries"),
)  # they mean a draw by sensitivity
PAPER_BOUNDS = ("paper", "lemma")  # from Lewis weights, certificates under assumptions only
# distances of SciPy that obey the triangle inequality, without which the bound does not hold
_METRICS = ("euclidean", "cityblock", "chebyshev", "canberra", "hamming", "jaccard")
_ENGINES = ("local", "ray")
_MOST_NAMES = 8  # that are printed
_PROCESS_BYTES = 190e6  # an interpreter with NumPy, SciPy, scikit-learn and PyArrow
_CANDIDATE_BYTES = 3 * 44  # of a row that may win, kept about three times
_TABLE_BYTES = 100  # of a row, where the scores of all rows are kept
FLOPS = 4e9  # of one core, in products of small matrices


@dataclass(frozen=True)
class BoundSpec:
    """Which sensitivities are bounded, and how; see :class:`coresift.RBFCoreset`. Refuse what no data make valid."""

    loss: str
    bound: str
    bandwidth: Any
    radius: float = 1.0  # becomes infinite for the Laplacian, whose queries are all of space
    n_cells: int = 64
    max_exact: int | None = 20_000
    metric: Any = "euclidean"

    def __post_init__(self) -> None:
        from .._validation import LARGEST_RATIO, check_choice, check_count, check_positive

        check_choice(self.loss, "loss", LOSSES)
        radius = math.inf
        if self.loss == "gaussian":
            radius = check_positive(self.radius, "radius", at_most=LARGEST_RATIO)
        object.__setattr__(self, "radius", radius)
        object.__setattr__(self, "bandwidth", check_bandwidth(self.bandwidth))
        check_choice(self.bound, "bound", BOUNDS[self.loss])
        check_count(self.n_cells, "n_cells")
        if self.max_exact is not None:
            check_count(self.max_exact, "max_exact")
        if not callable(self.metric) and self.metric not in _METRICS:
            known = ", ".join(map(repr, _METRICS))
            raise InvalidInputError(f"metric = {self.metric!r} is not one of {known}, nor a function of two rows.")
        if self.metric != "euclidean" and self.bound not in ("auto", "exact"):
            raise InvalidInputError(f"bound = {self.bound!r} needs metric='euclidean'; with others use bound='exact'.")


def check_bandwidth(bandwidth: Any) -> Any:
    """Return None, "median" or a positive float."""
    from .._validation import check_positive

    if isinstance(bandwidth, str) and bandwidth != "median":
        raise InvalidInputError(f"bandwidth = {bandwidth!r} must be None, 'median' or a number above 0.")
    return bandwidth if isinstance(bandwidth, str | None) else check_positive(bandwidth, "bandwidth")


def option(default: Any, text: str, **more: Any) -> Any:
    """Make a field with a help text; ``more`` is described in :func:`coresift.cli.app.field_options`."""
    return field(default=default, metadata={"help": text, **more})


def _methods() -> tuple[str, ...]:
    from ..core.draw import METHODS

    return METHODS


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of everything that runs passes over rows."""

    seed: int = option(0, "Random seed. The same seed gives the same rows, with any number of workers.", min=0)
    workers: int = option(1, "Number of threads, or with ray of tasks at a time.", flags=("--workers", "-j"), min=1)
    engine: str = option("local", "local, or ray (joins RAY_ADDRESS, or starts a cluster).", choices=lambda: _ENGINES)
    max_memory: str | float | None = option(None, "Memory limit, such as 2GB: refuse to start if more is needed.")

    def __post_init__(self) -> None:
        from .._validation import check_choice, check_count, parse_bytes

        check_choice(self.engine, "engine", _ENGINES)
        check_count(self.seed, "seed", minimum=0)
        check_count(self.workers, "workers")
        if self.max_memory is not None:
            object.__setattr__(self, "max_memory", parse_bytes(self.max_memory, "max_memory"))


@dataclass(frozen=True, kw_only=True)
class SelectOptions(RunOptions):
    """How to select; see :func:`coresift.select`. What is wrong whatever the data is refused here.

    >>> SelectOptions(budget="5%", strategy="uniform").budget
    '5%'
    """

    budget: str | int | float | None = option(None, "Rows to choose: 5%, 0.05 or 1000. See also --eps.", flags=("-b",))
    strategy: str | None = option(
        None,
        "auto (the default with a label or target), uniform, stratified, cover, fixed, linear, or rbf (implied by its "
        "options, from --loss to --queries).",
        choices=STRATEGIES,
    )
    model: str | None = option(
        None,
        "The model to fit: boosting, linear, kernel, neighbours or network; or a linear model by its loss: logistic, "
        "squared, squared_hinge, poisson or huber. --label (or --target) names what it predicts.",
        flags=("--for",),
        choices=lambda: (*MODELS, *LINEAR_LOSSES),
    )
    power: float | None = option(None, "Share of each class: its size to this power; default 1, or 0.5 for rare ones.")
    alpha: float = option(1e-4, "With the loss of a linear model in --for: its penalty, as in 'fit'.")
    threshold: float | None = option(None, "With --for huber: the residual above which the loss is linear.")
    calibrate: bool = option(True, "With such a loss: adjust the weights to match sums over all rows.")
    loss: str = option("gaussian", "Loss whose sums the subset preserves.", choices=LOSSES)
    bandwidth: str | float | None = option(
        None, "A number in the units of the data, 'median', or 'none' (farthest row)."
    )
    radius: float = option(1.0, "Radius of the query ball, in bandwidths.")
    bound: str = option(
        "auto",
        "auto, closed-form, cells, exact, paper or lemma; for laplacian: auto, cells, exact or paper.",
        choices=lambda: BOUNDS["gaussian"],
    )
    n_cells: int = option(64, "Number of cells of the bound 'cells'.", flags=("--cells",), min=1)
    method: str | None = option(
        None, "systematic (default), keys (default above 5 million rows) or iid (default with --eps).", choices=_methods
    )
    eps: float | None = option(None, "Relative error to guarantee, instead of a budget.")
    delta: float = option(0.05, "With --eps: the probability that the error is larger.")
    per_class: bool = option(False, "Choose rows for each label separately, in proportion to its rows.")
    min_per_class: int = option(0, "With --per-class: minimum number of rows per class.", min=0)
    normalize: bool = option(False, "Scale the weights to sum to the weight of all rows.")
    n_queries: int = option(32, "Random queries to check in a last pass; 0 skips it.", flags=("--queries",), min=0)

    def __post_init__(self) -> None:
        from .._validation import check_choice, check_count, check_positive, check_probability, parse_budget

        super().__post_init__()
        if isinstance(self.bandwidth, str):
            with suppress(ValueError):  # "median" stays; the estimator refuses other words
                number = None if self.bandwidth == "none" else float(self.bandwidth)
                object.__setattr__(self, "bandwidth", number)
        method = "iid" if self.method is None and self.eps is not None else self.method
        if method is not None:  # else the plan, which knows the number of rows, names it
            object.__setattr__(self, "method", check_choice(method, "method", _methods()))
        for name in ("n_queries", "min_per_class"):
            check_count(getattr(self, name), name, minimum=0)
        if self.n_queries >= 2**63:
            raise InvalidInputError(f"n_queries = {str(self.n_queries)[:20]}... must be below 2**63.")
        for name, known in (("strategy", STRATEGIES), ("model", (*MODELS, *LINEAR_LOSSES))):
            if getattr(self, name) is not None:
                check_choice(getattr(self, name), name, known)
        if self.power is not None:
            check_positive(self.power, "power", at_most=1.0)
        self._check_strategy()
        bound = self.spec.bound  # and all that goes with it is checked
        object.__setattr__(self, "bandwidth", self.spec.bandwidth)  # a plain number
        check_probability(self.delta, "delta")
        if (self.budget is None) == (self.eps is None):
            given = f"budget = {self.budget!r}: give either budget=0.05 or eps=0.1"
            raise InvalidInputError(f"{given}, how many rows or which error.")
        if self.budget is not None:
            parse_budget(self.budget, 2**53)  # the number of rows is not known yet
        if self.min_per_class and not self.per_class:
            raise InvalidInputError(f"min_per_class = {self.min_per_class} needs per_class: else none is promised.")
        if self.per_class and (method == "iid" or bound in PAPER_BOUNDS):
            methods = "method='systematic' or 'keys', which draw exactly as many rows as a class should have"
            bounds = "the bounds that compare a row with its class: 'auto', 'closed-form', 'cells', 'exact'"
            raise InvalidInputError(f"per_class goes with {methods}, and with {bounds}.")
        if self.eps is not None:
            check_probability(self.eps, "eps")
            if method != "iid":
                raise InvalidInputError(f"eps is guaranteed for method='iid', not for method={method!r}.")
            if self.normalize:
                raise InvalidInputError("eps is guaranteed for weights as drawn: leave normalize out.")

    def _check_strategy(self) -> None:
        """Refuse options of another strategy; the loss of a linear model as ``model`` implies "linear"."""
        if self.strategy is None and self.model in LINEAR_LOSSES:
            object.__setattr__(self, "strategy", "linear")
        if self.strategy == "linear" or (self.strategy == "auto" and self.model in LINEAR_LOSSES):
            self.fit_options(loss="logistic")  # checks what is asked
        elif more := self._given(("alpha", "threshold", "calibrate")):
            raise InvalidInputError(f"{more[0]} = {getattr(self, more[0])!r} goes with the loss of a linear model.")
        if self.strategy not in (None, "auto", "rbf") and (more := self._given(_RBF_OPTIONS)):
            raise InvalidInputError(f"{more[0]} = {getattr(self, more[0])!r} goes with strategy='rbf' alone.")

    def _given(self, names: Sequence[str]) -> list[str]:
        """Those of some options that differ from their defaults."""
        defaults = {each.name: each.default for each in fields(self)}
        implied = "method" if self.method == "iid" and self.eps is not None else ""
        return [name for name in names if name != implied and getattr(self, name) != defaults[name]]

    def fit_options(self, *, loss: str) -> FitOptions:
        """The same for a fit; ``loss`` is the model if none is named."""
        from .fit_options import FitOptions

        asked = {each.name: getattr(self, each.name) for each in fields(FitOptions) if hasattr(self, each.name)}
        asked["model"] = self.model if self.model in LINEAR_LOSSES else loss
        return FitOptions(**asked, certify=False)

    def resolved(self, rows: Rows) -> str:
        """The strategy that these options mean for these ``rows``."""
        if self.strategy not in (None, "auto"):
            return str(self.strategy)
        if self._given(_RBF_OPTIONS):
            return "rbf"
        if rows.has_labels and rows.has_targets:
            raise InvalidInputError("strategy 'auto' takes a label (classes) or a target (numbers), not both.")
        if rows.has_labels or rows.has_targets:
            return "auto"
        return "cover" if self.model is not None else "rbf"  # nothing but the rows themselves

    @cached_property
    def spec(self) -> BoundSpec:
        """The parameters of the bound, checked once."""
        return BoundSpec(self.loss, self.bound, self.bandwidth, self.radius, self.n_cells)


Options = TypeVar("Options", bound=RunOptions)


@dataclass(frozen=True)
class Plan(Generic[Options]):
    """Rows, passes, memory and time of a selection or a fit."""

    rows: Rows
    options: Options
    budget: int | None
    aim: str
    passes: tuple[str, ...]
    memory: float
    """Bytes, about."""
    seconds: float
    """A rough estimate."""

    def lines(self) -> list[str]:
        rows, options = self.rows, self.options
        minutes = f"{self.seconds:.0f} s" if self.seconds < 120 else f"{self.seconds / 60:.0f} min"
        where = f"{options.workers} worker{'s' if options.workers > 1 else ''}, {options.engine}"
        passes = ", ".join(f"{name} x {k}" if k > 1 else name for name, k in Counter(self.passes).items())
        files = f"{len(rows.files):,} file{'s' if len(rows.files) > 1 else ''}"
        made = rows.made_by
        return [
            f"{rows.name}: {rows.n:,} rows, {rows.d} {'columns' if made is None else 'features'}, {files}.",
            *(_columns_in_words(rows) if made is None else made.lines(others=rows.raw.left_out)),
            self.aim,
            f"{len(self.passes)} pass{'es' if len(self.passes) > 1 else ''} ({passes}), {where}; "
            f"about {self.memory / 1e6:.0f} MB of memory and {minutes}.",
        ]

    def as_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows.n,
            "columns": self.rows.d,
            "features": None if self.rows.names is None else list(self.rows.names),
            "left_out": dict(self.rows.left_out),
            "files": len(self.rows.files),
            "budget": self.budget,
            "passes": list(self.passes),
            "memory_bytes": int(self.memory),
            "seconds": round(self.seconds, 1),
        }


def _columns_in_words(rows: Rows) -> list[str]:
    """Which columns are used and which are not, with the reasons; nothing if columns have no names."""
    if rows.names is None:
        return []
    text = f"Columns used: {_shortened(rows.names)}."
    reasons: dict[str, list[str]] = {}
    for name, reason in rows.left_out.items():
        reasons.setdefault(reason, []).append(name)
    if reasons:
        groups = (f"{_shortened(names)} ({reason})" for reason, names in reasons.items())
        text += f" Left out: {'; '.join(groups)}."
    return [text]


def _shortened(names: Sequence[str]) -> str:
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[: _MOST_NAMES - 2])} ... {names[-1]} ({len(names):,})"


def plan(rows: Rows, options: SelectOptions) -> Plan[SelectOptions]:
    """What a selection will do, before it is done; refuse what cannot be done with these rows, or in this memory."""
    from .._validation import parse_budget
    from ..core.draw import default_method
    from .fitting import cheapest, check_exact, operations

    if (strategy := options.resolved(rows)) != "rbf":
        from .strategies import plan_strategy

        return plan_strategy(rows, replace(options, strategy=strategy))
    if options.method is None:
        options = replace(options, method=default_method(rows.n))
    if options.per_class and not rows.has_labels:
        raise InvalidInputError("per_class=True needs labels: pass them, or name their column.")
    n, d, spec = rows.n, rows.d, options.spec
    budget = None if options.budget is None else parse_budget(options.budget, n)
    # whether the closed form leaves something to gain is found out by the survey
    bound = cheapest(spec, n, d) if spec.bound == "auto" else spec.bound
    if bound == "exact":
        check_exact(spec, n)
    passes = ["survey"]
    if options.bandwidth is None:
        passes.append("farthest row, if the survey leaves it open")
    if bound == "cells":
        passes.append("cells")
    elif bound in PAPER_BOUNDS:
        passes.append("about six for Lewis weights")
    passes.append("draw" if options.method == "keys" else "sensitivities")
    if options.n_queries:
        passes.append("check")
    kept = n * _TABLE_BYTES
    if options.method == "keys" and budget is not None:
        kept = budget * _CANDIDATE_BYTES
    work = operations(bound, spec.loss, n, d, spec.n_cells) + options.n_queries * n * (2.0 * d + 32.0)
    size = "as many rows as the error needs" if budget is None else f"{budget:,} rows"
    aim = f"Choosing {size}: {options.loss} loss, bound {options.bound}, method {options.method}."
    loaded = n * rows.row_bytes if bound == "exact" else 0
    return priced(rows, options, budget, aim, passes, kept=kept, loaded=loaded, work=work)


def priced(
    rows: Rows, options: Options, budget: int | None, aim: str, passes: Any, *, kept: float, work: float, loaded: float
) -> Plan[Options]:
    """Estimate memory (bytes ``kept`` once and ``loaded`` by each worker) and time (``work`` operations)."""
    from ..rows.rows import BLOCK_BYTES, READ_BYTES

    n_workers = options.workers if rows.is_portable else 1
    # chunks, copies of a block; what readers and products by cells need
    needed = 3 * READ_BYTES + 8 * BLOCK_BYTES + 2e8
    memory = _PROCESS_BYTES + n_workers * (needed + loaded + rows.kept_bytes) + kept
    if options.max_memory is not None and memory > float(options.max_memory):
        keys = ", or method='keys'" if getattr(options, "method", "keys") != "keys" else ""
        text = f"max_memory = {float(options.max_memory) / 1e6:.0f} MB is less than the {memory / 1e6:.0f} MB that this"
        raise InvalidInputError(f"{text} needs: use fewer workers or a smaller budget{keys}.")
    per_row = _reading_seconds(rows) + 12e-9 + 4e-9 * rows.d
    seconds = (len(passes) * rows.n * per_row + work / FLOPS) / n_workers
    return Plan(rows, options, budget, aim, tuple(passes), memory, seconds)


def _reading_seconds(rows: Rows) -> float:
    """The time it takes to read a row: of two attempts the better, because the first also imports and opens."""
    found = []
    for _ in range(2):
        started = time.perf_counter()
        block = next(iter(rows.read(rows.pieces[0])))
        found.append((time.perf_counter() - started) / block.n)
    return min(found)
