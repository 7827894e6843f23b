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

from ..selection._hooks import Loss, only_tensor
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


def is_hit(outputs: Tensor, targets: Tensor) -> Tensor:
    """Which samples are classified right."""
    return outputs.argmax(1) == targets


def counts_hits(loss: Any) -> bool:
    """Whether there is an accuracy: classes, and not numbers, are predicted."""
    return loss == "cross_entropy" or isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss)


@torch.no_grad()
def evaluate(model: nn.Module, feed: Feed, compute: Loss, *, has_classes: bool) -> dict[str, float]:
    """Mean loss, and accuracy or root mean square error, over all samples of a feed; the model is left in its mode."""
    was_training = model.training
    model.eval()
    n = len(feed)
    loss_sum, hits, squares = 0.0, 0, 0.0
    try:
        for x, y, _ in feed.batches(np.arange(n), np.ones(n), _EVALUATION_BATCH):
            outputs = only_tensor(model(x))
            losses = compute(outputs, y)
            loss_sum += float(losses.flatten(1).mean(1).sum() if losses.ndim > 1 else losses.sum())
            if has_classes:
                hits += int(is_hit(outputs, y).sum())
            else:
                error = (outputs - y.reshape(outputs.shape).to(outputs.dtype)) ** 2
                squares += float(error.flatten(1).mean(1).sum())
    finally:
        model.train(was_training)
    quality = {"accuracy": hits / n} if has_classes else {"rmse": (squares / n) ** 0.5}
    return {"loss": loss_sum / n, **quality}
