"""Elements of a page as text: tags whose values are escaped, axes and marks of figures in SVG.

Figures carry no colours of their own: marks have classes, and the style sheet of the page gives them a colour in
light and in dark. Text stays text, so that it can be searched and read aloud.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from unicodedata import category

from coresift._errors import InvalidInputError

FONT = 11.0  # pixels of a name in a figure, at the width that a phone shows
_LEAST_ERROR = 1e-4  # one of ten thousand test samples: below, an error is drawn as this
LETTER = 7.8  # width of a bold capital of a wide typeface: what the reader's own will be is not known


class Markup(str):
    """Text that is markup already. Every other string is escaped before it enters a page."""

    __slots__ = ()


def safe(content: object) -> str:
    """Markup as it is, anything else escaped, without characters that control (C0, halves of pairs, directions)."""
    if isinstance(content, Markup):
        return content
    text = "".join("\N{REPLACEMENT CHARACTER}" if _is_control(c) else c for c in str(content))
    return escape(text, quote=True)


def _is_control(character: str) -> bool:
    return character not in "\n\t" and category(character).startswith("C")


def tag(name: str, /, *content: object, **attributes: object) -> Markup:
    """An element. ``class_`` is the class, underscores in names are dashes, attributes of None are left out.

    A name is the program's own, never of the data: what no tag or attribute can be called is refused.
    """
    pairs = {
        key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None
    }
    for word in (name, *pairs):
        if not word.replace("-", "").isalnum():
            raise InvalidInputError(f"name = {word!r}: tags and attributes are letters, digits and dashes.")
    start = " ".join([name, *(f'{key}="{safe(_number(value))}"' for key, value in pairs.items())])
    if not content and name in _WITHOUT_CONTENT:
        return Markup(f"<{start}>" if name in _VOID else f"<{start}/>")
    return Markup(f"<{start}>{''.join(safe(part) for part in content)}</{name}>")


_VOID = frozenset({"meta", "img", "br"})
_WITHOUT_CONTENT = _VOID | {"line", "path", "rect", "circle"}


def join(parts: Iterable[object]) -> Markup:
    """One after the other."""
    return Markup("".join(safe(part) for part in parts))


def _number(value: object) -> object:
    """Two decimals are a fiftieth of a pixel, and half of the bytes."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return value


def text(x: float, y: float, content: object, class_: str | None = None, anchor: str | None = None) -> Markup:
    """A label; ``anchor`` is "middle" or "end"."""
    return tag("text", content, x=float(x), y=float(y), class_=class_, text_anchor=anchor)


def polyline(points: Iterable[tuple[float, float]], class_: str, title: str | None = None) -> Markup:
    """A line through points, with a tooltip if there is a title."""
    steps = " ".join(f"{_number(float(x))},{_number(float(y))}" for x, y in points)
    inside = [] if title is None else [tag("title", title)]
    return tag("polyline", *inside, points=steps, class_=class_)


def mark(x: float, y: float, shape: str, class_: str, size: float = 5.0) -> Markup:
    """A point: "circle", "square", "diamond" or "triangle", all of about the same area."""
    if shape == "circle":
        return tag("circle", cx=float(x), cy=float(y), r=size, class_=class_)
    corners = {
        "square": ((-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)),
        "diamond": ((0.0, -1.28), (1.28, 0.0), (0.0, 1.28), (-1.28, 0.0)),
        "triangle": ((0.0, -1.25), (1.2, 0.9), (-1.2, 0.9)),
    }[shape]
    steps = " ".join(f"{_number(x + size * dx)},{_number(y + size * dy)}" for dx, dy in corners)
    return tag("polygon", points=steps, class_=class_)


def svg(width: float, height: float, description: str, *content: object, class_: str = "plot") -> Markup:
    """A figure; the description is what is read aloud in its place."""
    return tag(
        "svg",
        tag("desc", description),
        *content,
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
        role="img",
        aria_label=description,
        class_=class_,
    )


