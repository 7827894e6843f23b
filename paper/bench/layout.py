"""A table of results as blocks of text, for the writers of all formats: accuracy, time, speed-up, comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .paper import REFERENCE as PAPER
from .paper import as_printed
from .protocol import PAPER_SCALE, Method
from .statistics import LEVEL, Comparison
from .summary import FULL, METRICS, REFERENCE, Entry, Summary, ranked

_PAPER = "paper"
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
MISSING = "—"
NOT_TESTABLE = "n/t"
CLOCKS = {"cpu": "processor time", "wall": "wall-clock time"}


@dataclass(frozen=True)
class Cell:
    """A text in a table; ``is_quiet`` is what stands back: figures of others, and what is missing."""

    text: str
    is_bold: bool = False
    is_quiet: bool = False


@dataclass(frozen=True)
class Columns:
    """Columns under a common title, which may be empty."""

    title: str
    names: tuple[str, ...]
    is_narrow: bool = False  # set close together where space is short


@dataclass(frozen=True)
class Row:
    """A method, and its cells in all columns."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Block:
    """A part of the table: rows in sections, columns in groups, and what is to be said about them."""

    name: str
    title: str
    groups: tuple[Columns, ...]
    sections: tuple[tuple[Row, ...], ...]
    notes: tuple[str, ...]


def heading(summary: Summary) -> str:
    """The title of the table."""
    protocol = summary.protocol
    scale = "" if protocol.scale == PAPER_SCALE else f", {protocol.scale_title} ({protocol.scale})"
    return f"{protocol.title}{scale}"


def state(summary: Summary) -> list[str]:
    """Sentences on what the table was made of: first of all how much of it is there."""
    protocol, left_out = summary.protocol, summary.left_out
    done = f"{summary.n_finished} of {summary.n_expected} cells finished"
    if summary.n_beyond:
        done += f", and {_runs(summary.n_beyond)} that the protocol does not ask for"
    found = [f"{done} (protocol {protocol.version}, scale {protocol.scale}, {protocol.seeds} seeds)."]
    if protocol.scale_note:
        found.append(protocol.scale_note)
    outside = {
        "of another version of the protocol": left_out.other_protocol,
        "at another scale": left_out.other_scale,
        "trained in another way under the same version": left_out.other_config,
        "of a cell that is here already": left_out.repeated,
        "that cannot be used": len(left_out.unusable),
    }
    counted = [f"{count} {what}" for what, count in outside.items() if count]
    if counted:
        found.append(f"Records left out: {', '.join(counted)}.")
    return found


def colophon(summary: Summary) -> list[str]:
    """Sentences on where the paper's figures are from."""
    labels = ", ".join(source.label for source in summary.paper.sources)
    return [f"Paper: {PAPER}; tables {labels}."] if labels else []


def sections(methods: Iterable[Method]) -> list[list[Method]]:
    """All data; uniform draws; what selects; warm starts. Each in the order given."""
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
    """The four parts; ``is_brief`` leaves out deviations that the paper prints, and digits of its hours."""
    return [
        _quality(summary, is_brief),
        _time(summary, is_brief),
        _speed_up(summary),
        _comparison(summary),
    ]


def percent(budget: float) -> str:
    """A share as a per cent."""
    return f"{100 * budget:g} %"


def _quality(summary: Summary, is_brief: bool) -> Block:
    best, usual = _best(summary), _usual_seeds(summary)
    # Means stand under means, with or without what follows them.
    has_deviation = any(entry.deviation is not None for entry in summary.entries.values())
    raised = [
        len(str(entry.n_seeds)) for entry in summary.entries.values() if entry.n_seeds not in (0, usual)
    ]
    width = len("98.76 ±1.23" if has_deviation else "98.76") + max(raised, default=0)

    def ours(entry: Entry) -> Cell:
        if entry.mean is None:
            return Cell(MISSING, is_quiet=True)
        count = "" if entry.n_seeds == usual else str(entry.n_seeds).translate(_RAISED)
        text = _with_deviation(entry.mean, entry.deviation) + count
        return Cell(text.ljust(width), is_bold=(entry.method, entry.budget) in best)

    def printed(entry: Entry) -> Cell:
        figure = entry.printed
        mean = MISSING if figure is None or figure.accuracy is None else f"{figure.accuracy:.2f}"
        if figure is None or figure.deviation is None or is_brief:
            return Cell(mean, is_quiet=True)
        return Cell(f"{mean} ±{as_printed(figure.deviation)}", is_quiet=True)

    notes = [
        "Mean over seeds, ± standard deviation; the best plain and the best warm start of a column are bold, a single "
        "seed only where the column has no more.",
        f"{_seeds_note(summary, usual)} {MISSING}: no finished run, or not printed.",
    ]
    if not _has_paper(summary) or summary.metric != "accuracy":
        return _block("quality", f"{METRICS[summary.metric]}, %", summary, [("", ours)], notes)
    notes.append(
        "The paper's: mean of five runs." if is_brief else "The paper's: mean and deviation of five runs."
    )
    if summary.protocol.scale != PAPER_SCALE:
        scale = f"{summary.protocol.scale_title} ({summary.protocol.scale})"
        notes.append(f"The paper's figures are of its own protocol, not of this one: {scale}.")
    return _block(
        "quality", f"{METRICS[summary.metric]}, %", summary, [("ours", ours), (_PAPER, printed)], notes
    )


