"""``python -m paper benchmark``: run benchmarks by name."""

from __future__ import annotations

from typing import Annotated

import typer

from coresift.cli.options import Settings


def benchmark(
    settings: Settings,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="By default all.")] = None,
) -> None:
    """Run benchmarks and write their page."""
    from ..benchmarks.__main__ import main

    raise typer.Exit(main(names or []))
