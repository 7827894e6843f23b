"""What every command that draws a figure does: check the files, measure, write tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from coresift._errors import InvalidInputError
from coresift.cli.app import Settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Out = Annotated[Path, typer.Option("--out", "-o", help="The figure: .svg or .png; without a suffix, both.")]
Table = Annotated[Path | None, typer.Option(help="Where the numbers go (CSV); by default beside the figure.")]
Source = Annotated[Path | None, typer.Option("--from", help="Draw the numbers of this table; nothing is computed.")]
Seed = Annotated[int, typer.Option(min=0, help="The first of the seeds.")]
Row = TypeVar("Row")
_LONG_SECONDS = 60.0


@dataclass(frozen=True)
class Files:
    """The table that a command reads, or the files that it writes."""

    figures: list[Path]
    table: Path | None
    source: Path | None

    @classmethod
    def checked(
        cls, out: Path, table: Path | None, source: Path | None, *others: str, data: Path | None = None
    ) -> Files:
        """Check names and folders before anything is computed; ``others`` end the names of further tables."""
        from ..plots import check_writable, figure_paths, require_matplotlib

        if source is not None and data is not None:
            raise typer.BadParameter("--from computes nothing: --data and --data-dir do not go with it")
        figures = figure_paths(out)
        if table is None and source is None:
            table = out.with_suffix(".csv")
        if table is not None and table.suffix.lower() != ".csv":
            raise InvalidInputError(f"{table}: unknown suffix {table.suffix!r} of a table; use .csv")
        tables = [] if table is None else [table, *(_beside(table, end) for end in others)]
        for path in [*figures, *tables]:
            check_writable(path)
        if source is not None and not source.is_file():
            raise InvalidInputError(f"{source}: no such file")
        require_matplotlib()  # last, so that errors in the names come first
        return cls(figures, table, source)

    def read(self, kind: type[Row], end: str = "") -> list[Row] | None:
        """Return the rows of the source, or of the table beside it whose name has this end; None without a source."""
        from ..tables import read_table

        if self.source is None:
            return None
        return read_table(_beside(self.source, end) if end else self.source, kind)

    def write(self, settings: Settings, figure: Figure, rows: Sequence[Any], **others: Sequence[Any]) -> None:
        """Write tables first: a figure can be drawn again, numbers take long."""
        from ..plots import save_figure
        from ..tables import write_table

        written = []
        if self.table is not None:
            tables = {self.table: rows} | {_beside(self.table, end): each for end, each in others.items()}
            for path, each in tables.items():
                write_table(path, each)
                written.append(path)
        for path in self.figures:
            save_figure(figure, path)
        if not settings.quiet:
            names = ", ".join(map(str, [*self.figures, *written]))
            settings.out.print(f"Wrote {names}.", soft_wrap=True)


def _beside(table: Path, end: str) -> Path:
    """The name of a further table: ``a.csv`` and ``a-end.csv``."""
    return table.with_name(f"{table.stem}-{end}{table.suffix}")


def progress_bar(settings: Settings) -> Progress:
    """Make a progress bar on standard error, shown on terminals only."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    return Progress(*columns, console=settings.err, transient=True, disable=not settings.shows_progress)


def measured(
    settings: Settings,
    jobs: Mapping[str, tuple[int, Callable[[Callable[[], None]], Iterable[Row]]]],
    seconds: float = 0.0,
) -> list[Row]:
    """Run the jobs, each a number of steps and a function that takes ``on_step``, with a progress bar for each."""
    if seconds > _LONG_SECONDS and not settings.quiet:
        settings.err.print(f"This takes about {ceil(seconds / 60)} minutes on one core.")
    found: list[Row] = []
    with progress_bar(settings) as progress:
        tasks = [progress.add_task(title, total=jobs[title][0], start=False) for title in jobs]
        for task, (_, run) in zip(tasks, jobs.values(), strict=True):
            progress.start_task(task)
            found += run(partial(progress.advance, task))
    return found
