"""Data sets for training, by name or from the user's own data."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from .._containers import column_names
from .._errors import InvalidInputError, InvalidTypeError
from .._progress import logger
from .._validation import check_choice, check_count
from ..rows.opening import TABLES, files_below, suffix_of
from ..rows.preparation import Preparation
from . import standard
from .hugging_face import from_hugging_face, is_hugging_face
from .image_cache import cached
from .splits import DEFAULT_TEST_FRACTION, DatasetSplits, LazyDataset, Task
from .standard import VARIABLE, Download, check_published, data_folder, fetch
from .user_sets import Options, from_arrays, from_npz, from_table, load_image_folder, load_imagenet


@dataclass(frozen=True)
class DatasetInfo:
    """A data set that can be loaded by name, its ``files`` below the data folder, and ``where`` they are or belong."""

    name: str
    description: str
    files: tuple[str, ...]
    can_download: bool
    is_present: bool
    where: str


@dataclass(frozen=True)
class _Named:
    find: Callable[[Path], tuple[list[Path], list[str]]]  # what is there, and the names of what is missing
    load: Callable[[list[Path], Options], DatasetSplits]
    description: str
    downloads: tuple[Download, ...]
    files: Sequence[str] = ()
    n_samples: Sequence[int] | None = None  # of the published parts
    advice: str = ""


def load_dataset(
    data: Any,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    download: bool = False,
    verify: bool = False,
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
    data_dir : path, optional
        The folder of all named data sets. Default: ``$CORESIFT_DATA_DIR``, or ``coresift_data`` in the home folder.
    download, verify : bool, default False
        Download missing files (extra ``io``), verify existing ones; both use the published checksums.
    label : str, optional
        The column of the labels or targets in a table or a Hugging Face data set.
    test : like ``data``, optional
        The test part of your own data. Without it, ``test_fraction`` of each class is taken from ``data``.
    task : "classification" or "regression", optional
        By default floats are regression targets, and integers, booleans and strings are classes.
    image_size : int, optional
        Height and width of images. Default: the size they have; for files the shorter side, at most 224.
    test_fraction, seed : float, default 0.2, and int, default 0
        Share of the samples to test on, for data that come in one part (digits, covtype, your own); seed of that split.
    preparation : "auto", None or Preparation
        How the columns of a table become numbers (:class:`coresift.Preparation`), learnt from the training part. None:
        only columns of numbers, standardised.
    cache : path, optional
        A folder for a file of decoded images: they are decoded once, not in every epoch. Random parts are then taken
        from the square in the middle of an image.

    Returns
    -------
    DatasetSplits

    Examples
    --------
    >>> data = load_dataset("digits")
    >>> len(data.train), data.n_classes, data.input_shape
    (1438, 10, (1, 28, 28))
    """
    splits = _load(
        data, data_dir, download, verify, test, Options(label, task, image_size, test_fraction, seed, preparation)
    )
    if cache is None:
        return splits
    if not isinstance(splits.train, LazyDataset) or not isinstance(splits.test, LazyDataset):
        raise InvalidInputError(
            f"cache = {os.fspath(cache)!r}: {splits.name} is in memory; a cache is for image files."
        )
    folder = Path(cache).expanduser()
    return replace(splits, train=cached(splits.train, folder), test=cached(splits.test, folder))


def _load(data: Any, data_dir: Any, download: bool, verify: bool, test: Any, options: Options) -> DatasetSplits:
    label, task, image_size, seed = options.label, options.task, options.image_size, options.seed
    if task is not None:
        check_choice(task, "task", get_args(Task))
    if image_size is not None:
        check_count(image_size, "image_size")
    check_count(seed, "seed", 0)
    if isinstance(data, str) and data in _NAMED:
        if test is not None or label is not None or task is not None:
            raise InvalidInputError(f"label, test and task are for your own data; {data!r} brings its own.")
        if image_size is not None and data != "imagenet":
            raise InvalidInputError(f"image_size = {image_size}: {data!r} has one size only.")
        known, found = _NAMED[data], find_dataset(data, data_dir, download=download)
        for path in found if verify else ():
            check_published(path, known.downloads)
        splits = known.load(found, options)
        sizes = len(splits.train), len(splits.test)
        if known.n_samples is not None and list(sizes) != known.n_samples:
            text = "%s: %d + %d samples, but %d + %d are published: this is not the whole data set"
            logger.warning(text, data, *sizes, *known.n_samples)
        return splits
    return _load_own(data, test, options)


def available_datasets(data_dir: str | os.PathLike[str] | None = None) -> list[DatasetInfo]:
    """List the data sets that can be loaded by name, and where their files are or belong."""
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
        about = known.description, tuple(known.files), bool(known.downloads)
        infos.append(DatasetInfo(name, *about, not missing, where))
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


_WAYS: dict[str, tuple[Any, Any]] = {  # to find the files of a data set below a folder, and to load it
    "digits": (lambda root: ([], []), standard.load_digits_splits),
    "mnist": (standard.find_mnist, standard.load_mnist),
    **{
        each.name: (partial(standard.find_cifar, each), partial(standard.load_cifar, each))
        for each in (standard.CIFAR10, standard.CIFAR100)
    },
    "imagenet": (
        lambda root: standard.find_files((root / "imagenet", root / "ILSVRC2012", root), ("train", "val")),
        load_imagenet,
    ),
    "covtype": (standard.find_covtype, standard.load_covtype),
}
_NAMED = {name: _Named(*ways, **standard.PUBLISHED[name]) for name, ways in _WAYS.items()}
DATASETS = tuple(_NAMED)
