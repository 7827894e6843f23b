"""``python -m paper one-coreset``: fit sensitivities once, train several networks on draws from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from coresift.cli.app import AsJson, Settings

from .figures import progress_bar

if TYPE_CHECKING:
    from ..one_coreset import Outcome

_DATASETS = ["mnist", "digits"]


def one_coreset(
    settings: Settings,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the runs and tables; a killed command resumes.")],
    dataset: Annotated[
        str, typer.Option("--dataset", "-d", autocompletion=lambda: _DATASETS, help="mnist or digits.")
    ] = "mnist",
    data_dir: Annotated[Path | None, typer.Option(help="Folder with mnist/; digits need none.")] = None,
    budget: Annotated[str, typer.Option("--budget", "-b", help="Samples to train on: 1%, 0.01 or 600.")] = "1%",
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of LeNet-5 and the perceptron.")] = 200,
    resnet_epochs: Annotated[int, typer.Option(min=1, help="Epochs of the ResNet, the slowest.")] = 30,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each kind.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="First seed.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="PyTorch threads.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Train three networks on draws from one fit, beside uniform draws.

    \b
    Example:
      python -m paper one-coreset --data-dir data --out one-coreset

    OUT holds one-coreset.md, one-coreset.json, sensitivities.npz, and the folder of each run in runs.
    """
    from coresift._validation import check_choice, parse_budget
    from coresift.data import load_dataset

    from .. import one_coreset as experiment, one_coreset_report as report

    check_choice(dataset, "dataset", experiment.DATASETS)
    if out.exists() and not out.is_dir():
        raise typer.BadParameter(f"--out {out}: this is a file; a folder is needed")
    data = load_dataset(dataset, data_dir)
    parse_budget(budget, len(data.train))  # reject it before fitting
    plan = experiment.Plan(experiment.networks(epochs, resnet_epochs), budget, seeds, seed)

    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(threads)
    with progress_bar(settings) as progress:
        task = progress.add_task("one coreset", total=plan.n_runs)

        def show(run: experiment.Run) -> None:
            progress.update(task, advance=1, description=f"{run.network}: {run.method}")

        with threadpool_limits(threads):  # processor time is summed over threads
            outcome = experiment.measure(data, plan, out, show)
    files = [report.write(outcome, out / f"one-coreset{suffix}") for suffix in (".md", ".json")]
    if as_json:
        settings.out.print_json(report.as_json(outcome))
        return
    settings.out.print(f"{outcome.size:,} of {outcome.n_samples:,} samples of {outcome.dataset}.")
    for table in _printed(outcome):
        settings.out.print(table)
    settings.out.print(report.amortised(outcome), soft_wrap=True)
    if not settings.quiet:
        settings.out.print(f"Wrote {', '.join(map(str, files))}.", soft_wrap=True)


def _printed(outcome: Outcome) -> list[Table]:
    """Make a table for each network, since one for all would not fit 80 columns."""
    from ..one_coreset_report import HEADINGS, cells

    tables: dict[str, Table] = {}
    for line in outcome.lines:
        if line.network not in tables:
            table = tables[line.network] = Table(title=f"{line.network}, {line.epochs} epochs", title_justify="left")
            for name in HEADINGS[2:]:
                table.add_column(name, justify="left" if name == "method" else "right")
        tables[line.network].add_row(*cells(line)[2:])
    return list(tables.values())
