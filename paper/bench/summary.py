"""Summarise the records of finished runs: one entry per method and budget; missing values stay missing."""

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
from .statistics import MIN_SEEDS, Comparison, compare_pairs, corrected, mean_and_deviation

Metric = Literal["accuracy", "macro_f1"]
METRICS: dict[Metric, str] = {"accuracy": "Test accuracy", "macro_f1": "Macro-F1 on the test set"}

FULL, REFERENCE = "FULL", "ADAPTIVE-RANDOM"
# These never select again, whatever their select_every.
_DRAWN_ONCE = tuple(f"{name}{end}" for name in ("RANDOM", "FIXED-CORESET", "COVER") for end in ("", "-WARM"))

Key = tuple[Method, float]


@dataclass(frozen=True)
class _Finished:
    """What a table needs from a record: quality in per cent, seconds without evaluation."""

    method: str
    select_every: int
    budget: float
    seed: int
    quality: float
    selection: float
    training: float
    clock: str
    machine: str

    @property
    def key(self) -> tuple[str, int, float, int]:
        """What no two runs of a table have in common."""
        return self.method, self.select_every, self.budget, self.seed


@dataclass(frozen=True)
class Entry:
    """A method at a budget; None is what is not known."""

    method: Method
    budget: float  # share of the training samples; 1 for FULL
    seeds: tuple[int, ...] = ()  # of finished runs
    mean: float | None = None  # quality over seeds, in per cent
    deviation: float | None = None
    n_timed: int = 0  # runs measured by the clock of the table; the times are means over these
    selection: float | None = None
    training: float | None = None
    seconds: float | None = None  # selection and training together
    seconds_deviation: float | None = None
    speed_up: float | None = None  # seconds of FULL over ``seconds``
    reference: str = ""  # what ``comparison`` is against
    comparison: Comparison | None = None
    printed: Printed | None = None  # the paper's numbers
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
    unusable: tuple[str, ...] = ()  # a sentence each


@dataclass(frozen=True)
class Summary:
    """A table of results."""

    protocol: Protocol
    metric: Metric
    methods: tuple[Method, ...]  # the protocol's, then others that were run
    budgets: tuple[float, ...]  # the protocol's and others that were run, ascending
    entries: Mapping[Key, Entry]
    clock: str  # the clock of the times; those by other clocks are not used
    n_other_clock: int  # runs whose times are not used
    machines: tuple[str, ...]  # that the times come from
    n_finished: int  # runs of the protocol that are finished, all of its runs, and finished runs beyond it
    n_expected: int
    n_beyond: int
    n_tests: int  # comparisons tested, and corrected for
    left_out: LeftOut
    paper: PaperFigures
    records: tuple[Mapping[str, Any], ...]  # those that are counted

    def at(self, method: Method, budget: float) -> Entry:
        """Return the entry of a method at a budget; FULL is the same at all budgets."""
        return self.entries[method, 1.0 if method.name == FULL else budget]


def summarise(records: Iterable[Mapping[str, Any]], protocol: Protocol, metric: Metric = "accuracy") -> Summary:
    """Summarise the records of one protocol, version and scale; count all others as left out."""
    usable, left_out = _usable(records, protocol, metric)
    runs = list(usable)
    if not runs:
        raise InvalidInputError(_nothing(protocol, left_out))
    # Times of two clocks cannot be compared: use the clock of most runs.
    clocks = Counter(run.clock for run in runs)
    clock = min(clocks, key=lambda each: (-clocks[each], each))
    by_entry: dict[Key, list[_Finished]] = {}
    for run in runs:
        by_entry.setdefault((protocol.label(run.method, run.select_every), run.budget), []).append(run)
    methods = tuple(dict.fromkeys([*protocol.methods, *(method for method, _ in by_entry)]))
    budgets = sorted({*protocol.budgets, *(run.budget for run in runs if run.method != FULL)}) or [1.0]
    paper = paper_figures(protocol.table)
    keys = [(each, b) for each in methods for b in ([1.0] if each.name == FULL else budgets)]
    entries = {key: _entry(key, by_entry.get(key, []), clock, paper, protocol) for key in keys}
    _add_speed_ups(entries)
    n_tests = _add_comparisons(entries, by_entry, protocol)
    expected = {(run.method, run.select_every, run.budget, run.seed) for run in protocol.runs()}
    n_finished = sum(run.key in expected for run in runs)
    timed = [run for run in runs if run.clock == clock]
    return Summary(
        protocol=protocol,
        metric=metric,
        methods=methods,
        budgets=tuple(budgets),
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
) -> tuple[dict[_Finished, Mapping[str, Any]], LeftOut]:
    """Keep the first record of each run of this protocol, sorted by run."""
    found: dict[tuple[str, int, float, int], tuple[_Finished, Mapping[str, Any]]] = {}
    counts: Counter[str] = Counter()
    unusable = []
    for position, record in enumerate(records, start=1):
        try:
            other = _other(record, protocol)
            run = None if other else _finished(record, metric)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            name = record.get("id", position) if isinstance(record, Mapping) else position
            unusable.append(f"record {name}: {what}")
            continue
        if run is None:
            counts[other] += 1
        elif run.key in found:
            counts["repeated"] += 1
        else:
            found[run.key] = run, record
    return dict(found[key] for key in sorted(found)), LeftOut(**counts, unusable=tuple(unusable))


