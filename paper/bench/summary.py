"""Records of finished runs, summed up: one entry per method and budget, and what is missing stays missing."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from coresift._errors import InvalidInputError

from .paper import PaperFigures, Printed, paper_figures
from .protocol import Method, Protocol
from .statistics import MIN_SEEDS, Comparison, compare_pairs, holm, mean_and_deviation

Metric = Literal["accuracy", "macro_f1"]
METRICS: dict[Metric, str] = {"accuracy": "Test accuracy", "macro_f1": "Macro-F1 on the test set"}

FULL, REFERENCE = "FULL", "ADAPTIVE-RANDOM"
# whatever their select_every: they never select again
_DRAWN_ONCE = tuple(f"{name}{end}" for name in ("RANDOM", "FIXED-CORESET", "COVER") for end in ("", "-WARM"))


@dataclass(frozen=True)
class Run:
    """What is needed of a record: quality in per cent, seconds without those of evaluation."""

    method: str
    select_every: int
    budget: float
    seed: int
    quality: float
    selection: float
    training: float
    clock: str
    machine: str


@dataclass(frozen=True)
class Entry:
    """A method at a budget; None is what cannot be said.

    Attributes
    ----------
    method : Method
    budget : float
        Share of the training samples; 1 for FULL.
    seeds : tuple of int
        Of the runs that are finished.
    mean, deviation : float or None
        Of the quality over seeds, in per cent. One seed has no deviation.
    n_timed : int
        Runs measured by the clock of the table.
    selection, training, seconds, seconds_deviation : float or None
        Means over those, ``seconds`` being selection and training together.
    speed_up : float or None
        Seconds of FULL over ``seconds``.
    reference : str
        What ``comparison`` is against; empty where there is none.
    comparison : Comparison or None
    printed : Printed or None
        The paper's figures.
    printed_speed_up : float or None
    """

    method: Method
    budget: float
    seeds: tuple[int, ...] = ()
    mean: float | None = None
    deviation: float | None = None
    n_timed: int = 0
    selection: float | None = None
    training: float | None = None
    seconds: float | None = None
    seconds_deviation: float | None = None
    speed_up: float | None = None
    reference: str = ""
    comparison: Comparison | None = None
    printed: Printed | None = None
    printed_speed_up: float | None = None

    @property
    def n_seeds(self) -> int:
        """How many runs are finished."""
        return len(self.seeds)


@dataclass(frozen=True)
class LeftOut:
    """Records that are not in the table, by reason."""

    other_protocol: int = 0
    other_scale: int = 0
    other_config: int = 0
    repeated: int = 0
    unusable: tuple[str, ...] = ()
    """A sentence for each that lacks something."""


@dataclass(frozen=True)
class Summary:
    """A table of results.

    Attributes
    ----------
    protocol : Protocol
    metric : {"accuracy", "macro_f1"}
    methods : tuple of Method
        The protocol's, then others that were run.
    budgets : tuple of float
        The protocol's and others that were run, in ascending order.
    entries : mapping
        By method and budget.
    clock : str
        What measured the seconds; times by another clock are not used.
    n_other_clock : int
        Runs whose times are not used.
    machines : tuple of str
        That the times come from.
    n_finished, n_expected, n_beyond : int
        Cells of the protocol that are finished, all of them, and finished runs that it does not ask for.
    n_tests : int
        Comparisons that were tested, and corrected for.
    left_out : LeftOut
    paper : PaperFigures
    records : tuple of mappings
        Those that are counted, and no others.
    """

    protocol: Protocol
    metric: Metric
    methods: tuple[Method, ...]
    budgets: tuple[float, ...]
    entries: Mapping[tuple[Method, float], Entry]
    clock: str
    n_other_clock: int
    machines: tuple[str, ...]
    n_finished: int
    n_expected: int
    n_beyond: int
    n_tests: int
    left_out: LeftOut
    paper: PaperFigures
    records: tuple[Mapping[str, Any], ...]

    def at(self, method: Method, budget: float) -> Entry:
        """The entry of a method at a budget: FULL's is the same at all."""
        return self.entries[method, _own_budget(method, budget)]


