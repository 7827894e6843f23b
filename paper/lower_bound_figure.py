"""The figure of :mod:`~paper.lower_bound`, drawn from its two tables alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from paper.circle import lower_bound_circle

from .lower_bound import CircleSensitivities, SubsetError
from .plots import BLACK, BLUE, LINES, ORANGE, SKY, VERMILLION, banded, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINES: dict[tuple[str, str], dict[str, Any]] = {
    ("circle", "uniform"): LINES["uniform"],
    ("circle", "ours"): LINES["ours"] | {"color": VERMILLION},
    ("disc", "uniform"): LINES["uniform"] | {"color": SKY},
    ("disc", "ours"): LINES["ours"],
}
_PICTURED = 24


def draw(rows: Sequence[SubsetError], circles: Sequence[CircleSensitivities]) -> Figure:
    """Draw the circle, its sensitivities, and the errors of subsets beside those of a disc."""
    with new_figure(10.8, 3.9) as figure:
        picture, middle, right = figure.subplots(1, 3, width_ratios=(0.85, 1.0, 1.15))
        _picture(picture)
        _sensitivities(middle, pd.DataFrame(circles))
        _errors(right, pd.DataFrame(rows))
    return figure


def _picture(ax: Axes) -> None:
    X = lower_bound_circle(_PICTURED)
    reach, half = float(np.linalg.norm(X[0])), 0.5 * float(np.linalg.norm(X[1] - X[0]))
    around = np.linspace(0.0, 2.0 * np.pi, 200)
    ax.fill(reach * np.cos(around), reach * np.sin(around), color="#F2F2F2", zorder=0)
    for x, y in X:  # half the spacing: discs that touch
        ax.plot(x + half * np.cos(around), y + half * np.sin(around), color=SKY, linewidth=0.9)
    ax.plot(*X.T, "o", color=BLACK, markersize=3.5)
    ax.plot(X[:2, 0], X[:2, 1], color=VERMILLION, linewidth=1.6)
    ax.annotate(r"$\sqrt{\ln n}$", X[:2].mean(axis=0), xytext=(-44, -3), textcoords="offset points", color=VERMILLION)
    ax.set_aspect("equal")
    ax.set_title(f"n = {_PICTURED} points, neighbours $\\sqrt{{\\ln n}}$ apart;\ngrey: the ball of queries")
    ax.grid(visible=False)


def _sensitivities(ax: Axes, circles: pd.DataFrame) -> None:
    n = circles["n_samples"]
    ax.plot(n, circles["largest"], color=BLUE, marker="^", label="largest")
    ax.plot(n, circles["smallest"], color=ORANGE, marker="v", linestyle="--", label="smallest")
    ax.axhline(0.5, color=VERMILLION, linewidth=1.2, label="lower bound 1/2")
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set(ylim=(0.0, 1.05), xlabel="n, points on the circle", ylabel="exact sensitivity")
    ax.set_title("every sensitivity exceeds 1/2:\nthe total grows like n")
    ax.legend(loc="lower left")


def _errors(ax: Axes, table: pd.DataFrame) -> None:
    n = table["n_samples"].iloc[0]
    table = table.assign(share=100.0 * table["size"] / n, found=table["found"].clip(lower=1e-3))  # 0 is at the foot
    errors = table.pivot(index="share", columns=["data", "method", "seed"], values="found").sort_index(axis=1)
    for (data, method), line in _LINES.items():
        here = errors[data, method]
        banded(ax, here.median(axis=1), here.min(axis=1), here.max(axis=1), label=f"{data}, {method}", **line)
    ax.axhline(1.0, color=BLACK, linewidth=0.8)
    ax.set_yscale("log")
    ax.set(ylim=(8e-4, 60.0), xlabel="points kept, per cent", ylabel="worst relative error found")
    ax.set_title(f"n = {n}: median and range of {table['seed'].nunique()} draws")
    ax.legend(loc="lower left", ncols=2, bbox_to_anchor=(0.0, 0.03))
