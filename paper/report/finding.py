"""Sentences computed from a table of results; nothing is claimed that was not tested."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..bench.layout import percent
from ..bench.statistics import LEVEL, Comparison
from ..bench.summary import FULL, REFERENCE, Entry, Summary, ranked
from .series import duration

OURS = "RBF"
_TEST = f"paired t tests over common seeds, Holm's correction, level {100 * LEVEL:g} %"

Compared = list[tuple[Entry, Comparison]]


def finding(summary: Summary) -> list[str]:
    """Return short sentences: the best of each budget, each kind of method against uniform redraws, all data."""
    compared = [(e, e.comparison) for e in summary.entries.values() if e.comparison is not None]
    compared = [(entry, found) for entry, found in compared if found.difference is not None]
    warm = [pair for pair in compared if is_warm(pair[0])]
    ours = [pair for pair in compared if pair[0].method.name == OURS]
    others = [pair for pair in compared if pair not in warm and pair[0].method.name not in (OURS, "RANDOM")]
    sentences = (*(_best(summary), _ours(ours), _others(others), _warm(warm)), *(_redraws(summary), _full(summary)))
    return [sentence for sentence in sentences if sentence]


def _plain(summary: Summary, budget: float) -> list[Entry]:
    """The entries of a budget without a warm start, the best first; single seeds only where there are no more."""
    return ranked(
        entry
        for (method, share), entry in summary.entries.items()
        if share == budget and method.name != FULL and not is_warm(entry)
    )


def is_warm(entry: Entry) -> bool:
    """Whether training starts on all data."""
    return entry.method.name.upper().endswith("-WARM")


def _best(summary: Summary) -> str:
    winners: dict[str, list[str]] = {}
    for budget in summary.budgets:
        found = _plain(summary, budget)
        if len(found) > 1:
            said = f"{percent(budget)} ({found[0].mean:.2f} %, {runs(found[0])})"
            winners.setdefault(str(found[0].method), []).append(said)
    if not winners:
        return ""
    parts = [f"{name} at {listed(places)}" for name, places in winners.items()]
    return f"Best mean accuracy without a warm start: {'; '.join(parts)}."


def _ours(compared: Compared) -> str:
    if not compared:
        return ""
    differences = [found.difference or 0.0 for _, found in compared]
    least, largest = signed(min(differences)), signed(max(differences))
    span = least if least == largest else f"{least} to {largest}"
    return f"{OURS} differs from uniform redraws at the same R by {span} points: {_decided(compared)} ({_TEST})."


def _others(compared: Compared) -> str:
    if not compared:
        return ""
    names = listed(list(dict.fromkeys(entry.method.name for entry, _ in compared)))
    return f"{names}, compared with {REFERENCE} at the same R: {_decided(compared)}."


def _warm(compared: Compared) -> str:
    if not compared:
        return ""
    return f"Warm starts, compared with {REFERENCE}, which spends no epochs on all data: {_decided(compared)}."


def _decided(compared: Compared) -> str:
    """How many differences are significant after the correction, and which."""
    tested = [(entry, found) for entry, found in compared if found.p_holm is not None]
    if not tested:
        return "too few seeds in common to test it"
    untested = len(compared) - len(tested)
    tail = f"; {untested} could not be tested" if untested else ""
    decided = [(entry, found.difference or 0.0) for entry, found in tested if found.is_significant]
    above = [entry for entry, difference in decided if difference > 0]
    below = [entry for entry, difference in decided if difference < 0]
    if not above and not below:
        one = "the difference is not significant"
        return (one if len(tested) == 1 else f"none of {len(tested)} differences is significant") + tail
    rest = len(tested) - len(above) - len(below)
    named = [
        f"{len(those)} significantly {what} ({_places(those)})"
        for those, what in ((above, "better"), (below, "worse"))
        if those
    ]
    said = listed([*named, *([f"{rest} not significant"] if rest else [])])
    return (f"of {len(tested)} differences, " if len(tested) > 1 else "") + said + tail


def _places(entries: Iterable[Entry]) -> str:
    """Methods with their budgets: "RBF at 1 % and 3 %; CRAIG at 5 %"."""
    budgets: dict[str, list[str]] = {}
    for entry in entries:
        budgets.setdefault(str(entry.method), []).append(percent(entry.budget))
    return "; ".join(f"{name} at {listed(places)}" for name, places in budgets.items())


def _redraws(summary: Summary) -> str:
    """Uniform redraws more often than the table's R, against the best method that keeps to it."""
    own = summary.protocol.select_every
    often = [method for method in summary.methods if method.name == REFERENCE and method.select_every < own]
    wins: list[tuple[float, Entry, Entry]] = []
    losses: list[tuple[float, Entry, Entry]] = []
    for method in often[:1]:
        for budget in summary.budgets:
            found = _plain(summary, budget)
            ours = summary.at(method, budget)
            rivals = [entry for entry in found if entry.method.select_every == own]
            if ours not in found or not rivals:
                continue
            is_above = (ours.mean or 0.0) > (rivals[0].mean or 0.0)
            (wins if is_above else losses).append((budget, ours, rivals[0]))
    if not wins and not losses:
        return ""
    every = "epoch" if often[0].select_every == 1 else f"{often[0].select_every} epochs"
    who = f"{often[0]}, a uniform subset redrawn every {every},"
    budget, ours, rival = (wins or losses)[0]
    example = f"at {percent(budget)}, {accuracy(ours)} against {accuracy(rival)} by {rival.method}{_times(rival, ours)}"
    if not wins:
        return f"{who} stays below the best method that selects every {own} epochs: {example}."
    where = "" if not losses else f" at {listed([percent(budget) for budget, _, _ in wins])}"
    but = f", not at {listed([percent(budget) for budget, _, _ in losses])}" if losses else ""
    than = f"than every method that selects every {own} epochs"
    return f"{who} has a higher mean (not tested) {than}{where}{but}: {example}."