def summarise(
    records: Iterable[Mapping[str, Any]], protocol: Protocol, metric: Metric = "accuracy"
) -> Summary:
    """Sum up the records of one protocol, version and scale; all others are counted and left out."""
    usable, left_out = _usable(records, protocol, metric)
    runs = list(usable)
    if not runs:
        raise InvalidInputError(_nothing(protocol, left_out))
    methods, budgets = _axes(runs, protocol)
    clock = _main_clock(runs)
    by_entry: dict[tuple[Method, float], list[Run]] = {}
    for run in runs:
        by_entry.setdefault((_method(run, protocol), run.budget), []).append(run)
    paper = paper_figures(protocol.table)
    entries: dict[tuple[Method, float], Entry] = {}
    for method in methods:
        for budget in dict.fromkeys(_own_budget(method, each) for each in budgets):
            mine = by_entry.get((method, budget), [])
            entries[method, budget] = _entry(method, budget, mine, clock, paper, protocol)
    _add_speed_ups(entries)
    n_tests = _add_comparisons(entries, by_entry, protocol)
    expected = {(cell.method, cell.select_every, cell.budget, cell.seed) for cell in protocol.cells()}
    n_finished = sum((run.method, run.select_every, run.budget, run.seed) in expected for run in runs)
    timed = [run for run in runs if run.clock == clock]
    return Summary(
        protocol=protocol,
        metric=metric,
        methods=methods,
        budgets=budgets,
        entries=entries,
        clock=clock,
        n_other_clock=len(runs) - len(timed),
        machines=tuple(sorted({run.machine for run in timed})),
        n_finished=n_finished,
        n_expected=len(expected),
        n_beyond=len(runs) - n_finished,
        n_tests=n_tests,
        left_out=left_out,
        paper=paper,
        records=tuple(usable.values()),
    )


def _usable(
    records: Iterable[Mapping[str, Any]], protocol: Protocol, metric: Metric
) -> tuple[dict[Run, Mapping[str, Any]], LeftOut]:
    """The runs of this protocol with their records, each cell once, in an order that does not depend on theirs."""
    runs: dict[tuple[str, int, float, int], tuple[Run, Mapping[str, Any]]] = {}
    counts: Counter[str] = Counter()
    unusable = []
    for position, record in enumerate(records, start=1):
        try:
            cell = record["cell"]
            if cell["table"] != protocol.table:
                raise ValueError(f"it is of the table {cell['table']!r}")
            if cell["protocol"] != protocol.version:
                counts["other_protocol"] += 1
                continue
            if cell["scale"] != protocol.scale:
                counts["other_scale"] += 1
                continue
            if not _is_trained_as(record["config"], protocol):
                counts["other_config"] += 1
                continue
            run = _run(record, metric)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            name = record.get("id", position) if isinstance(record, Mapping) else position
            unusable.append(f"record {name}: {what}")
            continue
        key = (run.method, run.select_every, run.budget, run.seed)
        if key in runs:
            counts["repeated"] += 1
        runs.setdefault(key, (run, record))
    return dict(runs[key] for key in sorted(runs)), LeftOut(**counts, unusable=tuple(unusable))


def _is_trained_as(config: Mapping[str, Any], protocol: Protocol) -> bool:
    """Whether a run agrees with the protocol in all settings that both name."""
    return all(config.get(name, value) == value for name, value in protocol.config.items())


def _run(record: Mapping[str, Any], metric: Metric) -> Run:
    cell, seconds, machine = record["cell"], record["seconds"], record.get("machine", {})
    run = Run(
        method=str(cell["method"]),
        select_every=int(cell["select_every"]),
        budget=1.0 if cell["method"] == FULL else float(cell["budget"]),
        seed=int(cell["seed"]),
        quality=100.0 * float(record["test"][metric]),
        selection=float(seconds["selection"]),
        training=float(seconds["training"]),
        clock=str(record["clock"]),
        machine=f"{machine.get('processor', 'unknown processor')}, threads: {machine.get('threads', '?')}",
    )
    for name in ("quality", "selection", "training"):
        value = getattr(run, name)
        if not (math.isfinite(value) and value >= 0.0):
            raise ValueError(f"{metric if name == 'quality' else name} = {value} is no measurement")
    if run.quality > 100.0:
        raise ValueError(f"{metric} = {run.quality / 100.0:g} is no measurement: it is a share, at most 1")
    if not 0.0 < run.budget <= 1.0:
        raise ValueError(f"budget = {run.budget} is no share")
    return run


def _nothing(protocol: Protocol, left_out: LeftOut) -> str:
    what = f"protocol {protocol.version} at scale {protocol.scale}"
    others = []
    if left_out.other_scale:
        others.append(f"{left_out.other_scale} at another scale (see --scale)")
    if left_out.other_protocol:
        others.append(f"{left_out.other_protocol} of another version of the protocol")
    if left_out.other_config:
        others.append(f"{left_out.other_config} trained in another way")
    if left_out.unusable:
        others.append(f"{len(left_out.unusable)} that cannot be used ({left_out.unusable[0]})")
    there = f"; there are {', '.join(others)}" if others else ""
    return f"no finished run of the table {protocol.table} with {what}{there}."


