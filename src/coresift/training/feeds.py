"""Where batches come from: arrays are indexed on the device, others go through a ``DataLoader``; augmentation."""

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader

from .._errors import InvalidInputError, InvalidTypeError
from .._validation import check_choice
from ..data.splits import ArrayDataset, DatasetSplits, LazyDataset
from ..selection.inputs import as_numbers, as_tensor, known_targets, loaded, unwrapped
from ..selection.losses import with_class_numbers
from .sampler import inputs_and_targets

Batch = tuple[Tensor, Tensor, Tensor]  # inputs (b, ...), targets (b, ...), weights (b,), on the device
Transform = Callable[[Tensor], Tensor]
Augment = Callable[[Tensor, torch.Generator], Tensor]
RESIZED_CROP = "resized-crop-flip"


@dataclass
class Feed:
    """Samples ``X`` with targets ``y`` (None if unknown), served in batches on a device.

    ``X`` is a tensor, which stays on the device, or a map-style data set, read by worker processes if there are any.
    """

    X: Any
    y: Any
    device: torch.device
    transform: Transform | None
    workers: int = 0
    collate: Any = None
    loss: Any = None

    @property
    def is_held(self) -> bool:
        return isinstance(self.X, Tensor)

    @property
    def samples(self) -> Any:
        """What a strategy reads: the samples, in a loader if they are collated by a function of its own."""
        return self.X if self.collate is None else DataLoader(self.X, collate_fn=self.collate)

    def __len__(self) -> int:
        return len(self.X)

    def batches(
        self, rows: Any, weights: Any, batch_size: int, seed: int = 0, augmented: Augment | None = None
    ) -> Iterator[Batch]:
        """Yield the rows in their order, augmented and transformed; ``seed`` is for the augmentation."""
        generator = torch.Generator(self.device).manual_seed(seed)
        scaled = torch.tensor(weights, dtype=torch.float32).to(self.device).split(batch_size)  # type: ignore[no-untyped-call]
        read = self._indexed(rows, batch_size) if self.is_held else self._loaded(rows, batch_size, seed, augmented)
        for (x, y), w in zip(read, scaled, strict=True):
            if augmented is not None:
                x = augmented(x, generator)
            yield x if self.transform is None else self.transform(x), y, w

    def _indexed(self, rows: Any, size: int) -> Iterator[tuple[Any, Tensor]]:
        for chosen in torch.tensor(rows).to(self.device).split(size):  # type: ignore[no-untyped-call]
            yield self.X.index_select(0, chosen), self.y.index_select(0, chosen)

    def _loaded(self, rows: Any, size: int, seed: int, augmented: Any) -> Iterator[tuple[Any, Tensor]]:
        dataset = self.X
        if isinstance(dataset, LazyDataset) and getattr(augmented, "args", None) == (RESIZED_CROP,):
            dataset = replace(dataset, crop_seed=seed)  # cropped as they are read, at their full size
        loading: dict[str, Any] = {
            "num_workers": self.workers,  # they live for an epoch, and their seeds follow from its seed
            "pin_memory": self.device.type == "cuda",
            "generator": torch.Generator().manual_seed(seed),
        }
        for x, y in loaded(dataset, None, rows, size, collate=self.collate, **loading):
            yield self._placed(x), self._placed(with_class_numbers(targets_of(y), self.loss))

    def _placed(self, x: Any) -> Any:
        if isinstance(x, Mapping):
            return {name: self._placed(value) for name, value in x.items()}
        return x.to(self.device, non_blocking=True) if isinstance(x, Tensor) else x

    def take(self, rows: NDArray[np.int64]) -> Self:
        if self.is_held:
            chosen = torch.tensor(rows).to(self.device)
            return replace(self, X=self.X[chosen], y=self.y[chosen])
        X = self.X.take(rows) if hasattr(self.X, "take") else torch.utils.data.Subset(self.X, rows.tolist())
        return replace(self, X=X, y=None if self.y is None else np.asarray(self.y)[rows])

    def fingerprint(self) -> str:
        """Return a checksum, so that a run is not resumed on other data; of items that must be read, of the targets."""
        if not self.is_held:
            known = b"" if self.y is None else np.ascontiguousarray(np.asarray(self.y)).tobytes()
            return f"{len(self.X)} items {zlib.crc32(known):08x}"
        found = 0
        for tensor in (self.X, self.y):
            found = zlib.crc32(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data, found)
        return f"{tuple(self.X.shape)} {self.X.dtype} {found:08x}"


def feeds_of(
    data: Any, test: Any, transform: Any, augmented: Any, device: torch.device, workers: int, integers: bool = False
) -> tuple[Feed, Feed | None, Augment | None]:
    """Return feeds of training and test data, and the augmentation; ``integers``, meant for an embedding, stay so."""
    kind = None
    if isinstance(data, DatasetSplits):
        kind, test = data.augmentation, data.test if test is None else test
        transform = partial(normalize, mean=data.mean, std=data.std) if transform is None else transform
        data = data.train
    if isinstance(augmented, bool):
        if kind is not None:
            check_choice(kind, "augmentation", ("crop-flip", RESIZED_CROP))
        augmented = partial(_augment, kind) if augmented and kind is not None else None
    if transform is None:
        transform = partial(as_numbers, integers=integers)
    make = partial(_feed, device=device, transform=transform, workers=workers)
    return make(data), None if test is None else make(test), augmented


