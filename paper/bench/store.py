"""The results store: one JSON record per line for every finished run, only ever appended to.

``RESULTS/TABLE/records.jsonl`` holds the records, each with a checksum, and ``RESULTS/TABLE/cells/`` the checkpoints of
unfinished runs. A damaged line (a kill in the middle of a write, a bad disk, an editor) is reported and left out; the
others are kept. Locks of the operating system decide who works on a run: two workers never take the same one, and the
locks of a killed process are released.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from filelock import FileLock, Timeout

from coresift._errors import CoresiftError

from .protocol import Run

Record = dict[str, Any]

RESULTS = Path(__file__).parents[1] / "results"  # the committed ones
RECORDS, RUNS = "records.jsonl", "cells"  # the names on disk
_CHECKSUM = "sha256"
_LOOK_SECONDS = 3.0
_FIELDS: dict[str, type] = {
    "id": str,
    "cell": dict,
    "config": dict,
    "test": dict,
    "seconds": dict,
    "clock": str,
    "n_epochs": int,
    "subset_size": int,
    "n_train": int,
}


class StoreError(CoresiftError, OSError):
    """A record could not be written; the message names the file."""


@dataclass(frozen=True)
class Found:
    """The content of a store: good records, one per run, and a sentence for every other line."""

    records: list[Record]
    problems: list[str]

    @property
    def ids(self) -> set[str]:
        """The ids of finished runs."""
        return {record["id"] for record in self.records}


@dataclass(frozen=True)
class Store:
    """The results of one table."""

    results: Path
    table: str

    @property
    def folder(self) -> Path:
        """The folder of this table."""
        return self.results / self.table

    @property
    def file(self) -> Path:
        """The file of records."""
        return self.folder / RECORDS

    def run_folder(self, run: Run) -> Path:
        """Return the folder of a run's checkpoints, which exists until the run is finished."""
        return self.folder / RUNS / run.id

    def read(self) -> Found:
        """Read all good records; the first counts where a run has several."""
        lines = self.file.read_bytes().split(b"\n") if self.file.exists() else []
        records: dict[str, Record] = {}
        problems = []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = parse(line)
                if record["cell"]["table"] != self.table:
                    raise ValueError(f"it belongs to {record['cell']['table']!r}")
                records.setdefault(record["id"], record)
            except ValueError as error:
                problems.append(f"{self.file}, line {number}: left out, because {error}.")
        return Found(list(records.values()), problems)

    def append(self, record: Record) -> None:
        """Add a record durably; on failure the file is unchanged."""
        line = serialised(record)
        self.folder.mkdir(parents=True, exist_ok=True)
        # unbuffered: closing a file would write what is left in its buffer, after the truncation too
        with FileLock(self.folder / f".{RECORDS}.lock"), self.file.open("ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            try:
                if size and not self.file.read_bytes().endswith(b"\n"):
                    line = b"\n" + line  # leave the half line of a killed write on its own
                while line:
                    line = line[file.write(line) :]
                os.fsync(file.fileno())
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.ftruncate(file.fileno(), size)
                raise StoreError(f"{self.file}: cannot write the record: {error.strerror}.") from error

    @contextlib.contextmanager
    def claimed(self, run: Run) -> Iterator[bool]:
        """Lock a run; true if no other process works on it and it is not finished."""
        if run.id in self.read().ids:
            yield False
            return
        self.run_folder(run).parent.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(self._lock_of(run)).acquire(timeout=0)
        except Timeout:
            yield False
            return
        with lock:
            is_finished = run.id in self.read().ids  # again: it may have been finished just before the lock
            if is_finished:
                self.clear(run)
            yield not is_finished

    def clear(self, run: Run) -> None:
        """Remove the checkpoints and the lock of a run whose record is written."""
        shutil.rmtree(self.run_folder(run), ignore_errors=True)
        with contextlib.suppress(OSError):  # Windows does not remove open files
            self._lock_of(run).unlink(missing_ok=True)

    def _lock_of(self, run: Run) -> Path:
        return self.run_folder(run).with_suffix(".lock")


@dataclass
class Watch:
    """The finished runs of a store that others write to; reads the file again only when it has grown."""

    store: Store
    every: float = _LOOK_SECONDS
    _ids: frozenset[str] = field(default=frozenset(), init=False)
    _size: int = field(default=-1, init=False)
    _looked: float = field(default=-math.inf, init=False)

    def ids(self) -> frozenset[str]:
        """Return the ids of finished runs, at most a few seconds old."""
        now = time.monotonic()
        if now - self._looked >= self.every:
            self._looked = now
            size = self.store.file.stat().st_size if self.store.file.exists() else 0
            if size != self._size:
                self._size, self._ids = size, frozenset(self.store.read().ids)
        return self._ids


def serialised(record: Record) -> bytes:
    """Write a record as a line with its checksum."""
    return (json.dumps({**record, _CHECKSUM: _digest(record)}, sort_keys=True) + "\n").encode()


def parse(line: bytes) -> Record:
    """Read a record from a line; a ``ValueError`` says what is wrong with it."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(record, dict):
        raise ValueError("it is not an object")
    stated = record.pop(_CHECKSUM, None)
    try:
        digest = _digest(record)
    except (ValueError, RecursionError):
        raise ValueError("it holds numbers that are not finite") from None
    if stated != digest:
        raise ValueError("its checksum is wrong")
    _check(record, _FIELDS)
    of_run = get_type_hints(Run)
    _check(record["cell"], of_run, "cell.")
    run = Run(**{name: record["cell"][name] for name in of_run})
    if run.id != record["id"]:
        raise ValueError(f"its id {record['id']!r} is not that of its run")
    _check(record["seconds"], dict.fromkeys(("selection", "training", "evaluation"), float), "seconds.")
    return record


def _check(record: Mapping[str, Any], fields: Mapping[str, type], prefix: str = "") -> None:
    for name, kind in fields.items():
        value = record.get(name)
        allowed = int | float if kind is float else kind
        if isinstance(value, bool) or not isinstance(value, allowed):
            raise ValueError(f"{prefix}{name} is missing or not of type {kind.__name__}")


def _digest(record: Record) -> str:
    text = json.dumps(record, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
