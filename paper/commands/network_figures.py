"""``coresift figure function-approximation``, ``covtype`` and ``lower-bound``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.table import Table as RichTable

from coresift._validation import check_positive
from coresift.cli.options import Settings, with_common_options

from .figures import Files, Out, Source, Table, companion, progress_bar

if TYPE_CHECKING:
    from ..function_approximation import Summary

Seed = Annotated[int, typer.Option(min=0, help="The first of the seeds.")]


def function_approximation(
    settings: Settings,
    out: Out,
    seeds: Annotated[int, typer.Option(min=1, help="How many data sets, each with all methods.")] = 50,
    seed: Seed = 0,
    rows: Annotated[int, typer.Option(min=10, help="Points of a data set.")] = 10_000,
    size: Annotated[int, typer.Option(min=2, help="Points of a subset.")] = 400,
    bandwidth: Annotated[float, typer.Option(help="Of the networks and of the coresets.")] = 1.0,
    table: Table = None,
    source: Source = None,
) -> None:
    """Networks of Gaussians trained on 400 of 10,000 points, by the way these were chosen."""
    from ..function_approximation import (
        Fit,
        Plan,
        SurfacePoint,
        measure,
        summarise,
        surfaces,
    )
    from ..function_approximation_figure import draw
    from ..tables import read_table

    check_positive(bandwidth, "bandwidth")
    files = Files.checked(out, table, source, "surfaces")
    if source is not None:
        found, points = read_table(source, Fit), read_table(companion(source, "surfaces"), SurfacePoint)
    else:
        plan = Plan(n_samples=rows, size=size, bandwidth=bandwidth, n_seeds=seeds, seed=seed)
        with progress_bar(settings) as progress:
            task = progress.add_task("function approximation", total=plan.n_steps)
            found = list(measure(plan, partial(progress.advance, task)))
        points = surfaces(plan)
    files.write(settings, draw(found, points), main=found, surfaces=points)
    if not settings.quiet:
        settings.out.print(_summary_table(summarise(found)))


def _summary_table(rows: list[Summary]) -> RichTable:
    table = RichTable(title=f"Root mean square error over all points, {rows[0].n_seeds} paired seeds")
    for name in ("design", "neurons", "method", "mean", "deviation", "uniform / this", "p (paired t)"):
        table.add_column(name, justify="left" if name in ("design", "method") else "right")
    for row in rows:
        p_value = "" if row.method == "uniform" else f"{row.p_value:.1e}"
        numbers = (f"{row.mean:.4f}", f"{row.deviation:.4f}", f"{row.gain:.2f}", p_value)
        table.add_row(row.design, str(row.neurons), row.method, *numbers)
    return table


def covtype(
    settings: Settings,
    out: Out,
    data: Annotated[
        Path | None,
        typer.Option(help="A file .npz with X of 54 columns and y; without it the whole set is fetched."),
    ] = None,
    rows: Annotated[int, typer.Option(min=100, help="Rows to use, at most, drawn at random.")] = 10_000,
    draws: Annotated[int, typer.Option(min=1, help="How many subsets of each kind and size.")] = 30,
    seed: Seed = 0,
    table: Table = None,
    source: Source = None,
) -> None:
    """RBF fitting on CovType: error of the cost against the size of the subset, at three bandwidths."""
    from coresift.data.datasets import find_dataset
    from coresift.data.standard import read_covtype

    from ..covtype import CostError, Plan, measure
    from ..covtype_figure import draw
    from ..figure_data import prepare
    from ..tables import read_table

    if source is not None and data is not None:
        raise typer.BadParameter("--from computes nothing: --data does not go with it")
    files = Files.checked(out, table, source)
    if source is not None:
        found = read_table(source, CostError)
    else:
        path = data or find_dataset("covtype", download=True)[0]
        loaded = prepare("covtype", read_covtype(path)[0], rows, np.random.default_rng(seed))
        most = len(loaded.X) // 5
        sizes = sorted({min(size, most) for size in Plan.sizes})
        plan = Plan(sizes=sizes, n_draws=draws, seed=seed)
        with progress_bar(settings) as progress:
            task = progress.add_task("CovType", total=plan.n_steps)
            found = list(measure(loaded, plan, partial(progress.advance, task)))
    files.write(settings, draw(found), main=found)


def lower_bound(
    settings: Settings,
    out: Out,
    draws: Annotated[int, typer.Option(min=1, help="How many subsets of each kind and size.")] = 10,
    seed: Seed = 0,
    table: Table = None,
    source: Source = None,
) -> None:
    """The circle of which no small coreset exists: its sensitivities, and the errors of subsets."""
    from ..lower_bound import (
        CircleSensitivities,
        Plan,
        SubsetError,
        measure,
        sensitivities,
    )
    from ..lower_bound_figure import draw
    from ..tables import read_table

    files = Files.checked(out, table, source, "sensitivities")
    if source is not None:
        found = read_table(source, SubsetError)
        circles = read_table(companion(source, "sensitivities"), CircleSensitivities)
    else:
        plan = Plan(n_draws=draws, seed=seed)
        circles = sensitivities(plan)
        with progress_bar(settings) as progress:
            task = progress.add_task("lower bound", total=plan.n_steps)
            found = list(measure(plan, partial(progress.advance, task)))
    files.write(settings, draw(found, circles), main=found, sensitivities=circles)


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the group ``figure``."""
    app.command(name="function-approximation")(with_common_options(function_approximation))
    app.command(name="covtype")(with_common_options(covtype))
    app.command(name="lower-bound")(with_common_options(lower_bound))
