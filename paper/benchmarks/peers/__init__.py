"""Other packages and coresift on the same arrays: time, memory and quality."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coresift.cli.app import Settings

_HERE = Path(__file__).parent
_FIGURES = _HERE.parents[2] / "docs" / "figures"


def peers(
    settings: Settings,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder that has mnist/ and covtype/; without it these are left out.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Two small data sets, into --out only.")] = False,
    limit: Annotated[float, typer.Option(help="Seconds of processor time for one choice.")] = 60.0,
    out: Annotated[Path | None, typer.Option(help="Folder of runs, page and figure.")] = None,
    methods: Annotated[list[str] | None, typer.Option("--method", help="Method to run; repeat for more.")] = None,
    cases: Annotated[list[str] | None, typer.Option("--case", help="Data set to use; repeat for more.")] = None,
) -> None:
    """Measure what is missing, and write the page and the figure."""
    from . import data, report, running
    from .methods import METHODS

    unknown = sorted(set(methods or ()) - METHODS.keys())
    if unknown:
        raise typer.BadParameter(f"unknown method {', '.join(unknown)}; choose from {', '.join(METHODS)}")
    folder = out or (Path("build/peers") if quick else _HERE)
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [case for case in (data.QUICK if quick else data.CASES) if not cases or case.name in cases]
    log = running.Log(folder / "runs.jsonl")
    say = settings.err.print
    running.run(chosen, log, data_dir=data_dir, limit=limit, methods=methods or list(METHODS), say=say)
    report.write(log.records, folder, figures=_FIGURES if folder == _HERE else folder)
    settings.out.print(f"Wrote {folder / 'RESULTS.md'}.", soft_wrap=True)
