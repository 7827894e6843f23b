"""``coresift select``: the rows worth keeping, from files of any size."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from coresift.cli.options import (
    AsJson,
    Columns,
    Config,
    Embedding,
    ImageSize,
    Input,
    Label,
    Settings,
    Weight,
    open_input,
)
from coresift.coresets.options import SelectOptions


def select(
    settings: Settings,
    *,
    data: Input,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write: .parquet or .npz. Needed unless --dry-run.")
    ] = None,
    columns: Columns = None,
    embedding: Embedding = None,
    label: Label = None,
    weight: Weight = None,
    image_size: ImageSize = 32,
    options: SelectOptions,
    materialize: Annotated[
        bool, typer.Option("--materialize", help="Write the chosen rows themselves, with their weights.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and stop.")] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Choose rows of files of any size, with weights.

    \b
    Examples:
      coresift select train.parquet --budget 5% --out coreset.parquet
      coresift select "shards/*.parquet" -b 100000 --label y --per-class -j 8 -o coreset.parquet
      coresift select embeddings.npy -b 1% --bandwidth median --bound cells -o coreset.npz
      coresift select s3://bucket/table --embedding vector -b 2% --engine ray -o coreset.parquet
      coresift select train.parquet --eps 0.1 --dry-run

    The output has the columns row, file and weight (and label); Coreset.load reads it.
    """
    from coresift._errors import InvalidInputError
    from coresift.coresets.files import check_output
    from coresift.coresets.options import plan
    from coresift.coresets.selecting import run

    if out is None and not dry_run:
        raise typer.BadParameter("--out FILE is needed (or --dry-run)")
    if out is not None:
        check_output(out)
    rows = open_input(data, columns, embedding, weight, label, image_size)
    made = plan(rows, options)
    if dry_run:
        _print(settings, made.lines(), made.as_dict() if as_json else None)
        return
    assert out is not None
    if out.exists() and any(Path(file).resolve() == out.resolve() for file in rows.files):
        raise InvalidInputError(f"{out}: is part of the input; name another file.")
    check_output(out, n_rows=made.budget or 0)
    if not settings.quiet:
        for line in made.lines():
            settings.err.print(line, markup=False)
    with settings.bars() as on_pass:
        chosen = run(made, on_pass=on_pass)
    chosen.save(out, materialize=materialize)
    lines = [*chosen.lines(), f"Written: {out}"]
    _print(settings, lines, {**chosen.as_dict(), "out": str(out)} if as_json else None)


def _print(settings: Settings, lines: list[str], figures: dict[str, Any] | None) -> None:
    if figures is not None:
        typer.echo(json.dumps(figures, allow_nan=False))
        return
    for line in lines:
        settings.out.print(line, markup=False)
