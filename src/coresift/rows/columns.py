"""Which columns of a table are features, and how a batch of an Arrow table becomes rows of numbers.

PyArrow is imported where it is used: it is an extra.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._errors import InvalidInputError, MissingExtraError
from .rows import Block, Labels


def need_pyarrow(what: str) -> Any:
    """The module ``pyarrow``."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtraError(f'{what} need pyarrow: pip install "coresift[io]"') from error
    return pa


@dataclass(frozen=True)
class Columns:
    """The columns of a table that are read: features (or one column of lists of them), label and weight."""

    features: tuple[str, ...]
    width: int | None  # numbers in each list of the one feature column; None where columns are numbers
    dtype: np.dtype[Any]
    label: str | None = None
    weight: str | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    """Columns of the table that are no features, and why."""

    @property
    def all(self) -> list[str]:
        """Every column that is read, each once."""
        return list(dict.fromkeys([*self.features, *filter(None, (self.label, self.weight))]))

    @property
    def n_features(self) -> int:
        """Numbers in a row."""
        return self.width if self.width is not None else len(self.features)

    @property
    def names(self) -> list[str]:
        """Names of the numbers of a row."""
        if self.width is None:
            return list(self.features)
        return [f"{self.features[0]}[{i}]" for i in range(self.width)]


@dataclass(frozen=True)
class Wanted:
    """What the caller asked for, in his words."""

    columns: Sequence[str] | None = None
    embedding: str | None = None
    label: str | None = None
    weight: str | None = None

    def __post_init__(self) -> None:
        if self.columns is not None and self.embedding is not None:
            raise InvalidInputError("columns and embedding exclude each other: give one of them.")
        if self.columns is not None and not self.columns:
            raise InvalidInputError("columns names no column.")


def choose_columns(schema: Any, wanted: Wanted, file: str, first_list: Any, *, integers: bool) -> Columns:
    """The columns to read of a table with this Arrow schema; ``first_list(name)`` is the first entry of a column.

    Without a wish: all columns of floats (and of integers where ``integers``), else the only column of lists.
    """
    types = need_pyarrow("tables").types
    fields = {field.name: field.type for field in schema}
    for name in filter(None, (wanted.label, wanted.weight, wanted.embedding, *(wanted.columns or ()))):
        if name not in fields:
            raise InvalidInputError(f"{file}: no column {name!r}; there are {_listed(fields)}.")
    if wanted.weight is not None and not _is_number(types, fields[wanted.weight]):
        raise InvalidInputError(
            f"{file}: the weight column {wanted.weight!r} has type {fields[wanted.weight]}, no number."
        )
    others = {wanted.label, wanted.weight}
    embedding = wanted.embedding
    if wanted.columns is not None:
        features = tuple(wanted.columns)
    else:
        features = tuple(
            name
            for name, kind in fields.items()
            if name not in others and (types.is_floating(kind) or (integers and types.is_integer(kind)))
        )
        lists = [name for name, kind in fields.items() if _is_list(types, kind) and name not in others]
        if embedding is None and not features and len(lists) == 1:
            embedding = lists[0]
    if embedding is not None:
        kind = fields[embedding]
        if not _is_list(types, kind) or not _is_number(types, kind.value_type):
            raise InvalidInputError(
                f"{file}: column {embedding!r} has type {kind}; lists of numbers are needed."
            )
        width = kind.list_size if types.is_fixed_size_list(kind) else len(first_list(embedding) or ())
        if width < 1:
            raise InvalidInputError(f"{file}: the lists of column {embedding!r} are empty.")
        return Columns(
            (embedding,),
            width,
            _float_type([kind.value_type], types),
            wanted.label,
            wanted.weight,
            _left_out(fields, (embedding,), wanted, types),
        )
    if not features:
        raise InvalidInputError(
            f"{file}: no column of floats; there are {_listed(fields)}. Name some with --columns."
        )
    for name in features:
        if not _is_number(types, fields[name]):
            raise InvalidInputError(f"{file}: column {name!r} has type {fields[name]}, which is no number.")
    return Columns(
        features,
        None,
        _float_type([fields[name] for name in features], types),
        wanted.label,
        wanted.weight,
        _left_out(fields, features, wanted, types),
    )


