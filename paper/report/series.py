"""What the figures draw: the runs of one method at one budget, and how a method looks in all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..bench.layout import percent
from ..bench.protocol import Method
from ..bench.summary import FULL, Entry, Summary

Curve = tuple[tuple[float, float], ...]

# Families of methods in the order of the legend, and the class of each in the style sheet.
_FAMILIES = {
    FULL: "full",
    "ADAPTIVE-RANDOM": "adaptive",
    "ADAPTIVE-CORESET": "coreset",
    "ADAPTIVE-CORESET-SEEN": "seen",
    "ADAPTIVE-CORESET-AUTO": "auto",
    "RBF": "rbf",
    "RANDOM": "random",
    "FIXED-CORESET": "fixed",
    "GLISTER": "glister",
    "CRAIG": "craig",
    "GRADMATCH": "gradmatch",
}
_OTHER = "other"
_EMPHASISED = ("adaptive", "coreset", "seen", "rbf")


@dataclass(frozen=True, order=True)
class Look:
    """How a method is drawn.

    The family is the colour; plain methods are circles, those per batch squares, those that select more often than the
    table's own R diamonds; a warm start leaves the mark hollow. Lines against the epoch are whole, in dashes and dots,
    dashed, and dotted.
    """

    place: int  # in the legend
    label: str
    css: str
    shape: str
    is_often: bool
    is_warm: bool
    is_batch: bool

    @property
    def is_emphasised(self) -> bool:
        """Whether it is drawn strongly: the paper's method, adaptive ones, and what both must be compared with."""
        return self.css in _EMPHASISED and not self.is_warm

    @property
    def classes(self) -> str:
        """For the style sheet."""
        return self.css + " hollow" * self.is_warm + " strong" * self.is_emphasised

    @property
    def line(self) -> str:
        """For the style sheet, of its line against the epoch: variants of a family differ in their dashes."""
        return f"line {self.classes}" + " often" * self.is_often + " batch" * self.is_batch


def look_of(method: Method, select_every: int) -> Look:
    """Of a method, in a table that selects every so many epochs."""
    name = method.name.upper()
    plain = name.removesuffix("-WARM")
    family = plain.removesuffix("PB")
    css = _FAMILIES.get(family, _OTHER)
    is_often = method.select_every < select_every and css != "full"
    place = list(_FAMILIES).index(family) if family in _FAMILIES else len(_FAMILIES)
    if is_often:
        shape = "diamond"
    elif css == _OTHER:
        shape = "triangle"
    else:
        shape = "square" if plain.endswith("PB") else "circle"
    is_batch = plain.endswith("PB") and css != _OTHER
    return Look(place, str(method), css, shape, is_often, name.endswith("-WARM"), is_batch)


@dataclass(frozen=True)
class Series:
    """The runs of a method at a budget that are finished."""

    look: Look
    entry: Entry
    curves: tuple[Curve, ...]

    @property
    def budget(self) -> float:
        """Share of the training samples."""
        return self.entry.budget

    @property
    def mean(self) -> float:
        """Accuracy over seeds, a share."""
        return (self.entry.mean or 0.0) / 100.0

    @property
    def ends(self) -> tuple[float, float]:
        """The mean less and plus the deviation."""
        spread = (self.entry.deviation or 0.0) / 100.0
        return max(self.mean - spread, 0.0), min(self.mean + spread, 1.0)

    @property
    def seconds(self) -> float:
        """Selection and training; 0 where no clock of the table measured it."""
        return self.entry.seconds or 0.0

    @cached_property
    def mean_curve(self) -> list[tuple[float, float, float, float]]:
        """(epoch, mean, least, largest) at the epochs that every curve has."""
        curves = [dict(curve) for curve in self.curves if curve]
        if not curves:
            return []
        found = []
        for epoch in sorted(set.intersection(*(set(curve) for curve in curves))):
            values = [curve[epoch] for curve in curves]
            found.append((epoch, math.fsum(values) / len(values), min(values), max(values)))
        return found

    def describe(self) -> str:
        """In one line, for tooltips."""
        spread = "" if self.entry.deviation is None else f" ± {self.entry.deviation:.2f}"
        runs = "1 run" if self.entry.n_seeds == 1 else f"{self.entry.n_seeds} runs"
        share = "" if self.look.css == "full" else f" at {percent(self.budget)}"
        time = f", {duration(self.seconds)}" if self.seconds else ""
        return f"{self.look.label}{share}: {100 * self.mean:.2f}{spread} %{time} ({runs})"


def series_of(summary: Summary, records: Iterable[Mapping[str, Any]]) -> list[Series]:
    """All that was run, in the order of the legend and by budget."""
    curves: dict[tuple[str, int, float], dict[int, Curve]] = {}
    for record in records:
        cell = record["cell"]
        budget = 1.0 if cell["method"] == FULL else float(cell["budget"])
        key = (str(cell["method"]), int(cell["select_every"]), budget)
        curves.setdefault(key, {})[int(cell["seed"])] = _curve(record)
    found = []
    for (method, budget), entry in summary.entries.items():
        if entry.mean is None:
            continue
        mine = curves.get((method.name, method.select_every, budget), {})
        look = look_of(method, summary.protocol.select_every)
        found.append(Series(look, entry, tuple(mine.get(seed, ()) for seed in entry.seeds)))
    return sorted(found, key=lambda one: (one.look, one.budget))


def _curve(record: Mapping[str, Any]) -> Curve:
    """The pairs of a curve that are numbers; a record need not have any."""
    pairs = record.get("curve")
    found = {}
    for pair in pairs if isinstance(pairs, list | tuple) else ():
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            continue
        if all(isinstance(v, int | float) and math.isfinite(v) for v in pair) and 0.0 <= pair[1] <= 1.0:
            found[float(pair[0])] = float(pair[1])
    return tuple(sorted(found.items()))


def duration(seconds: float) -> str:
    """Two or three digits of seconds, minutes or hours."""
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 5940:
        return f"{seconds / 60:.1f} min" if seconds < 597 else f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
