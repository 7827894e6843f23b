"""``python -m paper``: the paper's experiments, tables, figures and benchmarks."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from coresift.cli.app import run
from coresift.cli.options import with_common_options

from .commands.bench import app as bench
from .commands.figure import app as figures
from .commands.report import report

app = typer.Typer(
    name="python -m paper",
    help="The experiments of the paper behind coresift: runs, tables, figures, benchmarks.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(with_common_options(report))
app.add_typer(figures, name="figure")
app.add_typer(bench, name="bench")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    return run(app, argv)


if __name__ == "__main__":
    sys.exit(main())