def _feed(data: Any, device: torch.device, transform: Any, workers: int) -> Feed:
    if isinstance(data, ArrayDataset):
        data = (data.x, data.y)
    X, y = inputs_and_targets(data)
    X, reader = unwrapped(X)
    if hasattr(X, "tocsr"):
        size = math.prod(X.shape) * X.dtype.itemsize / 1e9
        how = f"X.toarray(), {size:.2g} GB, or a data set whose items are dense rows"
        raise InvalidTypeError(f"X is a sparse matrix of shape {X.shape}, but training needs dense rows: pass {how}.")
    if y is not None:
        return Feed(_tensor(X, "X").to(device), targets_of(y).to(device), device, transform)
    if hasattr(X, "shape"):
        raise InvalidTypeError("the data have no targets: give a pair (X, y) or a data set.")
    if not hasattr(X, "__len__") or not hasattr(X, "__getitem__"):
        raise InvalidTypeError(f"data of type {type(X).__name__} must have a length and items (x, y).")
    return Feed(X, known_targets(X), device, transform, workers or reader.get("workers", 0), reader.get("collate"))


def _augment(kind: str, x: Tensor, generator: torch.Generator) -> Tensor:  # config.json records this name
    return random_crop_flip(x, generator) if kind == "crop-flip" else x


def _tensor(values: Any, name: str) -> Tensor:
    tensor = as_tensor(values, name).detach()
    is_wide = tensor.dtype == torch.float64 and not isinstance(values, Tensor)
    return tensor.float() if is_wide or tensor.dtype == torch.bfloat16 else tensor


def targets_of(y: Any) -> Tensor:
    """Convert targets to a tensor of floats or of integers."""
    tensor = _tensor(y, "y")
    return tensor.float() if tensor.is_floating_point() else tensor.long()


def normalize(x: Tensor, mean: Sequence[float] | None, std: Sequence[float] | None) -> Tensor:
    """Return a batch ``x``, (b, c, ...), with bytes divided by 255 and, given ``mean`` and ``std``, normalised.

    >>> normalize(torch.full((1, 1, 1), 255, dtype=torch.uint8), mean=[0.5], std=[0.25])
    tensor([[[2.]]])
    """
    if mean is None and std is None:
        return x.float().div_(255) if x.dtype == torch.uint8 else x
    if mean is None or std is None:
        raise InvalidInputError("give both mean and std, or neither.")
    centre, deviation = _constants(tuple(mean), tuple(std), x.shape[1:], x.dtype, x.device)
    return (x - centre).div_(deviation)


@lru_cache(maxsize=16)
def _constants(
    mean: tuple[float, ...], std: tuple[float, ...], shape: torch.Size, dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    """Mean and deviation of each channel, checked, for bytes in units of 1/255; every batch asks for the same."""
    n_channels = shape[0] if shape else 0
    for name, values in (("mean", mean), ("std", std)):
        if len(values) != n_channels:
            raise InvalidInputError(f"{name} has {len(values)} entries, but x has {n_channels} channels.")
    if min(std) <= 0:
        raise InvalidInputError(f"std = {std} must be positive.")
    unit, kind = (255, torch.float32) if dtype == torch.uint8 else (1, dtype)
    given = (unit * torch.tensor(v, dtype=kind, device=device) for v in (mean, std))
    return [each.view(-1, *[1] * (len(shape) - 1)) for each in given]


def random_crop_flip(x: Tensor, generator: torch.Generator, padding: int = 4) -> Tensor:
    """Crop images (b, c, h, w), padded with zeros (black), at random to h x w, and mirror with probability 1/2."""
    b, c, h, w = x.shape

    def drawn(limit: int) -> Tensor:
        return torch.randint(0, limit, (b, 1), generator=generator, device=generator.device).to(x.device)

    top, left, mirror = drawn(2 * padding + 1), drawn(2 * padding + 1), drawn(2).bool()
    across = torch.arange(w, device=x.device)
    rows = top + torch.arange(h, device=x.device)  # (b, h)
    columns = left + torch.where(mirror, across.flip(0), across)  # (b, w)
    padded = functional.pad(x, (padding,) * 4).flatten(2)  # (b, c, (h + 2p)(w + 2p))
    pixels = rows[:, :, None] * (w + 2 * padding) + columns[:, None, :]  # (b, h, w): positions in it
    # one gather for all channels is several times as fast as indexing with four tensors
    return padded.gather(2, pixels.view(b, 1, h * w).expand(b, c, h * w)).view(b, c, h, w)