def _other(record: Mapping[str, Any], protocol: Protocol) -> str:
    """Say why a record is not of this protocol: a field of LeftOut, or nothing."""
    run = record["cell"]
    if run["table"] != protocol.table:
        raise ValueError(f"it belongs to the table {run['table']!r}")
    if run["scale"] != protocol.scale:
        return "other_scale"
    if run["protocol"] != protocol.version:
        return "other_protocol"
    config = record["config"]  # must agree in all settings that both name
    is_same = all(config.get(name, value) == value for name, value in protocol.config.items())
    return "" if is_same else "other_config"


def _finished(record: Mapping[str, Any], metric: Metric) -> _Finished:
    of, seconds, machine = record["cell"], record["seconds"], record.get("machine", {})
    run = _Finished(
        method=str(of["method"]),
        select_every=int(of["select_every"]),
        budget=1.0 if of["method"] == FULL else float(of["budget"]),
        seed=int(of["seed"]),
        quality=100.0 * float(record["test"][metric]),
        selection=float(seconds["selection"]),
        training=float(seconds["training"]),
        clock=str(record["clock"]),
        machine=f"{machine.get('processor', 'unknown processor')}, threads: {machine.get('threads', '?')}",
    )
    for name in ("quality", "selection", "training"):
        value = getattr(run, name)
        if not (math.isfinite(value) and value >= 0.0):
            raise ValueError(f"{metric if name == 'quality' else name} = {value} is not a measurement")
    if run.quality > 100.0:
        raise ValueError(f"{metric} = {run.quality / 100.0:g} is not a measurement: it must be at most 1")
    if not 0.0 < run.budget <= 1.0:
        raise ValueError(f"budget = {run.budget} is not a share")
    return run


def _nothing(protocol: Protocol, left_out: LeftOut) -> str:
    others = {
        "at another scale (see --scale)": left_out.other_scale,
        "of another version of the protocol": left_out.other_protocol,
        "trained with other settings": left_out.other_config,
        "that cannot be used": len(left_out.unusable),
    }
    counted = ", ".join(f"{count} {what}" for what, count in others.items() if count)
    first = f" ({left_out.unusable[0]})" if left_out.unusable else ""
    found = f"; the store holds {counted}{first}" if counted else ""
    what = f"protocol {protocol.version} at scale {protocol.scale}"
    return f"no finished run of the table {protocol.table} with {what}{found}."


def _entry(key: Key, runs: Sequence[_Finished], clock: str, paper: PaperFigures, protocol: Protocol) -> Entry:
    method, budget = key
    known: dict[str, Any] = {}
    if method.select_every == protocol.select_every:  # the paper prints its tables for one R
        known["printed"] = paper.at(method.name, budget)
        known["printed_speed_up"] = paper.speed_up(method.name, budget)
    if runs:
        known["seeds"] = tuple(run.seed for run in runs)
        known["mean"], known["deviation"] = mean_and_deviation([run.quality for run in runs])
    timed = [run for run in runs if run.clock == clock]
    if timed:
        spent = mean_and_deviation([run.selection + run.training for run in timed])
        known["seconds"], known["seconds_deviation"] = spent
        known["selection"] = mean_and_deviation([run.selection for run in timed])[0]
        known["training"] = mean_and_deviation([run.training for run in timed])[0]
    return Entry(method, budget, n_timed=len(timed), **known)


def _add_speed_ups(entries: dict[Key, Entry]) -> None:
    full = [entry for entry in entries.values() if entry.method.name == FULL and entry.seconds is not None]
    if not full:
        return
    most = max(full, key=lambda entry: entry.n_timed)  # FULL at two select_every is the same run
    for key, entry in entries.items():
        if entry.seconds:
            entries[key] = dataclasses.replace(entry, speed_up=(most.seconds or 0.0) / entry.seconds)


def ranked(entries: Iterable[Entry]) -> list[Entry]:
    """Sort by mean, best first; leave out single seeds where another entry has more, as they may be luck."""
    run = [entry for entry in entries if entry.mean is not None]
    found = [entry for entry in run if entry.n_seeds >= MIN_SEEDS] or run
    return sorted(found, key=lambda entry: -(entry.mean or 0.0))


def reference_of(method: Method, methods: Iterable[Method], select_every: int) -> Method | None:
    """Find adaptive random sampling at the same R; at the protocol's R for methods that draw once."""
    if method.name in (FULL, REFERENCE):
        return None
    wanted = select_every if method.name in _DRAWN_ONCE else method.select_every
    return next((each for each in methods if (each.name, each.select_every) == (REFERENCE, wanted)), None)


def _add_comparisons(entries: dict[Key, Entry], runs: Mapping[Key, Sequence[_Finished]], protocol: Protocol) -> int:
    """Compare every method with its reference and return the number of tests."""
    methods = list(dict.fromkeys(method for method, _ in entries))
    found: dict[Key, Comparison | None] = {}
    for method, budget in entries:
        reference = reference_of(method, methods, protocol.select_every)
        if reference is None:
            continue
        ours, theirs = ({run.seed: run.quality for run in runs.get((each, budget), ())} for each in (method, reference))
        found[method, budget] = compare_pairs(ours, theirs) if ours else None
        entries[method, budget] = dataclasses.replace(entries[method, budget], reference=str(reference))
    for key, comparison in zip(found, corrected(list(found.values())), strict=True):
        entries[key] = dataclasses.replace(entries[key], comparison=comparison)
    return sum(each is not None and each.p_value is not None for each in found.values())
