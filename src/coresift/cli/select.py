"""``coresift select``: the rows worth keeping, from files of any size."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from coresift.coresets.options import Plan
    from coresift.rows.rows import Rows

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and stop.")]


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
    model: Annotated[
        str | None,
        typer.Option(
            "--for",
            help="Choose rows to fit a linear model to, instead: logistic, squared, squared_hinge, poisson or huber. "
            "--label names the classes or targets.",
        ),
    ] = None,
    alpha: Annotated[float, typer.Option(help="With --for: the penalty, as in 'fit'.")] = 1e-4,
    threshold: Annotated[float | None, typer.Option(help="With --for huber: the threshold of the loss.")] = None,
    calibrate: Annotated[bool, typer.Option(help="With --for: adjust the weights to the sums over all rows.")] = True,
    materialize: Annotated[
        bool, typer.Option("--materialize", help="Write the chosen rows themselves, with their weights.")
    ] = False,
    dry_run: DryRun = False,
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
      coresift select train.parquet --for logistic --label y -b 1% -o coreset.parquet

    The output has the columns row, file and weight (and label); Coreset.load reads it.
    """
    check_out(out, dry_run)
    run: Callable[..., Any]
    made: Plan[Any]
    if model is not None:
        from coresift.cli.fit import plan_rows
        from coresift.coresets.linear_fit import run_fit

        run = partial(run_fit, keep_labels=True)
        more = {"model": model, "alpha": alpha, "threshold": threshold, "calibrate": calibrate}
        names = {"columns": columns, "embedding": embedding, "weight": weight, "image_size": image_size}
        made = plan_rows(settings, data, label, names, options, more)
    else:
        from coresift.coresets.options import plan
        from coresift.coresets.selecting import run

        if lost := settings.given & {"alpha", "threshold", "calibrate"}:
            raise typer.BadParameter(f"--{min(lost)} goes with --for")
        made = plan(open_input(data, columns, embedding, weight, label, image_size), options)
    carry_out(settings, made, run, lambda chosen: chosen.save(out, materialize=materialize), out, dry_run, as_json)


def check_out(out: Path | None, dry_run: bool = False, suffixes: tuple[str, ...] = (".parquet", ".npz")) -> None:
    """Refuse a missing or unusable output before anything is read."""
    if out is None and not dry_run:
        raise typer.BadParameter("--out FILE is needed (or --dry-run)")
    if out is not None:
        from coresift.coresets.files import check_output

        check_output(out, suffixes=suffixes)


def refuse_input(out: Path, rows: Rows) -> None:
    """Refuse to overwrite a file that is read."""
    from coresift._errors import InvalidInputError

    if out.exists() and any(Path(file).resolve() == out.resolve() for file in rows.files):
        raise InvalidInputError(f"{out}: is part of the input; name another file.")


def carry_out(
    settings: Settings,
    made: Plan[Any],
    run: Callable[..., Any],
    save: Callable[[Any], None],
    out: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Print the plan; unless it is a dry run, run it with progress bars, save and print the result."""
    from coresift.coresets.files import check_output

    if dry_run:
        settings.show(made.lines(), made.as_dict() if as_json else None)
        return
    assert out is not None
    refuse_input(out, made.rows)
    check_output(out, n_rows=made.budget or 0, suffixes=(out.suffix.lower(),))
    if not settings.quiet:
        for line in made.lines():
            settings.err.print(line, markup=False)
    with settings.bars() as on_pass:
        found = run(made, on_pass=on_pass)
    save(found)
    settings.show([*found.lines(), f"Written: {out}"], {**found.as_dict(), "out": str(out)} if as_json else None)
