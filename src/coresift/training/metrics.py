"""The weighted loss of a batch, metrics of a model, and the time that a run takes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._errors import InvalidInputError
from ..selection.gradients import called, only_tensor
from ..selection.losses import Kind, kind_of, per_sample_loss
from .feeds import Feed

_EVALUATION_BATCH = 512  # on a CPU 1.5 times as fast as 1024: the activations stay in the cache
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}  # "cpu" is for busy machines, not for a GPU


@dataclass
class Seconds:
    """Time spent on ``selection``, ``training`` and ``evaluation``; ``clock`` is "wall" or "cpu".

    >>> Seconds(selection=1.0, training=2.5, evaluation=0.5).total
    4.0
    """

    selection: float = 0.0
    training: float = 0.0
    evaluation: float = 0.0
    clock: str = "wall"

    @property
    def total(self) -> float:
        """The sum of the three parts."""
        return self.selection + self.training + self.evaluation

    @contextmanager
    def counted(self, part: str, device: torch.device) -> Iterator[None]:
        """Add the time of the block to a ``part``; wait for the ``device`` at the end."""
        now = CLOCKS[self.clock]
        start = now()
        try:
            yield
        finally:
            if device.type != "cpu":
                torch.get_device_module(device).synchronize()
            setattr(self, part, getattr(self, part) + now() - start)

    def rounded(self) -> dict[str, float]:
        """Return the three parts by name, rounded to a tenth of a millisecond."""
        return {part: round(value, 4) for part, value in asdict(self).items() if part != "clock"}


def weighted_loss(
    losses: Tensor,
    weights: Tensor,
    mask: Tensor | None = None,
    total: float | Tensor | None = None,
    *,
    distributed: bool = False,
) -> Tensor:
    r"""Compute the weighted mean :math:`\sum_i w_i l_i / \sum_i w_i` of a batch.

    The scale of the weights does not matter. A batch whose weights are all zero has loss 0 and gradient 0.

    Parameters
    ----------
    losses, weights : (b,) or (b, ...) tensor, (b,) tensor
        One loss per sample, not reduced; several outputs of a sample are averaged.
    mask : tensor of the shape of ``losses``, optional
        Where it is 0, such as at padding, a loss does not count. A sample without any other has no weight.
    total : float or tensor, optional
        What to divide by instead of the sum of the weights: with that of a large batch, its micro-batches add up to it.
    distributed : bool, default False
        Under DDP: divide by the mean of these sums over the ranks, whose gradients are averaged.

    Examples
    --------
    >>> weighted_loss(torch.tensor([1.0, 3.0]), torch.tensor([3.0, 1.0]))
    tensor(1.5000)
    """
    losses = losses.to(torch.promote_types(losses.dtype, torch.float32))  # sums overflow in half
    weights = weights.to(losses.dtype)
    if mask is not None:
        if mask.shape != losses.shape:
            raise InvalidInputError(f"mask has shape {tuple(mask.shape)}, but losses {tuple(losses.shape)}.")
        mask = mask != 0
        counts = mask.flatten(1).sum(1) if mask.ndim > 1 else mask.long()
        losses = torch.where(mask, losses, 0.0)
        losses = losses.flatten(1).sum(1) / counts.clamp_min(1) if losses.ndim > 1 else losses
        weights = weights * (counts > 0)
    whole = weights.sum() if total is None else torch.as_tensor(total, dtype=losses.dtype, device=losses.device)
    if distributed:
        whole = whole.detach().clone()
        torch.distributed.all_reduce(whole)
        whole = whole / torch.distributed.get_world_size()
    return torch.dot(summands(losses, weights), weights) / whole.clamp_min(torch.finfo(losses.dtype).tiny)


def summands(losses: Tensor, weights: Tensor) -> Tensor:
    """Return one loss per sample, in single precision at least; raise unless there is one weight for each."""
    if losses.ndim == 0 or len(losses) != len(weights) or weights.ndim != 1:
        shapes = f"losses have shape {tuple(losses.shape)} and weights {tuple(weights.shape)}"
        raise InvalidInputError(f"{shapes}: each sample needs one loss (reduction='none') and one weight.")
    return per_sample(losses.to(torch.promote_types(losses.dtype, torch.float32)))


def per_sample(values: Tensor) -> Tensor:
    """Average the numbers of each sample, (b, ...) to (b,)."""
    return values.flatten(1).mean(1) if values.ndim > 1 else values


def are_classes(outputs: Tensor, targets: Tensor, loss: Any) -> bool:
    """Return whether the targets are class numbers, one per sample, and the outputs have a column for each class."""
    fits = outputs.ndim == 2 and outputs.shape[1] > 1 and targets.ndim == 1 and not targets.is_floating_point()
    return fits and kind_of(loss) not in (Kind.NUMBERS, Kind.SWITCHES)


@torch.no_grad()
def evaluate(model: nn.Module, feed: Feed, loss: Any) -> dict[str, float]:
    """Return the mean ``loss`` of a ``model`` over a ``feed``, with accuracy and macro-F1 or root mean square error.

    >>> from coresift.training.feeds import feeds_of
    >>> feed, _, _ = feeds_of((torch.eye(2), torch.arange(2)), None, None, False, torch.device("cpu"), 0)
    >>> evaluate(nn.Identity(), feed, "cross_entropy")["accuracy"]
    1.0
    """
    compute, n = per_sample_loss(loss), len(feed)
    has_distances = kind_of(loss) not in (Kind.CLASSES, Kind.SWITCHES)  # between outputs and targets
    loss_sum, squares = 0.0, 0.0
    confusion: Tensor | None = None  # (K, K): class, prediction
    found: dict[str, float] = {}
    was_training = model.training
    model.eval()  # not only the flags: a user's model may swap its weights here
    try:
        for x, y, _ in feed.batches(np.arange(n), np.ones(n), _EVALUATION_BATCH):
            outputs = only_tensor(called(model, x))
            loss_sum += float(per_sample(compute(outputs, y)).sum())
            if are_classes(outputs, y, loss):
                k = outputs.shape[1]
                known = (y >= 0) & (y < k) & ~outputs.isnan().any(1)  # ignored labels, usually -100, are not hits
                pairs = torch.bincount((y * k + outputs.argmax(1))[known], minlength=k * k).reshape(k, k)
                confusion = pairs if confusion is None else confusion + pairs
            elif outputs.numel() == y.numel() and has_distances:
                squares += float(per_sample((outputs - y.reshape(outputs.shape).to(outputs.dtype)) ** 2).sum())
                found["rmse"] = (squares / n) ** 0.5
    finally:
        model.train(was_training)
    if confusion is not None:
        found = {"accuracy": float(confusion.trace()) / n, "macro_f1": macro_f1(confusion)}
    return {"loss": loss_sum / n, **found}


def macro_f1(confusion: Tensor) -> float:
    """Return the mean over classes of 2 TP / (2 TP + FP + FN), without classes that neither occur nor are predicted."""
    counts = confusion.double()
    both = counts.sum(0) + counts.sum(1)
    occurs = both > 0
    return float((2 * counts.diagonal()[occurs] / both[occurs]).mean())
