"""Rows of Parquet, Feather and CSV files, on any file system that PyArrow knows."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import InvalidInputError
from .._imports import Late
from .columns import check_distinct, numbers, pa
from .rows import READ_BYTES, Block, Piece
from .tables import TableRows, naming_file

csv: Any = Late("pyarrow.csv", "io", "a CSV file")
ipc: Any = Late("pyarrow.ipc", "io", "a Feather file")
parquet: Any = Late("pyarrow.parquet", "io", "a Parquet file")

_LARGE_COLUMN = 1 << 25  # a column of a row group above this is read page by page, not as a whole
_MOST_WHOLE_ROWS = 1 << 10  # at a time: a dictionary of long strings is small in the file, and large in memory


class ParquetRows(TableRows):
    """Rows of Parquet files; a piece is a row group."""

    _opened: tuple[int, Any] | None = None

    def read(self, piece: Piece) -> Iterator[Block]:
        file, rows, names = self.files[piece.file], 0, self._stored(piece.file)
        kept, how = self.kept.get(piece, []), {"batch_size": self.read_rows, "row_groups": [piece.part]}
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
        schema = self._open(file).schema_arrow
        check_distinct(schema.names)
        return schema

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
        for file in range(len(self.files)):  # the first ones may have no rows
            for batch in self._open(file).iter_batches(batch_size=1, columns=[column]):
                if batch.num_rows:
                    return batch.column(0)[0].as_py()
        return None

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
        reader = self._open(file, self._stored(file)[:1])
        return [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]

    def _first_entry(self, column: str) -> Any:
        return self._open(0).get_batch(0).column(column)[0].as_py()


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
                schema = csv.open_csv(stream, *self._options(file)).schema
            except pa.ArrowInvalid as error:
                raise _too_long(error) from error
        check_distinct(schema.names)
        return schema

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
