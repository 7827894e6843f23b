"""``coresift report``: the results of ``coresift bench run`` as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coresift._errors import InvalidInputError
from coresift.cli.options import Settings

_SUFFIXES = (".html", ".htm")
_MOST_NAMED = 20


def report(
    settings: Settings,
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="The folder of results, or that of one table in it.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write, .html.")] = Path("report.html"),
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="The folder of the data sets: adds sensitivities, images and certificates, a minute for MNIST."
        ),
    ] = None,
) -> None:
    """Write the results of 'coresift bench run' as one page that needs no network and no script.

    \b
    Examples:
      coresift report results --out report.html
      coresift report results/mnist --data-dir data --out mnist.html

    Records that are damaged are named in the page and on standard error; all others are reported.
    """
    from ..plots import check_writable
    from ..report import read_results, write_report

    if out.suffix.lower() not in _SUFFIXES:
        raise InvalidInputError(f"{out}: unknown suffix {out.suffix!r} of a page; use .html")
    if data_dir is not None and not data_dir.is_dir():
        raise InvalidInputError(f"{data_dir}: no such folder; --data-dir is the folder of the data sets")
    check_writable(out)
    found = read_results(results)
    for problem in found.problems[:_MOST_NAMED]:
        settings.err.print(f"coresift: warning: {problem}", markup=False, soft_wrap=True)
    if len(found.problems) > _MOST_NAMED:
        settings.err.print(
            f"coresift: warning: and {len(found.problems) - _MOST_NAMED:,} more, see the page."
        )
    size = write_report(found, out, data_dir, verbose=0 if settings.quiet else 1)
    if not settings.quiet:
        settings.out.print(f"Wrote {out} ({_size(size)}).", soft_wrap=True, markup=False)


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e3:,.0f} kB" if n_bytes < 1e6 else f"{n_bytes / 1e6:.1f} MB"
