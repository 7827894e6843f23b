"""Accuracy against time, and against the epoch: an overview and one panel for each budget."""

from __future__ import annotations

from collections.abc import Sequence

from ..bench.layout import percent
from .series import Look, Series, duration
from .svg import (
    FONT,
    LETTER,
    Frame,
    Labels,
    Markup,
    Scale,
    accuracy_kind,
    mark,
    polyline,
    spanning,
    svg,
    tag,
    text,
)

PANEL = (380.0, 310.0)  # a little wider than a phone shows it
_ALIKE = 14.0  # pixels between the ends of two curves that get two labels
_NARROW = 600.0
_GAP, _MOST_NAME = 10.0, 165.0  # pixels before the names of curves, and of the longest of them


def by_budget(series: Sequence[Series]) -> dict[float, list[Series]]:
    """The series of each budget below 1, which all data would be."""
    budgets = sorted({one.budget for one in series if one.budget < 1.0})
    return {budget: [one for one in series if one.budget == budget] for budget in budgets}


def whole(series: Sequence[Series]) -> Series | None:
    """The runs on all data."""
    return next((one for one in series if one.look.css == "full"), None)


def legend(series: Sequence[Series], *, has_lines: bool = False) -> Markup:
    """Every method once, with its mark, or with a piece of its line against the epoch."""
    sample = _stroke if has_lines else swatch
    looks = sorted({one.look for one in series})
    return tag("ul", *(tag("li", sample(look), look.label) for look in looks), class_="legend")


def _stroke(look: Look) -> Markup:
    inside = polyline([(1.0, 8.0), (39.0, 8.0)], look.line)
    return tag(
        "svg", inside, width="40", height="16", viewBox="0 0 40 16", class_="swatch", aria_hidden="true"
    )


def swatch(look: Look) -> Markup:
    """The mark of a method, to stand in text."""
    inside = mark(8.0, 8.0, look.shape, f"mark {look.classes}", 4.5)
    return tag(
        "svg", inside, width="16", height="16", viewBox="0 0 16 16", class_="swatch", aria_hidden="true"
    )


def overview(series: Sequence[Series], width: float, height: float, class_: str) -> Markup:
    """Every method as a line through its budgets, the emphasised ones named; all data is the dashed line."""
    frame = Frame(width, height, top=28.0, right=16.0)
    x = spanning([one.seconds for one in series], *frame.x, "log")
    values = [one.mean for one in series]
    y = spanning(values, *frame.y, accuracy_kind(values))
    parts = [_accuracy_axes(frame, x, y, "seconds of selection and training, logarithmic")]
    full = whole(series)
    if full is not None:
        parts.append(
            tag("line", x1=frame.x[0], x2=frame.x[1], y1=y(full.mean), y2=y(full.mean), class_="reference")
        )
    lines: dict[Look, list[Series]] = {}
    for one in series:
        lines.setdefault(one.look, []).append(one)
    labels = Labels(frame)
    marks, names = [], []
    for look in sorted(lines, key=lambda look: (look.is_emphasised, -look.place)):  # strong ones on top
        points = [(x(one.seconds), y(one.mean)) for one in lines[look]]
        size = 5.5 if look.is_emphasised else 4.0
        marks.append(polyline(points, f"line {look.classes}", look.label))
        for one, (at_x, at_y) in zip(lines[look], points, strict=True):
            dot = mark(at_x, at_y, look.shape, f"mark {look.classes}", size)
            marks.append(tag("g", tag("title", one.describe()), dot))
            if look.is_emphasised or width > _NARROW:
                labels.avoid(at_x, at_y, size, is_faint=not look.is_emphasised)
    if full is not None:
        names.append(labels.place(x(full.seconds), y(full.mean), full.look.label, full.look.css))
    for look in sorted(lines, key=lambda look: (not look.is_emphasised, look.place)):
        if look.is_emphasised or (width > _NARROW and not look.is_warm and look.css != "full"):
            # a line is named where it begins, at its smallest budget, or else further on
            tries = (
                labels.place(x(one.seconds), y(one.mean), look.label, look.css, far=far)
                for far in (False, True)[: 1 + look.is_emphasised]
                for one in lines[look][: 1 if far else None]
            )
            names.append(next((name for name in tries if name), Markup("")))
    for one in _guide(lines):
        names.append(labels.place(x(one.seconds), y(one.mean), percent(one.budget), "budget"))
    n_methods = len(lines)
    described = f"Accuracy against seconds of {n_methods} methods, each a line through its budgets."
    return svg(width, height, described, *parts, *marks, *names, class_=f"plot {class_}")


