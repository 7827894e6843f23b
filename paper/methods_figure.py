"""Accuracy of all methods against the time they take, drawn from the records of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .bench.summary import FULL, Entry, Summary
from .plots import BLACK, BLUE, GREEN, ORANGE, VERMILLION, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS: dict[str, tuple[str, ...]] = {
    "uniform": ("RANDOM", "ADAPTIVE-RANDOM", "STRATIFIED", "RS2"),
    "inputs: sensitivities, geometry": (
        *("RBF", "COVER", "FIXED-CORESET", "K-CENTER", "HERDING", "FACILITY-LOCATION", "GRAPH-CUT"),
    ),
    "scores of a short training": (
        *("EL2N", "GRAND", "FORGETTING", "MARGIN", "ENTROPY", "LEAST-CONFIDENCE", "AUM", "CCS", "MODERATE"),
    ),
    "gradients": ("CRAIG", "CRAIGPB", "GRADMATCH", "GRADMATCHPB", "GLISTER", "ADAPTIVE-CORESET"),
    "what training sees": ("ADAPTIVE-CORESET-SEEN", "LOSSLESS", "INFOBATCH", "TRIM", "AUTO"),
}
MARKERS = dict(zip(KINDS, "o^sDv", strict=True))
COLORS = dict(zip(KINDS, (BLACK, BLUE, ORANGE, VERMILLION, GREEN), strict=True))
_DARK = {ORANGE: "#9A6700"}  # of text, which needs more contrast than marks
_TICKS = (4, 5, 6, 8, 10, 15, 20)
_SIZE = 7.0  # of numbers, in points
_ANGLES = sorted(np.linspace(0.0, 2.0 * np.pi, 16, endpoint=False), key=lambda angle: abs(np.sin(angle)))
_STEPS = [(distance, angle) for distance in (9.5, 11, 14, 18, 24, 30) for angle in _ANGLES]  # beside the bars first


def kind_of(name: str) -> str:
    """Find the kind of a method; raise an error that says where to enter it."""
    for kind, names in KINDS.items():
        if name in names:
            return kind
    raise KeyError(f"{name} is of no kind: add it to KINDS in paper/methods_figure.py")


def draw(summary: Summary, budget: float) -> Figure:
    """Draw the mean over seeds, and its deviation, against the time of selection and training; FULL is left out.

    Marks are numbered by accuracy, from the best on; the key at the right has the names.
    """
    points = [summary.at(method, budget) for method in summary.methods if method.name != FULL]
    found = [each for each in points if each.mean is not None and each.seconds is not None]
    found.sort(key=lambda each: -(each.mean or 0.0))
    with new_figure(7.6, 5.4) as figure:
        ax, key = figure.subplots(1, 2, width_ratios=[3.1, 1])
        for kind in KINDS:
            own = [each for each in found if kind_of(each.method.name) == kind]
            times, means = [each.seconds or 0.0 for each in own], [each.mean or 0.0 for each in own]
            style: dict[str, Any] = {"color": COLORS[kind], "marker": MARKERS[kind], "linestyle": ""}
            errors = [each.deviation or 0.0 for each in own]
            ax.errorbar(times, means, errors, elinewidth=0.8, markersize=5, alpha=0.85, **style)
        ax.set(xscale="log", xlabel="seconds of selection and training, one core", ylabel="test accuracy, %")
        low, high = ax.get_xlim()
        ax.set_xticks([tick for tick in _TICKS if low <= tick <= high])
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.minorticks_off()
        _write_key(key, found)
        figure.draw_without_rendering()  # the layout decides where marks are on the page
        _number(ax, found)
    return figure


def _number(ax: Axes, found: Sequence[Entry]) -> None:
    """Write the number of each mark where no mark and no other number is, as near as possible."""
    scale = ax.figure.dpi / 72
    marks = ax.transData.transform([(each.seconds or 0.0, each.mean or 0.0) for each in found]) / scale
    taken = [(mark, np.array([4.0, 4.0])) for mark in marks]  # centres and half sizes of boxes, in points
    for place, (each, mark) in enumerate(zip(found, marks, strict=True), start=1):
        half = np.array([0.34 * _SIZE * len(str(place)) + 0.5, 0.45 * _SIZE])
        for distance, angle in _STEPS:
            shift = distance * np.array([np.cos(angle), np.sin(angle)])
            if all((np.abs(mark + shift - centre) >= half + other).any() for centre, other in taken):
                break
        taken.append((mark + shift, half))
        line = {"arrowstyle": "-", "lw": 0.4, "color": "#888888", "shrinkA": 0, "shrinkB": 2} if distance > 14 else None
        style: dict[str, Any] = {"size": _SIZE, "ha": "center", "va": "center", "arrowprops": line}
        style |= {"color": _text_color(kind_of(each.method.name)), "textcoords": "offset points"}
        ax.annotate(str(place), (each.seconds or 0.0, each.mean or 0.0), xytext=tuple(shift), **style)


def _text_color(kind: str) -> str:
    return _DARK.get(COLORS[kind], COLORS[kind])


def _write_key(key: Axes, found: Sequence[Entry]) -> None:
    key.axis("off")
    lines: list[tuple[str, str, bool]] = []
    for kind in KINDS:
        own = [(place, each) for place, each in enumerate(found, start=1) if kind_of(each.method.name) == kind]
        lines.append((kind, kind, True))
        lines += [(kind, f"{place}  {each.method}", False) for place, each in own]
    for place, (kind, text, is_title) in enumerate(lines):
        y = 1.0 - place / len(lines)
        style: dict[str, Any] = {"transform": key.transAxes, "va": "top", "size": 7.5, "color": _text_color(kind)}
        key.text(-0.02 if is_title else 0.06, y, text, weight="bold" if is_title else "normal", **style)
        if is_title:
            key.plot(
                [-0.08], [y - 0.012], marker=MARKERS[kind], color=COLORS[kind], transform=key.transAxes, clip_on=False
            )
