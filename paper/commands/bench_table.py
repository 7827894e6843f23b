"""``coresift bench table``: what came out, beside what the paper prints."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from coresift._errors import InvalidInputError
from coresift.cli.inputs import AsJson
from coresift.cli.options import Settings

if TYPE_CHECKING:
    from ..bench.summary import Summary

logger = logging.getLogger(__name__)

_FILE_WIDTH = 100  # of a table as text in a file, or where the width of the terminal is not known


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


_SUFFIXES = {
    ".txt": Format.TERMINAL,
    ".md": Format.MARKDOWN,
    ".tex": Format.LATEX,
    ".csv": Format.CSV,
}


def _names() -> list[str]:
    from ..bench.protocol import table_names

    return list(table_names())


def table(
    settings: Settings,
    name: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", autocompletion=_names, help="mnist, cifar10, cifar100, imagenet, ..."
        ),
    ],
    results: Annotated[Path, typer.Option(help="The folder of 'coresift bench run'.")] = Path("results"),
    scale: Annotated[
        str, typer.Option(help="Of runs at another scale than the paper's: its name.")
    ] = "paper",
    metric: Annotated[Measure, typer.Option(help="What to compare.")] = Measure.ACCURACY,
    format_: Annotated[
        Format | None,
        typer.Option("--format", "-f", help="By default that of the suffix of --out, or terminal."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A file to write: .md, .tex, .csv or .txt.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Results as the paper lays them out: accuracy, time, speed-up, with its figures beside ours.

    \b
    Examples:
      coresift bench table mnist
      coresift bench table mnist --format markdown
      coresift bench table cifar10 --scale cpu --out cifar10.tex

    Every method is compared with adaptive random sampling, which redraws as often: a paired t test over the seeds that
    both were run with, corrected for the number of tests (Holm). What is not finished is shown as missing.
    """
    from ..bench import layout_csv

    if as_json and (format_ is not None or out is not None):
        raise typer.BadParameter("--json prints: --format and --out do not go with it")
    kind = _format(format_, out)
    summary = _summary(results, name, scale, metric)
    if as_json:
        typer.echo(json.dumps(layout_csv.as_json(summary), allow_nan=False))
    elif out is not None:
        from coresift.coresets.files import write_whole

        text = _writer(kind)(summary)
        write_whole(out, lambda file: file.writelines([text.encode()]))
        if not settings.quiet:
            settings.out.print(f"Wrote {out}.", soft_wrap=True)
    elif kind is Format.TERMINAL:
        _show(settings, summary)
    else:
        typer.echo(_writer(kind)(summary).encode(), nl=False)  # UTF-8, whatever the locale


def _format(chosen: Format | None, out: Path | None) -> Format:
    """What to write; names are looked at before any work."""
    if out is None:
        return chosen or Format.TERMINAL
    from ..plots import check_writable

    check_writable(out)
    if chosen is not None:
        return chosen
    if out.suffix.lower() not in _SUFFIXES:
        raise InvalidInputError(
            f"{out}: unknown suffix {out.suffix!r} of a table; use {', '.join(_SUFFIXES)}"
        )
    return _SUFFIXES[out.suffix.lower()]


def _summary(results: Path, name: str, scale: str, metric: Measure) -> Summary:
    from ..bench.protocol import load_protocol
    from ..bench.store import Store
    from ..bench.summary import summarise

    protocol = load_protocol(name.lower(), scale)
    run = f"'coresift bench run {protocol.table}' makes it"
    if not results.is_dir():
        raise InvalidInputError(f"{results}: no such folder; {run}.")
    store = Store(results, protocol.table)
    if not store.file.exists():
        raise InvalidInputError(f"{store.file}: no such file; {run}.")
    found = store.read()
    for problem in found.problems:
        logger.warning(problem)
    summary = summarise(found.records, protocol, "macro_f1" if metric is Measure.MACRO_F1 else "accuracy")
    for problem in summary.left_out.unusable:
        logger.warning("%s: %s", store.file, problem)
    return summary


def _writer(kind: Format) -> Callable[[Summary], str]:
    from ..bench.layout_csv import csv_text
    from ..bench.layout_latex import latex_text
    from ..bench.layout_markdown import markdown_text
    from ..bench.layout_terminal import terminal_text

    writers: dict[Format, Callable[[Summary], str]] = {
        Format.TERMINAL: lambda summary: terminal_text(summary, _FILE_WIDTH),
        Format.MARKDOWN: markdown_text,
        Format.LATEX: latex_text,
        Format.CSV: csv_text,
    }
    return writers[kind]


def _show(settings: Settings, summary: Summary) -> None:
    from ..bench.layout_terminal import terminal_lines

    console = settings.out
    width = console.width if console.is_terminal else _FILE_WIDTH
    for line in terminal_lines(summary, width, is_ascii=not console.encoding.lower().startswith("utf")):
        console.print(Text.assemble(*line), soft_wrap=True)
