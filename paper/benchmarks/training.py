"""Training on subsets of MNIST: what each strategy reaches and costs, and what the loop costs beside a bare one.

``CORESIFT_DATA`` names the folder of the data (or else ``CORESIFT_DATA_DIR``, as everywhere). Runs take about a minute
each; every one that is finished is a line of ``training_runs.jsonl``, and only those that are missing there are run.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coresift.data import DatasetSplits, load_dataset
from coresift.selection import RBF, SelectionContext
from coresift.training import build_model, normalize, train

from ..bench.statistics import mean_and_deviation
from .measure import Log, Table, data_dir, section, table, timed

LOG = Path(__file__).with_name("training_runs.jsonl")
EPOCHS, BUDGET, SEEDS = 200, 0.01, 3
N_ROUNDS = 6
# (strategy, select_every), the cheap ones first
RUNS = [
    ("random", 20),
    ("adaptive-random", 20),
    ("adaptive-random", 1),
    ("rbf", 20),
    ("rbf", 1),
    ("gradmatch", 20),
    ("craig", 20),
    ("glister", 20),
]


def mnist() -> DatasetSplits:
    return load_dataset("mnist", data_dir())


def run(of: dict[str, Any]) -> dict[str, Any]:
    """Train one run, and measure it on the test set."""
    model = build_model("lenet", n_classes=10, input_shape=(1, 28, 28), seed=of["seed"])
    options = {"select_every": of["select_every"], "seed": of["seed"], "epochs": EPOCHS, "device": "cpu"}
    spent, result = timed(lambda: train(model, mnist(), of["strategy"], BUDGET, **options))
    return {
        "accuracy": result.test["accuracy"],
        "loss": result.test["loss"],
        "seconds": result.seconds.rounded(),
        "cpu_seconds": round(spent, 1),
        "epochs": result.n_epochs,
        "subset": result.subset_size,
    }


def accuracy_table() -> Table:
    log, rows = Log(LOG), []
    wanted = [
        {"strategy": strategy, "select_every": every, "seed": seed}
        for seed, (strategy, every) in itertools.product(range(SEEDS), RUNS)
    ]
    log.run_missing(wanted, run)
    for strategy, every in RUNS:
        found = log.all(strategy=strategy, select_every=every)
        mean, deviation = mean_and_deviation([100 * r["accuracy"] for r in found])
        times = {part: np.mean([r["seconds"][part] for r in found]) for part in ("selection", "training")}
        rows.append(
            {
                "strategy": strategy.upper(),
                "R": str(every),
                "accuracy": f"**{mean:.2f}** ± {deviation:.2f}",
                "seeds": str(len(found)),
                **{f"{part}, s": f"{spent:.1f}" for part, spent in times.items()},
                "processor, s": f"{np.mean([r['cpu_seconds'] for r in found]):.1f}",
            }
        )
    return table(
        "MNIST, LeNet-5, 1 %, 200 epochs",
        "Test accuracy in %, mean and deviation over seeds; R is the number of epochs between two selections. RANDOM "
        "is drawn once and kept; a fair comparison of RBF is with ADAPTIVE-RANDOM at the same R. Seconds of selection "
        "and training are by the clock, on a machine that did other things at the same time; the processor's own "
        "seconds (reading and evaluation included) are the better measure. The runs are of version 0.1.",
        rows,
    )


def bare_epochs(model: torch.nn.Module, X: torch.Tensor, y: torch.Tensor, fused: bool | None = None) -> Iterator[None]:
    """What anybody would write: a plain mean loss, rows by tensor indexing; nothing measured, nothing kept."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=fused)
    while True:
        for rows in torch.randperm(len(X)).split(20):
            loss = torch.nn.functional.cross_entropy(model(X[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        yield


def lenet() -> torch.nn.Module:
    return build_model("lenet", n_classes=10, input_shape=(1, 28, 28))


def loop_round(n: int = 1000, n_epochs: int = 25) -> np.ndarray:
    """Processor time of epochs in turn: of train(), and of bare loops with the usual and the fused optimizer."""
    data = mnist()
    bytes_, labels = data.train.x[:n], data.train.y[:n]
    ready, y = normalize(torch.from_numpy(bytes_), data.mean, data.std), torch.from_numpy(labels)
    bare = [bare_epochs(lenet(), ready, y), bare_epochs(lenet(), ready, y, fused=True)]
    spent: list[list[float]] = []
    since = time.process_time()

    def after_epoch(_: Any) -> None:
        nonlocal since
        spent.append([time.process_time() - since, *(timed(partial(next, loop))[0] for loop in bare)])
        since = time.process_time()

    transform = partial(normalize, mean=data.mean, std=data.std)
    options = {"epochs": n_epochs, "transform": transform, "device": "cpu", "on_epoch": after_epoch}
    train(lenet(), (bytes_, labels), "full", n, **options)
    return np.array(spent[1:])  # the first epoch includes what is done once in a run


def loop_table() -> Table:
    rows, ratios = [], []
    for _ in range(N_ROUNDS):
        spent = loop_round()
        ratios.append(spent[:, 1:] / spent[:, :1])
        found = [f"{1e6 * each:,.0f}" for each in np.median(spent, axis=0) / 50]
        rows.append([*found, *(f"{each:.1%}" for each in np.median(ratios[-1], axis=0))])
    both = np.median(np.concatenate(ratios), axis=0)
    rows.append(["all rounds", "", "", *(f"**{each:.1%}**" for each in both)])
    return Table(
        "the loop beside a bare one",
        "Microseconds of processor time for a step of LeNet-5 on 20 images. Epochs of 50 steps take turns in one "
        f"process; {N_ROUNDS} rounds with fresh networks, medians of 24 epochs each. The bare loops index floats that "
        "are normalised already and measure nothing; one has SGD as it is by default, the other with `fused=True`, "
        "which train() uses on a CPU. A ratio is the time of the bare loop over that of train() in the same turn. "
        "Wanted: 98 % of a bare loop.",
        ["train()", "bare loop", "bare loop, fused", "ratio", "ratio, fused"],
        rows,
    )


def redraw_table() -> Table:
    data = mnist()
    context = SelectionContext(data.train.x, data.train.y)
    strategy, rng = RBF(), np.random.default_rng(0)
    fit, _ = timed(lambda: strategy.select(context, 0.05, rng))
    redraws = [timed(lambda: strategy.select(context.at(1), 0.05, rng)) for _ in range(5)]
    redraw, core = min(redraws, key=lambda each: each[0])
    ready = normalize(torch.from_numpy(data.train.x[core.indices]), data.mean, data.std)
    epoch, _ = timed(partial(next, bare_epochs(lenet(), ready, torch.from_numpy(data.train.y[core.indices]))))
    return Table(
        "a redraw of RBF beside an epoch",
        "MNIST, 5 % of 60,000, LeNet-5, batch 20; processor time. The fit is made once for a run. Wanted: a redraw "
        "under 1 % of an epoch.",
        ["fit", "redraw", "epoch", "redraw / epoch"],
        [[f"{fit:.1f} s", f"{1e3 * redraw:.1f} ms", f"{epoch:.2f} s", f"**{redraw / epoch:.2%}**"]],
    )


training = section(
    "training", "Train on subsets of MNIST, and time the loop.", accuracy_table, loop_table, redraw_table
)
