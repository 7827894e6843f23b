"""Data sets for training, by name or from the user's own data; those of Hugging Face through their interface."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import InvalidInputError, InvalidTypeError
from .._progress import logger
from ..rows.columns import column_names
from ..rows.images import Image, in_bytes, middle
from ..rows.opening import TABLES, files_below, suffix_of
from ..rows.preparation import Preparation
from . import standard
from .splits import DEFAULT_TEST_FRACTION, DatasetSplits, LazyDataset, Task, cached
from .standard import VARIABLE, Download, data_folder, fetch
from .user_sets import Options, from_arrays, from_npz, from_table, load_image_folder, load_imagenet

_LABELS = ("label", "labels", "target", "fine_label")
_TEST_PARTS = ("test", "validation", "valid", "val")


@dataclass(frozen=True)
class DatasetInfo:
    """A data set: ``name``, ``description``, ``where`` its files belong, whether they are there (``is_present``).

    >>> print(*(each.description[:18] for each in available_datasets() if each.name == "digits"))
    handwritten digits
    """

    name: str
    description: str
    is_present: bool
    where: str


@dataclass(frozen=True)
class _Named:
    load: Callable[[list[Path], Options], DatasetSplits]
    description: str
    downloads: tuple[Download, ...]
    n_samples: Sequence[int] | None = None  # of the published parts
    advice: str = ""
    folders: Sequence[str] = ()  # below the data folder
    choices: Sequence[Sequence[str]] = ()  # files that are needed, or others instead; by default the downloads

    def find(self, root: Path) -> tuple[list[Path], list[str]]:
        """The files of the first choice that is complete, packed or not; else none, and the names that are missing."""
        for names in self.choices or [[each.file for each in self.downloads]]:
            found: list[Path] = []
            missing: list[str] = []
            for name in names:
                wanted = dict.fromkeys((name, name.removesuffix(".gz")))
                places = (root / folder for folder in self.folders)
                there = [path for place in places for each in wanted for path in sorted(place.glob(each))]
                if "*" in name and len(there) > 1:
                    raise InvalidInputError(f"{there[0].parent}: one file {name} is needed, not {len(there)}")
                found += there[:1]
                missing += [] if there else [name]
            if found or not missing:
                break
        return ([], missing) if missing else (found, [])


def load_dataset(
    data: Any,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    download: bool = False,
    label: str | None = None,
    test: Any = None,
    task: Task | None = None,
    image_size: int | None = None,
    test_fraction: float = DEFAULT_TEST_FRACTION,
    seed: int = 0,
    preparation: Preparation | str | None = "auto",
    cache: str | os.PathLike[str] | None = None,
) -> DatasetSplits:
    """Load a data set for training, by name or from your own data.

    Parameters
    ----------
    data : name, path, pair of arrays, Dataset or DatasetDict of Hugging Face
        A name from :func:`available_datasets`. Or ``(X, y)``; an ``.npz`` file with ``X`` and ``y`` (or ``X_train``,
        ``y_train``, ``X_test``, ``y_test``); a frame, a table in a file (``.parquet``, ``.feather``, ``.csv``,
        ``.tsv``), or a folder of them; a folder of images in one folder per class, also in ``train`` and ``test``.
    data_dir, download : path, optional, bool, default False
        The folder of all named data sets (``$CORESIFT_DATA_DIR``, or ``coresift_data`` in the home folder); whether to
        download missing files (extra ``io``), which are compared with the published checksums.
    label, test : str, like ``data``, optional
        The column of the labels or targets in a table or a Hugging Face data set; the test part of your own data.
    task : "classification" or "regression", optional
        By default floats are regression targets, and integers, booleans and strings are classes.
    image_size : int, optional
        Height and width of images. Default: the size they have; for files the shorter side, at most 224.
    test_fraction, seed : float, default 0.2, and int, default 0
        Share of the samples to test on, for data that come in one part (digits, covtype, your own); seed of that split.
    preparation : "auto", None or Preparation
        How the columns of a table become numbers, learnt from the training part. None: only numbers, standardised.
    cache : path, optional
        A folder for a file of decoded images: they are decoded once, not in every epoch. Random parts are then taken
        from the square in the middle of an image.

    Examples
    --------
    >>> data = load_dataset("digits")
    >>> len(data.train), data.n_classes, data.input_shape
    (1438, 10, (1, 28, 28))
    """
    options = Options(label, task, image_size, test_fraction, seed, preparation)
    if isinstance(data, str) and data in _NAMED:
        splits = _load_named(data, find_dataset(data, data_dir, download=download), test, options)
    else:
        splits = _load_own(data, test, options)
    if cache is None:
        return splits
    if not isinstance(splits.train, LazyDataset) or not isinstance(splits.test, LazyDataset):
        text = f"cache = {os.fspath(cache)!r}: {splits.name} is in memory"
        raise InvalidInputError(f"{text}; a cache is for image files.")
    folder = Path(cache).expanduser()
    return replace(splits, train=cached(splits.train, folder), test=cached(splits.test, folder))


def _load_named(name: str, found: list[Path], test: Any, options: Options) -> DatasetSplits:
    if test is not None or options.label is not None or options.task is not None:
        raise InvalidInputError(f"label, test and task are for your own data; {name!r} brings its own.")
    if options.image_size is not None and name != "imagenet":
        raise InvalidInputError(f"image_size = {options.image_size}: {name!r} has one size only.")
    published, splits = _NAMED[name].n_samples, _NAMED[name].load(found, options)
    sizes = len(splits.train), len(splits.test)
    if published is not None and list(sizes) != published:
        text = "%s: %d + %d samples, but %d + %d are published: this is not the whole data set"
        logger.warning(text, name, *sizes, *published)
    return splits


def available_datasets(data_dir: str | os.PathLike[str] | None = None) -> list[DatasetInfo]:
    """List the data sets that can be loaded by name, and where in ``data_dir`` their files are or belong.

    >>> "digits" in [each.name for each in available_datasets() if each.is_present]
    True
    """
    root = data_folder(data_dir)
    infos = []
    for name, known in _NAMED.items():
        where = str(root / name)
        try:
            found, missing = known.find(root)
        except InvalidInputError as error:  # files that contradict each other
            found, missing, where = [], [name], str(error)
        if not missing:
            where = str(found[0].parent if len(found) > 1 else found[0] if found else "comes with scikit-learn")
        infos.append(DatasetInfo(name, known.description, not missing, where))
    return infos


def find_dataset(name: str, data_dir: str | os.PathLike[str] | None = None, *, download: bool = False) -> list[Path]:
    """The files of a named data set, fetched if ``download`` allows it; an error says what is missing."""
    known, root = _NAMED[name], data_folder(data_dir)
    found, missing = known.find(root)
    wanted = [file for file in known.downloads if file.file in missing] or known.downloads
    if missing and download and wanted:
        for file in wanted:
            logger.info("%s: downloading %s", name, file.file)
            fetch(file, root / name)
        found, missing = known.find(root)
    if missing:
        text = f"the data set {name!r} is not in {root}: {', '.join(missing)} missing. {known.advice}"
        if wanted:
            addresses = ", ".join(file.urls[0] for file in wanted)
            text += f"Download {addresses} into {root / name}, or use download=True (--download). "
        raise InvalidInputError(f"{text}Another folder: data_dir (--data-dir), or the variable {VARIABLE}.")
    return found


def _load_own(data: Any, test: Any, options: Options) -> DatasetSplits:
    if isinstance(data, str | os.PathLike):
        if test is not None and not isinstance(test, str | os.PathLike):
            raise InvalidTypeError(f"test = {type(test).__name__} must be a path, as data is.")
        return _load_path(Path(data).expanduser(), None if test is None else Path(test).expanduser(), options)
    if is_hugging_face(data):
        return from_hugging_face(data, test, options)
    if column_names(data) is not None:
        return from_table(data, test, options)
    for name, pair in (("data", data), ("test", (None, None) if test is None else test)):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            text = f"{name} = {type(pair).__name__} must be a name, a path, a pair (X, y) or a Hugging Face data set."
            raise InvalidTypeError(text)
    _refuse("arrays", label=options.label, image_size=options.image_size)
    return from_arrays("arrays", tuple(data), None if test is None else tuple(test), options)


def _load_path(path: Path, test: Path | None, options: Options) -> DatasetSplits:
    kind = suffix_of(path)
    if path.is_dir() and not any(suffix_of(file) in TABLES for file in files_below(str(path))):
        _refuse(str(path), label=options.label, task=options.task)
        return load_image_folder(path, test, options)
    if path.is_dir() or (kind in TABLES and path.is_file()):
        _refuse(str(path), image_size=options.image_size)
        return from_table(path, test, options)
    if kind == ".npz":
        _refuse(str(path), label=options.label, image_size=options.image_size)
        return from_npz(path, test, options)
    if path.exists():
        raise InvalidInputError(f"{path}: unknown kind of file, not .npz, {', '.join(TABLES)} or a folder.")
    raise InvalidInputError(f"{path}: no such file or folder, and none of the names {', '.join(_NAMED)}.")


def _refuse(name: str, **options: Any) -> None:
    for option, value in options.items():
        if value is not None:
            raise InvalidInputError(f"{name}: {option} = {value!r} does not apply to such data.")


def is_hugging_face(data: Any) -> bool:
    """Whether this looks like a ``Dataset`` or a ``DatasetDict``; the package is not imported."""
    one = next(iter(data.values()), None) if isinstance(data, Mapping) else data
    return all(hasattr(one, name) for name in ("column_names", "features", "__getitem__", "__len__"))


def from_hugging_face(data: Any, test: Any, options: Options) -> DatasetSplits:
    """A ``Dataset``, with a second one as ``test`` or split here; or a ``DatasetDict`` with ``train`` and ``test``."""
    if isinstance(data, Mapping):
        if "train" not in data:
            raise InvalidInputError(f"the data set has the parts {', '.join(data)}; 'train' is needed.")
        if test is None:
            test = next((data[part] for part in _TEST_PARTS if part in data), None)
        data = data["train"]
    there = data.column_names
    if options.label is not None and options.label not in there:
        raise InvalidInputError(f"label = {options.label!r}: there are the columns {', '.join(there)}.")
    label = options.label or next((name for name in _LABELS if name in there), None)
    if label is None:
        text = f"label is missing: none of the columns {', '.join(there)} is called {', '.join(_LABELS)}."
        raise InvalidInputError(text)
    columns, are_images = _hugging_face_columns(data, label)
    if test is not None and (lacking := {label, *columns} - set(test.column_names)):
        raise InvalidInputError(f"the test part has no column {', '.join(map(repr, sorted(lacking)))}.")

    def read(part: Any) -> tuple[np.ndarray, np.ndarray]:
        if are_images:
            return _hugging_face_images(part, columns[0], options.image_size), _column(part, label)
        try:
            x = [_column(part, name) for name in columns]
        except ValueError as error:
            raise InvalidInputError(f"the lists of column {columns[0]!r} differ in length ({error}).") from error
        return x[0] if x[0].ndim > 1 else np.column_stack(x), _column(part, label)

    info = getattr(getattr(data, "info", None), "dataset_name", None)
    classes = getattr(data.features[label], "names", None)
    names = None if classes is None else tuple(map(str, classes))
    pairs = read(data), None if test is None else read(test)
    return from_arrays(str(info or "hugging-face"), *pairs, options, names)


def _hugging_face_columns(data: Any, label: str) -> tuple[list[str], bool]:
    if len(data) == 0:
        raise InvalidInputError("the data set has no rows.")
    first = {name: data[0][name] for name in data.column_names if name != label}
    images = [name for name, value in first.items() if hasattr(value, "convert") and hasattr(value, "resize")]
    if len(images) > 1:
        raise InvalidInputError(f"there are images in the columns {', '.join(images)}; keep one of them.")
    if images:
        return images, True
    arrays = {name: np.asarray(value) for name, value in first.items()}
    numeric = [name for name, array in arrays.items() if array.dtype.kind in "fiub"]
    columns = [name for name in numeric if arrays[name].ndim == 0] or numeric
    if columns and (arrays[columns[0]].ndim == 0 or len(columns) == 1):
        return columns, False
    text = "one column of images, columns of numbers or one of lists of numbers is needed"
    raise InvalidInputError(f"{text}; there are {', '.join(first) or 'none'} beside {label!r}.")


def _hugging_face_images(data: Any, column: str, size: int | None) -> np.ndarray:
    first = in_bytes(data[0][column], "image 0")
    mode = "L" if first.mode in ("1", "L") else "RGB"
    width, height = first.size if size is None else (size, size)
    pixels = np.empty((len(data), len(mode), height, width), dtype=np.uint8)
    for row in range(len(data)):
        image = in_bytes(data[row][column], f"image {row}").convert(mode)
        if size is not None:
            image = image.resize((size, size), Image.Resampling.BILINEAR, box=middle(1.0, *image.size)[0])
        elif image.size != first.size:
            text = f"image {row} has {image.width}x{image.height} pixels, the first {width}x{height}"
            raise InvalidInputError(f"{text}; give image_size to resize them.")
        pixels[row] = np.asarray(image).reshape(height, width, -1).transpose(2, 0, 1)
    return pixels


def _column(data: Any, name: str) -> np.ndarray:
    values = data[name]
    return np.asarray(values if hasattr(values, "dtype") else list(values))


_NAMED = {
    name: _Named(load, **standard.PUBLISHED[name])
    for name, load in (
        ("digits", standard.load_digits_splits),
        ("mnist", partial(standard.load_mnist, "mnist")),
        ("fashion-mnist", partial(standard.load_mnist, "fashion-mnist")),
        ("cifar10", partial(standard.load_cifar, standard.CIFAR10)),
        ("cifar100", partial(standard.load_cifar, standard.CIFAR100)),
        ("imagenet", load_imagenet),
        ("covtype", standard.load_covtype),
    )
}
DATASETS = tuple(_NAMED)
