"""Files of the named data sets: where they are, downloads, and readers of MNIST, CIFAR (binary), digits and CovType."""

import gzip
import math
import os
import tarfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import numpy as np

from .._errors import InvalidInputError
from .._imports import need
from .._validation import naming
from ..rows.arrays import MOST_DEFLATED, read_arrays
from .splits import DatasetSplits, Pair, array_splits
from .user_sets import Options, from_arrays

VARIABLE = "CORESIFT_DATA_DIR"


@dataclass(frozen=True)
class Download:
    """A published file and its checksum."""

    file: str
    urls: Sequence[str]  # tried in this order
    checksum: str  # md5:... or sha256:...


PUBLISHED: dict[str, dict[str, Any]] = {
    name: known | {"downloads": tuple(Download(**each) for each in known.get("downloads", ()))}
    for name, known in tomllib.loads((files(__package__) / "published.toml").read_text(encoding="utf-8")).items()
}
_COVTYPE_COLUMNS = 54
_COVTYPE_NAMES = tuple(PUBLISHED["covtype"].pop("class_names"))
_MNIST = {name: PUBLISHED[name].pop("layout") for name in ("mnist", "fashion-mnist")}
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MOST_BYTES = 1 << 30  # of an unpacked file: more than ten times what is published
_LONGEST_LINE = 1 << 12
_PIXELS = 3 * 32 * 32
_TEXT_LIMIT = 1 << 16
_MOST_MEMBERS = 1000
_SLACK = 1 << 24  # bytes of an archive besides the needed files


def data_folder(data_dir: str | os.PathLike[str] | None) -> Path:
    """The folder of all data sets: as given, else ``$CORESIFT_DATA_DIR``, else ``coresift_data`` in the home folder."""
    if data_dir is None:
        data_dir = os.environ.get(VARIABLE) or Path.home() / "coresift_data"
    return Path(data_dir).expanduser()


