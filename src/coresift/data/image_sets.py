"""Images in class folders, for training; they are decoded when they are needed."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import InvalidInputError
from ..rows.disk import is_hidden
from ..rows.images import find_images, need_pillow
from .splits import DatasetSplits, LazyDataset, split_rows
from .user_sets import Options

_SIZE, _LOOKED_AT = 224, 32
_IMAGENET_SHARE = 224 / 256  # the usual view of a test image: 224 pixels of 256
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
_TEST_FOLDERS = ("test", "val", "valid", "validation")


def find_imagenet(root: Path) -> tuple[list[Path], list[str]]:
    """The folder that holds ``train`` and ``val``; else what is missing."""
    missing: list[str] = []
    for folder in (root / "imagenet", root / "ILSVRC2012", root):
        absent = [f"{folder / part}{os.sep}" for part in ("train", "val") if not (folder / part).is_dir()]
        if not absent:
            return [folder], []
        if folder.is_dir() and folder != root:
            missing = missing or absent
    return [], missing or [f"train{os.sep}", f"val{os.sep}"]


def load_imagenet(found: list[Path], options: Options) -> DatasetSplits:
    """ImageNet from ``train/CLASS/*.JPEG`` and ``val/CLASS/*.JPEG``; ``val`` is the test part, as in the literature."""
    size = options.image_size or _SIZE
    train, classes = _class_folders(found[0] / "train", size, _IMAGENET_SHARE)
    test, _ = _class_folders(found[0] / "val", size, _IMAGENET_SHARE, classes)
    how = f"the published training and validation parts, at {size}x{size}"
    return _splits("imagenet", train, test, classes, preparation=how, augmentation="resized-crop-flip")


def load_image_folder(folder: Path, test: Path | None, options: Options) -> DatasetSplits:
    """A user's images in class folders; the test part is ``test``, or a folder beside ``train``, or split off here."""
    if test is None and (folder / "train").is_dir():
        test = next((folder / name for name in _TEST_FOLDERS if (folder / name).is_dir()), None)
        if test is None:
            others = ", ".join(_TEST_FOLDERS)
            raise InvalidInputError(f"{folder}: beside the folder train, one of {others} is needed.")
        folder = folder / "train"
    train_part, classes = _class_folders(folder, options.image_size or _SIZE)
    size = options.image_size or _own_size(train_part.paths)
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


def _own_size(paths: Sequence[str]) -> int:
    """The shorter side of the smallest of some images, but at most 224 pixels: images are not enlarged unasked."""
    from PIL import Image

    sides = []
    for path in paths[:: max(1, len(paths) // _LOOKED_AT)]:
        with suppress(OSError, ValueError), Image.open(path) as image:  # one that cannot be read raises in training
            sides.append(min(image.size))
    return min([_SIZE, *sides])


def _splits(name: str, train: LazyDataset, test: LazyDataset, classes: tuple[str, ...], **known: Any) -> DatasetSplits:
    shape = (3, train.size, train.size)
    known |= {"mean": _MEAN, "std": _STD, "class_names": classes}
    return DatasetSplits(name, train, test, len(classes), "classification", shape, **known)


def _class_folders(
    root: Path, size: int, share: float = 1.0, classes: tuple[str, ...] = ()
) -> tuple[LazyDataset, tuple[str, ...]]:
    """All images below the folders of ``root``, by name, and classes: as given, or the folders that hold images."""
    need_pillow()
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
    paths = [path for inside in images.values() for path in inside]
    return LazyDataset(paths, labels, size, share), classes
