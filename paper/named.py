"""Data sets by name, as matrices of features: what was done to them is said beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coresift._errors import InvalidInputError
from coresift._npz import read_arrays
from coresift.data.idx import read_idx

_COVTYPE_COLUMNS = 54


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of a data set, and how they were made."""

    name: str
    title: str
    X: np.ndarray
    preparation: str
    """Which rows, and what was done to the columns, as a phrase."""


def load_named(name: str, data_dir: Path | None, max_rows: int, rng: np.random.Generator) -> Dataset:
    """The data set ``name``, at most ``max_rows`` of its rows, drawn without replacement.

    ``digits`` is embedded in scikit-learn. ``mnist`` is read from the training images in the folder ``mnist`` of
    ``data_dir``, ``covtype`` from a file ``covtype*.npz`` (array ``X`` of 54 columns) in the folder ``covtype``.
    """
    source = _source(name)
    return _prepared(name, source.read(find_file(name, data_dir)), max_rows, rng)


def load_file(name: str, path: Path | None, max_rows: int, rng: np.random.Generator) -> Dataset:
    """The data set ``name`` from the file at ``path``, or fetched by scikit-learn (and kept by it) if there is none."""
    source = _source(name)
    if path is not None:
        if not path.is_file():
            raise InvalidInputError(f"{path}: no such file")
        return _prepared(name, source.read(path), max_rows, rng)
    if source.fetch is None:
        raise InvalidInputError(f"the data set {name!r} is read from a file; none was given")
    return _prepared(name, source.fetch(), max_rows, rng)


def _prepared(name: str, rows: np.ndarray, max_rows: int, rng: np.random.Generator) -> Dataset:
    source = _source(name)
    which = f"all {len(rows):,} rows"
    if len(rows) > max_rows:
        which = f"{max_rows:,} random rows of {len(rows):,}"
        rows = rows[np.sort(rng.choice(len(rows), max_rows, replace=False))]
    X, how = source.prepare(rows)
    return Dataset(name, source.title, X, f"{which}; {how}")


def find_file(name: str, data_dir: Path | None) -> Path:
    """The file that holds a data set, without reading it; an empty path for an embedded one."""
    source = _source(name)
    if source.locate is None:
        return Path()
    if data_dir is None:
        raise InvalidInputError(
            f"the data set {name!r} is read from files and needs a data folder; none was given"
        )
    for place in (data_dir, data_dir / name):
        if not place.is_dir():
            raise InvalidInputError(f"{place}: no such folder; the data set {name!r} is looked for there")
    return source.locate(data_dir / name)


@dataclass(frozen=True)
class _Source:
    title: str
    locate: Callable[[Path], Path] | None  # from the folder of the data set; None where it is embedded
    read: Callable[[Path], np.ndarray]
    prepare: Callable[[np.ndarray], tuple[np.ndarray, str]]
    fetch: Callable[[], np.ndarray] | None = None  # where scikit-learn can get it


def _source(name: str) -> _Source:
    try:
        return _SOURCES[name]
    except KeyError:
        raise InvalidInputError(f"the data set {name!r} is not one of {', '.join(NAMES)}") from None


def _mnist_file(folder: Path) -> Path:
    names = ("train-images-idx3-ubyte.gz", "train-images-idx3-ubyte")
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise InvalidInputError(f"{folder / names[0]}: no such file")


def _covtype_file(folder: Path) -> Path:
    found = sorted(folder.glob("covtype*.npz"))
    if len(found) != 1:
        raise InvalidInputError(f"{folder}: one file covtype*.npz is needed there, {len(found)} found")
    return found[0]


def _read_digits(_: Path) -> np.ndarray:
    from sklearn.datasets import load_digits

    return np.asarray(load_digits().data, dtype=np.float64)


def _read_mnist(path: Path) -> np.ndarray:
    images = read_idx(path)
    if images.ndim != 3 or images.dtype != np.uint8:
        raise InvalidInputError(
            f"{path}: images are bytes in three dimensions, these are {images.dtype} in {images.ndim}"
        )
    return images.reshape(len(images), -1)


def _read_covtype(path: Path) -> np.ndarray:
    (rows,) = read_arrays(path, "X")
    if rows.ndim != 2 or rows.shape[1] != _COVTYPE_COLUMNS or rows.dtype.kind not in "iuf":
        raise InvalidInputError(
            f"{path}: X has shape {rows.shape} and type {rows.dtype}; {_COVTYPE_COLUMNS} columns of numbers are needed"
        )
    return rows


def _fetch_covtype() -> np.ndarray:
    from sklearn.datasets import fetch_covtype

    return np.asarray(fetch_covtype().data)


def _as_they_are(rows: np.ndarray) -> tuple[np.ndarray, str]:
    return rows, "columns as they are"


def _pixels(rows: np.ndarray) -> tuple[np.ndarray, str]:
    return rows / 255.0, "pixels over 255"


def _standardised(rows: np.ndarray) -> tuple[np.ndarray, str]:
    X = rows.astype(np.float64)
    X = X[:, X.min(axis=0) < X.max(axis=0)]
    dropped = rows.shape[1] - X.shape[1]
    how = "columns to mean 0 and deviation 1" + (f", {dropped} constant ones left out" if dropped else "")
    return (X - X.mean(axis=0)) / X.std(axis=0), how


_SOURCES = {
    "digits": _Source("Digits", None, _read_digits, _as_they_are),
    "mnist": _Source("MNIST", _mnist_file, _read_mnist, _pixels),
    "covtype": _Source("CovType", _covtype_file, _read_covtype, _standardised, _fetch_covtype),
}
NAMES = tuple(_SOURCES)
