"""Who does the work of a pass: this process, a pool of processes, or the workers of a Ray cluster.

All three run :func:`~coresift.rows.passes.run_task` on the same tasks and merge the summaries in the order
of the rows.
"""

from __future__ import annotations

import copy
import logging
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol, Self, TypeVar

from .._errors import CoresiftError, InvalidInputError, MissingExtraError
from .passes import Summary, Task, run_task, tasks_of
from .rows import Rows

ENGINES = ("local", "ray")
S = TypeVar("S", bound=Summary)
OnRows = Callable[[int], None]


class Engine(Protocol):
    """Runs passes over one source; a context manager."""

    n_workers: int

    def results(self, prototype: Any, tasks: list[Task]) -> Iterator[Any]:
        """The summary of each task, in order."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *about: object) -> None: ...


def run_pass(engine: Engine, source: Rows, prototype: S, on_rows: OnRows) -> S:
    """The summary of all rows."""
    tasks = tasks_of(source)
    merged = copy.deepcopy(prototype)  # and not the first part: arrays that Ray hands out are read-only
    for task, part in zip(tasks, engine.results(prototype, tasks), strict=True):
        merged.merge(part)
        on_rows(sum(piece.n_rows for piece in task))
    return merged


def open_engine(name: str, source: Rows, workers: int) -> Engine:
    """The engine of a name, for one source."""
    if name == "ray":
        if not source.is_portable:
            raise InvalidInputError("engine='ray' needs files that workers can read, not an array in memory.")
        return RayEngine(source, workers)
    if workers > 1 and source.is_portable and len(source.pieces) > 1:
        return PoolEngine(source, workers)
    return SerialEngine(source)


class SerialEngine:
    """This process."""

    n_workers = 1

    def __init__(self, source: Rows) -> None:
        self.source = source

    def results(self, prototype: Any, tasks: list[Task]) -> Iterator[Any]:
        """The summary of each task, in order."""
        return (run_task(self.source, prototype, task) for task in tasks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        return None


_SOURCE: list[Rows] = []  # of this worker process


def _adopt(source: Rows) -> None:
    _SOURCE[:] = [source]
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    """End with the command: where it is killed, its workers would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(prototype: Any, task: Task) -> Any:
    return run_task(_SOURCE[0], prototype, task)


class PoolEngine:
    """A pool of processes on this machine; each is told of the source once, and reads it itself."""

    def __init__(self, source: Rows, workers: int) -> None:
        self.n_workers = workers
        if "forkserver" in multiprocessing.get_all_start_methods():
            context: Any = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["coresift.coresets"])  # imported once, not by every worker
        else:
            context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(workers, context, initializer=_adopt, initargs=(source,))

    def results(self, prototype: Any, tasks: list[Task]) -> Iterator[Any]:
        """The summary of each task, in order; no more than a few wait to be merged."""
        waiting: list[Future[Any]] = []
        ahead = iter(tasks)
        try:
            for _ in tasks:
                while len(waiting) < 2 * self.n_workers and (task := next(ahead, None)) is not None:
                    waiting.append(self._pool.submit(_work, prototype, task))
                yield waiting.pop(0).result()
        except BrokenProcessPool as error:
            raise CoresiftError(
                "a worker process was killed, perhaps for want of memory; try fewer workers."
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


class RayEngine:
    """Tasks of a Ray cluster: that of ``RAY_ADDRESS`` or of the running program, else one started on this machine.

    Workers read the files themselves; only summaries travel. A task whose worker dies is run again by Ray, elsewhere,
    and gives the same summary. At most ``workers`` tasks (by default as many as the cluster has cores) are merged or
    under way at once.
    """

    def __init__(self, source: Rows, workers: int) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError('engine="ray" needs Ray: pip install "coresift[ray]"') from error
        self._ray: Any = ray
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
            where = os.environ.get("RAY_ADDRESS")
            if not where:
                # "local": Ray would else join what it finds on this machine, and refuse a number of cores
                options |= {"address": "local", "num_cpus": workers if workers > 1 else None}
                options |= {"include_dashboard": False}
            try:
                ray.init(**options)
            except Exception as error:  # bare ones, too: "The current node timed out during startup"
                place = f"the cluster at {where} cannot be joined" if where else "no cluster could be started"
                raise CoresiftError(
                    f"engine = 'ray': {place}: {error} Try again, or use engine='local'."
                ) from error
        cores = int(self._ray.cluster_resources().get("CPU", 1))
        self.n_workers = min(workers, cores) if workers > 1 else cores
        self._source = ray.put(source)
        self._remote = ray.remote(max_retries=5)(run_task)

    def results(self, prototype: Any, tasks: list[Task]) -> Iterator[Any]:
        """The summary of each task, in order; no more than a few wait to be merged."""
        shared = self._ray.put(prototype)
        ahead = iter(tasks)
        waiting: list[Any] = []
        for _ in tasks:
            while len(waiting) < 2 * self.n_workers and (task := next(ahead, None)) is not None:
                waiting.append(self._remote.remote(self._source, shared, task))
            try:
                yield self._ray.get(waiting.pop(0))
            except self._ray.exceptions.RayTaskError as error:
                cause = error.cause
                raise (cause if isinstance(cause, CoresiftError | OSError) else error) from None
            except self._ray.exceptions.RayError as error:
                raise CoresiftError(f"Ray could not finish a task: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        if self._is_ours:
            self._ray.shutdown()
