"""Opens what a user names: a file, a folder, a pattern, an address, an array, a data set of Arrow."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from .._errors import InvalidInputError, InvalidTypeError
from .arrays import ArrayRows, NpyRows, open_npz
from .columns import Wanted, need_pyarrow
from .images import DEFAULT_SIZE, SUFFIXES, ImageRows
from .rows import Rows, is_hidden
from .tables import CsvRows, ParquetRows

_TABLES: dict[str, type[ParquetRows] | type[CsvRows]] = {
    ".parquet": ParquetRows,
    ".pq": ParquetRows,
    ".csv": CsvRows,
}
_KNOWN = (*_TABLES, ".npy", ".npz", *SUFFIXES)


def open_rows(
    data: Any,
    *,
    columns: Sequence[str] | None = None,
    embedding: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    filesystem: Any = None,
    image_size: int = DEFAULT_SIZE,
) -> Rows:
    """Open a source of rows without reading it.

    Parameters
    ----------
    data : path, pattern, address, list of paths, array, frame, pyarrow Dataset or Rows
        ``.npy`` (mapped into memory), ``.npz``, ``.csv`` (with a header) and ``.parquet`` files; a folder or a pattern
        (``"part-*.parquet"``) of files of one kind; a folder of images, at any depth; an address that PyArrow's
        file systems know (``"s3://bucket/folder"``). Files are taken in the order of their names.
    columns : sequence of str, optional
        The columns of a table that are features. By default all columns of floats (of numbers in CSV files) but
        label and weight.
    embedding : str, optional
        A column of lists of numbers, all of one length, instead of ``columns``; of ``.npz`` files the array to use.
    label, weight : str, optional
        The column (``.npz``: the array) of the labels and of the weights. In a folder of images any ``label`` means the
        folder below the root that an image is in.
    filesystem : pyarrow.fs.FileSystem, optional
        Where ``data`` is a path on it.
    image_size : int, default 32
        Images are brought to this many pixels in height and width.
    """
    if isinstance(data, Rows):
        return data
    wanted = Wanted(columns, embedding, label, weight)
    source = _opened(data, wanted, filesystem, image_size)
    names = {"columns": None if columns is None else list(columns), "embedding": embedding, "label": label}
    source.opened_with = {**names, "weight": weight, "image_size": image_size}
    return source


def _opened(data: Any, wanted: Wanted, filesystem: Any, image_size: int) -> Rows:
    if isinstance(data, np.ndarray):
        _refuse_columns(wanted, "array", also_label=True)
        return ArrayRows(data)
    if hasattr(data, "files") and hasattr(data, "filesystem"):  # a pyarrow FileSystemDataset
        return _table(list(data.files), data.filesystem, wanted, "dataset")
    if isinstance(data, (str, os.PathLike)):
        return _open_path(os.fspath(data), wanted, filesystem, image_size)
    if isinstance(data, Sequence) and data and all(isinstance(item, (str, os.PathLike)) for item in data):
        paths = [os.fspath(item) for item in data]
        name = ", ".join(paths[:3]) + (" ..." if len(paths) > 3 else "")
        return _open_files(paths, wanted, filesystem, name, image_size)
    if hasattr(data, "to_numpy"):  # a frame
        return _open_frame(data, wanted)
    raise InvalidTypeError(
        f"data = {type(data).__name__} must be a path, a list of paths, an array or a source."
    )


def _open_frame(frame: Any, wanted: Wanted) -> ArrayRows:
    if wanted.embedding is not None:
        raise InvalidInputError(
            f"frame: embedding = {wanted.embedding!r} applies to files; name the columns."
        )
    own = {str(name): name for name in frame.columns}  # pandas counts columns that have no names
    names = list(own)
    for name in filter(None, (wanted.label, wanted.weight, *(wanted.columns or ()))):
        if name not in names:
            raise InvalidInputError(f"frame: no column {name!r}; there are {', '.join(map(repr, names))}.")
    chosen = list(wanted.columns or (name for name in names if name not in (wanted.label, wanted.weight)))
    if not chosen:
        raise InvalidInputError("frame: no columns of features.")
    columns = {
        name: np.asarray(frame[own[name]].to_numpy())
        for name in (*chosen, wanted.label, wanted.weight)
        if name is not None
    }
    label = None if wanted.label is None else columns[wanted.label]
    if label is not None and label.dtype == object:
        if any(value is None or value != value for value in label):
            raise InvalidInputError(f"frame: the label column {wanted.label!r} has missing values.")
        label = label.astype(str)
    weights = None if wanted.weight is None else columns[wanted.weight]
    return ArrayRows(np.column_stack([columns[name] for name in chosen]), weights, label, "frame", chosen)


def _open_path(path: str, wanted: Wanted, filesystem: Any, image_size: int) -> Rows:
    if filesystem is not None or "://" in path:
        fs, paths = _remote_files(path, filesystem)
        return _table(paths, fs, wanted, path)
    if os.path.isdir(path):
        inside = sorted(
            str(file)
            for file in Path(path).rglob("*")
            if file.is_file() and not is_hidden(file.relative_to(path).parts)
        )
        images = [Path(file) for file in inside if Path(file).suffix.lower() in SUFFIXES]
        data = [file for file in inside if Path(file).suffix.lower() in (*_TABLES, ".npy")]
        if images and data:
            raise InvalidInputError(
                f"{path}: the folder holds images ({images[0].name}) and tables ({Path(data[0]).name}); name one kind, "
                "as in 'folder/*.csv'."
            )
        if images:
            _refuse_columns(wanted, path)
            return ImageRows(images, Path(path), path, image_size, wanted.label is not None)
        if not data:
            raise InvalidInputError(f"{path}: the folder holds no file that ends in {', '.join(_KNOWN)}.")
        return _open_files(data, wanted, None, path, image_size)
    if glob.has_magic(path) and not os.path.exists(path):
        found = sorted(glob.glob(path, recursive=True))
        if not found:
            raise InvalidInputError(f"{path}: no file matches.")
        return _open_files(found, wanted, None, path, image_size)
    return _open_files([path], wanted, None, path, image_size)


def _open_files(paths: list[str], wanted: Wanted, filesystem: Any, name: str, image_size: int) -> Rows:
    kinds = sorted({Path(path).suffix.lower() for path in paths})
    if len(kinds) > 1:
        raise InvalidInputError(f"{name}: files of different kinds, {' and '.join(kinds)}; name one kind.")
    kind = kinds[0]
    for path in paths:
        if filesystem is None and not os.path.exists(path):
            raise InvalidInputError(f"{path}: no such file or folder.")
    if kind in _TABLES:
        return _table(paths, filesystem, wanted, name)
    if kind in SUFFIXES:
        _refuse_columns(wanted, name)
        root = Path(os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in paths]))
        files = [Path(path).absolute() for path in paths]
        return ImageRows(files, root, name, image_size, wanted.label is not None)
    if kind == ".npy":
        _refuse_columns(wanted, name, also_label=True)
        return NpyRows([Path(path) for path in paths], name)
    if kind == ".npz" and len(paths) == 1:
        if wanted.columns is not None:
            raise InvalidInputError(
                f"{name}: arrays have no named columns; use --embedding to name the array."
            )
        return open_npz(Path(paths[0]), wanted.embedding, wanted.label, wanted.weight)
    if kind == ".npz":
        raise InvalidInputError(f"{name}: only one .npz file can be read; .npy files can be many.")
    raise InvalidInputError(f"{name}: unknown kind of file {kind!r}; known are {', '.join(_KNOWN)}.")


def _refuse_columns(wanted: Wanted, name: str, *, also_label: bool = False) -> None:
    names = [wanted.columns, wanted.embedding, wanted.weight, wanted.label if also_label else None]
    if any(name is not None for name in names):
        raise InvalidInputError(
            f"{name}: has no named columns; columns, embedding, label and weight do not apply."
        )


def _table(paths: list[str], filesystem: Any, wanted: Wanted, name: str) -> Rows:
    if filesystem is None:
        need_pyarrow("Parquet and CSV files")
        from pyarrow.fs import LocalFileSystem

        filesystem = LocalFileSystem()
    kinds = sorted({PurePosixPath(path).suffix.lower() for path in paths})
    kind = kinds[0] if len(kinds) == 1 else ".parquet" if ".parquet" in kinds else None
    if not kinds or kind not in _TABLES:
        raise InvalidInputError(f"{name}: no file that ends in {', '.join(_TABLES)}.")
    return _TABLES[kind](
        [path for path in paths if PurePosixPath(path).suffix.lower() == kind], filesystem, wanted, name
    )


def _remote_files(address: str, filesystem: Any) -> tuple[Any, list[str]]:
    """The file system of an address, and the files that it names: itself, those of a folder, or those of a pattern."""
    need_pyarrow("addresses")
    import pyarrow as pa
    from pyarrow import fs

    try:
        above, rest = address, ""
        while glob.has_magic(above):  # a pattern is not part of an address: what is above it is
            above, _, last = above.rpartition("/")
            rest = f"/{last}{rest}"
        base, head = (filesystem, above) if filesystem is not None else fs.FileSystem.from_uri(above)
        path = head + rest
        info = base.get_file_info(head)
        if info.type == fs.FileType.NotFound:
            raise InvalidInputError(f"{address}: no such file or folder.")
        if info.type == fs.FileType.File:
            return base, [path]
        below = base.get_file_info(fs.FileSelector(head, recursive=True))
    except (pa.ArrowException, OSError) as error:
        raise InvalidInputError(f"{address}: cannot be reached ({error})") from error
    files = sorted(
        item.path
        for item in below
        if item.type == fs.FileType.File
        and not is_hidden(PurePosixPath(item.path.removeprefix(head).lstrip("/")).parts)
    )
    if head != path:
        files = [file for file in files if fnmatch(file, path)]
    files = [file for file in files if PurePosixPath(file).suffix.lower() in _TABLES]
    if not files:
        raise InvalidInputError(f"{address}: no file there ends in {', '.join(_TABLES)}.")
    return base, files
