"""Images in class folders, for training: found at once, decoded when they are asked for."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from .._errors import InvalidInputError
from ..rows.images import SUFFIXES, need_pillow
from .preparing import split_rows
from .splits import DatasetSplits, LazyDataset

IMAGENET_SIZE = 224
_IMAGENET_SHARE = 224 / 256  # the usual view of a test image: 224 pixels of 256
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
_TEST_FOLDERS = ("test", "val", "valid", "validation")


def find_imagenet(root: Path) -> tuple[Path | None, list[str]]:
    """The folder that holds ``train`` and ``val``; or else what is missing."""
    folders = [root / "imagenet", root / "ILSVRC2012", root]
    for folder in folders:
        if (folder / "train").is_dir() and (folder / "val").is_dir():
            return folder, []
    for folder in folders[:2]:
        if folder.is_dir():
            return None, [
                f"{folder / part}{os.sep}" for part in ("train", "val") if not (folder / part).is_dir()
            ]
    return None, ["train" + os.sep, "val" + os.sep]


def load_imagenet(folder: Path, size: int = IMAGENET_SIZE) -> DatasetSplits:
    """ImageNet from ``train/CLASS/*.JPEG`` and ``val/CLASS/*.JPEG``; ``val`` is the test part, as in the literature."""
    train, test, classes = _two_folders(folder / "train", folder / "val", size, _IMAGENET_SHARE)
    return DatasetSplits(
        "imagenet",
        train,
        test,
        n_classes=len(classes),
        task="classification",
        input_shape=(3, size, size),
        mean=_MEAN,
        std=_STD,
        augmentation="resized-crop-flip",
        class_names=classes,
        preparation=f"the published training and validation parts, at {size}x{size}",
    )


def load_image_folder(
    folder: Path, test: Path | None, size: int, test_fraction: float, seed: int
) -> DatasetSplits:
    """Images of a user: the folder that an image is in is its class.

    With folders ``train`` and ``test`` (or ``val``, ``valid``, ``validation``) inside, those are the parts; else
    ``test`` is the second part, or some of each class are.
    """
    if test is None and (folder / "train").is_dir():
        found = [folder / name for name in _TEST_FOLDERS if (folder / name).is_dir()]
        if not found:
            raise InvalidInputError(
                f"{folder}: beside the folder train, one of {', '.join(_TEST_FOLDERS)} is needed."
            )
        folder, test = folder / "train", found[0]
    if test is not None:
        train_part, test_part, classes = _two_folders(folder, test, size, 1.0)
        how = f"test part from {test}"
    else:
        everything, classes = _class_folders(folder, size, 1.0)
        rows = split_rows(everything.y, "classification", test_fraction, seed, str(folder))
        train_part, test_part = (everything.take(part) for part in rows)
        how = f"{test_fraction:.0%} of each class are the test part (seed {seed})"
    return DatasetSplits(
        str(folder),
        train_part,
        test_part,
        n_classes=len(classes),
        task="classification",
        input_shape=(3, size, size),
        mean=_MEAN,
        std=_STD,
        class_names=classes,
        preparation=f"{how}; the square in the middle at {size}x{size}; normalised with the statistics of ImageNet",
    )


def _two_folders(
    train: Path, test: Path, size: int, share: float
) -> tuple[LazyDataset, LazyDataset, tuple[str, ...]]:
    first, classes = _class_folders(train, size, share)
    second, others = _class_folders(test, size, share)
    number = {name: i for i, name in enumerate(classes)}
    for name in others:
        if name not in number:
            raise InvalidInputError(f"{test / name}: {train} has no class of this name.")
    again = np.array([number[name] for name in others], dtype=np.int64)
    return first, LazyDataset(second.paths, again[second.y], size, share), classes


def _class_folders(root: Path, size: int, share: float) -> tuple[LazyDataset, tuple[str, ...]]:
    """All images below the folders of ``root``, in the order of their names; classes without an image are left out."""
    need_pillow()
    if not root.is_dir():
        raise InvalidInputError(f"{root}: no such folder.")
    paths: list[str] = []
    labels: list[int] = []
    classes: list[str] = []
    for folder in sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and entry.name[0] != "."):
        inside = sorted(
            os.path.join(place, file)
            for place, _, files in os.walk(root / folder)
            for file in files
            if file[0] != "." and os.path.splitext(file)[1].lower() in SUFFIXES
        )
        if inside:
            paths += inside
            labels += [len(classes)] * len(inside)
            classes.append(folder)
    if not classes:
        raise InvalidInputError(
            f"{root}: no folder in it holds images; it must hold one folder for each class."
        )
    return LazyDataset(paths, np.array(labels, dtype=np.int64), size, share), tuple(classes)
