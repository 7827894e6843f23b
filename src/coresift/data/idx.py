"""Files in the IDX format of the MNIST distribution, plain or compressed with gzip.

Two zero bytes, a byte for the type of the entries, a byte for the number of dimensions, the dimensions as big-endian
32-bit integers, then the entries in C order, big-endian as well.
"""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from .._errors import InvalidInputError
from .._npz import MOST_DEFLATED

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_PIECE = 1 << 24  # bytes


def read_idx(path: str | Path, *, max_bytes: int | None = None) -> np.ndarray:
    """The array of an IDX file, in the byte order of the machine; a name that ends in ``.gz`` is decompressed.

    Raises an `InvalidInputError` that names the file when it is missing, not IDX, cut off, longer than it says, or
    larger than ``max_bytes``.
    """
    path = Path(path)
    is_packed = path.suffix == ".gz"
    opener: Callable[..., Any] = gzip.open if is_packed else open
    try:
        with opener(path, "rb") as file:
            limits = [max_bytes] if max_bytes is not None else []
            if is_packed:
                limits.append(os.stat(path).st_size * MOST_DEFLATED)
            return _read(cast(BinaryIO, file), min(limits, default=None))
    except FileNotFoundError:
        raise InvalidInputError(f"{path}: no such file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidInputError(f"{path}: damaged or cut off ({error})") from error
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from None


def _read(file: BinaryIO, most: int | None) -> np.ndarray:
    """The array; no more than ``most`` bytes can be behind the header, or are wanted."""
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES or magic[3] == 0:
        raise InvalidInputError(f"not an IDX file: it begins with {magic.hex(' ') or 'nothing'}")
    dtype, n_dimensions = np.dtype(_TYPES[magic[2]]), magic[3]
    header = file.read(4 * n_dimensions)
    if len(header) < 4 * n_dimensions:
        raise InvalidInputError("cut off within its header")
    shape = tuple(int(size) for size in np.frombuffer(header, ">u4"))
    expected = math.prod(shape) * dtype.itemsize
    if most is not None and expected > most:
        raise InvalidInputError(
            f"its header announces {shape} entries, {expected:,} bytes, but no more than {most:,} can follow"
        )
    body = bytearray()  # by pieces: less may be there than is announced
    while piece := file.read(
        min(expected + 1 - len(body), _PIECE)
    ):  # one more than there should be, to notice it
        body += piece
    if len(body) != expected:
        found = f"{len(body):,}" if len(body) < expected else "more"
        raise InvalidInputError(
            f"its header announces {shape} entries, {expected:,} bytes, but {found} follow"
        )
    return np.frombuffer(body, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)
