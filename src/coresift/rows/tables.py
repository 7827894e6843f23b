"""Sources of rows in Parquet and CSV files, on any file system that PyArrow knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from .._errors import InvalidInputError
from .columns import Columns, Wanted, block_of, check_same, choose_columns, need_pyarrow
from .rows import Block, Piece, Rows, start_offsets

_LARGE_COLUMN = 1 << 25  # a column of a row group above this is read page by page, not as a whole


class ParquetRows(Rows):
    """Rows of Parquet files; a piece is a row group."""

    def __init__(self, files: Sequence[str], filesystem: Any, wanted: Wanted, name: str) -> None:
        need_pyarrow("Parquet files")
        self.name, self.files, self._filesystem = name, list(files), filesystem
        self._opened: tuple[int, Any] | None = None
        self.pieces = []
        self.n = 0
        counts: list[int] = []
        first: Any = None
        self.columns: Columns
        for at, file in enumerate(self.files):
            with _naming(file):
                reader = self._open(at)
                schema, metadata = reader.schema_arrow, reader.metadata
                if first is None:
                    first = schema
                    self.columns = choose_columns(
                        schema, wanted, file, lambda c, r=reader: _first(r, c), integers=False
                    )
                check_same(schema, first, self.columns, file, self.files[0])
                _refuse_nulls(metadata, self.columns, file)
            counts.append(metadata.num_rows)
            for group in range(metadata.num_row_groups):
                rows = metadata.row_group(group).num_rows
                if rows:
                    self.pieces.append(Piece(at, group, 0, self.n, rows))
                self.n += rows
        if self.n == 0:
            raise InvalidInputError(f"{name}: no rows.")
        _adopt(self, self.columns, counts)

    def read(self, piece: Piece) -> Iterator[Block]:
        """The rows of a row group, in order."""
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
        """A row group with all its columns, as an Arrow table."""
        file = self.files[piece.file]
        with _naming(file):
            group = self._open(piece.file).read_row_group(piece.part)
        _check_announced(group.num_rows, piece, file)
        return group

    def _open(self, file: int) -> Any:
        """The reader of a file; the last one is kept, since pieces of a file are mostly read one after another."""
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


class CsvRows(Rows):
    """Rows of CSV files with a header; a piece is a file, which can be read from its beginning only."""

    def __init__(self, files: Sequence[str], filesystem: Any, wanted: Wanted, name: str) -> None:
        need_pyarrow("CSV files")
        self.name, self.files, self._filesystem = name, list(files), filesystem
        counts: list[int] = []
        first: Any = None
        self.columns: Columns
        for file in self.files:
            with _naming(file):  # also of names of columns that are no text
                schema = _csv_schema(filesystem, file)
                if first is None:
                    first = schema
                    self.columns = choose_columns(schema, wanted, file, lambda c: None, integers=True)
                for column in self.columns.all:
                    if column not in schema.names:
                        raise InvalidInputError(f"{file}: no column {column!r}, which {self.files[0]} has.")
                counts.append(self._count(file))
        self.n = sum(counts)
        if self.n == 0:
            raise InvalidInputError(f"{name}: no rows.")
        starts = start_offsets(counts)
        self.pieces = [Piece(i, 0, 0, int(starts[i]), count) for i, count in enumerate(counts) if count]
        _adopt(self, self.columns, counts)

    def read(self, piece: Piece) -> Iterator[Block]:
        """The rows of a file, in order."""
        file, start = self.files[piece.file], piece.start
        for batch in self._batches(file):
            if batch.num_rows:
                with _naming(file):
                    block = block_of(batch, self.columns, file, start)
                yield block
                start += block.n

    def _count(self, file: str) -> int:
        """Rows of a file, and a look at all of its numbers: nulls are found here."""
        rows, nulls = 0, dict.fromkeys(self.columns.all, 0)
        for batch in self._batches(file):
            rows += batch.num_rows
            for name in nulls:
                nulls[name] += batch.column(name).null_count
        _complain_of_nulls(nulls, file)
        return rows

    def _batches(self, file: str) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import csv

        numbers = {
            name: pa.float64() for name in (*self.columns.features, *filter(None, (self.columns.weight,)))
        }
        if self.columns.label is not None:
            numbers[self.columns.label] = pa.string()
        convert = csv.ConvertOptions(
            include_columns=self.columns.all, column_types=numbers, strings_can_be_null=True
        )
        with _naming(file), self._filesystem.open_input_stream(file) as stream:
            yield from csv.open_csv(stream, convert_options=convert)


def _csv_schema(filesystem: Any, file: str) -> Any:
    from pyarrow import csv

    with filesystem.open_input_stream(file) as stream:
        schema = csv.open_csv(stream).schema
    repeated = [name for name, count in Counter(schema.names).items() if count > 1]
    if repeated:
        raise InvalidInputError(f"{file}: the column {repeated[0]!r} is there more than once.")
    return schema


def _adopt(source: Any, columns: Columns, counts: list[int]) -> None:
    """Set what follows from the columns and from the rows of each file."""
    source.names, source.d, source.dtype = columns.names, columns.n_features, columns.dtype
    source.left_out = columns.left_out
    source.has_weights, source.has_labels = columns.weight is not None, columns.label is not None
    source.file_starts = start_offsets(counts)


class _naming:
    """Turns PyArrow's errors into ours, with the name of the file in front."""

    def __init__(self, file: str) -> None:
        self.file = file

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        import pyarrow as pa

        if isinstance(error, FileNotFoundError):
            raise InvalidInputError(f"{self.file}: no such file") from None
        if isinstance(error, PermissionError):
            raise InvalidInputError(f"{self.file}: may not be read") from None
        if isinstance(error, pa.ArrowException | OSError | UnicodeDecodeError | MemoryError):
            raise InvalidInputError(f"{self.file}: damaged, or not what its name says ({error})") from error


def _largest_column(metadata: Any) -> int:
    """Bytes of the largest column of the first row groups: others are mostly alike."""
    groups = [metadata.row_group(g) for g in range(min(metadata.num_row_groups, 4))]
    return max((g.column(c).total_uncompressed_size for g in groups for c in range(g.num_columns)), default=0)


def _first(reader: Any, column: str) -> Any:
    for batch in reader.iter_batches(batch_size=1, columns=[column]):
        if batch.num_rows:
            return batch.column(0)[0].as_py()
    return None


def _refuse_nulls(metadata: Any, columns: Columns, file: str) -> None:
    """Nulls that the statistics of a file admit are found before anything is read."""
    where = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    nulls = {}
    for name in columns.all:
        if name not in where:
            continue  # a list: its path is longer, and its nulls are found when it is read
        statistics = [
            metadata.row_group(g).column(where[name]).statistics for g in range(metadata.num_row_groups)
        ]
        nulls[name] = sum(s.null_count for s in statistics if s is not None and s.has_null_count)
    _complain_of_nulls(nulls, file)


def _complain_of_nulls(nulls: dict[str, int], file: str) -> None:
    for name, count in nulls.items():
        if count:
            raise InvalidInputError(
                f"{file}: column {name!r} has {count} nulls; drop or fill such rows first."
            )
