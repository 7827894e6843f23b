"""Named data sets that fit in memory: MNIST in its IDX files, digits, forest cover types."""

import gzip
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from .._errors import InvalidInputError
from .._npz import MOST_DEFLATED, read_arrays
from .._validation import naming
from .fetch import Download, first_file
from .splits import DatasetSplits, Pair, array_splits
from .user_sets import Options, from_arrays

_MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
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
_COVTYPE_COLUMNS = 54
_TREES = "Spruce/Fir, Lodgepole Pine, Ponderosa Pine, Cottonwood/Willow, Aspen, Douglas-fir, Krummholz"
_COVTYPE_NAMES = tuple(_TREES.split(", "))
_DIGIT_NAMES = tuple("0123456789")
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MOST_BYTES = 1 << 30  # of an unpacked file: more than ten times what is published
_LONGEST_LINE = 1 << 12
_PIECE = 1 << 24  # bytes


def find_mnist(root: Path) -> tuple[list[Path], list[str]]:
    """Those of the four published files that are there, and the names of the missing ones."""
    folders = (root / "mnist", root / "MNIST" / "raw", root)
    names = [file.file for file in MNIST_FILES]
    found = {name: first_file(folders, (name, name.removesuffix(".gz"))) for name in names}
    return [path for path in found.values() if path], [name for name, path in found.items() if not path]


def load_mnist(paths: list[Path], _: Options) -> DatasetSplits:
    """60,000 and 10,000 images of 28x28, from the four files in the order of ``MNIST_FILES``."""
    train, test = (_images_and_labels(images, labels) for images, labels in (paths[:2], paths[2:]))
    return array_splits("mnist", train, test, mean=(0.1307,), std=(0.3081,), class_names=_DIGIT_NAMES)


def _images_and_labels(images: Path, labels: Path) -> Pair:
    x, y = (read_idx(path, max_bytes=_MOST_BYTES) for path in (images, labels))
    if x.dtype != np.uint8 or x.shape[1:] != (28, 28):
        raise InvalidInputError(f"{images}: {x.dtype} of shape {x.shape}; bytes (n, 28, 28) are needed")
    if y.dtype != np.uint8 or y.ndim != 1:
        raise InvalidInputError(f"{labels}: {y.dtype} of shape {y.shape}; one byte per image is needed")
    if len(x) != len(y) or len(x) == 0:
        raise InvalidInputError(f"{labels}: {len(y)} labels, but {images} has {len(x)} images")
    if y.max() > 9:
        raise InvalidInputError(f"{labels}: the label {y.max()}; digits are 0 to 9")
    return x[:, None], y.astype(np.int64)


