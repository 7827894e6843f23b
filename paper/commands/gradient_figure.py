"""``python -m paper figure gradients``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.table import Table as RichTable

from coresift._errors import InvalidInputError
from coresift.cli.options import Settings, with_common_options

from .figures import Files, Out, Source, Table, progress_bar

if TYPE_CHECKING:
    from ..gradients import Measurement, Plan

_DATASETS = ["mnist", "digits"]
_BUDGETS = "1%,3%,5%,10%,20%,30%"
_LONG_SECONDS = 60.0


def gradients(
    settings: Settings,
    out: Out,
    dataset: Annotated[
        str, typer.Option("--dataset", "-d", autocompletion=lambda: _DATASETS, help="mnist or digits.")
    ] = "mnist",
    data_dir: Annotated[Path | None, typer.Option(help="Folder with mnist/; digits need none.")] = None,
    budgets: Annotated[str, typer.Option("--budgets", "-b", help="Shares of the samples.")] = _BUDGETS,
    draws: Annotated[int, typer.Option(min=1, help="Subsets of each kind at 30 %; of small ones more.")] = 5,
    epochs: Annotated[int, typer.Option(min=2, help="Of the training, on all the samples.")] = 10,
    rows: Annotated[int, typer.Option(min=2, help="Samples to use, at most, drawn at random.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Of the networks, and the first of the draws.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="Threads of PyTorch.")] = 1,
    table: Table = None,
    source: Source = None,
) -> None:
    """Does a coreset approximate gradients? Of two networks, before, during and after training."""
    from ..gradients import Measurement, Plan
    from ..gradients_figure import draw
    from ..tables import read_table

    if source is not None and data_dir is not None:
        raise typer.BadParameter("--from computes nothing: --data-dir does not go with it")
    plan = Plan(budgets=_shares(budgets), n_draws=draws, epochs=epochs, seed=seed)
    files = Files.checked(out, table, source)
    if source is not None:
        found = read_table(source, Measurement)
    else:
        found = _measured(settings, plan, dataset, data_dir, rows, threads)
    files.write(settings, draw(found), main=found)
    if not settings.quiet:
        settings.out.print(_summary(found))


def _shares(text: str) -> list[float]:
    """``1%,3%`` or ``0.01,0.03``, ascending."""
    from coresift.coresets.budget import parse_shares

    shares = parse_shares(text)
    for share in shares:
        if not 0 < share < 1:
            raise InvalidInputError(f"budgets: {share:g} must be a share above 0 and below 1, such as 1%.")
    if not shares:
        raise InvalidInputError(f"budgets = {text!r} names none; write 1%,3% or 0.01,0.03.")
    return sorted(set(shares))


def _measured(
    settings: Settings, plan: Plan, dataset: str, data_dir: Path | None, rows: int, threads: int
) -> list[Measurement]:
    from ..gradients import expected_seconds, load, measure

    splits = load(dataset, data_dir, rows, plan.seed)
    n = len(splits.train)
    plan = plan.checked(n)

    import torch

    torch.set_num_threads(threads)
    seconds = expected_seconds(n, plan)
    if seconds > _LONG_SECONDS and not settings.quiet:
        settings.err.print(f"This takes about {np.ceil(seconds / 60):.0f} minutes on one core.")
    with progress_bar(settings) as progress:
        task = progress.add_task(f"gradients, {dataset}", total=plan.n_steps(n))
        return list(measure(splits, plan, partial(progress.advance, task)))


def _summary(rows: list[Measurement]) -> RichTable:
    """Root mean square errors at the smallest budget."""
    from ..gradients import METHODS

    least = min(row.budget for row in rows)
    moments = list(dict.fromkeys((row.model, row.moment) for row in rows))
    table = RichTable(title=f"Relative error of the gradient from {least:.3g} of the samples (rms)")
    table.add_column("method")
    for model, moment in moments:
        table.add_column(f"{model} {moment}", justify="right")
    for method in METHODS:
        cells = []
        for at in moments:
            errors = [
                row.error
                for row in rows
                if (row.model, row.moment) == at and (row.method, row.budget) == (method, least)
            ]
            cells.append(f"{np.sqrt(np.mean(np.square(errors))):.3g}" if errors else "")
        table.add_row(method, *cells)
    return table


def register(app: typer.Typer) -> None:
    """Add the command to the group ``figure``."""
    app.command(name="gradients")(with_common_options(gradients))
