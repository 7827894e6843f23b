"""Open what a user names: a matrix, a frame, a file, a folder, a pattern, an address, an Arrow data set."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from .._errors import InvalidInputError, InvalidTypeError
from .._imports import Late
from .._progress import OnPass
from .._validation import as_numpy, check_choice, check_instance
from .arrays import ArrayRows, NpyRows, open_npz
from .columns import Wanted, as_table, column_names, pa
from .images import DEFAULT_SIZE, SUFFIXES, ImageRows
from .rows import Rows
from .tables import CsvRows, FeatherRows, FrameRows, ParquetRows, TableRows

if TYPE_CHECKING:
    from .preparation import Preparation

fs: Any = Late("pyarrow.fs", "io", "a table")

_TABLES: dict[str, type[TableRows]] = {
    **dict.fromkeys((".parquet", ".pq"), ParquetRows),
    **dict.fromkeys((".feather", ".arrow"), FeatherRows),
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz"), CsvRows),
}
TABLES = tuple(_TABLES)
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
    preparation: Preparation | str | None = None,
    filesystem: Any = None,
    image_size: int = DEFAULT_SIZE,
    engine: str = "local",
    workers: int = 1,
    on_pass: OnPass | None = None,
) -> Rows:
    """Open rows of data. Files are not read yet, unless a preparation is learnt from them.

    Parameters
    ----------
    data : array-like, sparse matrix, frame, path, pattern, address, list of paths, pyarrow Dataset or Rows
        In memory: anything that NumPy, SciPy, pandas, Polars, PyArrow or PyTorch keep numbers in. On disk: ``.npy``,
        ``.npz``, ``.csv`` and ``.tsv`` (with a header, also ``.gz``), ``.parquet`` and ``.feather`` files; a folder or
        a pattern of files of one kind, where folders called ``name=value`` are columns; a folder of images; an address
        that PyArrow's file systems know (``"s3://bucket/folder"``). Files are read in the order of their names.
    sample_weight, labels, targets : array-like of shape (n,), optional
        Weights, labels of classes and numbers to predict, of rows in memory.
    columns, embedding : sequence of str, str, optional
        The feature columns of a table, by default all that can be read except label, weight and target; or a column of
        lists of numbers, all of one length (``.npz``: the array to use).
    label, weight, target : str, optional
        The column (``.npz``: the array) of the labels, of the weights, and of the numbers that a regression predicts.
        For a folder of images any ``label`` means the folder below the root that an image is in.
    preparation : None, "auto" or Preparation
        Turn columns of any type into standardised numbers; see :class:`coresift.Preparation`. None, the default here,
        takes numbers as they are and refuses missing ones; "auto" prepares tables, but not arrays or embeddings. One
        that is not fitted is learnt in a pass over the rows.
    filesystem : pyarrow.fs.FileSystem, optional
        The file system that ``data`` is a path on.
    image_size : int, default 32
        Height and width, in pixels, to which images are resized.
    engine, workers, on_pass
        Who learns a preparation, and who is told; see :func:`coresift.select`.

    Returns
    -------
    Rows
        What :func:`coresift.select` and the ``fit`` of every estimator take.

    Examples
    --------
    >>> rows = open_rows([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> rows.n, rows.d
    (3, 2)
    """
    is_prepared = preparation is not None and embedding is None
    if isinstance(preparation, str):
        check_choice(preparation, "preparation", ("auto",))
    wanted = Wanted(columns, embedding, label, weight, target, is_prepared)
    given = {"weight": sample_weight, "label": labels, "target": targets}
    if _is_stored(data):
        if any(values is not None for values in given.values()):
            text = "sample_weight, labels and targets are for data in memory"
            raise InvalidInputError(f"{text}; name the columns of files with weight, label and target.")
        if isinstance(data, Rows):
            return data if preparation is None or isinstance(preparation, str) else _prepared(data, preparation)
        rows = open_wanted(data, wanted, filesystem, image_size)
    else:
        if any(values is not None and getattr(wanted, name) for name, values in given.items()):
            raise InvalidInputError("give sample_weight or weight, labels or label, and targets or target, not both.")
        rows = _open_memory(data, wanted, given)
    names = {"embedding": embedding, "label": label, "weight": weight, "target": target, "image_size": image_size}
    rows.opened_as = rows.fingerprints()
    rows.opened_with = {"columns": None if columns is None else list(columns), **names}
    if not is_prepared or (isinstance(preparation, str) and rows.is_dense):
        return rows
    return _prepared(rows, preparation, columns, engine=engine, workers=workers, on_pass=on_pass)


def _prepared(rows: Rows, preparation: Any, columns: Sequence[str] | None = None, **learning: Any) -> Rows:
    from .table_features import PreparedRows, TableFeatures

    if isinstance(preparation, str):
        made = TableFeatures()
    else:
        from sklearn.base import clone

        from .preparation import Preparation

        made = check_instance(preparation, "preparation", Preparation)
        made = made if hasattr(made, "columns_") else clone(made)
    if not hasattr(made, "columns_"):
        made.columns = made.columns if columns is None else list(columns)
        made.learn(rows, **learning)
    return PreparedRows(rows, made)


def suffix_of(path: str | os.PathLike[str]) -> str:
    """The suffix that tells the kind of a file: ``.csv.gz`` counts as one."""
    name = os.fspath(path).lower()
    return Path(name.removesuffix(".gz")).suffix + (".gz" if name.endswith(".gz") else "")


def _is_stored(data: Any) -> bool:
    if isinstance(data, list | tuple):
        return bool(data) and all(isinstance(item, str | os.PathLike) for item in data)
    is_dataset = type(data).__module__.startswith("pyarrow") and hasattr(data, "files")
    return is_dataset or isinstance(data, str | os.PathLike | Rows)


def open_wanted(data: Any, wanted: Wanted, filesystem: Any = None, image_size: int = DEFAULT_SIZE) -> Rows:
    """Open a frame or stored data, as they are."""
    if not _is_stored(data):
        return _open_memory(data, wanted, {})
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
    if glob.has_magic(path) and not os.path.exists(path) and not (paths := sorted(glob.glob(path, recursive=True))):
        raise InvalidInputError(f"{path}: no file matches.")
    return _open_files(paths, wanted, path, image_size)


def _open_memory(data: Any, wanted: Wanted, given: dict[str, Any]) -> Rows:
    if not hasattr(data, "__len__") and not hasattr(data, "shape"):
        raise InvalidTypeError(f"data = {data!r:.60} must be a path, a list of paths, an array or a frame.")
    if column_names(data) is None:
        _refuse_columns(wanted, "X", also_label=True)
        return ArrayRows(data, given.get("weight"), given.get("label"), targets=given.get("target"))
    if wanted.embedding is not None and not hasattr(data, "column_names"):
        raise InvalidInputError(f"frame: embedding = {wanted.embedding!r} is for files; name the columns.")
    table, beside = as_table(data), dict[str, Any]()
    for name, values in given.items():
        if values is not None:
            own = as_numpy(values)
            if own.shape != (table.num_rows,):
                raise InvalidInputError(f"frame: {table.num_rows} rows, but {name}s of shape {own.shape}.")
            beside[name] = f"{name} (given)"
            table = table.append_column(beside[name], [own])
    return FrameRows(table, replace(wanted, **beside))


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


def find_images(folder: str) -> list[str]:
    """All images below a folder, in the order of their paths."""
    return [file for file in files_below(folder) if Path(file).suffix.lower() in SUFFIXES]


def _data_below(folder: str) -> list[str]:
    images = find_images(folder)
    data = [file for file in files_below(folder) if suffix_of(file) in (*_TABLES, ".npy")]
    if images and data:
        text = f"the folder holds images ({Path(images[0]).name}) and tables ({Path(data[0]).name})"
        raise InvalidInputError(f"{folder}: {text}; name one kind, as in 'folder/*.csv'.")
    if not images and not data:
        raise InvalidInputError(f"{folder}: the folder holds no file that ends in {', '.join(_KNOWN)}.")
    return images or data


def _open_files(paths: list[str], wanted: Wanted, name: str, image_size: int, root: str | None = None) -> Rows:
    if missing := [path for path in paths if not os.path.exists(path)]:
        raise InvalidInputError(f"{missing[0]}: no such file or folder.")
    kinds = sorted({suffix_of(path) for path in paths})
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
        return _table(fs.LocalFileSystem(), paths, wanted, name)
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
    kinds = {suffix_of(path) for path in paths}
    kind = kinds.pop() if len(kinds) == 1 else ".parquet" if ".parquet" in kinds else None
    if kind not in _TABLES:
        raise InvalidInputError(f"{name}: no file that ends in {', '.join(_TABLES)}.")
    return _TABLES[kind]([path for path in paths if suffix_of(path) == kind], filesystem, wanted, name)


def _remote_files(address: str, filesystem: Any) -> tuple[Any, list[str]]:
    """The file system of an address, and the tables that it names: itself, those of a folder or of a pattern."""
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
        and suffix_of(item.path) in _TABLES
        and not is_hidden(PurePosixPath(item.path.removeprefix(head).lstrip("/")).parts)
        and (not pattern or fnmatch(item.path, head + pattern))
    )
    if not files:
        raise InvalidInputError(f"{address}: no file there ends in {', '.join(_TABLES)}.")
    return base, files