@dataclass(frozen=True)
class Scale:
    """From values to pixels: "linear", "log", or "error", on which shares near 1 spread by the logarithm of 1 - v."""

    low: float
    high: float
    start: float
    end: float
    kind: str = "linear"

    def _bent(self, value: float) -> float:
        if self.kind == "log":
            return math.log(max(value, 1e-300))
        if self.kind == "error":
            return -math.log(max(1.0 - value, 0.5 * _LEAST_ERROR))
        return value

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        low, high = self._bent(self.low), self._bent(self.high)
        value = min(value, 1.0 - _LEAST_ERROR) if self.kind == "error" else value
        return self.start + (self.end - self.start) * (self._bent(value) - low) / (high - low)

    def ticks(self, n_most: int = 6) -> list[float]:
        """Round values within the range, few enough to be read."""
        candidates = {"linear": _linear_ticks, "log": _log_ticks, "error": _error_ticks}[self.kind]
        return candidates(self.low, self.high, n_most)


def spanning(values: Sequence[float], start: float, end: float, kind: str = "linear") -> Scale:
    """A scale that shows all values, with some room at both ends."""
    low, high = min(values), max(values)
    if kind == "log":
        room = max((high / low) ** 0.06, 1.15)
        return Scale(low / room, high * room, start, end, kind)
    if kind == "error":
        worst, best = (max(1.0 - end, _LEAST_ERROR) for end in (low, high))
        room = max((worst / best) ** 0.08, 1.08)
        return Scale(1.0 - min(worst * room, 1.0), 1.0 - best / room, start, end, kind)
    room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return Scale(low - room, high + room, start, end, kind)


def accuracy_kind(values: Sequence[float]) -> str:
    """By the error where the best are near 1 and would lie on one another; else linear."""
    return "error" if max(values) >= 0.95 and min(values) > 0.0 else "linear"


def _linear_ticks(low: float, high: float, n_most: int) -> list[float]:
    power = 10.0 ** math.floor(math.log10((high - low) / n_most))
    step = next(
        factor * power
        for factor in (1.0, 2.0, 5.0, 10.0, 20.0)
        if (high - low) / (factor * power) <= n_most or factor == 20.0
    )
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


_MANTISSAS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))  # from coarse to fine


def _log_ticks(low: float, high: float, n_most: int) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    best: list[float] = []
    for mantissas in _MANTISSAS:
        ticks = [m * 10.0**power for power in powers for m in mantissas]
        ticks = [tick for tick in ticks if low * (1.0 - 1e-9) <= tick <= high * (1.0 + 1e-9)]
        if len(best) >= 2 and len(ticks) > n_most:
            break
        best = ticks
        if len(ticks) >= min(4, n_most):
            break
    if len(best) < 3:  # within a factor of three or so: even steps
        return _linear_ticks(low, high, n_most)
    return best if len(best) <= n_most else best[:: math.ceil(len(best) / n_most)]


def _error_ticks(low: float, high: float, n_most: int) -> list[float]:
    return [1.0 - error for error in reversed(_log_ticks(1.0 - high, 1.0 - low, n_most))]


@dataclass(frozen=True)
class Frame:
    """The area of a plot in pixels."""

    width: float
    height: float
    left: float = 46.0
    right: float = 12.0
    top: float = 14.0
    bottom: float = 40.0

    @property
    def x(self) -> tuple[float, float]:
        """Left and right end of the area."""
        return self.left, self.width - self.right

    @property
    def y(self) -> tuple[float, float]:
        """Lower and upper end: values grow upward."""
        return self.height - self.bottom, self.top

    def axes(
        self,
        x: Scale,
        y: Scale,
        x_label: str,
        y_label: str,
        x_text: Callable[[float], str] = "{:g}".format,
        y_text: Callable[[float], str] = "{:g}".format,
    ) -> Markup:
        """Grid, ticks and the two labels; that of y stands above the axis, where it needs no turning of the head."""
        (left, right), (bottom, top) = self.x, self.y
        parts = []
        for value in y.ticks(5):
            at = y(value)
            parts.append(tag("line", x1=left, x2=right, y1=at, y2=at, class_="grid"))
            parts.append(text(left - 6, at + 4, y_text(_trim(value)), "tick", "end"))
        for value in x.ticks(max(2, int((right - left) / 52))):
            at = x(value)
            parts.append(tag("line", x1=at, x2=at, y1=bottom, y2=bottom + 4, class_="axis"))
            parts.append(text(at, bottom + 17, x_text(_trim(value)), "tick", "middle"))
        parts.append(tag("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis"))
        parts.append(text((left + right) / 2, bottom + 33, x_label, "label", "middle"))
        if y_label:
            parts.append(text(2, top - 8, y_label, "label"))
        return join(parts)


