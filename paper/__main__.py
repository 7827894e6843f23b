"""``python -m paper``: the paper's experiments, tables, figures and benchmarks."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from coresift import __version__
from coresift.cli.app import lazy_app, run

app = lazy_app(
    "python -m paper",
    __version__,
    "The experiments of the paper behind coresift: runs, tables, figures, benchmarks.",
    {
        "run": ("paper.commands.run", "Train what is missing of a table."),
        "table": ("paper.commands.table", "Show a table beside the paper's numbers."),
        "report": ("paper.commands.report", "Write all results as one page."),
        "figure": ("paper.commands.figure", "Draw a figure."),
        "one-coreset": ("paper.commands.one_coreset", "Train three networks on draws from one fit."),
        "benchmark": ("paper.commands.benchmark", "Run a benchmark by name."),
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    return run(app, argv)


if __name__ == "__main__":
    sys.exit(main())
