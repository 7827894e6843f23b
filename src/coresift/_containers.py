"""Rows and columns of arrays, lists, frames, sparse matrices and tensors."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._errors import InvalidTypeError


def n_rows(array: Any) -> int:
    """Number of rows of a container."""
    shape = getattr(array, "shape", None)
    with suppress(TypeError, IndexError):
        return int(shape[0]) if isinstance(shape, tuple) else len(array)  # torch.Size is a tuple
    raise InvalidTypeError(f"take() needs arrays with rows; {type(array).__name__} has none")


def take_rows(array: Any, indices: NDArray[np.int64]) -> Any:
    """The rows ``indices`` of a container, as the same kind of container if possible."""
    if isinstance(array, list | tuple):
        return [array[i] for i in indices.tolist()]
    if hasattr(array, "iloc"):
        return array.iloc[indices]
    if hasattr(array, "tocsr") and array.format not in ("csr", "csc"):
        array = array.tocsr()  # the other sparse formats index rows slowly or not at all
    try:
        return array[indices.copy()]  # torch complains about indices that it could not write to
    except (TypeError, KeyError, IndexError, ValueError) as error:
        raise InvalidTypeError(
            f"{type(array).__name__} cannot be indexed by an array of rows: {error}"
        ) from error


def column_names(X: Any) -> list[Any] | None:
    """Names of the columns of a frame of pandas, Polars or PyArrow."""
    is_pandas = hasattr(X, "iloc")  # whose columns are attributes, too
    names = getattr(X, "columns", None) if is_pandas or not hasattr(X, "column_names") else X.column_names
    return None if names is None else list(names)


def take_columns(frame: Any, names: list[Any]) -> Any:
    """Some columns of a frame."""
    return (
        frame[names] if hasattr(frame, "iloc") or not hasattr(frame, "column_names") else frame.select(names)
    )


def without_graph(values: Any) -> Any:
    """Make a tensor readable by NumPy: on the CPU, without a graph, of a type NumPy has. Return others unchanged."""
    if not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    return values.float() if str(values.dtype) == "torch.bfloat16" else values


def as_numpy(values: Any) -> NDArray[Any]:
    """Convert to an array, also tensors of any device."""
    return np.asarray(without_graph(values))