def _own_budget(method: Method, budget: float) -> float:
    return 1.0 if method.name == FULL else budget


def _method(run: Run, protocol: Protocol) -> Method:
    own = "" if run.select_every == protocol.select_every else f"@{run.select_every}"
    return Method(run.method, run.select_every, f"{run.method}{own}")


def _axes(runs: Sequence[Run], protocol: Protocol) -> tuple[tuple[Method, ...], tuple[float, ...]]:
    found = dict.fromkeys([*protocol.methods, *(_method(run, protocol) for run in runs)])
    budgets = {*protocol.budgets, *(run.budget for run in runs if run.method != FULL)}
    return tuple(found), tuple(sorted(budgets)) or (1.0,)  # FULL alone, of no declared protocol


def _main_clock(runs: Sequence[Run]) -> str:
    """The clock of most runs: times of two clocks cannot be compared, so those of one are shown."""
    counts = Counter(run.clock for run in runs)
    return min(counts, key=lambda clock: (-counts[clock], clock))


def _entry(
    method: Method, budget: float, runs: Sequence[Run], clock: str, paper: PaperFigures, protocol: Protocol
) -> Entry:
    has_print = method.select_every == protocol.select_every  # the paper prints its tables for one R
    entry = Entry(
        method,
        budget,
        printed=paper.at(method.name, budget) if has_print else None,
        printed_speed_up=paper.speed_up(method.name, budget) if has_print else None,
    )
    if not runs:
        return entry
    mean, deviation = mean_and_deviation([run.quality for run in runs])
    entry = dataclasses.replace(entry, seeds=tuple(run.seed for run in runs), mean=mean, deviation=deviation)
    timed = [run for run in runs if run.clock == clock]
    if not timed:
        return entry
    seconds, seconds_deviation = mean_and_deviation([run.selection + run.training for run in timed])
    return dataclasses.replace(
        entry,
        n_timed=len(timed),
        selection=mean_and_deviation([run.selection for run in timed])[0],
        training=mean_and_deviation([run.training for run in timed])[0],
        seconds=seconds,
        seconds_deviation=seconds_deviation,
    )


def _add_speed_ups(entries: dict[tuple[Method, float], Entry]) -> None:
    full = [entry for entry in entries.values() if entry.method.name == FULL and entry.seconds is not None]
    if not full:
        return
    most = max(full, key=lambda entry: entry.n_timed)  # of FULL at two select_every, which are the same run
    for key, entry in entries.items():
        if entry.seconds:
            entries[key] = dataclasses.replace(entry, speed_up=(most.seconds or 0.0) / entry.seconds)


def ranked(entries: Iterable[Entry]) -> list[Entry]:
    """The best mean first; a single seed does not count where another entry has more, as it may be luck."""
    run = [entry for entry in entries if entry.mean is not None]
    found = [entry for entry in run if entry.n_seeds >= MIN_SEEDS] or run
    return sorted(found, key=lambda entry: -(entry.mean or 0.0))


def reference_of(method: Method, methods: Iterable[Method], select_every: int) -> Method | None:
    """Adaptive random sampling at the same R, if it was run; at the protocol's R for what is drawn once."""
    if method.name in (FULL, REFERENCE):
        return None
    there = {each.select_every: each for each in methods if each.name == REFERENCE}
    wanted = select_every if method.name in _DRAWN_ONCE else method.select_every
    return there.get(wanted)


def _add_comparisons(
    entries: dict[tuple[Method, float], Entry],
    runs: Mapping[tuple[Method, float], Sequence[Run]],
    protocol: Protocol,
) -> int:
    methods = dict.fromkeys(method for method, _ in entries)
    tested = []
    for (method, budget), entry in entries.items():
        reference = reference_of(method, methods, protocol.select_every)
        if reference is None:
            continue
        ours, theirs = (
            {run.seed: run.quality for run in runs.get((each, budget), ())} for each in (method, reference)
        )
        found = compare_pairs(ours, theirs) if ours else None
        entries[method, budget] = dataclasses.replace(entry, reference=str(reference), comparison=found)
        if found is not None and found.p_value is not None:
            tested.append((method, budget))
    comparisons = [entries[key].comparison for key in tested]
    corrected = holm([each.p_value for each in comparisons if each is not None and each.p_value is not None])
    for key, comparison, p_holm in zip(tested, comparisons, corrected, strict=True):
        if comparison is not None:
            with_holm = dataclasses.replace(comparison, p_holm=p_holm)
            entries[key] = dataclasses.replace(entries[key], comparison=with_holm)
    return len(tested)
