"""The figure of :mod:`~paper.function_approximation`, drawn from its two tables alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .function_approximation import RINGS, SPOKES, SURFACE_NEURONS, Fit, SurfacePoint, summarise
from .plots import BLACK, BLUE, GREEN, PURPLE, VERMILLION, figure_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINES: dict[str, dict[str, Any]] = {
    "uniform": {"color": BLACK, "marker": "o", "linestyle": ":"},
    "paper": {"color": VERMILLION, "marker": "s", "linestyle": "--"},
    "ours": {"color": BLUE, "marker": "^", "linestyle": "-"},
    "ours refined": {"color": GREEN, "marker": "v", "linestyle": "-"},
    "all": {"color": PURPLE, "marker": "", "linestyle": "-", "linewidth": 0.9},
}
_DESIGN_TITLES = {"normal": "normal points", "square": "points even in a square"}
_LARGEST_SHOWN = 0.1  # errors beyond it have the last colour


def draw(fits: Sequence[Fit], points: Sequence[SurfacePoint]) -> Figure:
    """Four surfaces coloured by their error, and below them the errors of all seeds against the neurons."""
    first = fits[0]
    size = max(fit.n_points for fit in fits if fit.method == "uniform")
    with figure_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10.6, 6.4), layout="constrained")
        top, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(0.9, 1.0)).ravel()
        methods = list(dict.fromkeys(point.method for point in points))
        axes = top.subplots(1, len(methods), subplot_kw={"projection": "3d"})
        for ax, method in zip(axes, methods, strict=True):
            mesh = _surface(ax, [point for point in points if point.method == method])
            (error,) = (
                fit.rmse
                for fit in fits
                if (fit.design, fit.neurons, fit.method, fit.seed)
                == ("normal", SURFACE_NEURONS, method, first.seed)
            )
            name = f"all {first.n_samples:,} points" if method == "all" else f"{method}, {size} points"
            ax.set_title(f"{name}\nerror {error:.4f}", y=1.0)
        bar = top.colorbar(mesh, ax=axes, shrink=0.62, pad=0.02, extend="max")
        bar.set_label("|network - function|")
        panels = below.subplots(1, len(_DESIGN_TITLES), sharey=True)
        for ax, design in zip(panels, _DESIGN_TITLES, strict=True):
            _errors(ax, [fit for fit in fits if fit.design == design])
            ax.set_title(f"{_DESIGN_TITLES[design]}: mean and deviation of {_n_seeds(fits)} paired seeds")
        panels[0].set_ylabel("root mean square error\nover all the data")
        handles, labels = panels[0].get_legend_handles_labels()
        below.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _n_seeds(fits: Sequence[Fit]) -> int:
    return len({fit.seed for fit in fits})


def _surface(ax: Any, points: Sequence[SurfacePoint]) -> Any:
    """Height is the network's value, colour its error; the disc holds nearly all the data."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    x, y, value, truth = (
        np.array([getattr(point, name) for point in points]).reshape(RINGS, SPOKES)
        for name in ("x", "y", "value", "truth")
    )
    norm, colours = Normalize(0.0, _LARGEST_SHOWN), colormaps["YlOrRd"]
    faces = colours(norm(np.abs(value - truth)))
    surface = ax.plot_surface(
        x,
        y,
        value,
        facecolors=faces,
        rstride=1,
        cstride=1,
        linewidth=0.15,
        edgecolor="#0000001C",
        shade=False,
    )
    surface.set_rasterized(True)  # thousands of facets would be megabytes of SVG
    ax.set_zlim(-0.35, 1.3)
    ax.set_box_aspect((1, 1, 0.75), zoom=1.3)
    ax.view_init(elev=28, azim=-58)
    ax.set_xticks([-2, 0, 2])
    ax.set_yticks([-2, 0, 2])
    ax.set_zticks([0, 1])
    ax.tick_params(labelsize=8, pad=-2)
    return ScalarMappable(norm, colours)


def _errors(ax: Axes, fits: Sequence[Fit]) -> None:
    found = summarise(fits)
    neurons = sorted({fit.neurons for fit in fits})
    at = np.arange(len(neurons))
    for shift, (method, line) in enumerate(_LINES.items()):
        rows = [row for row in found if row.method == method]
        mean, deviation = np.array([row.mean for row in rows]), np.array([row.deviation for row in rows])
        if method == "all":
            ax.plot(at, mean, label="trained on all", **line)
            continue
        # deviations on a logarithmic axis: never below zero
        low = np.minimum(deviation, 0.9 * mean)
        ax.errorbar(
            at + 0.05 * (shift - 1.5),
            mean,
            yerr=(low, deviation),
            label=method,
            capsize=2.5,
            elinewidth=1.0,
            **line,
        )
    ax.set_yscale("log")
    ax.set_xticks(at, [str(count) for count in neurons])
    ax.set_xlabel("neurons")
