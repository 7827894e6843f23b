"""Files of coresets and chosen rows: arrays and a JSON header with a SHA-256, in .npz or .parquet; never a pickle."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import secrets
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import IO, TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from .._errors import CoresiftError, InvalidInputError
from .._imports import need
from .._validation import check_count, naming
from ..rows.arrays import open_arrays
from ..rows.columns import pa
from ..rows.opening import is_hidden
from ..rows.rows import Rows
from ..rows.tables import TableRows, parquet
from .materialize import write_rows

if TYPE_CHECKING:
    from .coreset import Coreset
    from .options import Plan

Header = dict[str, Any]
Indices = NDArray[np.int64]
Weights = NDArray[np.float64]

SUFFIXES = (".parquet", ".npz")
_VERSION = 2  # 1 had the guarantee as a sentence
_PARQUET_KEY = b"coresift"
_PARQUET_RUN = b"coresift.run"
_MOST_ROWS_PER_BYTE = 8
_ROW_BYTES = 64  # of a chosen row in the output, at most


class UnwritableError(CoresiftError, OSError):
    """A file could not be written: the disk is full or the folder is read-only; the message names the file."""


def write_coreset(path: Path, core: Coreset, columns: Mapping[str, Any], notes: Mapping[str, str]) -> None:
    """Write a coreset, with more columns and notes, which the checksum does not cover; equal input, equal bytes."""
    write = _for_suffix(path, {".npz": write_npz, ".parquet": _write_parquet})
    arrays = {"row": core.indices, **columns, "weight": core.weights}
    write_whole(path, lambda file: write(file, {"header": header_text(core), **notes}, arrays))


def header_text(core: Coreset) -> str:
    """Return the JSON text of a coreset's file, with its checksum."""
    return stamped("coreset", _VERSION, core.as_dict(), {"row": core.indices, "weight": core.weights})


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
        raise InvalidInputError(f"{path}: unknown suffix {path.suffix!r}; use {' or '.join(choices)}.") from None


def stamped(kind: str, version: int, about: Header, arrays: Mapping[str, np.ndarray]) -> str:
    """Return the JSON text that identifies a file of some kind and version, with a checksum of text and arrays."""
    header = {"format": f"coresift.{kind}", "version": version, **about}
    return json.dumps({**header, "sha256": _checksum(header, arrays)}, allow_nan=False)


def verified(text: str, kind: str, version: int, arrays: Mapping[str, np.ndarray]) -> Header:
    """Return what :func:`stamped` was given, after checking kind, version and checksum."""
    header = parse_json(text)
    if not isinstance(header, dict) or header.get("format") != f"coresift.{kind}":
        raise InvalidInputError(f"not a {kind} file")
    if (found := check_count(header["version"], "version")) != version:
        advice = "install a newer coresift" if found > version else "make it and save it again"
        raise InvalidInputError(f"format version {found}, but this coresift reads version {version}: {advice}")
    if header.pop("sha256") != _checksum(header, arrays):
        raise InvalidInputError("the checksum does not match: the file is damaged")
    return header


def parse_json(text: str, *, finite: bool = True) -> Any:
    """Read JSON; integers that floats do not hold are refused, and, if ``finite``, NaN and infinity."""

    def refuse(number: str) -> float:
        raise InvalidInputError(f"the number {number:.20}... is too large")

    integer = lambda text: int(text) if len(text) < 300 else refuse(text)  # noqa: E731
    return json.loads(text, parse_int=integer, parse_constant=refuse if finite else None)


def check_types(kind: type, plain: Any) -> None:
    """Compare the values of a JSON object with the types of the fields of ``kind`` that have their names."""
    if not isinstance(plain, dict):
        raise InvalidInputError(f"{kind.__name__} = {plain!r:.40} must be an object")
    for name, hint in get_type_hints(kind).items():
        if name in plain and not _fits(plain[name], hint):
            raise InvalidInputError(f"{name} = {plain[name]!r:.40} is not of the type {hint}")


def _fits(value: Any, hint: Any) -> bool:
    args, origin = get_args(hint), get_origin(hint) or hint
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in args)
    if origin in (int, float):
        return isinstance(value, int if origin is int else int | float) and not isinstance(value, bool)
    if origin in (list, tuple, np.ndarray):
        simple = args[0] if origin is list and args else Any
        return isinstance(value, list | tuple) and all(_fits(each, simple) for each in value)
    return origin is Any or not isinstance(origin, type) or isinstance(value, str if origin is Path else origin)


class _Recorded:
    """What later commands take from the record of a run."""

    columns: list[str] | None
    embedding: str | None
    label: str | None
    weight: str | None
    image_size: int


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


def write_whole(target: Path, write: Callable[[IO[bytes]], object]) -> None:
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
    parquet.write_table(pa.table(dict(arrays)).replace_schema_metadata(parquet_metadata(**notes)), file)


def parquet_metadata(header: str, run: str | None = None) -> dict[bytes, bytes]:
    """Return what makes a Parquet file with the columns ``row`` and ``weight`` a coreset's."""
    more = {} if run is None else {_PARQUET_RUN: run.encode()}
    return {_PARQUET_KEY: header.encode(), **more}


def _read_parquet(path: Path) -> tuple[str, Indices, Weights]:
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


