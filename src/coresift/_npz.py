"""Arrays of untrusted ``.npy`` and ``.npz`` files.

NumPy's reader trusts the header: it allocates what is announced, and raises whatever its parsers raise. Here the
announced size is compared with the size of the file before memory is allocated, arrays of Python objects (pickles) are
refused, and every error is an `InvalidInputError` that names the file.
"""

from __future__ import annotations

import math
import os
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from ._errors import CoresiftError, InvalidInputError

MOST_DEFLATED = 1032  # deflate cannot pack more bytes than this into one
_KINDS = "biufcUSmM"


class Members:
    """The arrays of an open ``.npz`` file, read on access."""

    def __init__(self, archive: zipfile.ZipFile, most: int) -> None:
        self._archive, self._most = archive, most
        self.names = [info.filename.removesuffix(".npy") for info in archive.infolist() if not info.is_dir()]

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> np.ndarray:
        info = self._checked(name)
        with self._archive.open(info) as file:
            array: np.ndarray = npy.read_array(file, allow_pickle=False)
            file.read(1)  # the checksum is compared at the end of a member
        return array

    def ndim(self, name: str) -> int:
        """Dimensions of an array, without reading it."""
        info = self._info(name)
        with self._archive.open(info) as file:
            return len(read_header(file)[0])

    def _info(self, name: str) -> zipfile.ZipInfo:
        try:
            return self._archive.getinfo(f"{name}.npy")
        except KeyError:
            raise InvalidInputError(
                f"holds no array {name!r}; there are {', '.join(map(repr, self.names)) or 'none'}."
            ) from None

    def _checked(self, name: str) -> zipfile.ZipInfo:
        info = self._info(name)
        if info.file_size > MOST_DEFLATED * info.compress_size + 64:
            raise InvalidInputError(
                f"array {name!r}: {info.compress_size:,} bytes cannot hold {info.file_size:,}"
            )
        if info.file_size > self._most:
            raise InvalidInputError(
                f"array {name!r} has {info.file_size:,} bytes; at most {self._most:,} are allowed"
            )
        with self._archive.open(info) as file:
            shape, dtype, _ = read_header(file)
            announced, there = math.prod(shape) * dtype.itemsize, info.file_size - file.tell()
        if announced != there:
            raise InvalidInputError(
                f"array {name!r} announces {announced:,} bytes, shape {shape}, but {there:,} follow"
            )
        return info


@contextmanager
def open_arrays(
    path: Path, *, is_packed: bool = True, what: str = "not a .npz file, or damaged"
) -> Iterator[Members]:
    """Open a ``.npz`` file; errors name it.

    ``is_packed=False`` is for files written without compression, in which no array is larger than the file.
    """
    with path.open("rb") as file, naming(path, what):
        size = os.fstat(file.fileno()).st_size
        with zipfile.ZipFile(file) as archive:
            yield Members(archive, size * MOST_DEFLATED if is_packed else size)


@contextmanager
def naming(path: Path, what: str) -> Iterator[None]:
    """Turn the errors of a reader into ours, with the name of the file, and suppress its warnings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except InvalidInputError as error:
        text = str(error)
        raise error if text.startswith(str(path)) else InvalidInputError(f"{path}: {text}") from None
    except CoresiftError:
        raise
    except FileNotFoundError:
        raise InvalidInputError(f"{path}: no such file") from None
    except PermissionError:
        raise InvalidInputError(f"{path}: may not be read") from None
    except MemoryError as error:
        raise InvalidInputError(f"{path}: does not fit into memory ({error})") from error
    except Exception as error:  # readers may raise anything on a damaged file
        raise InvalidInputError(f"{path}: {what} ({type(error).__name__}: {_short(error)})") from error


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """Read shape, type and order of the array that begins here; its entries follow."""
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise InvalidInputError(f"version {version} of the .npy format does not hold arrays of numbers")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("an array of Python objects; an array of numbers is needed")
    if dtype.kind not in _KINDS or min(shape, default=0) < 0:
        raise InvalidInputError(f"an array of shape {shape} and type {dtype} cannot be read")
    return shape, dtype, fortran


def map_array(path: Path) -> np.ndarray:
    """Map the array of a ``.npy`` file into memory."""
    with path.open("rb") as file, naming(path, "not a .npy file, or damaged"):
        shape, dtype, fortran = read_header(file)
        start, size = file.tell(), os.fstat(file.fileno()).st_size
        announced = math.prod(shape) * dtype.itemsize
        if announced > size - start:
            raise InvalidInputError(
                f"damaged: announces {announced:,} bytes, shape {shape}, but {size - start:,} follow"
            )
        if announced == 0:
            return np.empty(shape, dtype)  # an empty file cannot be mapped
        return np.memmap(path, dtype, "r", start, shape, "F" if fortran else "C")


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


_NO_NUMBERS = "not an npz file of numbers, or damaged"


def read_arrays(path: Path, *names: str) -> tuple[np.ndarray, ...]:
    """Arrays of numbers of an ``.npz`` file, by name."""
    _need_file(path)
    with open_arrays(path, what=_NO_NUMBERS) as members:
        return tuple(members[name] for name in names)


def array_names(path: Path) -> list[str]:
    """Names of the arrays of an ``.npz`` file."""
    _need_file(path)
    with open_arrays(path, what=_NO_NUMBERS) as members:
        return members.names


def _need_file(path: Path) -> None:
    if not path.exists():
        raise InvalidInputError(f"{path}: no such file")
