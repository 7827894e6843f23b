"""The four blocks of a table, as text cells for all output formats: quality, time, speed-up, comparison."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .paper import REFERENCE as PAPER, as_printed
from .protocol import PAPER_SCALE, Method, Protocol
from .statistics import LEVEL
from .summary import FULL, METRICS, REFERENCE, Entry, Summary, ranked

_PAPER = "paper"
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
MISSING = "—"
NOT_TESTABLE = "n/t"
_UNKNOWN_SPREAD = 0.05  # of times, relative, where no method has two seeds
CLOCKS = {"cpu": "processor time", "wall": "wall-clock time"}


@dataclass(frozen=True)
class Cell:
    """Text in a table; quiet text is dimmed: the paper's numbers, and missing ones."""

    text: str
    is_bold: bool = False
    is_quiet: bool = False


@dataclass(frozen=True)
class Columns:
    """Columns under a common title, which may be empty; narrow ones are set close together."""

    title: str
    names: tuple[str, ...]
    is_narrow: bool = False


@dataclass(frozen=True)
class Row:
    """A method, and its cells in all columns."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Block:
    """A part of the table: rows in sections, columns in groups, and notes."""

    name: str
    title: str
    groups: tuple[Columns, ...]
    sections: tuple[tuple[Row, ...], ...]
    notes: tuple[str, ...]


Cells = tuple[Cell, ...]
Write = Callable[[Entry], Cells]
_NONE = (Cell(MISSING, is_quiet=True),)


def heading(summary: Summary) -> str:
    """Return the title of the table."""
    protocol = summary.protocol
    return protocol.title if protocol.scale == PAPER_SCALE else f"{protocol.title}, {_scale(summary)}"


def state(summary: Summary) -> list[str]:
    """Say what the table was made from, first how much of it is finished."""
    protocol, left_out = summary.protocol, summary.left_out
    done = f"{summary.n_finished} of {summary.n_expected} runs finished"
    if summary.n_beyond:
        done += f", and {_runs(summary.n_beyond)} beyond the protocol"
    found = [f"{done} (protocol {protocol.version}, scale {protocol.scale}, {_seeds(protocol)} seeds)."]
    if protocol.scale_note:
        found.append(protocol.scale_note)
    outside = {
        "of another version of the protocol": left_out.other_protocol,
        "at another scale": left_out.other_scale,
        "trained with other settings under the same version": left_out.other_config,
        "of a run that is here already": left_out.repeated,
        "that cannot be used": len(left_out.unusable),
    }
    counted = [f"{count} {what}" for what, count in outside.items() if count]
    return [*found, f"Records left out: {', '.join(counted)}."] if counted else found


def colophon(summary: Summary) -> list[str]:
    """Name the source of the paper's numbers."""
    labels = ", ".join(source.label for source in summary.paper.sources)
    return [f"Paper: {PAPER}; tables {labels}."] if labels else []


def sections(methods: Iterable[Method]) -> list[list[Method]]:
    """Group the methods: all data; uniform draws; selections; warm starts."""
    found: list[list[Method]] = [[], [], [], []]
    for method in methods:
        if method.name.endswith("-WARM"):
            found[3].append(method)
        elif method.name == FULL:
            found[0].append(method)
        else:
            found[1 if method.name in ("RANDOM", REFERENCE) else 2].append(method)
    return [section for section in found if section]


def blocks(summary: Summary, *, is_brief: bool = False) -> list[Block]:
    """Lay out the four blocks; brief ones omit the paper's deviations and round its hours."""
    return [_quality(summary, is_brief), _time(summary, is_brief), _speed_up(summary), _comparison(summary)]


def percent(budget: float) -> str:
    """Format a share as a percentage."""
    return f"{100 * budget:g} %"


def _quality(summary: Summary, is_brief: bool) -> Block:
    entries = summary.entries.values()
    best, usual = _best(summary), _usual_seeds(summary)
    # Means are aligned, with or without what follows them.
    has_deviation = any(entry.deviation is not None for entry in entries)
    raised = [len(str(entry.n_seeds)) for entry in entries if entry.n_seeds not in (0, usual)]
    width = len("98.76 ±1.23" if has_deviation else "98.76") + max(raised, default=0)

    def ours(entry: Entry) -> Cells:
        if entry.mean is None:
            return _NONE
        deviation = "" if entry.deviation is None else f" ±{entry.deviation:.2f}"
        count = "" if entry.n_seeds == usual else str(entry.n_seeds).translate(_RAISED)
        text = f"{entry.mean:.2f}{deviation}{count}"
        return (Cell(text.ljust(width), is_bold=(entry.method, entry.budget) in best),)

    def printed(entry: Entry) -> Cells:
        figure = entry.printed
        mean = MISSING if figure is None or figure.accuracy is None else f"{figure.accuracy:.2f}"
        if figure is None or figure.deviation is None or is_brief:
            return (Cell(mean, is_quiet=True),)
        return (Cell(f"{mean} ±{as_printed(figure.deviation)}", is_quiet=True),)

    notes = [
        "Mean over seeds, ± standard deviation. Bold: the best plain method and the best warm start of a column; "
        "single seeds count only where no entry of the column has more.",
        f"{_seeds_note(summary, usual)} {MISSING}: no finished run, or not printed.",
    ]
    title = f"{METRICS[summary.metric]}, %"
    if not summary.paper.entries or summary.metric != "accuracy":
        return _block("quality", title, summary, {"": ours}, notes)
    notes.append(f"The paper's: mean {'' if is_brief else 'and deviation '}of five runs.")
    if summary.protocol.scale != PAPER_SCALE:
        notes.append(f"The paper's figures belong to its own protocol, not to this one: {_scale(summary)}.")
    return _block("quality", title, summary, {"ours": ours, _PAPER: printed}, notes)


