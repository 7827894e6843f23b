"""Tables of a page: those of ``bench table``, and lists of names and values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..bench.layout import Block, Cell
from .svg import Markup, join, tag

_HYPHEN = re.compile(r"^-(?=[\d.])")
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(%|s|min|h|points)\b|%)|(?<=[±]) (?=\d)|(?<=\d) (?=±)")


def block_table(block: Block) -> Markup:
    """A part of the table of results, with its notes; wide ones scroll within themselves."""
    has_titles = any(group.title for group in block.groups)
    head = []
    if has_titles:
        cells = [tag("th", group.title, colspan=len(group.names), class_="group") for group in block.groups]
        head.append(tag("tr", tag("td"), *cells))
    names = [
        tag("th", name, scope="col", class_="first" if i == 0 else None)
        for group in block.groups
        for i, name in enumerate(group.names)
    ]
    head.append(tag("tr", tag("th", "method", scope="col"), *names))
    firsts = [i == 0 for group in block.groups for i, _ in enumerate(group.names)]
    bodies = []
    for section in block.sections:
        lines = [
            tag(
                "tr",
                tag("th", row.label, scope="row"),
                *(_cell(cell, first) for cell, first in zip(row.cells, firsts, strict=True)),
            )
            for row in section
        ]
        bodies.append(tag("tbody", *lines))
    table = tag("table", tag("thead", *head), *bodies, class_="results")
    return join([scrolling(block.title, table), tag("p", prose(" ".join(block.notes)), class_="note")])


def _cell(cell: Cell, is_first: bool) -> Markup:
    classes = " ".join(
        name
        for name, holds in (("first", is_first), ("quiet", cell.is_quiet), ("best", cell.is_bold))
        if holds
    )
    text = _HYPHEN.sub("\N{MINUS SIGN}", cell.text.strip())
    return tag("td", text, class_=classes or None)


def scrolling(label: str, content: Markup) -> Markup:
    """What may be wider than the page; reached and scrolled by keys as well."""
    return tag("div", content, class_="scroll", tabindex=0, role="region", aria_label=label)


def pairs(values: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> Markup:
    """Names and values."""
    items = values.items() if isinstance(values, Mapping) else values
    return tag(
        "dl",
        *(tag("div", tag("dt", str(key).replace("_", " ")), tag("dd", said(value))) for key, value in items),
    )


def said(value: Any) -> str:
    """A value of a record as text, cut where it would fill the page."""
    if isinstance(value, dict):
        text = ", ".join(f"{key} {said(one)}" for key, one in value.items()) or "none"
    elif isinstance(value, list | tuple):
        text = ", ".join(said(one) for one in value) or "none"
    elif isinstance(value, float):
        text = f"{value:g}"
    else:
        text = "none" if value is None else str(value)
    return text if len(text) <= 400 else text[:399] + "\N{HORIZONTAL ELLIPSIS}"


def bullets(sentences: Iterable[str]) -> Markup:
    """A list."""
    return tag("ul", *(tag("li", sentence) for sentence in sentences), class_="sentences")


def prose(text: str) -> str:
    """Numbers stay with their units when a line breaks."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)
