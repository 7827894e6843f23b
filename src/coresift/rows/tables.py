"""Tables with named columns: which of them are read, and rows of frames in memory."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

import numpy as np

from .._errors import InvalidInputError
from .._validation import naming
from .columns import as_table, check_distinct, check_names, family, flat, is_type, pa
from .rows import Block, Fingerprint, Labels, Piece, Rows, as_type, group_rows

_NUMBERS = ("floating", "integer", "boolean")
_LISTS = ("fixed_size_list", "list", "large_list")
_LONG_COLUMN, _MOST_BYTES = 1 << 10, 1 << 27  # rows of wide tables that are read at a time, and their bytes
KEPT_BYTES = 1 << 29  # a table that is no larger stays in memory once it was read
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def naming_file(file: str) -> AbstractContextManager[None]:
    """Put the name of a file in front of what its reader complains about."""
    return naming(Path(file), "damaged, or not what its name says")


@dataclass(frozen=True)
class Wanted:
    """The requested columns."""

    columns: Sequence[str] | None = None
    embedding: str | None = None
    label: str | None = None
    weight: str | None = None
    target: str | None = None
    is_prepared: bool = False  # whether columns of all types are read, as tables, for a preparation
    any_label: bool = False  # whether labels may be any numbers: targets of a regression

    def __post_init__(self) -> None:
        if self.columns is not None and self.embedding is not None:
            raise InvalidInputError("columns and embedding exclude each other: give one of them.")
        if self.columns is not None and not self.columns:
            raise InvalidInputError("columns names no column.")
        for name in {self.label, self.target} & {*(self.columns or ()), self.embedding} - {None}:
            raise InvalidInputError(f"columns: {name!r} is the label, so it cannot be a feature.")

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

    By default all columns of numbers, or all that are prepared; or the only column of lists, if none has floats.
    """

    width: int | None = None  # numbers in each list of the one feature column; None if columns are numbers
    whole_labels = False  # whether labels are whole numbers that are stored as text or as floats

    def __init__(self, schema: Any, wanted: Wanted, first_entry: Callable[[str], Any], is_typed: bool) -> None:
        self.wanted = wanted
        check_distinct(schema.names)
        fields = {field.name: field.type for field in schema}
        check_names(wanted.all, list(fields))
        for what in ("weight", "target"):
            name = getattr(wanted, what)
            if name is not None and not is_type(fields[name], _NUMBERS):
                raise InvalidInputError(f"the {what} column {name!r} has type {fields[name]}, not a number.")
        free = {name: kind for name, kind in fields.items() if name not in wanted.others}
        features, embedding = list(wanted.columns or ()), wanted.embedding
        if wanted.columns is None and embedding is None:
            lists = [name for name, kind in free.items() if _is_list(kind)]
            has_floats = any(is_type(kind, ("floating",)) for kind in free.values())
            embedding = lists[0] if len(lists) == 1 and not has_floats else None
            features = list(free) if wanted.is_prepared else [n for n, k in free.items() if is_type(k, _NUMBERS)]
        self.is_prepared = wanted.is_prepared and embedding is None
        if embedding is not None:
            features, kind = [embedding], fields[embedding]
            if not _is_list(kind):
                raise InvalidInputError(f"column {embedding!r} has type {kind}; lists of numbers are needed.")
            is_fixed = is_type(kind, ("fixed_size_list",))
            self.width = kind.list_size if is_fixed else len(first_entry(embedding) or ())
            if not self.width:
                raise InvalidInputError(f"the lists of column {embedding!r} are empty.")
        self.features = features
        self.kinds = {name: family(fields[name]) if is_typed else "text" for name in features}
        kinds = [fields[name] if self.width is None else fields[name].value_type for name in features]
        if not self.is_prepared and not features:
            known = ", ".join(f"{name!r} ({kind})" for name, kind in list(fields.items())[:12])
            raise InvalidInputError(f"no column of numbers; there are {known}. preparation='auto' reads such columns.")
        wrong = [f"column {n!r} has type {k}" for n, k in zip(features, kinds, strict=True) if not is_type(k, _NUMBERS)]
        if not self.is_prepared and wrong:
            raise InvalidInputError(f"{', '.join(wrong)}, which is not a number; preparation='auto' reads them.")
        self._exact = {n for n, k in zip(features, kinds, strict=True) if is_type(k, ("float32", "float16", "boolean"))}
        others = fields.keys() - set(features)
        self.left_out = {name: self._reason(name, fields[name]) for name in fields if name in others}

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self._exact.issuperset(self.features) else np.float64)

    @property
    def all(self) -> list[str]:
        return list(dict.fromkeys([*self.features, *filter(None, self.wanted.others)]))

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
        return f"{kind}, not named" if is_type(kind, _NUMBERS) else "not numeric"

    @property
    def _complete(self) -> list[str]:
        return [name for name in self.all if not self.is_prepared or name in self.wanted.others]

    def refuse_nulls(self, nulls: dict[str, int]) -> None:
        wrong = {name: nulls[name] for name in self._complete if nulls.get(name)}
        if wrong:
            what = {self.wanted.label: "the label column"}
            found = (f"{what.get(name, 'column')} {name!r} has {count:,} nulls" for name, count in wrong.items())
            raise InvalidInputError(f"{', '.join(found)}; drop or fill such rows first.")

    def block(self, batch: Any, start: int) -> Block:
        self.refuse_nulls({name: batch.column(name).null_count for name in self._complete})
        X: Any
        if self.is_prepared:
            X = as_table(batch).select(self.features)
        elif self.width is not None:
            X = self._rows_of_lists(batch.column(self.features[0]))
        else:
            table = np.empty((len(self.features), batch.num_rows), dtype=self.dtype)  # contiguous copies
            for row, name in zip(table, self.features, strict=True):
                row[:] = as_type(batch.column(name).to_numpy(zero_copy_only=False), self.dtype)
            X = table.T
        weights, targets = (
            None if name is None else as_type(batch.column(name).to_numpy(zero_copy_only=False), np.dtype(np.float64))
            for name in (self.wanted.weight, self.wanted.target)
        )
        labels = None if self.wanted.label is None else self._labels(batch.column(self.wanted.label))
        return Block(start, X, np.ones(batch.num_rows) if weights is None else weights, labels, targets)

    def _rows_of_lists(self, column: Any) -> np.ndarray:
        name, values = self.features[0], column.flatten()
        if len(values) != len(column) * (self.width or 0) or (
            hasattr(column, "offsets") and np.any(np.diff(column.offsets.to_numpy()) != self.width)
        ):
            raise InvalidInputError(f"lists of column {name!r} differ in length; the first has {self.width}.")
        if values.null_count:
            raise InvalidInputError(f"lists of column {name!r} hold {values.null_count} nulls.")
        numbers = as_type(values.to_numpy(zero_copy_only=False), self.dtype)
        return np.asarray(numbers.reshape(len(column), -1))

    def _labels(self, column: Any) -> Labels:
        encoded = flat(column).dictionary_encode()
        names, kind = encoded.dictionary.to_pylist(), family(encoded.type)
        if kind not in ("number", "boolean", "text"):
            what = f"the label column {self.wanted.label!r} has type {column.type}"
            raise InvalidInputError(f"{what}; integers or strings are needed.")
        if self.whole_labels or is_type(encoded.type.value_type, ("floating", "decimal")):
            if odd := [name for name in names if not float(name).is_integer()]:
                if self.wanted.any_label:
                    return Labels(encoded.indices.to_numpy(zero_copy_only=False), [float(name) for name in names])
                text = f"the label column {self.wanted.label!r} holds {odd[0]!r}, but classes are integers or strings."
                raise InvalidInputError(f"{text} For a regression name it as the target (fit: --model squared).")
            names = [int(float(name)) for name in names]
        return Labels(encoded.indices.to_numpy(zero_copy_only=False), names)


def _is_list(kind: Any) -> bool:
    return is_type(kind, _LISTS) and is_type(kind.value_type, _NUMBERS)


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

    def keep(self, names: list[str], numeric: Sequence[str] = ()) -> TableRows:
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
        return None


class FrameRows(TableRows):
    """Rows of a frame in memory, or of an Arrow table."""

    is_portable = False

    def __init__(self, data: Any, wanted: Wanted, name: str = "frame") -> None:
        self._table = as_table(data)
        super().__init__([name], None, wanted, name)

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

    def _first_entry(self, column: str) -> Any:
        return self._table.column(column)[0].as_py() if self._table.num_rows else None
