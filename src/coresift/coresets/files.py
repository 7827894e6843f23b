"""Files of a coreset: two arrays and one JSON text, in ``.npz`` or ``.parquet``; never a pickle.

A SHA-256 over all of it is checked on the way in, and a file is either the old one or the complete new one,
never half of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from .._errors import CoresiftError, InvalidInputError, MissingExtraError
from .._npz import naming, open_arrays

Header = dict[str, Any]
Indices = NDArray[np.int64]
Weights = NDArray[np.float64]

_FORMAT = "coresift.coreset"
_VERSION = 1
_PARQUET_KEY = b"coresift"
_PARQUET_RUN = b"coresift.run"
_MOST_ROWS_PER_BYTE = 8


class UnwritableError(CoresiftError, OSError):
    """A file that could not be written: the disk is full, the folder closed; the message names the file."""


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
    write = _for_suffix(path, {".npz": _write_npz, ".parquet": _write_parquet})
    text = header_text(about, indices, weights)
    beside = columns or {}
    note = None if run is None else json.dumps(run, allow_nan=False)
    write_whole(path, lambda file: write(file, text, indices, weights, beside, note))


def header_text(about: Header, indices: Indices, weights: Weights) -> str:
    """The JSON text of a file, with its checksum."""
    header = {"format": _FORMAT, "version": _VERSION, **about}
    header["sha256"] = _checksum(header, indices, weights)
    return json.dumps(header, allow_nan=False)


def read_coreset(path: Path) -> tuple[Header, Indices, Weights]:
    """What ``write_coreset`` wrote, if format, version and checksum are right; else an error naming the file."""
    read = _for_suffix(path, {".npz": _read_npz, ".parquet": _read_parquet})
    with path.open("rb"):
        pass  # a file that is missing or may not be read is said by the system, in its words
    with naming(path, "not a coreset file, or damaged"):
        text, indices, weights = read(path)
        return _checked(json.loads(text), indices, weights), indices, weights


def _checked(header: Any, indices: Indices, weights: Weights) -> Header:
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise InvalidInputError("not a coreset file")
    version = header["version"]
    if version != _VERSION:
        raise InvalidInputError(
            f"format version {version}, but this coresift reads version {_VERSION}: install a newer coresift"
        )
    if header["sha256"] != _checksum(header, indices, weights):
        raise InvalidInputError("the checksum does not match: the file is damaged")
    return header


def _for_suffix(path: Path, choices: dict[str, Any]) -> Any:
    try:
        return choices[path.suffix.lower()]
    except KeyError:
        raise InvalidInputError(
            f"{path}: unknown suffix {path.suffix!r}; use {' or '.join(choices)}"
        ) from None


def _checksum(header: Header, indices: Indices, weights: Weights) -> str:
    """SHA-256 of the header without its checksum and of both arrays, little-endian whatever the machine."""
    text = json.dumps({key: value for key, value in header.items() if key != "sha256"}, sort_keys=True)
    digest = hashlib.sha256(text.encode())
    digest.update(np.ascontiguousarray(indices, dtype="<i8").data)
    digest.update(np.ascontiguousarray(weights, dtype="<f8").data)
    return digest.hexdigest()


def arrays_checksum(header: Header, arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of a header and of named arrays, with their types and shapes."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"\0{name} {array.dtype.str} {array.shape}\0".encode())
        digest.update(array.data)
    return digest.hexdigest()


def write_whole(target: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Write beside the target, then rename over it: the rename is the only step that others can see.

    A full disk, a folder that may not be written to and the like are an `UnwritableError` that names the target.
    """
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
    """The same error in words that name the file; its number stays."""
    found = UnwritableError(f"{path}: cannot be written ({error.strerror or error})")
    found.errno = error.errno
    return found


def _write_npz(
    file: IO[bytes],
    header: str,
    indices: Indices,
    weights: Weights,
    columns: Mapping[str, Any],
    run: str | None,
) -> None:
    members = {"header": np.array(header), "row": indices.astype("<i8"), "weight": weights.astype("<f8")}
    members |= {name: np.asarray(values) for name, values in columns.items()}
    if run is not None:
        members["run"] = np.array(run)
    # np.savez would do, but for an array that is called "file"
    with zipfile.ZipFile(file, "w") as archive:
        for name, values in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)


def _read_npz(path: Path) -> tuple[str, Indices, Weights]:
    with open_arrays(path, is_packed=False) as members:
        return str(members["header"]), members["row"], members["weight"]


def _write_parquet(
    file: IO[bytes],
    header: str,
    indices: Indices,
    weights: Weights,
    columns: Mapping[str, Any],
    run: str | None,
) -> None:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        _refuse_parquet(error)
    table = pa.table({"row": indices, **columns, "weight": weights})
    parquet.write_table(table.replace_schema_metadata(parquet_metadata(header, run)), file)


def parquet_metadata(header: str, run: str | None) -> dict[bytes, bytes]:
    """What makes a Parquet file with the columns ``row`` and ``weight`` a coreset's."""
    more = {} if run is None else {_PARQUET_RUN: run.encode()}
    return {_PARQUET_KEY: header.encode(), **more}


def _read_parquet(path: Path) -> tuple[str, Indices, Weights]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        _refuse_parquet(error)
    with path.open("rb") as file:
        opened = parquet.ParquetFile(file)
        # distinct rows hardly compress; equal ones take no room at all, and are none that we wrote
        if opened.metadata.num_rows > _MOST_ROWS_PER_BYTE * path.stat().st_size:
            raise InvalidInputError(
                f"{opened.metadata.num_rows:,} rows in {path.stat().st_size:,} bytes: not a coreset file"
            )
        metadata = opened.schema_arrow.metadata or {}
        if _PARQUET_KEY not in metadata:
            raise InvalidInputError("not a coreset file")
        table = opened.read(columns=["row", "weight"])
    return metadata[_PARQUET_KEY].decode(), table["row"].to_numpy(), table["weight"].to_numpy()


def _refuse_parquet(error: ImportError) -> NoReturn:
    raise MissingExtraError('Parquet files need pyarrow: pip install "coresift[io]"') from error
