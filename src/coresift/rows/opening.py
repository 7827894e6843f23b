"""Open what a user names: a matrix, a frame, a file, a folder, a pattern, an address, an Arrow data set."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from .._containers import column_names, take_columns
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
    sample_weight: Any = None,
    labels: Any = None,
    columns: Sequence[str] | None = None,
    embedding: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    filesystem: Any = None,
    image_size: int = DEFAULT_SIZE,
) -> Rows:
    """Open rows of data. Files are not read yet, and data in memory are not copied.

    Parameters
    ----------
    data : array-like, sparse matrix, frame, path, pattern, address, list of paths, pyarrow Dataset or Rows
        In memory: anything that NumPy, SciPy, pandas, Polars, PyArrow or PyTorch keep numbers in. On disk: ``.npy``
        (memory-mapped), ``.npz``, ``.csv`` (with a header) and ``.parquet`` files; a folder or a pattern
        (``"part-*.parquet"``) of files of one kind; a folder of images, at any depth; an address that PyArrow's file
        systems know (``"s3://bucket/folder"``). Files are read in the order of their names.
    sample_weight, labels : array-like of shape (n,), optional
        Weights and labels of rows in memory.
    columns : sequence of str, optional
        The feature columns of a table. Default: all columns of floats (CSV: of numbers) except label and weight.
    embedding : str, optional
        A column of lists of numbers, all of one length, instead of ``columns``; for ``.npz`` files the array to use.
    label, weight : str, optional
        The column (``.npz``: the array) of the labels and of the weights. For a folder of images any ``label`` means
        the folder below the root that an image is in.
    filesystem : pyarrow.fs.FileSystem, optional
        The file system that ``data`` is a path on.
    image_size : int, default 32
        Resize images to this many pixels in height and width.
    """
    wanted = Wanted(columns, embedding, label, weight)
    if sample_weight is not None or labels is not None:
        if _is_stored(data):
            raise InvalidInputError(
                "sample_weight and labels are for data in memory; name the columns of files with weight and label."
            )
        if (sample_weight is not None and weight) or (labels is not None and label):
            raise InvalidInputError(
                "give an array (sample_weight, labels) or a column (weight, label), not both."
            )
    if isinstance(data, Rows):
        return data
    rows = (
        _open_stored(data, wanted, filesystem, image_size)
        if _is_stored(data)
        else _open_memory(data, wanted, sample_weight, labels)
    )
    names = {"columns": None if columns is None else list(columns), "embedding": embedding, "label": label}
    rows.opened_with = {**names, "weight": weight, "image_size": image_size}
    return rows


def _is_stored(data: Any) -> bool:
    """Whether ``data`` names files, or is open already."""
    if isinstance(data, list | tuple):
        return bool(data) and all(isinstance(item, str | os.PathLike) for item in data)
    return isinstance(data, str | os.PathLike | Rows) or _is_dataset(data)


def _is_dataset(data: Any) -> bool:
    """Whether ``data`` is a FileSystemDataset of PyArrow."""
    return type(data).__module__.startswith("pyarrow") and hasattr(data, "files")


def _open_stored(data: Any, wanted: Wanted, filesystem: Any, image_size: int) -> Rows:
    if _is_dataset(data):
        return _table(list(data.files), data.filesystem, wanted, "dataset")
    if isinstance(data, str | os.PathLike):
        return _open_path(os.fspath(data), wanted, filesystem, image_size)
    paths = [os.fspath(item) for item in data]
    name = ", ".join(paths[:3]) + (" ..." if len(paths) > 3 else "")
    return _open_files(paths, wanted, filesystem, name, image_size)


def _open_memory(data: Any, wanted: Wanted, sample_weight: Any, labels: Any) -> ArrayRows:
    """Open a matrix or a frame; for a frame, with the columns that are wanted."""
    own = {str(name): name for name in column_names(data) or ()}  # pandas counts columns that have no names
    if not own:
        if not hasattr(data, "__len__") and not hasattr(data, "shape"):
            raise InvalidTypeError(
                f"data = {data!r:.60} must be a path, a list of paths, an array or a frame."
            )
        _refuse_columns(wanted, "X", also_label=True)
        return ArrayRows(data, sample_weight, labels)
    if wanted.embedding is not None:
        raise InvalidInputError(
            f"frame: embedding = {wanted.embedding!r} applies to files; name the columns."
        )
    for name in filter(None, (wanted.label, wanted.weight, *(wanted.columns or ()))):
        if name not in own:
            raise InvalidInputError(f"frame: no column {name!r}; there are {', '.join(map(repr, own))}.")
    chosen = list(wanted.columns or (name for name in own if name not in (wanted.label, wanted.weight)))
    if not chosen:
        raise InvalidInputError("frame: no columns of features.")
    if wanted.weight is not None:
        sample_weight = data[own[wanted.weight]].to_numpy()
    if wanted.label is not None:
        labels = np.asarray(data[own[wanted.label]].to_numpy())
        if labels.dtype == object:
            if any(value is None or value != value for value in labels):
                raise InvalidInputError(f"frame: the label column {wanted.label!r} has missing values.")
            labels = labels.astype(str)
    X = data if chosen == list(own) else take_columns(data, [own[name] for name in chosen])
    return ArrayRows(X, sample_weight, labels, names=chosen)


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
