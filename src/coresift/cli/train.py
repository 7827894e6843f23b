"""``coresift train``: train a network on a subset that is selected anew as it learns."""

from __future__ import annotations

import json
import logging
from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coresift.cli.inputs import AsJson, Config
from coresift.cli.options import Settings

if TYPE_CHECKING:
    from coresift.training import TrainResult

logger = logging.getLogger(__name__)

_NOT_KEPT = (
    "settings",
    "config",
    "resume",
    "out",
    "as_json",
    "threads",
    "device",
    "workers",
    "checkpoint_seconds",
)
_FAR_BELOW = 0.05  # macro-F1, below the accuracy
_MODELS = ["lenet", "resnet18", "mlp"]


def _strategies() -> list[str]:
    from coresift.selection import registry

    return [name.lower() for name in registry()]


def train(
    settings: Settings,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset",
            "-d",
            autocompletion=lambda: ["digits", "mnist", "cifar10", "cifar100", "imagenet", "covtype"],
            help="A name ('coresift datasets' lists them), or a file or folder of your own.",
        ),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="The folder of the named data sets.")] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch the data set if it is missing.")
    ] = False,
    label: Annotated[
        str | None, typer.Option(help="Of a table: the column of the labels or targets.")
    ] = None,
    test: Annotated[
        str | None, typer.Option(help="Of your own data: the test part, a file or folder.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            autocompletion=lambda: ["classification", "regression"],
            help="Of your own data; by default numbers with a point are targets of a regression, all else classes.",
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            autocompletion=lambda: _MODELS,
            help="lenet, resnet18, mlp or package.module:factory.",
        ),
    ] = "lenet",
    width: Annotated[int | None, typer.Option(min=1, help="Of resnet18 (64) or mlp (256).")] = None,
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy", "-s", autocompletion=_strategies, help="What to select by; 'full' for all data."
        ),
    ] = "rbf",
    budget: Annotated[
        str, typer.Option("--budget", "-b", help="Samples to train on: 1%, 0.01 or 600.")
    ] = "10%",
    epochs: Annotated[int, typer.Option(min=1, help="A warm start runs fewer.")] = 200,
    select_every: Annotated[int, typer.Option(min=1, help="Epochs between two selections.")] = 20,
    batch_size: Annotated[int, typer.Option(min=1)] = 20,
    lr: Annotated[float, typer.Option(help="Learning rate at the beginning.")] = 0.01,
    momentum: Annotated[float, typer.Option()] = 0.9,
    weight_decay: Annotated[float, typer.Option()] = 5e-4,
    schedule: Annotated[
        str, typer.Option(autocompletion=lambda: ["cosine", "constant"], help="cosine or constant.")
    ] = "cosine",
    loss: Annotated[
        str | None,
        typer.Option(help="By default cross_entropy, or mse where targets are numbers; l1, huber."),
    ] = None,
    val_fraction: Annotated[
        float | None,
        typer.Option(help="Share of the training data set aside; 0.1 where it is looked at, else 0."),
    ] = None,
    eval_every: Annotated[int, typer.Option(min=0, help="Epochs between two validations; 0: none.")] = 0,
    augment: Annotated[
        bool,
        typer.Option("--augment/--no-augment", help="Random crops and mirror images where they are usual."),
    ] = True,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same run.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of PyTorch.")] = None,
    workers: Annotated[int, typer.Option("--workers", "-j", min=0, help="Processes that read images.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of the run; a run that was killed goes on there."),
    ] = None,
    checkpoint_seconds: Annotated[float, typer.Option(min=0, help="Time between two checkpoints.")] = 30.0,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Go on with a run that was killed; it knows its options."),
    ] = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Train a network on a subset of a data set, selected anew every few epochs.

    \b
    Examples:
      coresift train --dataset digits --model mlp --budget 10% --epochs 60 --out run
      coresift train -d mnist --data-dir data -m lenet -s rbf -b 1% --select-every 20 --out run
      coresift train --resume run
      coresift train --config run.toml --seed 1 --out run-1

    RUN holds config.json, data.json, metrics.jsonl (a line per epoch), model.safetensors and result.json.
    """
    options = {name: value for name, value in locals().items() if name not in _NOT_KEPT}
    if resume is not None:
        if out is not None and out.resolve() != resume.resolve():
            raise typer.BadParameter("--resume goes on in its own folder: --out does not go with it")
        options = _options_of(resume, options, settings.given)
        out = resume
    if options["dataset"] is None:
        raise typer.BadParameter("--dataset NAME is needed (or --resume RUN)")
    if out is None:
        raise typer.BadParameter("--out FOLDER is needed (or --resume RUN)")

    _check_words(options)

    from coresift.training.checkpoint import RunFolder

    if (found := _finished(RunFolder(out), options, is_resumed=resume is not None)) is not None:
        if not settings.quiet and not as_json:
            settings.out.print(f"{out}: the run is finished.", soft_wrap=True)
        return _print(settings, options, found, out, as_json)

    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    result = _run(settings, options, out, device, workers, checkpoint_seconds)
    found = {"test": result.test, "seconds": result.seconds.parts(), "n_epochs": result.n_epochs}
    _print(settings, options, {**found, "subset_size": result.subset_size}, out, as_json)
    return None


def _run(
    settings: Settings,
    options: dict[str, Any],
    out: Path,
    device: str,
    workers: int,
    checkpoint_seconds: float,
) -> TrainResult:
    from coresift.data import load_dataset
    from coresift.selection import strategy_named
    from coresift.training import build_model
    from coresift.training import train as run
    from coresift.training.progress import Bar

    strategy = strategy_named(options["strategy"])  # a wrong name is said before data are read
    own = {name: options[name] for name in ("label", "test", "task") if options.get(name) is not None}
    data = load_dataset(options["dataset"], options["data_dir"], download=options["download"], **own)
    outputs = None if data.n_outputs == 1 else data.n_outputs
    model = build_model(
        options["model"],
        n_classes=outputs,
        input_shape=data.input_shape,
        width=options["width"],
        seed=options["seed"],
    )
    passed = (
        *("budget", "epochs", "select_every", "batch_size", "lr", "momentum", "weight_decay", "schedule"),
        *("val_fraction", "eval_every", "augment", "seed"),
    )
    try:
        return run(
            model,
            data,
            strategy,
            loss=options["loss"],
            device=device,
            workers=workers,
            out=out,
            checkpoint_seconds=checkpoint_seconds,
            on_epoch=_log,
            progress=Bar(
                label=options["strategy"], console=settings.err, disable=not settings.shows_progress
            ),
            about={"options": _plain(options)},
            **{name: options[name] for name in passed},
        )
    except KeyboardInterrupt:
        if not settings.quiet:
            settings.err.print(f"Stopped. To go on: coresift train --resume {out}", soft_wrap=True)
        raise


def _check_words(options: dict[str, Any]) -> None:
    """Words that are wrong whatever the data are wrong usage, and said before anything is read."""
    from coresift._errors import InvalidInputError
    from coresift._validation import check_choice
    from coresift.coresets.budget import parse_budget
    from coresift.selection import strategy_named

    try:
        strategy_named(options["strategy"])
        check_choice(options["schedule"], "schedule", ("cosine", "constant"))
        if options.get("task") is not None:
            check_choice(options["task"], "task", ("classification", "regression"))
        parse_budget(options["budget"], 2**53)  # whether there are so many samples is seen later
    except InvalidInputError as error:
        raise typer.BadParameter(str(error)) from error


def _options_of(run: Path, options: dict[str, Any], given: Set[str]) -> dict[str, Any]:
    """The options of a run; others that stand on the line are refused, as the run could not be the same."""
    from coresift._errors import InvalidInputError
    from coresift.training.checkpoint import RunFolder

    kept = (RunFolder(run).config().get("about") or {}).get("options")
    if kept is None:
        raise InvalidInputError(
            f"{run}: was not started by 'coresift train'; call train(out=...) again instead."
        )
    for name, value in _plain(options).items():
        if name in given and value != kept.get(name):
            flag = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"{flag} {value}: the run was started with {kept.get(name)}")
    return kept


def _finished(folder: Any, options: dict[str, Any], *, is_resumed: bool) -> dict[str, Any] | None:
    """The result of a run that is finished, without reading data; None if there is something to do."""
    found = folder.result()
    if found is None or is_resumed:
        return found
    kept = (folder.config().get("about") or {}).get("options")
    return found if kept == _plain(options) else None  # the loop says what differs


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """As JSON holds them; paths are made absolute, so that a run goes on from another folder."""
    from coresift.data import DATASETS

    plain = dict(options)
    if plain["data_dir"] is not None:
        plain["data_dir"] = str(Path(plain["data_dir"]).expanduser().resolve())
    for name in ("dataset", "test"):
        if (
            plain[name] is not None
            and plain[name] not in DATASETS
            and Path(plain[name]).expanduser().exists()
        ):
            plain[name] = str(Path(plain[name]).expanduser().resolve())
    return plain


def _log(metrics: dict[str, Any]) -> None:
    words = [f"loss {metrics['loss']:.4f}"]
    words += [f"{name} {metrics[name]:.4f}" for name in ("accuracy", "val_accuracy") if name in metrics]
    logger.info("epoch %d of %d: %s", metrics["epoch"], metrics["n_epochs"], ", ".join(words))


def _print(
    settings: Settings, options: dict[str, Any], found: dict[str, Any], out: Path, as_json: bool
) -> None:
    if as_json:
        found = {name: value for name, value in found.items() if name != "history"}
        settings.out.print_json(json.dumps({"run": str(out), **found}))
        return
    test = found["test"] or {}
    seconds = {name: value for name, value in found["seconds"].items() if name != "clock"}
    qualities = {"accuracy": "accuracy {:.2%}", "rmse": "error {:.4g} (rms)", "loss": "loss {:.4g}"}
    quality = next((words.format(test[name]) for name, words in qualities.items() if name in test), "nothing")
    total = sum(seconds.values())
    settings.out.print(
        f"{options['strategy']}: {quality} on the test set, from {found['subset_size']:,} samples in "
        f"{found['n_epochs']} epochs.",
        soft_wrap=True,
    )
    if not settings.quiet:
        if test.get("macro_f1", 1.0) < test.get("accuracy", 0.0) - _FAR_BELOW:
            settings.out.print(f"Some classes do worse: macro-F1 {test['macro_f1']:.2%}.", soft_wrap=True)
        parts = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
        settings.out.print(
            f"{total:.1f} s: {parts}. The model is in {out / 'model.safetensors'}.", soft_wrap=True
        )
