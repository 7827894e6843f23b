"""Training on subsets of MNIST: what each strategy reaches and costs, and what the loop costs beside a bare one.

``CORESIFT_DATA`` names the folder of the data (or else ``CORESIFT_DATA_DIR``, as everywhere). Runs take about a minute
each; every one that is finished is a line of ``training_runs.jsonl``, and only those that are missing there are run.
"""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coresift.data import DatasetSplits, load_dataset
from coresift.selection import RBF, SelectionContext
from coresift.training import build_model, normalize, train

from ..bench.statistics import mean_and_deviation
from .measure import Log, Table, data_dir, seconds, section, table, timed

LOG = Path(__file__).with_name("training_runs.jsonl")
EPOCHS, BUDGET, SEEDS = 200, 0.01, 3
N_ROUNDS, N_REPEATS = 3, 5
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


def bare_epochs(model: torch.nn.Module, X: torch.Tensor, y: torch.Tensor, n_epochs: int) -> None:
    """What anybody would write: a plain mean loss, rows by tensor indexing; nothing measured, nothing kept."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    for _ in range(n_epochs):
        for rows in torch.randperm(len(X)).split(20):
            loss = torch.nn.functional.cross_entropy(model(X[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def lenet() -> torch.nn.Module:
    return build_model("lenet", n_classes=10, input_shape=(1, 28, 28))


def linear() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))


def loop_table() -> Table:
    """Microseconds of a step, from long and short runs: what is done once in a run cancels."""
    data = mnist()
    n, short, long = 6000, 1, 3
    bytes_, labels = data.train.x[:n], data.train.y[:n]
    ready = normalize(torch.from_numpy(bytes_), data.mean, data.std)
    transform = partial(normalize, mean=data.mean, std=data.std)

    def ours(n_epochs: int) -> None:
        train(linear(), (bytes_, labels), "full", n, epochs=n_epochs, transform=transform, device="cpu")

    def bare(n_epochs: int, make: Any = linear) -> None:
        bare_epochs(make(), ready, torch.from_numpy(labels), n_epochs)

    runs = [partial(run, n_epochs) for run in (ours, bare, partial(bare, make=lenet)) for n_epochs in (short, long)]
    rows = []
    for _ in range(N_ROUNDS):
        spent = np.array(seconds(*runs, repeats=N_REPEATS)).reshape(3, 2)
        of_ours, of_bare, of_lenet = 1e6 * (spent[:, 1] - spent[:, 0]) / ((long - short) * n / 20)
        more = of_ours - of_bare
        times = (f"{each:,.0f}" for each in (of_bare, of_ours, more, of_lenet))
        rows.append([*times, f"**{of_lenet / (of_lenet + more):.1%}**"])
    return Table(
        "the loop beside a bare one",
        f"Microseconds of processor time for a step of 20 images: the least of {N_REPEATS} runs of {long} epochs of "
        f"{n:,}, less those of {short}; {N_ROUNDS} rounds. The bare loop indexes floats that are normalised already "
        "and measures nothing. "
        "What train() adds is measured with one linear layer: a step of LeNet-5 differs by a tenth from process to "
        "process, with the places of its tensors in memory. Wanted: 98 % with LeNet-5.",
        ["bare loop, linear", "train(), linear", "difference", "bare loop, LeNet-5", "ratio with LeNet-5"],
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
    epoch, _ = timed(lambda: bare_epochs(lenet(), ready, torch.from_numpy(data.train.y[core.indices]), 1))
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
