"""Rows of data: pieces that any worker can read, in any order, and blocks that every pass sees alike."""

import errno
import hashlib
import os
import shutil
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np

from .._errors import CoresiftError, InvalidInputError
from .._imports import Late
from .._validation import MUST_BE_FINITE, bad_value, first_bad_value
from ..core.points import Matrix, stacked

pa: Any = Late("pyarrow", "io", "a table")

READ_BYTES = 1 << 23  # read at a time: the memory of a pass, besides its own
PIECE_BYTES = 1 << 26
TASK_BYTES = 1 << 28  # of a task as stored: tasks read a little of the next one, so they should be few
BLOCK_BYTES = 1 << 22  # of a block in float64: a few of them stay in the cache
_LARGEST_BLOCK = 1 << 15
_SMALLEST_BLOCK = 1 << 8
_BLOCKS_OF_A_GROUP = 4
_END_BYTES = 1 << 12  # of a fingerprint


class Fingerprint(NamedTuple):
    """What tells a file from another: its size in bytes, its time, and its first and last bytes, or none of them."""

    size: int
    time: int
    ends: bytes = b""


def fingerprint(path: str, n_bytes: int = _END_BYTES) -> Fingerprint:
    """The fingerprint of a file on this machine; a file that is gone has a size of -1."""
    try:
        with open(path, "rb", buffering=0) as file:
            about = os.fstat(file.fileno())
            ends = file.read(n_bytes)
            file.seek(max(about.st_size - n_bytes, 0))
            return Fingerprint(about.st_size, about.st_mtime_ns, ends + file.read(n_bytes))
    except FileNotFoundError:
        return Fingerprint(-1, 0)


class Labels(NamedTuple):
    """Labels of some rows: ``names[codes]``. Names are distinct integers or strings."""

    codes: np.ndarray  # (b,) integers
    names: list[Any]


class Block(NamedTuple):
    """Consecutive rows, their weights (ones if there are none), labels (of classes) and targets (of regression)."""

    start: int
    X: Matrix  # (b, d) float32 or float64
    weights: np.ndarray  # (b,) float64
    labels: Labels | None = None
    targets: np.ndarray | None = None  # (b,) float64

    @property
    def n(self) -> int:
        return int(self.X.shape[0])

    def part(self, rows: slice | np.ndarray) -> Self:
        """Some of the rows: a slice, as views, or row numbers, as a block that starts at 0."""
        labels = None if self.labels is None else Labels(self.labels.codes[rows], self.labels.names)
        start = self.start + rows.start if isinstance(rows, slice) else 0
        targets = None if self.targets is None else self.targets[rows]
        X: Any = self.X
        is_taken = hasattr(X, "column_names") and not isinstance(rows, slice)  # a table, which is not prepared yet
        X = X.take(rows) if is_taken else X[rows]
        return self._replace(start=start, X=X, weights=self.weights[rows], labels=labels, targets=targets)


@dataclass(frozen=True)
class Piece:
    """A range of rows that is read in one go: rows ``first`` onwards of part ``part`` of a file."""

    file: int
    part: int
    first: int
    start: int  # number of the first row among all rows
    n_rows: int


class BadRow(InvalidInputError):
    """A value that cannot be used. Where it stands is known only together with the rows: see :meth:`Rows.explain`."""

    def __init__(self, what: str, row: int, column: int | None = None, advice: str = "") -> None:
        super().__init__(what)
        self.what, self.row, self.column, self.advice = what, row, column, advice


