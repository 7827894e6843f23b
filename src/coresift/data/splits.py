"""Data sets for training: a training and a test part, in memory or on disk, decoded once or when needed."""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any, Literal, Self, TypeAlias

import numpy as np
from numpy.lib import format as npy

from .._errors import InvalidInputError
from .._progress import Progress
from .._validation import naming
from ..coresets.files import write_whole
from ..rows.images import cut, decode, middle, random_resized_crop
from ..rows.preparation import Preparation
from ..rows.rows import fingerprint

DEFAULT_TEST_FRACTION = 0.2
_AT_ONCE = 256  # images that are decoded and then written
_CROPS = 13  # separates the streams of the crops from others of the same seed
Pair = tuple[np.ndarray, np.ndarray]
Task = Literal["classification", "regression"]
Augmentation = Literal["crop-flip", "resized-crop-flip"]


@dataclass(frozen=True, eq=False)
class ArrayDataset:
    """Samples in memory; batches are cut from the arrays, not collected item by item.

    ``x`` is (n, c, h, w), float32 or bytes (which are scaled and normalised as tensors, batch by batch), or (n, d),
    float32. ``y`` holds n int64 labels from 0 on, or (n,) or (n, K) float32 targets.

    >>> data = ArrayDataset(np.zeros((5, 2), np.float32), np.arange(5))
    >>> data.take(np.array([4, 0])).y
    array([4, 0])
    """

    x: np.ndarray
    y: np.ndarray

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise InvalidInputError(f"y has {len(self.y)} entries, but x has {len(self.x)} rows.")

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: Any) -> tuple[np.ndarray, Any]:
        return self.x[index], self.y[index]

    def take(self, rows: np.ndarray) -> Self:
        """The given ``rows``, in that order."""
        return replace(self, x=self.x[rows], y=self.y[rows])


@dataclass(frozen=True, eq=False)
class LazyDataset:
    """Images on disk, decoded one by one when needed. It holds ``paths``, not pixels, so it can be sent to workers.

    ``y`` holds int64 labels from 0 on, ``size`` is the height and width of a loaded image, ``share`` that of the
    shorter side that ``load`` keeps without ``rng``. With a ``crop_seed`` items are random parts, whichever worker
    loads them. Those of a ``cache`` are at ``places`` in that file of decoded images.

    >>> pictures = LazyDataset(["cat.jpg", "dog.jpg"], np.array([0, 1]), size=224)
    >>> len(pictures), pictures.take(np.array([1])).paths
    (2, ['dog.jpg'])
    """

    paths: Sequence[str]
    y: np.ndarray
    size: int
    share: float = 1.0
    crop_seed: int | None = None
    cache: str | None = None
    places: np.ndarray | None = None

    def __post_init__(self) -> None:
        if len(self.paths) != len(self.y):
            raise InvalidInputError(f"y has {len(self.y)} entries, but there are {len(self.paths)} images.")

    def __len__(self) -> int:
        return len(self.paths)

    def load(self, index: int, rng: np.random.Generator | None = None) -> np.ndarray:
        """The image at ``index``, (3, size, size) uint8: the square in the middle, or with ``rng`` a random part."""
        crop = partial(middle, self.share) if rng is None else partial(random_resized_crop, rng)
        if self.cache is None or self.places is None:
            return decode(self.paths[index], self.size, crop)
        return cut(pixels_of(self.cache)[self.places[index]], self.size, crop)

    def __getitem__(self, index: int) -> tuple[np.ndarray, Any]:
        rng = None if self.crop_seed is None else np.random.default_rng((self.crop_seed, _CROPS, index))
        return self.load(index, rng), self.y[index]

    def take(self, rows: np.ndarray) -> Self:
        """The images at ``rows``, in that order."""
        places = None if self.places is None else self.places[rows]
        return replace(self, paths=[self.paths[int(row)] for row in rows], y=self.y[rows], places=places)


def cached(dataset: LazyDataset, folder: Path) -> LazyDataset:
    """The same images from a file in ``folder``, named after theirs and their times; it is written if it is missing."""
    if not folder.is_dir():
        raise InvalidInputError(f"cache = {str(folder)!r}: no such folder; make it first.")
    side = dataset.size + 2 * round(dataset.size * (1.0 / dataset.share - 1.0) / 2.0)
    known = hashlib.sha256(f"1 {side}".encode())
    for path in dataset.paths:
        known.update(repr((os.path.abspath(path), *fingerprint(path, 0)[:2])).encode("utf-8", "surrogatepass"))
    target = folder / f"coresift-images-{known.hexdigest()[:24]}.npy"
    if not target.exists():
        write_whole(target, partial(_write, dataset.paths, side))
    if pixels_of(str(target)).shape != (len(dataset), 3, side, side):
        raise InvalidInputError(f"{target}: damaged; delete it, and it is written again.")
    return replace(dataset, cache=str(target), places=np.arange(len(dataset)))


def _write(paths: Any, side: int, file: IO[bytes]) -> None:
    head = {"descr": "|u1", "fortran_order": False, "shape": (len(paths), 3, side, side)}
    npy.write_array_header_1_0(file, head)
    progress = Progress("decode", len(paths), unit="images")
    decoded = partial(decode, size=side, crop=partial(middle, 1.0))
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # Pillow decodes without the lock
        for first in range(0, len(paths), _AT_ONCE):
            for pixels in threads.map(decoded, paths[first : first + _AT_ONCE]):
                file.write(pixels.tobytes())
                progress(1)