def as_plain(value: Any) -> Any:
    """Return what strict JSON can hold: arrays as lists, dataclasses as objects, infinity as an object."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return {f.name: as_plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, np.ndarray | tuple):
        return value.tolist() if isinstance(value, np.ndarray) else list(value)
    return {"infinite": value > 0} if isinstance(value, float) and math.isinf(value) else value


def from_plain(value: Any) -> Any:
    """Undo :func:`as_plain`, up to lists and classes."""
    if not isinstance(value, dict):
        return value
    if value.keys() == {"infinite"}:
        return math.inf if value["infinite"] else -math.inf
    return {name: from_plain(part) for name, part in value.items()}


@dataclass(frozen=True)
class ChosenRows:
    """Chosen rows with their weights, and how to repeat the choice."""

    coreset: Coreset
    rows: Rows
    labels: list[Any] | None
    """Labels of the chosen rows, where a column of labels was named."""
    run: dict[str, Any]

    def columns(self) -> dict[str, Any]:
        """What is written beside row and weight: the file of each row, and its label."""
        files = np.array(self.rows.files, dtype=object)[self.rows.file_of(self.coreset.indices)]
        beside: dict[str, Any] = {"file": _encodable(files.tolist())}
        if self.labels is not None:
            beside["label"] = _encodable(self.labels)
        return beside

    def save(self, path: str | os.PathLike[str], *, materialize: bool = False) -> None:
        """Write row, file, weight (and label) to ``path``, ``.parquet`` or ``.npz``, complete or not at all.

        ``materialize`` adds the chosen rows, all columns of a table in ``.parquet``; taken names become ``input_...``.
        """
        target = Path(path)
        check_output(target, n_rows=self.coreset.size)
        refuse_input(target, self.rows)
        core, run = self.coreset, json.dumps(self.run, allow_nan=False)
        if materialize and target.suffix.lower() == ".parquet":
            metadata = parquet_metadata(header_text(core), run)
            write_whole(target, lambda file: write_rows(file, self, metadata))
        else:
            features = {"X": self.rows.take(core.indices).X} if materialize else {}
            write_coreset(target, core, self.columns() | features, {"run": run})


def _encodable(values: list[Any]) -> np.ndarray:
    """An array; of names of files that are not UTF-8, the bytes as escape sequences."""
    return np.array([v.encode("utf-8", "backslashreplace").decode() if isinstance(v, str) else v for v in values])


def check_output(path: Path, *, n_rows: int = 0, suffixes: tuple[str, ...] = SUFFIXES) -> None:
    """Refuse a ``path`` without one of the ``suffixes``, or to which ``n_rows`` could not be written.

    >>> check_output(Path("rows.txt"))
    Traceback (most recent call last):
    ...
    coresift._errors.InvalidInputError: rows.txt: unknown suffix '.txt'; use .parquet or .npz.
    """
    if _for_suffix(path, {suffix: suffix for suffix in suffixes}) == ".parquet":
        need("pyarrow", "io", "a Parquet file")
    if path.is_dir():
        raise InvalidInputError(f"{path}: is a folder; name a file.")
    folder = path.parent
    if not folder.is_dir():
        raise InvalidInputError(f"{folder}: no such folder; it is to hold {path.name}.")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be written ({error.strerror}).") from error
    free = shutil.disk_usage(folder).free
    if free < (most := n_rows * _ROW_BYTES):
        raise InvalidInputError(f"{path}: {free / 1e6:.0f} MB are free there; up to {most / 1e6:.0f} MB may be needed.")


def refuse_input(path: Path, rows: Rows) -> None:
    """Refuse to write a file that was read, or that would be read with the others the next time."""
    out, place = path.resolve(), Path(rows.name)
    if any(Path(file).resolve() == out for file in rows.files) and out.exists():
        raise InvalidInputError(f"{path}: is part of the input; name another file.")
    if "://" in rows.name or out.suffix.lower() not in {Path(file).suffix.lower() for file in rows.files}:
        return
    inside = out.is_relative_to(place.resolve()) if place.is_dir() else out.match(os.path.abspath(place))
    if inside and not is_hidden(out.parts[-1:]):
        raise InvalidInputError(f"{path}: would be part of the input {rows.name} the next time; name another folder.")


def run_record(plan: Plan[Any]) -> dict[str, Any]:
    """What repeats the run."""
    from .. import __version__  # known once the package is imported

    rows, made = plan.rows, {**asdict(plan.options), "budget": plan.budget}
    for name in ("workers", "engine", "max_memory"):
        del made[name]
    features: dict[str, Any] = {"preparation": rows.made_by and rows.made_by.to_dict()}
    if isinstance(rows.raw, TableRows):
        # the columns that were used, also where they were not named: who reads the table again takes these
        used, is_embedded = list(rows.raw.columns.features), rows.raw.columns.width is not None
        features |= {"columns": None if is_embedded else used, "embedding": used[0] if is_embedded else None}
    return {
        "version": __version__,
        "input": rows.name,
        "files": len(rows.files),
        "rows": rows.n,
        "fingerprint": rows.fingerprint,
        "n_columns": rows.d,
        **rows.opened_with,
        **features,
        **made,
    }


def load_run(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The record of the run in ``path``, a file of :meth:`Selection.save`; empty for other coreset files.

    >>> from coresift import select
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     select(np.arange(40.0).reshape(20, 2), 5, random_state=3).save(f"{folder}/chosen.npz")
    ...     load_run(f"{folder}/chosen.npz")["seed"]
    3
    """
    target = Path(path)
    with target.open("rb"), naming(target, "not a file of a selection, or damaged"):
        if target.suffix.lower() == ".npz":
            with open_arrays(target, is_packed=False) as members:
                text = str(members["run"]) if "run" in members.names else "{}"
        else:
            text = (parquet.read_schema(target).metadata or {}).get(_PARQUET_RUN, b"{}").decode()
        found = parse_json(text)
        if not isinstance(found, dict):
            raise InvalidInputError("the record of the run is no JSON object")
        check_types(_Recorded, found)
        return found
