"""Options that say what to read, shared by the commands that read files."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from coresift.rows.rows import Rows

Input = Annotated[
    str,
    typer.Argument(
        metavar="INPUT",
        help="A .npy, .npz, .csv or .parquet file, a folder or a quoted pattern of them, a folder of images, or an "
        "address such as s3://bucket/folder.",
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(help="Feature columns, separated by commas. Default: all columns of floats (CSV: of numbers)."),
]
Embedding = Annotated[str | None, typer.Option(help="A column of lists of numbers; for .npz files, the array.")]
Label = Annotated[
    str | None, typer.Option(help="The column of the labels; for image folders any word: the folder is the label.")
]
Weight = Annotated[str | None, typer.Option(help="The column of the input weights.")]
ImageSize = Annotated[int, typer.Option(min=1, help="Height and width in pixels to which images are resized.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def listed(columns: str | None) -> list[str] | None:
    """Names that are separated by commas."""
    return None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]


def open_input(
    data: str,
    columns: str | None,
    embedding: str | None,
    weight: str | None,
    label: str | None = None,
    image_size: int | None = None,
    recorded: Mapping[str, Any] | None = None,
) -> Rows:
    """Open the input; options left out are taken from the record of an earlier run, if there is one."""
    from coresift.rows.opening import open_rows

    known = recorded or {}
    names = listed(columns)
    if names is None and embedding is None:
        names, embedding = known.get("columns"), known.get("embedding")
        if names is None and embedding is None and label is None:
            label = known.get("label")  # arrays of an .npz file: the label is none of the features
    return open_rows(
        data,
        columns=names,
        embedding=embedding,
        label=label,
        weight=weight if weight is not None else known.get("weight"),
        image_size=image_size or known.get("image_size") or 32,
    )


def _on_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make the entries of a TOML file the defaults of the command's options."""
    if path is None:
        return None
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise typer.BadParameter(f"{path}: no such file") from None
    except (ValueError, RecursionError, OSError) as error:  # not TOML, not text, a number of 5,000 digits
        raise typer.BadParameter(f"{path}: {error}") from error
    known = {"input": "data"}
    for parameter in context.command.params:  # by its name and by its options: n_cells is --cells
        names = (str(parameter.name), *(flag.lstrip("-").replace("-", "_") for flag in parameter.opts))
        known |= dict.fromkeys(names, str(parameter.name))
    defaults = {}
    for key, value in entries.items():
        name = known.get(key.replace("-", "_"), "config")
        if name == "config":
            raise typer.BadParameter(f"{path}: unknown option {key!r}")
        defaults[name] = ",".join(map(str, value)) if isinstance(value, list) else value
    context.default_map = {**(context.default_map or {}), **defaults}
    return path


Config = Annotated[
    Path | None,
    typer.Option(
        is_eager=True,
        callback=_on_config,
        help="A TOML file of options (names without dashes); the command line takes precedence.",
    ),
]
