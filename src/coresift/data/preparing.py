"""What data sets share on their way to training: a test part, labels from 0 on, statistics of the training part."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._errors import InvalidInputError
from ..rows.rows import encode_labels
from .splits import ArrayDataset, DatasetSplits, Scaling, Task

DEFAULT_TEST_FRACTION = 0.2


def split_rows(
    y: np.ndarray, task: Task, test_fraction: float, seed: int, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the training and of the test part, each in increasing order; class by class where there are classes.

    A class keeps at least one training sample; a class of one, which scikit-learn's splitter refuses, is no error.
    """
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
        raise InvalidInputError(
            f"{name}: {n} samples are too few to split a test part of {test_fraction:g} from; give test data."
        )
    return np.setdiff1d(np.arange(n), test, assume_unique=True), test


def encode_classes(
    train: np.ndarray, test: np.ndarray | None, name: str
) -> tuple[np.ndarray, np.ndarray | None, tuple[str, ...]]:
    """Labels as int64 from 0 on, in the order of their values in the training part, and their names.

    Test labels that training does not have are refused.
    """
    labels = encode_labels(train, f"{name}: y")
    codes, names = labels.codes.astype(np.int64), tuple(map(str, labels.names))
    if test is None:
        return codes, None, names
    known = np.asarray(labels.names)
    places = np.searchsorted(known, test).clip(max=len(known) - 1)
    if np.any(unknown := known[places] != test):
        raise InvalidInputError(
            f"{name}: the label {test[unknown][0]!s} is in the test part, but in no training sample."
        )
    return codes, places.astype(np.int64), names


def scaling_of(train: np.ndarray, columns: tuple[str, ...] | None = None) -> Scaling:
    """What gives columns mean 0 and deviation 1 in the training part, which is all that is looked at for that.

    A column that is constant in training becomes 0 there.
    """
    mean = train.mean(axis=0, dtype=np.float64)
    deviation = train.std(axis=0, dtype=np.float64)
    deviation[deviation <= 1e-12 * np.maximum(np.abs(mean), 1e-300)] = 1.0
    return Scaling(mean, deviation, columns)


def channel_statistics(x: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel of images (n, c, h, w): of bytes over 255, of floats as they are.

    A channel without any deviation gets 1, so that it can be divided by.
    """
    means, deviations = [], []
    for channel in range(x.shape[1]):
        values, counts = x[:, channel], None
        if x.dtype == np.uint8:  # counted, not converted: exact, and no copy as floats
            counts = np.bincount(values.reshape(-1), minlength=256)
            values = np.arange(256) / 255
        mean = float(np.average(values, weights=counts))
        variance = float(np.average((values - mean) ** 2, weights=counts))
        means.append(mean)
        deviations.append(variance**0.5 if variance > 0 else 1.0)
    return tuple(means), tuple(deviations)


def array_splits(
    name: str,
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    task: Task,
    **known: Any,
) -> DatasetSplits:
    """The data set of arrays that are ready."""
    # tensors share memory with arrays, and PyTorch warns of those that cannot be written to
    x, y, x_test, y_test = (np.require(array, requirements=["C", "W"]) for array in (*train, *test))
    if task == "classification":
        known.setdefault("n_classes", int(y.max()) + 1)
    else:
        known["n_classes"] = None
    parts = ArrayDataset(x, y), ArrayDataset(x_test, y_test)
    return DatasetSplits(name, *parts, task=task, input_shape=x.shape[1:], **known)
