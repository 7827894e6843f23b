"""The second half of the demo: LeNet-5 trained on all digits, and on a tenth of them chosen in four ways."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress
from rich.table import Table

STRATEGIES = {
    "full": "#000000",
    "random": "#E69F00",
    "adaptive-random": "#0072B2",
    "rbf": "#D55E00",
    "adaptive-coreset-seen": "#009E73",
}
PARTS = ("selection", "training")
# the paper's lr of 0.01 needs more steps than a minute has; a selection costs next to nothing
OPTIONS: dict[str, Any] = {"lr": 0.03, "select_every": 1, "eval_every": 5, "device": "cpu"}
NOTE = (
    "LeNet-5 on digits of 28x28 pixels, {epochs} epochs; means of {n_seeds} runs, one run on all data. Random is drawn "
    "once and kept, the others are drawn again every epoch: by the sensitivities of the inputs (rbf), or by what the "
    "network got wrong when it last saw a sample (adaptive-coreset-seen). Seconds include selection."
)


@dataclass(frozen=True)
class Trained:
    """The runs of one strategy, one entry per seed."""

    strategy: str
    n_samples: int
    accuracy: list[float]  # on the test set, at the end
    seconds: list[float]  # selection and training
    histories: list[list[dict[str, Any]]]


def train_all(fraction: float, epochs: int, n_seeds: int, seed: int, progress: Progress) -> list[Trained]:
    """Train with every strategy; on all the data once, as that takes the longest."""
    from coresift.data import load_dataset
    from coresift.training import build_model, train

    data = load_dataset("digits")
    found = []
    for strategy in STRATEGIES:
        seeds = range(seed, seed + (1 if strategy == "full" else n_seeds))
        task = progress.add_task(f"training, {strategy}", total=len(seeds) * epochs)
        runs = []
        for each in seeds:
            model = build_model("lenet", n_classes=data.n_classes, input_shape=data.input_shape, seed=each)
            options = OPTIONS | {"on_epoch": lambda _, task=task: progress.advance(task)}
            runs.append(train(model, data, strategy, fraction, epochs=epochs, seed=each, **options))
        accuracies = [run.test["accuracy"] for run in runs if run.test is not None]
        seconds = [run.seconds.selection + run.seconds.training for run in runs]
        found.append(Trained(strategy, runs[0].subset_size, accuracies, seconds, [run.history for run in runs]))
    return found


def render(found: list[Trained]) -> Table:
    """Lay out accuracy, time and speed-up, a row for each strategy."""
    table = Table()
    for name in ("trained on", "samples", "test accuracy", "seconds", "speed-up"):
        table.add_column(name, justify="left" if name == "trained on" else "right", overflow="fold")
    for each in found:
        accuracy, seconds = f"{np.mean(each.accuracy):.1%}", np.mean(each.seconds)
        if len(each.accuracy) > 1:
            accuracy += f" +- {100 * np.std(each.accuracy, ddof=1):.1f}"
        speed_up = np.mean(found[0].seconds) / seconds
        table.add_row(each.strategy, f"{each.n_samples:,}", accuracy, f"{seconds:.1f}", f"{speed_up:.1f} x")
    return table


def draw(found: list[Trained], path: Path) -> None:
    """Draw validation accuracy against time, and the test accuracy at the end."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.6), dpi=160, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(5, 4))
    for place, each in enumerate(found):
        colour = STRATEGIES[each.strategy]
        lines = [[line for line in history if "val_accuracy" in line] for history in each.histories]
        seconds = [[sum(line[f"{part}_seconds"] for part in PARTS) for line in run] for run in lines]
        x, y = (np.mean(seconds, axis=0), np.mean([[line["val_accuracy"] for line in run] for run in lines], axis=0))
        left.plot(x, 100 * y, "o-", color=colour, markersize=4, label=each.strategy)
        right.plot([place] * len(each.accuracy), 100 * np.array(each.accuracy), "o", color=colour)
    left.set(title="Accuracy against time", xlabel="seconds of selection and training", xscale="log")
    left.set(ylabel="validation accuracy, %")
    left.legend(loc="lower right", fontsize="small")
    right.set(title="At the end, every run", ylabel="test accuracy, %", xlim=(-0.5, len(found) - 0.5))
    right.set_xticks(range(len(found)), [each.strategy.replace("-", "\n") for each in found])
    for ax in (left, right):
        ax.grid(color="#D8D8D8", linewidth=0.5)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