def _time(summary: Summary, is_brief: bool) -> Block:
    unit, size = _unit(summary)
    times = [entry.selection for entry in summary.entries.values() if entry.selection is not None]
    width = max((len(_shorter(each / size)) for each in times), default=0) + len("()")

    def ours(entry: Entry) -> Cells:
        if entry.seconds is None or entry.selection is None:
            return _NONE
        bracket = f"({_shorter(entry.selection / size)})"
        return (Cell(f"{_short(entry.seconds / size)} {bracket:>{width}}"),)

    def printed(entry: Entry) -> Cells:
        hours = None if entry.printed is None else entry.printed.hours
        if hours is None:
            return _NONE
        return (Cell(f"{hours:.2g}" if is_brief else as_printed(hours), is_quiet=True),)

    clock = _clock(summary)
    notes = [
        f"{clock[0].upper()}{clock[1:]} of selection and training, selection alone in brackets; without evaluation."
    ]
    if summary.n_other_clock:
        notes.append(f"{_runs(summary.n_other_clock)} measured by another clock: not in these times.")
    if len(summary.machines) > 1:
        notes.append(f"The times come from {len(summary.machines)} machines: {'; '.join(summary.machines)}.")
    if not summary.paper.entries:
        return _block("time", f"Time, {unit}", summary, {"": ours}, notes)
    notes.append("The paper's: hours on a V100" + (", rounded." if is_brief else ", as printed."))
    return _block("time", "Time", summary, {f"ours, {unit}": ours, f"{_PAPER}, hours": printed}, notes)


def _speed_up(summary: Summary) -> Block:
    n_timed = max((e.n_timed for e in summary.entries.values() if e.method.name == FULL), default=0)
    spread = _spread_of_times(summary)

    def ours(entry: Entry) -> Cells:
        if entry.speed_up is None or entry.method.name == FULL:
            return _NONE if entry.speed_up is None else (Cell("1"),)
        return (Cell(_certain(entry.speed_up, spread * (1.0 / n_timed + 1.0 / entry.n_timed) ** 0.5)),)

    def printed(entry: Entry) -> Cells:
        factor = entry.printed_speed_up
        return _NONE if factor is None else (Cell(_short(factor), is_quiet=True),)

    notes = [
        f"Time of FULL ({_runs(n_timed)}) over time of the method, both {_clock(summary)} of selection and training, "
        "without evaluation."
        if n_timed
        else f"No run of FULL is finished and measured in {_clock(summary)}, so ours are not known."
    ]
    if n_timed:
        notes.append(f"Times of seeds deviate by {100 * spread:.2g} %: digits below the standard error are left out.")
    if not summary.paper.entries:
        return _block("speed-up", "Speed-up over FULL", summary, {"": ours}, notes)
    notes.append("The paper's follow from its hours.")
    return _block("speed-up", "Speed-up over FULL", summary, {"ours": ours, _PAPER: printed}, notes)


def _comparison(summary: Summary) -> Block:
    compared = [method for method in summary.methods if summary.at(method, summary.budgets[0]).reference]
    others = dict.fromkeys(
        f"{entry.method} against {entry.reference}"
        for entry in summary.entries.values()
        if entry.reference not in ("", REFERENCE)
    )
    tests = {0: "the tests of this table, none of which is possible yet", 1: "the one test of this table"}.get(
        summary.n_tests, f"the {summary.n_tests} tests of this table"
    )
    notes = [
        f"Points: mean of method minus {REFERENCE} over common seeds"
        + (f" ({', '.join(others)})" if others else "")
        + "; g: effect size, that mean in deviations (Hedges' correction, from three seeds on); p: paired t test, "
        f"Holm's correction for {tests}; *: p at most {LEVEL:g}; {NOT_TESTABLE}: not testable, "
        "fewer than two common seeds or all differences equal."
    ]
    if any(method.name.endswith("-WARM") for method in compared):
        notes.append(
            f"Warm starts are compared with {REFERENCE} without one: their difference includes the epochs on all data."
        )
    groups = tuple(Columns(percent(budget), ("points", "g", "p"), is_narrow=True) for budget in summary.budgets)
    rows = _rows(summary, compared, _three)
    return Block("comparison", f"Against {REFERENCE}", groups, rows, tuple(notes))


