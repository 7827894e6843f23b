"""Normalise and augment whole batches of images."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from .._errors import InvalidInputError


def normalize(x: Tensor, mean: Sequence[float] | None, std: Sequence[float] | None) -> Tensor:
    """Divide bytes by 255, then normalise each channel of a batch (b, c, ...), if ``mean`` and ``std`` are given."""
    x = x.float() / 255 if x.dtype == torch.uint8 else x
    if mean is None and std is None:
        return x
    if mean is None or std is None:
        raise InvalidInputError("give both mean and std, or neither.")
    n_channels = x.shape[1] if x.ndim > 1 else 0
    for name, values in (("mean", mean), ("std", std)):
        if len(values) != n_channels:
            raise InvalidInputError(f"{name} has {len(values)} entries, but x has {n_channels} channels.")
    if min(std) <= 0:
        raise InvalidInputError(f"std = {tuple(std)} must be positive.")
    shape = (n_channels,) + (1,) * (x.ndim - 2)
    centre, deviation = (torch.tensor(list(v), dtype=x.dtype, device=x.device).view(shape) for v in (mean, std))
    return (x - centre) / deviation


def random_crop_flip(x: Tensor, generator: torch.Generator, padding: int = 4) -> Tensor:
    """Crop each image (b, c, h, w), padded with zeros, at random to h x w, and mirror it with probability 1/2.

    Zero must be black, so this comes before :func:`normalize`. Random numbers are drawn on the device of the generator:
    the top rows of all crops, then the left columns, then the mirrors.
    """
    b, c, h, w = x.shape

    def drawn(limit: int) -> Tensor:
        return torch.randint(0, limit, (b, 1), generator=generator, device=generator.device).to(x.device)

    top, left, mirror = drawn(2 * padding + 1), drawn(2 * padding + 1), drawn(2).bool()
    across = torch.arange(w, device=x.device)
    rows = top + torch.arange(h, device=x.device)  # (b, h)
    columns = left + torch.where(mirror, across.flip(0), across)  # (b, w)
    padded = functional.pad(x, (padding,) * 4).flatten(2)  # (b, c, (h + 2p)(w + 2p))
    pixels = rows[:, :, None] * (w + 2 * padding) + columns[:, None, :]  # (b, h, w): positions in it
    # one gather for all channels is several times as fast as indexing with four tensors
    return padded.gather(2, pixels.view(b, 1, h * w).expand(b, c, h * w)).view(b, c, h, w)
