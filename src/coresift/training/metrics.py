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

from ..selection.hooks import only_tensor
from ..selection.losses import Kind, kind_of, per_sample_loss
from .feeds import Feed

_EVALUATION_BATCH = 512  # on a CPU half as fast again as 1024: the activations stay in the cache
# "cpu" is the time that this process was at work, whatever else the machine did: the one to compare runs by that were
# made on a busy machine, with one thread. It knows nothing of a GPU.
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass
class Seconds:
    """Where the time went, by the clock on the wall or that of the processor."""

    selection: float = 0.0
    training: float = 0.0
    evaluation: float = 0.0
    clock: str = "wall"

    @property
    def total(self) -> float:
        """All three."""
        return self.selection + self.training + self.evaluation

    @contextmanager
    def counted(self, part: str, device: torch.device) -> Iterator[None]:
        """Add the time of what happens inside; work that was only sent to a device is waited for."""
        now = CLOCKS[self.clock]
        start = now()
        try:
            yield
        finally:
            if device.type != "cpu":
                torch.get_device_module(device).synchronize()
            setattr(self, part, getattr(self, part) + now() - start)

    def parts(self) -> dict[str, float]:
        """The three, by name."""
        return {part: value for part, value in asdict(self).items() if part != "clock"}

    def rounded(self) -> dict[str, float]:
        """To a tenth of a millisecond."""
        return {part: round(value, 4) for part, value in self.parts().items()}


def counts_hits(loss: Any) -> bool:
    """Whether the loss is one of classes, as far as its kind tells; any other is one of numbers."""
    return kind_of(loss) not in (Kind.NUMBERS, Kind.SWITCHES)


def are_classes(outputs: Tensor, targets: Tensor) -> bool:
    """Whether the targets are labels, one a sample, of as many classes as there are outputs."""
    return (
        outputs.ndim == 2 and outputs.shape[1] > 1 and targets.ndim == 1 and not targets.is_floating_point()
    )


@torch.no_grad()
def evaluate(model: nn.Module, feed: Feed, loss: Any) -> dict[str, float]:
    """Mean loss over all samples of a feed, with accuracy and macro-F1, or the root mean square error.

    The model is left in its mode.
    """
    compute, has_classes = per_sample_loss(loss), counts_hits(loss)
    has_distances = kind_of(loss) not in (Kind.CLASSES, Kind.SWITCHES)  # of outputs from targets
    was_training = model.training
    model.eval()
    n = len(feed)
    loss_sum, squares = 0.0, 0.0
    confusion: Tensor | None = None  # (K, K): class, prediction
    found: dict[str, float] = {}
    try:
        for x, y, _ in feed.batches(np.arange(n), np.ones(n), _EVALUATION_BATCH):
            outputs = only_tensor(model(x))
            losses = compute(outputs, y)
            loss_sum += float(losses.flatten(1).mean(1).sum() if losses.ndim > 1 else losses.sum())
            if has_classes and are_classes(outputs, y):
                k = outputs.shape[1]
                known = (y >= 0) & (y < k)  # a loss may leave out labels, usually -100: they are no hits
                pairs = torch.bincount((y * k + outputs.argmax(1))[known], minlength=k * k).reshape(k, k)
                confusion = pairs if confusion is None else confusion + pairs
            elif outputs.numel() == y.numel() and has_distances:
                error = (outputs - y.reshape(outputs.shape).to(outputs.dtype)) ** 2
                squares += float(error.flatten(1).mean(1).sum() if error.ndim > 1 else error.sum())
                found["rmse"] = (squares / n) ** 0.5
    finally:
        model.train(was_training)
    if confusion is not None:
        found = {"accuracy": float(confusion.trace()) / n, "macro_f1": macro_f1(confusion)}
    return {"loss": loss_sum / n, **found}


def macro_f1(confusion: Tensor) -> float:
    """The mean over classes of 2 TP / (2 TP + FP + FN); a class that neither occurs nor is predicted does not count."""
    counts = confusion.double()
    both = counts.sum(0) + counts.sum(1)
    occurs = both > 0
    return float((2 * counts.diagonal()[occurs] / both[occurs]).mean())
