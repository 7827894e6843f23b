"""Rows that are arrays already: in memory, dense or sparse, or in ``.npy`` and ``.npz`` files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from .._errors import InvalidInputError
from .._npz import find_matrix, open_arrays
from .._validation import as_numpy, check_features, check_weights
from ..core.points import Matrix
from .rows import Block, Piece, Rows, as_type, block_rows, check_numeric, check_targets, encode_labels, pieces_of


class ArrayRows(Rows):
    """Rows of a matrix in memory, which is not copied. Whether all numbers are finite is left to the first pass."""

    is_portable = False

    def __init__(
        self, X: Any, weights: Any = None, labels: Any = None, name: str = "X", names: Any = None, targets: Any = None
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
        self.has_targets = targets is not None
        self._X: Matrix = X
        self._weights = None if weights is None else check_weights(weights, self.n)
        labels, targets = (None if values is None else as_numpy(values) for values in (labels, targets))
        for what, values in (("labels", labels), ("targets", targets)):
            if values is not None and values.shape != (self.n,):
                raise InvalidInputError(f"{name}: {self.n} rows, but {what} of shape {values.shape}.")
        self._labels = None if labels is None else encode_labels(labels, f"{name}: label")
        self._targets = None if targets is None else check_targets(targets, f"{name}: target")

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
        X = as_type(self._X if whole else self._X[rows], self.dtype)
        weights = np.ones(X.shape[0]) if self._weights is None else self._weights[rows]
        labels = None if self._labels is None else self._labels._replace(codes=self._labels.codes[rows])
        return Block(start, X, weights, labels, None if self._targets is None else self._targets[rows])


class NpyRows(Rows):
    """Rows of ``.npy`` files; only what is used is read."""

    def __init__(self, paths: Sequence[str], name: str) -> None:
        self.name, self.names, self.files = name, None, list(paths)
        self._stored = [find_matrix(Path(path)) for path in self.files]
        for stored in self._stored:
            _check_matrix(stored.shape, stored.dtype, str(stored.path))
        first = self._stored[0]
        self.dtype, self.d = check_numeric(first.dtype, self.files[0]), first.shape[1]
        lengths = [stored.shape[0] for stored in self._stored]
        self.n, self.pieces = sum(lengths), []
        if self.n == 0:
            raise InvalidInputError(f"{name}: no rows.")
        self.file_starts = np.cumsum([0, *lengths[:-1]], dtype=np.int64)
        for file, stored in enumerate(self._stored):
            if stored.shape[1] != self.d or stored.dtype != first.dtype:
                text = f"{stored.path}: {stored.shape[1]} columns of {stored.dtype}"
                raise InvalidInputError(f"{text}, but {self.files[0]} has {self.d} of {first.dtype}; files must agree.")
            self.pieces += pieces_of(stored.shape[0], self.d, self.row_bytes, file, int(self.file_starts[file]))

    def read(self, piece: Piece) -> Iterator[Block]:
        for first in range(0, piece.n_rows, self.read_rows):
            n_rows = min(self.read_rows, piece.n_rows - first)
            X = self._stored[piece.file].read(piece.first + first, n_rows)
            yield Block(piece.start + first, as_type(X, self.dtype), np.ones(n_rows))


def _check_matrix(shape: tuple[int, ...], dtype: np.dtype[Any], where: str) -> None:
    if len(shape) != 2 or shape[1] == 0:
        raise InvalidInputError(f"{where}: shape {shape}; rows of at least one column are needed.")
    check_numeric(dtype, where)


def open_npz(path: Path, features: str | None, label: str | None, weight: str | None, target: str | None) -> ArrayRows:
    """The member ``features`` (by default ``X`` or the only two-dimensional one) of a ``.npz`` file."""
    with open_arrays(path) as members:
        candidates = [name for name in members.names if name not in (label, weight, target)]
        if features is not None or "X" in candidates:
            candidates = [features or "X"]
        elif len(candidates) > 1:
            candidates = [name for name in candidates if members.ndim(name) == 2]
        if len(candidates) != 1:
            found = ", ".join(map(repr, members.names)) or "nothing"
            raise InvalidInputError(f"holds {found}; name one with --embedding.")
        X = members[candidates[0]]
        labels, weights, targets = (None if name is None else members[name] for name in (label, weight, target))
    _check_matrix(X.shape, X.dtype, str(path))
    if weights is not None and weights.shape != (len(X),):
        raise InvalidInputError(f"{path}: weight has shape {weights.shape}, but there are {len(X)} rows.")
    return ArrayRows(X, weights, labels, name=str(path), targets=targets)
