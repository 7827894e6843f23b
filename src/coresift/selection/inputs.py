"""Samples in any container: as matrices for the strategies, as batches of tensors for a model."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError, InvalidTypeError
from .._imports import Late
from .._validation import as_numpy
from ..data.splits import LazyDataset
from ..rows.columns import take_rows

if TYPE_CHECKING:
    import torch as torch
else:
    torch = Late("torch", "train", "a model")  # without gradients it is not needed

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]
TARGETS = ("labels", "targets", "y", "label")  # names of fields and attributes


def as_tensor(values: Any, what: str) -> Any:
    """Convert numbers in any container to a dense tensor."""
    if isinstance(values, torch.Tensor):
        return values
    array = as_numpy(values.toarray() if hasattr(values, "toarray") else values)
    if array.dtype.kind not in "biufc":
        how = "numpy.unique(y, return_inverse=True)[1]"
        raise InvalidTypeError(f"{what} holds {array.dtype}; the model needs numbers. For text labels use {how}.")
    return torch.as_tensor(np.require(array, requirements=["C", "W"]))  # torch warns about read-only memory


def as_numbers(x: Any, integers: bool) -> Any:
    """Bytes over 255, and floats; integers stay integers if they are meant for an embedding."""
    if not isinstance(x, torch.Tensor):
        return x
    if x.dtype == torch.uint8:
        return x.float() / 255
    return x.long() if integers and not x.is_floating_point() else x.float()


def flattened(X: Any, workers: int = 0) -> Any:
    """Flatten inputs to a matrix (n, d): sparse matrices as CSR, items of a data set stacked."""
    if hasattr(X, "tocsr"):
        return X.tocsr()
    if is_dataset(X) and workers:
        rows = np.arange(len(X))
        parts = (x for x, _ in batches_of(X, rows, rows, 256, num_workers=workers))
        X = np.concatenate([as_numpy(x).reshape(len(x), -1) for x in parts])
    elif is_dataset(X):
        X = np.stack([as_numpy(split_batch(X[i])[0]).ravel() for i in range(len(X))])
    array = as_numpy(X)
    if array.ndim == 0 or len(array) == 0:
        raise InvalidInputError("X has no rows.")
    return array.reshape(len(array), -1)


def class_positions(labels: NDArray[Any]) -> dict[Any, Indices]:
    """Positions of each class, in the order of the labels."""
    if labels.ndim != 1:
        raise InvalidInputError(f"labels have shape {labels.shape}; per-class selection needs one label per sample.")
    found, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    order = np.argsort(numbers, kind="stable")
    return dict(zip(found.tolist(), np.split(order, np.cumsum(counts)[:-1]), strict=True))


def batches_of(X: Any, y: Any, rows: Indices, size: int, **reading: Any) -> Iterator[tuple[Any, Any]]:
    """Inputs and targets of some rows, in batches: of arrays, or of a data set, which :func:`loaded` reads."""
    if is_dataset(X):
        return loaded(X, y, rows, size, **reading)
    if y is None:
        raise InvalidInputError("gradients need labels: give the context y (and y_val).")
    parts = (rows[start : start + size] for start in range(0, len(rows), size))
    return ((take_rows(X, part), take_rows(y, part)) for part in parts)


def loaded(
    X: Any, y: Any, rows: Indices, size: int, *, collate: Any = None, whole: bool = False, **loading: Any
) -> Iterator[tuple[Any, Any]]:
    """Read rows of a data set once, in batches, by a ``DataLoader``; with ``whole``, inputs include the targets."""
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    only_inputs = y is not None and collate is None and not whole  # targets that do not collate are no trouble
    loading.setdefault("generator", torch.Generator())  # a loader draws a seed, by default from the global generator
    loading |= {"collate_fn": _collated_inputs if only_inputs else collate}
    loader = torch.utils.data.DataLoader(X, batch_sampler=[part.tolist() for part in parts], **loading)
    for part, batch in zip(parts, loader, strict=True):
        x, targets = (batch, None) if only_inputs else split_batch(batch)
        if y is not None:
            targets = take_rows(y, part)
        if targets is None:
            raise InvalidTypeError("the items have no target: give y, pairs (x, y), or mappings with 'labels'.")
        yield batch if whole else x, targets


def split_batch(batch: Any) -> tuple[Any, Any]:
    """Inputs and targets of a batch or an item: a pair, or a mapping with "labels"; targets are None if unknown."""
    if isinstance(batch, Mapping):
        name = next((name for name in TARGETS if name in batch), None)
        return {key: value for key, value in batch.items() if key != name}, None if name is None else batch[name]
    if isinstance(batch, tuple | list):
        return batch[0], batch[1] if len(batch) > 1 else None
    return batch, None


def _collated_inputs(items: Any) -> Any:
    return torch.utils.data.default_collate([split_batch(item)[0] for item in items])


def known_targets(dataset: Any) -> Any:
    """Return the targets that a data set stores beside its items; None if there are none, or if the items differ."""
    found = next((getattr(dataset, name) for name in TARGETS if hasattr(getattr(dataset, name, None), "__len__")), None)
    if found is None or len(found) != len(dataset) or len(found) == 0:
        return None
    if (change := getattr(dataset, "target_transform", None)) is not None:
        found = np.asarray([change(target) for target in found])
    if isinstance(dataset, LazyDataset):
        return found  # reading an item means decoding an image, and it has these targets
    _, target = split_batch(dataset[0])
    # strategies that need labels raise; gradients use the targets of the items
    return None if target is not None and not np.array_equal(target, found[0]) else found


def unwrapped(data: Any) -> tuple[Any, dict[str, Any]]:
    """The data set of a ``DataLoader``, with its way to read; other data as they are."""
    names = {each.__name__ for each in type(data).__mro__}
    if "DataLoader" in names and hasattr(data, "collate_fn"):
        collate = None if data.collate_fn is torch.utils.data.default_collate else data.collate_fn
        return unwrapped(data.dataset)[0], {"collate": collate, "workers": data.num_workers}
    if "IterableDataset" in names:
        text = f"{type(data).__name__} is an IterableDataset, whose rows cannot be chosen or read again"
        how = "draw from the stream with coresift.StreamingCoreset, or give a map-style data set"
        raise InvalidTypeError(f"{text}: {how}.")
    if "Tensor" in names and (layout := str(getattr(data, "layout", "torch.strided"))) != "torch.strided":
        raise InvalidTypeError(f"X is a tensor of layout {layout}, whose rows cannot be taken: pass X.to_dense().")
    return data, {}


def is_dataset(X: Any) -> bool:
    """Whether X is a map-style data set rather than an array."""
    if hasattr(X, "shape") or isinstance(X, tuple):
        return False
    first = X[0] if isinstance(X, list) and X else None
    return not isinstance(X, list) or (isinstance(first, tuple) and len(first) == 2 and hasattr(first[0], "shape"))
