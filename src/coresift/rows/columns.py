"""The columns of a table that are features, and Arrow batches as blocks of numbers. PyArrow is an extra."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._errors import InvalidInputError, need
from .rows import Block, Labels


def need_pyarrow(what: str = "a Parquet or CSV file") -> Any:
    """The module ``pyarrow``."""
    return need("pyarrow", "io", what)


@dataclass(frozen=True)
class Wanted:
    """The requested columns."""

    columns: Sequence[str] | None = None
    embedding: str | None = None
    label: str | None = None
    weight: str | None = None
    training: bool = False
    """Whether columns of integers are features, and labels may be floats."""

    def __post_init__(self) -> None:
        if self.columns is not None and self.embedding is not None:
            raise InvalidInputError("columns and embedding exclude each other: give one of them.")
        if self.columns is not None and not self.columns:
            raise InvalidInputError("columns names no column.")

    @property
    def all(self) -> list[str]:
        """Every column that is named."""
        return [
            name
            for name in (self.label, self.weight, self.embedding, *(self.columns or ()))
            if name is not None
        ]


@dataclass(frozen=True)
class Columns:
    """The columns of a table that are read: features (or one column of lists of them), label and weight."""

    features: tuple[str, ...]
    width: int | None  # numbers in each list of the one feature column; None if columns are numbers
    dtype: np.dtype[Any]
    wanted: Wanted
    left_out: dict[str, str]
    """Columns that are not features, and why."""

    @property
    def all(self) -> list[str]:
        """Every column that is read, each once."""
        return list(dict.fromkeys([*self.features, *filter(None, (self.wanted.label, self.wanted.weight))]))

    @property
    def names(self) -> list[str]:
        """Names of the numbers of a row."""
        if self.width is None:
            return list(self.features)
        return [f"{self.features[0]}[{i}]" for i in range(self.width)]


def choose_columns(
    schema: Any, wanted: Wanted, file: str, first_entry: Callable[[str], Any], *, integers: bool
) -> Columns:
    """The columns to read of a table with this Arrow schema; ``first_entry`` gives the first entry of a column.

    By default all columns of floats (and of integers if ``integers``), else the only column of lists.
    """
    types = need_pyarrow().types
    fields = {field.name: field.type for field in schema}
    listed = ", ".join(map(repr, list(fields)[:12])) + (
        f" and {len(fields) - 12} more" if len(fields) > 12 else ""
    )
    if missing := [name for name in wanted.all if name not in fields]:
        raise InvalidInputError(f"{file}: no column {missing[0]!r}; there are {listed}.")
    if wanted.weight is not None and not _is_number(types, fields[wanted.weight]):
        raise InvalidInputError(
            f"{file}: the weight column {wanted.weight!r} has type {fields[wanted.weight]}, not a number."
        )
    features, embedding = tuple(wanted.columns or ()), wanted.embedding
    if wanted.columns is None and embedding is None:
        free = {name: kind for name, kind in fields.items() if name not in (wanted.label, wanted.weight)}
        features = tuple(
            name
            for name, kind in free.items()
            if types.is_floating(kind) or (integers and types.is_integer(kind))
        )
        lists = [name for name, kind in free.items() if _is_list(types, kind)]
        embedding = lists[0] if not features and len(lists) == 1 else None
    width = None
    if embedding is not None:
        width = _list_width(types, embedding, fields[embedding], file, first_entry)
        features = (embedding,)
    elif not features:
        raise InvalidInputError(f"{file}: no column of floats; there are {listed}. Name some with --columns.")
    kinds = [fields[name] if width is None else fields[name].value_type for name in features]
    for name, kind in zip(features, kinds, strict=True):
        if not _is_number(types, kind):
            raise InvalidInputError(f"{file}: column {name!r} has type {kind}, which is not a number.")
    left_out = {
        name: _reason(types, name, kind, wanted) for name, kind in fields.items() if name not in features
    }
    return Columns(features, width, _float_type(kinds, types), wanted, left_out)


def _list_width(types: Any, name: str, kind: Any, file: str, first_entry: Callable[[str], Any]) -> int:
    if not _is_list(types, kind) or not _is_number(types, kind.value_type):
        raise InvalidInputError(f"{file}: column {name!r} has type {kind}; lists of numbers are needed.")
    width = kind.list_size if types.is_fixed_size_list(kind) else len(first_entry(name) or ())
    if width < 1:
        raise InvalidInputError(f"{file}: the lists of column {name!r} are empty.")
    return int(width)


def _reason(types: Any, name: str, kind: Any, wanted: Wanted) -> str:
    """Why a column is not a feature."""
    if name in (wanted.label, wanted.weight):
        return "label" if name == wanted.label else "weight"
    if wanted.columns is not None or wanted.embedding is not None:
        return "not named"
    return f"{kind}, not named" if _is_number(types, kind) else "not numeric"


def refuse_nulls(nulls: dict[str, int], columns: Columns, file: str) -> None:
    """Raise if a column that is read has nulls."""
    for name, count in nulls.items():
        if count:
            what = "the label column" if name == columns.wanted.label else "column"
            raise InvalidInputError(
                f"{file}: {what} {name!r} has {count} nulls; drop or fill such rows first."
            )


def block_of(batch: Any, columns: Columns, file: str, start: int) -> Block:
    """Rows of a record batch; nulls are refused."""
    refuse_nulls({name: batch.column(name).null_count for name in columns.all}, columns, file)
    if columns.width is not None:
        X = _rows_of_lists(batch.column(columns.features[0]), columns, file)
    else:
        # column by column into memory: a copy of contiguous numbers each
        table = np.empty((len(columns.features), batch.num_rows), dtype=columns.dtype)
        for row, name in zip(table, columns.features, strict=True):
            row[:] = batch.column(name).to_numpy(zero_copy_only=False)
        X = table.T
    wanted = columns.wanted
    weights, labels = np.ones(len(X)), None
    if wanted.weight is not None:
        weights = batch.column(wanted.weight).to_numpy(zero_copy_only=False).astype(np.float64)
    if wanted.label is not None:
        labels = _labels(batch.column(wanted.label), wanted, file)
    return Block(start, X, weights, labels)


def _rows_of_lists(column: Any, columns: Columns, file: str) -> np.ndarray:
    name, values = columns.features[0], column.flatten()
    if len(values) != len(column) * (columns.width or 0) or (
        hasattr(column, "offsets") and np.any(np.diff(column.offsets.to_numpy()) != columns.width)
    ):
        raise InvalidInputError(
            f"{file}: lists of column {name!r} differ in length; all must have {columns.width} numbers."
        )
    if values.null_count:
        raise InvalidInputError(f"{file}: lists of column {name!r} hold {values.null_count} nulls.")
    numbers = values.to_numpy(zero_copy_only=False).astype(columns.dtype, copy=False)
    return np.asarray(numbers.reshape(len(column), -1))


def _labels(column: Any, wanted: Wanted, file: str) -> Labels:
    types = need_pyarrow().types
    encoded = column if types.is_dictionary(column.type) else column.dictionary_encode()
    kind = encoded.type.value_type
    allowed = [types.is_integer, types.is_boolean, types.is_string, types.is_large_string]
    if not any(is_kind(kind) for is_kind in allowed) and not (wanted.training and types.is_floating(kind)):
        raise InvalidInputError(
            f"{file}: the label column {wanted.label!r} has type {kind}; integers or strings are needed."
        )
    return Labels(encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist())


def _is_number(types: Any, kind: Any) -> bool:
    return bool(types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind))


def _is_list(types: Any, kind: Any) -> bool:
    return bool(types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind))


def _float_type(kinds: list[Any], types: Any) -> np.dtype[Any]:
    exact = all(types.is_float32(k) or types.is_float16(k) or types.is_boolean(k) for k in kinds)
    return np.dtype(np.float32 if exact else np.float64)
