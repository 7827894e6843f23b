"""Sources of rows that are arrays already: in memory, or in ``.npy`` and ``.npz`` files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from .._errors import InvalidInputError
from .._npz import Members, map_array, open_arrays
from .rows import Chunk, Labels, Piece, Rows, check_numeric, encode_labels, pieces_of


class ArrayRows(Rows):
    """Rows of a two-dimensional array, with optional weights and labels."""

    is_portable = False

    def __init__(
        self,
        X: np.ndarray,
        weights: np.ndarray | None = None,
        labels: np.ndarray | None = None,
        name: str = "array",
        names: list[str] | None = None,
    ) -> None:
        X = np.asanyarray(X)
        if X.ndim != 2 or 0 in X.shape:
            raise InvalidInputError(
                f"{name}: shape {X.shape}; rows and columns are needed, at least one of each."
            )
        self.name = name
        self.dtype = check_numeric(X.dtype, name)
        self.n, self.d = (int(size) for size in X.shape)
        self.names = names
        self.files, self.file_starts = [name], np.zeros(1, dtype=np.int64)
        self.pieces = pieces_of(self.n, self.row_bytes)
        self._X = X
        self._weights = None if weights is None else self._aligned(np.asarray(weights), "weight")
        self._labels = (
            None if labels is None else encode_labels(self._aligned(np.asarray(labels), "label"), "label")
        )
        self.has_weights, self.has_labels = weights is not None, labels is not None

    def _aligned(self, values: np.ndarray, what: str) -> np.ndarray:
        if values.shape != (self.n,):
            raise InvalidInputError(
                f"{self.name}: {what} has shape {values.shape}, but there are {self.n} rows."
            )
        return values

    def as_array(self) -> np.ndarray:
        """The rows themselves."""
        return self._X

    def read(self, piece: Piece) -> Iterator[Chunk]:
        """The rows of a piece, in order."""
        for first in range(piece.first, piece.first + piece.n_rows, self.chunk_rows):
            rows = slice(first, min(first + self.chunk_rows, piece.first + piece.n_rows))
            weights = None if self._weights is None else self._weights[rows].astype(np.float64)
            labels = None if self._labels is None else Labels(self._labels.codes[rows], self._labels.names)
            yield Chunk(np.asarray(self._X[rows], dtype=self.dtype), weights, labels)


class NpyRows(Rows):
    """Rows of ``.npy`` files, mapped into memory: only what is looked at is read."""

    def __init__(self, paths: Sequence[Path], name: str) -> None:
        self.name, self.names = name, None
        self.files = [str(path) for path in paths]
        arrays = [map_npy(path) for path in paths]
        first = arrays[0]
        self.dtype, self.d = check_numeric(first.dtype, self.files[0]), int(first.shape[1])
        self.pieces, starts, self.n = [], [], 0
        for file, array in enumerate(arrays):
            if array.shape[1] != self.d or array.dtype != first.dtype:
                raise InvalidInputError(
                    f"{self.files[file]}: {array.shape[1]} columns of {array.dtype}, but {self.files[0]} has "
                    f"{self.d} of {first.dtype}; files must agree."
                )
            starts.append(self.n)
            self.pieces += pieces_of(len(array), self.row_bytes, file, self.n)
            self.n += len(array)
        self.file_starts = np.array(starts, dtype=np.int64)

    def read(self, piece: Piece) -> Iterator[Chunk]:
        """The rows of a piece, in order."""
        array = map_npy(Path(self.files[piece.file]))
        for first in range(piece.first, piece.first + piece.n_rows, self.chunk_rows):
            rows = slice(first, min(first + self.chunk_rows, piece.first + piece.n_rows))
            yield Chunk(np.array(array[rows], dtype=self.dtype))


def map_npy(path: Path) -> np.ndarray:
    """The array of a ``.npy`` file, not read yet."""
    array = map_array(path)
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidInputError(
            f"{path}: shape {array.shape}; rows and columns are needed, at least one of each."
        )
    check_numeric(array.dtype, str(path))
    return array


def open_npz(path: Path, features: str | None, label: str | None, weight: str | None) -> ArrayRows:
    """The member ``features`` (the only two-dimensional one, or ``X``, if not given) of a ``.npz`` file."""
    with open_arrays(path) as members:
        chosen = features or _only_matrix(members, path, {label, weight})
        wanted = {name: _member(members, name, path) for name in (chosen, label, weight) if name is not None}
    weights = None if weight is None else wanted[weight]
    if weights is not None:
        check_numeric(weights.dtype, f"{path}: {weight!r}")
    return ArrayRows(wanted[chosen], weights, None if label is None else wanted[label], name=str(path))


def _member(members: Members, name: str, path: Path) -> np.ndarray:
    if name not in members:
        raise InvalidInputError(
            f"{path}: no array {name!r}; there are {', '.join(map(repr, members.names))}."
        )
    return members[name]


def _only_matrix(members: Members, path: Path, others: set[str | None]) -> str:
    candidates = [name for name in members.names if name not in others]
    if "X" in candidates:
        return "X"
    if len(candidates) > 1:
        candidates = [name for name in candidates if members.ndim(name) == 2]
    if len(candidates) == 1:
        return str(candidates[0])
    raise InvalidInputError(
        f"{path}: holds {', '.join(map(repr, members.names)) or 'nothing'}; name one with --embedding."
    )
