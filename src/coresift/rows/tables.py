"""Rows of Parquet and CSV files, on any file system that PyArrow knows. PyArrow is an extra."""

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .._errors import InvalidInputError
from .._imports import need
from .._validation import naming
from .rows import Block, Labels, Piece, Rows

_LARGE_COLUMN = 1 << 25  # a column of a row group above this is read page by page, not as a whole
_NUMBERS = ("floating", "integer", "boolean")
_LISTS = ("fixed_size_list", "list", "large_list")
_CLASSES = ("integer", "boolean", "string", "large_string")


def need_pyarrow(what: str = "a Parquet or CSV file") -> Any:
    """The module ``pyarrow``."""
    return need("pyarrow", "io", what)


def _naming(file: str) -> AbstractContextManager[None]:
    return naming(Path(file), "damaged, or not what its name says")


def _is(kind: Any, names: Sequence[str]) -> bool:
    types = need_pyarrow().types
    return any(getattr(types, f"is_{name}")(kind) for name in names)


@dataclass(frozen=True)
class Wanted:
    """The requested columns."""

    columns: Sequence[str] | None = None
    embedding: str | None = None
    label: str | None = None
    weight: str | None = None
    target: str | None = None
    training: bool = False  # whether columns of integers are features, and labels may be floats

    def __post_init__(self) -> None:
        if self.columns is not None and self.embedding is not None:
            raise InvalidInputError("columns and embedding exclude each other: give one of them.")
        if self.columns is not None and not self.columns:
            raise InvalidInputError("columns names no column.")

    @property
    def others(self) -> tuple[str | None, str | None, str | None]:
        """The columns that are not features: label, weight and target."""
        return self.label, self.weight, self.target

    @property
    def all(self) -> list[str]:
        named = (*self.others, self.embedding, *(self.columns or ()))
        return [name for name in named if name is not None]


