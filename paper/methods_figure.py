"""Accuracy of all methods against the time they take, drawn from the records of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .bench.summary import FULL, Summary
from .plots import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILLION, new_figure

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
_LABELS: dict[str, tuple[float, float, str]] = {  # points from the marker to the text, and its alignment
    "ADAPTIVE-RANDOM@1": (6, 8, "right"),
    "RBF@1": (0, 8, "center"),
    "AUTO@1": (0, 10, "center"),
    "ADAPTIVE-RANDOM": (-4, -14, "center"),
    "RANDOM": (0, -15, "center"),
    "COVER": (6, -11, "left"),
    "ADAPTIVE-CORESET": (0, 9, "center"),
    "FACILITY-LOCATION": (0, -11, "center"),
    "GRADMATCHPB": (5, 7, "left"),
    "CCS": (7, -3, "left"),
    "GLISTER": (-6, 6, "right"),
    "HERDING": (7, -3, "left"),
    "GRAPH-CUT": (7, -3, "left"),
    "EL2N": (-7, -3, "right"),
}
_TICKS = (4, 5, 6, 8, 10, 15, 20)


def kind_of(name: str) -> str:
    """Find the kind of a method; raise an error that says where to enter it."""
    for kind, names in KINDS.items():
        if name in names:
            return kind
    raise KeyError(f"{name} is of no kind: add it to KINDS in paper/methods_figure.py")


def draw(summary: Summary, budget: float) -> Figure:
    """Draw the mean over seeds, and its deviation, against the time of selection and training; FULL is left out."""
    with new_figure(7.2, 4.8) as figure:
        ax = figure.subplots()
        points = [summary.at(method, budget) for method in summary.methods if method.name != FULL]
        found = [each for each in points if each.mean is not None and each.seconds is not None]
        for kind in KINDS:
            own = [each for each in found if kind_of(each.method.name) == kind]
            style: dict[str, Any] = {"color": COLORS[kind], "marker": MARKERS[kind], "linestyle": ""}
            ax.errorbar(
                [each.seconds or 0.0 for each in own],
                [each.mean or 0.0 for each in own],
                [each.deviation or 0.0 for each in own],
                label=kind,
                elinewidth=0.8,
                markersize=5.5,
                alpha=0.85,
                **style,
            )
        for each in found:
            _name(ax, str(each.method), each.seconds or 0.0, each.mean or 0.0)
        ax.set(xscale="log", xlabel="seconds of selection and training, one core", ylabel="test accuracy, %")
        low, high = ax.get_xlim()
        low *= 0.92  # room for names
        ax.set_xlim(low, high)
        ax.set_xticks([tick for tick in _TICKS if low <= tick <= high])
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.minorticks_off()
        ax.set_ylim(top=82)
        ax.legend(loc="lower left")
    return figure


def _name(ax: Axes, name: str, x: float, y: float) -> None:
    if name in _LABELS:
        right, up, side = _LABELS[name]
        ax.annotate(name, (x, y), xytext=(right, up), textcoords="offset points", ha=side, size=8, color=GREY)