def _three(entry: Entry) -> Cells:
    """Difference, effect size and p-value."""
    found = entry.comparison
    if found is None or found.difference is None:
        return _NONE * 3
    points = f"{found.difference:+.2f}"
    if found.p_holm is None:
        return Cell(points), *_NONE, Cell(NOT_TESTABLE, is_quiet=True)
    mark = "*" if found.is_significant else " "
    g, p = found.effect, found.p_holm
    effect = _NONE if g is None else (Cell(f"{g:+.1f}" if abs(g) < 99.95 else f"{g:+.0f}"),)
    shown = "<.001" if p < 0.001 else "1" if p > 0.9995 else f"{p:.3f}".removeprefix("0")
    return Cell(points + mark, is_bold=found.is_significant), *effect, Cell(shown)


def _best(summary: Summary) -> set[tuple[Method, float]]:
    """Find the largest means, as shown, of every column: of plain methods and of warm starts, without FULL."""
    found = set()
    for budget in summary.budgets:
        column = ranked(summary.at(method, budget) for method in summary.methods if method.name != FULL)
        for is_warm in (False, True):
            means = {
                entry.method: round(entry.mean or 0.0, 2)
                for entry in column
                if entry.method.name.endswith("-WARM") == is_warm
            }
            found |= {(method, budget) for method, mean in means.items() if mean == max(means.values())}
    return found


def _block(name: str, title: str, summary: Summary, parts: dict[str, Write], notes: Sequence[str]) -> Block:
    """All methods at all budgets, once per part."""
    names = tuple(percent(budget) for budget in summary.budgets)
    groups = tuple(Columns(each, names, is_narrow=each.startswith(_PAPER)) for each in parts)
    rows = _rows(summary, summary.methods, *parts.values())
    return Block(name, title, groups, rows, tuple(notes))


def _rows(summary: Summary, methods: Iterable[Method], *parts: Write) -> tuple[tuple[Row, ...], ...]:
    def row(method: Method) -> Row:
        written = (write(summary.at(method, budget)) for write in parts for budget in summary.budgets)
        return Row(str(method), tuple(cell for cells in written for cell in cells))

    return tuple(tuple(map(row, section)) for section in sections(methods))


def _scale(summary: Summary) -> str:
    return f"{summary.protocol.scale_title} ({summary.protocol.scale})"


def _usual_seeds(summary: Summary) -> int:
    """Return the most frequent number of seeds; on a tie the largest."""
    counts = Counter(entry.n_seeds for entry in summary.entries.values() if entry.n_seeds)
    return max(counts, key=lambda count: (counts[count], count))


def _seeds_note(summary: Summary, usual: int) -> str:
    asked = _seeds(summary.protocol)
    others = {entry.n_seeds for entry in summary.entries.values()} - {0, usual}
    text = f"Seeds: {usual}" + ("" if str(usual) == asked else f" where the protocol asks for {asked}")
    if others:
        text += "; other numbers of seeds are raised"
    return f"{text}. One seed has no deviation." if 1 in {usual, *others} else f"{text}."


def _seeds(protocol: Protocol) -> str:
    """The number of seeds that a protocol asks for, or both ends of its range."""
    least = min((protocol.seeds_of(method.name) for method in protocol.methods), default=protocol.seeds)
    return str(least) if least == protocol.seeds else f"{least} to {protocol.seeds}"


def _short(value: float) -> str:
    """Format with about three digits."""
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _spread_of_times(summary: Summary) -> float:
    """Return the relative deviation of a run's time, pooled over all entries with two seeds or more."""
    timed = [e for e in summary.entries.values() if e.seconds and e.seconds_deviation is not None and e.n_timed > 1]
    if not timed:
        return _UNKNOWN_SPREAD
    squares = sum((e.n_timed - 1) * ((e.seconds_deviation or 0.0) / (e.seconds or 1.0)) ** 2 for e in timed)
    return float((squares / sum(e.n_timed - 1 for e in timed)) ** 0.5)


def _certain(value: float, error: float) -> str:
    """Format without the digits below a relative error: the last one shown has the place of its first digit."""
    place = math.floor(math.log10(max(error, 0.005) * value))
    return f"{round(value, -place):,.{max(-place, 0)}f}"


def _shorter(value: float) -> str:
    """Format with about two digits."""
    if value >= 9.95:
        return f"{value:,.0f}"
    return f"{value:.2f}" if 0 < value < 0.095 else f"{value:.1f}"


def _unit(summary: Summary) -> tuple[str, float]:
    """Choose the largest unit in which the shortest time is at least 1, or seconds."""
    shortest = min((entry.seconds for entry in summary.entries.values() if entry.seconds), default=0.0)
    units = (("hours", 3600.0), ("minutes", 60.0))
    return next((unit for unit in units if shortest >= unit[1]), ("seconds", 1.0))


def _clock(summary: Summary) -> str:
    return CLOCKS.get(summary.clock, f"time by the clock {summary.clock!r}")


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
