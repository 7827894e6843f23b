"""Data in the hands of the user, for training: arrays, ``.npz`` files, tables, and images in class folders."""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from sklearn.base import clone

from .._errors import InvalidInputError, InvalidTypeError
from .._imports import need
from .._progress import logger
from .._validation import as_numpy, check_choice, check_count, check_features
from ..core.points import as_dense
from ..rows.arrays import array_names, read_arrays
from ..rows.columns import Wanted, as_table, column_names, take_rows
from ..rows.images import Image
from ..rows.opening import find_images, is_hidden, open_wanted
from ..rows.preparation import Preparation
from ..rows.rows import Rows, encode_labels
from ..rows.tables import CsvRows
from .splits import DEFAULT_TEST_FRACTION, DatasetSplits, LazyDataset, Scaling, Task, array_splits, split_rows

_CHANNELS = (1, 3, 4)
_FEW_PER_CLASS, _MANY_CLASSES = 5, 20  # integers with more values than this are probably amounts
_LARGE_TARGET = 1e3  # too large for a network whose weights are about 1
_SIZE, _LOOKED_AT = 224, 32
_IMAGENET_SHARE = 224 / 256  # the usual view of a test image: 224 pixels of 256
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
_TEST_FOLDERS = ("test", "val", "valid", "validation")


@dataclass(frozen=True)
class Options:
    """What a user may say about the data."""

    label: str | None = None
    task: Task | None = None
    image_size: int | None = None
    test_fraction: float = DEFAULT_TEST_FRACTION
    seed: int = 0
    preparation: Any = "auto"  # of tables: "auto", None or one that is not fitted

    def __post_init__(self) -> None:
        if self.task is not None:
            check_choice(self.task, "task", get_args(Task))
        if self.image_size is not None:
            check_count(self.image_size, "image_size")
        check_count(self.seed, "seed", 0)


def from_arrays(
    name: str,
    train: tuple[Any, Any],
    test: tuple[Any, Any] | None,
    options: Options,
    class_names: tuple[str, ...] | None = None,
    notes: tuple[str, ...] = (),
    columns: tuple[str, ...] | None = None,
) -> DatasetSplits:
    """Rows (n, d), or images (n, h, w), (n, c, h, w) or (n, h, w, c), with targets, or labels by value or by name."""
    is_prepared = column_names(train[0]) is not None and options.preparation is not None
    x, how = (as_table(train[0]), []) if is_prepared else _inputs(train[0], f"{name}: x")
    how = [*notes, *how]
    y = _checked_labels(train[1], x, name)
    task = options.task or ("regression" if y.dtype.kind == "f" else "classification")
    _warn_about(y, task, options.task is not None, name)
    if test is None:
        (y,), names = _targets([y], task, name, class_names)
        rows = split_rows(y, task, options.test_fraction, options.seed, name)
        (x, x_test), (y, y_test) = ([take_rows(values, part) for part in rows] for values in (x, y))
        of = "of each class are" if task == "classification" else "are"
        how.append(f"{options.test_fraction:.0%} {of} the test part (seed {options.seed})")
    else:
        mine, others = column_names(train[0]), column_names(test[0])
        if not is_prepared and None not in (mine, others) and mine != others:  # columns are used by position
            text = f"{name}: the columns of the test part are {others}, those of the training part {mine}"
            raise InvalidInputError(f"{text}; give both in one order, test[train.columns].")
        x_test, _ = (as_table(test[0]), []) if is_prepared else _inputs(test[0], f"{name}, test: x")
        y_test = _checked_labels(test[1], x_test, f"{name}, test")
        kinds = [f"{each.dtype} of shape {each.shape[1:]}" for each in (x_test, x) if not is_prepared]
        if len(set(kinds)) > 1:  # columns that are prepared are found by name
            text = f"{name}: test samples are {kinds[0]}, training samples {kinds[1]}"
            raise InvalidInputError(f"{text}; they must be alike.")
        (y, y_test), names = _targets([y, y_test], task, name, class_names)
    known: dict[str, Any] = {"class_names": names}
    if is_prepared:
        asked = options.preparation
        known["table"] = made = (clone(asked) if isinstance(asked, Preparation) else Preparation()).fit(x)
        try:
            x, x_test = (as_dense(made.transform(part)).astype(np.float32) for part in (x, x_test))
        except InvalidInputError as error:  # what was learnt fits the training part
            raise InvalidInputError(f"{name}, test: {error}") from None
        how.append("columns prepared as the training part has them (see table)")
    elif x.ndim == 2:
        own = column_names(train[0]) or columns or ()
        mean, deviation = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
        deviation[deviation <= 1e-12 * np.maximum(np.abs(mean), 1e-300)] = 1.0  # constant columns become 0
        known["scaling"] = scaling = Scaling(mean, deviation, tuple(map(str, own)) if len(own) == x.shape[1] else None)
        x, x_test = scaling(x), scaling(x_test)
        how.append("columns standardised with mean and deviation of the training part")
    else:
        known["mean"], known["std"] = channel_statistics(x)
    return array_splits(name, (x, y), (x_test, y_test), task, preparation="; ".join(how), **known)


