"""A source cut into tasks, and a task into blocks of rows: the same whoever works on them.

Sums are float64 sums over blocks, merged block by block within a task and task by task, in the order of the rows.
Blocks and tasks depend on the data alone, so the same bits come out of one process, of many, and of a cluster.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from threadpoolctl import threadpool_limits  # comes with scikit-learn

from .._errors import InvalidInputError
from .._validation import LARGEST_MAGNITUDE
from .rows import Chunk, Labels, Piece, Rows

BLOCK_BYTES = 1 << 22  # of a block in float64: a few of them stay in the cache
_LARGEST_BLOCK = 1 << 15
_SMALLEST_BLOCK = 1 << 8
TASK_BYTES = 1 << 26  # of a task as stored: enough to pay for a worker's start, few enough to balance

Task = list[Piece]


class Block(NamedTuple):
    """Consecutive rows, their weights (ones if the source has none) and labels."""

    start: int
    X: np.ndarray  # (b, d)
    weights: np.ndarray  # (b,) float64
    labels: Labels | None


class Summary(Protocol):
    """What a pass finds out. ``merge`` takes the summary of the rows that follow."""

    def update(self, block: Block) -> None:
        """Add a block of rows."""

    def merge(self, other: Self) -> None:
        """Add the summary of later rows."""


class BadRow(InvalidInputError):
    """A value that cannot be used; where it stands is known only together with the source."""

    def __init__(self, what: str, row: int, column: int | None = None) -> None:
        super().__init__(what)
        self.what, self.row, self.column = what, row, column

    def __reduce__(self) -> tuple[Any, ...]:
        return BadRow, (self.what, self.row, self.column)


def block_rows(n_columns: int) -> int:
    """Rows of a block: a power of two that depends on the number of columns alone."""
    fitting = max(1, BLOCK_BYTES // (8 * n_columns))
    return min(_LARGEST_BLOCK, max(_SMALLEST_BLOCK, 1 << (fitting.bit_length() - 1)))


def tasks_of(source: Rows) -> list[Task]:
    """Consecutive pieces that are worked on together, about ``TASK_BYTES`` each."""
    tasks: list[Task] = []
    size = TASK_BYTES
    for piece in source.pieces:
        if size >= TASK_BYTES:
            tasks.append([])
            size = 0
        tasks[-1].append(piece)
        size += piece.n_rows * source.row_bytes
    return tasks


def blocks_of(source: Rows, task: Task) -> Iterator[Block]:
    """The rows of a task in blocks of equal size, however they were stored."""
    step = block_rows(source.d)
    start = task[0].start
    kept: list[Chunk] = []
    n_kept = 0
    for piece in task:
        for chunk in source.read(piece):
            kept.append(chunk)
            n_kept += len(chunk.X)
            if n_kept < step:
                continue
            joined = _joined(kept)
            for first in range(0, n_kept - step + 1, step):
                yield _block(start + first, _part(joined, first, first + step))
            done = n_kept - n_kept % step
            kept = [_part(joined, done, n_kept)] if done < n_kept else []
            start, n_kept = start + done, n_kept - done
    if n_kept:
        yield _block(start, _joined(kept))


def run_task(source: Rows, prototype: Summary, task: Task) -> Summary:
    """The summary of the rows of one task: what a worker does."""
    summary = copy.deepcopy(prototype)
    try:
        # one thread each: products of matrices would depend on their number, and workers are the way to use more cores
        with threadpool_limits(1):
            _update(summary, source, task)
    except BadRow as bad:
        names = source.names
        column = (
            ""
            if bad.column is None
            else f" in column {names[bad.column]!r}"
            if names
            else f" in column {bad.column}"
        )
        raise InvalidInputError(f"{source.name}: {bad.what}{column}, {source.where(bad.row)}.") from None
    return summary


def _update(summary: Summary, source: Rows, task: Task) -> None:
    for block in blocks_of(source, task):
        summary.update(block)


def check_block(block: Block) -> None:
    """Raise at the first number that is not finite, or a weight that is negative as well."""
    wide = np.abs(block.X.astype(np.float64, copy=False))
    bad = ~(wide <= LARGEST_MAGNITUDE)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        value = block.X[row, column]
        what = "NaN" if np.isnan(value) else "infinity" if np.isinf(value) else f"{value:g}"
        raise BadRow(f"{what} where a finite number is needed", block.start + row, column)
    wrong = np.flatnonzero(~(np.isfinite(block.weights) & (block.weights >= 0)))
    if len(wrong):
        raise BadRow(
            f"weight {block.weights[wrong[0]]:g}; weights are finite and not negative",
            block.start + int(wrong[0]),
        )
    raise BadRow(f"a number up to {wide.max():.3g}, whose square overflows; scale the columns", block.start)


def _block(start: int, chunk: Chunk) -> Block:
    weights = np.ones(len(chunk.X)) if chunk.weights is None else chunk.weights
    return Block(start, chunk.X, weights, chunk.labels)


def _part(chunk: Chunk, first: int, last: int) -> Chunk:
    rows = slice(first, last)
    return Chunk(
        chunk.X[rows],
        None if chunk.weights is None else chunk.weights[rows],
        None if chunk.labels is None else Labels(chunk.labels.codes[rows], chunk.labels.names),
    )


def _joined(chunks: list[Chunk]) -> Chunk:
    if len(chunks) == 1:
        return chunks[0]
    weights = None if chunks[0].weights is None else np.concatenate([np.asarray(c.weights) for c in chunks])
    labels = [chunk.labels for chunk in chunks if chunk.labels is not None]
    return Chunk(
        np.concatenate([chunk.X for chunk in chunks]), weights, join_labels(labels) if labels else None
    )


def join_labels(parts: list[Labels]) -> Labels:
    """Labels of rows one after another, under one list of names."""
    index: dict[Any, int] = {}
    codes = [recode(part, index)[part.codes] for part in parts]
    return Labels(np.concatenate(codes), list(index))


def recode(labels: Labels, index: dict[Any, int]) -> np.ndarray:
    """The number of each name in ``index``, to which unknown names are added."""
    return np.array([index.setdefault(name, len(index)) for name in labels.names], dtype=np.int64)
