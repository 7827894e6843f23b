"""Images that are decoded once, into a file that is memory-mapped, not in every epoch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from .._errors import InvalidInputError
from .._progress import Progress
from .._validation import naming
from ..coresets.files import write_whole
from ..rows.images import decode, middle
from ..rows.rows import fingerprint

if TYPE_CHECKING:
    from .splits import LazyDataset

_AT_ONCE = 256  # images that are decoded and then written


def cached(dataset: LazyDataset, folder: Path) -> LazyDataset:
    """The same images from a file in ``folder``, which is written if it is not there yet.

    It holds the square in the middle of each image, as bytes, and is named after the paths, sizes and times of the
    image files: images that change get a new file. Random parts are parts of that square.
    """
    if not folder.is_dir():
        raise InvalidInputError(f"cache = {str(folder)!r}: no such folder; make it first.")
    side = dataset.size + 2 * round(dataset.size * (1.0 / dataset.share - 1.0) / 2.0)
    known = hashlib.sha256(f"1 {side}".encode())
    for path in dataset.paths:
        known.update(repr((os.path.abspath(path), *fingerprint(path, 0)[:2])).encode("utf-8", "surrogatepass"))
    target = folder / f"coresift-images-{known.hexdigest()[:24]}.npy"
    if not target.exists():
        write_whole(target, partial(_write, dataset.paths, side))
    found = replace(dataset, cache=str(target), places=np.arange(len(dataset)))
    if pixels_of(str(target)).shape != (len(dataset), 3, side, side):
        raise InvalidInputError(f"{target}: damaged; delete it, and it is written again.")
    return found


def _write(paths: Any, side: int, file: IO[bytes]) -> None:
    head = {"descr": "|u1", "fortran_order": False, "shape": (len(paths), 3, side, side)}
    npy.write_array_header_1_0(file, head)
    progress = Progress("decode", len(paths), unit="images")
    for pixels in _decoded(paths, side):
        file.write(pixels.tobytes())
        progress(1)


def _decoded(paths: Any, side: int) -> Iterator[np.ndarray]:
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # Pillow decodes without the lock
        for first in range(0, len(paths), _AT_ONCE):
            yield from threads.map(
                lambda path: decode(path, side, partial(middle, 1.0)), paths[first : first + _AT_ONCE]
            )


@lru_cache(maxsize=8)
def pixels_of(path: str) -> np.ndarray:
    """The images of a cache, (n, 3, side, side) bytes; each process maps the file once."""
    with naming(Path(path), "damaged; delete it, and it is written again"):
        found: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    return found
