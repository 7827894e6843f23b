"""CIFAR-10 at equal time: what the time of a method buys with all the data, or with uniform redraws.

Machines differ, so time is counted in *epochs of all the data*. Training on a share b of the data for E epochs takes
b E of them. Selection adds its part of the run's own seconds: the run takes b E (selection + training) / training.
Baselines are interpolated between the runs that were made, linearly in the logarithm of the time. Both end with 60
epochs of all the data, which is what uniform redraws of all the data are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .bench.protocol import load_protocol
from .bench.store import Store
from .bench.summary import FULL, Entry, Summary, summarise
from .methods_figure import COLORS, KINDS, MARKERS, kind_of
from .plots import BLACK, GREY, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TABLE, SCALE, UNIFORM = "cifar10", "cpu", "ADAPTIVE-RANDOM@1"
FEWER_EPOCHS = {0.05: 3, 0.10: 6, 0.20: 12, 0.30: 18}  # of all data: as many samples as 60 epochs of a share


@dataclass(frozen=True)
class Point:
    """A method at a budget: time in epochs of all the data, accuracy in per cent and its deviation over seeds."""

    method: str
    budget: float
    epochs: float
    mean: float
    deviation: float | None


@dataclass(frozen=True)
class EqualTime:
    """All methods, all the data for fewer epochs, and uniform redraws before every epoch; each by time."""

    methods: tuple[Point, ...]
    full: tuple[Point, ...]
    uniform: tuple[Point, ...]

    @staticmethod
    def above(point: Point, baseline: Sequence[Point]) -> float:
        """Points above a baseline that takes as long."""
        times, means = np.log([each.epochs for each in baseline]), [each.mean for each in baseline]
        return point.mean - float(np.interp(np.log(point.epochs), times, means))


def equal_time(results: Path) -> EqualTime:
    """Read what was run of CIFAR-10."""
    store = Store(results, TABLE).read().records
    summaries = {
        scale: summarise(store, load_protocol(TABLE, scale))
        for scale in (SCALE, *(f"cpu-full-{100 * budget:.0f}" for budget in FEWER_EPOCHS))
    }
    found = [
        _point(entry, summary)
        for summary in summaries.values()
        for entry in summary.entries.values()
        if entry.mean is not None
    ]
    found.sort(key=lambda point: point.epochs)
    methods = tuple(point for point in found if point.method != FULL)
    full = tuple(point for point in found if point.method == FULL)
    return EqualTime(methods, full, (*(point for point in methods if point.method == UNIFORM), full[-1]))


def _point(entry: Entry, summary: Summary) -> Point:
    selects = 1.0 + (entry.selection or 0.0) / (entry.training or np.nan)
    epochs = entry.budget * summary.protocol.config["epochs"] * selects
    return Point(str(entry.method), entry.budget, epochs, entry.mean or 0.0, entry.deviation)


def draw(found: EqualTime) -> Figure:
    """Draw accuracy against time, with lines for the two baselines; filled markers choose before every epoch."""
    with new_figure(7.2, 4.8) as figure:
        ax = figure.subplots()
        shared: dict[str, Any] = {"elinewidth": 0.7, "markersize": 5}
        line, dotted = {"color": GREY, "marker": "X"}, {"color": BLACK, "marker": "o", "linestyle": ":"}
        _mark(ax, found.full, label="all the data, fewer epochs", **line, **shared)
        _mark(ax, found.uniform, label="uniform redraws before every epoch", **dotted, **shared)
        for kind in KINDS:
            own = [each for each in found.methods if kind_of(each.method.partition("@")[0]) == kind]
            style: dict[str, Any] = {"color": COLORS[kind], "marker": MARKERS[kind], "linestyle": ""}
            for is_frequent in (True, False):
                points = [each for each in own if each.method.endswith("@1") == is_frequent and each.method != UNIFORM]
                inside = COLORS[kind] if is_frequent else "none"
                _mark(ax, points, markerfacecolor=inside, alpha=0.85, **shared, **style)
            ax.plot([], [], label=kind, **style)
        ax.set(xscale="log", xlabel="time, in epochs of all the data", ylabel="test accuracy, %")
        ticks = [*FEWER_EPOCHS.values(), 60]
        ax.set_xticks(ticks, [str(tick) for tick in ticks])
        ax.minorticks_off()
        ax.legend(loc="lower right", title="open: kept, or chosen every 20 epochs")
    return figure


def _mark(ax: Axes, points: Sequence[Point], **style: Any) -> None:
    times, means = [each.epochs for each in points], [each.mean for each in points]
    ax.errorbar(times, means, [each.deviation or 0.0 for each in points], **style)
