"""What is measured of a model, and by which clock."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from coresift.training.metrics import Seconds, macro_f1


@pytest.mark.parametrize("seed", range(5))
def test_macro_f1_is_that_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, predicted = rng.integers(0, 5, 60), rng.integers(0, 5, 60) % rng.integers(2, 6)
    confusion = torch.zeros(7, 7, dtype=torch.int64)  # two classes that do not occur
    np.add.at(confusion.numpy(), (y, predicted), 1)
    assert macro_f1(confusion) == pytest.approx(f1_score(y, predicted, average="macro"))


def test_processor_time_does_not_count_waiting() -> None:
    device = torch.device("cpu")
    wall, cpu = Seconds(), Seconds(clock="cpu")
    with wall.counted("training", device), cpu.counted("training", device):
        time.sleep(0.2)
    assert wall.training >= 0.2
    assert cpu.training < 0.1
    assert cpu.rounded().keys() == {"selection", "training", "evaluation"}
