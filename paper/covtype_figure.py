"""The figure of :mod:`~paper.covtype`, drawn from its table alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from .covtype import METHODS, PAPER_GAIN, CostError, median_gains
from .plots import BLACK, GREY, LINES, banded, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAND = (0.1, 0.9)
_ERRORS = {"optimised_error": "relative error,\noptimised queries", "random_error": "relative error,\nrandom queries"}


def draw(rows: Sequence[CostError]) -> Figure:
    """Draw a column a bandwidth: errors at optimised and random queries, and the gain over uniform sampling."""
    table = pd.DataFrame(rows)
    bandwidths = sorted(table["bandwidth"].unique(), reverse=True)
    sizes = sorted(table["size"].unique())
    with new_figure(1.6 + 2.9 * len(bandwidths), 8.2) as figure:
        axes = figure.subplots(3, len(bandwidths), sharex=True, sharey="row", squeeze=False)
        for column, bandwidth in zip(axes.T, bandwidths, strict=True):
            here = table[table["bandwidth"] == bandwidth]
            first = here.iloc[0]
            column[0].set_title(
                f"bandwidth {bandwidth:g}, radius {first['radius']:.3g}\ntotal sensitivity "
                f"{first['total_sensitivity']:.3g}, max / mean {first['uniform_factor']:.3g}"
            )
            for ax, name in zip(column, _ERRORS, strict=False):
                _errors(ax, here, name)
            _gains(column[2], here)
            column[2].set_xlabel("points in the subset")
        axes[2, 0].annotate(  # where no line runs into it
            f"most that the paper reports, {PAPER_GAIN:g}",
            (sizes[0], PAPER_GAIN),
            xytext=(0, 3),
            textcoords="offset points",
            size=8,
            color=GREY,
        )
        labels = (*_ERRORS.values(), "gain over uniform\n(medians, optimised)")
        for ax, label in zip(axes[:, 0], labels, strict=True):
            ax.set_ylabel(label)
        axes[2, 0].set_xscale("log")
        axes[2, 0].set_xticks(sizes, [str(size) for size in sizes])
        axes[2, 0].minorticks_off()
        figure.suptitle(
            f"RBF cost on CovType: {rows[0].preparation} ({rows[0].n_samples:,} x {rows[0].n_features}).\n"
            f"Median and {_BAND[0]:.0%} to {_BAND[1]:.0%} band of {table['seed'].nunique()} draws; bandwidths are in "
            "distances from the mean to the farthest row (the paper's: 1).",
            size=10,
        )
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(METHODS))
    return figure


def _errors(ax: Axes, here: pd.DataFrame, name: str) -> None:
    errors = here.pivot(index="size", columns=["method", "seed"], values=name)
    for method in METHODS:
        low, high = (errors[method].quantile(end, axis=1) for end in _BAND)
        banded(ax, errors[method].median(axis=1), low, high, label=method, **LINES[method])
    ax.set_yscale("log")


def _gains(ax: Axes, here: pd.DataFrame) -> None:
    gains = median_gains(here, "optimised_error")
    for method in [method for method in METHODS if method != "uniform"]:
        ax.plot(gains.index, gains[method], **LINES[method])
    ax.axhline(1.0, color=BLACK, linewidth=0.8)
    ax.axhline(PAPER_GAIN, color=GREY, linewidth=1.0, dashes=(4, 3))
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
