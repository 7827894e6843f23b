"""``coresift bench``: the paper's tables, run and shown."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coresift.cli.options import Settings, command_group, with_common_options

from .bench_one_coreset import one_coreset
from .bench_table import table as show_table

if TYPE_CHECKING:
    from ..bench.protocol import Cell, Protocol
    from ..bench.runner import Progress
    from ..bench.store import Store

logger = logging.getLogger(__name__)

app = command_group("The paper's tables: run them, resume them, look at them.", "Which")
_LEAST_SHARE = 0.001  # of the work: before, nothing can be said of the time left
_SPEAKS_EVERY = 30.0  # seconds between two progress lines where no terminal shows a moving one


def _tables() -> list[str]:
    from ..bench.protocol import table_names

    return list(table_names())


def run(
    settings: Settings,
    table: Annotated[
        str, typer.Argument(autocompletion=_tables, help="mnist, cifar10, cifar100, imagenet, ...")
    ],
    data_dir: Annotated[Path | None, typer.Option(help="The folder of the named data sets.")] = None,
    results: Annotated[Path, typer.Option(help="Where records and checkpoints go.")] = Path("results"),
    methods: Annotated[
        str | None,
        typer.Option(help="As in rbf,rbf@1,gradmatchpb; @ is followed by the epochs between selections."),
    ] = None,
    budgets: Annotated[str | None, typer.Option(help="As in 1%,5%.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of each cell; the table's own: 5.")] = None,
    workers: Annotated[int, typer.Option("--workers", "-j", min=1, help="Processes.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each process.")] = 1,
    scale: Annotated[
        str, typer.Option(help="'paper' for the protocol as printed, or another that is declared ('cpu').")
    ] = "paper",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    readers: Annotated[int, typer.Option(min=0, help="Processes that read images from the disk.")] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be run, hours and memory.")
    ] = False,
) -> None:
    """Run the cells of a table that are missing in the results. Killed, it goes on where it was.

    \b
    Examples:
      coresift bench run mnist --data-dir data --dry-run
      coresift bench run mnist --data-dir data --workers 2 --seeds 3
      coresift bench run cifar10 --data-dir data --scale cpu --methods rbf,adaptive-random@1
    """
    from coresift.training.run import device_named

    from ..bench.protocol import load_protocol
    from ..bench.runner import Job, run_missing
    from ..bench.store import Store

    protocol = load_protocol(table, scale).narrowed(_list(methods), _shares(budgets), seeds)
    device_named(device)  # one that is not there is refused now
    store = Store(results, table)
    found = store.read()
    for problem in found.problems:
        logger.warning("%s", problem)
    _note_other_versions(protocol, found.records)
    cells = protocol.cells()
    if dry_run:
        _print_plan(settings, protocol, cells, store, data_dir, workers, threads, device, readers)
        return
    results.mkdir(parents=True, exist_ok=True)
    job = Job(
        protocol,
        cells,
        store,
        None if data_dir is None else str(data_dir.expanduser()),
        device,
        threads,
        readers,
    )
    if protocol.scale_note and not settings.quiet:
        settings.err.print(protocol.scale_note, soft_wrap=True)
    line = _Line(settings, protocol, cells, store)
    try:
        with line:
            progress = run_missing(job, workers, line.show)
    except KeyboardInterrupt:
        if not settings.quiet:
            settings.err.print("Stopped. The same command goes on where it was.")
        raise
    for cell, reason in progress.failed:
        settings.err.print(f"{cell}: failed: {reason}", soft_wrap=True)
    if not settings.quiet:
        settings.out.print(
            f"{protocol.title}: {progress.done} of {progress.total} cells are in {store.file}. "
            f"'coresift bench table {table}' shows them.",
            soft_wrap=True,
        )
    if progress.failed:
        raise typer.Exit(1)


def _list(text: str | None) -> list[str] | None:
    if text is None:
        return None
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise typer.BadParameter("the list is empty")
    return found


def _shares(text: str | None) -> list[float] | None:
    from coresift.coresets.budget import parse_shares

    return None if _list(text) is None else parse_shares(text or "")


def _note_other_versions(protocol: Protocol, records: list[dict[str, Any]]) -> None:
    others = sorted({r["cell"]["protocol"] for r in records} - {protocol.version})
    if others:
        logger.warning(
            "the store holds results of protocol version %s beside %d; they are kept, and never mixed.",
            ", ".join(map(str, others)),
            protocol.version,
        )


def _print_plan(
    settings: Settings,
    protocol: Protocol,
    cells: list[Cell],
    store: Store,
    data_dir: Path | None,
    workers: int,
    threads: int,
    device: str,
    readers: int,
) -> None:
    from rich.table import Table

    from coresift.data import load_dataset

    from ..bench.layout import CLOCKS
    from ..bench.planning import estimates, probe

    records = store.read().records
    done = {record["id"] for record in records}
    data = load_dataset(protocol.dataset, None if data_dir is None else str(data_dir.expanduser()))
    speed = probe(protocol, data, device, threads, readers)
    found = estimates(protocol, cells, data, speed, records)
    plan = Table(title=f"{protocol.title} ({protocol.scale})", title_justify="left")
    for name in ("method", "R", "budget", "seeds", "done", "minutes each", "hours left"):
        plan.add_column(name, justify="left" if name == "method" else "right")
    rows: dict[tuple[str, int, float], list[tuple[bool, float]]] = {}
    for cell, estimate in zip(cells, found, strict=True):
        key = (cell.method, cell.select_every, cell.budget)
        rows.setdefault(key, []).append((cell.id in done, estimate.seconds))
    for (method, every, budget), each in rows.items():
        left = sum(seconds for is_done, seconds in each if not is_done)
        n_done = sum(is_done for is_done, _ in each)
        minutes = each[0][1] / 60
        plan.add_row(
            method,
            str(every),
            f"{100 * budget:g} %",
            str(len(each)),
            str(n_done),
            f"{minutes:.1f}",
            f"{left / 3600:.2f}",
        )
    settings.out.print(plan)
    hours = sum(e.seconds for cell, e in zip(cells, found, strict=True) if cell.id not in done) / 3600
    memory = max(estimate.memory for estimate in found) * workers / 1e9
    if protocol.scale_note:
        settings.out.print(protocol.scale_note, soft_wrap=True)
    for assumption in protocol.assumptions:
        settings.out.print(f"Assumed: {assumption}", soft_wrap=True)
    settings.out.print(
        f"{len(cells)} cells, {sum(cell.id in done for cell in cells)} done. About {hours:.1f} hours of one process, "
        f"{hours / workers:.1f} with {workers}, in {CLOCKS[speed.clock]}; about {memory:.1f} GB. Measured here: "
        f"{speed.training:,.0f} samples/s in training, {speed.forward:,.0f} forward. Selection times are rough until a "
        "cell is finished.",
        soft_wrap=True,
    )


class _Line:
    """One line: cells done, running, left, and the time left. Moving in a terminal, now and then elsewhere.

    Cells that other commands finish count as done. The time left is that of all who work on the store at the pace
    since the start, and is not said while nothing runs here: there is nothing to tell it by.
    """

    def __init__(self, settings: Settings, protocol: Protocol, cells: list[Cell], store: Store) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars

        self.settings, self.protocol = settings, protocol
        self.started, self.spoke = time.monotonic(), -_SPEAKS_EVERY
        self.bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[words]}"),
            console=settings.err,
            disable=not settings.shows_progress,
        )
        self.task = self.bars.add_task(protocol.table, total=len(cells), words="")
        self.weight = {cell.id: _weight(cell) for cell in cells}
        self.before = store.read().ids

    def __enter__(self) -> _Line:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def show(self, progress: Progress) -> None:
        """Draw it."""
        words = f"{progress.done} done, {len(progress.running)} running here, {progress.left} left"
        if progress.left:
            words += " or running elsewhere"
        if progress.failed:
            words += f", {len(progress.failed)} failed"
        seconds = self._seconds_left(progress)
        if seconds is not None:
            words += f", about {_duration(seconds)} to go"
        self.bars.update(self.task, completed=progress.done, words=words)
        now_ = time.monotonic()
        if (
            not self.settings.shows_progress
            and not self.settings.quiet
            and now_ - self.spoke >= _SPEAKS_EVERY
        ):
            self.spoke = now_
            names = "; ".join(f"{cell} ({share:.0%})" for cell, share in progress.running.values())
            self.settings.err.print(
                f"{self.protocol.table}: {words}{f': {names}' if names else ''}", soft_wrap=True
            )

    def _seconds_left(self, progress: Progress) -> float | None:
        failed = {cell.id for cell, _ in progress.failed}
        at_work = sum(share * self.weight[cell.id] for cell, share in progress.running.values())
        done = at_work + sum(self.weight[cell] for cell in progress.finished - self.before)
        left = sum(self.weight[cell] for cell in self.weight.keys() - progress.finished - failed) - at_work
        if not progress.running or done <= _LEAST_SHARE * (done + left):
            return None
        return (time.monotonic() - self.started) * left / done


def _weight(cell: Cell) -> float:
    """What a cell costs beside others, roughly: samples trained on, and passes over all data to select."""
    from ..bench.planning import looks_at_model

    return cell.budget + (0.5 / cell.select_every if looks_at_model(cell.method) else 0.0) + 0.002


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


app.command(name="run")(with_common_options(run))
app.command(name="table")(with_common_options(show_table))
app.command(name="one-coreset")(with_common_options(one_coreset))
