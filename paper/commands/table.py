"""``python -m paper table``: results beside the paper's numbers."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coresift._errors import InvalidInputError
from coresift.cli.app import AsJson, Settings

from .run import Results, Scale, TableName

if TYPE_CHECKING:
    from ..bench.summary import Summary

logger = logging.getLogger("coresift.paper")


class Format(StrEnum):
    """How a table is written."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    LATEX = "latex"
    CSV = "csv"


class Measure(StrEnum):
    """What a table is about."""

    ACCURACY = "accuracy"
    MACRO_F1 = "macro-f1"


_SUFFIXES = {".txt": Format.TERMINAL, ".md": Format.MARKDOWN, ".tex": Format.LATEX, ".csv": Format.CSV}


def table(
    settings: Settings,
    name: TableName,
    results: Results = None,
    scale: Scale = "paper",
    metric: Annotated[Measure, typer.Option(help="What to compare.")] = Measure.ACCURACY,
    format_: Annotated[
        Format | None, typer.Option("--format", "-f", help="By default the suffix of --out, or terminal.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write: .md, .tex, .csv or .txt.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show results as the paper does: accuracy, time and speed-up, beside the paper's numbers.

    \b
    Examples:
      python -m paper table mnist
      python -m paper table mnist --format markdown
      python -m paper table cifar10 --scale cpu --out cifar10.tex

    Every method is compared with adaptive random sampling that redraws as often: a paired t test over common seeds,
    corrected for the number of tests (Holm). Unfinished entries are shown as missing.
    """
    from coresift.coresets.files import write_whole

    from ..bench import formats

    if as_json and (format_ is not None or out is not None):
        raise typer.BadParameter("--json prints; it cannot be combined with --format or --out")
    kind = _format(format_, out)
    summary = stored_summary(results, name, scale, metric)
    if as_json:
        typer.echo(json.dumps(formats.as_json(summary), allow_nan=False))
        return
    console = settings.out
    is_ascii = out is None and not console.encoding.lower().startswith("utf")
    if kind is Format.TERMINAL and out is None and console.is_terminal:
        console.print(formats.terminal(summary, console.width, is_ascii=is_ascii))
        return
    writers: dict[Format, Callable[[Summary], str]] = {
        Format.TERMINAL: partial(formats.terminal_text, is_ascii=is_ascii),
        Format.MARKDOWN: formats.markdown_text,
        Format.LATEX: formats.latex_text,
        Format.CSV: formats.csv_text,
    }
    text = writers[kind](summary)
    if out is None:
        typer.echo(text.encode(), nl=False)  # UTF-8, whatever the locale
        return
    write_whole(out, lambda file: file.writelines([text.encode()]))
    if not settings.quiet:
        settings.out.print(f"Wrote {out}.", soft_wrap=True)


def _format(chosen: Format | None, out: Path | None) -> Format:
    """Choose the format, and check the file before any work."""
    if out is None:
        return chosen or Format.TERMINAL
    from ..plots import check_writable

    check_writable(out)
    if chosen is None and out.suffix.lower() not in _SUFFIXES:
        known = ", ".join(_SUFFIXES)
        raise InvalidInputError(f"{out}: unknown suffix {out.suffix!r} of a table; use {known}")
    return chosen or _SUFFIXES[out.suffix.lower()]


def stored_summary(results: Path | None, name: str, scale: str, metric: Measure = Measure.ACCURACY) -> Summary:
    """Summarise the stored records of a table; warn about those that cannot be read."""
    from ..bench.protocol import load_protocol
    from ..bench.store import RESULTS, Store
    from ..bench.summary import summarise

    protocol = load_protocol(name.lower(), scale)
    store = Store(results or RESULTS, protocol.table)
    if not store.file.exists():
        missing = store.results if not store.results.is_dir() else store.file
        raise InvalidInputError(f"{missing}: not found; 'python -m paper run {protocol.table}' creates it.")
    found = store.read()
    summary = summarise(found.records, protocol, "macro_f1" if metric is Measure.MACRO_F1 else "accuracy")
    for problem in (*found.problems, *(f"{store.file}: {each}" for each in summary.left_out.unusable)):
        logger.warning("%s", problem)
    return summary
