"""Rows of tables: frames in memory, and Parquet, Feather and CSV files on any file system that PyArrow knows."""

import copy
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import unquote

import numpy as np

from .._errors import InvalidInputError
from .._imports import Late
from .._validation import naming
from .columns import Columns, Wanted, as_table, check_distinct, numbers, pa
from .rows import READ_BYTES, Block, Fingerprint, Piece, Rows, group_rows

csv: Any = Late("pyarrow.csv", "io", "a CSV file")
ipc: Any = Late("pyarrow.ipc", "io", "a Feather file")
parquet: Any = Late("pyarrow.parquet", "io", "a Parquet file")

_LARGE_COLUMN = 1 << 25  # a column of a row group above this is read page by page, not as a whole
_MOST_WHOLE_ROWS = 1 << 10  # at a time: a dictionary of long strings is small in the file, and large in memory
_LONG_COLUMN, _MOST_BYTES = 1 << 10, 1 << 27  # rows of wide tables that are read at a time, and their bytes
KEPT_BYTES = 1 << 29  # tables of numbers up to this size stay in memory once they are read
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def naming_file(file: str) -> AbstractContextManager[None]:
    """Put the name of a file in front of what its reader complains about."""
    return naming(Path(file), "damaged, or not what its name says")


class TableRows(Rows):
    """Rows of tables with the columns of the first, and of folders called ``name=value`` (Hive partitions), as text."""

    is_typed: ClassVar[bool] = True  # whether files say the types of columns
    columns: Columns
    numeric: frozenset[str] = frozenset()  # columns of text that are known to hold numbers

    def __init__(self, files: Sequence[str], filesystem: Any, wanted: Wanted, name: str) -> None:
        self.name, self.files, self._filesystem = name, list(files), filesystem
        self.kept: dict[Piece, list[Any]] = {}  # batches of pieces that were read, until they are prepared
        self.pieces, self.n = [], 0
        starts: list[int] = []
        first: Any = None
        for at, file in enumerate(self.files):
            starts.append(self.n)
            with naming_file(file):
                schema = self._schema(at)
                check_distinct(schema.names)
                for key in (key for key in self._partition(at) if key not in schema.names):
                    schema = schema.append(pa.field(key, pa.string()))
                if first is None:
                    first = schema
                    self.columns = Columns(schema, wanted, self._first_entry, self.is_typed)
                self._check_same(schema, first)
                parts = self._count(at)
            for part, n_rows in enumerate(parts):
                if n_rows:
                    self.pieces.append(Piece(at, part, 0, self.n, n_rows))
                self.n += n_rows
        if self.n == 0:
            raise InvalidInputError(f"{name}: no rows.")
        self.left_out, self.is_dense = self.columns.left_out, not self.columns.is_prepared
        self._name_columns()
        self.has_labels, self.has_weights, self.has_targets = (name is not None for name in wanted.others)
        self.file_starts = np.array(starts, dtype=np.int64)

    @property
    def read_rows(self) -> int:  # reading a column costs more than a few rows of it
        return max(super().read_rows, min(_LONG_COLUMN, _MOST_BYTES // self.row_bytes))

    @property
    def block_rows(self) -> int:
        usual = super().block_rows
        return usual if self.is_dense else max(usual, min(_LONG_COLUMN, group_rows(self.d)))

    def _name_columns(self) -> None:
        self.names, self.dtype, self.d = self.columns.names, self.columns.dtype, len(self.columns.names)

    @property
    def kinds(self) -> dict[str, str | None]:
        return self.columns.kinds

    @property
    def is_kept(self) -> bool:
        """Whether batches stay in memory: those of numbers that are read once more, after a pass over the columns."""
        is_small = self.n * self.row_bytes <= KEPT_BYTES
        return is_small and self.columns.is_prepared and set(self.kinds.values()) == {"number"}

    def keep(self, names: list[str], numeric: Sequence[str] = ()) -> Self:
        kept = copy.copy(self)
        kept.kept = self.kept
        kept.numeric = frozenset(numeric)
        kept.columns = copy.copy(self.columns)
        kept.columns.features = names
        kept.columns.kinds = {name: self.kinds[name] for name in names}
        kept._name_columns()
        return kept

    def _partition(self, file: int) -> dict[str, str | None]:
        """Columns that the folders of a file name."""
        pairs = (part.split("=", 1) for part in Path(self.files[file]).parts[:-1] if "=" in part)
        return {key: None if value == _NO_VALUE else unquote(value) for key, value in pairs if key}

    def _stored(self, file: int) -> list[str]:
        """The columns to read from a file; at least one, which tells the number of rows."""
        stored = dict.fromkeys(self._schema(file).names)
        return [name for name in self.columns.all if name in stored] or list(stored)[:1]

    def _completed(self, batch: Any, file: int) -> Any:
        """A batch with the columns that the folders of its file name."""
        there = set(batch.schema.names)
        for name in self.columns.all:
            if name not in there:
                value = pa.array([self._partition(file)[name]], pa.string())
                batch = batch.append_column(name, value.take(pa.array(np.zeros(batch.num_rows, dtype=np.int64))))
        return batch

    def _check_same(self, schema: Any, first: Any) -> None:
        wrong = []
        there, before = ({field.name: field.type for field in each} for each in (schema, first))
        for name in self.columns.all:
            if name not in there:
                wrong.append(f"no column {name!r}, which {self.files[0]} has")
            elif self.is_typed and there[name] != before[name]:
                wrong.append(f"column {name!r} has type {there[name]}, in {self.files[0]} {before[name]}")
        if wrong:
            raise InvalidInputError(f"{'; '.join(wrong)}; files must be alike.")

    def fingerprints(self) -> list[Fingerprint]:
        if self._filesystem is None or self._filesystem.type_name == "local":
            return super().fingerprints()
        found = self._filesystem.get_file_info(self.files)
        return [Fingerprint(-1 if info.size is None else info.size, info.mtime_ns or 0) for info in found]

    @abstractmethod
    def _schema(self, file: int) -> Any:
        """The Arrow schema of a file."""

    @abstractmethod
    def _count(self, file: int) -> list[int]:
        """Rows of each part of a file; known nulls are refused."""

    def _first_entry(self, column: str) -> Any:
        """The first entry of a column of lists; the first batches, and files, may have no rows."""
        files = (file for file in range(len(self.files)) if column in self._schema(file).names)
        batches = (batch for file in files for batch in self._batches(file, [column]))
        return next((batch.column(0)[0].as_py() for batch in batches if batch.num_rows), None)

    @abstractmethod
    def _batches(self, file: int, names: list[str]) -> Iterator[Any]:
        """Some columns of a file, batch by batch."""


class FrameRows(TableRows):
    """Rows of a frame in memory, or of an Arrow table."""

    is_portable = False

    def __init__(self, data: Any, wanted: Wanted) -> None:
        self._table = as_table(data)
        super().__init__(["frame"], None, wanted, "frame")

    def read(self, piece: Piece) -> Iterator[Block]:
        table = self._table.select(self.columns.all)
        for first in range(0, piece.n_rows, self.read_rows):
            (batch,) = table.slice(first, self.read_rows).combine_chunks().to_batches()
            yield self.columns.block(batch, first)

    def _schema(self, file: int) -> Any:
        return self._table.schema

    def _count(self, file: int) -> list[int]:
        self.columns.refuse_nulls({name: self._table.column(name).null_count for name in self.columns.all})
        return [self._table.num_rows]

    def _batches(self, file: int, names: list[str]) -> Iterator[Any]:
        return iter(self._table.select(names).to_batches())


class ParquetRows(TableRows):
    """Rows of Parquet files; a piece is a row group."""

    _opened: tuple[int, Any] | None = None

    def read(self, piece: Piece) -> Iterator[Block]:
        file, rows, names = self.files[piece.file], 0, self._stored(piece.file)
        kept = self.kept.get(piece, [])
        # in this thread: each worker has its own
        how = {"batch_size": self.read_rows, "row_groups": [piece.part], "use_threads": False}
        is_kept = bool(kept) and set(names).issubset(kept[0].schema.names)
        read = []
        with naming_file(file):
            for batch in kept if is_kept else self._open(piece.file).iter_batches(columns=names, **how):
                yield self.columns.block(self._completed(batch, piece.file), piece.start + rows)
                rows += batch.num_rows
                if self.is_kept:
                    read.append(batch)
        _check_announced(rows, piece, file)
        if read:
            self.kept[piece] = read

    def whole_rows(self, piece: Piece, wanted: np.ndarray) -> Iterator[Any]:
        """Read some rows of a row group with all its columns, in slices, as Arrow tables."""
        file, first = self.files[piece.file], 0
        if len(wanted) == 0:
            return
        with naming_file(file):
            reader = self._open(piece.file)
            size = reader.metadata.row_group(piece.part).total_byte_size
            step = min(max(1, READ_BYTES * piece.n_rows // max(size, 1)), _MOST_WHOLE_ROWS)
            for batch in reader.iter_batches(batch_size=step, row_groups=[piece.part]):
                begin, end = np.searchsorted(wanted, (first, first + batch.num_rows))
                if begin < end:
                    yield pa.Table.from_batches([batch]).take(wanted[begin:end] - first)
                first += batch.num_rows
        _check_announced(first, piece, file)

    def schemas(self) -> Iterator[tuple[str, Any]]:
        """The files, and all columns of each."""
        return ((file, self._schema(at).remove_metadata()) for at, file in enumerate(self.files))

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

    def _batches(self, file: int, names: list[str]) -> Iterator[Any]:
        return self._open(file).iter_batches(batch_size=1, columns=names)  # only the first entry is asked for

    def _open(self, file: int) -> Any:
        """The reader of a file; the last one is kept, because pieces of a file are mostly read in order."""
        if self._opened is None or self._opened[0] != file:
            handle = self._filesystem.open_input_file(self.files[file])
            reader = parquet.ParquetFile(handle, pre_buffer=False)
            groups = (reader.metadata.row_group(g) for g in range(min(reader.num_row_groups, 4)))  # others are alike
            sizes = (group.column(c).total_uncompressed_size for group in groups for c in range(group.num_columns))
            if max(sizes, default=0) > _LARGE_COLUMN:
                reader = parquet.ParquetFile(handle, pre_buffer=False, buffer_size=1 << 20)
            self._opened = (file, reader)
        return self._opened[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "kept": {}}


def _check_announced(rows: int, piece: Piece, file: str) -> None:
    """Arrow reads as many rows as the pages hold, whatever the metadata say."""
    if rows != piece.n_rows:
        text = f"row group {piece.part} announces {piece.n_rows:,} rows and holds {rows:,}"
        raise InvalidInputError(f"{file}: {text}; the file is damaged.")


def _too_long(error: Exception) -> Exception:
    """The error of PyArrow; of a line that is longer than what it reads at a time, the reason."""
    is_long = any(words in str(error) for words in ("straddl", "file or block"))
    text = f"the file is empty, or a line is longer than {READ_BYTES:,} bytes, which are read at a time"
    return InvalidInputError(text) if is_long else error


class FeatherRows(TableRows):
    """Rows of Feather (Arrow IPC) files; a piece is a record batch."""

    def read(self, piece: Piece) -> Iterator[Block]:
        with naming_file(self.files[piece.file]):
            names = self._stored(piece.file)
            batch = self._open(piece.file, names).get_batch(piece.part).select(names)
            batch = self._completed(batch, piece.file)
            for first in range(0, batch.num_rows, self.read_rows):
                yield self.columns.block(batch.slice(first, self.read_rows), piece.start + first)

    def _open(self, file: int, names: list[str] | None = None) -> Any:
        handle = self._filesystem.open_input_file(self.files[file])
        fields = None if names is None else [self._schema(file).get_field_index(name) for name in names]
        return ipc.open_file(handle, options=ipc.IpcReadOptions(included_fields=fields))

    def _schema(self, file: int) -> Any:
        return self._open(file).schema

    def _count(self, file: int) -> list[int]:
        return [batch.num_rows for batch in self._batches(file, self._stored(file)[:1])]

    def _batches(self, file: int, names: list[str]) -> Iterator[Any]:
        reader = self._open(file, names)
        return (reader.get_batch(part) for part in range(reader.num_record_batches))


class CsvRows(TableRows):
    """Rows of CSV and TSV files with a header, also compressed; columns that are prepared are text, others float64."""

    is_typed = False

    def read(self, piece: Piece) -> Iterator[Block]:
        start = piece.start
        for batch in self._batches(piece.file, self._stored(piece.file)):
            if batch.num_rows:
                with naming_file(self.files[piece.file]):
                    block = self.columns.block(self._completed(batch, piece.file), start)
                yield block
                start += block.n

    def _options(self, file: int) -> tuple[Any, Any]:
        is_tabbed = Path(self.files[file].lower().removesuffix(".gz")).suffix == ".tsv"
        parse = csv.ParseOptions(newlines_in_values=True, delimiter="\t" if is_tabbed else ",")
        return csv.ReadOptions(block_size=READ_BYTES), parse

    def _schema(self, file: int) -> Any:
        with self._filesystem.open_input_stream(self.files[file]) as stream:
            try:
                return csv.open_csv(stream, *self._options(file)).schema
            except pa.ArrowInvalid as error:
                raise _too_long(error) from error

    def _count(self, file: int) -> list[int]:
        """Read the file once: nulls, text among numbers, and labels that are not numbers are found here."""
        columns, label, rows = self.columns, self.columns.wanted.label, 0
        stored = self._stored(file)
        names = [name for name in stored if not columns.is_prepared or name in columns.wanted.others] or stored[:1]
        nulls = dict.fromkeys(names, 0)
        columns.whole_labels = (columns.whole_labels or file == 0) and label is not None
        for batch in self._batches(file, names):
            rows += batch.num_rows
            for name in nulls:
                nulls[name] += batch.column(name).null_count
            if columns.whole_labels and label in names:
                try:
                    found = numbers(batch.column(label), "number")
                    columns.whole_labels = bool((found == np.rint(found)).all())
                except pa.ArrowInvalid:
                    columns.whole_labels = False
        columns.refuse_nulls(nulls)
        return [rows]

    def _batches(self, file: int, names: list[str]) -> Iterator[Any]:
        columns = self.columns
        text = {columns.wanted.label, *((set(columns.features) if columns.is_prepared else set()) - self.numeric)}
        kinds = {name: pa.string() if name in text else pa.float64() for name in names}
        convert = csv.ConvertOptions(include_columns=names, column_types=kinds, strings_can_be_null=True)
        with naming_file(self.files[file]), self._filesystem.open_input_stream(self.files[file]) as stream:
            try:
                yield from csv.open_csv(stream, *self._options(file), convert)
            except pa.ArrowInvalid as error:
                if (place := re.search(r"CSV column #(\d+)", str(error))) is None:
                    raise _too_long(error) from error
                name = self._schema(file).names[int(place[1])]
                what = f"column {name!r} begins as numbers and then is not ({str(error).rpartition(': ')[2]})"
                raise InvalidInputError(f"{what}; clean it, or leave it out.") from error
