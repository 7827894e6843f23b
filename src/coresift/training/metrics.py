"""What is measured: time in three parts, loss and accuracy, and the file of a line per epoch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..selection._hooks import only_tensor, per_sample_loss
from .feeds import Feed

_EVALUATION_BATCH = 1024


@dataclass
class Seconds:
    """Where the time went."""

    selection: float = 0.0
    training: float = 0.0
    evaluation: float = 0.0

    @property
    def total(self) -> float:
        """All three."""
        return self.selection + self.training + self.evaluation

    @contextmanager
    def counted(self, part: str, device: torch.device) -> Iterator[None]:
        """Add the time of what happens inside; work that was only sent to a device is waited for."""
        start = time.perf_counter()
        try:
            yield
        finally:
            if device.type != "cpu":
                torch.get_device_module(device).synchronize()
            setattr(self, part, getattr(self, part) + time.perf_counter() - start)

    def rounded(self) -> dict[str, float]:
        """To a tenth of a millisecond."""
        return {part: round(value, 4) for part, value in asdict(self).items()}


def counts_hits(loss: Any) -> bool:
    """Whether the loss is one of classes, as far as its name tells; any other is one of numbers."""
    of_numbers = (nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCELoss, nn.BCEWithLogitsLoss)
    return loss not in ("mse", "l1", "huber", "bce") and not isinstance(loss, of_numbers)


def are_classes(outputs: Tensor, targets: Tensor) -> bool:
    """Whether the targets are labels, one a sample, of as many classes as there are outputs."""
    return outputs.ndim == 2 and targets.ndim == 1 and not targets.is_floating_point()


@torch.no_grad()
def evaluate(model: nn.Module, feed: Feed, loss: Any) -> dict[str, float]:
    """Mean loss, and accuracy or root mean square error, over all samples of a feed; the model is left in its mode."""
    compute, has_classes = per_sample_loss(loss), counts_hits(loss)
    was_training = model.training
    model.eval()
    n = len(feed)
    loss_sum, hits, squares = 0.0, 0, 0.0
    quality = ""
    try:
        for x, y, _ in feed.batches(np.arange(n), np.ones(n), _EVALUATION_BATCH):
            outputs = only_tensor(model(x))
            losses = compute(outputs, y)
            loss_sum += float(losses.flatten(1).mean(1).sum() if losses.ndim > 1 else losses.sum())
            if has_classes and are_classes(outputs, y):
                quality = "accuracy"
                hits += int((outputs.argmax(1) == y).sum())
            elif outputs.numel() == y.numel():
                quality = "rmse"
                error = (outputs - y.reshape(outputs.shape).to(outputs.dtype)) ** 2
                squares += float(error.flatten(1).mean(1).sum() if error.ndim > 1 else error.sum())
    finally:
        model.train(was_training)
    found = {"accuracy": hits / n, "rmse": (squares / n) ** 0.5}
    return {"loss": loss_sum / n, **{name: value for name, value in found.items() if name == quality}}
