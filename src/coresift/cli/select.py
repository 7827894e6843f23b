"""``coresift select``: the rows worth keeping, from files of any size."""

# ruff: noqa: RUF009 - the function called returns a field
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from coresift.cli.app import Config, Settings
from coresift.coresets.options import CLASSIFIERS, LINEAR_LOSSES, Plan, SelectOptions, option

Input = Annotated[
    str,
    typer.Argument(
        metavar="INPUT",
        help="A .npy, .npz, .csv, .tsv, .parquet or .feather file, a folder or a quoted pattern of such files, a "
        "folder of images, or an address such as s3://bucket/folder.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output if it exists.")]


@dataclass(frozen=True)
class Preparing:
    """How the columns of a table are read."""

    categorical: str | None = option(None, "Columns to read as categories, separated by commas.")
    drop: str | None = option(None, "Columns to leave out, separated by commas.")
    id: str | None = option(None, "Columns that identify rows; they are left out as well.")
    raw: bool = option(False, "Use the numbers as they are: encode, fill in and standardise nothing.")

    def preparation(self, columns: str | None = None) -> Any:
        """What :func:`coresift.open_rows` takes: None, "auto" or a preparation that is not fitted."""
        given: dict[str, Any] = {name: listed(getattr(self, name)) or [] for name in ("categorical", "drop", "id")}
        if not any(given.values()) and (columns is None or self.raw):
            return None if self.raw else "auto"
        if self.raw:
            raise typer.BadParameter("--raw does not go with --categorical, --drop or --id")
        from coresift import Preparation

        return Preparation(columns=listed(columns), **given)


@dataclass(frozen=True)
class Reading(Preparing):
    """Which columns of the input are read, and how."""

    columns: str | None = option(None, "Feature columns, separated by commas. Default: all readable ones.")
    embedding: str | None = option(None, "Column of lists of numbers; for .npz files, the name of the array.")
    weight: str | None = option(None, "Column of the weights of the rows.")
    image_size: int = option(32, "Height and width, in pixels, to which images are resized.", min=1)

    def names(self) -> dict[str, Any]:
        given = {"embedding": self.embedding, "weight": self.weight, "image_size": self.image_size}
        return {**given, "columns": listed(self.columns), "preparation": self.preparation(self.columns)}


def listed(columns: str | None) -> list[str] | None:
    """Names that are separated by commas."""
    return None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]


@dataclass(frozen=True)
class Output:
    """Where the result goes, of commands that print a plan first."""

    out: Path | None = option(None, "Output file: .parquet or .npz; for 'fit', .json.", flags=("--out", "-o"))
    force: bool = option(False, "Overwrite the output if it exists.")
    dry_run: bool = option(False, "Show what would be done, then stop.")
    as_json: bool = option(False, "Print the result as JSON.", flags=("--json",))

    def check(self, *suffixes: str) -> None:
        """Refuse a missing or unusable output before anything is read."""
        if self.out is None and not self.dry_run:
            raise typer.BadParameter("--out FILE is needed (or --dry-run)")
        if self.out is not None:
            from coresift.coresets.files import check_output

            check_output(self.out, suffixes=suffixes)
            if self.out.exists() and not self.force and not self.dry_run:
                raise typer.BadParameter(f"{self.out}: exists already; --force overwrites it")

    def carry_out(
        self,
        settings: Settings,
        made: Plan[Any],
        run: Callable[..., Any],
        save: Callable[[Any], None],
        notes: Callable[[Any], list[str]] = lambda found: [],
    ) -> None:
        """Print the plan; unless it is a dry run, run it with progress bars, save and print the result."""
        from coresift.coresets.files import check_output, refuse_input

        if self.dry_run:
            settings.show(made.lines(), made.as_dict() if self.as_json else None)
            return
        assert self.out is not None
        refuse_input(self.out, made.rows)
        check_output(self.out, n_rows=made.budget or 0, suffixes=(self.out.suffix.lower(),))
        if not settings.quiet:
            for line in made.lines():
                settings.err.print(line)
        with settings.bars() as on_pass:
            found = run(made, on_pass=on_pass)
        save(found)
        figures = {**found.as_dict(), "out": str(self.out)} if self.as_json else None
        settings.show(found.lines(), figures, [*notes(found), f"Written: {self.out}"])


def select(
    settings: Settings,
    *,
    data: Input,
    output: Output,
    label: Annotated[str | None, typer.Option(help="Column of the labels; for folders of images, any word.")] = None,
    target: Annotated[str | None, typer.Option(help="Column of the numbers that a regression predicts.")] = None,
    reading: Reading,
    options: SelectOptions,
    materialize: Annotated[bool, typer.Option("--materialize", help="Also write the chosen rows themselves.")] = False,
    config: Config = None,
) -> None:
    """Choose a weighted subset of rows, from files of any size.

    \b
    Examples:
      coresift select train.parquet --budget 5% --out coreset.parquet
      coresift select "shards/*.parquet" -b 100000 --label y --per-class -j 8 -o coreset.parquet
      coresift select embeddings.npy -b 1% --bandwidth median --bound cells -o coreset.npz
      coresift select s3://bucket/table --embedding vector -b 2% --engine ray -o coreset.parquet
      coresift select train.parquet --eps 0.1 --dry-run
      coresift select train.parquet --label y --for boosting -b 5% -o coreset.parquet
      coresift select train.parquet --label y --strategy cover -b 1% -o coreset.parquet
      coresift select train.parquet --for logistic --label y -b 1% -o coreset.parquet

    The output has the columns row, file and weight (and label, if there is one); Coreset.load reads it.
    """
    from coresift.coresets.materialize import check_materialize
    from coresift.coresets.options import plan
    from coresift.coresets.selecting import run
    from coresift.rows.opening import open_rows

    output.check(".parquet", ".npz")
    if options.strategy == "linear" and options.model in LINEAR_LOSSES:
        if (label is None) == (target is None):
            raise typer.BadParameter("--for needs --label, the column of the classes, or --target, that of the targets")
        if options.model not in CLASSIFIERS:
            label, target = None, label or target
        elif target is not None:
            raise typer.BadParameter(f"--for {options.model} predicts classes: name their column with --label")
    if settings.given & {"loss", "bound"} and options.strategy is None:
        options = replace(options, strategy="rbf")
    names: dict[str, Any] = {"label": label, "target": target, "engine": options.engine, "workers": options.workers}
    with settings.bars(transient=True) as on_pass:
        rows = open_rows(data, **reading.names(), **names, on_pass=on_pass)
    made = plan(rows, options)
    if materialize and output.out is not None and output.out.suffix.lower() == ".parquet":
        check_materialize(made.rows)  # before the passes, not after them
    output.carry_out(settings, made, run, lambda chosen: chosen.save(output.out, materialize=materialize))
