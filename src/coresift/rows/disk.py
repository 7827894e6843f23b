"""Files on this machine: what tells one from another, and disk space that is taken before it is mapped."""

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .._errors import CoresiftError

_END_BYTES = 1 << 12


class Fingerprint(NamedTuple):
    """What tells a file from another: its size in bytes, its time, and its first and last bytes, or none of them."""

    size: int
    time: int
    ends: bytes = b""


def fingerprint(path: str, n_bytes: int = _END_BYTES) -> Fingerprint:
    """The fingerprint of a file on this machine; a file that is gone has a size of -1."""
    try:
        with open(path, "rb", buffering=0) as file:
            about = os.fstat(file.fileno())
            ends = file.read(n_bytes)
            file.seek(max(about.st_size - n_bytes, 0))
            return Fingerprint(about.st_size, about.st_mtime_ns, ends + file.read(n_bytes))
    except FileNotFoundError:
        return Fingerprint(-1, 0)


def allocated(path: Path, size: int) -> Path:
    """Take disk space for a file that is to be mapped: a process dies when it writes to a map and the disk is full."""
    try:
        with path.open("wb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            elif shutil.disk_usage(path.parent).free < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            file.truncate(size)
    except OSError as error:
        text = f"{path.parent.parent}: no room for {size / 1e9:.3g} GB of rows ({error.strerror})"
        raise CoresiftError(f"{text}; make room, set TMPDIR to another folder, or raise max_memory.") from error
    return path


def is_hidden(parts: Sequence[str]) -> bool:
    """Whether a path below the data folder is a leftover such as ``_SUCCESS``, ``_temporary/`` or ``.snapshot/``."""
    return any(part[0] in "._" for part in parts)


def files_below(folder: str) -> list[str]:
    """All files below a folder that are not hidden, in the order of their paths."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not is_hidden([name])]
        found += [os.path.join(place, name) for name in files if not is_hidden([name])]
    return sorted(found)
