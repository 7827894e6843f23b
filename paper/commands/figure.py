"""``python -m paper figure NAME``: measure, keep the numbers in a table, draw the figure from the table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.table import Table as RichTable

from coresift._errors import InvalidInputError
from coresift._validation import check_budget, check_positive
from coresift.cli.app import Settings, with_common_options

from .figures import Files, Out, Seed, Source, Table, measured
from .run import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .. import function_approximation as approximation, gradients as gradient

app = typer.Typer(help="Figures of what was measured, with the numbers behind them.", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def which(context: typer.Context) -> None:
    """Without the name of a figure, ask for one."""
    if context.invoked_subcommand is None:
        names = ", ".join(command.name or "" for command in app.registered_commands)
        path = context.command_path
        typer.echo(f"python -m paper: error: Which figure: {names}? Try '{path} --help'.", err=True)
        raise typer.Exit(2)


Rows = Annotated[int, typer.Option(min=2, help="Rows to use, at most, drawn at random.")]
Draws = Annotated[int, typer.Option(min=1, help="How many subsets of each kind and size.")]


def bandwidth(
    settings: Settings,
    out: Out,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with mnist/ and covtype/; without it, the embedded digits only.")
    ] = None,
    size: Annotated[
        float, typer.Option(help="Points in a subset: a fraction of the rows up to 1, or a number above.")
    ] = 0.1,
    seeds: Annotated[int, typer.Option(min=1, help="How many subsets of each kind to draw.")] = 3,
    seed: Seed = 0,
    bandwidths: Annotated[int, typer.Option(min=2, help="How many bandwidths, from 1/8 to 8.")] = 13,
    rows: Rows = 3000,
    table: Table = None,
    source: Source = None,
) -> None:
    """When does it help? Sensitivities, sizes and errors against the bandwidth."""
    from coresift.data.datasets import find_dataset

    from .. import bandwidth as study
    from ..bandwidth_figure import draw
    from ..figure_data import NAMES, load_matrix

    if size > 1.0 and not size.is_integer():
        raise InvalidInputError(f"size = {size:g} must be a fraction of at most 1, or a whole number of points")
    number = int(size) if size > 1.0 else size
    plan = study.Plan(study.bandwidth_grid(bandwidths), number, seeds, seed)
    names = NAMES if data_dir is not None else ("digits",)
    for name in names if source is None else ():
        find_dataset(name, data_dir)  # all of them, before the first is read
    files = Files.checked(out, table, source, data=data_dir)
    found = files.read(study.Measurement)
    if found is None:
        sets = [load_matrix(name, data_dir, rows, np.random.default_rng(seed)) for name in names]
        for data in sets:
            check_budget(number, len(data.X))
        jobs = {data.title: (plan.n_steps, partial(study.measure, data, plan)) for data in sets}
        found = measured(settings, jobs, sum(study.expected_seconds(data, plan) for data in sets))
    files.write(settings, draw(found), found)


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
    """Networks of Gaussians trained on 400 of 10,000 points, by how these were chosen."""
    from .. import function_approximation as study
    from ..function_approximation_figure import draw

    check_positive(bandwidth, "bandwidth")
    files = Files.checked(out, table, source, "surfaces")
    found, points = files.read(study.Fit), files.read(study.SurfacePoint, "surfaces")
    if found is None or points is None:
        plan = study.Plan(n_samples=rows, size=size, bandwidth=bandwidth, n_seeds=seeds, seed=seed)
        jobs = {"function approximation": (plan.n_steps, partial(study.measure, plan))}
        found, points = measured(settings, jobs), study.surfaces(plan)
    files.write(settings, draw(found, points), found, surfaces=points)
    if not settings.quiet:
        settings.out.print(_networks(study.summarise(found)))


def _networks(rows: list[approximation.Summary]) -> RichTable:
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
        Path | None, typer.Option(help="A file .npz with X of 54 columns and y; without it the whole set is fetched.")
    ] = None,
    rows: Annotated[int, typer.Option(min=100, help="Rows to use, at most, drawn at random.")] = 10_000,
    draws: Draws = 30,
    seed: Seed = 0,
    table: Table = None,
    source: Source = None,
) -> None:
    """RBF fitting on CovType: error of the cost against the size of the subset, at three bandwidths."""
    from coresift.data.datasets import find_dataset
    from coresift.data.standard import read_covtype

    from .. import covtype as study
    from ..covtype_figure import draw
    from ..figure_data import prepare

    files = Files.checked(out, table, source, data=data)
    found = files.read(study.CostError)
    if found is None:
        path = data or find_dataset("covtype", download=True)[0]
        loaded = prepare("covtype", read_covtype(path)[0], rows, np.random.default_rng(seed))
        sizes = sorted({min(size, len(loaded.X) // 5) for size in study.Plan.sizes})
        plan = study.Plan(sizes=sizes, n_draws=draws, seed=seed)
        found = measured(settings, {"CovType": (plan.n_steps, partial(study.measure, loaded, plan))})
    files.write(settings, draw(found), found)


def lower_bound(
    settings: Settings, out: Out, draws: Draws = 10, seed: Seed = 0, table: Table = None, source: Source = None
) -> None:
    """The circle that has no small coreset: its sensitivities, and the errors of subsets."""
    from .. import lower_bound as study
    from ..lower_bound_figure import draw

    files = Files.checked(out, table, source, "sensitivities")
    found, circles = files.read(study.SubsetError), files.read(study.CircleSensitivities, "sensitivities")
    if found is None or circles is None:
        plan = study.Plan(n_draws=draws, seed=seed)
        circles = study.sensitivities(plan)
        found = measured(settings, {"lower bound": (plan.n_steps, partial(study.measure, plan))})
    files.write(settings, draw(found, circles), found, sensitivities=circles)


def gradients(
    settings: Settings,
    out: Out,
    dataset: Annotated[
        str, typer.Option("--dataset", "-d", autocompletion=lambda: ["mnist", "digits"], help="mnist or digits.")
    ] = "mnist",
    data_dir: Annotated[Path | None, typer.Option(help="Folder with mnist/; digits need none.")] = None,
    budgets: Annotated[str, typer.Option("--budgets", "-b", help="Fractions of the samples.")] = "1%,3%,5%,10%,20%,30%",
    draws: Annotated[int, typer.Option(min=1, help="Subsets of each kind at 30 %; more of small ones.")] = 5,
    epochs: Annotated[int, typer.Option(min=2, help="Epochs of training on all the samples.")] = 10,
    rows: Rows = 10_000,
    seed: Seed = 0,
    threads: Annotated[int, typer.Option(min=1, help="Threads of PyTorch.")] = 1,
    table: Table = None,
    source: Source = None,
) -> None:
    """Does a coreset approximate gradients? Of two networks, before, during and after training."""
    from .. import gradients as study
    from ..gradients_figure import draw

    plan = study.Plan(budgets=_fractions(budgets), n_draws=draws, epochs=epochs, seed=seed)
    files = Files.checked(out, table, source, data=data_dir)
    found = files.read(study.Measurement)
    if found is None:
        splits = study.load(dataset, data_dir, rows, seed)
        n = len(splits.train)
        plan = plan.checked(n)

        import torch

        torch.set_num_threads(threads)
        jobs = {f"gradients, {dataset}": (plan.n_steps(n), partial(study.measure, splits, plan))}
        found = measured(settings, jobs, study.expected_seconds(n, plan))
    files.write(settings, draw(found), found)
    if not settings.quiet:
        settings.out.print(_gradient_errors(found))


def _fractions(text: str) -> list[float]:
    """``1%,3%`` or ``0.01,0.03``, ascending."""
    from . import parse_shares

    fractions = parse_shares(text)
    for fraction in fractions:
        if not 0 < fraction < 1:
            raise InvalidInputError(f"budgets: {fraction:g} must be a fraction above 0 and below 1, such as 1%.")
    if not fractions:
        raise InvalidInputError(f"budgets = {text!r} names none; write 1%,3% or 0.01,0.03.")
    return sorted(set(fractions))


def _gradient_errors(rows: list[gradient.Measurement]) -> RichTable:
    """Root mean square errors at the smallest budget."""
    import pandas as pd

    from ..gradients import METHODS

    frame = pd.DataFrame(rows)
    least = frame["budget"].min()
    here = frame[frame["budget"] == least].assign(square=frame["error"] ** 2)
    found = np.sqrt(here.groupby(["method", "model", "moment"], sort=False)["square"].mean())
    networks = list(dict.fromkeys((row.model, row.moment) for row in rows))
    table = RichTable(title=f"Relative error of the gradient from {least:.3g} of the samples (rms)")
    table.add_column("method")
    for model, moment in networks:
        table.add_column(f"{model} {moment}", justify="right")
    for method in METHODS:
        cells = [found.get((method, *each)) for each in networks]
        table.add_row(method, *("" if cell is None else f"{cell:.3g}" for cell in cells))
    return table


def methods(settings: Settings, out: Out, results: Results = None) -> None:
    """Accuracy of all methods against their time, on CovType at 1 %, from the stored records; nothing is measured."""
    from ..methods_figure import draw
    from .table import stored_summary

    _drawn(settings, out, lambda: draw(stored_summary(results, "covtype", "all-methods"), 0.01))


def equal_time(settings: Settings, out: Out, results: Results = None) -> None:
    """CIFAR-10: accuracy against time beside all the data for fewer epochs, from the stored records."""
    from ..bench.store import RESULTS
    from ..equal_time import draw, equal_time

    _drawn(settings, out, lambda: draw(equal_time(results or RESULTS)))


def _drawn(settings: Settings, out: Path, draw: Callable[[], Figure]) -> None:
    from ..plots import check_writable, figure_paths, require_matplotlib, save_figure

    paths = figure_paths(out)
    for path in paths:
        check_writable(path)
    require_matplotlib()
    drawn = draw()
    for path in paths:
        save_figure(drawn, path)
    if not settings.quiet:
        settings.out.print(f"Wrote {', '.join(map(str, paths))}.", soft_wrap=True)


for _command in (bandwidth, function_approximation, covtype, lower_bound, gradients, methods, equal_time):
    app.command(name=_command.__name__.replace("_", "-"))(with_common_options(_command))
figure = app
