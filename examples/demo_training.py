"""The second half of the demo: a network trained on all digits, and on a tenth of them chosen in four ways."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from coresift.cli.options import Settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STRATEGIES = ("full", "random", "adaptive-random", "rbf", "adaptive-coreset-seen")
_LR = 0.03  # the paper's 0.01 needs more steps than a minute has
_SELECT_EVERY = 1  # a redraw costs next to nothing
_EVAL_EVERY = 5


@dataclass(frozen=True)
class Trained:
    """The runs of one strategy, one entry per seed."""

    strategy: str
    n_samples: int
    accuracy: list[float]  # on the test set, at the end
    seconds: list[float]  # selection and training
    histories: list[list[dict[str, Any]]]


def train_all(settings: Settings, fraction: float, epochs: int, n_seeds: int, seed: int) -> list[Trained]:
    """Train LeNet-5 by every strategy; on all the data once, as that takes the longest."""
    from coresift._progress import Bars
    from coresift.data import load_dataset
    from coresift.training import build_model, train

    data = load_dataset("digits")
    found = []
    for strategy in STRATEGIES:
        seeds = range(seed, seed + (1 if strategy == "full" else n_seeds))
        runs = []
        for number in seeds:
            model = build_model("lenet", n_classes=data.n_classes, input_shape=data.input_shape, seed=number)
            label = strategy if len(seeds) == 1 else f"{strategy} {number - seed + 1}/{len(seeds)}"
            options: dict[str, Any] = {"epochs": epochs, "lr": _LR, "select_every": _SELECT_EVERY}
            options |= {"eval_every": _EVAL_EVERY, "seed": number, "device": "cpu"}
            with Bars(settings.err, disable=not settings.shows_progress, transient=True) as bars:
                bar = partial(bars, f"{label:25}")
                options["progress"] = lambda _, total, unit, bar=bar: bar(total, unit=unit)
                runs.append(train(model, data, strategy, fraction, **options))
        found.append(
            Trained(
                strategy,
                runs[0].subset_size,
                [run.test["accuracy"] for run in runs if run.test is not None],
                [run.seconds.selection + run.seconds.training for run in runs],
                [run.history for run in runs],
            )
        )
    return found


def render(found: list[Trained]) -> Table:
    """Accuracy, time and speed-up, a row for each strategy."""
    table = Table()
    for name in ("trained on", "samples", "test accuracy", "seconds", "speed-up"):
        table.add_column(name, justify="left" if name == "trained on" else "right", overflow="fold")
    whole = np.mean(found[0].seconds)
    for each in found:
        accuracy = f"{np.mean(each.accuracy):.1%}"
        if len(each.accuracy) > 1:
            accuracy += f" +- {100 * np.std(each.accuracy, ddof=1):.1f}"
        seconds = float(np.mean(each.seconds))
        table.add_row(
            each.strategy, f"{each.n_samples:,}", accuracy, f"{seconds:.1f}", f"{whole / seconds:.1f} x"
        )
    return table


def draw(found: list[Trained]) -> Figure:
    """Accuracy on validation data against time, and the test accuracy at the end."""
    from matplotlib.figure import Figure

    from paper.plots import BLACK, BLUE, GREEN, ORANGE, VERMILLION, figure_style

    colours = dict(zip(STRATEGIES, (BLACK, ORANGE, BLUE, VERMILLION, GREEN), strict=True))
    with figure_style():
        figure = Figure(figsize=(9.0, 3.4), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(5, 4))
        for place, each in enumerate(found):
            points = [
                [
                    (line["seconds"]["selection"] + line["seconds"]["training"], line["val_accuracy"])
                    for line in history
                    if "val_accuracy" in line
                ]
                for history in each.histories
            ]  # (seeds, evaluations, 2)
            x, y = np.mean(points, axis=0).T
            left.plot(x, 100 * y, "o-", color=colours[each.strategy], label=each.strategy)
            right.plot(
                [place] * len(each.accuracy), 100 * np.array(each.accuracy), "o", color=colours[each.strategy]
            )
        left.set(xscale="log", xlabel="seconds of selection and training", ylabel="validation accuracy, %")
        left.legend(loc="lower right")
        left.set_title("Accuracy against time")
        right.set(xticks=range(len(found)), ylabel="test accuracy, %", xlim=(-0.5, len(found) - 0.5))
        right.set_xticklabels([each.strategy.replace("-", "\n") for each in found])
        right.set_title("At the end, every run")
    return figure


def show(
    settings: Settings, fraction: float, epochs: int, n_seeds: int, seed: int, path: Path | None
) -> None:
    """Train, print the table, write the figure."""
    from coresift._errors import MissingExtraError

    try:
        from coresift.training import train  # noqa: F401
    except MissingExtraError as error:
        settings.out.print(f"The second half was left out: {error}", soft_wrap=True)
        return
    found = train_all(settings, fraction, epochs, n_seeds, seed)
    settings.out.print(render(found))
    if not settings.quiet:
        settings.out.print(
            f"LeNet-5 on digits of 28x28 pixels, {epochs} epochs; means of {n_seeds} runs, of one on all data. Random "
            "is drawn once and kept, the others are drawn anew every epoch: by the sensitivities of the inputs (rbf), "
            "by what the network got wrong when it last met a sample (adaptive-coreset-seen). Seconds are of selection "
            "and training."
        )
    if path is None:
        return
    try:
        from paper.plots import save_figure

        save_figure(draw(found), path)
    except (MissingExtraError, ModuleNotFoundError):
        settings.out.print('The figure needs the extra "plots": pip install "coresift[plots]".')
    else:
        settings.out.print(f"Wrote {path}.", soft_wrap=True)
