"""Data sets that are small enough for memory, by name: MNIST, digits, forest cover types."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from .._errors import InvalidInputError
from .._npz import naming, read_arrays
from .fetch import Download, first_file
from .idx import read_idx
from .preparing import array_splits, channel_statistics, scaling_of, split_rows
from .splits import DatasetSplits

_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
MNIST_FILES = tuple(
    Download(file, tuple(mirror + file for mirror in _MIRRORS), checksum)
    for file, checksum in (
        ("train-images-idx3-ubyte.gz", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        ("train-labels-idx1-ubyte.gz", "md5:d53e105ee54ea40749a09fcbcd1e9432"),
        ("t10k-images-idx3-ubyte.gz", "md5:9fb629c4189551a2d022fa330f9573f3"),
        ("t10k-labels-idx1-ubyte.gz", "md5:ec29112dd5afa0611ce80d1b7f02629c"),
    )
)
COVTYPE_FILES = (
    Download(
        "covtype.data.gz",
        (
            "https://ndownloader.figshare.com/files/5976039",
            "https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz",
        ),
        "sha256:614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
    ),
)
_COVTYPE_COLUMNS, _COVTYPE_CLASSES = 54, 7
_MOST_BYTES = 1 << 30  # of a file, unpacked: more than ten times what is published
_LONGEST_LINE = 1 << 12
_COVTYPE_NAMES = (
    "Spruce/Fir",
    "Lodgepole Pine",
    "Ponderosa Pine",
    "Cottonwood/Willow",
    "Aspen",
    "Douglas-fir",
    "Krummholz",
)
_DIGIT_NAMES = tuple("0123456789")


def find_mnist(root: Path) -> dict[str, Path | None]:
    """The four files, under the names with which they are published; None for one that is missing."""
    folders = (root / "mnist", root / "MNIST" / "raw", root)
    names = [file.file for file in MNIST_FILES]
    return {name: first_file(folders, (name, name.removesuffix(".gz"))) for name in names}


def load_mnist(paths: list[Path]) -> DatasetSplits:
    """60,000 and 10,000 images of 28x28, from the four files in the order of ``MNIST_FILES``."""
    train, test = (_images_and_labels(images, labels) for images, labels in (paths[:2], paths[2:]))
    return array_splits(
        "mnist",
        train,
        test,
        "classification",
        n_classes=10,
        mean=(0.1307,),
        std=(0.3081,),
        class_names=_DIGIT_NAMES,
        preparation="the published training and test parts",
    )


def _images_and_labels(images_path: Path, labels_path: Path) -> tuple[np.ndarray, np.ndarray]:
    images, labels = (read_idx(path, max_bytes=_MOST_BYTES) for path in (images_path, labels_path))
    if images.dtype != np.uint8 or images.shape[1:] != (28, 28):
        raise InvalidInputError(
            f"{images_path}: bytes of shape (n, 28, 28) are needed, this is {images.dtype} {images.shape}"
        )
    if labels.dtype != np.uint8 or labels.ndim != 1:
        raise InvalidInputError(
            f"{labels_path}: one byte per image is needed, this is {labels.dtype} {labels.shape}"
        )
    if len(images) != len(labels) or len(images) == 0:
        raise InvalidInputError(
            f"{labels_path}: {len(labels)} labels, but {images_path} has {len(images)} images"
        )
    if labels.max() > 9:
        raise InvalidInputError(f"{labels_path}: the label {labels.max()}; digits are 0 to 9")
    return images[:, None], labels.astype(np.int64)


def load_digits_splits(test_fraction: float, seed: int) -> DatasetSplits:
    """1,797 images of 8x8, which come with scikit-learn, as bytes of 28x28."""
    from scipy.ndimage import zoom
    from sklearn.datasets import load_digits

    digits = load_digits()
    large = zoom(
        digits.images, (1, 3.5, 3.5), order=1, mode="nearest", grid_mode=True
    )  # (n, 28, 28), 0 to 16
    x, y = np.rint(large * (255 / 16)).astype(np.uint8)[:, None], digits.target.astype(np.int64)
    train, test = split_rows(y, "classification", test_fraction, seed, "digits")
    mean, std = channel_statistics(x[train])
    return array_splits(
        "digits",
        (x[train], y[train]),
        (x[test], y[test]),
        "classification",
        n_classes=10,
        mean=mean,
        std=std,
        class_names=_DIGIT_NAMES,
        preparation=f"resized from 8x8 linearly; {test_fraction:.0%} of each class are the test part (seed {seed})",
    )


def find_covtype(root: Path) -> Path | None:
    """A file ``covtype*.npz``, the published table, or scikit-learn's cache; None if there is none of them."""
    folders = [root / "covtype", root]
    found = [path for folder in folders for path in sorted(folder.glob("covtype*.npz"))]
    if len(found) > 1:
        raise InvalidInputError(
            f"{found[0]} and {found[1].name}: one file covtype*.npz is needed, not {len(found)}"
        )
    if path := found[0] if found else first_file(folders, ("covtype.data.gz", "covtype.data")):
        return path
    return cache if (cache := sklearn_cache()).is_file() else None


