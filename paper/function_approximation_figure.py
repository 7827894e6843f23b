"""The figure of :mod:`~paper.function_approximation`, drawn from its two tables alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .function_approximation import RINGS, SPOKES, SURFACE_NEURONS, Fit, SurfacePoint, summarise
from .plots import LINES, PURPLE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_METHODS = ("uniform", "paper", "ours", "ours refined")
_DESIGN_TITLES = {"normal": "normal points", "square": "points even in a square"}
_LARGEST_SHOWN = 0.1  # errors beyond it have the last colour


def draw(fits: Sequence[Fit], points: Sequence[SurfacePoint]) -> Figure:
    """Draw four surfaces coloured by their error, and below them the errors of all seeds against the neurons."""
    table, places = pd.DataFrame(fits), pd.DataFrame(points)
    size = table.loc[table["method"] == "uniform", "n_points"].max()
    at = {"design": "normal", "neurons": SURFACE_NEURONS, "seed": fits[0].seed}
    pictured = table.loc[(table[list(at)] == pd.Series(at)).all(axis=1)].set_index("method")["rmse"]
    with new_figure(10.6, 6.4) as figure:
        top, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(0.9, 1.0)).ravel()
        methods = list(places["method"].unique())
        axes = top.subplots(1, len(methods), subplot_kw={"projection": "3d"})
        for ax, method in zip(axes, methods, strict=True):
            mesh = _surface(ax, places[places["method"] == method])
            name = f"all {fits[0].n_samples:,} points" if method == "all" else f"{method}, {size} points"
            ax.set_title(f"{name}\nerror {pictured[method]:.4f}", y=1.0)
        bar = top.colorbar(mesh, ax=axes, shrink=0.62, pad=0.02, extend="max")
        bar.set_label("|network - function|")
        panels = below.subplots(1, len(_DESIGN_TITLES), sharey=True)
        for ax, (design, title) in zip(panels, _DESIGN_TITLES.items(), strict=True):
            _errors(ax, [fit for fit in fits if fit.design == design])
            ax.set_title(f"{title}: mean and deviation of {table['seed'].nunique()} paired seeds")
        panels[0].set_ylabel("root mean square error\nover all the data")
        handles, labels = panels[0].get_legend_handles_labels()
        below.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _surface(ax: Any, points: pd.DataFrame) -> Any:
    """Height is the network's value, colour its error; the disc holds nearly all the data."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    x, y, value, truth = (points[name].to_numpy().reshape(RINGS, SPOKES) for name in ("x", "y", "value", "truth"))
    norm, colours = Normalize(0.0, _LARGEST_SHOWN), colormaps["YlOrRd"]
    faces = {"facecolors": colours(norm(np.abs(value - truth))), "rstride": 1, "cstride": 1, "shade": False}
    surface = ax.plot_surface(x, y, value, linewidth=0.15, edgecolor="#0000001C", **faces)
    surface.set_rasterized(True)  # thousands of facets would be megabytes of SVG
    ax.set_zlim(-0.35, 1.3)
    ax.set_box_aspect((1, 1, 0.75), zoom=1.3)
    ax.view_init(elev=28, azim=-58)
    ax.set(xticks=[-2, 0, 2], yticks=[-2, 0, 2], zticks=[0, 1])
    ax.tick_params(labelsize=8, pad=-2)
    return ScalarMappable(norm, colours)


def _errors(ax: Axes, fits: Sequence[Fit]) -> None:
    found = pd.DataFrame(summarise(fits)).set_index(["method", "neurons"])
    neurons = sorted({fit.neurons for fit in fits})
    at = np.arange(len(neurons))
    for shift, method in enumerate(_METHODS):
        mean, deviation = found.loc[method, "mean"], found.loc[method, "deviation"]
        low = np.minimum(deviation, 0.9 * mean)  # on a logarithmic axis: never below zero
        bars = {"yerr": (low, deviation), "capsize": 2.5, "elinewidth": 1.0}
        ax.errorbar(at + 0.05 * (shift - 1.5), mean, label=method, **LINES[method] | bars)
    ax.plot(at, found.loc["all", "mean"], label="trained on all", color=PURPLE, linewidth=0.9)
    ax.set_yscale("log")
    ax.set_xticks(at, [str(count) for count in neurons])
    ax.set_xlabel("neurons")
