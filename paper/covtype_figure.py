"""The figure of :mod:`~paper.covtype`, drawn from its table alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .covtype import PAPER_GAIN, CostError, median_gain
from .plots import BLACK, BLUE, ORANGE, PURPLE, VERMILLION, figure_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINES: dict[str, dict[str, Any]] = {
    "uniform": {"color": BLACK, "marker": "o", "linestyle": ":"},
    "uniform reweighted": {"color": ORANGE, "marker": "D", "linestyle": ":"},
    "paper": {"color": VERMILLION, "marker": "s", "linestyle": "--"},
    "ours": {"color": BLUE, "marker": "^", "linestyle": "-"},
    "ours reweighted": {"color": PURPLE, "marker": "D", "linestyle": "-."},
}
_BAND = (0.1, 0.9)
_ERRORS = {
    "optimised_error": "relative error,\noptimised queries",
    "random_error": "relative error,\nrandom queries",
}


def draw(rows: Sequence[CostError]) -> Figure:
    """A column for each bandwidth; errors at optimised and random queries, and the gain over uniform sampling."""
    bandwidths = sorted({row.bandwidth for row in rows}, reverse=True)
    first = rows[0]
    with figure_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(1.6 + 2.9 * len(bandwidths), 8.2), layout="constrained")
        axes = figure.subplots(3, len(bandwidths), sharex=True, sharey="row", squeeze=False)
        for column, bandwidth in zip(axes.T, bandwidths, strict=True):
            here = [row for row in rows if row.bandwidth == bandwidth]
            column[0].set_title(
                f"bandwidth {bandwidth:g}, radius {here[0].radius:.3g}\ntotal sensitivity "
                f"{here[0].total_sensitivity:.3g}, max / mean {here[0].uniform_factor:.3g}"
            )
            for ax, name in zip(column, _ERRORS, strict=False):
                _errors(ax, here, name)
            _gains(column[2], here)
            column[2].set_xlabel("points in the subset")
        axes[2, 0].annotate(  # where no line runs into it
            f"most that the paper reports, {PAPER_GAIN:g}",
            (min(row.size for row in rows), PAPER_GAIN),
            xytext=(0, 3),
            textcoords="offset points",
            size=8,
            color="#555555",
        )
        for ax, label in zip(
            axes[:, 0], (*_ERRORS.values(), "gain over uniform\n(medians, optimised)"), strict=True
        ):
            ax.set_ylabel(label)
        _ticks(axes[2, 0], sorted({row.size for row in rows}))
        figure.suptitle(
            f"RBF cost on CovType: {first.preparation} ({first.n_samples:,} x {first.n_features}).\n"
            f"Median and {_BAND[0]:.0%} to {_BAND[1]:.0%} band of {_n_draws(rows)} draws; bandwidths are in distances "
            "from the mean to the farthest row (the paper's: 1).",
            size=10,
        )
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _n_draws(rows: Sequence[CostError]) -> int:
    return len({row.seed for row in rows})


def _ticks(ax: Axes, sizes: Sequence[int]) -> None:
    ax.set_xscale("log")
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.minorticks_off()


def _errors(ax: Axes, rows: Sequence[CostError], name: str) -> None:
    sizes = sorted({row.size for row in rows})
    for method, line in _LINES.items():
        errors = np.array(
            [[getattr(r, name) for r in rows if (r.method, r.size) == (method, size)] for size in sizes]
        )
        low, high = np.quantile(errors, _BAND, axis=1)
        ax.fill_between(sizes, low, high, color=line["color"], alpha=0.13, linewidth=0)
        ax.plot(sizes, np.median(errors, axis=1), label=method, **line)
    ax.set_yscale("log")


def _gains(ax: Axes, rows: Sequence[CostError]) -> None:
    sizes = sorted({row.size for row in rows})
    for method, line in _LINES.items():
        if method == "uniform":
            continue
        gains = [median_gain(rows, rows[0].bandwidth, size, method, "optimised_error") for size in sizes]
        ax.plot(sizes, gains, **line)
    ax.axhline(1.0, color=BLACK, linewidth=0.8)
    ax.axhline(PAPER_GAIN, color="#555555", linewidth=1.0, dashes=(4, 3))
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
