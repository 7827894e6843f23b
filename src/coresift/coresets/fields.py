"""Checks of the fields of a coreset, each in O(m)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._errors import InvalidInputError, InvalidTypeError


def numbers(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """A fresh one-dimensional float64 array."""
    try:
        raw = np.asarray(values)
        if raw.dtype.kind not in "biuf" and raw.size:
            raise TypeError
        array = np.array(raw, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidTypeError(f"{name} must be real numbers in one dimension") from None
    if array.ndim != 1:
        raise InvalidInputError(f"{name} must have one dimension, not {array.ndim}")
    return array


def checked_rows(
    indices: ArrayLike, weights: ArrayLike, n_samples: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Check row numbers and weights, and return them as read-only arrays."""
    try:
        raw = np.asarray(indices)
    except ValueError:
        raise InvalidTypeError("indices must be integers in one dimension") from None
    if raw.ndim != 1:
        raise InvalidInputError(f"indices must have one dimension, not {raw.ndim}")
    if raw.dtype.kind not in "iu" and raw.size:
        raise InvalidTypeError(f"indices must be integers, not {raw.dtype}")
    values = numbers(weights, "weights")
    if values.size != raw.size:
        raise InvalidInputError(f"indices and weights differ in length: {raw.size} and {values.size}")
    if raw.size == 0:
        return np.empty(0, dtype=np.int64), values
    if raw.min() < 0 or raw.max() >= n_samples:
        raise InvalidInputError(
            f"indices run from {raw.min()} to {raw.max()}, outside 0 ... n_samples - 1 = {n_samples - 1}"
        )
    rows = raw.astype(np.int64)
    if not (rows[1:] > rows[:-1]).all():
        order = np.argsort(rows)
        rows, values = rows[order], values[order]
        equal = np.flatnonzero(rows[1:] == rows[:-1])
        if equal.size:
            raise InvalidInputError(f"indices must be distinct; row {rows[equal[0]]} is there more than once")
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise InvalidInputError(f"weights must be finite and >= 0; row {rows[row]} has {values[row]}")
    return rows, values


def integer(value: Any, name: str, *, optional: bool = False) -> Any:
    """Check an integer."""
    if value is None and optional:
        return None
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise InvalidTypeError(f"{name}={value!r} must be an integer")
    return int(value)


def real_number(value: Any, name: str, *, optional: bool = False) -> Any:
    """Check a real number."""
    if value is None and optional:
        return None
    try:
        number = float("" if isinstance(value, str | bytes) else value)
    except (TypeError, ValueError):
        raise InvalidTypeError(f"{name}={value!r} must be a real number") from None
    if math.isnan(number):
        raise InvalidInputError(f"{name} is not a number")
    return number