@lru_cache(maxsize=8)
def pixels_of(path: str) -> np.ndarray:
    """The images of a cache, (n, 3, side, side) bytes; each process maps the file once."""
    with naming(Path(path), "damaged; delete it, and it is written again"):
        return np.load(path, mmap_mode="r", allow_pickle=False)


AnyDataset: TypeAlias = ArrayDataset | LazyDataset


@dataclass(frozen=True, eq=False)
class Scaling:
    """Standardises rows (n, d) by ``mean`` and ``deviation`` (d,) of the training part; ``columns`` are their names.

    >>> Scaling(mean=np.array([1.0]), deviation=np.array([2.0]))(np.array([[5.0]]))
    array([[2.]], dtype=float32)
    """

    mean: np.ndarray
    deviation: np.ndarray
    columns: tuple[str, ...] | None = None

    def __call__(self, x: np.ndarray) -> np.ndarray:
        most = float(np.finfo(np.float32).max)
        with np.errstate(over="ignore"):  # a row may be any number of deviations away
            return ((x - self.mean) / self.deviation).clip(-most, most).astype(np.float32)


@dataclass(frozen=True, eq=False)
class DatasetSplits:
    """A data set for training.

    Attributes
    ----------
    name, task : str, "classification" or "regression"
    train, test : ArrayDataset or LazyDataset
    n_classes, input_shape : int, or None for regression; (c, h, w) or (d,)
    mean, std : tuple of float or None
        Per channel, of bytes over 255 or of floats; batches become ``(x - mean) / std``. None for tables (``scaling``).
    scaling, table : Scaling or None, Preparation or None
        What was done to rows of numbers, or to the columns of a table: ``table.transform(frame)`` prepares new rows.
    augmentation : "crop-flip", "resized-crop-flip" or None
        Random crops after padding with four black pixels, and mirroring; for files ``train.load(index, rng)``.
    class_names, preparation : tuple of str or None, str
        Names of the classes, and how the data were prepared.

    Examples
    --------
    >>> from coresift.data import load_dataset
    >>> digits = load_dataset("digits")
    >>> len(digits.train), digits.n_classes, digits.input_shape
    (1438, 10, (1, 28, 28))
    """

    name: str
    train: AnyDataset
    test: AnyDataset
    n_classes: int | None
    task: Task
    input_shape: tuple[int, ...]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    augmentation: Augmentation | None = None
    class_names: tuple[str, ...] | None = None
    preparation: str = "as it is"
    scaling: Scaling | None = None
    table: Preparation | None = None

    def described(self) -> dict[str, Any]:
        """Everything but the samples, for JSON: what a trained network needs to be used on other data."""
        names = ("name", "task", "input_shape", "class_names", "mean", "std", "preparation")
        scaling, table = self.scaling, self.table
        return {name: getattr(self, name) for name in names} | {
            "columns": scaling and scaling.columns,
            "column_means": scaling and scaling.mean.tolist(),
            "column_deviations": scaling and scaling.deviation.tolist(),
            "table": None if table is None else table.to_dict(),
        }

    @property
    def n_outputs(self) -> int:
        """Number of outputs that a model needs: one per class or target."""
        if self.n_classes is not None:
            return self.n_classes
        return 1 if self.train.y.ndim == 1 else int(self.train.y.shape[1])

    def __repr__(self) -> str:
        what = f"{self.n_classes} classes" if self.n_classes is not None else "regression"
        size = f"{len(self.train):,} + {len(self.test):,} samples of {'x'.join(map(str, self.input_shape))}"
        return f"DatasetSplits({self.name!r}: {size}, {what})"


def split_rows(y: np.ndarray, task: Task, test_fraction: float, seed: int, name: str) -> Pair:
    """Rows of the training part, at least one of each class, and of the test part, in order; stratified by class."""
    n = len(y)
    if not 0 < test_fraction < 1:
        raise InvalidInputError(f"test_fraction = {test_fraction!r} must be between 0 and 1.")
    order = np.random.default_rng(seed).permutation(n)
    groups = [order]
    if task == "classification":
        order = order[np.argsort(y[order], kind="stable")]
        groups = np.split(order, np.flatnonzero(np.diff(y[order])) + 1)
    counts = [min(round(test_fraction * len(group)), len(group) - 1) for group in groups]
    test = np.sort(np.concatenate([group[:k] for group, k in zip(groups, counts, strict=True)]))
    if len(test) == 0:
        raise InvalidInputError(f"{name}: {n} samples are too few to split {test_fraction:g} off; give test data.")
    return np.setdiff1d(np.arange(n), test, assume_unique=True), test


def array_splits(name: str, train: Pair, test: Pair, task: Task = "classification", **known: Any) -> DatasetSplits:
    """A data set from prepared arrays; by default the published parts of one with classes."""
    # tensors share memory with arrays, and PyTorch warns if it is read-only
    x, y, x_test, y_test = (np.require(array, requirements=["C", "W"]) for array in (*train, *test))
    n_classes = len(known.get("class_names") or ()) or int(y.max()) + 1 if task == "classification" else None
    known = {"n_classes": n_classes, "preparation": "the published training and test parts"} | known
    parts = ArrayDataset(x, y), ArrayDataset(x_test, y_test)
    return DatasetSplits(name, *parts, task=task, input_shape=x.shape[1:], **known)
