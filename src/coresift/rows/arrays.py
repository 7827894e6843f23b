"""Rows that are arrays already: in memory, dense or sparse, or in ``.npy`` and ``.npz`` files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from .._errors import InvalidInputError
from .._npz import Members, map_array, open_arrays
from .._validation import as_numpy, check_features, check_weights
from ..core.points import Matrix
from .rows import Block, Labels, Piece, Rows, block_rows, check_numeric, check_targets, encode_labels, pieces_of


class ArrayRows(Rows):
    """Rows of a matrix in memory, which is not copied. Whether all numbers are finite is left to the first pass."""

    is_portable = False

    def __init__(
        self,
        X: Any,
        weights: Any = None,
        labels: Any = None,
        name: str = "X",
        names: list[str] | None = None,
        targets: Any = None,
    ) -> None:
        is_plain = type(X) in (np.ndarray, np.memmap) and X.ndim == 2 and X.dtype.kind in "fiub"
        if not is_plain or X.size == 0:
            X = check_features(X, finite=False, name=name)
        self.name, self.names = name, names
        self.dtype = check_numeric(X.dtype, name)
        self.n, self.d = (int(size) for size in X.shape)
        self.files, self.file_starts = [name], np.zeros(1, dtype=np.int64)
        stored = (X.data.nbytes + X.indices.nbytes) / self.n if sp.issparse(X) else self.row_bytes
        self.pieces = pieces_of(self.n, self.d, stored)
        self.has_weights, self.has_labels = weights is not None, labels is not None
        self._X: Matrix = X
        self._weights = None if weights is None else check_weights(weights, self.n)
        self.has_targets = targets is not None
        self._labels = None if labels is None else encode_labels(self._own(labels, "labels"), f"{name}: label")
        self._targets = None if targets is None else check_targets(self._own(targets, "targets"), f"{name}: target")

    def _own(self, values: Any, what: str) -> np.ndarray:
        given = as_numpy(values)
        if given.shape != (self.n,):
            raise InvalidInputError(f"{self.name}: {self.n} rows, but {what} of shape {given.shape}.")
        return given

    def read(self, piece: Piece) -> Iterator[Block]:
        step, last = block_rows(self.d), piece.first + piece.n_rows
        for first in range(piece.first, last, step):
            yield self._rows(slice(first, min(first + step, last)), first)

    @contextmanager
    def load(self, max_bytes: float = np.inf) -> Iterator[Block]:
        yield self._rows(slice(0, self.n), 0)

    def take(self, indices: np.ndarray) -> Block:
        return self._rows(np.asarray(indices), 0)

    def _rows(self, rows: slice | np.ndarray, start: int) -> Block:
        whole = isinstance(rows, slice) and rows == slice(0, self.n)
        X = (self._X if whole else self._X[rows]).astype(self.dtype, copy=False)
        weights = np.ones(X.shape[0]) if self._weights is None else self._weights[rows]
        labels = None if self._labels is None else Labels(self._labels.codes[rows], self._labels.names)
        return Block(start, X, weights, labels, None if self._targets is None else self._targets[rows])


class NpyRows(Rows):
    """Rows of ``.npy`` files, mapped into memory: only what is used is read."""

    def __init__(self, paths: Sequence[str], name: str) -> None:
        self.name, self.names, self.files = name, None, list(paths)
        arrays = [_map_npy(path) for path in self.files]
        first = arrays[0]
        self.dtype, self.d = check_numeric(first.dtype, self.files[0]), int(first.shape[1])
        lengths = [len(array) for array in arrays]
        self.n, self.pieces = sum(lengths), []
        self.file_starts = np.cumsum([0, *lengths[:-1]], dtype=np.int64)
        for file, array in enumerate(arrays):
            if array.shape[1] != self.d or array.dtype != first.dtype:
                raise InvalidInputError(
                    f"{self.files[file]}: {array.shape[1]} columns of {array.dtype}, but {self.files[0]} has "
                    f"{self.d} of {first.dtype}; files must agree."
                )
            self.pieces += pieces_of(len(array), self.d, self.row_bytes, file, int(self.file_starts[file]))

    def read(self, piece: Piece) -> Iterator[Block]:
        array = _map_npy(self.files[piece.file])
        for first in range(0, piece.n_rows, self.read_rows):
            last = min(first + self.read_rows, piece.n_rows)
            X = np.array(array[piece.first + first : piece.first + last], dtype=self.dtype)
            yield Block(piece.start + first, X, np.ones(len(X)))


def _map_npy(path: str) -> np.ndarray:
    return _checked(map_array(Path(path)), path)


def _checked(array: np.ndarray, where: str) -> np.ndarray:
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidInputError(f"{where}: shape {array.shape}; at least one row and one column are needed.")
    check_numeric(array.dtype, where)
    return array


def open_npz(
    path: Path, features: str | None, label: str | None, weight: str | None, target: str | None = None
) -> ArrayRows:
    """The member ``features`` (by default ``X`` or the only two-dimensional one) of a ``.npz`` file."""
    with open_arrays(path) as members:
        chosen = features or _only_matrix(members, {label, weight, target})
        named = (chosen, label, weight, target)
        X, labels, weights, targets = (None if name is None else members[name] for name in named)
    assert X is not None
    X = _checked(X, str(path))
    if weights is not None and weights.shape != (len(X),):
        raise InvalidInputError(f"{path}: weight has shape {weights.shape}, but there are {len(X)} rows.")
    return ArrayRows(X, weights, labels, name=str(path), targets=targets)


def _only_matrix(members: Members, others: set[str | None]) -> str:
    candidates = [name for name in members.names if name not in others]
    if "X" in candidates:
        return "X"
    if len(candidates) > 1:
        candidates = [name for name in candidates if members.ndim(name) == 2]
    if len(candidates) == 1:
        return str(candidates[0])
    found = ", ".join(map(repr, members.names)) or "nothing"
    raise InvalidInputError(f"holds {found}; name one with --embedding.")
