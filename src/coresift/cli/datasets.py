"""``coresift datasets``: the named data sets, and where their files are."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from coresift.cli.options import AsJson, Settings


def datasets(
    settings: Settings,
    data_dir: Annotated[Path | None, typer.Option(help="The folder of the named data sets.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the data sets that 'coresift train' knows by name, and where their files are or belong."""
    from coresift.data.datasets import available_datasets

    found = available_datasets(data_dir)
    if as_json:
        settings.out.print_json(json.dumps([dataclasses.asdict(info) for info in found]))
        return
    table = Table()
    for name in ("name", "here", "what it is", "where"):
        table.add_column(name, overflow="fold")
    for info in found:
        table.add_row(info.name, "yes" if info.is_present else "no", info.description, info.where)
    settings.out.print(table)
    if not settings.quiet:
        settings.out.print(
            "'coresift train --download' downloads published files. For your own data, pass --dataset a file "
            "(.npz, .parquet, .csv) or a folder of images."
        )
