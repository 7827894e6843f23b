"""``coresift train``, ``datasets`` and ``strategies``: train a network on a subset, selected again every few epochs."""

# ruff: noqa: RUF009 - the function called returns a field
import json
import os
from collections.abc import Set
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from coresift.cli.app import AsJson, Config, Settings, as_option
from coresift.cli.select import Preparing
from coresift.coresets.options import option
from coresift.training.options import TrainOptions

_TASKS = ("classification", "regression")
_MODELS = ["lenet", "mnist-net", "resnet9", "resnet18", "mlp"]


def _datasets() -> list[str]:
    from coresift.data import DATASETS

    return list(DATASETS)


@dataclass(frozen=True)
class Subject(Preparing):
    """What is trained, and on what."""

    dataset: str | None = option(None, "A name (see 'datasets'), a file or a folder.", flags=("-d",), choices=_datasets)
    data_dir: Path | None = option(None, "Folder that holds the named data sets.")
    download: bool = option(False, "Download the data set if it is missing.")
    label: str | None = option(None, "For your own table: column of the labels or targets.")
    test: str | None = option(None, "For your own data: file or folder of the test set.")
    task: str | None = option(None, "For your own data. [default: regression if targets have decimals]", choices=_TASKS)
    model: str | None = option(
        None,
        f"{', '.join(_MODELS)} or module:factory. [default: mlp for rows, lenet for 28x28 and 32x32, else resnet18]",
        flags=("-m",),
        choices=lambda: _MODELS,
    )
    image_size: int | None = option(None, "For your own images: height and width. [default: theirs, up to 224]", min=1)
    cache: Path | None = option(None, "For image files: decode them once, into a file in this folder.")
    width: int | None = option(None, "Width of resnet9 (default 16), resnet18 (64) or mlp (256).", min=1)
    columns: str | None = option(None, "For your own table: feature columns, separated by commas. Default: all.")