def _trim(value: float) -> float:
    """Without the dust of floating-point arithmetic."""
    return float(f"{value:.10g}")


Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass
class Labels:
    """Places for labels that do not lie on one another, nor on marks, as far as there is room."""

    frame: Frame
    taken: list[Box] = field(default_factory=list)
    faint: list[Box] = field(default_factory=list)  # what may be covered in need
    names: list[Box] = field(default_factory=list)  # of those taken, the labels: no leader goes through them

    def avoid(self, x: float, y: float, size: float, *, is_faint: bool = False) -> None:
        """Keep a mark free."""
        (self.faint if is_faint else self.taken).append((x - size, y - size, x + size, y + size))

    def is_free(self, box: Box, *, in_need: bool = False) -> bool:
        """Whether nothing is in the rectangle yet."""
        others = self.taken if in_need else [*self.taken, *self.faint]
        return not any(_overlap(box, other) for other in others)

    def place(self, x: float, y: float, content: str, class_: str, *, far: bool = False) -> Markup:
        """The label at the first free place around its mark, or nothing if there is none.

        ``far``: look farther away as well, with a line from there to the mark, and in need cover faint marks.
        """
        width = LETTER * len(content)
        (left, right), (bottom, top) = self.frame.x, self.frame.y
        tries = [(place, False) for place in _NEAR]
        if far:
            tries += [(place, False) for place in _FAR] + [(place, True) for place in (*_NEAR, *_FAR)]
        for (dx, dy, anchor), in_need in tries:
            ax, ay = x + dx, y + dy
            x0 = {"start": ax, "end": ax - width, "middle": ax - width / 2}[anchor]
            box = (x0, ay - FONT + 2, x0 + width, ay + 2)
            inside = box[0] >= left + 2 and box[2] <= right + 8 and box[1] >= top - 4 and box[3] <= bottom
            if not inside or not self.is_free(box, in_need=in_need):
                continue
            name = text(ax, ay, content, f"name {class_}", None if anchor == "start" else anchor)
            if (dx, dy, anchor) in _NEAR:
                self._take(box)
                return name
            end = (min(max(x, box[0]), box[2]), min(max(y, box[1] + 2), box[3] - 2))
            steps = [(x + (end[0] - x) * k / 8, y + (end[1] - y) * k / 8) for k in range(3, 8)]
            trail = [(px - 1, py - 1, px + 1, py + 1) for px, py in steps]
            if not any(_overlap(piece, other) for piece in trail for other in self.names):
                self._take(box)
                self.taken += trail  # no later label stands on the leader
                return join([polyline([(x, y), end], f"leader {class_}"), name])
        return Markup("")

    def _take(self, box: Box) -> None:
        self.taken.append(box)
        self.names.append(box)

    def below(self, y: float) -> None:
        """No label stands above this height, nor on it."""
        self.frame = replace(self.frame, top=max(self.frame.top, y + 6))


_NEAR = (
    *((9.0, 4.0, "start"), (-9.0, 4.0, "end"), (0.0, -10.0, "middle"), (0.0, 17.0, "middle")),
    *((7.0, -7.0, "start"), (-7.0, -7.0, "end"), (7.0, 15.0, "start"), (-7.0, 15.0, "end")),
)
_FAR = tuple(
    sorted(
        (
            (side * dx, up * dy, "start" if side > 0 else "end")
            for dy in (*range(24, 120, 8),)
            for up in (1.0, -1.0)
            for dx in (6.0, 24.0, 42.0, 60.0)
            for side in (1.0, -1.0)
        ),
        key=lambda place: math.hypot(place[0], place[1]),  # the nearest first
    )
)


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
