"""``coresift figure NAME``: measure, keep the numbers in a table, draw the figure from the table."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from coresift._errors import InvalidInputError
from coresift._validation import check_budget
from coresift.cli.options import Settings, command_group, with_common_options

from . import gradient_figure, network_figures
from .figures import Files, Out, Source, Table, progress_bar

if TYPE_CHECKING:
    from ..bandwidth import Measurement, Plan

_LONG_SECONDS = 60.0

app = command_group("Figures of what was measured, with the numbers behind them.", "Which figure")


def bandwidth(
    settings: Settings,
    out: Out,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder with mnist/ and covtype/; without it, the embedded digits only."),
    ] = None,
    size: Annotated[
        float, typer.Option(help="Points in a subset: a share of the rows up to 1, or a number above.")
    ] = 0.1,
    seeds: Annotated[int, typer.Option(min=1, help="How many subsets of each kind to draw.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="The first of the seeds.")] = 0,
    bandwidths: Annotated[int, typer.Option(min=2, help="How many bandwidths, from 1/8 to 8.")] = 13,
    rows: Annotated[int, typer.Option(min=2, help="Rows of a data set to use, at most.")] = 3000,
    table: Table = None,
    source: Source = None,
) -> None:
    """When does it help? Sensitivities, sizes and errors against the bandwidth."""
    from ..bandwidth import Measurement, Plan, bandwidth_grid
    from ..bandwidth_figure import draw
    from ..tables import read_table

    if source is not None and data_dir is not None:
        raise typer.BadParameter("--from computes nothing: --data-dir does not go with it")
    plan = Plan(bandwidth_grid(bandwidths), _share_or_number(size), seeds, seed)
    names = _names_found(data_dir)
    files = Files.checked(out, table, source)
    if source is not None:
        found = read_table(source, Measurement)
    else:
        found = _measured(settings, plan, names, data_dir, rows)
    files.write(settings, draw(found), main=found)


def _names_found(data_dir: Path | None) -> tuple[str, ...]:
    """The data sets to measure; their files are there."""
    from coresift.data.datasets import find_dataset

    from ..figure_data import NAMES

    names = NAMES if data_dir is not None else ("digits",)
    for name in names:
        find_dataset(name, data_dir)  # all of them, before the first is read
    return names


def _measured(
    settings: Settings, plan: Plan, names: tuple[str, ...], data_dir: Path | None, max_rows: int
) -> list[Measurement]:
    from ..bandwidth import expected_seconds, measure
    from ..figure_data import load_matrix

    sets = [load_matrix(name, data_dir, max_rows, np.random.default_rng(plan.seed)) for name in names]
    for data in sets:
        check_budget(plan.size, len(data.X))
    seconds = sum(expected_seconds(data, plan) for data in sets)
    if seconds > _LONG_SECONDS and not settings.quiet:
        settings.err.print(f"This takes about {np.ceil(seconds / 60):.0f} minutes on one core.")
    found: list[Measurement] = []
    with progress_bar(settings) as progress:
        tasks = [progress.add_task(data.title, total=plan.n_steps, start=False) for data in sets]
        for task, data in zip(tasks, sets, strict=True):
            progress.start_task(task)
            found += measure(data, plan, partial(progress.advance, task))
    return found


def _share_or_number(size: float) -> int | float:
    if size <= 1.0:
        return size
    if not size.is_integer():
        raise InvalidInputError(f"size = {size:g} must be a share of at most 1, or a whole number of points")
    return int(size)


app.command(name="bandwidth")(with_common_options(bandwidth))
network_figures.register(app)
gradient_figure.register(app)