def channel_statistics(x: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation (1 if constant) of each channel of images (n, c, h, w), of bytes over 255 or of floats."""
    means, deviations = [], []
    for channel in range(x.shape[1]):
        values, counts = x[:, channel], None
        if x.dtype == np.uint8:  # counts are exact and need no copy as floats
            counts = np.bincount(values.reshape(-1), minlength=256)
            values = np.arange(256) / 255
        mean = float(np.average(values, weights=counts))
        variance = float(np.average((values - mean) ** 2, weights=counts))
        means.append(mean)
        deviations.append(variance**0.5 if variance > 0 else 1.0)
    return tuple(means), tuple(deviations)


def _numpy(values: Any) -> np.ndarray:
    if hasattr(values, "tocsr"):
        raise InvalidTypeError("sparse matrices cannot be trained on here; give x.toarray().")
    array = as_numpy(values)
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array.flat):
        array = array.astype(str)
    return array


def _inputs(values: Any, what: str) -> tuple[np.ndarray, list[str]]:
    """(n, d) floats, or (n, c, h, w) bytes or float32, and notes on what was converted."""
    if column_names(values) is not None:  # of a frame: columns may differ in type
        values = check_features(values, finite=False, name=what)
    x, how = _numpy(values), []
    if x.ndim not in (2, 3, 4) or 0 in x.shape:
        raise InvalidInputError(f"{what} has shape {x.shape}; rows (n, d) or images (n, c, h, w) are needed.")
    if x.dtype.kind not in ("fiub" if x.ndim == 2 else "f") and x.dtype != np.uint8:
        needed = "numbers" if x.ndim == 2 else "bytes (uint8) or floats"
        raise InvalidTypeError(f"{what} has type {x.dtype}; {needed} are needed.")
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[1] not in _CHANNELS and x.shape[3] in _CHANNELS:
        x = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
        how.append("channels brought to the front")
    if x.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):  # too large, signalling NaN
            narrow = x.astype(np.float32)
        if len(bad := np.argwhere(~np.isfinite(narrow))):
            raise InvalidInputError(f"{what}[{bad[0][0]}] holds {x[tuple(bad[0])]}; it must be finite.")
        x = narrow if x.ndim == 4 else x
    elif x.ndim == 2:
        x = x.astype(np.float64)
    return x, how


def _checked_labels(values: Any, x: Any, name: str) -> np.ndarray:
    y = _numpy(values)
    if y.ndim == 0 or x.shape[0] != len(y):
        raise InvalidInputError(f"{name}: y has shape {y.shape}, but x has {x.shape[0]} rows.")
    return y


def _warn_about(y: np.ndarray, task: Task, is_asked_for: bool, name: str) -> None:
    text, n_classes = "", len(np.unique(y)) if y.ndim == 1 and task == "classification" else 0
    if task == "regression" and y.dtype.kind in "fiu" and np.abs(y).max() > _LARGE_TARGET:
        text = f"targets are as large as {np.abs(y).max():.3g}, and training with the usual step size may diverge"
        text += "; subtract their mean and divide them by their deviation"
    elif n_classes == 1:
        text = f"all labels are {y[0]}, so there is nothing to learn"
    elif not is_asked_for and n_classes > max(_MANY_CLASSES, len(y) / _FEW_PER_CLASS):
        text = f"{n_classes} classes in {len(y)} samples; if labels are amounts, use task='regression' (--task)"
    if text:
        logger.warning("%s: %s", name, text)


def _targets(
    parts: list[np.ndarray], task: Task, name: str, class_names: tuple[str, ...] | None
) -> tuple[list[np.ndarray], tuple[str, ...] | None]:
    """Labels from 0 on and their names (by default the sorted labels of the first part), or targets in float32."""
    for at, y in enumerate(parts):
        if task == "regression":
            if y.dtype.kind not in "fiub" or y.ndim > 2:
                raise InvalidInputError(f"{name}: y is {y.dtype} {y.shape}; targets are numbers, (n,) or (n, K).")
            with np.errstate(over="ignore", invalid="ignore"):
                parts[at] = y.astype(np.float32)
            if not np.isfinite(parts[at]).all():
                raise InvalidInputError(f"{name}: y holds numbers that are not finite.")
        elif y.ndim != 1:
            raise InvalidInputError(f"{name}: y has shape {y.shape}; one label for each sample is needed.")
        elif y.dtype.kind == "f" and np.isfinite(y).all() and not (y % 1).any():  # 0.0, 1.0, ... are integers
            parts[at] = y.astype(np.int64)
    if task == "regression":
        return parts, None
    if class_names is None:
        labels = encode_labels(parts[0], f"{name}: y")
        known = np.asarray(labels.names)
        codes = [np.searchsorted(known, y).clip(max=len(known) - 1).astype(np.int64) for y in parts]
        if np.any(unknown := known[codes[-1]] != parts[-1]):
            label = parts[-1][unknown][0]
            raise InvalidInputError(f"{name}: the label {label!s} is in the test part, but not in the training part.")
        return codes, tuple(map(str, labels.names))
    for y in parts:
        if y.min() < 0 or y.max() >= len(class_names):
            text = f"{name}: labels from {y.min()} to {y.max()}, but there are {len(class_names)} classes"
            raise InvalidInputError(f"{text}; samples without a label cannot be used.")
    return [y.astype(np.int64) for y in parts], class_names


def from_npz(path: Path, test: Path | None, options: Options) -> DatasetSplits:
    """Arrays ``X`` and ``y``, or ``X_train``, ``y_train``, ``X_test`` and ``y_test``, of an ``.npz`` file."""

    def read(place: Path, part: str = "") -> Any:
        return read_arrays(place, f"X{part}", f"y{part}")

    if test is None and "X_train" in array_names(path):
        return from_arrays(str(path), read(path, "_train"), read(path, "_test"), options)
    return from_arrays(str(path), read(path), None if test is None else read(test), options)


def from_table(path: Any, test: Any, options: Options) -> DatasetSplits:
    """A table in a file, a folder of files or a frame: ``label``, and all columns that can be read."""
    if options.label is None:
        raise InvalidInputError(f"{_named(path)}: label is missing; name the column of the labels or targets.")
    wanted = Wanted(None, label=options.label, is_prepared=options.preparation is not None, any_label=True)
    tables = [open_wanted(place, wanted) for place in (path, *([] if test is None else [test]))]
    train, *rest = map(_features_and_labels, tables)
    if not wanted.is_prepared and tables[-1].names != tables[0].names:
        raise InvalidInputError(f"{_named(test)}: its columns are not those of {_named(path)}.")
    return from_arrays(_named(path), train, rest[0] if rest else None, options, columns=tuple(tables[0].names or ()))


def _named(place: Any) -> str:
    return str(place) if isinstance(place, str | Path) else "frame"


def _features_and_labels(table: Rows) -> tuple[Any, np.ndarray]:
    """Everything in a table. Labels of a text file are whole numbers if all are, else numbers if all are, else text."""
    with table.load() as loaded:
        assert loaded.labels is not None
        names = np.asarray(loaded.labels.names)
        for kind in (np.float64, np.int64) if isinstance(table, CsvRows) else ():
            with suppress(ValueError, OverflowError):
                names = np.asarray(loaded.labels.names).astype(kind)
        return loaded.X, names[loaded.labels.codes]


def load_imagenet(found: list[Path], options: Options) -> DatasetSplits:
    """ImageNet from ``train/CLASS/*.JPEG`` and ``val/CLASS/*.JPEG``; ``val`` is the test part, as in the literature."""
    size = options.image_size or _SIZE
    train, classes = _class_folders(found[0], size, _IMAGENET_SHARE)
    test, _ = _class_folders(found[1], size, _IMAGENET_SHARE, classes)
    how = f"the published training and validation parts, at {size}x{size}"
    return _splits("imagenet", train, test, classes, preparation=how, augmentation="resized-crop-flip")


def load_image_folder(folder: Path, test: Path | None, options: Options) -> DatasetSplits:
    """A user's images in class folders; the test part is ``test``, or a folder beside ``train``, or split off here."""
    if test is None and (folder / "train").is_dir():
        test = next((folder / name for name in _TEST_FOLDERS if (folder / name).is_dir()), None)
        if test is None:
            raise InvalidInputError(f"{folder}: beside the folder train, one of {', '.join(_TEST_FOLDERS)} is needed.")
        folder = folder / "train"
    size = options.image_size or _SIZE
    train_part, classes = _class_folders(folder, size)
    if options.image_size is None:  # the shortest side of some images, at most 224: none is enlarged by default
        for path in train_part.paths[:: max(1, len(train_part.paths) // _LOOKED_AT)]:
            with suppress(OSError, ValueError), Image.open(path) as image:  # a damaged one raises in training
                size = min(size, *image.size)
    train_part = replace(train_part, size=size)
    if test is not None:
        test_part, _ = _class_folders(test, size, classes=classes)
        how = f"test part from {test}"
    else:
        rows = split_rows(train_part.y, "classification", options.test_fraction, options.seed, str(folder))
        train_part, test_part = (train_part.take(part) for part in rows)
        how = f"{options.test_fraction:.0%} of each class are the test part (seed {options.seed})"
    how += f"; the square in the middle at {size}x{size}; normalised with the statistics of ImageNet"
    return _splits(str(folder), train_part, test_part, classes, preparation=how)


def _splits(name: str, train: LazyDataset, test: LazyDataset, classes: tuple[str, ...], **known: Any) -> DatasetSplits:
    known |= {"mean": _MEAN, "std": _STD, "class_names": classes, "input_shape": (3, train.size, train.size)}
    return DatasetSplits(name, train, test, len(classes), "classification", **known)


def _class_folders(
    root: Path, size: int, share: float = 1.0, classes: tuple[str, ...] = ()
) -> tuple[LazyDataset, tuple[str, ...]]:
    """All images below the folders of ``root``, by name, and classes: as given, or the folders that hold images."""
    need("PIL.Image", "io", "an image file")
    if not root.is_dir():
        raise InvalidInputError(f"{root}: no such folder.")
    folders = sorted(path.name for path in root.iterdir() if path.is_dir() and not is_hidden([path.name]))
    images = {name: inside for name in folders if (inside := find_images(str(root / name)))}
    if not images:
        raise InvalidInputError(f"{root}: no folder in it holds images; it must hold one folder per class.")
    classes = classes or tuple(images)
    if unknown := [name for name in images if name not in classes]:
        raise InvalidInputError(f"{root / unknown[0]}: the training part has no class of this name.")
    labels = np.repeat([classes.index(name) for name in images], [len(inside) for inside in images.values()])
    return LazyDataset([path for inside in images.values() for path in inside], labels, size, share), classes
