"""A table of results for the terminal: blocks of aligned columns, as many side by side as the width holds."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from .layout import Block, Cell, Columns, blocks, colophon, heading, state
from .summary import Summary

Style = str  # "", "bold", "dim"
Line = list[tuple[str, Style]]

_BETWEEN_GROUPS = " │"
_ASCII = str.maketrans(
    {"─": "-", "│": "|", "—": "-", "±": "+-"}
    | {raised: f"^{digit}" for digit, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
)


def terminal_lines(summary: Summary, width: int = 100, *, is_ascii: bool = False) -> list[Line]:
    """The whole table, as pieces of text with a style each; lines of at most ``width``, unless a column is wider."""
    full, brief = blocks(summary), blocks(summary, is_brief=True)
    if is_ascii:
        full, brief = ([_in_ascii(block) for block in each] for each in (full, brief))
    lines: list[Line] = [[(heading(summary), "bold")]]
    for sentence in state(summary):
        lines += _wrapped(sentence, width)
    for block, shorter in zip(full, brief, strict=True):
        # All that the paper prints is shown, unless less of it has room beside ours.
        is_better = len(_parts(shorter, width)) < len(_parts(block, width))
        lines += [[], *_block_lines(shorter if is_better else block, width)]
    lines.append([])
    for sentence in colophon(summary):
        lines += _wrapped(sentence, width)
    if is_ascii:  # rules and titles; what is in columns has its width already
        lines = [[(text.translate(_ASCII), style) for text, style in line] for line in lines]
    return [_stripped(line) for line in lines]


def terminal_text(summary: Summary, width: int = 100) -> str:
    """The same without styles."""
    lines = ("".join(text for text, _ in line) for line in terminal_lines(summary, width))
    return "\n".join(lines) + "\n"


def _block_lines(block: Block, width: int) -> Iterator[Line]:
    yield [(block.title, "bold")]
    for position, part in enumerate(_parts(block, width)):
        if position:
            yield []
        yield from _part_lines(block, part)
    for note in block.notes:
        yield from _wrapped(note, width)


def _in_ascii(block: Block) -> Block:
    """For terminals that know no other characters: replaced before columns are aligned, as some take two."""
    sections = tuple(
        tuple(
            replace(row, cells=tuple(replace(cell, text=cell.text.translate(_ASCII)) for cell in row.cells))
            for row in section
        )
        for section in block.sections
    )
    return replace(block, sections=sections)


def _part_lines(block: Block, part: Sequence[_Group]) -> Iterator[Line]:
    label = _label_width(block)

    def across(texts: Callable[[int], tuple[str, Style]], first: str, style: Style) -> Line:
        line: Line = [(first.ljust(label), style)]
        for position, group in enumerate(part):
            if position:
                line.append((_BETWEEN_GROUPS, "dim"))
            for column, width in zip(group.columns, group.widths, strict=True):
                text, of_text = texts(column)
                line += [(" " * (width - len(text)), ""), (text, of_text)]
        return line

    if any(group.title for group in part):
        top: Line = [(" " * label, "")]
        for position, group in enumerate(part):
            top.append((_BETWEEN_GROUPS if position else "", "dim"))
            top.append((group.title.center(group.span), "dim"))
        yield top
    names = [name for group in block.groups for name in group.names]
    yield across(lambda column: (names[column], "dim"), "method", "dim")
    rule: Line = [("─" * (label + sum(group.span for group in part) + _between(part)), "dim")]
    for section in block.sections:
        yield rule
        for row in section:
            yield across(lambda column, row=row: _styled(row.cells[column]), row.label, "")  # type: ignore[misc]
    yield rule


@dataclass(frozen=True)
class _Group:
    """Columns that stay together: positions of their cells, and widths that include the gap before each."""

    title: str
    columns: tuple[int, ...]
    widths: tuple[int, ...]

    @property
    def span(self) -> int:
        return sum(self.widths)


def _parts(block: Block, width: int) -> list[list[_Group]]:
    """Groups that stand side by side; a group that is too wide alone is taken apart column by column."""
    label = _label_width(block)
    groups: list[_Group] = []
    start = 0
    for group in block.groups:
        columns = tuple(range(start, start + len(group.names)))
        start += len(group.names)
        whole = _group(block, group, columns)
        is_fitting = label + whole.span <= width
        groups += [whole] if is_fitting else [_group(block, group, (column,)) for column in columns]
    parts: list[list[_Group]] = [[]]
    for each in groups:
        longer = [*parts[-1], each]
        if parts[-1] and label + sum(group.span for group in longer) + _between(longer) > width:
            parts.append([each])
        else:
            parts[-1] = longer
    return parts


def _group(block: Block, group: Columns, columns: tuple[int, ...]) -> _Group:
    names = [name for each in block.groups for name in each.names]
    gap = 1 if group.is_narrow else 2
    widths = []
    for column in columns:
        texts = [row.cells[column].text for section in block.sections for row in section]
        widths.append(gap + max(map(len, [names[column], *texts])))
    widths[0] += max(0, gap + len(group.title) - sum(widths))  # a title may be wider than what is under it
    return _Group(group.title, columns, tuple(widths))


def _between(part: Sequence[_Group]) -> int:
    return len(_BETWEEN_GROUPS) * (len(part) - 1)


def _styled(cell: Cell) -> tuple[str, Style]:
    return cell.text, "bold" if cell.is_bold else "dim" if cell.is_quiet else ""


def _label_width(block: Block) -> int:
    return max(
        len(text) for text in ["method", *(row.label for section in block.sections for row in section)]
    )


def _wrapped(text: str, width: int) -> list[Line]:
    return [[(line, "dim")] for line in textwrap.wrap(text, width, break_on_hyphens=False)]


def _stripped(line: Line) -> Line:
    """Without blanks at the end, which make a copied table wrap."""
    while line and not line[-1][0].strip():
        line.pop()
    if line:
        line[-1] = (line[-1][0].rstrip(), line[-1][1])
    return line
