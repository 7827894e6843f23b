"""``python -m paper run``: train what is missing of a table."""

from __future__ import annotations

import logging
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coresift.cli.app import Settings

if TYPE_CHECKING:
    from ..bench.protocol import Run
    from ..bench.runner import Job, Progress

logger = logging.getLogger("coresift.paper")

_LEAST_SHARE = 0.001  # share of the work done before a time left is shown
_LOG_EVERY = 30.0  # seconds between two progress lines where there is no terminal


def _tables() -> list[str]:
    from ..bench.protocol import table_names

    return [*table_names(), *STUDIES]


STUDIES = {
    "acceleration": "..acceleration",
    "search": "..search",
    "tables": "..subsets_report",
}  # modules with a function study(folder, out=) that says what it did

TableName = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", autocompletion=_tables, help="mnist, cifar10, cifar100, imagenet, covtype, fashion-mnist."
    ),
]
RunName = Annotated[
    str, typer.Argument(metavar="NAME", autocompletion=_tables, help=f"A table, or one of: {', '.join(STUDIES)}.")
]
Results = Annotated[Path | None, typer.Option(help="Folder of records and checkpoints.", show_default="paper/results")]
Scale = Annotated[
    str, typer.Option(help="'paper' for the protocol as printed, or another declared size, such as 'cpu'.")
]


def run(
    settings: Settings,
    table: RunName,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the named data sets.")] = None,
    results: Results = None,
    methods: Annotated[
        str | None, typer.Option(help="For example rbf,rbf@1,gradmatchpb; @ gives the epochs between selections.")
    ] = None,
    budgets: Annotated[str | None, typer.Option(help="For example 1%,5%.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of each entry; by default the table's.")] = None,
    workers: Annotated[int, typer.Option("--workers", "-j", min=1, help="Processes.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each process.")] = 1,
    scale: Scale = "paper",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    readers: Annotated[int, typer.Option(min=0, help="Processes that read images from disk.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print runs, hours and memory only.")] = False,
) -> None:
    """Train the runs of a table that are not in the results yet. A killed command resumes when called again.

    A study ("search") measures what is missing with --data-dir, and writes its page without.

    \b
    Examples:
      python -m paper run mnist --data-dir data --dry-run
      python -m paper run mnist --data-dir data --workers 2 --seeds 3
      python -m paper run cifar10 --data-dir data --scale cpu --methods rbf,adaptive-random@1
    """
    if table.lower() in STUDIES:
        module = import_module(STUDIES[table.lower()], __package__)
        done = module.study(data_dir, **({} if results is None else {"out": results}))
        settings.out.print(done, soft_wrap=True)
        return
    from coresift.training.run import device_named

    from ..bench.protocol import load_protocol
    from ..bench.runner import Job, run_missing
    from ..bench.store import RESULTS, Store
    from . import parse_shares

    shares = None if budgets is None else parse_shares(budgets)
    protocol = load_protocol(table.lower(), scale).narrowed(_list(methods), shares, seeds)
    device_named(device)  # reject it before loading data
    store = Store(results or RESULTS, protocol.table)
    found = store.read()
    for problem in found.problems:
        logger.warning("%s", problem)
    cells = [record["cell"] for record in found.records]
    others = sorted({cell["protocol"] for cell in cells if cell["scale"] == protocol.scale} - {protocol.version})
    if others:
        versions = ", ".join(map(str, others))
        logger.warning("the store also holds version %s of the protocol; versions are never mixed.", versions)
    folder = None if data_dir is None else str(data_dir.expanduser())
    job = Job(protocol, protocol.runs(), store, folder, device, threads, readers)
    if dry_run:
        _print_plan(settings, job, workers)
        return
    store.results.mkdir(parents=True, exist_ok=True)
    if protocol.scale_note and not settings.quiet:
        settings.err.print(protocol.scale_note, soft_wrap=True)
    try:
        with _Line(settings, job) as line:
            progress = run_missing(job, workers, line.show)
    except KeyboardInterrupt:
        if not settings.quiet:
            settings.err.print("Stopped. Run the same command again to resume.")
        raise
    for run, reason in progress.failed:
        settings.err.print(f"{run}: failed: {reason}", soft_wrap=True)
    if not settings.quiet:
        done = f"{progress.done} of {progress.total} runs are in {store.file}"
        show = f"'python -m paper table {protocol.table}' shows them"
        settings.out.print(f"{protocol.title}: {done}. {show}.", soft_wrap=True)
    if progress.failed:
        raise typer.Exit(1)


def _list(text: str | None) -> list[str] | None:
    found = None if text is None else [part.strip() for part in text.split(",") if part.strip()]
    if found == []:
        raise typer.BadParameter("the list is empty")
    return found