def time_panel(budget: float, series: Sequence[Series], full: Series | None) -> Markup:
    """One budget: every method a point with its deviation over seeds; all data is a dashed line."""
    frame = Frame(*PANEL, top=28.0)
    x = spanning([one.seconds for one in series], *frame.x, "log")
    ends = [v for one in series for v in one.ends]
    values = ends + ([] if full is None else [full.mean])
    y = spanning(values, *frame.y, accuracy_kind(values))
    parts = [_accuracy_axes(frame, x, y, "seconds, logarithmic")]
    labels = Labels(frame)
    marks = []
    for one in sorted(series, key=lambda one: (one.look.is_emphasised, -one.look.place)):
        at_x, at_y, size = x(one.seconds), y(one.mean), 6.0 if one.look.is_emphasised else 4.8
        low, high = one.ends
        bar = tag("line", x1=at_x, x2=at_x, y1=y(low), y2=y(high), class_=f"whisker {one.look.css}")
        dot = mark(at_x, at_y, one.look.shape, f"mark {one.look.classes}", size)
        marks.append(tag("g", tag("title", one.describe()), bar, dot))
        labels.avoid(at_x, at_y, size - 0.5, is_faint=not one.look.is_emphasised)
    if full is not None:
        said = f"FULL {100 * full.mean:.2f} %, {duration(full.seconds)}"
        parts.append(_reference(frame, y(full.mean), said, full.describe(), labels))
        if all(one.mean < full.mean for one in series):
            labels.below(y(full.mean))  # what is below all data is named below it
    ordered = sorted(series, key=lambda one: (not one.look.is_emphasised, one.look.is_warm, -one.mean))
    names = [
        labels.place(x(one.seconds), y(one.mean), one.look.label, one.look.css, far=one.look.is_emphasised)
        for one in ordered
    ]
    described = f"Accuracy against seconds at {percent(budget)}. " + ". ".join(
        one.describe() for one in series
    )
    return svg(*PANEL, described, *parts, *marks, *names)


def curve_panel(budget: float, series: Sequence[Series], full: Series | None) -> Markup | None:
    """One budget: mean accuracy after each epoch, from the least to the largest run shaded for the emphasised."""
    drawn = [one for one in series if has_curve(one)]
    if not drawn:
        return None
    longest = max(len(one.look.label) for one in drawn)
    frame = Frame(*PANEL, top=28.0, right=min(LETTER * longest, _MOST_NAME) + _GAP)
    x = Scale(0.0, max(one.mean_curve[-1][0] for one in drawn), *frame.x)
    values = [point[1] for one in drawn for point in one.mean_curve]
    values += [high for one in drawn if _is_shaded(one) for _, _, _, high in one.mean_curve]
    # not FULL's accuracy in the table, which is of the whole test set, while curves are of a part of it
    level = None if full is None or not full.mean_curve else full.mean_curve[-1][1]
    values += [] if level is None else [level]
    kind = accuracy_kind(values)
    y = spanning([max(v, _lowest(values)) for v in values], *frame.y, kind)
    parts = [_accuracy_axes(frame, x, y, "epoch")]
    if level is not None:
        title = f"FULL at the end of its curve: {100 * level:.2f} %"
        parts.append(_reference(frame, y(level), "FULL", title, Labels(frame), is_left=True))
    lines, ends = [], []
    for one in sorted(drawn, key=lambda one: (one.look.is_emphasised, -one.look.place)):
        shown = [point for point in one.mean_curve if point[1] >= y.low]
        if _is_shaded(one) and shown:
            band = [(x(e), y(high)) for e, _, _, high in shown]
            band += [(x(e), y(max(low, y.low))) for e, _, low, _ in reversed(shown)]
            corners = " ".join(f"{a:.1f},{b:.1f}" for a, b in band)
            lines.append(tag("polygon", points=corners, class_=f"band {one.look.css}"))
        lines.append(polyline([(x(e), y(v)) for e, v, _, _ in shown], one.look.line, one.describe()))
        ends.append((y(one.mean_curve[-1][1]), one.look))
    described = f"Accuracy against the epoch at {percent(budget)} of {len(drawn)} methods."
    return svg(*PANEL, described, *parts, *lines, *_end_names(frame, ends))


