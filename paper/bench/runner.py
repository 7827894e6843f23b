"""Run what is missing of a table, in one process or several."""

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

from .protocol import Protocol, Run
from .store import Store, Watch

_POLL_SECONDS = 0.5
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Job:
    """What every worker needs to know; small, so that it can be sent to another process."""

    protocol: Protocol
    runs: Sequence[Run]
    store: Store
    data_dir: str | None = None
    device: str = "auto"
    threads: int = 1
    readers: int = 0


@dataclass
class Progress:
    """The state of a job; ``finished`` are the ids of runs in the store, whoever ran them."""

    total: int
    finished: frozenset[str] = frozenset()
    running: dict[int, tuple[Run, float]] = field(default_factory=dict)  # by worker, with the share done
    failed: list[tuple[Run, str]] = field(default_factory=list)

    @property
    def done(self) -> int:
        """How many runs are finished."""
        return len(self.finished)

    @property
    def left(self) -> int:
        """How many runs are not begun, or running in other commands."""
        failed = {run.id for run, _ in self.failed} - self.finished
        return self.total - self.done - len(self.running) - len(failed)


OnProgress = Callable[[Progress], None]
Report = Callable[[str, Run, Any], None]  # "started" | "epoch" | "finished" | "failed", run, detail


def run_missing(job: Job, workers: int, on_progress: OnProgress) -> Progress:
    """Run what the store does not hold; a run that fails is reported, and the others go on.

    Other processes of this machine may work on the same store at the same time. After a kill, call it again: finished
    runs stay, and unfinished ones resume from their last checkpoint.
    """
    reporter = _Reporter(job, on_progress)
    for run in job.runs:
        if run.id in reporter.progress.finished:
            job.store.clear(run)  # a kill may have come between the record and the end of its checkpoints
    reporter.report()
    n_missing = reporter.progress.left
    if n_missing == 0:
        return reporter.progress
    if workers == 1:
        _work(job, lambda *what: reporter.update(0, *what), bytearray(len(job.runs)))
    else:
        _run_processes(job, min(workers, n_missing), reporter)
    reporter.end()
    return reporter.progress


class _Reporter:
    """Tracks the progress: what the workers of this command report, and what others have stored."""

    def __init__(self, job: Job, on_progress: OnProgress) -> None:
        self.store, self.watch, self.on_progress = job.store, Watch(job.store), on_progress
        self.ids = frozenset(run.id for run in job.runs)
        self.progress = Progress(len(job.runs), self.watch.ids() & self.ids)

    def report(self) -> None:
        """Look at the store, and pass the progress on."""
        running = {run.id for run, _ in self.progress.running.values()}
        self.progress.finished |= (self.watch.ids() & self.ids) - running
        self.on_progress(self.progress)

    def update(self, worker: int, what: str, run: Run, detail: Any) -> None:
        if what in ("started", "epoch"):
            self.progress.running[worker] = (run, float(detail))
        else:
            self.progress.running.pop(worker, None)
            if what == "finished":
                self.progress.finished |= {run.id}
            else:
                self.progress.failed.append((run, str(detail)))
        self.report()

    def end(self) -> None:
        """Report what the store holds when the work is over."""
        self.progress.running.clear()
        self.progress.finished = frozenset(self.store.read().ids & self.ids)
        self.on_progress(self.progress)


def _work(job: Job, report: Report, has_failed: MutableSequence[int]) -> None:
    """Go through the runs once, skipping those that others have taken or that failed.

    ``has_failed`` has an entry for each run and is shared by the workers of a command.
    """
    import torch
    from threadpoolctl import threadpool_limits

    from coresift.data import load_dataset
    from coresift.training.checkpoint import DamagedCheckpointError

    from .run import run_one

    torch.set_num_threads(job.threads)
    data = load_dataset(job.protocol.dataset, job.data_dir)
    for place, run in enumerate(job.runs):
        # processor time is summed over threads: BLAS must not have more of them than PyTorch
        with job.store.claimed(run) as is_mine, threadpool_limits(job.threads):
            if not is_mine or has_failed[place]:
                continue
            report("started", run, 0.0)

            def on_epoch(epoch: int, n_epochs: int, run: Run = run) -> None:
                report("epoch", run, epoch / n_epochs)

            options: dict[str, Any] = {"device": job.device, "readers": job.readers, "on_epoch": on_epoch}
            try:
                run_one(run, job.protocol, data, job.store, **options)
            except (CoresiftError, RuntimeError, MemoryError, ValueError, OSError) as error:
                if isinstance(error, OSError) and not isinstance(error, DamagedCheckpointError):
                    raise  # the disk is full or absent: the next run would fail too
                has_failed[place] = 1
                report("failed", run, f"{type(error).__name__}: {error}")
                continue
        report("finished", run, None)


def _run_processes(job: Job, workers: int, reporter: _Reporter) -> None:
    context = multiprocessing.get_context("spawn")
    messages: Any = context.Queue()
    has_failed = context.Array("b", len(job.runs), lock=False)
    processes = [
        context.Process(target=_worker, args=(job, number, messages, has_failed), daemon=True)
        for number in range(workers)
    ]
    troubles: list[str] = []
    before = dict(os.environ)
    os.environ |= dict.fromkeys(_THREAD_VARIABLES, str(job.threads))  # read when a process loads its BLAS
    try:
        for process in processes:
            process.start()
        os.environ.clear()
        os.environ |= before
        while any(process.is_alive() for process in processes) or not messages.empty():
            try:
                number, what, run, detail = messages.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                reporter.report()  # the time left goes down, and others may have finished runs
                continue
            if what == "stopped":
                troubles.append(detail)
            else:
                reporter.update(number, what, run, detail)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
    if troubles:
        raise CoresiftError(troubles[0])
    lost = [process.exitcode for process in processes if process.exitcode]
    if lost:
        raise CoresiftError(
            f"a worker ended with exit code {lost[0]} (out of memory?); run the same command again to resume, "
            "with fewer --workers if memory was short."
        )


def _worker(job: Job, number: int, messages: Any, has_failed: MutableSequence[int]) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)  # the command was killed

    threading.Thread(target=follow, daemon=True).start()
    try:
        _work(job, lambda *what: messages.put((number, *what)), has_failed)
    except KeyboardInterrupt:
        pass
    except (CoresiftError, OSError, MemoryError) as error:
        messages.put((number, "stopped", None, str(error) or type(error).__name__))
        time.sleep(_POLL_SECONDS)
