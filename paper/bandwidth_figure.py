"""The figure of :mod:`~paper.bandwidth`, drawn from its table alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .bandwidth import AS_GOOD, Measurement
from .plots import BLACK, BLUE, GREY, LINES, ORANGE, SHADE, TINT, VERMILLION, banded, new_figure, true_spans

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

_LARGEST = 1e30  # infinity cannot be drawn, but what is far above the frame can
_LEGEND_HEIGHT = 1.6  # inches
_ERROR_RANGE = (3e-6, 30.0)
_ERROR_TICKS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


@dataclass(frozen=True, eq=False)
class _Column:
    """One data set."""

    table: pd.DataFrame
    each: pd.DataFrame  # a row a bandwidth, for what belongs to the bandwidth
    methods: list[str]

    @classmethod
    def of(cls, table: pd.DataFrame) -> _Column:
        capped = table.replace(np.inf, _LARGEST).sort_values("bandwidth", kind="stable")
        methods = [method for method in LINES if method in set(table["method"])]
        return cls(capped, capped.groupby("bandwidth").first(), methods)

    @property
    def title(self) -> str:
        first = self.table.iloc[0]
        return f"{first['title']}\n{first['n_samples']:,} x {first['n_features']}, subsets of {first['size']:,}"

    def errors(self, name: str, method: str) -> pd.DataFrame:
        """Errors of a method, a row a bandwidth and a column a seed."""
        return self.table[self.table["method"] == method].pivot(index="bandwidth", columns="seed", values=name)

    @property
    def is_hopeless(self) -> np.ndarray:
        """Where even the best method's certificate exceeds 1."""
        certified = [self.errors("certified", method).mean(axis=1) for method in self.methods]
        return np.asarray(np.min(certified, axis=0) > 1.0)


def draw(rows: Sequence[Measurement]) -> Figure:
    """Draw a column a data set, a single one as a square: sensitivities, sizes, certified error, error found."""
    table = pd.DataFrame(rows)
    columns = [_Column.of(table[table["dataset"] == name]) for name in table["dataset"].unique()]
    n_rows, n_columns = (len(_PANELS), len(columns)) if len(columns) > 1 else (2, 2)
    height = 2.2 * n_rows
    with new_figure(max(7.6, 1.0 + 2.8 * n_columns), height + _LEGEND_HEIGHT) as figure:
        panels, below = figure.subfigures(2, 1, height_ratios=[height, _LEGEND_HEIGHT], squeeze=False).ravel()
        axes = panels.subplots(n_rows, n_columns).reshape(len(_PANELS), len(columns))
        for row, (label, panel) in zip(axes, _PANELS, strict=True):
            for ax, column in zip(row, columns, strict=True):
                _frame(ax, column)
                panel(ax, column)
            row[0].set_ylabel(label.format(first=rows[0]))
            _share_heights(row)
        if len(columns) == 1:
            panels.suptitle(columns[0].title.replace("\n", ": "), size=10.5)
        else:
            for ax, column in zip(axes[0], columns, strict=True):
                ax.set_title(column.title)
        for ax in axes.ravel()[-n_columns:]:
            ax.set_xlabel("bandwidth / distance\nof the farthest point")
        for ax in axes.ravel()[:-n_columns]:
            ax.tick_params(labelbottom=False)
        _legends(below, axes[:, 0])
    return figure


def _share_heights(row: Sequence[Axes]) -> None:
    """Use the same range for one quantity of all data sets, with numbers at the left only."""
    limits = np.array([ax.get_ylim() for ax in row])
    for ax in row:
        ax.set_ylim(limits[:, 0].min(), limits[:, 1].max())
    for ax in row[1:]:
        ax.tick_params(labelleft=False)


