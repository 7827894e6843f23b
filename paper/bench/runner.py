"""Runs the cells of a table that are missing, in one process or in several."""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Any

from coresift._errors import CoresiftError

from .protocol import Cell, Protocol
from .store import Store, Watch

_POLL_SECONDS = 0.5
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Job:
    """What every worker is told; small, so that it can be sent to another process."""

    protocol: Protocol
    cells: Sequence[Cell]
    store: Store
    data_dir: str | None = None
    device: str = "auto"
    threads: int = 1
    readers: int = 0


@dataclass
class Progress:
    """Where the runs are; ``finished`` are the ids of cells that are in the store, by whomever."""

    total: int
    finished: frozenset[str] = frozenset()
    running: dict[int, tuple[Cell, float]] = field(
        default_factory=dict
    )  # worker -> cell, share of its epochs
    failed: list[tuple[Cell, str]] = field(default_factory=list)

    @property
    def done(self) -> int:
        """How many are finished."""
        return len(self.finished)

    @property
    def left(self) -> int:
        """Cells that nobody has begun, or that other commands are running."""
        others = {cell.id for cell, _ in self.failed} - self.finished
        return self.total - self.done - len(self.running) - len(others)


OnProgress = Callable[[Progress], None]
Report = Callable[[str, Cell, Any], None]  # "started" | "epoch" | "finished" | "failed", cell, detail


def run_missing(job: Job, workers: int, on_progress: OnProgress) -> Progress:
    """Run what the store does not hold; a cell that fails is named and the others are run.

    Other processes of this machine may work on the same store at the same time. Kill it and start it again: finished
    cells stay, and begun ones go on from their last checkpoint.
    """
    reporter = _Reporter(job, Progress(total=len(job.cells)), on_progress)
    for cell in job.cells:
        if cell.id in reporter.progress.finished:
            job.store.clear(cell)  # a kill came between the record and the end of its checkpoints
    reporter.tell()
    n_missing = reporter.progress.left
    if n_missing == 0:
        return reporter.progress
    if workers == 1:
        _work(job, reporter.of_worker(0), bytearray(len(job.cells)))
    else:
        _run_processes(job, min(workers, n_missing), reporter)
    reporter.end()
    return reporter.progress


class _Reporter:
    """Keeps the progress: what the workers of this command say, and what others have put into the store."""

    def __init__(self, job: Job, progress: Progress, on_progress: OnProgress) -> None:
        self.progress, self.on_progress = progress, on_progress
        self.store, self.watch = job.store, Watch(job.store)
        self.cells = frozenset(cell.id for cell in job.cells)
        self.progress.finished = self.watch.ids() & self.cells

    def tell(self) -> None:
        """Look at the store, and say where the runs are."""
        running = {cell.id for cell, _ in self.progress.running.values()}
        self.progress.finished |= (self.watch.ids() & self.cells) - running
        self.on_progress(self.progress)

    def end(self) -> None:
        """What the store holds when the work is over."""
        self.progress.running.clear()
        self.progress.finished = frozenset(self.store.read().ids & self.cells)
        self.on_progress(self.progress)

    def of_worker(self, worker: int) -> Report:
        return lambda what, cell, detail: self.take(worker, what, cell, detail)

    def take(self, worker: int, what: str, cell: Cell, detail: Any) -> None:
        if what in ("started", "epoch"):
            self.progress.running[worker] = (cell, float(detail))
        else:
            self.progress.running.pop(worker, None)
            if what == "finished":
                self.progress.finished |= {cell.id}
            else:
                self.progress.failed.append((cell, str(detail)))
        self.tell()


def _work(job: Job, report: Report, has_failed: MutableSequence[int]) -> None:
    """Go through the cells once; what is taken already is left to those who have it, what failed is not tried again.

    ``has_failed`` has a place for each cell, and is shared by the workers of a command.
    """
    import torch
    from threadpoolctl import threadpool_limits

    from coresift.data import load_dataset
    from coresift.training.checkpoint import DamagedCheckpointError

    from .cells import run_cell

    torch.set_num_threads(job.threads)
    data = load_dataset(job.protocol.dataset, job.data_dir)
    for place, cell in enumerate(job.cells):
        # the seconds of the processor are those of all threads: BLAS has no more of them than PyTorch
        with job.store.claimed(cell) as is_mine, threadpool_limits(job.threads):
            if not is_mine or has_failed[place]:
                continue
            report("started", cell, 0.0)

            def on_epoch(epoch: int, n_epochs: int, cell: Cell = cell) -> None:
                report("epoch", cell, epoch / n_epochs)

            try:
                run_cell(
                    cell,
                    job.protocol,
                    data,
                    job.store,
                    device=job.device,
                    readers=job.readers,
                    on_epoch=on_epoch,
                )
            except (CoresiftError, RuntimeError, MemoryError, ValueError, OSError) as error:
                if isinstance(error, OSError) and not isinstance(error, DamagedCheckpointError):
                    raise  # the disk is full, or not there: the next cell would not fare better
                has_failed[place] = 1
                report("failed", cell, f"{type(error).__name__}: {error}")
                continue
        report("finished", cell, None)


def _run_processes(job: Job, workers: int, reporter: _Reporter) -> None:
    context = multiprocessing.get_context("spawn")
    messages: Any = context.Queue()
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ |= dict.fromkeys(_THREAD_VARIABLES, str(job.threads))  # read when a process loads its BLAS
    has_failed = context.Array("b", len(job.cells), lock=False)
    processes = [
        context.Process(target=_worker, args=(job, number, messages, has_failed), daemon=True)
        for number in range(workers)
    ]
    troubles: list[str] = []
    try:
        for process in processes:
            process.start()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        while any(process.is_alive() for process in processes) or not messages.empty():
            try:
                number, what, cell, detail = messages.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                reporter.tell()  # the time left goes down, and others may have finished some
                continue
            if what == "stopped":
                troubles.append(detail)
            else:
                reporter.take(number, what, cell, detail)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
    lost = [process.exitcode for process in processes if process.exitcode]
    if troubles:
        raise CoresiftError(troubles[0])
    if lost:
        raise CoresiftError(
            f"a worker ended with code {lost[0]} (memory?); the same command goes on where it was, "
            "with fewer --workers if memory was short."
        )


def _worker(job: Job, number: int, messages: Any, has_failed: MutableSequence[int]) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)  # the command was killed: nobody waits for the rest

    threading.Thread(target=follow, daemon=True).start()
    try:
        _work(job, lambda what, cell, detail: messages.put((number, what, cell, detail)), has_failed)
    except KeyboardInterrupt:
        pass
    except (CoresiftError, OSError, MemoryError) as error:
        messages.put((number, "stopped", None, str(error) or type(error).__name__))
        time.sleep(_POLL_SECONDS)
