"""What is measured of a model, and by which clock."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from coresift.training.feeds import Feed
from coresift.training.metrics import Seconds, evaluate, macro_f1


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


@pytest.mark.parametrize(
    ("loss", "outputs", "targets", "expected"),
    [
        (lambda o, t: (o.squeeze(1) - t) ** 2, 1, "whole", {"loss", "rmse"}),
        ("mse", 1, "whole", {"loss", "rmse"}),
        ("bce", 3, "labels", {"loss"}),
        ("cross_entropy", 3, "labels", {"loss"}),  # probabilities as targets
        ("cross_entropy", 7, "whole", {"loss", "accuracy", "macro_f1"}),
    ],
)
def test_metrics_are_those_of_the_task(loss, outputs, targets, expected) -> None:
    """One output has no classes; logits have no distance to probabilities."""
    x = torch.randn(20, 4)
    y = torch.arange(20) % 7 if targets == "whole" else torch.eye(3)[torch.arange(20) % 3]
    feed = Feed(x, y, torch.device("cpu"), None)
    assert evaluate(torch.nn.Linear(4, outputs), feed, loss).keys() == expected
