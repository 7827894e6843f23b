"""What every command that draws a figure does: check the files first, write tables, then figures, say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from coresift._errors import InvalidInputError
from coresift.cli.options import Settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Out = Annotated[Path, typer.Option("--out", "-o", help="The figure: .svg or .png; without a suffix, both.")]
Table = Annotated[Path | None, typer.Option(help="Where the numbers go (CSV); by default beside the figure.")]
Source = Annotated[
    Path | None, typer.Option("--from", help="Draw the numbers of this table; nothing is computed.")
]


@dataclass(frozen=True)
class Files:
    """The files that a command writes."""

    figures: list[Path]
    table: Path | None

    @classmethod
    def checked(cls, out: Path, table: Path | None, source: Path | None, *others: str) -> Files:
        """Names and folders are looked at before anything is computed; ``others`` are ends of further tables' names."""
        from ..plots import check_writable, figure_paths, require_matplotlib

        figures = figure_paths(out)
        if table is None and source is None:
            table = out.with_suffix(".csv")
        if table is not None and table.suffix.lower() != ".csv":
            raise InvalidInputError(f"{table}: unknown suffix {table.suffix!r} of a table; use .csv")
        files = cls(figures, table)
        for path in [*figures, *files.tables(*others)]:
            check_writable(path)
        if source is not None and not source.is_file():
            raise InvalidInputError(f"{source}: no such file")
        require_matplotlib()  # last: what is wrong with the names is wrong with Matplotlib as well
        return files

    def tables(self, *others: str) -> list[Path]:
        """The table and its companions."""
        return [] if self.table is None else [self.table, *(companion(self.table, end) for end in others)]

    def write(self, settings: Settings, figure: Figure, **tables: Sequence[Any]) -> None:
        """Tables first: a figure can be drawn again, numbers take long. ``main`` is the table, others beside it."""
        from ..plots import save_figure
        from ..tables import write_table

        written = []
        for end, rows in tables.items():
            if self.table is not None:
                path = self.table if end == "main" else companion(self.table, end)
                write_table(path, rows)
                written.append(path)
        for path in self.figures:
            save_figure(figure, path)
        if not settings.quiet:
            names = ", ".join(map(str, [*self.figures, *written]))
            settings.out.print(f"Wrote {names}.", soft_wrap=True)


def companion(table: Path, end: str) -> Path:
    """The name of a further table beside one: ``a.csv`` and ``a-end.csv``."""
    return table.with_name(f"{table.stem}-{end}{table.suffix}")


def progress_bar(settings: Settings) -> Progress:
    """A bar on standard error, for those who look at it."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    return Progress(*columns, console=settings.err, transient=True, disable=not settings.shows_progress)
