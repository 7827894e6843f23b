"""A table of results in Markdown, with the assumptions behind it."""

from __future__ import annotations

from collections.abc import Iterator

from .layout import Block, Cell, blocks, heading, state
from .paper import REFERENCE
from .summary import Summary


def markdown_text(summary: Summary) -> str:
    """The whole table."""
    lines = [f"# {_escaped(heading(summary))}", "", _escaped(" ".join(state(summary))), ""]
    for block in blocks(summary):
        lines += [f"## {_escaped(block.title)}", "", *_table(block), ""]
        lines += [_escaped(" ".join(block.notes)), ""]
    if summary.paper.sources:
        lines += ["## The paper's tables", "", _escaped(f"{REFERENCE}:"), ""]
        lines += [f"- {_escaped(source.caption)} (`{source.label}`)" for source in summary.paper.sources]
        lines.append("")
    if summary.protocol.assumptions:
        why = (
            "What the paper does not print, and is assumed here:"
            if summary.paper.sources
            else "Declared here:"
        )
        lines += ["## Assumptions", "", why, ""]
        lines += [f"- {_escaped(sentence)}" for sentence in summary.protocol.assumptions]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _table(block: Block) -> Iterator[str]:
    titles = [f"{group.title} {name}".strip() for group in block.groups for name in group.names]
    yield _line(["method", *map(_escaped, titles)])
    yield _line(["---", *("--:" for _ in titles)])
    for section in block.sections:
        for row in section:
            yield _line([_escaped(row.label), *map(_cell, row.cells)])


def _cell(cell: Cell) -> str:
    text = _escaped(cell.text.strip())
    return f"**{text}**" if cell.is_bold else text


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """Nothing in it is markup, nor the end of a cell."""
    for character in "\\`*_[]<>|#":
        text = text.replace(character, "\\" + character)
    return " ".join(text.split())
