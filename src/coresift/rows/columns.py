"""Rows and columns of containers: which columns of a table are read, and as what, numbers or names of categories."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError, InvalidTypeError
from .._imports import Late
from .._validation import as_numpy
from ..core.points import is_sparse
from .rows import Block, Labels, as_type, pa as pa

pc: Any = Late("pyarrow.compute", "io", "a table")

_CLOSE = 0.75  # similarity from which on a name may be a slip of another
_NUMBERS = ("floating", "integer", "boolean")
_LISTS = ("fixed_size_list", "list", "large_list")
_LARGEST = 1e150  # squares of larger numbers overflow: such entries count as missing


@cache  # asked for every column of every block
def is_type(kind: Any, names: tuple[str, ...]) -> bool:
    """Whether an Arrow type is one of those that ``pyarrow.types`` names."""
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)


def n_rows(array: Any) -> int:
    """Number of rows of a container."""
    shape = getattr(array, "shape", None)
    with suppress(TypeError, IndexError):
        return int(shape[0]) if isinstance(shape, tuple) else len(array)  # torch.Size is a tuple
    raise InvalidTypeError(f"take() needs arrays with rows; {type(array).__name__} has none")


def take_rows(array: Any, indices: NDArray[np.int64]) -> Any:
    """Return some rows of a container, as the same kind of container where possible."""
    if isinstance(array, list | tuple):
        return [array[i] for i in indices.tolist()]
    if hasattr(array, "iloc"):
        return array.iloc[indices]
    if _is_arrow(array):
        return array.take(indices)
    if hasattr(array, "tocsr") and array.format not in ("csr", "csc"):
        array = array.tocsr()  # the other sparse formats index rows slowly or not at all
    try:
        return array[indices.copy()]  # torch complains about indices that it could not write to
    except (TypeError, KeyError, IndexError, ValueError) as error:
        raise InvalidTypeError(f"{type(array).__name__} cannot be indexed by an array of rows: {error}") from error


def column_names(X: Any) -> list[Any] | None:
    """Return the names of the columns of a frame of pandas, Polars or PyArrow; None for anything else."""
    names = X.column_names if _is_arrow(X) else getattr(X, "columns", None)
    return None if names is None else list(names)


def _is_arrow(frame: Any) -> bool:
    return hasattr(frame, "column_names") and not hasattr(frame, "iloc")  # pandas' columns are attributes


def as_table(data: Any) -> Any:
    """An Arrow table from a frame, a dictionary of columns or a dense array (columns ``x0``, ``x1``, ...)."""
    if isinstance(data, pa.Table):
        table = data
    elif isinstance(data, pa.RecordBatch):
        table = pa.Table.from_batches([data])
    elif isinstance(data, dict):
        table = pa.table(data)
    elif column_names(data) is None:
        if isinstance(data, str | bytes) or is_sparse(data) or (array := as_numpy(data)).ndim != 2:
            raise InvalidTypeError(f"a table must be a frame or a dense array of two dimensions, not {data!r:.60}.")
        table = pa.table({f"x{i}": np.ascontiguousarray(column) for i, column in enumerate(array.T)})
    elif hasattr(data, "iloc"):
        names = [str(name) for name in data.columns]
        check_distinct(names)
        table = pa.table([_from_pandas(data.iloc[:, i]) for i in range(len(names))], names=names)
    else:
        table = pa.table(data)  # Polars, and anything else with the Arrow PyCapsule interface
        for i, kind in enumerate(table.schema.types):
            if is_type(kind, ("string_view",)):  # few functions of PyArrow know it
                table = table.set_column(i, table.column_names[i], table.column(i).cast(pa.large_string()))
    check_distinct(table.column_names)
    return table


def _from_pandas(series: Any) -> Any:
    try:
        return pa.array(series, from_pandas=getattr(series.dtype, "kind", "") != "f")  # NaN among floats stays NaN
    except (pa.ArrowException, TypeError):  # objects of several types
        return pa.array([None if gone else str(value) for value, gone in zip(series, series.isna(), strict=True)])


def check_distinct(names: Sequence[str]) -> None:
    """Refuse names that occur more than once."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        listed = ", ".join(map(repr, twice))
        raise InvalidInputError(f"the column {listed} is there more than once: columns must have distinct names.")