def _print_plan(settings: Settings, job: Job, workers: int) -> None:
    from rich.table import Table

    from coresift.data import load_dataset

    from ..bench.layout import CLOCKS
    from ..bench.planning import estimated_bytes, estimated_seconds, probe

    protocol, found = job.protocol, job.store.read()
    data = load_dataset(protocol.dataset, job.data_dir)
    speed = probe(protocol, data, job.device, job.threads, job.readers)
    seconds = estimated_seconds(protocol, job.runs, data, speed, found.records)
    groups: dict[tuple[str, int, float], list[tuple[bool, float]]] = {}
    for run, each in zip(job.runs, seconds, strict=True):
        key = run.method, run.select_every, run.budget
        groups.setdefault(key, []).append((run.id in found.ids, each))
    table = Table(title=f"{protocol.title} ({protocol.scale})", title_justify="left")
    for name in ("method", "R", "budget", "seeds", "done", "minutes each", "hours left"):
        table.add_column(name, justify="left" if name == "method" else "right")
    hours = 0.0
    for (method, every, budget), group in groups.items():
        left = sum(spent for is_done, spent in group if not is_done) / 3600
        hours += left
        n_done = sum(is_done for is_done, _ in group)
        numbers = (f"{100 * budget:g} %", str(len(group)), str(n_done), f"{group[0][1] / 60:.1f}", f"{left:.2f}")
        table.add_row(method, str(every), *numbers)
    settings.out.print(table)
    notes = [f"Assumed: {assumption}" for assumption in protocol.assumptions]
    for note in [protocol.scale_note, *notes] if protocol.scale_note else notes:
        settings.out.print(note, soft_wrap=True)
    settings.out.print(
        f"{len(job.runs)} runs, {sum(run.id in found.ids for run in job.runs)} done. About {hours:.1f} hours in one "
        f"process, {hours / workers:.1f} in {workers}, in {CLOCKS[speed.clock]}; about "
        f"{estimated_bytes(data) * workers / 1e9:.1f} GB. Measured here: {speed.training:,.0f} samples/s in training, "
        f"{speed.forward:,.0f} forward. Selection times are rough until a run is finished.",
        soft_wrap=True,
    )


class _Line:
    """One progress line: runs done, running, left, and the time left; a bar in a terminal, log lines elsewhere.

    Runs that other commands finish count as done. The time left assumes the pace of all workers since the start, and is
    not shown while nothing runs here.
    """

    def __init__(self, settings: Settings, job: Job) -> None:
        from rich.progress import BarColumn, Progress as Bars, TextColumn

        self.settings, self.name = settings, job.protocol.table
        self.started, self.logged = time.monotonic(), -_LOG_EVERY
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[words]}"))
        self.bars = Bars(*columns, console=settings.err, disable=not settings.shows_progress)
        self.task = self.bars.add_task(self.name, total=len(job.runs), words="")
        self.weight = {run.id: _weight(run) for run in job.runs}
        self.before = job.store.read().ids

    def __enter__(self) -> _Line:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def show(self, progress: Progress) -> None:
        """Draw or log it."""
        words = f"{progress.done} done, {len(progress.running)} running here, {progress.left} left"
        if progress.left:
            words += " or running elsewhere"
        if progress.failed:
            words += f", {len(progress.failed)} failed"
        seconds = self._seconds_left(progress)
        if seconds is not None:
            words += f", about {_duration(seconds)} to go"
        self.bars.update(self.task, completed=progress.done, words=words)
        is_silent = self.settings.shows_progress or self.settings.quiet
        if not is_silent and time.monotonic() - self.logged >= _LOG_EVERY:
            self.logged = time.monotonic()
            names = "; ".join(f"{run} ({share:.0%})" for run, share in progress.running.values())
            self.settings.err.print(f"{self.name}: {words}{f': {names}' if names else ''}", soft_wrap=True)

    def _seconds_left(self, progress: Progress) -> float | None:
        failed = {run.id for run, _ in progress.failed}
        at_work = sum(share * self.weight[run.id] for run, share in progress.running.values())
        done = at_work + sum(self.weight[each] for each in progress.finished - self.before)
        left = sum(self.weight[each] for each in self.weight.keys() - progress.finished - failed) - at_work
        if not progress.running or done <= _LEAST_SHARE * (done + left):
            return None
        return (time.monotonic() - self.started) * left / done


def _weight(run: Run) -> float:
    """Estimate the relative cost of a run: samples trained on, and passes over all data to select."""
    from ..bench.planning import looks_at_model

    return run.budget + (0.5 / run.select_every if looks_at_model(run.method) else 0.0) + 0.002


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