def read_idx(path: str | Path, *, max_bytes: int | None = None) -> np.ndarray:
    """Read an array in the IDX format of MNIST; a name that ends in ``.gz`` is decompressed.

    Two zero bytes, a byte for the type, a byte for the number of dimensions, the dimensions as big-endian 32-bit
    integers, then the entries in C order, big-endian as well. An `InvalidInputError` names a file that is missing, not
    IDX, cut off, longer than it says, or larger than ``max_bytes``.
    """
    path = Path(path)
    with naming(path, "damaged or cut off"), _opened(path) as file:
        magic = file.read(4)
        if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _IDX_TYPES or magic[3] == 0:
            raise InvalidInputError(f"not an IDX file: it begins with {magic.hex(' ') or 'nothing'}")
        dtype, n_dimensions = np.dtype(_IDX_TYPES[magic[2]]), magic[3]
        header = file.read(4 * n_dimensions)
        if len(header) < 4 * n_dimensions:
            raise InvalidInputError("cut off within its header")
        shape = tuple(int(size) for size in np.frombuffer(header, ">u4"))
        expected = math.prod(shape) * dtype.itemsize
        announced = f"its header announces {shape} entries, {expected:,} bytes"
        unpacked = [os.stat(path).st_size * MOST_DEFLATED] if path.suffix == ".gz" else []
        most = min([*unpacked, math.inf if max_bytes is None else max_bytes])
        if expected > most:
            raise InvalidInputError(f"{announced}, but at most {most:,} can follow")
        body = bytearray()  # piece by piece: less may be there than announced, and one byte more is too long
        while piece := file.read(min(expected + 1 - len(body), _PIECE)):
            body += piece
        if len(body) != expected:
            found = f"{len(body):,}" if len(body) < expected else "more"
            raise InvalidInputError(f"{announced}, but {found} follow")
        return np.frombuffer(body, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def _opened(path: Path) -> IO[bytes]:
    opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    file: IO[bytes] = opener(path, "rb")
    return file


def load_digits_splits(_: list[Path], options: Options) -> DatasetSplits:
    """1,797 images of 8x8, which come with scikit-learn, as bytes of 28x28."""
    from scipy.ndimage import zoom
    from sklearn.datasets import load_digits

    digits = load_digits()
    large = zoom(digits.images, (1, 3.5, 3.5), order=1, mode="nearest", grid_mode=True)  # 0 to 16
    x = np.rint(large * (255 / 16)).astype(np.uint8)
    notes = ("resized from 8x8 linearly",)
    return from_arrays("digits", (x, digits.target), None, options, _DIGIT_NAMES, notes)


def find_covtype(root: Path) -> tuple[list[Path], list[str]]:
    """A file ``covtype*.npz``, the published table or scikit-learn's cache; else the name of what is missing."""
    folders = [root / "covtype", root]
    found = [path for folder in folders for path in sorted(folder.glob("covtype*.npz"))]
    if len(found) > 1:
        raise InvalidInputError(f"{found[0].parent}: one file covtype*.npz is needed, not {len(found)}")
    table = first_file(folders, ("covtype.data.gz", "covtype.data"))
    for path in (*found, table, _sklearn_cache()):
        if path is not None and path.is_file():
            return [path], []
    return [], [COVTYPE_FILES[0].file]


def _sklearn_cache() -> Path:
    home = os.environ.get("SCIKIT_LEARN_DATA", str(Path.home() / "scikit_learn_data"))
    return Path(home).expanduser() / "covertype" / "samples_py3"


def load_covtype(found: list[Path], options: Options) -> DatasetSplits:
    """Rows of 54 standardised numbers, seven classes."""
    X, labels = read_covtype(found[0])
    y = labels.astype(np.int64) - 1
    return from_arrays("covtype", (X, y), None, options, _COVTYPE_NAMES, (f"{len(X):,} rows",))


def read_covtype(path: Path) -> Pair:
    """Rows of 54 numbers, as they are stored, and labels from 1 to 7, from a file of :func:`find_covtype`."""
    X, y = _covtype_arrays(path)
    if X.ndim != 2 or X.shape[1] != _COVTYPE_COLUMNS or X.dtype.kind not in "iuf":
        found = f"X has shape {X.shape} and type {X.dtype}"
        raise InvalidInputError(f"{path}: {found}; {_COVTYPE_COLUMNS} columns of numbers are needed")
    most = len(_COVTYPE_NAMES)
    if y.shape != (len(X),) or not np.isin(y, np.arange(1, most + 1)).all():
        raise InvalidInputError(f"{path}: y must be one number from 1 to {most} for each of {len(X)} rows")
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        raise InvalidInputError(f"{path}: X holds numbers that are not finite")
    return X, y


def _covtype_arrays(path: Path) -> Pair:
    if path.suffix == ".npz":
        X, y = read_arrays(path, "X", "y")
        return X, y
    if path == _sklearn_cache():
        from sklearn.datasets import fetch_covtype

        with naming(path, "scikit-learn's cache cannot be read"):
            cached = fetch_covtype(download_if_missing=False)
        return cached.data, cached.target
    with naming(path, "not a table of integers, or damaged"):
        with _opened(path) as file:
            table = np.loadtxt(_lines(file), delimiter=",", dtype=np.int16, ndmin=2)
        if table.size == 0:
            raise ValueError("it is empty")
    return table[:, :-1], table[:, -1]


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    total = 0
    while line := file.readline(_LONGEST_LINE):
        total += len(line)
        if len(line) == _LONGEST_LINE or total > _MOST_BYTES:
            raise ValueError("a line, or the file, is too long")
        yield line
