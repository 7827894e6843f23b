"""Rows and columns of arrays, lists, frames, sparse matrices and tensors."""

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._errors import InvalidTypeError


def n_rows(array: Any) -> int:
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
        kind = type(array).__name__
        raise InvalidTypeError(f"{kind} cannot be indexed by an array of rows: {error}") from error


def column_names(X: Any) -> list[Any] | None:
    """Return the names of the columns of a frame of pandas, Polars or PyArrow; None for anything else."""
    names = X.column_names if _is_arrow(X) else getattr(X, "columns", None)
    return None if names is None else list(names)


def _is_arrow(frame: Any) -> bool:
    return hasattr(frame, "column_names") and not hasattr(frame, "iloc")  # pandas' columns are attributes