def has_curve(one: Series) -> bool:
    """Whether there is a line to draw against the epoch."""
    return len(one.mean_curve) > 1


def _is_shaded(one: Series) -> bool:
    return one.look.is_emphasised and one.entry.n_seeds > 1


def _end_names(frame: Frame, ends: list[tuple[float, Look]]) -> list[Markup]:
    """Names at the right ends of curves, moved apart; where there is no room, the emphasised ones only."""
    (bottom, top), right = frame.y, frame.x[1]
    n_most = int((bottom - top) / _ALIKE) + 1
    if len(ends) > n_most:
        ends = [end for end in ends if not end[1].is_warm] or ends
    chosen = sorted(ends, key=lambda end: (not end[1].is_emphasised, end[1].place))[:n_most]
    chosen.sort(key=lambda end: end[0])
    places = [place for place, _ in chosen]
    for _ in range(200):  # push neighbours apart until none is too near; the ends of the frame hold
        for i in range(len(places) - 1):
            short = _ALIKE - (places[i + 1] - places[i])
            if short > 1e-3:
                places[i] -= short / 2
                places[i + 1] += short / 2
        for i, place in enumerate(places):
            places[i] = min(max(place, top + i * 0.01), bottom)
    parts = []
    for place, (at, look) in zip(places, chosen, strict=True):
        parts.append(polyline([(right + 1, at), (right + 8, place)], f"leader {look.css}"))
        squeezed = _MOST_NAME if LETTER * len(look.label) > _MOST_NAME else None
        at_name = {"x": right + _GAP, "y": place + 4, "textLength": squeezed}
        parts.append(
            tag(
                "text",
                look.label,
                **at_name,
                lengthAdjust=squeezed and "spacingAndGlyphs",
                class_=f"name {look.css}",
            )
        )
    return parts


def _accuracy_axes(frame: Frame, x: Scale, y: Scale, x_label: str) -> Markup:
    """Accuracies in per cent; on the axis by the error, the same distance is the same factor of the error."""
    y_label = "test accuracy, %" + (" (spaced by log of error)" if y.kind == "error" else "")
    return frame.axes(x, y, x_label, y_label, y_text=lambda share: f"{100 * share:.6g}")


def _reference(
    frame: Frame, at: float, said: str, title: str, labels: Labels, is_left: bool = False
) -> Markup:
    """All data as a dashed line, named above or below it, at the end that is free."""
    left, right = frame.x
    line = tag("line", x1=left, x2=right, y1=at, y2=at, class_="reference")
    ends = ((left + 4, "start"), (right, "end"))  # curves begin low: the left is free
    for x, anchor in ends if is_left else ends[::-1]:
        for up in (-4.0, 13.0):
            start = x - LETTER * len(said) if anchor == "end" else x
            box = (start, at + up - FONT, start + LETTER * len(said), at + up + 2)
            if labels.is_free(box):
                labels.taken.append(box)
                name = text(x, at + up, said, "name full", None if anchor == "start" else anchor)
                return tag("g", tag("title", title), line, name)
    return tag("g", tag("title", title), line)


def _guide(lines: dict[Look, list[Series]]) -> list[Series]:
    """The line on which the budgets are written: of the emphasised methods the first with the most budgets."""
    strong = [series for look, series in sorted(lines.items()) if look.is_emphasised]
    return max(strong, key=len, default=[])


def _lowest(values: Sequence[float]) -> float:
    """Where a panel of curves begins: the first epochs are far below, and would flatten all that follows."""
    ordered = sorted(values)
    return ordered[len(ordered) // 20]
