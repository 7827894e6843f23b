"""Rows that are arrays already: in memory, dense or sparse, or in .npy and .npz files, which are not trusted."""

import math
import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from .._errors import InvalidInputError
from .._validation import as_numpy, check_features, check_weights, naming
from ..core.points import Matrix, is_sparse
from .rows import Block, Piece, Rows, as_type, block_rows, check_targets, encode_labels, pieces_of

MOST_DEFLATED = 1032  # deflate cannot pack more bytes than this into one
_KINDS = "biufcUSmM"
_NOT_NPY = "not a .npy file, or damaged"
_NOT_NPZ = "not a .npz file of numbers, or damaged"


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
        stored = (X.data.nbytes + X.indices.nbytes) / self.n if is_sparse(X) else self.row_bytes
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
        return ArrayRows(X, weights, labels, name=str(path), targets=targets)


class Members:
    """The arrays of an open ``.npz`` file, read on access."""

    def __init__(self, archive: zipfile.ZipFile, most: int) -> None:
        self._archive, self._most = archive, most
        self.names = [info.filename.removesuffix(".npy") for info in archive.infolist() if not info.is_dir()]

    def __getitem__(self, name: str) -> np.ndarray:
        info = self._info(name)
        size, packed, what = info.file_size, info.compress_size, f"array {name!r}"
        if size > MOST_DEFLATED * packed + 64:
            raise InvalidInputError(f"{what}: {packed:,} bytes cannot hold {size:,}")
        if size > self._most:
            raise InvalidInputError(f"{what} has {size:,} bytes; at most {self._most:,} are allowed")
        with self._archive.open(info) as file:
            _read_header(file, size, what, is_exact=True)
        with self._archive.open(info) as file:  # again: after a seek the checksum is not compared
            array: np.ndarray = npy.read_array(file, allow_pickle=False)
            file.read(1)  # the checksum is compared at the end
        return array

    def ndim(self, name: str) -> int:
        with self._archive.open(self._info(name)) as file:
            return len(_read_header(file, math.inf, name)[0])

    def _info(self, name: str) -> zipfile.ZipInfo:
        try:
            return self._archive.getinfo(f"{name}.npy")
        except KeyError:
            there = ", ".join(map(repr, self.names)) or "none"
            raise InvalidInputError(f"holds no array {name!r}; there are {there}.") from None


@contextmanager
def open_arrays(path: Path, *, is_packed: bool = True, what: str = _NOT_NPZ) -> Iterator[Members]:
    """Open a ``.npz`` file (not ``is_packed``: without compression); errors while it is open carry its name."""
    with path.open("rb") as file, naming(path, what):
        size = os.fstat(file.fileno()).st_size
        with zipfile.ZipFile(file) as archive:
            yield Members(archive, size * MOST_DEFLATED if is_packed else size)


def _read_header(file: IO[bytes], size: float, what: str, *, is_exact: bool = False) -> tuple[Any, np.dtype[Any], bool]:
    """Return shape, type and order of an array in a file of ``size`` bytes; leave the file at its entries."""
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise InvalidInputError(f"version {version} of the .npy format does not hold arrays of numbers")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("an array of Python objects; an array of numbers is needed")
    if dtype.kind not in _KINDS or min(shape, default=0) < 0:
        raise InvalidInputError(f"an array of shape {shape} and type {dtype} cannot be read")
    announced, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if announced > there or (is_exact and announced < there):
        raise InvalidInputError(f"{what} announces {announced:,} bytes, shape {shape}, but {there:,} follow")
    return shape, dtype, fortran


class StoredMatrix(NamedTuple):
    """Where the matrix of a ``.npy`` file is; no file stays open."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_fortran: bool
    offset: int

    def read(self, first: int, n_rows: int) -> np.ndarray:
        """Read some rows. The file is not mapped: a process dies when a mapped file is cut."""
        n, d = self.shape
        found = np.empty((d, n_rows) if self.is_fortran else (1, n_rows * d), self.dtype)
        step = n if self.is_fortran else 0  # entries between the columns
        begin = first if self.is_fortran else first * d
        with self.path.open("rb") as file, naming(self.path, _NOT_NPY):
            for i, part in enumerate(found):
                file.seek(self.offset + (begin + i * step) * self.dtype.itemsize)
                if file.readinto(part.view(np.uint8)) < part.nbytes:
                    raise InvalidInputError(f"ends before row {first + n_rows}: it was cut after it was opened")
        return found.T if self.is_fortran else found.reshape(n_rows, d)


def find_matrix(path: Path) -> StoredMatrix:
    """Find the array of a ``.npy`` file, which is not read yet."""
    with path.open("rb") as file, naming(path, _NOT_NPY):
        header = _read_header(file, os.fstat(file.fileno()).st_size, "damaged:")
        return StoredMatrix(path, *header, file.tell())


def read_arrays(path: Path, *names: str) -> tuple[np.ndarray, ...]:
    """Arrays of a ``.npz`` file, by name."""
    with naming(path, _NOT_NPZ), open_arrays(path) as members:
        return tuple(members[name] for name in names)


def array_names(path: Path) -> list[str]:
    """The names of the arrays of a ``.npz`` file."""
    with naming(path, _NOT_NPZ), open_arrays(path) as members:
        return members.names


def check_numeric(dtype: np.dtype[Any], what: str) -> np.dtype[Any]:
    """The float type in which numbers of this type are kept; refuse anything that is not a number."""
    if dtype.kind == "O":
        raise InvalidInputError(f"{what} is an array of Python objects; an array of numbers is needed.")
    if dtype.kind not in "fiub":
        raise InvalidInputError(f"{what} has type {dtype}; numbers are needed.")
    exact = dtype.itemsize <= (4 if dtype.kind == "f" else 1)  # half floats and bytes are exact in float32
    return np.dtype(np.float32 if exact and dtype.kind in "fub" else np.float64)