def check_names(wanted: Iterable[str], known: Sequence[str]) -> None:
    """Refuse columns that are not there, all in one message, with the names that are close."""
    said, there, lower = [], set(known), {name.lower(): name for name in known}
    for name in (name for name in dict.fromkeys(wanted) if name not in there):
        close = get_close_matches(name.lower(), lower, n=1, cutoff=_CLOSE)
        said.append(f"{name!r} (did you mean {lower[close[0]]!r}?)" if close else repr(name))
    if said:
        listed = ", ".join(map(repr, list(known)[:12])) + (f" and {len(known) - 12} more" if len(known) > 12 else "")
        raise InvalidInputError(f"no column {', '.join(said)}; there are {listed}.")


def family(kind: Any) -> str | None:
    """How columns of an Arrow type are read by default: number, boolean, date, text or empty; None for lists etc."""
    if is_type(kind, ("dictionary",)):
        return family(kind.value_type)
    return next((name for name, types in _FAMILIES.items() if is_type(kind, types)), None)


_FAMILIES = {
    "boolean": ("boolean",),
    "number": ("floating", "integer", "decimal"),
    "date": ("timestamp", "date", "time", "duration"),
    "text": ("string", "large_string"),
    "empty": ("null",),
}


def flat(column: Any) -> Any:
    """A column as one Arrow array, without a dictionary."""
    array = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    return array.dictionary_decode() if is_type(array.type, ("dictionary",)) else array


def entries(array: Any) -> np.ndarray:
    """The entries of an Arrow array, missing numbers as NaN; ``to_numpy`` and ``scalar`` would import pandas."""
    if not is_type(array.type, ("float32", "float64", "integer")):
        return np.asarray(array.to_numpy(zero_copy_only=False))
    if array.null_count:
        nan = pa.Array.from_buffers(pa.float64(), 1, [None, pa.py_buffer(np.array([np.nan]))])[0]
        array = array.cast(pa.float64(), safe=False).fill_null(nan)
    return np.from_dlpack(array)


def numbers(array: Any, kind: str) -> np.ndarray:
    """(n,) float64 with NaN for missing and infinite entries: numbers, 0 and 1, or seconds; text is parsed."""
    of = family(array.type)
    if of == "text":
        array = _parsed(pc.utf8_trim_whitespace(array), kind)
    elif of == "date":
        clocks = {"time": pa.time64("us"), "duration": pa.duration("us")}
        clock = next((to for name, to in clocks.items() if is_type(array.type, (name,))), None)
        to = clock or pa.timestamp("us", getattr(array.type, "tz", None))
        array = pc.divide(pc.cast(array.cast(to, safe=False), pa.int64()).cast(pa.float64(), safe=False), 1e6)
    if not is_type(array.type, ("floating", "integer")):
        array = array.cast(pa.float64(), safe=False)
    values = np.asarray(entries(array), dtype=np.float64)
    if values.min(initial=0.0) >= -_LARGEST and values.max(initial=0.0) <= _LARGEST:  # and none is missing
        return values
    return np.where(np.abs(values) <= _LARGEST, values, np.nan)


def _parsed(text: Any, kind: str) -> Any:
    if kind == "boolean":
        lower = pc.utf8_lower(text)
        if not set(lower.unique().to_pylist()) <= {"true", "false", None}:
            raise pa.ArrowInvalid("neither true nor false")
        return pc.equal(lower, "true")
    if kind == "date":
        try:
            stamps = text.cast(pa.timestamp("us"))
        except pa.ArrowInvalid:
            stamps = text.cast(pa.timestamp("us", "UTC"))
        return pc.divide(stamps.cast(pa.int64()).cast(pa.float64(), safe=False), 1e6)
    parsed = text.cast(pa.float64())
    if pc.any(pc.match_substring_regex(text, "^[-+]?0[0-9]")).as_py():
        raise pa.ArrowInvalid("leading zeros are of codes, not of amounts")
    return parsed


