"""Where batches come from: arrays by tensor indexing on the device, anything else through a ``DataLoader``."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from .._errors import InvalidInputError, InvalidTypeError
from ..data.splits import ArrayDataset, DatasetSplits, LazyDataset
from .augment import augment, normalize
from .sampler import WeightedDataset, WeightedIndex, inputs_and_targets

Batch = tuple[Tensor, Tensor, Tensor]  # inputs (b, ...), targets (b, ...), weights (b,), on the device
Augment = Callable[[Tensor, torch.Generator], Tensor]
_LOOK_SEED = 13
RESIZED_CROP = "resized-crop-flip"


class TensorFeed:
    """Rows of tensors that stay on the device; a batch is an indexing, and then the transform."""

    def __init__(
        self, X: Any, y: Any, device: torch.device, transform: Callable[[Tensor], Tensor] | None
    ) -> None:
        self.X, self.y = _tensor(X, "X").to(device), _targets(y).to(device)
        if len(self.X) != len(self.y):
            raise InvalidInputError(
                f"y has {len(self.y)} entries, but X has {len(self.X)} rows; they must be equal."
            )
        self.transform, self.device = transform, device

    def __len__(self) -> int:
        return len(self.X)

    def batches(
        self,
        rows: NDArray[np.int64],
        weights: NDArray[np.float64],
        batch_size: int,
        seed: int = 0,
        augmented: Augment | None = None,
    ) -> Iterator[Batch]:
        """The rows in their order; the seed is that of the augmentation."""
        order = torch.tensor(rows).to(self.device)
        scale = torch.tensor(weights, dtype=torch.float32).to(self.device)
        generator = torch.Generator(self.device).manual_seed(seed)
        for chosen, w in zip(torch.split(order, batch_size), torch.split(scale, batch_size), strict=True):
            x = self.X.index_select(0, chosen)
            if augmented is not None:
                x = augmented(x, generator)
            if self.transform is not None:
                x = self.transform(x)
            yield x, self.y.index_select(0, chosen), w

    def take(self, rows: NDArray[np.int64]) -> TensorFeed:
        """Some rows, as a feed of their own."""
        chosen = torch.tensor(rows).to(self.device)
        return TensorFeed(self.X[chosen], self.y[chosen], self.device, self.transform)

    def fingerprint(self) -> str:
        """Of the numbers themselves: a run is not continued on other data."""
        found = 0
        for tensor in (self.X, self.y):
            found = zlib.crc32(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data, found)
        return f"{tuple(self.X.shape)} {self.X.dtype} {found:08x}"


class LoaderFeed:
    """Items of a map-style data set, fetched one by one, by worker processes if there are some."""

    def __init__(
        self, dataset: Any, device: torch.device, transform: Callable[[Tensor], Tensor] | None, workers: int
    ) -> None:
        self.X = dataset
        self.y = known_targets(dataset)
        self.transform, self.device, self.workers = transform, device, workers

    def __len__(self) -> int:
        return len(self.X)

    def batches(
        self,
        rows: NDArray[np.int64],
        weights: NDArray[np.float64],
        batch_size: int,
        seed: int = 0,
        augmented: Augment | None = None,
    ) -> Iterator[Batch]:
        """The rows in their order. Workers live for an epoch, and their seeds follow from that of the epoch."""
        items: Sequence[int] = [
            WeightedIndex(*pair) for pair in zip(rows.tolist(), weights.tolist(), strict=True)
        ]
        generator = torch.Generator(self.device).manual_seed(seed)
        dataset = self.X
        if isinstance(dataset, LazyDataset) and _cuts(augmented):
            dataset = _RandomLooks(dataset, seed)
        loader = DataLoader(
            WeightedDataset(dataset),
            sampler=items,
            batch_size=batch_size,
            num_workers=self.workers,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator().manual_seed(seed),
        )
        for item in loader:
            x, y, w = _three(item)
            x = x.to(self.device, non_blocking=True)
            if augmented is not None:
                x = augmented(x, generator)
            if self.transform is not None:
                x = self.transform(x)
            yield x, _targets(y).to(self.device, non_blocking=True), w.to(self.device, non_blocking=True)

    def take(self, rows: NDArray[np.int64]) -> LoaderFeed:
        """Some items, as a feed of their own."""
        own = getattr(self.X, "take", None)
        dataset = torch.utils.data.Subset(self.X, rows.tolist()) if own is None else own(rows)
        feed = LoaderFeed(dataset, self.device, self.transform, self.workers)
        if feed.y is None and self.y is not None:
            feed.y = np.asarray(self.y)[rows]
        return feed

    def fingerprint(self) -> str:
        """Their number and targets; the items themselves would take too long to read."""
        known = b"" if self.y is None else np.ascontiguousarray(np.asarray(self.y)).tobytes()
        return f"{len(self.X)} items {zlib.crc32(known):08x}"


def known_targets(dataset: Any) -> Any:
    """The targets of all items, where a data set has them beside the items; None if they are others than those."""
    found = getattr(dataset, "y", getattr(dataset, "targets", None))  # the second as torchvision names them
    if found is None or len(found) == 0:
        return found
    if (change := getattr(dataset, "target_transform", None)) is not None:
        found = np.asarray([change(target) for target in found])
    if isinstance(dataset, LazyDataset):
        return found  # its items are images to be read, and have these
    item = dataset[0]
    if isinstance(item, tuple | list) and len(item) == 2 and not np.array_equal(item[1], found[0]):
        return None  # strategies that need labels say so; gradients take those of the items
    return found


Feed = TensorFeed | LoaderFeed


@dataclass(frozen=True)
class _RandomLooks:
    """Images on the disk, each cut at random: by a generator of its own, whichever worker loads it."""

    dataset: LazyDataset
    seed: int

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[np.ndarray, Any]:
        rng = np.random.default_rng((self.seed, _LOOK_SEED, index))
        return self.dataset.load(index, rng), self.dataset.y[index]


def feeds_of(
    data: Any, test: Any, transform: Any, augmented: Any, device: torch.device, workers: int
) -> tuple[Feed, Feed | None, Augment | None]:
    """Feeds of the training and the test data, and the augmentation, from whatever :func:`train` was given."""
    if isinstance(data, DatasetSplits):
        splits = data
        data, test = splits.train, splits.test if test is None else test
        if transform is None:
            transform = partial(normalize, mean=splits.mean, std=splits.std)
        if augmented is True:
            augmented = None if splits.augmentation is None else partial(_augment, splits.augmentation)
    if augmented is True or augmented is False:
        augmented = None
    if transform is None:
        transform = _as_floats
    make = partial(_feed, device=device, transform=transform, workers=workers)
    return make(data), None if test is None else make(test), augmented


def _feed(data: Any, device: torch.device, transform: Any, workers: int) -> Feed:
    if isinstance(data, ArrayDataset):
        data = (data.x, data.y)
    X, y = inputs_and_targets(data)
    if y is not None:
        return TensorFeed(X, y, device, transform)
    if hasattr(X, "shape"):
        raise InvalidTypeError("the data have no targets: give a pair (X, y), or a data set.")
    if not hasattr(X, "__len__") or not hasattr(X, "__getitem__"):
        raise InvalidTypeError(f"{type(X).__name__} is no data set: it must have a length and items (x, y).")
    return LoaderFeed(X, device, transform, workers)


def _as_floats(x: Tensor) -> Tensor:
    """Bytes over 255; doubles as single precision, which is what models are made of."""
    return x.float() / 255 if x.dtype == torch.uint8 else x.float()


def _augment(kind: str, x: Tensor, generator: torch.Generator) -> Tensor:
    return augment(x, kind, generator)


def _cuts(augmented: Augment | None) -> bool:
    """Whether images are to be cut at random as they are read, which no function of a batch can do afterwards."""
    return isinstance(augmented, partial) and augmented.func is _augment and augmented.args == (RESIZED_CROP,)


def _three(item: Any) -> tuple[Tensor, Tensor, Tensor]:
    if not isinstance(item, tuple | list) or len(item) != 3:
        raise InvalidTypeError("the items of the data set must be pairs (x, y).")
    return item[0], item[1], item[2]


def _tensor(values: Any, name: str) -> Tensor:
    if isinstance(values, Tensor):
        values = values.detach()
        return values.float() if values.dtype == torch.bfloat16 else values
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise InvalidTypeError(f"{name} holds {array.dtype}; numbers are needed.")
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))


def _targets(y: Any) -> Tensor:
    tensor = _tensor(y, "y")
    return tensor.float() if tensor.is_floating_point() else tensor.long()