def _time(summary: Summary, is_brief: bool) -> Block:
    unit, size = _unit(summary)
    brackets = (
        _shorter(entry.selection / size) for entry in summary.entries.values() if entry.selection is not None
    )
    width = max(map(len, brackets), default=0) + len("()")

    def ours(entry: Entry) -> Cell:
        if entry.seconds is None or entry.selection is None:
            return Cell(MISSING, is_quiet=True)
        bracket = f"({_shorter(entry.selection / size)})"
        return Cell(f"{_short(entry.seconds / size)} {bracket:>{width}}")

    def printed(entry: Entry) -> Cell:
        hours = None if entry.printed is None else entry.printed.hours
        if hours is None:
            return Cell(MISSING, is_quiet=True)
        return Cell(f"{hours:.2g}" if is_brief else as_printed(hours), is_quiet=True)

    notes = [
        f"{_sentence(_clock(summary))} of selection and training, in brackets that of selection; evaluation does not "
        "count."
    ]
    if summary.n_other_clock:
        notes.append(f"{_runs(summary.n_other_clock)} measured by another clock: not in these times.")
    if len(summary.machines) > 1:
        notes.append(f"The times come from {len(summary.machines)} machines: {'; '.join(summary.machines)}.")
    if not _has_paper(summary):
        return _block("time", f"Time, {unit}", summary, [("", ours)], notes)
    notes.append("The paper's: hours on a V100" + (", rounded." if is_brief else ", as printed."))
    parts = [(f"ours, {unit}", ours), (f"{_PAPER}, hours", printed)]
    return _block("time", "Time", summary, parts, notes)


def _speed_up(summary: Summary) -> Block:
    def ours(entry: Entry) -> Cell:
        return Cell(MISSING, is_quiet=True) if entry.speed_up is None else Cell(_short(entry.speed_up))

    def printed(entry: Entry) -> Cell:
        factor = entry.printed_speed_up
        return Cell(MISSING if factor is None else _short(factor), is_quiet=True)

    full = [entry for entry in summary.entries.values() if entry.method.name == FULL and entry.n_timed]
    if full:
        n_timed = max(entry.n_timed for entry in full)
        notes = [
            f"Time of FULL ({_runs(n_timed)}) over time of the method, both {_clock(summary)} of selection and "
            "training, without evaluation."
        ]
    else:
        notes = [f"No run of FULL is finished and measured in {_clock(summary)}: ours cannot be said."]
    if not _has_paper(summary):
        return _block("speed-up", "Speed-up over FULL", summary, [("", ours)], notes)
    notes.append("The paper's follow from its hours.")
    return _block("speed-up", "Speed-up over FULL", summary, [("ours", ours), (_PAPER, printed)], notes)