def categories(array: Any) -> tuple[np.ndarray, list[str]]:
    """(n,) positions in a list of names, -1 where an entry is missing; whole numbers are named without a point."""
    if (of := family(array.type)) == "text":
        encoded = array.dictionary_encode()
        names = [_without_point(name) for name in encoded.dictionary.to_pylist()]
        return entries(encoded.indices.fill_null(-1)), names
    values = numbers(array, str(of))
    distinct, codes = np.unique(values[~np.isnan(values)], return_inverse=True)
    found = np.full(len(values), -1)
    found[~np.isnan(values)] = codes
    if of == "boolean":
        return found, [str(bool(value)) for value in distinct]
    return found, [_without_point(repr(float(value))) for value in distinct]


def _without_point(name: str) -> str:
    return name[:-2] if name.endswith(".0") and name[:-2].lstrip("-").isdigit() else name


def hashes(names: Sequence[str]) -> np.ndarray:
    """(n,) integers below 2**31, the same on every machine."""
    from sklearn.feature_extraction import FeatureHasher  # loads pandas where it is installed

    hasher = FeatureHasher(2**31 - 1, input_type="string", alternate_sign=False)
    return hasher.transform([[name] for name in names]).indices.astype(np.int64)


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
        return [name for name in (*self.others, self.embedding, *(self.columns or ())) if name is not None]


class Columns:
    """The columns of a table that are read: features (or the only column of lists of them), label, weight, target."""

    width: int | None = None  # numbers in each list of the one feature column; None if columns are numbers
    whole_labels = False  # whether labels are whole numbers that are stored as text or as floats

    def __init__(self, schema: Any, wanted: Wanted, first_entry: Callable[[str], Any], is_typed: bool) -> None:
        self.wanted = wanted
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
                row[:] = as_type(entries(batch.column(name)), self.dtype)
            X = table.T
        weights, targets = (
            None if name is None else as_type(entries(batch.column(name)), np.dtype(np.float64))
            for name in (self.wanted.weight, self.wanted.target)
        )
        labels = None if self.wanted.label is None else self._labels(batch.column(self.wanted.label))
        return Block(start, X, np.ones(batch.num_rows) if weights is None else weights, labels, targets)

    def _rows_of_lists(self, column: Any) -> np.ndarray:
        name, values = self.features[0], column.flatten()
        is_uneven = hasattr(column, "offsets") and np.any(np.diff(entries(column.offsets)) != self.width)
        if is_uneven or len(values) != len(column) * (self.width or 0):
            raise InvalidInputError(f"lists of column {name!r} differ in length; the first has {self.width}.")
        if values.null_count:
            raise InvalidInputError(f"lists of column {name!r} hold {values.null_count} nulls.")
        return np.asarray(as_type(entries(values), self.dtype).reshape(len(column), -1))

    def _labels(self, column: Any) -> Labels:
        encoded = flat(column).dictionary_encode()
        names, kind = encoded.dictionary.to_pylist(), family(encoded.type)
        if kind not in ("number", "boolean", "text"):
            what = f"the label column {self.wanted.label!r} has type {column.type}"
            raise InvalidInputError(f"{what}; integers or strings are needed.")
        if self.whole_labels or is_type(encoded.type.value_type, ("floating", "decimal")):
            if odd := [name for name in names if not float(name).is_integer()]:
                if self.wanted.any_label:
                    return Labels(entries(encoded.indices), [float(name) for name in names])
                text = f"the label column {self.wanted.label!r} holds {odd[0]!r}, but classes are integers or strings."
                raise InvalidInputError(f"{text} For a regression name it as the target (fit: --model squared).")
            names = [int(float(name)) for name in names]
        return Labels(entries(encoded.indices), names)


def _is_list(kind: Any) -> bool:
    return is_type(kind, _LISTS) and is_type(kind.value_type, _NUMBERS)