def datasets(
    settings: Settings,
    data_dir: Annotated[Path | None, typer.Option(help="Folder that holds the named data sets.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the data sets that 'coresift train' knows by name, and where their files are or should be."""
    from rich.table import Table

    from coresift.data.datasets import available_datasets

    found = available_datasets(data_dir)
    if as_json:
        settings.out.print_json(json.dumps([asdict(info) for info in found]))
        return
    table = Table()
    for name in ("name", "here", "what it is", "where"):
        table.add_column(name, overflow="fold")
    for info in found:
        table.add_row(info.name, "yes" if info.is_present else "no", info.description, info.where)
    settings.out.print(table)
    own = "For your own data, pass --dataset a file (.npz, .parquet, .csv) or a folder of images."
    settings.show([], notes=[f"'coresift train --download' downloads published files. {own}"])


def strategies(
    settings: Settings,
    name: Annotated[str | None, typer.Argument(help="One of them, in detail.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the strategies of 'coresift train': what each needs, costs and chooses, and where it won.

    k of n samples in d columns are chosen, n_c are in the largest class. The model has P parameters, its last layer H
    inputs and C outputs; a pass runs it over all data. A method won where it beat uniform redraws, or what is named.
    """
    from rich import box
    from rich.markdown import Markdown
    from rich.table import Column, Table

    from coresift.selection.names import methods

    found = methods(name)
    if as_json:
        settings.out.print_json(json.dumps(found))
        return
    columns = Column("name", no_wrap=True), Column("what it chooses (paper)")
    table = Table(*columns, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for method in found:
        what, paper, won = (method[key] for key in ("what it chooses", "paper", "where it won"))
        told = "; ".join(f"{key} {method[key]}" for key in ("needs", "cost", "memory", "weights") if method[key] != "-")
        cited, wins = "" if paper == "-" else f" ({paper})", "" if won == "-" else f"\nwon: {won}"
        table.add_row(method["name"], f"{what}{cited}\n{told}{wins}")
    settings.out.print(table, *(Markdown(method["about"], hyperlinks=False) for method in found if name))


def train(
    settings: Settings,
    *,
    subject: Subject,
    options: TrainOptions,
    threads: Annotated[int | None, typer.Option(min=1, help="Number of PyTorch threads.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the run; resumed if it exists.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume the run in this folder, with the options it had.")] = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Train a network on a subset of a data set, selected again every few epochs.

    \b
    Examples:
      coresift train --dataset digits --model mlp --budget 10% --epochs 60 --out run
      coresift train -d mnist --data-dir data -m lenet -s rbf -b 1% --select-every 20 --out run
      coresift train --resume run
      coresift train --config run.toml --seed 1 --out run-1

    Under torchrun, the processes share the run (DDP): 'torchrun --nproc-per-node 2 -m coresift train ...'.

    A run consists of config.json, data.json, metrics.jsonl (a line per epoch), model.safetensors and result.json.
    """
    if resume is not None:
        if out is not None and out.resolve() != resume.resolve():
            raise typer.BadParameter("--resume continues in its own folder: it does not go with --out")
        out = resume
        subject, options = _recalled(resume, subject, options, settings.given)
    if subject.dataset is None:
        raise typer.BadParameter("--dataset NAME is needed (or --resume RUN)")
    if out is None:
        raise typer.BadParameter("--out FOLDER is needed (or --resume RUN)")
    _check(settings, subject, options)

    from coresift.training import RunFolder

    found = RunFolder(out).result()
    had_finished = found is not None and _kept(out) == _plain(subject, options)
    if found is None or not had_finished:  # train() names what differs
        found = _run(settings, subject, options, out, threads)
    if int(os.environ.get("RANK", "0")):
        return  # the first process prints
    if had_finished and not settings.quiet and not as_json:
        settings.out.print(f"{out}: the run is finished.", soft_wrap=True)
    _print(settings, options.strategy, found, out, as_json)


def _check(settings: Settings, subject: Subject, options: TrainOptions) -> None:
    from coresift._errors import InvalidInputError
    from coresift._validation import check_choice, parse_budget
    from coresift.selection import strategy_named

    try:
        options.checked()
        strategy_named(options.strategy)
        if options.budget is not None:
            parse_budget(options.budget, 2**53)  # the number of samples is not known yet
        if subject.task is not None:
            check_choice(subject.task, "task", _TASKS)
    except InvalidInputError as error:
        raise typer.BadParameter(as_option(str(error), settings.parameters)) from error


def _run(settings: Settings, subject: Subject, options: TrainOptions, out: Path, threads: int | None) -> dict[str, Any]:
    import torch

    from coresift.data import load_dataset
    from coresift.training import build_model, train as run

    if threads is not None:
        torch.set_num_threads(threads)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch.distributed.is_initialized():
        is_on_gpu = options.device != "cpu" and torch.cuda.is_available()
        torch.distributed.init_process_group("nccl" if is_on_gpu else "gloo")
    names = ("data_dir", "download", "label", "test", "task", "image_size", "cache")
    given = {name: getattr(subject, name) for name in names}
    data = load_dataset(subject.dataset, **given, preparation=subject.preparation(subject.columns))
    if data.table is not None and not settings.quiet:
        for line in data.table.lines(others={str(subject.label): "label"}):
            settings.err.print(line, markup=False)
    n_classes, about = None if data.n_outputs == 1 else data.n_outputs, {"options": _plain(subject, options)}
    sizes: dict[str, Any] = {"n_classes": n_classes, "input_shape": data.input_shape, "width": subject.width}
    usual = "mlp" if len(data.input_shape) < 3 else "lenet" if data.input_shape[1] in (28, 32) else "resnet18"
    model = build_model(subject.model or usual, **sizes, seed=options.seed)
    try:
        with settings.bars(transient=True) as bars:
            result = run(model, data, **vars(options), out=out, progress=bars, about=about)
    except KeyboardInterrupt:
        if not settings.quiet:
            settings.err.print(f"Stopped. To resume: coresift train --resume {out}", soft_wrap=True)
        raise
    return {**vars(result), "seconds": result.seconds.rounded()}


def _recalled(run: Path, subject: Subject, options: TrainOptions, given: Set[str]) -> tuple[Subject, TrainOptions]:
    kept = _kept(run)
    for name, value in _plain(subject, options).items():
        if name in given and value != kept[name]:
            raise typer.BadParameter(f"--{name.replace('_', '-')} {value}: the run was started with {kept[name]}")
    return Subject(**{each.name: kept.pop(each.name) for each in fields(Subject)}), replace(options, **kept)


def _kept(run: Path) -> dict[str, Any]:
    from coresift._errors import InvalidInputError
    from coresift._validation import naming
    from coresift.coresets.files import check_types
    from coresift.training import RunFolder

    about = RunFolder(run).config().get("about")
    if not isinstance(about, dict) or not isinstance(about.get("options"), dict):
        raise InvalidInputError(f"{run}: was not started by 'coresift train'; call train(out=...) again.")
    kept = {**_plain(Subject(), TrainOptions()), **about["options"]}
    with naming(run / "config.json", "damaged"):
        for kind in (Subject, TrainOptions):
            check_types(kind, kept)
    return kept


def _plain(subject: Subject, options: TrainOptions) -> dict[str, Any]:
    """Return the options for JSON, with absolute paths, so that a run can be resumed from another folder."""
    from coresift.data import DATASETS

    plain = {**asdict(subject), **options.recorded()}
    for name in ("data_dir", "dataset", "test"):
        path = None if plain[name] is None else Path(plain[name]).expanduser()
        if path is not None and (name == "data_dir" or (plain[name] not in DATASETS and path.exists())):
            plain[name] = str(path.resolve())
    return plain


def _print(settings: Settings, strategy: str, found: dict[str, Any], out: Path, as_json: bool) -> None:
    shown = {name: found[name] for name in ("test", "seconds", "n_epochs", "subset_size")}
    if as_json:
        settings.out.print_json(json.dumps({"run": str(out), **shown}))
        return
    test = shown["test"] or {}
    seconds = {name: value for name, value in shown["seconds"].items() if name != "clock"}
    words = {"accuracy": "accuracy {:.2%}", "rmse": "RMS error {:.4g}", "loss": "loss {:.4g}"}
    quality = next((text.format(test[name]) for name, text in words.items() if name in test), "nothing")
    effort = f"{shown['subset_size']:,} samples in {shown['n_epochs']} epochs"
    lines = [f"{strategy}: {quality} on the test set, from {effort}."]
    if not settings.quiet:
        if test.get("macro_f1", 1.0) < test.get("accuracy", 0.0) - 0.05:
            lines.append(f"Some classes do worse: macro-F1 {test['macro_f1']:.2%}.")
        parts = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
        lines.append(f"{sum(seconds.values()):.1f} s: {parts}. The model is in {out / 'model.safetensors'}.")
    for line in lines:
        settings.out.print(line, soft_wrap=True)
