"""Open what a user names: a matrix, a frame, a file, a folder, a pattern, an address, an Arrow data set."""

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
from .images import DEFAULT_SIZE, SUFFIXES, ImageRows, find_images
from .rows import Rows, files_below, is_hidden
from .tables import CsvRows, ParquetRows, TableRows, Wanted, need_pyarrow

_TABLES: dict[str, type[TableRows]] = {".parquet": ParquetRows, ".pq": ParquetRows, ".csv": CsvRows}
_KNOWN = (*_TABLES, ".npy", ".npz", *SUFFIXES)


def open_rows(
    data: Any,
    *,
    sample_weight: Any = None,
    labels: Any = None,
    targets: Any = None,
    columns: Sequence[str] | None = None,
    embedding: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    target: str | None = None,
    training: bool = False,
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
    sample_weight, labels, targets : array-like of shape (n,), optional
        Weights, labels of classes and numbers to predict, of rows in memory.
    columns : sequence of str, optional
        The feature columns of a table. Default: all columns of floats (CSV: of numbers) except label and weight.
    embedding : str, optional
        A column of lists of numbers, all of one length, instead of ``columns``; for ``.npz`` files the array to use.
    label, weight : str, optional
        The column (``.npz``: the array) of the labels and of the weights. For a folder of images any ``label`` means
        the folder below the root that an image is in.
    target : str, optional
        The column of the numbers that a regression predicts.
    training : bool, default False
        Read tables as training data: columns of integers are features too, and labels may be floats.
    filesystem : pyarrow.fs.FileSystem, optional
        The file system that ``data`` is a path on.
    image_size : int, default 32
        Resize images to this many pixels in height and width.
    """
    wanted = Wanted(columns, embedding, label, weight, target, training)
    given = {"weight": sample_weight, "label": labels, "target": targets}
    if _is_stored(data):
        if any(values is not None for values in given.values()):
            raise InvalidInputError(
                "sample_weight, labels and targets are for data in memory; name the columns of files with weight, "
                "label and target."
            )
        if isinstance(data, Rows):
            return data
        rows = _open_stored(data, wanted, filesystem, image_size)
    else:
        if any(values is not None and getattr(wanted, name) for name, values in given.items()):
            raise InvalidInputError("give sample_weight or weight, labels or label, and targets or target, not both.")
        rows = _open_memory(data, wanted, sample_weight, labels, targets)
    names = {"columns": None if columns is None else list(columns), "embedding": embedding, "label": label}
    rows.opened_with = {**names, "weight": weight, "target": target, "image_size": image_size}
    return rows


def _is_stored(data: Any) -> bool:
    if isinstance(data, list | tuple):
        return bool(data) and all(isinstance(item, str | os.PathLike) for item in data)
    is_dataset = type(data).__module__.startswith("pyarrow") and hasattr(data, "files")
    return is_dataset or isinstance(data, str | os.PathLike | Rows)


def _open_stored(data: Any, wanted: Wanted, filesystem: Any, image_size: int) -> Rows:
    if hasattr(data, "files"):
        return _table(data.filesystem, list(data.files), wanted, "dataset")
    if not isinstance(data, str | os.PathLike):
        paths = [os.fspath(item) for item in data]
        name = ", ".join(paths[:3]) + (" ..." if len(paths) > 3 else "")
        if filesystem is not None:
            return _table(filesystem, paths, wanted, name)
        return _open_files(paths, wanted, name, image_size)
    path = os.fspath(data)
    if filesystem is not None or "://" in path:
        return _table(*_remote_files(path, filesystem), wanted, path)
    if os.path.isdir(path):
        return _open_files(_data_below(path), wanted, path, image_size, root=path)
    paths = [path]
    if glob.has_magic(path) and not os.path.exists(path):
        paths = sorted(glob.glob(path, recursive=True))
        if not paths:
            raise InvalidInputError(f"{path}: no file matches.")
    return _open_files(paths, wanted, path, image_size)


def _open_memory(data: Any, wanted: Wanted, sample_weight: Any, labels: Any, targets: Any) -> ArrayRows:
    names = [str(name) for name in column_names(data) or ()]  # pandas counts columns that have no names
    if not hasattr(data, "__len__") and not hasattr(data, "shape"):
        raise InvalidTypeError(f"data = {data!r:.60} must be a path, a list of paths, an array or a frame.")
    if not names:
        _refuse_columns(wanted, "X", also_label=True)
    if not wanted.all:
        return ArrayRows(data, sample_weight, labels, names=names or None, targets=targets)
    if wanted.embedding is not None:
        raise InvalidInputError(f"frame: embedding = {wanted.embedding!r} is for files; name the columns.")
    own = dict(zip(names, column_names(data) or (), strict=True))
    if missing := [name for name in wanted.all if name not in own]:
        raise InvalidInputError(f"frame: no column {missing[0]!r}; there are {', '.join(map(repr, own))}.")
    chosen = list(wanted.columns or (name for name in own if name not in wanted.others))
    if not chosen:
        raise InvalidInputError("frame: no columns of features.")
    if wanted.weight is not None:
        sample_weight = data[own[wanted.weight]].to_numpy()
    if wanted.target is not None:
        targets = data[own[wanted.target]].to_numpy()
    if wanted.label is not None:
        labels = np.asarray(data[own[wanted.label]].to_numpy())
        if labels.dtype == object:
            if any(value is None or value != value for value in labels):
                raise InvalidInputError(f"frame: the label column {wanted.label!r} has missing values.")
            labels = labels.astype(str)
    X = take_columns(data, [own[name] for name in chosen])
    return ArrayRows(X, sample_weight, labels, names=chosen, targets=targets)


def _data_below(folder: str) -> list[str]:
    images = find_images(folder)
    data = [file for file in files_below(folder) if Path(file).suffix.lower() in (*_TABLES, ".npy")]
    if images and data:
        raise InvalidInputError(
            f"{folder}: the folder holds images ({Path(images[0]).name}) and tables ({Path(data[0]).name}); name one "
            "kind, as in 'folder/*.csv'."
        )
    if not images and not data:
        raise InvalidInputError(f"{folder}: the folder holds no file that ends in {', '.join(_KNOWN)}.")
    return images or data


def _open_files(paths: list[str], wanted: Wanted, name: str, image_size: int, root: str | None = None) -> Rows:
    if missing := [path for path in paths if not os.path.exists(path)]:
        raise InvalidInputError(f"{missing[0]}: no such file or folder.")
    kinds = sorted({Path(path).suffix.lower() for path in paths})
    if all(kind in SUFFIXES for kind in kinds):
        _refuse_columns(wanted, name)
        if root is None:
            paths = [os.path.abspath(path) for path in paths]
            root = os.path.commonpath([os.path.dirname(path) for path in paths])
        return ImageRows(paths, root, name, image_size, wanted.label is not None)
    if len(kinds) > 1:
        raise InvalidInputError(f"{name}: files of different kinds, {' and '.join(kinds)}; name one kind.")
    kind = kinds[0]
    if kind in _TABLES:
        need_pyarrow()
        from pyarrow.fs import LocalFileSystem

        return _table(LocalFileSystem(), paths, wanted, name)
    if kind == ".npy":
        _refuse_columns(wanted, name, also_label=True)
        return NpyRows(paths, name)
    if kind != ".npz":
        raise InvalidInputError(f"{name}: unknown kind of file {kind!r}; known are {', '.join(_KNOWN)}.")
    if len(paths) > 1:
        raise InvalidInputError(f"{name}: only one .npz file can be read; .npy files can be many.")
    if wanted.columns is not None:
        raise InvalidInputError(f"{name}: arrays have no named columns; use --embedding to name the array.")
    return open_npz(Path(paths[0]), wanted.embedding, *wanted.others)


def _refuse_columns(wanted: Wanted, name: str, *, also_label: bool = False) -> None:
    names = [wanted.columns, wanted.embedding, wanted.weight, wanted.target, wanted.label if also_label else None]
    if any(name is not None for name in names):
        raise InvalidInputError(f"{name}: no named columns; columns, embedding, label, weight and target do not apply.")


def _table(filesystem: Any, paths: list[str], wanted: Wanted, name: str) -> Rows:
    """Rows of tables on a file system of PyArrow: of Parquet files, if there are other files beside them."""
    kinds = {PurePosixPath(path).suffix.lower() for path in paths}
    kind = kinds.pop() if len(kinds) == 1 else ".parquet" if ".parquet" in kinds else None
    if kind not in _TABLES:
        raise InvalidInputError(f"{name}: no file that ends in {', '.join(_TABLES)}.")
    chosen = [path for path in paths if PurePosixPath(path).suffix.lower() == kind]
    return _TABLES[kind](chosen, filesystem, wanted, name)


def _remote_files(address: str, filesystem: Any) -> tuple[Any, list[str]]:
    """The file system of an address, and the tables that it names: itself, those of a folder or of a pattern."""
    pa = need_pyarrow("an address")
    from pyarrow import fs

    head, pattern = address, ""
    while glob.has_magic(head):  # a pattern is not part of an address, but what is above it is
        head, _, last = head.rpartition("/")
        pattern = f"/{last}{pattern}"
    try:
        base, head = (filesystem, head) if filesystem is not None else fs.FileSystem.from_uri(head)
        info = base.get_file_info(head)
        if info.type == fs.FileType.NotFound:
            raise InvalidInputError(f"{address}: no such file or folder.")
        if info.type == fs.FileType.File:
            return base, [head]
        below = base.get_file_info(fs.FileSelector(head, recursive=True))
    except (pa.ArrowException, OSError) as error:
        raise InvalidInputError(f"{address}: cannot be reached ({error})") from error
    files = sorted(
        item.path
        for item in below
        if item.type == fs.FileType.File
        and PurePosixPath(item.path).suffix.lower() in _TABLES
        and not is_hidden(PurePosixPath(item.path.removeprefix(head).lstrip("/")).parts)
        and (not pattern or fnmatch(item.path, head + pattern))
    )
    if not files:
        raise InvalidInputError(f"{address}: no file there ends in {', '.join(_TABLES)}.")
    return base, files