def _times(slow: Entry, fast: Entry) -> str:
    if not slow.seconds or not fast.seconds or slow.seconds < 1.15 * fast.seconds:
        return ""
    return f", which takes {slow.seconds / fast.seconds:.1f} times as long"


def _full(summary: Summary) -> str:
    full = next((e for e in summary.entries.values() if e.method.name == FULL and e.mean is not None), None)
    if full is None:
        return "Training on all data (FULL) has not been run, so there are no speed-ups."
    time = f" in {duration(full.seconds)}" if full.seconds else ""
    sentence = f"Training on all data (FULL) reaches {accuracy(full)}{time}"
    subsets = [entry for budget in summary.budgets for entry in _plain(summary, budget)]
    found = ranked(entry for entry in subsets if entry.seconds and entry.speed_up)
    if not found:
        return sentence + "."
    best = found[0]
    gap = (best.mean or 0.0) - (full.mean or 0.0)
    side = f"{abs(gap):.2f} points {'below' if gap < 0 else 'above'} it"
    side = side if abs(gap) >= 0.005 else "as accurate"
    name = f"{best.method} at {percent(best.budget)}, {runs(best)}"
    return f"{sentence}; the best on a subset ({name}) is {side} and {best.speed_up:.3g} times as fast."


def accuracy(entry: Entry) -> str:
    """Format mean and deviation in per cent, with the number of seeds."""
    spread = "" if entry.deviation is None else f" ± {entry.deviation:.2f}"
    return f"{entry.mean:.2f}{spread} % ({runs(entry)})"


def runs(entry: Entry) -> str:
    """Say how many seeds an entry rests on."""
    return "one run" if entry.n_seeds == 1 else f"{entry.n_seeds} seeds"


def signed(value: float) -> str:
    """Format a difference with its sign."""
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")


def listed(items: Sequence[str]) -> str:
    """Join as "a, b and c"."""
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))
