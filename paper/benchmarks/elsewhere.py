"""Do the defaults hold on data that nothing was chosen on? Four sets that no study or test of ours has looked at.

``python -m paper benchmark elsewhere FOLDER [--part P --parts N]`` runs what is missing and appends to
``paper/results/elsewhere/runs.jsonl``; without a folder it writes the ``README.md`` there. FOLDER holds
``fashion-mnist/`` (the four files of Debian's ``dataset-fashion-mnist``), ``letter.csv`` and ``shuttle.csv`` (from
Debian's ``r-cran-mlbench``: ``rdata.read_rda(...)[name].to_csv(..., index=False)``) and ``diamonds.csv`` (of the
package ``plotnine``). All settings are defaults, the networks and epochs those of MNIST and CovType.
The records also have uniform redraws for 1.15 times the epochs, which on the tables was
less than equal time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from coresift.cli.app import Settings
from coresift.data import DatasetSplits, load_dataset
from coresift.training import build_model, train

from ..automatic import strategies
from ..bench.store import RESULTS
from .beat_random import ADAPTIVE, AUTOMATIC, FIXED, HEAD, SEEN, UNIFORM, Runs, above, family, not_below
from .measure import Log, timed

OUT = RESULTS / "elsewhere"
RARE = 20  # epochs between two draws
CLIPPED = 5.0  # deviations of a column, as in the study: Shuttle and Diamonds have rows dozens away
LONG = 1.75  # times the epochs


@dataclass(frozen=True)
class Task:
    """A data set, its network and how long it is trained."""

    title: str
    model: str
    epochs: int
    budget: float
    seeds: int
    for_seen: float  # times the epochs, for uniform redraws to take the time of draws by what training saw
    for_scores: float  # the same for fresh scores
    metrics: Mapping[str, str]  # of the records, and as a phrase

    def times(self, length: str) -> float:
        """Epochs of a method, over those of the task."""
        return {"equal": 1.0, "for seen": self.for_seen, "for scores": self.for_scores, "long": LONG}[length]


ACCURACY = {"accuracy": "accuracy"}
TASKS = {
    "letter": Task("Letter", "mlp", 100, 0.05, 10, 1.2, 1.4, ACCURACY),
    "shuttle": Task("Shuttle", "mlp", 100, 0.01, 10, 1.4, 1.4, ACCURACY | {"macro_f1": "macro-F1"}),
    "diamonds": Task("Diamonds", "mlp", 100, 0.01, 10, 1.4, 1.4, {"r2": "explained variance"}),
    "fashion-mnist": Task("Fashion-MNIST", "lenet", 200, 0.01, 5, 1.15, LONG, ACCURACY),
}
Method = tuple[str, int, str]  # strategy, epochs between draws, length
METHODS: tuple[Method, ...] = (
    ("RANDOM", RARE, "equal"),
    (FIXED, RARE, "equal"),
    (UNIFORM, RARE, "equal"),
    (ADAPTIVE, RARE, "equal"),
    (AUTOMATIC, RARE, "equal"),
    (UNIFORM, 1, "equal"),
    (SEEN, 1, "equal"),
    (ADAPTIVE, 1, "equal"),
    (UNIFORM, 1, "for seen"),
    (UNIFORM, 1, "for scores"),
    (UNIFORM, 1, "long"),
)


def run_of(name: str, method: Method) -> dict[str, Any]:
    """What its records have in common, but for the seed."""
    strategy, every, length = method
    return {"data": name, "strategy": strategy, "every": every, "times": TASKS[name].times(length)}


def runs() -> list[dict[str, Any]]:
    """All runs, each once, one seed after another."""
    found: list[dict[str, Any]] = []
    for seed in range(max(task.seeds for task in TASKS.values())):
        for name, task in TASKS.items():
            for method in METHODS if seed < task.seeds else ():
                each = {**run_of(name, method), "seed": seed}
                if each not in found:
                    found.append(each)
    return found


@cache
def load(name: str, folder: Path) -> DatasetSplits:
    """The published test part of Fashion-MNIST; of the others, a fifth of the rows."""
    if name == "fashion-mnist":
        raw = load_dataset("mnist", folder / name)  # the same four files in the same format
        return load_dataset((raw.train.x, raw.train.y), test=(raw.test.x, raw.test.y))  # with its own mean
    path = folder / f"{name}.csv"
    if name != "diamonds":
        data = load_dataset(path, label={"letter": "lettr", "shuttle": "Class"}[name])
    else:
        data = load_dataset(path, label="price", task="regression")
        mean, deviation = data.train.y.mean(), data.train.y.std()
        for part in (data.train, data.test):
            part.y[...] = (part.y - mean) / deviation
    for part in (data.train, data.test):
        np.clip(part.x, -CLIPPED, CLIPPED, out=part.x)
    return data


def run(of: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Train, and measure on the test part."""
    task, data = TASKS[of["data"]], load(of["data"], folder)
    width = {"width": 64} if task.model == "mlp" else {}
    shape = {"n_classes": data.n_classes, "input_shape": data.input_shape}
    model = build_model(task.model, seed=of["seed"], **shape, **width)
    options = {"epochs": round(task.epochs * of["times"]), "select_every": of["every"], "seed": of["seed"]}
    strategy = strategies()[of["strategy"]]
    spent, result = timed(lambda: train(model, data, strategy, task.budget, device="cpu", **options))
    found = {name: result.test[name] for name in ("accuracy", "macro_f1") if name in result.test}
    if data.task == "regression":
        found["r2"] = 1 - result.test["rmse"] ** 2 / float(np.var(data.test.y))
    return {"test": found, "cpu": round(spent, 3)}


