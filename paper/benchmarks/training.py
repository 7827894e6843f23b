"""Training on subsets of MNIST: what each strategy reaches and costs, and what the loop costs beside a bare one.

``CORESIFT_DATA`` names the folder of the data (or else ``CORESIFT_DATA_DIR``, as everywhere). Runs take about a minute
each; every one that is finished is a line of ``training_runs.jsonl``, and only those that are missing there are run.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from coresift.data import DatasetSplits, load_dataset
from coresift.selection import RBF, SelectionContext
from coresift.training import build_model, normalize, train
from paper.benchmarks._measure import Table

RUNS = Path(__file__).with_name("training_runs.jsonl")
EPOCHS, BUDGET, SEEDS = 200, 0.01, 3
N_PAIRS = 31
# (strategy, select_every), the cheap ones first
CELLS = [
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
    return load_dataset("mnist", os.environ.get("CORESIFT_DATA"))


Key = tuple[str, int, int]  # strategy, select_every, seed


def records() -> dict[Key, dict]:
    """What is finished; a run that two processes made counts once."""
    lines = RUNS.read_text().splitlines() if RUNS.exists() else []
    found = [json.loads(line) for line in lines]
    return {(each["strategy"], each["select_every"], each["seed"]): each for each in found}


def run_missing(part: int = 0, parts: int = 1) -> None:
    """Run what is missing; several processes may share it, each doing the seeds of its part."""
    torch.set_num_threads(1)
    data = mnist()
    for seed, (strategy, every) in itertools.product(range(part, SEEDS, parts), CELLS):
        if (strategy, every, seed) in records():
            continue
        model = build_model("lenet", n_classes=10, input_shape=(1, 28, 28), seed=seed)
        cpu = time.process_time()
        result = train(
            model, data, strategy, BUDGET, epochs=EPOCHS, select_every=every, seed=seed, device="cpu"
        )
        assert result.test is not None
        record = {
            "strategy": strategy,
            "select_every": every,
            "seed": seed,
            "accuracy": result.test["accuracy"],
            "loss": result.test["loss"],
            "seconds": result.seconds.rounded(),
            "cpu_seconds": round(time.process_time() - cpu, 1),
            "epochs": result.n_epochs,
            "subset": result.subset_size,
        }
        with RUNS.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(record, flush=True)


def accuracy_table() -> Table:
    rows = []
    for strategy, every in CELLS:
        found = [each for key, each in records().items() if key[:2] == (strategy, every)]
        if not found:
            rows.append([strategy.upper(), str(every), "missing", "", "", "", ""])
            continue
        accuracy = 100 * np.array([r["accuracy"] for r in found])
        deviation = f" ± {accuracy.std(ddof=1):.2f}" if len(found) > 1 else ""
        times = [np.mean([r["seconds"][part] for r in found]) for part in ("selection", "training")]
        rows.append(
            [
                strategy.upper(),
                str(every),
                f"**{accuracy.mean():.2f}**{deviation}",
                str(len(found)),
                *(f"{seconds:.1f}" for seconds in times),
                f"{np.mean([r['cpu_seconds'] for r in found]):.1f}",
            ]
        )
    return Table(
        "MNIST, LeNet-5, 1 %, 200 epochs",
        "Test accuracy in %, mean and deviation over seeds; R is the number of epochs between two selections. RANDOM "
        "is drawn once and kept; a fair comparison of RBF is with ADAPTIVE-RANDOM at the same R. Seconds of selection "
        "and training are by the clock, on a machine that did other things at the same time; the processor's own "
        "seconds (reading and evaluation included) are the better measure.",
        ["strategy", "R", "accuracy", "seeds", "selection, s", "training, s", "processor, s"],
        rows,
    )


def bare_epochs(X: torch.Tensor, y: torch.Tensor, n_epochs: int) -> None:
    """What anybody would write: LeNet-5, plain mean loss, rows by tensor indexing; nothing measured, nothing kept."""
    model = build_model("lenet", n_classes=10, input_shape=(1, 28, 28))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    for _ in range(n_epochs):
        for rows in torch.randperm(len(X)).split(20):
            loss = torch.nn.functional.cross_entropy(model(X[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def loop_table() -> Table:
    """Processor time, in pairs: the clock measures the machine's other work too."""
    torch.set_num_threads(1)
    data = mnist()
    n, n_epochs = 600, 4
    bytes_, labels = data.train.x[:n], data.train.y[:n]
    ready = normalize(torch.from_numpy(bytes_), data.mean, data.std)
    transform = partial(normalize, mean=data.mean, std=data.std)

    def ours() -> None:
        model = build_model("lenet", n_classes=10, input_shape=(1, 28, 28))
        train(model, (bytes_, labels), "full", n, epochs=n_epochs, transform=transform, device="cpu")

    def bare() -> None:
        bare_epochs(ready, torch.from_numpy(labels), n_epochs)

    spent = []
    for _ in range(N_PAIRS):
        pair = []
        for function in (ours, bare):
            start = time.process_time()
            function()
            pair.append(time.process_time() - start)
        spent.append(pair)
    of_ours, of_bare = np.array(spent).T
    ratio = float(np.median(of_bare / of_ours))
    quarter, three_quarters = np.percentile(of_bare / of_ours, [25, 75])
    speed = n * n_epochs / np.median(spent, axis=0)
    return Table(
        "the loop beside a bare one",
        f"LeNet-5, batch 20, samples a second of processor time; medians of {N_PAIRS} pairs of {n_epochs} epochs of "
        f"{n} samples, and of their ratio (with quartiles): a busy machine slows both of a pair. All of "
        "train() counts, from its call to its return. The bare loop indexes floats that are normalised already and "
        "measures nothing. Wanted: at least 90 %.",
        ["bare loop", "train()", "ratio"],
        [
            [
                f"{speed[1]:,.0f}",
                f"{speed[0]:,.0f}",
                f"**{ratio:.0%}** ({quarter:.0%} to {three_quarters:.0%})",
            ]
        ],
    )


def redraw_table() -> Table:
    torch.set_num_threads(1)
    data = mnist()
    context = SelectionContext(data.train.x, data.train.y)
    strategy, rng = RBF(), np.random.default_rng(0)
    start = time.process_time()
    strategy.select(context, 0.05, rng)
    fit = time.process_time() - start
    redraw = np.inf
    for _ in range(5):
        start = time.process_time()
        core = strategy.select(context.at(1), 0.05, rng)
        redraw = min(redraw, time.process_time() - start)
    ready = normalize(torch.from_numpy(data.train.x[core.indices]), data.mean, data.std)
    start = time.process_time()
    bare_epochs(ready, torch.from_numpy(data.train.y[core.indices]), 1)
    epoch = time.process_time() - start
    return Table(
        "a redraw of RBF beside an epoch",
        "MNIST, 5 % of 60,000, LeNet-5, batch 20; processor time. The fit is made once for a run. Wanted: a redraw "
        "under 1 % of an epoch.",
        ["fit", "redraw", "epoch", "redraw / epoch"],
        [[f"{fit:.1f} s", f"{1e3 * redraw:.1f} ms", f"{epoch:.2f} s", f"**{redraw / epoch:.2%}**"]],
    )


def run() -> list[Table]:
    run_missing()
    return [accuracy_table(), loop_table(), redraw_table()]
