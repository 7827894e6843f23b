"""The figure of :mod:`~paper.lower_bound`, drawn from its two tables alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from coresift.core.circle import lower_bound_circle

from .lower_bound import CircleSensitivities, SubsetError
from .plots import BLACK, BLUE, ORANGE, SKY, VERMILLION, figure_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINES: dict[tuple[str, str], dict[str, Any]] = {
    ("circle", "uniform"): {"color": BLACK, "marker": "o", "linestyle": ":"},
    ("circle", "ours"): {"color": VERMILLION, "marker": "^", "linestyle": "-"},
    ("disc", "uniform"): {"color": SKY, "marker": "o", "linestyle": ":"},
    ("disc", "ours"): {"color": BLUE, "marker": "^", "linestyle": "-"},
}
_PICTURED = 24


def draw(rows: Sequence[SubsetError], circles: Sequence[CircleSensitivities]) -> Figure:
    """The circle, its sensitivities, and the errors of subsets beside those of a disc."""
    with figure_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10.8, 3.9), layout="constrained")
        picture, middle, right = figure.subplots(1, 3, width_ratios=(0.85, 1.0, 1.15))
        _picture(picture)
        _sensitivities(middle, circles)
        _errors(right, rows)
    return figure


def _picture(ax: Axes) -> None:
    X = lower_bound_circle(_PICTURED)
    reach = float(np.linalg.norm(X[0]))
    around = np.linspace(0.0, 2.0 * np.pi, 200)
    ax.fill(reach * np.cos(around), reach * np.sin(around), color="#F2F2F2", zorder=0)
    for point in X:  # half the spacing: discs that touch
        half = 0.5 * float(np.linalg.norm(X[1] - X[0]))
        ax.plot(point[0] + half * np.cos(around), point[1] + half * np.sin(around), color=SKY, linewidth=0.9)
    ax.plot(*X.T, "o", color=BLACK, markersize=3.5)
    ax.plot(X[:2, 0], X[:2, 1], color=VERMILLION, linewidth=1.6)
    ax.annotate(
        r"$\sqrt{\ln n}$", X[:2].mean(axis=0), xytext=(-44, -3), textcoords="offset points", color=VERMILLION
    )
    ax.set_aspect("equal")
    ax.set_title(f"n = {_PICTURED} points, neighbours $\\sqrt{{\\ln n}}$ apart;\ngrey: the ball of queries")
    ax.grid(visible=False)


def _sensitivities(ax: Axes, circles: Sequence[CircleSensitivities]) -> None:
    n = [row.n_samples for row in circles]
    ax.plot(n, [row.largest for row in circles], color=BLUE, marker="^", label="largest")
    ax.plot(n, [row.smallest for row in circles], color=ORANGE, marker="v", linestyle="--", label="smallest")
    ax.axhline(0.5, color=VERMILLION, linewidth=1.2, label="lower bound 1/2")
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_ylim(0.0, 1.05)
    ax.set_xlabel("n, points on the circle")
    ax.set_ylabel("exact sensitivity")
    ax.set_title("every sensitivity exceeds 1/2:\nthe total grows like n")
    ax.legend(loc="lower left")


def _errors(ax: Axes, rows: Sequence[SubsetError]) -> None:
    n = rows[0].n_samples
    for (data, method), line in _LINES.items():
        here = [row for row in rows if (row.data, row.method) == (data, method)]
        sizes = sorted({row.size for row in here})
        errors = np.array([[row.found for row in here if row.size == size] for size in sizes])
        shares = 100.0 * np.array(sizes) / n
        errors = np.maximum(errors, 1e-3)  # all the data have no error: shown at the foot
        ax.fill_between(
            shares, errors.min(axis=1), errors.max(axis=1), color=line["color"], alpha=0.15, linewidth=0
        )
        ax.plot(shares, np.median(errors, axis=1), label=f"{data}, {method}", **line)
    ax.axhline(1.0, color=BLACK, linewidth=0.8)
    ax.set_yscale("log")
    ax.set_ylim(8e-4, 60.0)
    ax.set_xlabel("points kept, per cent")
    ax.set_ylabel("worst relative error found")
    ax.set_title(f"n = {n}: median and range of {len({row.seed for row in rows})} draws")
    ax.legend(loc="lower left", ncols=2, bbox_to_anchor=(0.0, 0.03))
