"""Read ``.npy`` and ``.npz`` files from untrusted sources: sizes are checked before memory is allocated, no pickles."""

import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from ._errors import InvalidInputError
from ._validation import naming

MOST_DEFLATED = 1032  # deflate cannot pack more bytes than this into one
_KINDS = "biufcUSmM"
_NOT_NPY = "not a .npy file, or damaged"
_NOT_NPZ = "not a .npz file of numbers, or damaged"


class Members:
    """The arrays of an open ``.npz`` file, read on access."""

    def __init__(self, archive: zipfile.ZipFile, most: int) -> None:
        self._archive, self._most = archive, most
        self.names = [info.filename.removesuffix(".npy") for info in archive.infolist() if not info.is_dir()]

    def __contains__(self, name: str) -> bool:
        return name in self.names

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
        info = self._info(name)
        with self._archive.open(info) as file:
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
    with naming(path, _NOT_NPZ), open_arrays(path) as members:
        return tuple(members[name] for name in names)


def array_names(path: Path) -> list[str]:
    with naming(path, _NOT_NPZ), open_arrays(path) as members:
        return members.names
