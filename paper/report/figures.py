"""The figures of a page: accuracy against time, by method, and against the epoch; sensitivities of the data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, Locator, LogLocator, MaxNLocator, NullLocator

from ..bench.layout import percent
from .inputs import Inputs
from .series import Look, Series, duration, on_all_data
from .svg import LIGHT, Sheet, new_axes, new_figure, page_style

WIDE, NARROW = (940.0, 430.0), (344.0, 330.0)  # the second on phones
PANEL = (380.0, 290.0)  # a little wider than a phone shows it
_ROW = 16.0  # height of a method in a panel, in pixels
_LONGEST_NAME = 26
_LETTER = 6.8  # width of a bold capital
_LEAST_ERROR = 1e-4  # one of ten thousand test samples: smaller errors are drawn here
_ROUND_TICKS = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)
_TICKS = (*_ROUND_TICKS, 0.4, 0.6, 0.7, 0.75, 0.85, 0.92, 0.94, 0.96, 0.97, 0.985, 0.993)
_N_BINS = {WIDE: 48, NARROW: 24}

Tips = dict[str, tuple[str, str]]


def legend(sheet: Sheet, series: Iterable[Series], *, has_lines: bool = False) -> list[tuple[Markup, str]]:
    """Return every method once, with its mark or a piece of its line against the epoch."""
    found = []
    for look in sorted({one.look for one in series}):
        figure = new_figure(40.0 if has_lines else 16.0, 16.0)
        ends, style = ([0.02, 0.98], _line(look)) if has_lines else ([0.5], _mark(look, 8.0))
        figure.add_artist(Line2D(ends, [0.5] * len(ends), **style))
        found.append((sheet.svg(figure, css="swatch"), look.label))
    return found


def _line(look: Look) -> dict[str, Any]:
    bold = look.is_emphasised
    width, alpha = (2.6, 1.0) if bold else (1.3, 0.75)
    return {"color": LIGHT[look.css], "linewidth": width, "alpha": alpha, "linestyle": look.dashes}


def _mark(look: Look, size: float) -> dict[str, Any]:
    colour = LIGHT[look.css]
    face, edge, width = (LIGHT["paper"], colour, 1.8) if look.is_warm else (colour, LIGHT["paper"], 1.0)
    scale = {"D": 0.9, "s": 0.9, "^": 1.1}.get(look.marker, 1.0)  # about the same area
    return {
        "marker": look.marker,
        "markersize": size * scale,
        "linestyle": "",
        "markerfacecolor": face,
        "markeredgecolor": edge,
        "markeredgewidth": width,
    }


def overview(sheet: Sheet, series: Sequence[Series], size: tuple[float, float], css: str) -> Markup:
    """Draw every method as a line through its budgets; all data is the dashed line."""
    lines: dict[Look, list[Series]] = {}
    for one in series:
        lines.setdefault(one.look, []).append(one)
    tips: Tips = {}
    with page_style():
        figure, ax = new_axes(*size)
        _accuracy_axis(ax, "y", [one.mean for one in series])
        _seconds_axis(ax, [one.seconds for one in series])
        if full := on_all_data(series):
            ax.axhline(full.mean, color=LIGHT["full"], linewidth=1.2, dashes=(5, 4))
        for look in sorted(lines, key=lambda look: (look.is_emphasised, -look.place)):  # bold ones on top
            x, y = [one.seconds for one in lines[look]], [one.mean for one in lines[look]]
            ax.plot(x, y, **_line(look) | {"linestyle": "-"})
            for one in lines[look]:
                gid = f"tip{len(tips)}"
                ax.plot([one.seconds], [one.mean], **_mark(look, 10.0 if look.is_emphasised else 7.5), gid=gid)
                tips[gid] = (look.classes, one.describe())
        for one in _guide(lines):
            ax.annotate(percent(one.budget), (one.seconds, one.mean), xytext=(6, -14), textcoords="offset points")
    described = f"Accuracy against seconds of {len(lines)} methods, each a line through its budgets."
    return sheet.svg(figure, described, f"plot {css}", tips)


def _guide(lines: dict[Look, list[Series]]) -> list[Series]:
    """The line on which the budgets are written: of the emphasised methods the first with the most budgets."""
    return max((lines[look] for look in sorted(lines) if look.is_emphasised), key=len, default=[])


def method_panel(sheet: Sheet, budget: float, series: Sequence[Series], full: Series | None) -> Markup:
    """Draw one budget: a row a method, the most accurate at the top, with its deviation and its time."""
    rows = sorted(series, key=lambda one: (one.mean, -one.look.place))
    values = [v for one in rows for v in one.ends] + ([] if full is None else [full.mean])
    tips: Tips = {}
    with page_style():
        names = [_short(one.look.label) for one in rows]
        left = 14.0 + _LETTER * max(map(len, names))
        width = PANEL[0] - left - 58.0
        figure, ax = new_axes(PANEL[0], 52.0 + _ROW * max(len(rows), 2), left=left, right=58.0, top=8.0)
        _accuracy_axis(ax, "x", values)
        for place, one in enumerate(rows):
            tips[f"tip{place}"] = (one.look.classes, one.describe())
            ax.plot(one.ends, [place, place], color=LIGHT[one.look.css], linewidth=1.6, alpha=0.7)
            ax.plot([one.mean], [place], **_mark(one.look, 8.5), gid=f"tip{place}")
            right: Any = {"transform": ax.get_yaxis_transform(), "ha": "right", "va": "center", "fontsize": 10.5}
            ax.text(1.0 + 52.0 / width, place, duration(one.seconds) if one.seconds else "?", **right)
        ax.set_yticks(range(len(rows)), names, fontsize=10.5)
        for label, one in zip(ax.get_yticklabels(), rows, strict=True):
            label.set_color(LIGHT[one.look.css])
            label.set_fontweight("bold" if one.look.is_emphasised else "normal")
        ax.set_ylim(-0.7, len(rows) - 0.3)
        if full is not None:
            ax.axvline(full.mean, color=LIGHT["full"], linewidth=1.2, dashes=(5, 4), gid="full")
            tips["full"] = ("reference", full.describe())
    described = f"Accuracy at {percent(budget)}. " + ". ".join(one.describe() for one in rows[::-1])
    return sheet.svg(figure, described, tips=tips)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "\N{HORIZONTAL ELLIPSIS}"


def has_curve(one: Series) -> bool:
    """Whether there is a line to draw against the epoch."""
    return len(one.mean_curve) > 1


def curve_panel(sheet: Sheet, budget: float, series: Sequence[Series], full: Series | None) -> Markup | None:
    """Draw one budget: mean accuracy after each epoch; the range over runs is shaded for the emphasised ones."""
    drawn = [one for one in series if has_curve(one)]
    if not drawn:
        return None
    # Not FULL's accuracy in the table, which is on the whole test set: curves are on a part of it.
    level = None if full is None or not full.mean_curve else full.mean_curve[-1][1]
    values = [point[1] for one in drawn for point in one.mean_curve]
    values += [high for one in drawn if _is_shaded(one) for *_, high in one.mean_curve]
    values += [] if level is None else [level]
    lowest = sorted(values)[len(values) // 20]  # the first epochs are far below, and would flatten the rest
    tips: Tips = {}
    with page_style():
        figure, ax = new_axes(*PANEL)
        _accuracy_axis(ax, "y", [v for v in values if v >= lowest])
        ax.set_xlim(0.0, max(one.mean_curve[-1][0] for one in drawn))
        ax.set_xlabel("epoch")
        if level is not None:
            ax.axhline(level, color=LIGHT["full"], linewidth=1.2, dashes=(5, 4), gid="full")
            tips["full"] = ("reference", f"FULL at the end of its curve: {100 * level:.2f} %")
        for one in sorted(drawn, key=lambda one: (one.look.is_emphasised, -one.look.place)):
            gid = f"tip{len(tips)}"
            epochs, means, lows, highs = np.array(one.mean_curve).T
            ax.plot(epochs, means, **_line(one.look), gid=gid)
            tips[gid] = (f"line {one.look.css}", one.describe())
            if _is_shaded(one):
                colour = LIGHT[one.look.css]
                ax.fill_between(epochs, lows, highs, color=colour, alpha=0.15, linewidth=0, gid=f"band {gid}")
                tips[f"band {gid}"] = (f"band {one.look.css}", f"{one.look.label}: all runs")
    described = f"Accuracy against the epoch at {percent(budget)} of {len(drawn)} methods."
    return sheet.svg(figure, described, tips=tips)


def _is_shaded(one: Series) -> bool:
    return one.look.is_emphasised and one.entry.n_seeds > 1


def _accuracy_axis(ax: Axes, which: str, values: Sequence[float]) -> None:
    """Accuracies in per cent; where they near 1, equal distances are equal factors of the error."""
    low, high = min(values), max(values)
    is_error = low > 0.3 and high > 0.9
    label = "test accuracy, %" + (" (spaced by log of error)" if is_error else "")
    axis = ax.yaxis if which == "y" else ax.xaxis
    axis.grid(visible=True)
    if which == "y":
        ax.set_title(label)
    else:
        ax.set_xlabel(label)
    bend, unbend = (_log_error, _from_log_error) if is_error else (np.asarray, np.asarray)
    if is_error:
        (ax.set_yscale if which == "y" else ax.set_xscale)("function", functions=(bend, unbend))
    start, end = float(bend(low)), float(bend(high))
    margin = max(0.05 * (end - start), 0.02 if is_error else 0.002)
    limits = [float(unbend(start - margin)), float(unbend(end + margin))]
    limits[1] = min(limits[1], 1.0 - 0.5 * _LEAST_ERROR if is_error else 1.0 + 0.01)
    (ax.set_ylim if which == "y" else ax.set_xlim)(*limits)
    axis.set_minor_locator(NullLocator())
    axis.set_major_locator(_error_ticks(*limits) if is_error else MaxNLocator(5))
    axis.set_major_formatter(lambda share, _: f"{100 * share:.6g}")


def _error_ticks(low: float, high: float) -> Locator:
    """Round accuracies on the axis of log errors, as many as there is room for."""
    for choice in (_ROUND_TICKS, sorted(_TICKS)):
        inside = [tick for tick in choice if low <= tick <= high]
        if len(inside) >= 3:
            gap = (_log_error(high) - _log_error(low)) / 6.0
            kept = inside[-1:]
            for tick in reversed(inside[:-1]):
                if _log_error(kept[-1]) - _log_error(tick) >= gap:
                    kept.append(tick)
            return FixedLocator(kept)
    return MaxNLocator(4)


def _log_error(accuracy: Any) -> Any:
    return -np.log(np.maximum(1.0 - np.asarray(accuracy, float), 0.5 * _LEAST_ERROR))


def _from_log_error(bent: Any) -> Any:
    return 1.0 - np.exp(-np.asarray(bent, float))


def _seconds_axis(ax: Axes, seconds: Sequence[float]) -> None:
    low, high = min(seconds), max(seconds)
    widen = max((6.0 * low / high) ** 0.5, (high / low) ** 0.05, 1.05)  # a decade has three ticks: show some
    ax.set_xscale("log")
    ax.set_xlim(low / widen, high * widen)
    ax.set_xlabel("seconds of selection and training, logarithmic")
    steps = (1.0, 2.0, 5.0) if high / low < 30 else (1.0, 3.0) if high / low < 3000 else (1.0,)
    ax.xaxis.set_major_locator(LogLocator(subs=steps))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def histogram(sheet: Sheet, inputs: Inputs, size: tuple[float, float], css: str) -> Markup:
    """Draw how many samples have which sensitivity, relative to the mean."""
    values = inputs.sensitivities
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-6 * high:
        low, high = 0.5 * low, 1.5 * high  # all equal: one bar
    counts, edges = np.histogram(values, bins=_N_BINS[size], range=(low, high))
    tips: Tips = {}
    with page_style():
        figure, ax = new_axes(size[0], 0.6 * size[1], left=52.0)
        ax.yaxis.grid(visible=True)
        ax.set(xlabel="sensitivity over its mean", title="samples", ylim=(0.0, 1.08 * counts.max()))
        ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        ax.yaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
        least = 0.006 * counts.max()  # a single sample is still seen
        for count, left, right in zip(counts.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if count:
                gid = f"tip{len(tips)}"
                ax.bar(left, max(count, least), 0.92 * (right - left), align="edge", color=LIGHT["rbf"])[0].set_gid(gid)
                tips[gid] = ("bar rbf", f"{count:,} samples between {left:.2f} and {right:.2f} times the mean")
        ax.axvline(1.0, color=LIGHT["ink"], linewidth=1.2, dashes=(5, 4))
        ax.annotate("mean", (1.0, 1.0), xycoords=("data", "axes fraction"), xytext=(5, -4), textcoords="offset points")
    described = f"Histogram of {inputs.n_samples:,} sensitivities, from {low:.2f} to {high:.2f} times the mean."
    return sheet.svg(figure, described, f"plot {css}", tips)
