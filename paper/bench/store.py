"""The results store: one JSON record a line for every finished run, only ever appended to.

``RESULTS/TABLE/records.jsonl`` holds the records, each with a checksum; ``RESULTS/TABLE/cells/`` the checkpoints of
runs that are not finished. A line that is damaged (by a kill in the middle of a write, a bad disk, an editor) is named
and left out, and the others are kept. Which runs are taken is settled by locks of the operating system, which die with
their process: two workers never run the same cell, and a killed one leaves nothing that blocks.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coresift._errors import CoresiftError

from .protocol import Cell

Record = dict[str, Any]

RECORDS, CELLS = "records.jsonl", "cells"
_CHECKSUM = "sha256"
_LOOK_SECONDS = 3.0
_NEEDED = {
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
_OF_CELL = {
    "table": str,
    "protocol": int,
    "scale": str,
    "method": str,
    "select_every": int,
    "budget": float,
    "seed": int,
}


class StoreError(CoresiftError, OSError):
    """A record that could not be written; the message names the file."""


@dataclass(frozen=True)
class Found:
    """What a store holds: the good records, one per cell, and a sentence for every line that is not one."""

    records: list[Record]
    problems: list[str]

    @property
    def ids(self) -> set[str]:
        """The cells that are finished."""
        return {record["id"] for record in self.records}


@dataclass(frozen=True)
class Store:
    """The results of one table."""

    results: Path
    table: str

    @property
    def folder(self) -> Path:
        """Where everything of this table is."""
        return self.results / self.table

    @property
    def file(self) -> Path:
        """The records."""
        return self.folder / RECORDS

    def cell_folder(self, cell: Cell) -> Path:
        """Where a run keeps its checkpoints until it is finished."""
        return self.folder / CELLS / cell.id

    def read(self) -> Found:
        """All good records; of several of one cell the first, which is the one that others have seen."""
        try:
            lines = self.file.read_bytes().split(b"\n")
        except FileNotFoundError:
            return Found([], [])
        records: dict[str, Record] = {}
        problems = []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = parse(line)
            except ValueError as error:
                problems.append(f"{self.file}, line {number}: left out, as {error}.")
                continue
            if record["cell"]["table"] != self.table:
                problems.append(
                    f"{self.file}, line {number}: left out, as it is of {record['cell']['table']!r}."
                )
                continue
            records.setdefault(record["id"], record)
        return Found(list(records.values()), problems)

    def append(self, record: Record) -> None:
        """Add a record, on the disk before this returns; on failure the file is as it was."""
        line = serialised(record)
        # unbuffered: closing a file would write what is left in its buffer, after the truncation too
        with (
            self._locked(self.folder / f".{RECORDS}.lock"),
            self.file.open("ab", buffering=0) as file,
        ):
            size = file.seek(0, os.SEEK_END)
            try:
                if size and not self._ends_with_newline():
                    line = b"\n" + line  # a kill left half a line: it stays alone
                while line:
                    line = line[file.write(line) :]
                os.fsync(file.fileno())
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.ftruncate(file.fileno(), size)
                raise StoreError(
                    f"{self.file}: the record could not be written: {error.strerror}."
                ) from error

    @contextlib.contextmanager
    def claimed(self, cell: Cell) -> Iterator[bool]:
        """Whether this process may run the cell: no other one does, and nobody has finished it."""
        from filelock import FileLock, Timeout  # comes with PyTorch

        if cell.id in self.read().ids:
            yield False
            return
        self.cell_folder(cell).parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self._lock_of(cell))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            is_finished = (
                cell.id in self.read().ids
            )  # read after the lock: it may have been finished just before
            if is_finished:
                self.clear(cell)  # whoever makes the lock anew reads the records as well
            yield not is_finished
        finally:
            lock.release()

    def clear(self, cell: Cell) -> None:
        """Drop the checkpoints and the lock of a cell whose record is written: whoever takes it next sees that."""
        shutil.rmtree(self.cell_folder(cell), ignore_errors=True)
        with contextlib.suppress(OSError):  # Windows removes no file that is open
            self._lock_of(cell).unlink(missing_ok=True)

    def _lock_of(self, cell: Cell) -> Path:
        return self.cell_folder(cell).with_suffix(".lock")

    @contextlib.contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        from filelock import FileLock

        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(path):
            yield

    def _ends_with_newline(self) -> bool:
        with self.file.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


@dataclass
class Watch:
    """The finished cells of a store that others write to: read again when its file has grown, every few seconds."""

    store: Store
    every: float = _LOOK_SECONDS
    _ids: frozenset[str] = field(default=frozenset(), init=False)
    _size: int = field(default=-1, init=False)
    _looked: float = field(default=-math.inf, init=False)

    def ids(self) -> frozenset[str]:
        """The cells that are finished, as of a few seconds ago."""
        now = time.monotonic()
        if now - self._looked >= self.every:
            self._looked = now
            size = self.store.file.stat().st_size if self.store.file.exists() else 0
            if size != self._size:
                self._size, self._ids = size, frozenset(self.store.read().ids)
        return self._ids


def serialised(record: Record) -> bytes:
    """A record as a line, with its checksum."""
    text = json.dumps(record, sort_keys=True, allow_nan=False)
    return (json.dumps({**record, _CHECKSUM: _digest(text)}, sort_keys=True) + "\n").encode()


def parse(line: bytes) -> Record:
    """A record from a line; a ``ValueError`` says what is wrong with it."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(record, dict):
        raise ValueError("it is not an object")
    digest = record.pop(_CHECKSUM, None)
    try:
        text = json.dumps(record, sort_keys=True, allow_nan=False)
    except (ValueError, RecursionError):
        raise ValueError("it holds numbers that are not finite") from None
    if digest != _digest(text):
        raise ValueError("its checksum does not fit")
    _check_fields(record, _NEEDED, "")
    _check_fields(record["cell"], _OF_CELL, "cell.")
    cell = Cell(**{name: record["cell"][name] for name in _OF_CELL})
    if cell.id != record["id"]:
        raise ValueError(f"its id {record['id']!r} is not that of its cell")
    for part in ("selection", "training", "evaluation"):
        value = record["seconds"].get(part)
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"seconds.{part} is no number")
    return record


def _check_fields(record: dict[str, Any], fields: dict[str, type], prefix: str) -> None:
    for name, kind in fields.items():
        value = record.get(name)
        is_number = kind is float and isinstance(value, int | float)
        if isinstance(value, bool) or not (is_number or isinstance(value, kind)):
            raise ValueError(f"{prefix}{name} is missing or no {kind.__name__}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
