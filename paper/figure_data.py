"""Data sets as matrices, for the figures: some random rows, and a phrase that says how they were prepared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coresift.data import ArrayDataset, load_dataset
from coresift.data.datasets import find_dataset
from coresift.data.standard import read_covtype


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of a data set, and how they were prepared."""

    name: str
    title: str
    X: np.ndarray
    preparation: str
    """Which rows, and what was done to the columns, as a phrase."""


def load_matrix(name: str, data_dir: Path | None, max_rows: int, rng: np.random.Generator) -> Dataset:
    """At most ``max_rows`` rows of digits, of the training images of mnist, or of covtype, without replacement."""
    return prepare(name, _READERS[name](data_dir), max_rows, rng)


def prepare(name: str, rows: np.ndarray, max_rows: int, rng: np.random.Generator) -> Dataset:
    """Random rows, with the columns that the figures of this data set use."""
    title, columns = _COLUMNS[name]
    which = f"all {len(rows):,} rows"
    if len(rows) > max_rows:
        which = f"{max_rows:,} random rows of {len(rows):,}"
        rows = rows[np.sort(rng.choice(len(rows), max_rows, replace=False))]
    X, how = columns(rows)
    return Dataset(name, title, X, f"{which}; {how}")


def _read_digits(_: Path | None) -> np.ndarray:
    from sklearn.datasets import load_digits  # as published: the training set is enlarged to 28x28

    return np.asarray(load_digits().data, dtype=np.float64)


def _read_mnist(data_dir: Path | None) -> np.ndarray:
    train = load_dataset("mnist", data_dir).train
    assert isinstance(train, ArrayDataset)
    return train.x.reshape(len(train), -1)


def _read_covtype(data_dir: Path | None) -> np.ndarray:
    return read_covtype(find_dataset("covtype", data_dir)[0])[0]  # in the order of the file, without a split


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


_READERS: dict[str, Callable[[Path | None], np.ndarray]] = {
    "digits": _read_digits,
    "mnist": _read_mnist,
    "covtype": _read_covtype,
}
_COLUMNS: dict[str, tuple[str, Callable[[np.ndarray], tuple[np.ndarray, str]]]] = {
    "digits": ("Digits", _as_they_are),
    "mnist": ("MNIST", _pixels),
    "covtype": ("CovType", _standardised),
}
NAMES = tuple(_READERS)
