"""What every source of rows is: pieces that can be read one by one, by any worker, in any order.

A source knows its rows, columns and files before anything is read. It is small and can be sent to another process: it
carries names of files, not data (an array in memory is the exception, and is not sent anywhere).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from .._errors import InvalidInputError

CHUNK_BYTES = 1 << 23  # what is read at a time: the memory of a pass, besides its summary
PIECE_BYTES = 1 << 26


class Labels(NamedTuple):
    """Labels of the rows of a chunk: ``names[codes]``. Names are integers or strings, distinct."""

    codes: np.ndarray  # (b,) integers
    names: list[Any]


class Chunk(NamedTuple):
    """Some consecutive rows."""

    X: np.ndarray  # (b, d) float32 or float64, in either order
    weights: np.ndarray | None = None  # (b,) float64
    labels: Labels | None = None


@dataclass(frozen=True)
class Piece:
    """A range of rows that is read in one go: of a file, rows ``first`` onwards of its part ``part``."""

    file: int
    part: int
    first: int
    start: int  # number of the first row in the whole source
    n_rows: int


class Rows(ABC):
    """Rows in pieces. A subclass sets the attributes below and implements :meth:`read`."""

    name: str
    """What it was opened from, for messages."""
    n: int
    names: list[str] | None
    """Names of the columns, where they have some."""
    left_out: Mapping[str, str] = MappingProxyType({})
    """Columns that are no features, and why, where they have names."""
    d: int
    dtype: np.dtype[Any]
    files: list[str]
    file_starts: np.ndarray
    """(number of files,) the first row of each."""
    pieces: list[Piece]
    has_weights: bool = False
    has_labels: bool = False
    opened_with: Mapping[str, Any] = MappingProxyType({})
    """The names that were asked for: columns, embedding, label, weight."""
    is_portable: bool = True
    """Whether it may be sent to other processes."""

    @abstractmethod
    def read(self, piece: Piece) -> Iterator[Chunk]:
        """The rows of a piece, in order, in chunks of bounded size."""

    @property
    def row_bytes(self) -> int:
        """Bytes of the features of a row."""
        return int(self.d * self.dtype.itemsize)

    @property
    def chunk_rows(self) -> int:
        """Rows to read at a time."""
        return max(1, CHUNK_BYTES // self.row_bytes)

    def file_of(self, rows: np.ndarray) -> np.ndarray:
        """Position in ``files`` of the file that each row is in."""
        return np.searchsorted(self.file_starts, rows, side="right") - 1

    def where(self, row: int) -> str:
        """A row, for a message: with its file and its number in it, if that says more."""
        if len(self.files) <= 1:
            return f"row {row}"
        file = int(self.file_of(np.array([row]))[0])
        return f"row {row} (row {row - int(self.file_starts[file])} of {self.files[file]})"

    def chunks(self) -> Iterator[tuple[int, Chunk]]:
        """All rows in order: the number of the first row of each chunk, and the chunk."""
        for piece in self.pieces:
            start = piece.start
            for chunk in self.read(piece):
                yield start, chunk
                start += len(chunk.X)

    def load(self, max_bytes: float = np.inf) -> LoadedRows:
        """Everything as arrays: in memory up to ``max_bytes``, above in a temporary file that is mapped into it."""
        return LoadedRows(self, max_bytes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}: {self.n:,} rows, {self.d} columns)"


class LoadedRows:
    """The rows of a source as one array, with weights; a context manager that removes its temporary file."""

    def __init__(self, source: Rows, max_bytes: float) -> None:
        shape = (source.n, source.d)
        self._folder: TemporaryDirectory[str] | None = None
        self.X: np.ndarray
        direct = getattr(source, "as_array", None)
        self.weights = np.empty(source.n) if source.has_weights else None
        if direct is not None:
            self.X = direct()
        elif source.n * source.row_bytes <= max_bytes:
            self.X = np.empty(shape, dtype=source.dtype)
        else:
            self._folder = TemporaryDirectory(prefix="coresift-")
            file = Path(self._folder.name) / "rows"
            self.X = np.memmap(file, mode="w+", dtype=source.dtype, shape=shape)
        if direct is not None and self.weights is None:
            return
        for start, chunk in source.chunks():
            rows = slice(start, start + len(chunk.X))
            if direct is None:
                self.X[rows] = chunk.X
            if self.weights is not None:
                self.weights[rows] = chunk.weights

    def __enter__(self) -> LoadedRows:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            del self.X
            self._folder.cleanup()


def pieces_of(n_rows: int, row_bytes: int, file: int = 0, start: int = 0) -> list[Piece]:
    """Pieces of about ``PIECE_BYTES`` of one file whose rows can be read from anywhere."""
    step = max(1, PIECE_BYTES // max(row_bytes, 1))
    return [
        Piece(file, 0, first, start + first, min(step, n_rows - first)) for first in range(0, n_rows, step)
    ]


def is_hidden(parts: Sequence[str]) -> bool:
    """Whether a file is a note or a leftover, by the parts of its path below the folder of the data.

    Writers of tables leave ``_SUCCESS`` and ``_temporary/``, file systems and editors ``.snapshot/`` and the like.
    """
    return any(part[0] in "._" for part in parts)


def encode_labels(values: np.ndarray, what: str) -> Labels:
    """Labels of an array of integers, booleans or strings."""
    if values.dtype.kind not in "iubUS":
        raise InvalidInputError(f"{what} has type {values.dtype}; labels must be integers or strings.")
    names, codes = np.unique(values, return_inverse=True)
    return Labels(codes.reshape(-1), names.tolist())


def check_numeric(dtype: np.dtype[Any], what: str) -> np.dtype[Any]:
    """The float type in which numbers of this type are kept; refuses what is no number."""
    if dtype.kind == "O":
        raise InvalidInputError(f"{what} is an array of Python objects; an array of numbers is needed.")
    if dtype.kind not in "fiub":
        raise InvalidInputError(f"{what} has type {dtype}; numbers are needed.")
    # half floats and bytes are exact in float32
    return np.dtype(
        np.float32
        if dtype.kind in "fub" and dtype.itemsize <= (4 if dtype.kind == "f" else 1)
        else np.float64
    )


def start_offsets(counts: Sequence[int]) -> np.ndarray:
    """The first row of each file, from their numbers of rows."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))[: len(counts)].astype(np.int64)
