"""Coresets of the models people fit, beside uniform and stratified samples and all rows.

``python -m paper benchmark models FOLDER [--part P --parts N]`` measures what is missing and appends to
``paper/results/models/*.jsonl``; without FOLDER it writes the ``README.md`` and the figures there. ``tables.py`` says
what FOLDER holds.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from coresift.cli.app import Settings

from ...bench.store import RESULTS

OUT = RESULTS / "models"


def models(
    settings: Settings,
    folder: Annotated[Path | None, typer.Argument(help="Folder of the data; without it, write the page.")] = None,
    part: Annotated[int, typer.Option(min=0, help="Which part of the runs, from 0.")] = 0,
    parts: Annotated[int, typer.Option(min=1, help="Into how many parts to divide the runs.")] = 1,
    only: Annotated[str, typer.Option(help="'excess' or 'studies': measure these alone.")] = "",
    out: Annotated[Path, typer.Option(help="Folder of records, page and figures.", show_default=False)] = OUT,
) -> None:
    """Fit linear models, k-means and trees on subsets; or write the page of the results."""
    from ..measure import Log
    from . import excess, report, studies

    logs = {"excess": Log(out / "excess.jsonl"), "studies": Log(out / "studies.jsonl")}
    if folder is None:
        report.write(logs["excess"].records, logs["studies"].records, out)
        settings.out.print(f"Wrote {out / 'README.md'}.", soft_wrap=True)
        return
    for name, module in (("excess", excess), ("studies", studies)):
        if only in ("", name):
            logs[name].run_missing(module.runs(), partial(module.run, folder=folder), part, parts)
