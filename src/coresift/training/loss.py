"""The loss of a weighted batch."""

from __future__ import annotations

import torch
from torch import Tensor

from .._errors import InvalidInputError


def weighted_loss(losses: Tensor, weights: Tensor, *, distributed: bool = False) -> Tensor:
    r"""The weighted mean :math:`\sum_i w_i l_i / \sum_i w_i` of a batch.

    Its scale does not depend on that of the weights, so a learning rate means the same for every strategy. A batch
    whose weights are all zero has loss 0, and gradient 0.

    Parameters
    ----------
    losses : (b,) or (b, ...) tensor
        One loss a sample, not reduced; those of several outputs are averaged within a sample.
    weights : (b,) tensor
    distributed : bool, default False
        Under DDP: divide by the sum of the weights over all ranks, times their number, so that the average of the
        ranks' gradients is that of the whole batch. Otherwise each rank's part counts the same, whatever its weights.

    Examples
    --------
    >>> weighted_loss(torch.tensor([1.0, 3.0]), torch.tensor([3.0, 1.0]))
    tensor(1.5000)
    """
    if losses.ndim == 0 or len(losses) != len(weights) or weights.ndim != 1:
        raise InvalidInputError(
            f"losses of shape {tuple(losses.shape)} and weights of shape {tuple(weights.shape)}: one loss "
            "(reduction='none') and one weight for each sample are needed."
        )
    if losses.ndim > 1:
        losses = losses.flatten(1).mean(1)  # (b,)
    losses = losses.to(
        torch.promote_types(losses.dtype, torch.float32)
    )  # sums of weights pass the largest half
    weights = weights.to(losses.dtype)
    total = weights.sum()
    if distributed:
        total = total.detach().clone()
        torch.distributed.all_reduce(total)
        total = total / torch.distributed.get_world_size()
    return torch.dot(losses, weights) / total.clamp_min(torch.finfo(losses.dtype).tiny)