def sklearn_cache() -> Path:
    """Where scikit-learn's ``fetch_covtype`` keeps what it has fetched."""
    home = os.environ.get("SCIKIT_LEARN_DATA", str(Path.home() / "scikit_learn_data"))
    return Path(home).expanduser() / "covertype" / "samples_py3"


def read_covtype(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows of 54 numbers, as they are stored, and labels from 1 to 7, from a file of :func:`find_covtype`."""
    X, labels = _covtype_arrays(path)
    if X.ndim != 2 or X.shape[1] != _COVTYPE_COLUMNS or X.dtype.kind not in "iuf":
        raise InvalidInputError(
            f"{path}: X has shape {X.shape} and type {X.dtype}; {_COVTYPE_COLUMNS} columns of numbers are needed"
        )
    if labels.shape != (len(X),) or not np.isin(labels, np.arange(1, _COVTYPE_CLASSES + 1)).all():
        raise InvalidInputError(
            f"{path}: y must be one number from 1 to {_COVTYPE_CLASSES} for each of {len(X)} rows"
        )
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        raise InvalidInputError(f"{path}: X holds numbers that are not finite")
    return X, labels


def load_covtype(path: Path, test_fraction: float, seed: int) -> DatasetSplits:
    """Rows of 54 standardised numbers, seven classes."""
    X, labels = read_covtype(path)
    y = labels.astype(np.int64) - 1
    train, test = split_rows(y, "classification", test_fraction, seed, str(path))
    scaling = scaling_of(X[train])
    return array_splits(
        "covtype",
        (scaling(X[train]), y[train]),
        (scaling(X[test]), y[test]),
        "classification",
        n_classes=_COVTYPE_CLASSES,
        class_names=_COVTYPE_NAMES,
        scaling=scaling,
        preparation=f"{len(X):,} rows; {test_fraction:.0%} of each class are the test part (seed {seed}); columns "
        "standardised with mean and deviation of the training part",
    )


def _covtype_arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    if path == sklearn_cache():
        from sklearn.datasets import fetch_covtype

        try:
            cached = fetch_covtype(download_if_missing=False)
        except Exception as error:  # whatever a damaged cache makes joblib raise
            raise InvalidInputError(f"{path}, scikit-learn's cache: cannot be read ({error})") from error
        return cached.data, cached.target
    if path.suffix == ".npz":
        X, y = read_arrays(path, "X", "y")
        return X, y
    with naming(path, "not a table of integers, or damaged"):
        opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as file:
            table = np.loadtxt(_lines(file), delimiter=",", dtype=np.int16, ndmin=2)
        if table.size == 0:
            raise ValueError("it is empty")
    return table[:, :-1], table[:, -1]


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a text file, none of them endless, nor all of them together."""
    total = 0
    while line := file.readline(_LONGEST_LINE):
        total += len(line)
        if len(line) == _LONGEST_LINE or total > _MOST_BYTES:
            raise ValueError("a line, or the file, is too long")
        yield line
