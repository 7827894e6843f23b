"""CIFAR-10 and CIFAR-100 in binary, as files or in the archive. The Python version is not read: a pickle can run code.

A record is one label byte (CIFAR-100: two, coarse and fine), then 3,072 bytes: channels, rows, columns.
"""

import gzip
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import numpy as np

from .._errors import InvalidInputError
from .._validation import naming
from .fetch import Download, first_file
from .splits import DatasetSplits, Pair, array_splits

TRAINING_SIZE, TEST_SIZE = 50_000, 10_000
_PIXELS = 3 * 32 * 32
_TEXT_LIMIT = 1 << 16
_MOST_MEMBERS = 1000
_SLACK = 1 << 24  # bytes of an archive besides the needed files


@dataclass(frozen=True)
class Cifar:
    """One of the two data sets: what its files are called, and what is in them."""

    name: str
    folder: str
    archive: Download
    train_files: tuple[str, ...]
    test_file: str
    names_file: str
    n_classes: int
    label_bytes: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.train_files, self.test_file)

    @property
    def record(self) -> int:
        return self.label_bytes + _PIXELS


def _archive(file: str, md5: str) -> Download:
    return Download(file, (f"https://www.cs.toronto.edu/~kriz/{file}",), f"md5:{md5}")


CIFAR10 = Cifar(
    "cifar10",
    "cifar-10-batches-bin",
    _archive("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
    tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
    "test_batch.bin",
    "batches.meta.txt",
    n_classes=10,
    label_bytes=1,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
)
CIFAR100 = Cifar(
    "cifar100",
    "cifar-100-binary",
    _archive("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),
    ("train.bin",),
    "test.bin",
    "fine_label_names.txt",
    n_classes=100,
    label_bytes=2,
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
)


def find_cifar(layout: Cifar, root: Path) -> tuple[list[Path], list[str]]:
    """The folder with all files, or the archive; else the names of what is missing."""
    missing = [layout.archive.file]
    for folder in (root / layout.name / layout.folder, root / layout.name, root / layout.folder):
        absent = [file for file in layout.files if not (folder / file).is_file()]
        if not absent:
            return [folder], []
        if len(absent) < len(layout.files):
            missing = [str(folder / file) for file in absent]
    archive = first_file((root / layout.name, root), (layout.archive.file,))
    return ([archive], []) if archive else ([], missing)


def load_cifar(layout: Cifar, found: list[Path], _: Any) -> DatasetSplits:
    """The data set in a folder or an archive, which is read without being unpacked."""
    place, most = found[0], TRAINING_SIZE // len(layout.train_files) * layout.record
    limits = {**dict.fromkeys(layout.files, most), layout.names_file: _TEXT_LIMIT}
    read = _read_folder(place, limits) if place.is_dir() else _read_archive(place, limits)
    if missing := [file for file in layout.files if file not in read]:
        raise InvalidInputError(f"{place}: holds no {missing[0]}")
    *train, test = (_records(layout, read[file], place / file) for file in layout.files)
    names = read.get(layout.names_file, b"").decode("utf-8", "replace").split()
    return array_splits(
        layout.name,
        (np.concatenate([x for x, _ in train]), np.concatenate([y for _, y in train])),
        test,
        n_classes=layout.n_classes,
        mean=layout.mean,
        std=layout.std,
        augmentation="crop-flip",
        class_names=tuple(names) if len(names) == layout.n_classes else None,
    )


def _read_folder(folder: Path, limits: Mapping[str, int]) -> dict[str, bytes]:
    paths = [folder / name for name in limits if (folder / name).is_file()]
    for path in paths:
        if path.stat().st_size > limits[path.name]:
            raise InvalidInputError(f"{path}: longer than {limits[path.name]:,} bytes")
    return {path.name: path.read_bytes() for path in paths}


def _records(layout: Cifar, content: bytes, where: Path) -> Pair:
    if len(content) == 0 or len(content) % layout.record:
        raise InvalidInputError(
            f"{where}: {len(content):,} bytes are not a whole number of records of {layout.record:,} bytes; it is cut "
            "off, or not a file of the binary version"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, layout.record)
    labels = records[:, layout.label_bytes - 1].astype(np.int64)  # the fine label is the last one
    if labels.max() >= layout.n_classes:
        raise InvalidInputError(f"{where}: the label {labels.max()}; classes are 0 to {layout.n_classes - 1}")
    return records[:, layout.label_bytes :].reshape(-1, 3, 32, 32), labels


def _read_archive(archive: Path, limits: Mapping[str, int]) -> dict[str, bytes]:
    """Read files of a tar archive, plain or packed with gzip, by their last name, into memory.

    ``limits`` gives the largest allowed size of each file; everything unpacked must not be much larger than their sum.
    An archive with an absolute path, ``..`` in a path, a link or a device is refused: no published one has any.
    """
    found: dict[str, bytes] = {}
    with archive.open("rb") as file, naming(archive, "not an archive, damaged or cut off"):
        is_packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        plain: Any = gzip.GzipFile(fileobj=file) if is_packed else file
        bounded = cast(IO[bytes], _Bounded(plain, sum(limits.values()) + _SLACK))
        with tarfile.open(fileobj=bounded, mode="r|") as tar:
            for number, member in enumerate(tar):
                _check_member(member)
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
    """A stream of which only so many bytes can be read: a packed archive may hold any number."""

    def __init__(self, file: Any, most: int) -> None:
        self._file, self._left, self._most = file, most, most

    def read(self, size: int) -> bytes:
        self._left -= size
        if self._left < 0:
            raise InvalidInputError(f"more than {self._most:,} bytes are in the archive")
        return cast(bytes, self._file.read(size))


def _check_member(member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name.replace("\\", "/"))
    drive = path.parts and path.parts[0].endswith(":")
    if path.is_absolute() or drive or ".." in path.parts:
        raise InvalidInputError(f"the member {member.name!r} would lead out of the archive's folder")
    if not (member.isfile() or member.isdir()):
        raise InvalidInputError(f"the member {member.name!r} is neither a file nor a folder")