class Columns:
    """The columns of a table that are read: features (or one column of lists of them), label, weight, target.

    By default all columns of floats are features (and of integers if ``integers``), else the only column of lists.
    """

    width: int | None = None  # numbers in each list of the one feature column; None if columns are numbers

    def __init__(self, schema: Any, wanted: Wanted, first_entry: Callable[[str], Any], *, integers: bool) -> None:
        self.wanted = wanted
        fields = {field.name: field.type for field in schema}
        more = f" and {len(fields) - 12} more" if len(fields) > 12 else ""
        listed = ", ".join(map(repr, list(fields)[:12])) + more
        if missing := [name for name in wanted.all if name not in fields]:
            raise InvalidInputError(f"no column {missing[0]!r}; there are {listed}.")
        for what in ("weight", "target"):
            name = getattr(wanted, what)
            if name is not None and not _is(fields[name], _NUMBERS):
                raise InvalidInputError(f"the {what} column {name!r} has type {fields[name]}, not a number.")
        features, embedding = list(wanted.columns or ()), wanted.embedding
        if wanted.columns is None and embedding is None:
            free = {name: kind for name, kind in fields.items() if name not in wanted.others}
            usual = ("floating", "integer") if integers else ("floating",)
            features = [name for name, kind in free.items() if _is(kind, usual)]
            lists = [name for name, kind in free.items() if _is(kind, _LISTS)]
            embedding = lists[0] if not features and len(lists) == 1 else None
        if embedding is not None:
            self.width = _list_width(embedding, fields[embedding], first_entry)
            features = [embedding]
        elif not features:
            raise InvalidInputError(f"no column of floats; there are {listed}. Name some with --columns.")
        self.features = features
        kinds = [fields[name] if self.width is None else fields[name].value_type for name in features]
        for name, kind in zip(features, kinds, strict=True):
            if not _is(kind, _NUMBERS):
                raise InvalidInputError(f"column {name!r} has type {kind}, which is not a number.")
        exact = all(_is(kind, ("float32", "float16", "boolean")) for kind in kinds)
        self.dtype = np.dtype(np.float32 if exact else np.float64)
        self.all = list(dict.fromkeys([*features, *filter(None, wanted.others)]))
        self.left_out = {name: self._reason(name, fields[name]) for name in fields if name not in features}

    @property
    def names(self) -> list[str]:
        if self.width is None:
            return self.features
        return [f"{self.features[0]}[{i}]" for i in range(self.width)]

    def _reason(self, name: str, kind: Any) -> str:
        for what in ("label", "weight", "target"):
            if name == getattr(self.wanted, what):
                return what
        if self.wanted.columns is not None or self.wanted.embedding is not None:
            return "not named"
        return f"{kind}, not named" if _is(kind, _NUMBERS) else "not numeric"

    def refuse_nulls(self, nulls: dict[str, int]) -> None:
        for name, count in nulls.items():
            if count:
                what = "the label column" if name == self.wanted.label else "column"
                raise InvalidInputError(f"{what} {name!r} has {count} nulls; drop or fill such rows first.")

    def block(self, batch: Any, start: int) -> Block:
        self.refuse_nulls({name: batch.column(name).null_count for name in self.all})
        if self.width is not None:
            X = self._rows_of_lists(batch.column(self.features[0]))
        else:
            table = np.empty((len(self.features), batch.num_rows), dtype=self.dtype)  # contiguous copies
            for row, name in zip(table, self.features, strict=True):
                row[:] = batch.column(name).to_numpy(zero_copy_only=False)
            X = table.T
        weights, targets = (
            None if name is None else batch.column(name).to_numpy(zero_copy_only=False).astype(np.float64)
            for name in (self.wanted.weight, self.wanted.target)
        )
        labels = None if self.wanted.label is None else self._labels(batch.column(self.wanted.label))
        return Block(start, X, np.ones(len(X)) if weights is None else weights, labels, targets)

    def _rows_of_lists(self, column: Any) -> np.ndarray:
        name, values = self.features[0], column.flatten()
        if len(values) != len(column) * (self.width or 0) or (
            hasattr(column, "offsets") and np.any(np.diff(column.offsets.to_numpy()) != self.width)
        ):
            raise InvalidInputError(f"lists of column {name!r} differ in length; the first has {self.width}.")
        if values.null_count:
            raise InvalidInputError(f"lists of column {name!r} hold {values.null_count} nulls.")
        numbers = values.to_numpy(zero_copy_only=False).astype(self.dtype, copy=False)
        return np.asarray(numbers.reshape(len(column), -1))

    def _labels(self, column: Any) -> Labels:
        encoded = column if _is(column.type, ("dictionary",)) else column.dictionary_encode()
        kind = encoded.type.value_type
        if not _is(kind, (*_CLASSES, "floating") if self.wanted.training else _CLASSES):
            raise InvalidInputError(
                f"the label column {self.wanted.label!r} has type {kind}; integers or strings are needed."
            )
        return Labels(encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist())


def _list_width(name: str, kind: Any, first_entry: Callable[[str], Any]) -> int:
    if not _is(kind, _LISTS) or not _is(kind.value_type, _NUMBERS):
        raise InvalidInputError(f"column {name!r} has type {kind}; lists of numbers are needed.")
    width = kind.list_size if _is(kind, ("fixed_size_list",)) else len(first_entry(name) or ())
    if width < 1:
        raise InvalidInputError(f"the lists of column {name!r} are empty.")
    return int(width)


