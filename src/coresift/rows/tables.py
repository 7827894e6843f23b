"""Rows of Parquet and CSV files, on any file system that PyArrow knows."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .._errors import InvalidInputError
from .._npz import naming
from .columns import Columns, Wanted, block_of, choose_columns, need_pyarrow, refuse_nulls
from .rows import Block, Piece, Rows

_LARGE_COLUMN = 1 << 25  # a column of a row group above this is read page by page, not as a whole


class TableRows(Rows):
    """Rows of tables with named columns; all files have those of the first."""

    is_typed: ClassVar[
        bool
    ]  # whether files say the types of their columns, so that integers may be told from floats
    columns: Columns

    def __init__(self, files: Sequence[str], filesystem: Any, wanted: Wanted, name: str) -> None:
        need_pyarrow()
        self.name, self.files, self._filesystem = name, list(files), filesystem
        self.pieces, self.n = [], 0
        counts: list[int] = []
        first: Any = None
        for at, file in enumerate(self.files):
            with _naming(file):
                schema = self._schema(at)
                if first is None:
                    first = schema
                    integers = wanted.training or not self.is_typed
                    self.columns = choose_columns(schema, wanted, file, self._first_entry, integers=integers)
                self._check_same(schema, first, file)
                parts = self._count(at)
            for part, n_rows in enumerate(parts):
                if n_rows:
                    self.pieces.append(Piece(at, part, 0, self.n, n_rows))
                self.n += n_rows
            counts.append(sum(parts))
        if self.n == 0:
            raise InvalidInputError(f"{name}: no rows.")
        columns = self.columns
        self.names, self.d, self.dtype = columns.names, len(columns.names), columns.dtype
        self.left_out = columns.left_out
        self.has_weights, self.has_labels = wanted.weight is not None, wanted.label is not None
        self.file_starts = np.cumsum([0, *counts[:-1]], dtype=np.int64)

    def _check_same(self, schema: Any, first: Any, file: str) -> None:
        for name in self.columns.all:
            if name not in schema.names:
                raise InvalidInputError(
                    f"{file}: no column {name!r}, which {self.files[0]} has; files must have the same columns."
                )
            mine, wanted = schema.field(name).type, first.field(name).type
            if self.is_typed and mine != wanted:
                raise InvalidInputError(
                    f"{file}: column {name!r} has type {mine}, in {self.files[0]} {wanted}; make them agree."
                )

    @abstractmethod
    def _schema(self, file: int) -> Any:
        """The Arrow schema of a file."""

    @abstractmethod
    def _count(self, file: int) -> list[int]:
        """Rows of each part of a file; known nulls are refused."""

    def _first_entry(self, column: str) -> Any:
        """The first entry of a column of the first file."""
        return None


class ParquetRows(TableRows):
    """Rows of Parquet files; a piece is a row group."""

    is_typed = True
    _opened: tuple[int, Any] | None = None

    def read(self, piece: Piece) -> Iterator[Block]:
        """Read a row group in order."""
        file = self.files[piece.file]
        with _naming(file):
            batches = self._open(piece.file).iter_batches(
                batch_size=self.chunk_rows, row_groups=[piece.part], columns=self.columns.all
            )
        rows = 0
        while True:
            with _naming(file):
                if (batch := next(batches, None)) is None:
                    break
                block = block_of(batch, self.columns, file, piece.start + rows)
            rows += batch.num_rows
            yield block
        _check_announced(rows, piece, file)

    def read_group(self, piece: Piece) -> Any:
        """Read a row group with all its columns, as an Arrow table."""
        file = self.files[piece.file]
        with _naming(file):
            group = self._open(piece.file).read_row_group(piece.part)
        _check_announced(group.num_rows, piece, file)
        return group

    def _schema(self, file: int) -> Any:
        return self._open(file).schema_arrow

    def _count(self, file: int) -> list[int]:
        metadata = self._open(file).metadata
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        where = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
        nulls = {}
        for (
            name
        ) in self.columns.all:  # not lists: their paths are longer, and their nulls are found when read
            statistics = [group.column(where[name]).statistics for group in groups] if name in where else []
            nulls[name] = sum(s.null_count for s in statistics if s is not None and s.has_null_count)
        refuse_nulls(nulls, self.columns, self.files[file])
        return [group.num_rows for group in groups]

    def _first_entry(self, column: str) -> Any:
        for batch in self._open(0).iter_batches(batch_size=1, columns=[column]):
            if batch.num_rows:
                return batch.column(0)[0].as_py()
        return None

    def _open(self, file: int) -> Any:
        """The reader of a file; the last one is kept, because pieces of a file are mostly read in order."""
        if self._opened is None or self._opened[0] != file:
            from pyarrow import parquet

            handle = self._filesystem.open_input_file(self.files[file])
            reader = parquet.ParquetFile(handle, pre_buffer=False)
            if _largest_column(reader.metadata) > _LARGE_COLUMN:
                reader = parquet.ParquetFile(handle, pre_buffer=False, buffer_size=1 << 20)
            self._opened = (file, reader)
        return self._opened[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}


def _check_announced(rows: int, piece: Piece, file: str) -> None:
    """Arrow reads as many rows as the pages hold, whatever the metadata say."""
    if rows != piece.n_rows:
        raise InvalidInputError(
            f"{file}: row group {piece.part} announces {piece.n_rows:,} rows and holds {rows:,}; the file is damaged."
        )


def _largest_column(metadata: Any) -> int:
    """Bytes of the largest column of the first row groups: others are mostly alike."""
    groups = [metadata.row_group(g) for g in range(min(metadata.num_row_groups, 4))]
    return max((g.column(c).total_uncompressed_size for g in groups for c in range(g.num_columns)), default=0)


class CsvRows(TableRows):
    """Rows of CSV files with a header; a piece is a file, which can only be read from its beginning.

    Numbers are read as float64, because a column may begin with whole numbers; labels are read as text.
    """

    is_typed = False

    def read(self, piece: Piece) -> Iterator[Block]:
        """Read a file in order."""
        file, start = self.files[piece.file], piece.start
        for batch in self._batches(piece.file):
            if batch.num_rows:
                with _naming(file):
                    block = block_of(batch, self.columns, file, start)
                yield block
                start += block.n

    def _schema(self, file: int) -> Any:
        from pyarrow import csv

        with self._filesystem.open_input_stream(self.files[file]) as stream:
            schema = csv.open_csv(stream, parse_options=csv.ParseOptions(newlines_in_values=True)).schema
        repeated = [name for name, count in Counter(schema.names).items() if count > 1]
        if repeated:
            raise InvalidInputError(f"the column {repeated[0]!r} is there more than once.")
        return schema

    def _count(self, file: int) -> list[int]:
        """Read the file once: nulls and text among numbers are found here."""
        rows, nulls = 0, dict.fromkeys(self.columns.all, 0)
        for batch in self._batches(file):
            rows += batch.num_rows
            for name in nulls:
                nulls[name] += batch.column(name).null_count
        refuse_nulls(nulls, self.columns, self.files[file])
        return [rows]

    def _batches(self, file: int) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import csv

        kinds = dict.fromkeys(self.columns.all, pa.float64())
        if self.columns.wanted.label is not None:
            kinds[self.columns.wanted.label] = pa.string()
        convert = csv.ConvertOptions(
            include_columns=self.columns.all, column_types=kinds, strings_can_be_null=True
        )
        parse = csv.ParseOptions(newlines_in_values=True)
        with _naming(self.files[file]), self._filesystem.open_input_stream(self.files[file]) as stream:
            try:
                yield from csv.open_csv(stream, convert_options=convert, parse_options=parse)
            except pa.ArrowInvalid as error:
                if (place := re.search(r"CSV column #(\d+)", str(error))) is None:
                    raise
                name = self._schema(file).names[int(place[1])]
                raise InvalidInputError(
                    f"column {name!r} begins as numbers and then is not ({str(error).rpartition(': ')[2]}); "
                    "clean it, or leave it out."
                ) from error


def _naming(file: str) -> AbstractContextManager[None]:
    return naming(Path(file), "damaged, or not what its name says")
