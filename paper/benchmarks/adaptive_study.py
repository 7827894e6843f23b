"""The settings of the adaptive coreset, chosen on validation data: training samples that no run trains on.

``python -m paper benchmark adaptive-study STAGE [--part P --parts N]`` runs what is missing of a stage (see STAGES) and
appends a line for each run to ``paper/results/adaptive-study/runs.jsonl``; without a stage it prints the table. 10,000
training samples of each data set are held out; the test sets are not used. ``CORESIFT_DATA`` names the data folder.
Set ``OMP_NUM_THREADS=1``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from sklearn.metrics import f1_score

from coresift import selection
from coresift.cli.app import Settings
from coresift.data import load_dataset
from coresift.selection import strategy_named
from coresift.training import build_model, normalize, train

from ..automatic import AutomaticCoreset, PooledCoreset
from .measure import Log, data_dir, markdown, timed

RUNS = Path(__file__).parents[1] / "results" / "adaptive-study" / "runs.jsonl"
HELD_OUT = 10_000
# 1 % of the training samples of each; the perceptrons are there because they are quick
_LENET: dict[str, Any] = {"data": "mnist", "model": "lenet", "options": {}, "budget": 600}
_MLP: dict[str, Any] = {"model": "mlp", "options": {"width": 64}}
SETTINGS: dict[str, dict[str, Any]] = {
    "mnist": {**_LENET, "epochs": 200},
    "mnist-short": {**_LENET, "epochs": 40},
    "mnist-long": {**_LENET, "epochs": 350},
    "covtype-long": {**_MLP, "data": "covtype", "budget": 743, "epochs": 175},
    "california": {**_MLP, "data": "california", "budget": 300, "epochs": 100},
    "mnist-mlp": {**_MLP, "data": "mnist", "budget": 600, "epochs": 100},
    "covtype": {**_MLP, "data": "covtype", "budget": 743, "epochs": 100},
}
Run = tuple[str, str, dict[str, Any], int, int]  # the fields of a record that name a run
FIELDS = ("data", "strategy", "settings", "select_every", "seed")


def adaptive(task: str, every: int, seed: int, correction: float, mix: float, pool_factor: float) -> Run:
    """A draw with all settings given: nothing is measured before it."""
    settings = {"automatic": False, "correction": correction, "mix": mix, "pool_factor": pool_factor}
    return task, "AdaptiveCoreset", settings, every, seed


def grid(tasks: tuple[str, ...], seeds: range) -> Iterator[Run]:
    """Correction, floor and pool, for redraws every 20 epochs and every epoch."""
    for seed in seeds:
        for task in tasks:
            for every, factors in ((20, (100.0, 30.0, 10.0)), (1, (3.0, 6.0, 10.0))):
                yield task, "adaptive-random", {}, every, seed
                for correction in (0.0, 0.25, 0.5, 1.0):
                    yield adaptive(task, every, seed, correction, 0.2, factors[1])
                for mix in (0.1, 0.5):
                    for correction in (0.0, 0.5):
                        yield adaptive(task, every, seed, correction, mix, factors[1])
                for factor in (factors[0], factors[2]):
                    for correction in (0.0, 0.5):
                        yield adaptive(task, every, seed, correction, 0.2, factor)


def lenet(seeds: range) -> Iterator[Run]:
    """The few that matter, with LeNet-5, which takes most of a minute."""
    for seed in seeds:
        for mix in (0.2, 0.5):
            yield adaptive("mnist", 20, seed, 0.5, mix, 30.0)
            yield adaptive("mnist", 1, seed, 0.0, mix, 2.25)
        yield adaptive("mnist", 1, seed, 0.25, 0.2, 2.25)
        yield "mnist", "adaptive-random", {}, 20, seed
        yield "mnist", "adaptive-random", {}, 1, seed


def fixed(tasks: tuple[str, ...], seeds: range) -> Iterator[Run]:
    """One subset for the whole run: powers, rounds and floors of what the proxy cannot explain."""
    for seed in seeds:
        for task in tasks:
            yield task, "random", {}, 1000, seed
            more = [*((power, 6, 0.1) for power in (8.0, 1.0)), (4.0, 12, 0.1), (4.0, 6, 0.5)]
            for power, rounds, mix in [(2.0, 6, 0.1), (2.0, 12, 0.1), (4.0, 6, 0.1), *(more if seed == 0 else [])]:
                yield task, "FixedCoreset", {"power": power, "rounds": rounds, "mix": mix}, 1000, seed


def time(seeds: range) -> Iterator[Run]:
    """Uniform redraws for as long as the adaptive ones take at R = 1: 1.75 times the epochs."""
    for seed in seeds:
        for task in ("covtype", "mnist"):
            yield f"{task}-long", "adaptive-random", {}, 1, seed
            for mix in (0.2, 0.5):
                yield adaptive(task, 1, seed, 0.0, mix, 2.25)


def floor(seeds: range) -> Iterator[Run]:
    """The floor at the default pools, on CovType, where labels are hard to tell."""
    for seed in seeds:
        yield "covtype", "adaptive-random", {}, 20, seed
        for mix in (0.2, 0.5, 0.3):
            yield adaptive("covtype", 20, seed, 0.475, mix, 60.0)
    for seed in seeds:
        yield "covtype", "adaptive-random", {}, 1, seed
        for mix in (0.2, 0.5, 0.3):
            yield adaptive("covtype", 1, seed, 0.0, mix, 3.0)


def regression(seeds: range) -> Iterator[Run]:
    """House prices: the defaults, and corrections around them."""
    for seed in seeds:
        for every in (20, 1):
            yield "california", "adaptive-random", {}, every, seed
            for correction in (1.0, 0.5, 0.0):
                for mix in (0.5, 0.2):
                    yield adaptive("california", every, seed, correction, mix, 3.0 * every)
        yield "california", "random", {}, 1000, seed
        for power, rounds, mix in ((2.0, 6, 0.1), (1.0, 6, 0.1), (1.0, 6, 0.5), (2.0, 1, 0.1)):
            yield "california", "FixedCoreset", {"power": power, "rounds": rounds, "mix": mix}, 1000, seed


def pools(seeds: range) -> Iterator[Run]:
    """Pools drawn by the sensitivities of the inputs, beside uniform ones."""
    for seed in seeds:
        for every, correction, mix in ((20, 0.475, 0.5), (1, 0.0, 0.2)):
            task, name, settings, *rest = adaptive("covtype", every, seed, correction, mix, 3.0 * every)
            yield task, name, {**settings, "pool": "rbf"}, *rest


def defaults(automatic: bool, seeds: range) -> Iterator[Run]:
    """The registered settings as they are, or in the automatic mode."""
    for seed in seeds:
        for task, every in (("covtype", 1), ("covtype", 20), ("mnist", 1), ("mnist", 20)):
            yield task, "AdaptiveCoreset", {"automatic": automatic}, every, seed


def seen(seeds: range) -> Iterator[Run]:
    """Norms that training itself saw, with the default floor and others."""
    for seed in seeds:
        for task, every in (("covtype", 1), ("california", 1), ("mnist", 1), ("covtype", 20), ("california", 20)):
            yield task, "adaptive-random", {}, every, seed
            yield task, "AdaptiveCoreset", {"scores": "seen"}, every, seed
            for mix in (0.1, 0.5) if task != "mnist" else ():
                yield task, "AdaptiveCoreset", {"scores": "seen", "mix": mix}, every, seed


STAGES = {
    "seen": lambda: seen(range(3)),
    "automatic": lambda: defaults(True, range(3)),
    "defaults": lambda: defaults(False, range(3)),
    "no-labels": lambda: (("mnist-short", "FixedCoreset", {"labels": False}, 1000, seed) for seed in range(3)),
    "pools": lambda: pools(range(4)),
    "regression": lambda: regression(range(3)),
    "floor": lambda: floor(range(4)),
    "time": lambda: time(range(3)),
    "grid": lambda: grid(("mnist-mlp", "covtype"), range(3)),
    "lenet": lambda: lenet(range(3)),
    "fixed-long": lambda: (
        ("mnist", name, settings, 1000, seed)
        for seed in range(2)
        for name, settings in (("FixedCoreset", {"power": 2.0, "rounds": 12, "mix": 0.1}), ("random", {}))
    ),
    "fixed": lambda: fixed(("mnist-short", "covtype"), range(3)),
}


@cache
def splits(name: str) -> tuple[Any, tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """The data set, and of its training samples those to train on and those to validate on."""
    folder = data_dir()
    if name == "california":
        path = (folder or Path()) / "california" / "california_housing.parquet"
        data = load_dataset(path, label="MedHouseVal")
    else:
        data = load_dataset(name, folder)
    x, y = np.asarray(data.train.x), np.asarray(data.train.y)
    if name == "california":
        x = np.clip(x, -5, 5)  # some rows are a hundred deviations away, and training on any subset diverges
    order = np.random.default_rng(9).permutation(len(x))
    n_held = min(HELD_OUT, len(x) // 5)
    held, kept = np.sort(order[:n_held]), np.sort(order[n_held:])
    return data, (x[kept], y[kept]), (x[held], y[held])


def strategy_of(name: str, settings: dict[str, Any]) -> Any:
    kind = getattr(selection, name, None)
    if kind is None:
        return strategy_named(name)
    if settings.get("automatic", False):
        kind = AutomaticCoreset
    if "pool" in settings:
        settings, kind = {**settings, "pool": strategy_named(settings["pool"])}, PooledCoreset
    return kind(**{key: value for key, value in settings.items() if key != "automatic"})


def run(of: dict[str, Any]) -> dict[str, Any]:
    task = SETTINGS[of["data"]]
    data, kept, held = splits(task["data"])
    shape, seed = {"n_classes": data.n_classes, "input_shape": data.input_shape}, of["seed"]
    model = build_model(task["model"], seed=seed, **shape, **task["options"])
    transform = None if data.mean is None else partial(normalize, mean=data.mean, std=data.std)
    strategy = strategy_of(of["strategy"], of["settings"])
    options = {
        "epochs": task["epochs"],
        "select_every": of["select_every"],
        "seed": seed,
        "transform": transform,
        "loss": "mse" if data.n_classes is None else "cross_entropy",
        "device": "cpu",
    }
    spent, result = timed(lambda: train(model, kept, strategy, task["budget"], **options))
    with torch.no_grad():
        model.eval()
        parts = torch.from_numpy(np.asarray(held[0])).split(500)
        outputs = torch.cat([model(part if transform is None else transform(part)) for part in parts]).numpy()
    return {
        **quality(outputs, np.asarray(held[1])),
        "cpu_seconds": round(spent, 2),
        "selection_share": round(result.seconds.selection / result.seconds.total, 3),
    }


def quality(outputs: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    if outputs.shape[1] == 1:
        return {"val_rmse": round(float(np.sqrt(np.mean((outputs[:, 0] - targets) ** 2))), 5)}
    found = outputs.argmax(axis=1)
    accuracy = float(np.mean(found == targets))
    return {"val_accuracy": round(accuracy, 5), "val_macro_f1": round(f1_score(targets, found, average="macro"), 5)}


def table() -> str:
    """Means over the seeds, and their deviation."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for found in Log(RUNS).records:
        told = ", ".join(f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in found["settings"].items())
        groups.setdefault((found["data"], found["select_every"], found["strategy"], told), []).append(found)
    header = ["data", "R", "strategy", "settings", "seeds", "accuracy", "macro-F1", "processor, s"]
    rows = []
    for (data, every, strategy, told), group in sorted(groups.items(), key=lambda item: item[0]):
        spent = np.mean([one["cpu_seconds"] for one in group])
        if "val_rmse" in group[0]:
            measured, f1 = np.array([one["val_rmse"] for one in group]), "(root mean square error)"
        else:
            measured = 100 * np.array([one["val_accuracy"] for one in group])
            f1 = f"{100 * np.mean([one['val_macro_f1'] for one in group]):.1f}"
        deviation = f" ± {measured.std(ddof=1):.3f}" if len(group) > 1 else ""
        about = [data, str(every), strategy, told, str(len(group))]
        rows.append([*about, f"{measured.mean():.3f}{deviation}", f1, f"{spent:.1f}"])
    return "\n".join(markdown(header, rows, left=8))


def adaptive_study(
    settings: Settings,
    stage: Annotated[str | None, typer.Argument(help=f"{', '.join(STAGES)}; without one, print means.")] = None,
    part: Annotated[int, typer.Option(min=0, help="Which part of the runs, from 0.")] = 0,
    parts: Annotated[int, typer.Option(min=1, help="Into how many parts to divide the runs.")] = 1,
) -> None:
    """Run what is missing of a stage of the study of settings, or print its table."""
    if stage is None:
        settings.out.print(table(), markup=False, soft_wrap=True)
        return
    if stage not in STAGES:
        raise typer.BadParameter(f"stage {stage!r} is unknown; choose from {', '.join(STAGES)}")
    wanted = (dict(zip(FIELDS, each, strict=True)) for each in STAGES[stage]())
    Log(RUNS).run_missing(wanted, run, part, parts)
