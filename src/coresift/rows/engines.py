"""Passes over rows, and the engines that run them: one thread, several threads, or a Ray cluster.

Blocks are cut at the same rows whoever reads them, and merged in order: every engine gives the same bits.
"""

import copy
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol, Self, TypeVar

from .._errors import CoresiftError, InvalidInputError
from .._imports import need
from .._threads import one_thread
from .rows import BadRow, Block, Piece, Rows, group_rows

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
    """Runs passes over the rows it was opened for, in the thread that asks for them."""

    n_workers = 1

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def parts(self, prototype: Any, on_rows: OnRows) -> Iterator[Any]:
        """The passes of all groups of blocks, in order; the arrays of the first can be written to."""
        return parts_of(self.rows, prototype, None, on_rows)

    def __exit__(self, *about: object) -> None:
        return None

    def _in_order(self, submit: Callable[[Task], Any], result: Callable[[Any], Any], on_rows: OnRows) -> Iterator[Any]:
        """Submit tasks in order and yield the parts they find; at most two per worker are submitted and not used."""
        tasks, waiting = self.rows.tasks(self.n_workers), deque[Any]()
        ahead = iter(tasks)
        for task in tasks:
            while len(waiting) < 2 * self.n_workers and (following := next(ahead, None)) is not None:
                waiting.append(submit(following))
            yield from result(waiting.popleft())
            first, last = self.rows.owned(task)
            on_rows(last - first)


def run_pass(engine: Engine, rows: Rows, prototype: P, on_rows: OnRows = lambda _: None) -> P:
    """Run copies of ``prototype`` over all rows and merge them; ``on_rows`` is told how many rows are done."""
    rows.check_unchanged()
    parts = engine.parts(prototype, on_rows)
    merged: P = next(parts)
    for part in parts:
        merged.merge(part)
    rows.check_unchanged()
    return merged


def parts_of(rows: Rows, prototype: P, task: Task | None, on_rows: OnRows = lambda _: None) -> Iterator[P]:
    """Run copies of ``prototype`` over the groups of blocks of one task, or of all rows."""
    part: P | None = None
    with one_thread():  # the other cores are for other workers
        try:
            for block in rows.blocks(task):
                if part is None or block.start % group_rows(rows.d) == 0:
                    if part is not None:
                        yield part
                    part = copy.deepcopy(prototype)
                part.update(block)
                on_rows(block.n)
        except BadRow as bad:
            raise rows.explain(bad) from None
    if part is not None:
        yield part


def run_task(rows: Rows, prototype: P, task: Task) -> list[P]:
    """What a worker does."""
    return list(parts_of(rows, prototype, task))


def open_engine(name: str, rows: Rows, workers: int) -> Engine:
    """Open the engine called ``name`` for ``rows``."""
    if name == "ray":
        if not rows.is_portable:
            raise InvalidInputError("engine='ray' needs files that workers can read, not an array in memory.")
        return RayEngine(rows, workers)
    if workers > 1 and rows.is_portable and len(rows.pieces) > 1:
        return ThreadEngine(rows, workers)
    return Engine(rows)


class ThreadEngine(Engine):
    """Runs passes in threads, each with its own readers: NumPy, BLAS and Arrow do the work without Python's lock."""

    def __init__(self, rows: Rows, workers: int) -> None:
        super().__init__(rows)
        self.n_workers, self._own = workers, threading.local()
        self._pool = ThreadPoolExecutor(workers, "coresift")

    def parts(self, prototype: Any, on_rows: OnRows) -> Iterator[Any]:
        submit = partial(self._pool.submit, partial(self._run, prototype))
        return self._in_order(submit, Future.result, on_rows)

    def _run(self, prototype: Any, task: Task) -> Any:
        if not hasattr(self._own, "rows"):
            self._own.rows = copy.deepcopy(self.rows)
        return run_task(self._own.rows, prototype, task)

    def __exit__(self, *about: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


class RayEngine(Engine):
    """Runs passes as tasks of a Ray cluster: that of ``RAY_ADDRESS`` or of the running program, else a new local one.

    Workers read the files themselves. At most twice ``workers`` tasks, by default all cores, are under way at once.
    """

    def __init__(self, rows: Rows, workers: int) -> None:
        super().__init__(rows)
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
                raise CoresiftError(f"engine = 'ray': {place}: {error} Try again, or use engine='local'.") from error
        cores = int(ray.cluster_resources().get("CPU", 1))
        self.n_workers = min(workers, cores) if workers > 1 else cores
        self._rows = ray.put(rows)
        self._remote = ray.remote(max_retries=5)(run_task)

    def parts(self, prototype: Any, on_rows: OnRows) -> Iterator[Any]:
        submit = partial(self._remote.remote, self._rows, self._ray.put(prototype))
        parts = self._in_order(submit, self._result, on_rows)
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
