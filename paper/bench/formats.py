"""Write a table: Markdown and LaTeX by templates, CSV and JSON with pandas, the terminal with Rich."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Sequence
from typing import Any

import jinja2
import pandas as pd
from rich.box import Box
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from .layout import Block, Cell, Columns, blocks, colophon, heading, state
from .paper import REFERENCE
from .statistics import Comparison
from .summary import Entry, Summary

_RAISED = dict(enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹"))
_ASCII = str.maketrans({"—": "-", "±": "+-"} | {raised: f"^{digit}" for digit, raised in _RAISED.items()})
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#])")
_LATEX = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "—": "---"}
    | {character: f"\\{character}" for character in "{}&%$#_"}
    | {"<": "$<$", ">": "$>$", "*": "$^{*}$"}
    | {raised: f"$^{{{digit}}}$" for digit, raised in _RAISED.items()}
)
# Rules under the header and between the sections of a group of columns, and bars between groups.
_RULES = Box("    \n    \n ── \n    \n ── \n ── \n    \n    \n")
_BARS = Box("    \n  │ \n    \n  │ \n    \n    \n  │ \n    \n")
_ASCII_RULES, _ASCII_BARS = (Box(str(each).translate({9472: "-", 9474: "|"}), ascii=True) for each in (_RULES, _BARS))


def markdown(text: str) -> str:
    """Escape text for a line or a table cell of Markdown."""
    return " ".join(_MARKDOWN.sub(r"\\\1", text).split())


def latex(text: str) -> str:
    """Escape text for LaTeX."""
    return text.translate(_LATEX)


def latex_number(text: str) -> str:
    """Escape a number for LaTeX: a sign becomes a minus, and raised marks do not shift the digits."""
    text = re.sub(r"^([+-])(?=\d)", r"$\1$", latex(text.strip()))
    return re.sub(r"((?:\$\^\{.\}\$)+)$", r"\\rlap{\1}", text)


_OPTIONS: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
_LATEX_MARKS = {
    "block_start_string": "<%",
    "block_end_string": "%>",
    "variable_start_string": "<<",
    "variable_end_string": ">>",
}


def _rendered(name: str, summary: Summary, **marks: Any) -> str:
    loader = jinja2.PackageLoader(__package__)
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, **_OPTIONS, **marks)
    environment.filters |= {"markdown": markdown, "latex": latex, "latex_number": latex_number}
    return environment.get_template(name).render(
        summary=summary,
        heading=heading(summary),
        state=state(summary),
        colophon=colophon(summary),
        blocks=blocks(summary),
        reference=REFERENCE,
    )


def markdown_text(summary: Summary) -> str:
    """Write the table as Markdown."""
    return _rendered("table.md.j2", summary)


def latex_text(summary: Summary) -> str:
    """Write the table as LaTeX, to be included by ``\\input``."""
    return _rendered("table.tex.j2", summary, **_LATEX_MARKS)


def frame(summary: Summary) -> pd.DataFrame:
    """Return one row per method and budget, finished or not; None is what is not known."""
    return pd.DataFrame([_row(summary, entry) for entry in summary.entries.values()], dtype=object)


def csv_text(summary: Summary) -> str:
    """Write the rows as CSV, with floats as ``repr`` and nothing for None."""
    return str(frame(summary).to_csv(index=False, lineterminator="\n"))


def as_json(summary: Summary) -> dict[str, Any]:
    """Return the rows, and what the table was made from."""
    protocol = summary.protocol
    return {
        "table": protocol.table,
        "title": protocol.title,
        "protocol": protocol.version,
        "scale": protocol.scale,
        "scale_title": protocol.scale_title,
        "scale_note": protocol.scale_note,
        "config": protocol.config,
        "assumptions": list(protocol.assumptions),
        "metric": summary.metric,
        "clock": summary.clock,
        "runs_finished": summary.n_finished,
        "runs_expected": summary.n_expected,
        "runs_beyond_the_protocol": summary.n_beyond,
        "seeds_expected": protocol.seeds,
        "tests": summary.n_tests,
        "left_out": vars(summary.left_out),
        "runs_by_another_clock": summary.n_other_clock,
        "machines": list(summary.machines),
        "paper_sources": [{"caption": each.caption, "label": each.label} for each in summary.paper.sources],
        "entries": frame(summary).to_dict("records"),
    }


def _row(summary: Summary, entry: Entry) -> dict[str, Any]:
    protocol, printed = summary.protocol, entry.printed
    found = entry.comparison or Comparison(0)
    return {
        "table": protocol.table,
        "protocol": protocol.version,
        "scale": protocol.scale,
        "method": str(entry.method),
        "strategy": entry.method.name,
        "select_every": entry.method.select_every,
        "budget": entry.budget,
        "metric": summary.metric,
        "seeds": entry.n_seeds,
        "seeds_expected": protocol.seeds_of(entry.method.name),
        "mean_percent": entry.mean,
        "deviation_percent": entry.deviation,
        "clock": summary.clock if entry.n_timed else None,
        "runs_timed": entry.n_timed,
        "selection_seconds": entry.selection,
        "training_seconds": entry.training,
        "total_seconds": entry.seconds,
        "total_deviation_seconds": entry.seconds_deviation,
        "speed_up": entry.speed_up,
        "reference": entry.reference or None,
        "common_seeds": found.n_pairs if entry.comparison else None,
        "difference_points": found.difference,
        "difference_low_95": found.low,
        "difference_high_95": found.high,
        "effect_g": found.effect,
        "p_value": found.p_value,
        "p_holm": found.p_holm,
        "not_testable": found.reason or None,
        "paper_accuracy_percent": printed.accuracy if printed else None,
        "paper_deviation_percent": printed.deviation if printed else None,
        "paper_hours": printed.hours if printed else None,
        "paper_speed_up": entry.printed_speed_up,
    }


def terminal(summary: Summary, width: int = 100, *, is_ascii: bool = False) -> Group:
    """Render the table for a terminal, with as many columns side by side as fit."""
    found: list[RenderableType] = [Text(heading(summary), "bold"), *_prose(state(summary))]
    for block, brief in zip(blocks(summary), blocks(summary, is_brief=True), strict=True):
        parts, fewer = (_parts(each, width, is_ascii) for each in (block, brief))
        is_better = len(fewer) < len(parts)  # the paper's digits are dropped only where that makes room
        found += [Text(""), Text(block.title, "bold")]
        for number, part in enumerate(fewer if is_better else parts):
            found += [Text(""), part] if number else [part]
        found += _prose(brief.notes if is_better else block.notes, is_ascii)
    return Group(*found, Text(""), *_prose(colophon(summary), is_ascii))


def terminal_text(summary: Summary, width: int = 100, *, is_ascii: bool = False) -> str:
    """Render without styles."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(terminal(summary, width, is_ascii=is_ascii))
    lines = console.file.getvalue().rstrip("\n").split("\n")  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _prose(sentences: Sequence[str], is_ascii: bool = False) -> list[Text]:
    return [Text(each.translate(_ASCII) if is_ascii else each, "dim") for each in sentences]