class TableRows(Rows):
    """Rows of tables with named columns; all files have those of the first."""

    is_typed: ClassVar[bool]  # whether files say the types of columns, so that integers are told from floats
    columns: Columns

    def __init__(self, files: Sequence[str], filesystem: Any, wanted: Wanted, name: str) -> None:
        need_pyarrow()
        self.name, self.files, self._filesystem = name, list(files), filesystem
        self.pieces, self.n = [], 0
        starts: list[int] = []
        first: Any = None
        for at, file in enumerate(self.files):
            starts.append(self.n)
            with _naming(file):
                schema = self._schema(at)
                if first is None:
                    first, integers = schema, wanted.training or not self.is_typed
                    self.columns = Columns(schema, wanted, self._first_entry, integers=integers)
                self._check_same(schema, first)
                parts = self._count(at)
            for part, n_rows in enumerate(parts):
                if n_rows:
                    self.pieces.append(Piece(at, part, 0, self.n, n_rows))
                self.n += n_rows
        if self.n == 0:
            raise InvalidInputError(f"{name}: no rows.")
        self.names, self.dtype, self.left_out = self.columns.names, self.columns.dtype, self.columns.left_out
        self.d = len(self.names)
        self.has_labels, self.has_weights, self.has_targets = (name is not None for name in wanted.others)
        self.file_starts = np.array(starts, dtype=np.int64)

    def _check_same(self, schema: Any, first: Any) -> None:
        other = self.files[0]
        for name in self.columns.all:
            if name not in schema.names:
                raise InvalidInputError(f"no column {name!r}, which {other} has; files must be alike.")
            mine, wanted = schema.field(name).type, first.field(name).type
            if self.is_typed and mine != wanted:
                raise InvalidInputError(f"column {name!r} has type {mine}, in {other} {wanted}.")

    @abstractmethod
    def _schema(self, file: int) -> Any:
        """The Arrow schema of a file."""

    @abstractmethod
    def _count(self, file: int) -> list[int]:
        """Rows of each part of a file; known nulls are refused."""

    def _first_entry(self, column: str) -> Any:
        return None


class ParquetRows(TableRows):
    """Rows of Parquet files; a piece is a row group."""

    is_typed = True
    _opened: tuple[int, Any] | None = None

    def read(self, piece: Piece) -> Iterator[Block]:
        file, rows = self.files[piece.file], 0
        with _naming(file):
            batches = self._open(piece.file).iter_batches(
                batch_size=self.read_rows, row_groups=[piece.part], columns=self.columns.all
            )
        while True:
            with _naming(file):
                if (batch := next(batches, None)) is None:
                    break
                block = self.columns.block(batch, piece.start + rows)
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
        # not lists: their paths are longer, and their nulls are found when they are read
        for name in filter(where.__contains__, self.columns.all):
            statistics = [group.column(where[name]).statistics for group in groups]
            nulls[name] = sum(s.null_count for s in statistics if s is not None and s.has_null_count)
        self.columns.refuse_nulls(nulls)
        return [group.num_rows for group in groups]

    def _first_entry(self, column: str) -> Any:
        batches = self._open(0).iter_batches(batch_size=1, columns=[column])
        return next((batch.column(0)[0].as_py() for batch in batches if batch.num_rows), None)

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
    """Rows of CSV files with a header; a piece is a file. Numbers are float64 (2.5 may follow 1), labels are text."""

    is_typed = False

    def read(self, piece: Piece) -> Iterator[Block]:
        start = piece.start
        for batch in self._batches(piece.file):
            if batch.num_rows:
                with _naming(self.files[piece.file]):
                    block = self.columns.block(batch, start)
                yield block
                start += block.n

    def _schema(self, file: int) -> Any:
        from pyarrow import csv

        with self._filesystem.open_input_stream(self.files[file]) as stream:
            schema = csv.open_csv(stream, parse_options=csv.ParseOptions(newlines_in_values=True)).schema
        name, count = Counter(schema.names).most_common(1)[0]
        if count > 1:
            raise InvalidInputError(f"the column {name!r} is there more than once.")
        return schema

    def _count(self, file: int) -> list[int]:
        """Read the file once: nulls and text among numbers are found here."""
        rows, nulls = 0, dict.fromkeys(self.columns.all, 0)
        for batch in self._batches(file):
            rows += batch.num_rows
            for name in nulls:
                nulls[name] += batch.column(name).null_count
        self.columns.refuse_nulls(nulls)
        return [rows]

    def _batches(self, file: int) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import csv

        names, label = self.columns.all, self.columns.wanted.label
        kinds = {name: pa.string() if name == label else pa.float64() for name in names}
        convert = csv.ConvertOptions(include_columns=names, column_types=kinds, strings_can_be_null=True)
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
