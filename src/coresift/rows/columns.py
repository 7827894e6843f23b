"""Columns of a table as numbers or as names of categories, whatever their type: Arrow arrays in, NumPy arrays out."""

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from .._containers import column_names
from .._errors import InvalidInputError, InvalidTypeError
from .._imports import Late
from .._validation import as_numpy

pa: Any = Late("pyarrow", "io", "a table")
pc: Any = Late("pyarrow.compute", "io", "a table")

_CLOSE = 0.75  # similarity from which on a name may be a slip of another
_LARGEST = 1e150  # squares of larger numbers overflow: such entries count as missing


@cache  # asked for every column of every block
def is_type(kind: Any, names: tuple[str, ...]) -> bool:
    """Whether an Arrow type is one of those that ``pyarrow.types`` names."""
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)


def as_table(data: Any) -> Any:
    """An Arrow table from a frame, a dictionary of columns or a dense array (columns ``x0``, ``x1``, ...)."""
    if isinstance(data, pa.Table | pa.RecordBatch | dict):
        table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else pa.table(data)
    elif column_names(data) is None:
        if isinstance(data, str | bytes) or sp.issparse(data) or (array := as_numpy(data)).ndim != 2:
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
    values = np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.float64)
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
        return encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), names
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
