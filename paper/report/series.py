"""What the figures draw: the finished runs of a method at a budget, and how each method looks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..bench.layout import percent
from ..bench.protocol import Method
from ..bench.summary import FULL, Entry, Summary
from .svg import clean

Curve = tuple[tuple[float, float], ...]

# Families of methods in the order of the legend, and the colour of each.
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
# by (is_warm, is_batch, is_often)
_DASHES = {
    (False, False, True): (7.0, 3.0),
    (False, True, False): (9.0, 3.0, 2.0, 3.0),
    (True, False, False): (1.5, 3.0),
    (True, True, False): (1.5, 2.5, 1.5, 7.0),
    (True, False, True): (4.0, 2.0, 1.5, 2.0),
}


@dataclass(frozen=True, order=True)
class Look:
    """How a method is drawn.

    The colour shows the family. Marks: a circle for plain methods, a square for those that select batches, a diamond
    for those that select more often than the table does; hollow for a warm start. Lines differ in their dashes.
    """

    place: int  # in the legend
    label: str
    css: str
    marker: str
    is_often: bool
    is_warm: bool
    is_batch: bool

    @property
    def is_emphasised(self) -> bool:
        """Whether it is drawn in bold: the paper's method and the adaptive ones."""
        return self.css in _EMPHASISED and not self.is_warm

    @property
    def classes(self) -> str:
        """Classes of its marks in the page."""
        return f"mark {self.css}" + " hollow" * self.is_warm

    @property
    def dashes(self) -> Any:
        """Matplotlib's line style against the epoch."""
        pattern = _DASHES.get((self.is_warm, self.is_batch, self.is_often))
        return (0.0, pattern) if pattern else "-"


def look_of(method: Method, select_every: int) -> Look:
    """Return the look of a method in a table that selects every ``select_every`` epochs."""
    name = method.name.upper()
    plain = name.removesuffix("-WARM")
    family = plain.removesuffix("PB")
    css = _FAMILIES.get(family, _OTHER)
    place = list(_FAMILIES).index(family) if family in _FAMILIES else len(_FAMILIES)
    is_often = method.select_every < select_every and css != "full"
    is_batch = plain.endswith("PB") and css != _OTHER
    marker = "D" if is_often else "^" if css == _OTHER else "s" if is_batch else "o"
    return Look(place, clean(str(method)), css, marker, is_often, name.endswith("-WARM"), is_batch)


@dataclass(frozen=True)
class Series:
    """The finished runs of a method at a budget."""

    look: Look
    entry: Entry
    curves: tuple[Curve, ...]

    @property
    def budget(self) -> float:
        """Fraction of the training samples."""
        return self.entry.budget

    @property
    def mean(self) -> float:
        """Mean accuracy over seeds, in [0, 1]."""
        return (self.entry.mean or 0.0) / 100.0

    @property
    def ends(self) -> tuple[float, float]:
        """The mean minus and plus one standard deviation."""
        spread = (self.entry.deviation or 0.0) / 100.0
        return max(self.mean - spread, 0.0), min(self.mean + spread, 1.0)

    @property
    def seconds(self) -> float:
        """Selection and training; 0 where the clock of the table did not measure it."""
        return self.entry.seconds or 0.0

    @cached_property
    def mean_curve(self) -> list[tuple[float, float, float, float]]:
        """(epoch, mean, least, largest) at the epochs that all curves share."""
        curves = [dict(curve) for curve in self.curves if curve]
        if not curves:
            return []
        found = []
        for epoch in sorted(set.intersection(*(set(curve) for curve in curves))):
            values = [curve[epoch] for curve in curves]
            found.append((epoch, math.fsum(values) / len(values), min(values), max(values)))
        return found

    def describe(self) -> str:
        """Describe the series in one line, for tooltips."""
        spread = "" if self.entry.deviation is None else f" ± {self.entry.deviation:.2f}"
        runs = "1 run" if self.entry.n_seeds == 1 else f"{self.entry.n_seeds} runs"
        share = "" if self.look.css == "full" else f" at {percent(self.budget)}"
        time = f", {duration(self.seconds)}" if self.seconds else ""
        return f"{self.look.label}{share}: {100 * self.mean:.2f}{spread} %{time} ({runs})"


def series_of(summary: Summary, records: Iterable[Mapping[str, Any]]) -> list[Series]:
    """Return everything that was run, in the order of the legend and by budget."""
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
    """The valid (epoch, accuracy) pairs of a record, which need not have any."""
    pairs = record.get("curve")
    found = {}
    for pair in pairs if isinstance(pairs, list | tuple) else ():
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            continue
        if all(isinstance(v, int | float) and math.isfinite(v) for v in pair) and 0.0 <= pair[1] <= 1.0:
            found[float(pair[0])] = float(pair[1])
    return tuple(sorted(found.items()))


def by_budget(series: Iterable[Series]) -> dict[float, list[Series]]:
    """Group the series by budget, leaving out those on all data."""
    found: dict[float, list[Series]] = {}
    for one in sorted(series, key=lambda one: one.budget):
        if one.budget < 1.0:
            found.setdefault(one.budget, []).append(one)
    return found


def on_all_data(series: Iterable[Series]) -> Series | None:
    """Return the runs on all data, if there are any."""
    return next((one for one in series if one.look.css == "full"), None)


def duration(seconds: float) -> str:
    """Format seconds as seconds, minutes or hours with two or three digits."""
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 5940:
        return f"{seconds / 60:.1f} min" if seconds < 597 else f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