def _frame(ax: Axes, column: _Column) -> None:
    """Draw the regions, and the two bandwidths that have a name."""
    x = column.each.index.to_numpy()
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xlim(x[0], x[-1])
    ax.set_xticks([2.0**k for k in range(-3, 4) if x[0] <= 2.0**k <= x[-1]])
    ax.minorticks_off()
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}" if value >= 1 else f"1/{1 / value:g}")
    hopeless = column.is_hopeless
    as_good = (column.each["uniform_factor"] <= AS_GOOD).to_numpy()
    for flags, colour in ((hopeless, SHADE), (as_good & ~hopeless, TINT)):
        for left, right in true_spans(list(x), list(flags)):
            ax.axvspan(left, right, color=colour, linewidth=0, zorder=0)
    for at, dashes in ((1.0, (4, 3)), (column.table["median_distance"].iloc[0], (1, 2))):
        ax.axvline(at, color=GREY, linewidth=1.0, dashes=dashes, zorder=1)


def _sensitivities(ax: Axes, column: _Column) -> None:
    each = column.each
    ax.plot(each.index, each["total_sensitivity"], color=BLUE, marker="^", label="total")
    ax.plot(each.index, each["uniform_factor"], color=ORANGE, marker="o", label="max / mean")
    ax.set_ylim(bottom=0.8)


def _sizes(ax: Axes, column: _Column) -> None:
    ours = column.each["size_needed"]
    ax.plot(ours.index, column.each["plain_size_needed"], color=BLACK, linestyle=":", label="uniform")
    ax.plot(ours.index, ours, color=BLUE)
    for argument in dict.fromkeys(("dimension-free", "covering", *column.each["argument"])):
        face = "white" if argument == "covering" else BLUE
        here = ours[column.each["argument"] == argument]
        marks: dict[str, Any] = {"color": BLUE, "markerfacecolor": face, "markersize": 6}
        ax.plot(here.index, here, "^", label=f"ours ({argument})", **marks)
    ax.axhline(column.table["n_samples"].iloc[0], color=VERMILLION, linewidth=1.2, label="n: above it, no gain")
    ax.set_ylim(300, 1e9)


def _errors(name: str) -> Callable[[Axes, _Column], None]:
    def panel(ax: Axes, column: _Column) -> None:
        for method in column.methods:
            errors = column.errors(name, method)
            low, high = errors.min(axis=1), errors.max(axis=1)
            banded(ax, errors.mean(axis=1), low, high, label=method, **LINES[method])
        ax.axhline(1.0, color=BLACK, linewidth=0.8)
        ax.set_yticks(_ERROR_TICKS)
        ax.minorticks_off()
        ax.set_ylim(*_ERROR_RANGE)

    return panel


_PANELS: tuple[tuple[str, Callable[[Axes, _Column], None]], ...] = (
    ("(a) sensitivities", _sensitivities),
    ("(b) draws for error {first.eps:g}\n(all queries, risk {first.delta:g})", _sizes),
    ("(c) relative error, certified", _errors("certified")),
    ("(d) relative error, found", _errors("found")),
)


def _legends(below: SubFigure, axes: Sequence[Axes]) -> None:
    """Explain under the panels the lines of each kind of panel, then what is behind them."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    grey: dict[str, Any] = {"color": GREY, "linewidth": 1.0}
    behind = {
        "the paper's bandwidth": Line2D([], [], dashes=(4, 3), **grey),
        "median distance": Line2D([], [], dashes=(1, 2), **grey),
        "nothing is guaranteed:\nevery certificate > 1": Patch(facecolor=SHADE),
        f"uniform is as good as ours:\nmax / mean <= {AS_GOOD:g}": Patch(facecolor=TINT, edgecolor="#CCCCCC"),
    }
    groups: dict[str, tuple[Sequence[Any], Sequence[str]]] = {
        "(a)": axes[0].get_legend_handles_labels(),
        "(b)": axes[1].get_legend_handles_labels(),
        "(c), (d): mean, range": axes[2].get_legend_handles_labels(),
        "behind the lines": (list(behind.values()), list(behind)),
    }
    for left, (title, (handles, labels)) in zip((0.0, 0.17, 0.43, 0.69), groups.items(), strict=True):
        below.legend(handles, labels, title=title, loc="upper left", bbox_to_anchor=(left, 1.0), alignment="left")
