"""Passes over rows, and the engines that run them: this process, a pool of processes, or a Ray cluster.

Blocks are cut at the same rows whoever reads them, and merged in order: every engine gives the same bits.
"""

import copy
import logging
import multiprocessing
import os
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from multiprocessing import forkserver, resource_tracker
from typing import Any, Protocol, Self, TypeVar

from .._errors import CoresiftError, InvalidInputError
from .._imports import need
from .._threads import one_thread
from .columns import pa
from .rows import BadRow, Block, Piece, Rows, group_rows
from .tables import TableRows

Task = list[Piece]
OnRows = Callable[[int], None]


class Pass(Protocol):
    """What is computed from all rows, block by block."""

    def update(self, block: Block) -> None:
        """Add a block of rows."""

    def merge(self, other: Self) -> None:
        """Add what was found in later rows."""


P = TypeVar("P", bound=Pass)


class Engine(AbstractContextManager["Engine"]):
    """Runs passes over the rows it was opened for, in this process."""

    n_workers = 1

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def results(self, prototype: Any, tasks: list[Task], on_rows: OnRows) -> Iterator[Any]:
        """The passes of the groups of each task, in order; the arrays of the first can be written to."""
        return (run_task(self.rows, prototype, task, on_rows) for task in tasks)

    def __exit__(self, *about: object) -> None:
        return None


def run_pass(engine: Engine, rows: Rows, prototype: P, on_rows: OnRows = lambda _: None) -> P:
    """Run copies of ``prototype`` over all rows and merge them; ``on_rows`` is told how many rows are done."""
    rows.check_unchanged()
    parts = (part for task in engine.results(prototype, rows.tasks(), on_rows) for part in task)
    merged: P = next(parts)
    for part in parts:
        merged.merge(part)
    rows.check_unchanged()
    return merged


def run_task(rows: Rows, prototype: P, task: Task, on_rows: OnRows = lambda _: None) -> list[P]:
    """Run copies of ``prototype`` over the groups of blocks of one task: what a worker does."""
    found: list[P] = []
    with one_thread():  # workers use other cores
        try:
            for block in rows.blocks(task):
                if not found or block.start % group_rows(rows.d) == 0:
                    found.append(copy.deepcopy(prototype))
                found[-1].update(block)
                on_rows(block.n)
        except BadRow as bad:
            raise rows.explain(bad) from None
    return found


def open_engine(name: str, rows: Rows, workers: int) -> Engine:
    """Open the engine called ``name`` for ``rows``."""
    if name == "ray":
        if not rows.is_portable:
            raise InvalidInputError("engine='ray' needs files that workers can read, not an array in memory.")
        return RayEngine(rows, workers)
    if workers > 1 and rows.is_portable and len(rows.pieces) > 1:
        return PoolEngine(rows, workers)
    return Engine(rows)


def _in_order(
    tasks: list[Task], submit: Callable[[Task], Any], most: int, result: Callable[[Any], Any], on_rows: OnRows
) -> Iterator[Any]:
    """Submit tasks in order and wait for their results; no more than ``most`` are submitted and not used yet."""
    waiting: deque[Any] = deque()
    ahead = iter(tasks)
    for task in tasks:
        while len(waiting) < most and (following := next(ahead, None)) is not None:
            waiting.append(submit(following))
        yield result(waiting.popleft())
        on_rows(sum(piece.n_rows for piece in task))


class PoolEngine(Engine):
    """Runs passes in a pool of processes; each is sent the description of the rows once, and reads them itself."""

    def __init__(self, rows: Rows, workers: int) -> None:
        self.n_workers = workers
        context: Any = multiprocessing.get_context("spawn")
        if "forkserver" in multiprocessing.get_all_start_methods():
            server = multiprocessing.get_context("forkserver")
            server.set_forkserver_preload(["coresift.coresets.estimators", "coresift.rows.opening"])  # import once
            resource_tracker.ensure_running()  # first: it unblocks interrupts when it starts
            # the server has a socket in the temporary folder: where TMPDIR is too long for that, workers are spawned
            with suppress(OSError), _blocked_interrupts():
                forkserver.ensure_running()
                context = server
        self._pool = ProcessPoolExecutor(workers, context, initializer=_Worker.start, initargs=(rows,))

    def results(self, prototype: Any, tasks: list[Task], on_rows: OnRows) -> Iterator[Any]:
        try:
            submit = partial(self._submit, partial(_Worker.run, prototype))
            yield from _in_order(tasks, submit, 2 * self.n_workers, Future.result, on_rows)
        except BrokenProcessPool as error:
            text = "a worker process was killed, perhaps for lack of memory; try fewer workers."
            raise CoresiftError(text) from error

    def _submit(self, run: Callable[[Task], Any], task: Task) -> Future[Any]:
        with _blocked_interrupts():  # it may start a worker, which must not be left half started
            return self._pool.submit(run, task)

    def __exit__(self, *about: object) -> None:
        with _blocked_interrupts():
            self._pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _blocked_interrupts() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach: they inherit the mask of this thread."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Worker:
    rows: Rows

    @classmethod
    def start(cls, rows: Rows) -> None:
        cls.rows = rows
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which then ends its workers
        warnings.simplefilter("ignore")  # a process of its own, whose warnings nobody would read
        if isinstance(rows.raw, TableRows):
            pa.set_cpu_count(1)  # the other workers are the other threads
        threading.Thread(target=cls.exit_with_parent, daemon=True).start()

    @classmethod
    def run(cls, prototype: Any, task: Task) -> Any:
        return run_task(cls.rows, prototype, task)

    @staticmethod
    def exit_with_parent() -> None:
        """Exit when the command is killed; a worker would wait for tasks forever."""
        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
            os._exit(1)


class RayEngine(Engine):
    """Runs passes as tasks of a Ray cluster: that of ``RAY_ADDRESS`` or of the running program, else a new local one.

    Workers read the files themselves. At most twice ``workers`` tasks, by default all cores, are under way at once.
    """

    def __init__(self, rows: Rows, workers: int) -> None:
        ray = self._ray = need("ray", "ray", 'engine="ray"')
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
            where = os.environ.get("RAY_ADDRESS")
            if not where:
                # "local": Ray would otherwise join any cluster on this machine, and refuse a number of cores
                options |= {"address": "local", "num_cpus": workers if workers > 1 else None}
                options |= {"include_dashboard": False}
            try:
                ray.init(**options)
            except Exception as error:  # bare ones, too: "The current node timed out during startup"
                place = f"the cluster at {where} cannot be joined" if where else "no cluster could be started"
                text = f"engine = 'ray': {place}: {error} Try again, or use engine='local'."
                raise CoresiftError(text) from error
        cores = int(ray.cluster_resources().get("CPU", 1))
        self.n_workers = min(workers, cores) if workers > 1 else cores
        self._rows = ray.put(rows)
        self._remote = ray.remote(max_retries=5)(run_task)

    def results(self, prototype: Any, tasks: list[Task], on_rows: OnRows) -> Iterator[Any]:
        submit = partial(self._remote.remote, self._rows, self._ray.put(prototype))
        parts = _in_order(tasks, submit, 2 * self.n_workers, self._result, on_rows)
        yield copy.deepcopy(next(parts))  # arrays of Ray are read-only, and the others are merged into it
        yield from parts

    def _result(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            raise (cause if isinstance(cause, CoresiftError | OSError) else error) from None
        except self._ray.exceptions.RayError as error:
            raise CoresiftError(f"Ray could not finish a task: {error}") from error

    def __exit__(self, *about: object) -> None:
        if self._is_ours:
            self._ray.shutdown()
