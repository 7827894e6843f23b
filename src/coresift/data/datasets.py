"""Data sets for training, by name or as the user has them."""

from __future__ import annotations

import os
from typing import Any

from .._errors import InvalidInputError
from .preparing import DEFAULT_TEST_FRACTION
from .splits import DatasetSplits, Task
from .standard import load_digits_splits


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
) -> DatasetSplits:
    """A data set for training: by name, or the user's own."""
    if data == "digits":
        return load_digits_splits(test_fraction, seed)
    raise InvalidInputError(f"the data set {data!r} is not known")
