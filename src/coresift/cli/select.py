"""``coresift select``: the rows worth keeping, from files of any size."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from coresift.cli.inputs import (
    AsJson,
    Columns,
    Config,
    Embedding,
    ImageSize,
    Input,
    Label,
    Weight,
    open_input,
)
from coresift.cli.options import Settings


def _bandwidth(text: str | None) -> Any:
    """None, "median" or a number."""
    if text is None or text in ("median", "none"):
        return None if text == "none" else text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"--bandwidth {text!r} is neither 'median', 'none' nor a number") from None


def _as_option(message: str) -> str:
    """A complaint of the library about a parameter, with the name that it has on the command line."""
    return re.sub(r"^(?:n_)?([a-z]\w*)(?= ?= )", lambda name: f"--{name[1].replace('_', '-')}", message)


def select(
    settings: Settings,
    data: Input,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file to write: .parquet or .npz. Needed unless --dry-run."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", "-b", help="Rows to choose: 5%, 0.05 or 1000. Or give --eps.")
    ] = None,
    columns: Columns = None,
    embedding: Embedding = None,
    label: Label = None,
    per_class: Annotated[
        bool, typer.Option("--per-class", help="A coreset for each label, sizes in proportion to its rows.")
    ] = False,
    min_per_class: Annotated[
        int, typer.Option(min=0, help="With --per-class: the least rows of a class.")
    ] = 0,
    weight: Weight = None,
    loss: Annotated[
        str, typer.Option(autocompletion=lambda: ["gaussian", "laplacian"], help="gaussian or laplacian.")
    ] = "gaussian",
    bandwidth: Annotated[
        str | None,
        typer.Option(help="A number in the units of the data, 'median', or 'none': the farthest row."),
    ] = None,
    radius: Annotated[float, typer.Option(help="Radius of the ball of queries, in bandwidths.")] = 1.0,
    bound: Annotated[
        str,
        typer.Option(
            autocompletion=lambda: ["auto", "closed-form", "cells", "exact", "paper", "lemma"],
            help="auto, closed-form, cells, exact, paper or lemma; laplacian: auto, cells, exact or paper.",
        ),
    ] = "auto",
    cells: Annotated[int, typer.Option(min=1, help="Cells of the bound 'cells'.")] = 64,
    method: Annotated[
        str | None,
        typer.Option(
            autocompletion=lambda: ["keys", "systematic", "iid"],
            help="keys (default), systematic or iid (default with --eps).",
        ),
    ] = None,
    eps: Annotated[
        float | None, typer.Option(help="Instead of a budget: a relative error to guarantee.")
    ] = None,
    delta: Annotated[float, typer.Option(help="With --eps: the probability of missing it.")] = 0.05,
    queries: Annotated[
        int, typer.Option(min=0, help="Random queries to compare at, in a last pass; 0: none.")
    ] = 32,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same rows, whatever the workers.")] = 0,
    max_memory: Annotated[
        str | None, typer.Option(help="Refuse to start if more is needed, such as 2GB.")
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", "-j", min=1, help="Processes that read and compute.")
    ] = 1,
    engine: Annotated[
        str,
        typer.Option(
            autocompletion=lambda: ["local", "ray"],
            help="local, or ray (joins RAY_ADDRESS or starts by itself).",
        ),
    ] = "local",
    image_size: ImageSize = 32,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Scale the weights to sum to the weight of the rows.")
    ] = False,
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
    from coresift.coresets import Options, check_output, run
    from coresift.coresets.selecting import plan

    if out is None and not dry_run:
        raise typer.BadParameter("--out FILE is needed (or --dry-run)")
    if out is not None:
        check_output(out)
    options = Options(
        budget=budget,
        loss=loss,
        bandwidth=_bandwidth(bandwidth),
        radius=radius,
        bound=bound,
        n_cells=cells,
        method=method,
        eps=eps,
        delta=delta,
        per_class=per_class,
        min_per_class=min_per_class,
        normalize=normalize,
        n_queries=queries,
        seed=seed,
        workers=workers,
        engine=engine,
        max_memory=max_memory,
    )
    try:
        options.check_alone()
    except InvalidInputError as error:  # of the options themselves: wrong usage, whatever the data
        raise typer.BadParameter(_as_option(str(error))) from error
    source = open_input(data, columns, embedding, weight, label, image_size)
    made = plan(source, options)
    if dry_run:
        _print(settings, made.lines(), made.as_dict() if as_json else None)
        return
    assert out is not None
    if out.exists() and any(Path(file).resolve() == out.resolve() for file in source.files):
        raise InvalidInputError(f"{out}: is part of the input; name another file.")
    check_output(out, n_rows=made.options.budget or 0)
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
