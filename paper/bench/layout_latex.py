"""A table of results in LaTeX: a ``table*`` per block, with booktabs, made narrower where it would not fit."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .layout import Block, Cell, blocks, colophon, heading, state
from .summary import Summary

_SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": "$<$",
        ">": "$>$",
        "*": "$^{*}$",
        "±": r"$\pm$",
        "—": "---",
        **{raised: f"$^{{{digit}}}$" for digit, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    }
)
_FIT = r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%"


def latex_text(summary: Summary) -> str:
    """The whole table, to be read by ``\\input``; what it needs is said in its first line."""
    lines = [r"% Needs \usepackage{booktabs} and \usepackage{graphicx}."]
    assumed = [f"Assumed: {sentence}" for sentence in summary.protocol.assumptions]
    for sentence in [heading(summary), *state(summary), *colophon(summary), *assumed]:
        lines.append(f"% {' '.join(sentence.split())}")
    for block in blocks(summary):
        lines += ["", *_table(summary, block)]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return text.translate(_SPECIAL)


def _table(summary: Summary, block: Block) -> Iterator[str]:
    widths = [len(group.names) for group in block.groups]
    finished = state(summary)[0]
    title = f"{heading(summary)}: {block.title}"
    caption = " ".join([f"{title}.", finished, *block.notes])
    yield r"\begin{table*}[tbp]"
    yield r"\centering"
    yield f"\\caption[{{{escaped(title)}}}]{{{escaped(caption)}}}"
    yield r"\smallskip"
    yield f"\\label{{tab:{summary.protocol.table}-{block.name}}}"
    yield _FIT
    yield f"\\begin{{tabular}}{{l{' '.join('r' * width for width in widths)}}}"
    yield r"\toprule"
    if any(group.title for group in block.groups):
        yield from _group_titles(block)
    names = [name for group in block.groups for name in group.names]
    yield _line(["method", *map(escaped, names)])
    for section in block.sections:
        yield r"\midrule"
        for row in section:
            yield _line([escaped(row.label), *map(_cell, row.cells)])
    yield r"\bottomrule"
    yield r"\end{tabular}}"
    yield r"\end{table*}"


def _group_titles(block: Block) -> Iterator[str]:
    cells, rules = [""], []
    start = 2
    for group in block.groups:
        end = start + len(group.names) - 1
        cells.append(f"\\multicolumn{{{len(group.names)}}}{{c}}{{{escaped(group.title)}}}")
        if group.title:
            rules.append(f"\\cmidrule(lr){{{start}-{end}}}")
        start = end + 1
    yield _line(cells)
    yield " ".join(rules)


def _cell(cell: Cell) -> str:
    text = escaped(cell.text.strip())
    signed = re.fullmatch(r"([+-])(\d.*)", text)
    if signed:  # a minus, not a hyphen
        text = f"${signed[1]}${signed[2]}"
    # What is raised hangs over the edge, so that numbers align.
    text = re.sub(r"((?:\$\^\{.\}\$)+)$", r"\\rlap{\1}", text)
    return f"\\textbf{{{text}}}" if cell.is_bold else text


def _line(cells: list[str]) -> str:
    return f"{' & '.join(cells)} \\\\"