def _comparison(summary: Summary) -> Block:
    compared = [method for method in summary.methods if summary.at(method, summary.budgets[0]).reference]
    rows = []
    for section in sections(compared):
        found = [(method, [summary.at(method, budget) for budget in summary.budgets]) for method in section]
        rows.append(
            tuple(
                Row(str(method), tuple(cell for entry in entries for cell in _three(entry.comparison)))
                for method, entries in found
            )
        )
    others = {
        f"{entry.method} against {entry.reference}": None
        for entry in summary.entries.values()
        if entry.reference not in ("", REFERENCE)
    }
    notes = [
        f"Points: mean of method minus {REFERENCE} over common seeds"
        + (f" ({', '.join(others)})" if others else "")
        + "; g: effect size, that mean in deviations (Hedges' correction, from three seeds on); p: paired t test, "
        f"Holm's correction for {_tests(summary.n_tests)}; *: p at most {LEVEL:g}; {NOT_TESTABLE}: not testable, "
        "fewer than two common seeds or differences that are all equal.",
    ]
    if any(method.name.endswith("-WARM") for method in compared):
        notes.append(
            f"Warm starts are compared with {REFERENCE} without one: their difference includes the epochs on all data."
        )
    groups = [Columns(percent(budget), ("points", "g", "p"), is_narrow=True) for budget in summary.budgets]
    return Block("comparison", f"Against {REFERENCE}", tuple(groups), tuple(rows), tuple(notes))


def _three(found: Comparison | None) -> tuple[Cell, Cell, Cell]:
    nothing = Cell(MISSING, is_quiet=True)
    if found is None or found.difference is None:
        return nothing, nothing, nothing
    points = f"{found.difference:+.2f}"
    if found.p_holm is None:
        return Cell(points), nothing, Cell(NOT_TESTABLE, is_quiet=True)
    mark = "*" if found.is_significant else " "
    effect = nothing if found.effect is None else Cell(_effect(found.effect))
    return Cell(points + mark, is_bold=found.is_significant), effect, Cell(_p_value(found.p_holm))


def _effect(value: float) -> str:
    return f"{value:+.1f}" if abs(value) < 99.95 else f"{value:+.0f}"


def _p_value(p: float) -> str:
    if p < 0.001:
        return "<.001"
    return "1" if p > 0.9995 else f"{p:.3f}".removeprefix("0")


def _best(summary: Summary) -> set[tuple[Method, float]]:
    """The largest means, as shown, of every column: of plain methods and of warm starts, without FULL."""
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


def _block(
    name: str,
    title: str,
    summary: Summary,
    parts: Sequence[tuple[str, Callable[[Entry], Cell]]],
    notes: Sequence[str],
) -> Block:
    """All methods at all budgets, once per part: its title, and what writes an entry."""
    names = tuple(percent(budget) for budget in summary.budgets)
    groups = tuple(Columns(each, names, is_narrow=each.startswith(_PAPER)) for each, _ in parts)
    rows = tuple(
        tuple(
            Row(
                str(method),
                tuple(write(summary.at(method, budget)) for _, write in parts for budget in summary.budgets),
            )
            for method in section
        )
        for section in sections(summary.methods)
    )
    return Block(name, title, groups, rows, tuple(notes))


def _has_paper(summary: Summary) -> bool:
    return bool(summary.paper.entries)


def _usual_seeds(summary: Summary) -> int:
    """How many seeds most entries have; of several such numbers the largest."""
    counts = Counter(entry.n_seeds for entry in summary.entries.values() if entry.n_seeds)
    return max(counts, key=lambda count: (counts[count], count))


def _seeds_note(summary: Summary, usual: int) -> str:
    wanted = summary.protocol.seeds
    others = {entry.n_seeds for entry in summary.entries.values()} - {0, usual}
    text = f"Seeds: {usual}" + ("" if usual == wanted else f", where the protocol asks for {wanted}")
    if others:
        text += "; a raised number is the number of seeds of its cell"
    return f"{text}. One seed has no deviation." if 1 in {usual, *others} else f"{text}."


def _with_deviation(mean: float, deviation: float | None) -> str:
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f} ±{deviation:.2f}"


def _short(value: float) -> str:
    """Three digits or so."""
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _shorter(value: float) -> str:
    """Two digits or so."""
    if value >= 9.95:
        return f"{value:,.0f}"
    return f"{value:.2f}" if 0 < value < 0.095 else f"{value:.1f}"


def _unit(summary: Summary) -> tuple[str, float]:
    """In which the shortest time is at least 1, if it lasts a second."""
    shortest = min((entry.seconds for entry in summary.entries.values() if entry.seconds), default=0.0)
    if shortest >= 3600:
        return "hours", 3600.0
    return ("minutes", 60.0) if shortest >= 60 else ("seconds", 1.0)


def _clock(summary: Summary) -> str:
    return CLOCKS.get(summary.clock, f"time by the clock {summary.clock!r}")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _tests(count: int) -> str:
    if count == 0:
        return "the tests of this table, none of which is possible yet"
    return "the one test of this table" if count == 1 else f"the {count} tests of this table"