def runs_of(log: Log, name: str, metric: str, method: Method) -> Runs:
    """All seeds of one method."""
    found = log.all(**run_of(name, method))
    return Runs(
        {record["seed"]: 100 * record["test"][metric] for record in found},
        {record["seed"]: record["cpu"] for record in found},
    )


SECTIONS = (
    ("Redraws every 20 epochs", (ADAPTIVE, RARE, "equal"), (UNIFORM, RARE, "equal"), above),
    ("The same, automatic", (AUTOMATIC, RARE, "equal"), (UNIFORM, RARE, "equal"), above),
    ("Before every epoch, by what training saw", (SEEN, 1, "equal"), (UNIFORM, 1, "equal"), above),
    ("The same at equal time", (SEEN, 1, "equal"), (UNIFORM, 1, "for seen"), not_below),
    ("Before every epoch, by fresh scores", (ADAPTIVE, 1, "equal"), (UNIFORM, 1, "equal"), above),
    ("The same at equal time", (ADAPTIVE, 1, "equal"), (UNIFORM, 1, "for scores"), not_below),
    ("The same, and uniform redraws for longer", (ADAPTIVE, 1, "equal"), (UNIFORM, 1, "long"), not_below),
    ("One subset, kept", (FIXED, RARE, "equal"), ("RANDOM", RARE, "equal"), above),
)


def page(log: Log) -> str:
    """One section for each comparison, corrected by Holm within it."""
    sizes = "; ".join(
        f"{task.title}: {task.model}, {100 * task.budget:g} %, {task.epochs} epochs" for task in TASKS.values()
    )
    lines = [
        "# Data that no setting was chosen on",
        "",
        "`python -m paper benchmark elsewhere FOLDER`, then without a folder. All settings are the defaults, and none",
        f"was changed after. {sizes}. Test data, quality in %, mean ± deviation (seeds); differences over common",
        "seeds, paired t tests, Holm within a section. *Time*: processor seconds of a run over those of the reference.",
        "At equal time uniform redraws train for so many more epochs that they take at least as long; how many was set",
        "by the time measured, not by the quality. Those runs on the tables (1.2 and 1.4) met a busier machine: their",
        "seconds are too high by up to a third. The last column is as in [beat-random.md](../beat-random.md).",
    ]
    for title, ours, theirs, verdict in SECTIONS:
        pairs = [
            (f"{task.title}, {told}", *(runs_of(log, name, metric, each) for each in (ours, theirs)))
            for name, task in TASKS.items()
            for metric, told in task.metrics.items()
        ]
        about = f"{ours[0]} against {theirs[0]}"
        if theirs[2] != "equal":
            longer = [task.times(theirs[2]) for task in TASKS.values()]
            about += f", for {', '.join(f'{times:g}' for times in longer)} times the epochs"
        rows = [line.row(verdict(line)) for line in family(pairs)]
        lines += ["", f"## {title}", "", f"{about}.", "", *HEAD, *rows]
    return "\n".join(lines) + "\n"


def elsewhere(
    settings: Settings,
    folder: Annotated[Path | None, typer.Argument(help="Folder of the data; without it, write the page.")] = None,
    part: Annotated[int, typer.Option(min=0, help="Which part of the runs, from 0.")] = 0,
    parts: Annotated[int, typer.Option(min=1, help="Into how many parts to divide the runs.")] = 1,
) -> None:
    """Run what is missing on data that nothing was chosen on, or write the page of the results."""
    log = Log(OUT / "runs.jsonl")
    if folder is None:
        (OUT / "README.md").write_text(page(log), encoding="utf-8")
        settings.out.print(f"Wrote {OUT / 'README.md'}.", soft_wrap=True)
    else:
        log.run_missing(runs(), lambda each: run(each, folder), part, parts)
