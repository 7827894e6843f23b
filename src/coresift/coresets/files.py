"""Files of a coreset: two arrays and a JSON header, a SHA-256 of both, in ``.npz`` or ``.parquet``; never a pickle."""

import contextlib
import hashlib
import json
import os
import secrets
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .._errors import CoresiftError, InvalidInputError
from .._npz import naming, open_arrays
from ..rows.tables import need_pyarrow

Header = dict[str, Any]
Indices = NDArray[np.int64]
Weights = NDArray[np.float64]

_VERSION = 2  # 1 had the guarantee as a sentence
_PARQUET_KEY = b"coresift"
_PARQUET_RUN = b"coresift.run"
_MOST_ROWS_PER_BYTE = 8


class UnwritableError(CoresiftError, OSError):
    """A file could not be written: the disk is full or the folder is read-only; the message names the file."""


def write_coreset(
    path: Path,
    about: Header,
    indices: Indices,
    weights: Weights,
    columns: Mapping[str, Any] | None = None,
    run: Header | None = None,
) -> None:
    """Write the arrays and ``about`` (plain JSON, no NaN or infinity); equal input gives equal bytes.

    ``columns`` are written beside the arrays, and ``run`` beside ``about``; the checksum does not cover them.
    """
    write = _for_suffix(path, {".npz": write_npz, ".parquet": _write_parquet})
    notes = {"header": header_text(about, indices, weights)}
    if run is not None:
        notes["run"] = json.dumps(run, allow_nan=False)
    arrays = {"row": indices, **(columns or {}), "weight": weights}
    write_whole(path, lambda file: write(file, notes, arrays))


def header_text(about: Header, indices: Indices, weights: Weights) -> str:
    """Return the JSON text of a coreset's file, with its checksum."""
    return stamped("coreset", _VERSION, about, {"row": indices, "weight": weights})


def read_coreset(path: Path) -> tuple[Header, Indices, Weights]:
    """Read what ``write_coreset`` wrote, check format, version and checksum, and name the file in errors."""
    read = _for_suffix(path, {".npz": _read_npz, ".parquet": _read_parquet})
    with path.open("rb"):
        pass  # let the system report a file that is missing or may not be read
    with naming(path, "not a coreset file, or damaged"):
        text, indices, weights = read(path)
        arrays = {"row": np.asarray(indices, np.int64), "weight": np.asarray(weights, np.float64)}
        return verified(text, "coreset", _VERSION, arrays), indices, weights


def _for_suffix(path: Path, choices: dict[str, Any]) -> Any:
    try:
        return choices[path.suffix.lower()]
    except KeyError:
        raise InvalidInputError(f"{path}: unknown suffix {path.suffix!r}; use {' or '.join(choices)}") from None


def stamped(kind: str, version: int, about: Header, arrays: Mapping[str, np.ndarray]) -> str:
    """Return the JSON text that identifies a file of some kind and version, with a checksum of text and arrays."""
    header = {"format": f"coresift.{kind}", "version": version, **about}
    return json.dumps({**header, "sha256": _checksum(header, arrays)}, allow_nan=False)


def verified(text: str, kind: str, version: int, arrays: Mapping[str, np.ndarray]) -> Header:
    """Return what :func:`stamped` was given, after checking kind, version and checksum."""
    header = json.loads(text)
    if not isinstance(header, dict) or header.get("format") != f"coresift.{kind}":
        raise InvalidInputError(f"not a {kind} file")
    if (found := header["version"]) != version:
        advice = "install a newer coresift" if found > version else "make it and save it again"
        raise InvalidInputError(f"format version {found}, but this coresift reads version {version}: {advice}")
    if header.pop("sha256") != _checksum(header, arrays):
        raise InvalidInputError("the checksum does not match: the file is damaged")
    return header


def _checksum(header: Header, arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of a header and of named arrays, little-endian on every machine, with their types and shapes."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(_little_endian(arrays[name]))
        digest.update(f"\0{name} {array.dtype.str} {array.shape}\0".encode())
        digest.update(array.data)
    return digest.hexdigest()


def _little_endian(values: Any) -> np.ndarray:
    array = np.asarray(values)
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def write_whole(target: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Write a draft beside the target and rename it over the target, so that nobody sees half a file."""
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target}: the folder {target.parent} does not exist")
    draft = target.with_name(f".coresift-{secrets.token_hex(8)}.tmp")
    try:
        with draft.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise unwritable(error, target) from error
        raise


def unwritable(error: OSError, path: Path) -> UnwritableError:
    """Return the error with the name of the file; its number stays."""
    found = UnwritableError(f"{path}: cannot be written ({error.strerror or error})")
    found.errno = error.errno
    return found


def write_npz(file: IO[bytes], notes: Mapping[str, str], arrays: Mapping[str, Any]) -> None:
    """Write texts and arrays; equal input gives equal bytes."""
    with zipfile.ZipFile(file, "w") as archive:  # np.savez fails for an array called "file"
        for name, values in {**notes, **arrays}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _little_endian(values), allow_pickle=False)


def _read_npz(path: Path) -> tuple[str, Indices, Weights]:
    with open_arrays(path, is_packed=False) as members:
        return str(members["header"]), members["row"], members["weight"]


def _write_parquet(file: IO[bytes], notes: Mapping[str, str], arrays: Mapping[str, Any]) -> None:
    need_pyarrow()
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table(dict(arrays)).replace_schema_metadata(parquet_metadata(**notes)), file)


def parquet_metadata(header: str, run: str | None = None) -> dict[bytes, bytes]:
    """Return what makes a Parquet file with the columns ``row`` and ``weight`` a coreset's."""
    more = {} if run is None else {_PARQUET_RUN: run.encode()}
    return {_PARQUET_KEY: header.encode(), **more}


def _read_parquet(path: Path) -> tuple[str, Indices, Weights]:
    need_pyarrow()
    from pyarrow import parquet

    with path.open("rb") as file:
        opened = parquet.ParquetFile(file)
        n, size = opened.metadata.num_rows, path.stat().st_size
        # distinct rows hardly compress; equal ones take no room at all, and we never write them
        if n > _MOST_ROWS_PER_BYTE * size:
            raise InvalidInputError(f"{n:,} rows in {size:,} bytes: not a coreset file")
        metadata = opened.schema_arrow.metadata or {}
        if _PARQUET_KEY not in metadata:
            raise InvalidInputError("not a coreset file")
        table = opened.read(columns=["row", "weight"])
    return metadata[_PARQUET_KEY].decode(), table["row"].to_numpy(), table["weight"].to_numpy()
