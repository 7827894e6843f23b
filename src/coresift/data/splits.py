"""What a data set for training is: a training and a test part, in memory or on the disk, and what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from .._errors import InvalidInputError
from ..rows.images import decode, middle, random_resized_crop

Task = Literal["classification", "regression"]
Augmentation = Literal["crop-flip", "resized-crop-flip"]


@dataclass(frozen=True, eq=False)
class ArrayDataset:
    """Samples in memory: serve them by indexing the arrays, not item by item.

    Attributes
    ----------
    x : array of shape (n, c, h, w), uint8, or (n, d), float32
        Images stay bytes: they are scaled and normalised as tensors, batch by batch. (Images given as floats stay
        float32.)
    y : array of n int64 labels from 0 on, or of (n,) or (n, K) float32 targets
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

    def take(self, rows: np.ndarray) -> ArrayDataset:
        """Some rows, in the order in which they are named."""
        return ArrayDataset(self.x[rows], self.y[rows])


@dataclass(frozen=True, eq=False)
class LazyDataset:
    """Images on the disk, decoded one by one when asked for. Small enough to be sent to workers: names, no pixels.

    Attributes
    ----------
    paths : sequence of str
    y : array of n int64 labels from 0 on
    size : int
        Height and width of what ``load`` gives.
    share : float, default 1.0
        Of the shorter side of an image, the part that is seen without ``rng``.
    """

    paths: Sequence[str]
    y: np.ndarray
    size: int
    share: float = 1.0

    def __post_init__(self) -> None:
        if len(self.paths) != len(self.y):
            raise InvalidInputError(f"y has {len(self.y)} entries, but there are {len(self.paths)} images.")

    def __len__(self) -> int:
        return len(self.paths)

    def load(self, index: int, rng: np.random.Generator | None = None) -> np.ndarray:
        """The image at ``index``, (3, size, size) uint8.

        Without ``rng``: the square in the middle, with ``share`` of the shorter side. With it: a random part of 8 to
        100 % of the area, of a ratio between 3:4 and 4:3, mirrored half of the time, as ImageNet models are trained.
        """
        crop = middle(self.share) if rng is None else random_resized_crop(rng)
        return decode(self.paths[index], self.size, crop)

    def __getitem__(self, index: int) -> tuple[np.ndarray, Any]:
        return self.load(index), self.y[index]

    def take(self, rows: np.ndarray) -> LazyDataset:
        """Some images, in the order in which they are named."""
        return LazyDataset([self.paths[int(row)] for row in rows], self.y[rows], self.size, self.share)


AnyDataset: TypeAlias = ArrayDataset | LazyDataset


@dataclass(frozen=True, eq=False)
class Scaling:
    """What the columns of a table were standardised by. Call it with rows that come later.

    Attributes
    ----------
    mean, deviation : (d,) float64
        Of the training part.
    columns : tuple of str or None
        Their names, where they have some.
    """

    mean: np.ndarray
    deviation: np.ndarray
    columns: tuple[str, ...] | None = None

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Rows (n, d) as the network was given its own, float32."""
        most = float(np.finfo(np.float32).max)
        with np.errstate(over="ignore"):  # a row may be any number of deviations away
            return ((x - self.mean) / self.deviation).clip(-most, most).astype(np.float32)


@dataclass(frozen=True, eq=False)
class DatasetSplits:
    """A data set for training.

    Attributes
    ----------
    name : str
    train, test : ArrayDataset or LazyDataset
    n_classes : int or None
        None for regression.
    task : "classification" or "regression"
    input_shape : tuple of int
        Of one sample: (c, h, w) or (d,).
    mean, std : tuple of float or None
        Per channel, of bytes over 255, or of floats as they are; a batch is normalised to ``(x - mean) / std``. None
        where the inputs are to be used as they are: rows of a table are standardised already.
    scaling : Scaling or None
        What the rows of a table were standardised by.
    augmentation : "crop-flip", "resized-crop-flip" or None
        What belongs to training on these data: random crops of the image with four black pixels on each side, and
        mirror images; or, for images on the disk, ``train.load(index, rng)``.
    class_names : tuple of str or None
    preparation : str
        What was done to the data, as a phrase.
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

    def described(self) -> dict[str, Any]:
        """All but the samples, for JSON: what a trained network needs to be used on other data."""
        scaling = self.scaling
        return {
            "name": self.name,
            "task": self.task,
            "input_shape": list(self.input_shape),
            "class_names": None if self.class_names is None else list(self.class_names),
            "mean": None if self.mean is None else list(self.mean),
            "std": None if self.std is None else list(self.std),
            "columns": None if scaling is None or scaling.columns is None else list(scaling.columns),
            "column_means": None if scaling is None else scaling.mean.tolist(),
            "column_deviations": None if scaling is None else scaling.deviation.tolist(),
            "preparation": self.preparation,
        }

    @property
    def n_outputs(self) -> int:
        """Outputs that a model needs: one for each class, or for each target."""
        if self.n_classes is not None:
            return self.n_classes
        return 1 if self.train.y.ndim == 1 else int(self.train.y.shape[1])

    def __repr__(self) -> str:
        what = f"{self.n_classes} classes" if self.n_classes is not None else "regression"
        return (
            f"DatasetSplits({self.name!r}: {len(self.train):,} + {len(self.test):,} samples "
            f"of {'x'.join(map(str, self.input_shape))}, {what})"
        )
