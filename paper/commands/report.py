"""``python -m paper report``: the results of ``python -m paper run`` as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coresift._errors import InvalidInputError
from coresift.cli.app import Settings

from .run import STUDIES

_COMMITTED = Path(__file__).parents[1] / "results"
_SUFFIXES = (".html", ".htm")
_MOST_NAMED = 20


def report(
    settings: Settings,
    results: Annotated[
        Path, typer.Argument(metavar="[RESULTS]", help="Folder of results, or of one table in it.", show_default=False)
    ] = _COMMITTED,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write, .html.")] = Path("report.html"),
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder of the data sets: adds sensitivities, images and certificates; a minute for MNIST."),
    ] = None,
) -> None:
    """Write the results as one page that needs no network and no script; by default those of paper/results.

    \b
    Examples:
      python -m paper report --out report.html
      python -m paper report my-results/mnist --data-dir data --out mnist.html

    Damaged records are named in the page and on standard error; all others are reported.
    """
    from ..plots import check_writable
    from ..report import read_results, write_report

    if out.suffix.lower() not in _SUFFIXES:
        raise InvalidInputError(f"{out}: unknown suffix {out.suffix!r} of a page; use .html")
    if data_dir is not None and not data_dir.is_dir():
        raise InvalidInputError(f"{data_dir}: no such folder; --data-dir is the folder of the data sets")
    check_writable(out)
    found = read_results(results, STUDIES)
    problems = found.problems[:_MOST_NAMED]
    if len(found.problems) > _MOST_NAMED:
        problems.append(f"and {len(found.problems) - _MOST_NAMED:,} more, see the page.")
    for problem in problems:
        settings.err.print(f"python -m paper: warning: {problem}", markup=False, soft_wrap=True)
    size = write_report(found, out, data_dir, verbose=0 if settings.quiet else 1)
    if not settings.quiet:
        shown = f"{size / 1e3:,.0f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"
        settings.out.print(f"Wrote {out} ({shown}).", soft_wrap=True, markup=False)
