"""The published files themselves, where ``CORESIFT_DATA_DIR`` names a folder that has them."""

import os

import numpy as np
import pytest

from coresift.data import available_datasets, load_dataset
from coresift.data.user_sets import channel_statistics

PRESENT = (
    {info.name for info in available_datasets() if info.is_present} if os.environ.get("CORESIFT_DATA_DIR") else set()
)
CLASSES = {
    "mnist": [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    "fashion-mnist": [6000] * 10,
    "cifar10": [5000] * 10,
    "cifar100": [500] * 100,
}


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_the_published_files_are_whole_and_have_the_statistics_that_are_used(name: str) -> None:
    if name not in PRESENT:
        pytest.skip(f"CORESIFT_DATA_DIR names no folder with {name}")
    splits = load_dataset(name)
    assert len(splits.test) == 10_000
    assert np.bincount(splits.train.y).tolist() == CLASSES[name]
    mean, std = channel_statistics(splits.train.x)
    np.testing.assert_allclose([*splits.mean, *splits.std], [*mean, *std], atol=5.1e-5)  # four digits