def _left_out(fields: dict[str, Any], features: Sequence[str], wanted: Wanted, types: Any) -> dict[str, str]:
    """Why the other columns are no features; a column that is named as one stays one, whatever else it is."""

    def reason(name: str, kind: Any) -> str:
        if name in (wanted.label, wanted.weight):
            return "label" if name == wanted.label else "weight"
        if wanted.columns is not None or wanted.embedding is not None:
            return "not named"
        return f"{kind}, not named" if _is_number(types, kind) else "not numeric"

    kept = set(features)
    return {name: reason(name, kind) for name, kind in fields.items() if name not in kept}


def check_same(schema: Any, first: Any, columns: Columns, file: str, first_file: str) -> None:
    """Refuse a file whose columns in use are not of the types of the first file's."""
    for name in columns.all:
        mine = schema.field(name).type if name in schema.names else None
        if mine is None:
            raise InvalidInputError(
                f"{file}: no column {name!r}, which {first_file} has; files must have the same columns."
            )
        if mine != first.field(name).type:
            raise InvalidInputError(
                f"{file}: column {name!r} has type {mine}, in {first_file} {first.field(name).type}; make them agree."
            )


def block_of(batch: Any, columns: Columns, where: str, start: int) -> Block:
    """Rows of a record batch; refuse nulls and say how many there are."""
    for name in columns.all:
        count = batch.column(name).null_count
        if count:
            raise InvalidInputError(
                f"{where}: column {name!r} has {count} nulls; drop or fill such rows first."
            )
    if columns.width is not None:
        X = _rows_of_lists(batch.column(columns.features[0]), columns, where)
    else:
        # column by column into memory: a copy of contiguous numbers each
        table = np.empty((len(columns.features), batch.num_rows), dtype=columns.dtype)
        for row, name in zip(table, columns.features, strict=True):
            row[:] = batch.column(name).to_numpy(zero_copy_only=False)
        X = table.T
    weights, labels = np.ones(len(X)), None
    if columns.weight is not None:
        weights = batch.column(columns.weight).to_numpy(zero_copy_only=False).astype(np.float64)
    if columns.label is not None:
        labels = _labels(batch.column(columns.label), columns.label, where)
    return Block(start, X, weights, labels)


def _rows_of_lists(column: Any, columns: Columns, where: str) -> np.ndarray:
    values = column.flatten()
    if len(values) != len(column) * (columns.width or 0) or (
        hasattr(column, "offsets") and np.any(np.diff(column.offsets.to_numpy()) != columns.width)
    ):
        raise InvalidInputError(
            f"{where}: lists of column {columns.features[0]!r} differ in length; all must have {columns.width} numbers."
        )
    if values.null_count:
        raise InvalidInputError(
            f"{where}: lists of column {columns.features[0]!r} hold {values.null_count} nulls."
        )
    numbers = values.to_numpy(zero_copy_only=False).astype(columns.dtype, copy=False)
    return np.asarray(numbers.reshape(len(column), -1))


def _labels(column: Any, name: str, where: str) -> Labels:
    types = need_pyarrow("tables").types
    encoded = column if types.is_dictionary(column.type) else column.dictionary_encode()
    kind = encoded.type.value_type
    if not (
        types.is_integer(kind)
        or types.is_boolean(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
    ):
        raise InvalidInputError(
            f"{where}: the label column {name!r} has type {kind}; integers or strings are needed."
        )
    return Labels(encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist())


def _listed(fields: dict[str, Any], most: int = 12) -> str:
    names = [repr(name) for name in fields]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _is_number(types: Any, kind: Any) -> bool:
    return bool(types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind))


def _is_list(types: Any, kind: Any) -> bool:
    return bool(types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind))


def _float_type(kinds: list[Any], types: Any) -> np.dtype[Any]:
    exact = all(types.is_float32(k) or types.is_float16(k) or types.is_boolean(k) for k in kinds)
    return np.dtype(np.float32 if exact else np.float64)