def fetch(file: Download, folder: Path) -> Path:
    """Download a file into ``folder`` and check it; a file with a wrong checksum is not kept."""
    pooch = need("pooch", "io", "a download")
    pooch.get_logger().setLevel("WARNING")
    failures = []
    for url in file.urls:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return Path(pooch.retrieve(url, file.checksum, fname=file.file, path=folder))
        except (OSError, ValueError) as error:  # requests raises OSErrors; a wrong checksum is a ValueError
            failures.append(f"{url}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
    text = f"{folder / file.file}: could not be downloaded ({'; '.join(failures)})"
    raise InvalidInputError(f"{text}. Without a network, put the file there by hand.")


def load_mnist(name: str, paths: list[Path], _: Options) -> DatasetSplits:
    """Load 60,000 and 10,000 images of 28x28, of digits or clothes, from the four files in published order."""
    train, test = (_images_and_labels(*part) for part in (paths[:2], paths[2:]))
    known: dict[str, Any] = {key: tuple(value) for key, value in _MNIST[name].items()}
    return array_splits(name, train, test, **known)


def _images_and_labels(images: Path, labels: Path) -> Pair:
    x, y = (read_idx(path) for path in (images, labels))
    if x.dtype != np.uint8 or x.shape[1:] != (28, 28):
        raise InvalidInputError(f"{images}: {x.dtype} of shape {x.shape}; bytes (n, 28, 28) are needed")
    if y.dtype != np.uint8 or y.ndim != 1:
        raise InvalidInputError(f"{labels}: {y.dtype} of shape {y.shape}; one byte per image is needed")
    if len(x) != len(y) or len(x) == 0:
        raise InvalidInputError(f"{labels}: {len(y)} labels, but {images} has {len(x)} images")
    if y.max() > 9:
        raise InvalidInputError(f"{labels}: the label {y.max()}; classes are 0 to 9")
    return x[:, None], y.astype(np.int64)


def read_idx(path: str | Path) -> np.ndarray:
    """Read the array in ``path``, an IDX file like MNIST's (or its ``.gz``), up to 1 GiB; refuse a damaged one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "labels")
    ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))  # bytes, one axis, of length 3
    ...     read_idx(path)
    array([7, 8, 9], dtype=uint8)
    """
    path = Path(path)
    with naming(path, "damaged or cut off"), _opened(path) as file:
        magic = file.read(4)
        if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _IDX_TYPES or magic[3] == 0:
            raise InvalidInputError(f"not an IDX file: it begins with {magic.hex(' ') or 'nothing'}")
        dtype, header = np.dtype(_IDX_TYPES[magic[2]]), file.read(4 * magic[3])
        if len(header) < 4 * magic[3]:
            raise InvalidInputError("cut off within its header")
        shape = tuple(int(size) for size in np.frombuffer(header, ">u4"))
        expected = math.prod(shape) * dtype.itemsize
        announced = f"its header announces {shape} entries, {expected:,} bytes"
        # no more memory than a file of this size can fill
        if expected > (most := min(os.stat(path).st_size * MOST_DEFLATED, _MOST_BYTES)):
            raise InvalidInputError(f"{announced}, but {most:,} can follow")
        body = file.read(expected + 1)  # one byte more than announced is too long
        if len(body) != expected:
            raise InvalidInputError(f"{announced}, but {f'{len(body):,}' if len(body) < expected else 'more'} follow")
        return np.frombuffer(body, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _opened(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def load_digits_splits(_: list[Path], options: Options) -> DatasetSplits:
    """1,797 images of 8x8, which come with scikit-learn, as bytes of 28x28."""
    from scipy.ndimage import zoom
    from sklearn.datasets import load_digits

    digits = load_digits()
    large = zoom(digits.images, (1, 3.5, 3.5), order=1, mode="nearest", grid_mode=True)  # 0 to 16
    x = np.rint(large * (255 / 16)).astype(np.uint8)
    notes = ("resized from 8x8 linearly",)
    return from_arrays("digits", (x, digits.target), None, options, tuple("0123456789"), notes)


def load_covtype(found: list[Path], options: Options) -> DatasetSplits:
    """Rows of 54 standardised numbers, seven classes."""
    X, y = read_covtype(found[0])
    return from_arrays("covtype", (X, y.astype(np.int64) - 1), None, options, _COVTYPE_NAMES, (f"{len(X):,} rows",))


def read_covtype(path: Path) -> Pair:
    """Rows of 54 numbers, as they are stored, and labels from 1 to 7, from the ``.npz`` file or the published table."""
    if path.suffix == ".npz":
        X, y = read_arrays(path, "X", "y")
    else:
        with naming(path, "not a table of integers, or damaged"), _opened(path) as file:
            table = np.loadtxt(_lines(file), delimiter=",", dtype=np.int16, ndmin=2)
            if table.size == 0:
                raise ValueError("it is empty")
            X, y = table[:, :-1], table[:, -1]
    if X.ndim != 2 or X.shape[1] != _COVTYPE_COLUMNS or X.dtype.kind not in "iuf":
        found = f"X has shape {X.shape} and type {X.dtype}"
        raise InvalidInputError(f"{path}: {found}; {_COVTYPE_COLUMNS} columns of numbers are needed")
    most = len(_COVTYPE_NAMES)
    if y.shape != (len(X),) or not np.isin(y, np.arange(1, most + 1)).all():
        raise InvalidInputError(f"{path}: y must be one number from 1 to {most} for each of {len(X)} rows")
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        raise InvalidInputError(f"{path}: X holds numbers that are not finite")
    return X, y


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    total = 0
    while line := file.readline(_LONGEST_LINE):
        total += len(line)
        if len(line) == _LONGEST_LINE or total > _MOST_BYTES:
            raise ValueError("a line, or the file, is too long")
        yield line


@dataclass(frozen=True)
class Cifar:
    """CIFAR-10 or CIFAR-100: a record is label bytes (100: coarse, fine), then 3,072 of channels, rows, columns."""

    files: Sequence[str]  # the last one is the test part
    n_classes: int
    names_file: str
    label_bytes: int
    mean: Sequence[float]
    std: Sequence[float]

    @property
    def name(self) -> str:
        return f"cifar{self.n_classes}"

    @property
    def record(self) -> int:
        return self.label_bytes + _PIXELS


CIFAR10, CIFAR100 = (
    Cifar(PUBLISHED[name]["choices"][0], **PUBLISHED[name].pop("layout")) for name in ("cifar10", "cifar100")
)


def load_cifar(layout: Cifar, found: list[Path], _: Any) -> DatasetSplits:
    """The data set in files or in an archive, which is read without being unpacked."""
    most = PUBLISHED[layout.name]["n_samples"][0] // len(layout.files[:-1]) * layout.record
    limits = {**dict.fromkeys(layout.files, most), layout.names_file: _TEXT_LIMIT}
    paths = [*found, *found[0].parent.glob(layout.names_file)]
    if len(found) > 1 and (long := [path for path in paths if path.stat().st_size > limits[path.name]]):
        raise InvalidInputError(f"{long[0]}: longer than {limits[long[0].name]:,} bytes")
    read = _read_archive(found[0], limits) if len(found) == 1 else {path.name: path.read_bytes() for path in paths}
    if missing := [file for file in layout.files if file not in read]:
        raise InvalidInputError(f"{found[0]}: holds no {missing[0]}")
    *train, test = (_records(layout, read[file], found[0].with_name(file)) for file in layout.files)
    names = read.get(layout.names_file, b"").decode("utf-8", "replace").split()
    joined = np.concatenate([x for x, _ in train]), np.concatenate([y for _, y in train])
    known: dict[str, Any] = {"n_classes": layout.n_classes, "mean": tuple(layout.mean), "std": tuple(layout.std)}
    known |= {"class_names": tuple(names) if len(names) == layout.n_classes else None}
    return array_splits(layout.name, joined, test, augmentation="crop-flip", **known)


def _records(layout: Cifar, content: bytes, where: Path) -> Pair:
    if len(content) == 0 or len(content) % layout.record:
        text = f"{where}: {len(content):,} bytes are not a whole number of records of {layout.record:,} bytes"
        raise InvalidInputError(f"{text}; it is cut off, or not a file of the binary version")
    records = np.frombuffer(content, np.uint8).reshape(-1, layout.record)
    labels = records[:, layout.label_bytes - 1].astype(np.int64)  # the fine label is the last one
    if labels.max() >= layout.n_classes:
        raise InvalidInputError(f"{where}: the label {labels.max()}; classes are 0 to {layout.n_classes - 1}")
    return records[:, layout.label_bytes :].reshape(-1, 3, 32, 32), labels


def _read_archive(archive: Path, limits: Mapping[str, int]) -> dict[str, bytes]:
    """Read files of a tar archive by their last name, at most ``limits`` bytes each; links are refused."""
    found: dict[str, bytes] = {}
    with archive.open("rb") as file, naming(archive, "not an archive, damaged or cut off"):
        is_packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        plain: Any = gzip.GzipFile(fileobj=file) if is_packed else file
        bounded = cast(IO[bytes], _Bounded(plain, sum(limits.values()) + _SLACK))
        with tarfile.open(fileobj=bounded, mode="r|") as tar:
            for number, member in enumerate(tar):
                path = PurePosixPath(member.name.replace("\\", "/"))
                if path.is_absolute() or ".." in path.parts or (path.parts[:1] and path.parts[0].endswith(":")):
                    raise InvalidInputError(f"the member {member.name!r} would lead out of the archive's folder")
                if not (member.isfile() or member.isdir()):
                    raise InvalidInputError(f"the member {member.name!r} is neither a file nor a folder")
                name = PurePosixPath(member.name).name
                if number >= _MOST_MEMBERS:
                    raise InvalidInputError(f"holds more than {_MOST_MEMBERS:,} members")
                if name not in limits or not member.isfile():
                    continue
                if name in found:
                    raise InvalidInputError(f"holds {name} twice")
                if not 0 <= member.size <= limits[name]:
                    raise InvalidInputError(f"{name}: {member.size:,} bytes; at most {limits[name]:,} are allowed")
                stream = tar.extractfile(member)
                found[name] = b"" if stream is None else stream.read()
    return found


class _Bounded:
    """A stream with a limit on the bytes that can be read from it: a compressed archive may expand to any size."""

    def __init__(self, file: Any, most: int) -> None:
        self._file, self._left, self._most = file, most, most

    def read(self, size: int) -> bytes:
        self._left -= size
        if self._left < 0:
            raise InvalidInputError(f"more than {self._most:,} bytes are in the archive")
        return cast(bytes, self._file.read(size))