def _parts(block: Block, width: int, is_ascii: bool) -> list[Table]:
    """Set groups of columns side by side; a group that is too wide alone is split into its columns."""
    labels = _grid(block, Columns("", ("method",), is_narrow=True), [0], is_ascii)
    groups: list[Table] = []
    start = 1
    for group in block.groups:
        columns = range(start, start + len(group.names))
        start = columns.stop
        whole = _grid(block, group, columns, is_ascii)
        if _width(labels, whole) <= width:
            groups.append(whole)
        else:
            groups += [_grid(block, group, [column], is_ascii) for column in columns]
    parts: list[list[Table]] = [[labels]]
    for each in groups:
        if len(parts[-1]) > 1 and _width(*parts[-1], each) > width:
            parts.append([labels])
        parts[-1].append(each)
    return [_side_by_side(part, is_ascii) for part in parts]


def _grid(block: Block, group: Columns, columns: Sequence[int], is_ascii: bool) -> Table:
    """Lay out the given columns of a group; column 0 holds the labels."""
    table = Table(
        title=group.title or (" " if any(each.title for each in block.groups) else None),
        title_style="dim",
        header_style="dim",
        box=_ASCII_RULES if is_ascii else _RULES,
        show_edge=False,
        border_style="dim",
        padding=(0, 0, 0, 0 if group.is_narrow else 1),
        min_width=len(group.title),
    )
    names = ["method", *(name for each in block.groups for name in each.names)]
    rows = [[Cell(row.label), *row.cells] for section in block.sections for row in section]
    lasts = list(itertools.accumulate(len(section) for section in block.sections))
    texts = [[cell.text.translate(_ASCII) if is_ascii else cell.text for cell in row] for row in rows]
    # Rich strips blanks at the end of a right-justified cell, which align the digits: pad on the left instead.
    widths = [max(map(len, column)) for column in zip(names, *texts, strict=True)]
    widths[0] = 0
    for column in columns:
        table.add_column(names[column].rjust(widths[column]), no_wrap=True)
    for number, row in enumerate(rows, start=1):
        styles = ["bold" if cell.is_bold else "dim" if cell.is_quiet else "" for cell in row]
        shown = [Text(texts[number - 1][c].rjust(widths[c]), styles[c]) for c in columns]
        table.add_row(*shown, end_section=number in lasts)
    return table


def _side_by_side(grids: Sequence[Table], is_ascii: bool) -> Table:
    box = _ASCII_BARS if is_ascii else _BARS
    outer = Table(box=box, border_style="dim", show_edge=False, show_header=False, padding=(0, 1), pad_edge=False)
    outer.add_row(*grids)
    return outer


def _width(*grids: Table) -> int:
    console = Console(width=10_000)
    return Measurement.get(console, console.options, _side_by_side(grids, False)).maximum