class Rows(ABC):
    """Rows in pieces. A subclass sets the attributes below and implements :meth:`read`.

    >>> from coresift import open_rows
    >>> rows = open_rows(np.eye(3))
    >>> rows.n, rows.d, [block.X.shape for block in rows.blocks()]
    (3, 3, [(3, 3)])
    """

    name: str  # what it was opened from, for messages
    n: int
    d: int
    names: list[str] | None  # of the columns, if they have names
    dtype: np.dtype[Any]
    files: list[str]
    file_starts: np.ndarray  # (number of files,) the first row of each
    pieces: list[Piece]
    has_weights: bool = False
    has_labels: bool = False
    has_targets: bool = False
    left_out: Mapping[str, str] = MappingProxyType({})  # named columns that are not features, and why
    opened_with: Mapping[str, Any] = MappingProxyType({})  # the names that were asked for: columns, label, ...
    is_dense: bool = True  # whether the features of blocks are arrays, not sparse matrices or tables
    is_portable: bool = True  # whether other processes can read the rows
    opened_as: Sequence[Fingerprint] = ()  # the fingerprints of the files when they were opened
    preparation: Any = None  # the :class:`coresift.Preparation` that made the features, if there is one
    made_by: Any = None  # the same without scikit-learn
    kept_bytes: int = 0  # of features that stay in memory after the first pass
    _raw: "Rows | None" = None  # what the features were made from: the columns that are used, and all of them
    _whole: "Rows | None" = None

    @abstractmethod
    def read(self, piece: Piece) -> Iterator[Block]:
        """Read a ``piece`` in order, in blocks of any bounded size."""

    @property
    def raw(self) -> "Rows":
        """The rows as they are stored."""
        return self if self._raw is None else self._raw

    @property
    def whole(self) -> "Rows":
        """The rows with all their columns."""
        return self if self._whole is None else self._whole

    @property
    def kinds(self) -> dict[str, str | None]:
        """How the columns of a table can be read; see :func:`coresift.rows.columns.family`."""
        return {f"x{i}": "number" for i in range(self.d)}

    def keep(self, names: list[str], numeric: Sequence[str] = ()) -> "Rows":
        """The rows with only the columns ``names`` of a table; those that are ``numeric`` are known to be numbers."""
        return self

    def fingerprints(self) -> list[Fingerprint]:
        """What each file looks like now; none of rows in memory."""
        return [fingerprint(file) for file in self.files] if self.is_portable else []

    def check_unchanged(self) -> None:
        """Refuse files that are not what they were when they were opened."""
        now = self.fingerprints() if self.opened_as else []
        for file, was, found in zip(self.files, self.opened_as, now, strict=False):
            if was != found:
                text = f"{file}: changed while it was read ({was.size:,} bytes, now {found.size:,})"
                raise InvalidInputError(f"{text}; run again when nothing writes to the input.")

    @property
    def fingerprint(self) -> str | None:
        """A checksum of the sizes and ends of all files as they were opened, without their times; None in memory."""
        known = b"".join(each.size.to_bytes(8, signed=True) + each.ends for each in self.opened_as)
        return hashlib.sha256(known).hexdigest() if self.opened_as else None

    @property
    def row_bytes(self) -> int:
        """Bytes of the features of a row."""
        return int(self.d * self.dtype.itemsize)

    @property
    def read_rows(self) -> int:
        """Rows to read at a time."""
        return max(1, READ_BYTES // self.row_bytes)

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        return block_rows(self.d)

    def tasks(self, n_workers: int = 1) -> list[list[Piece]]:
        """Return lists of consecutive pieces, read together: of ``TASK_BYTES``, or three for each of ``n_workers``."""
        most = min(TASK_BYTES, max(self.n * self.row_bytes // (3 * n_workers), READ_BYTES))
        tasks, size = list[list[Piece]](), most
        for piece in self.pieces:
            if size >= most:
                tasks.append([])
                size = 0
            tasks[-1].append(piece)
            size += piece.n_rows * self.row_bytes
        return [task for task in tasks if np.diff(self.owned(task)) > 0]

    def blocks(self, task: list[Piece] | None = None) -> Generator[Block, None, None]:
        """All rows in order, or those of a ``task``, in blocks cut at the same rows however the data are stored."""
        step, pieces, first, last = self.block_rows, self.pieces, 0, self.n
        if task is not None:
            first, last = self.owned(task)
            pieces = pieces[bisect_left(pieces, task[0].start, key=lambda piece: piece.start) :]
        kept: list[Block] = []
        for piece in pieces:
            if piece.start >= last:
                break
            for block in self.read(piece):
                if block.start >= last:
                    break
                own = block.part(slice(max(first - block.start, 0), last - block.start))
                missing = step - sum(part.n for part in kept)
                if own.n >= missing:
                    yield _joined([*kept, own.part(slice(0, missing))])
                    full = own.n - (own.n - missing) % step
                    yield from (own.part(slice(i, i + step)) for i in range(missing, full, step))
                    kept, own = [], own.part(slice(full, None))
                kept += [own] if own.n else []
        if kept:
            yield _joined(kept)

    def owned(self, task: list[Piece]) -> tuple[int, int]:
        """The rows of the groups that begin in the pieces of a ``task``; the last group may end in the next pieces."""
        group, end = group_rows(self.d), task[-1].start + task[-1].n_rows
        return -(-task[0].start // group) * group, min(-(-end // group) * group, self.n)

    @contextmanager
    def load(self, max_bytes: float = np.inf) -> Iterator[Block]:
        """All rows as one block: in memory up to ``max_bytes``, else in a temporary file that is memory-mapped."""
        shape = (self.n, self.d)
        if not self.is_dense:
            yield _joined([block for piece in self.pieces for block in self.read(piece)])
            return
        with TemporaryDirectory(prefix="coresift-") as folder:
            if self.n * self.row_bytes <= max_bytes:
                X = np.empty(shape, dtype=self.dtype)
            else:
                place = _allocated(Path(folder) / "rows", self.n * self.row_bytes)
                X = np.memmap(place, mode="r+", dtype=self.dtype, shape=shape)
            weights, labels, at = np.ones(self.n), [], 0
            targets = np.empty(self.n) if self.has_targets else None
            for part in (block for piece in self.pieces for block in self.read(piece)):
                rows = slice(at, at + part.n)
                X[rows], weights[rows] = part.X, part.weights
                labels += [part.labels] if part.labels is not None else []
                if targets is not None:
                    targets[rows] = part.targets
                at += part.n
            self.check_unchanged()
            yield Block(0, X, weights, join_labels(labels) if labels else None, targets)

    def take(self, indices: np.ndarray) -> Block:
        """The rows ``indices``, in that order, as a block of their own; other pieces are not read."""
        wanted, back = np.unique(indices, return_inverse=True)
        if len(wanted) and not 0 <= wanted[0] <= wanted[-1] < self.n:
            raise InvalidInputError(f"{self.name} has rows 0 to {self.n - 1}, not {wanted[0]} to {wanted[-1]}.")
        edges = np.searchsorted(wanted, [(piece.start, piece.start + piece.n_rows) for piece in self.pieces])
        needed = [piece for piece, (first, last) in zip(self.pieces, edges, strict=True) if first < last]
        parts = []
        for block in (block for piece in needed for block in self.read(piece)):
            first, last = np.searchsorted(wanted, (block.start, block.start + block.n))
            if first < last:
                parts.append(block.part(wanted[first:last] - block.start))
        found = Block(0, np.empty((0, self.d), self.dtype), np.ones(0), None, np.empty(0) if self.has_targets else None)
        if len(wanted):
            found = _joined(parts)._replace(start=0)
        self.check_unchanged()
        return found if np.array_equal(wanted, indices) else found.part(back)

    def file_of(self, rows: np.ndarray) -> np.ndarray:
        """Position in ``files`` of the file of each of these ``rows``."""
        return np.searchsorted(self.file_starts, rows, side="right") - 1

    def where(self, row: int) -> str:
        """The name of a ``row`` in a message; with several files also its file and its number there."""
        file = int(self.file_of(np.array([row]))[0])
        inside = f" (row {row - int(self.file_starts[file])} of {self.files[file]})"
        return f"row {row}{inside if len(self.files) > 1 else ''}"

    def explain(self, bad: BadRow) -> InvalidInputError:
        """The error to raise for ``bad``, a value that cannot be used: with its column and its place."""
        column = "" if bad.column is None else f" in column {bad.column}"
        if bad.column is not None and self.names:
            column += f" ({self.names[bad.column]!r})"
        return InvalidInputError(f"{self.name} contains {bad.what}{column}, {self.where(bad.row)}{bad.advice}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}: {self.n:,} rows, {self.d} columns)"


def _allocated(path: Path, size: int) -> Path:
    """Take disk space for a file that is to be mapped: a process dies when it writes to a map and the disk is full."""
    try:
        with path.open("wb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            elif shutil.disk_usage(path.parent).free < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            file.truncate(size)
    except OSError as error:
        text = f"{path.parent.parent}: no room for {size / 1e9:.3g} GB of rows ({error.strerror})"
        raise CoresiftError(f"{text}; make room, set TMPDIR to another folder, or raise max_memory.") from error
    return path


def block_rows(n_columns: int) -> int:
    """Rows of a block: a power of two that depends on the number of columns alone."""
    fitting = max(1, BLOCK_BYTES // (8 * n_columns))
    return min(_LARGEST_BLOCK, max(_SMALLEST_BLOCK, 1 << (fitting.bit_length() - 1)))


def group_rows(n_columns: int) -> int:
    """Rows of the blocks that are summed up together before the sums are merged."""
    return _BLOCKS_OF_A_GROUP * block_rows(n_columns)


def pieces_of(n_rows: int, n_columns: int, row_bytes: float, file: int = 0, start: int = 0) -> list[Piece]:
    """Pieces of about ``PIECE_BYTES`` and whole blocks, for one file that can be read from any row."""
    block = block_rows(n_columns)
    step = max(1, int(PIECE_BYTES / max(row_bytes, 1.0)) // block) * block
    return [Piece(file, 0, first, start + first, min(step, n_rows - first)) for first in range(0, n_rows, step)]


def check_block(block: Block) -> None:
    """Raise at the first number that is not finite or too large, or the first weight that is not allowed."""
    if (bad := first_bad_value(block.X)) is not None:
        row, column, value = bad
        raise BadRow(bad_value(value), block.start + row, column, MUST_BE_FINITE)
    wrong = np.flatnonzero(~(np.isfinite(block.weights) & (block.weights >= 0)))
    if len(wrong):
        what = f"the weight {block.weights[wrong[0]]:g}"
        raise BadRow(what, block.start + int(wrong[0]), None, "; weights must be finite and not negative.")
    if block.targets is not None and not np.isfinite(block.targets.sum()):
        wrong = np.flatnonzero(~np.isfinite(block.targets))
        what = f"the target {block.targets[wrong[0]]:g}"
        raise BadRow(what, block.start + int(wrong[0]), None, "; targets must be finite.")


def encode_labels(values: np.ndarray, what: str) -> Labels:
    """Labels from an array of integers, booleans or strings."""
    if values.dtype.kind not in "iubUS":
        raise InvalidInputError(f"{what} has type {values.dtype}; labels must be integers or strings.")
    names, codes = np.unique(values, return_inverse=True)
    return Labels(codes.reshape(-1), names.tolist())


def check_targets(values: np.ndarray, what: str) -> np.ndarray:
    """Targets as float64, from an array of numbers."""
    if values.dtype.kind not in "fiub":
        raise InvalidInputError(f"{what} has type {values.dtype}; targets must be numbers.")
    return values.astype(np.float64)


def join_labels(parts: list[Labels]) -> Labels:
    """Labels of rows one after another, under one list of names."""
    index: dict[Any, int] = {}
    codes = [recode(part.names, index)[part.codes] for part in parts]
    return Labels(np.concatenate(codes), list(index))


def recode(names: Iterable[Any], index: dict[Any, int]) -> np.ndarray:
    """The number of each name in ``index``, to which unknown names are added."""
    return np.array([index.setdefault(name, len(index)) for name in names], dtype=np.int64)


def _joined(blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    X: list[Any] = [block.X for block in blocks]
    if hasattr(X[0], "column_names"):  # tables, which are not prepared yet
        X = [pa.concat_tables(X, promote_options="permissive")]
    weights = np.concatenate([block.weights for block in blocks])
    labels = [block.labels for block in blocks if block.labels is not None]
    targets = [block.targets for block in blocks if block.targets is not None]
    others = join_labels(labels) if labels else None, np.concatenate(targets) if targets else None
    return Block(blocks[0].start, X[0] if len(X) == 1 else stacked(X), weights, *others)


def as_type(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Convert numbers; of a signalling NaN, which a pass refuses, NumPy would warn."""
    with np.errstate(invalid="ignore"):
        return values.astype(dtype, copy=False)
