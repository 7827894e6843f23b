"""Gradients of a weighted sum of losses, and norms of the gradients of single samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coresift._errors import InvalidInputError

if TYPE_CHECKING:
    import torch

BATCH = 1000


def weighted_gradient(
    model: torch.nn.Module, inputs: Any, targets: Any, rows: np.ndarray, weights: np.ndarray
) -> torch.Tensor:
    """Return the gradient of the weighted sum of the losses of some rows, (P,)."""
    import torch
    from torch.nn import functional

    parameters = [p for p in model.parameters() if p.requires_grad]
    total = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
    chosen, scale = torch.tensor(rows), torch.tensor(weights)
    model.eval()
    for at, w in zip(torch.split(chosen, BATCH), torch.split(scale, BATCH), strict=True):
        outputs = model(inputs[at])
        losses = functional.cross_entropy(outputs, targets[at], reduction="none")
        parts = torch.autograd.grad((losses * w.to(losses.dtype)).sum(), parameters)
        total += torch.cat([part.flatten() for part in parts])
    return total


def gradient_norms(model: torch.nn.Module, inputs: Any, targets: Any) -> np.ndarray:
    r"""Return the norm of the gradient of each sample over all parameters, (n,).

    A linear layer with input h and gradient r at its output has the gradient :math:`r (h, 1)^\top`, of squared norm
    :math:`|r|^2(|h|^2 + 1)`: no product is formed. That of a convolution is the sum of such products over the
    places of the image: a product of two small matrices a sample. So there is no n x P matrix, and no pass for each
    sample. Other layers with parameters are refused.
    """
    import torch
    from torch import nn
    from torch.nn import functional

    layers = [module for module in model.modules() if next(module.parameters(recurse=False), None) is not None]
    for layer in layers:
        is_plain = getattr(layer, "groups", 1) == 1 and not isinstance(getattr(layer, "padding", 0), str)
        if not isinstance(layer, nn.Linear | nn.Conv2d) or not is_plain:
            raise InvalidInputError(f"gradient norms support linear layers and convolutions, not {layer}.")
    seen: dict[nn.Module, tuple[Any, Any]] = {}

    def keep(layer: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        seen[layer] = (given[0].detach(), output)

    def squares(layer: nn.Module, h: Any, r: Any) -> Any:
        if isinstance(layer, nn.Linear):
            return r.square().sum(1) * (h.square().sum(1) + (layer.bias is not None))
        assert isinstance(layer, nn.Conv2d)
        assert not isinstance(layer.padding, str)
        patches = functional.unfold(h, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
        r = r.flatten(2)  # (b, K, places); patches (b, c k k, places)
        found = torch.bmm(r, patches.transpose(1, 2)).square().sum((1, 2))
        return found if layer.bias is None else found + r.sum(2).square().sum(1)

    hooks = [layer.register_forward_hook(keep) for layer in layers]
    norms = []
    model.eval()
    try:
        for x, y in zip(torch.split(inputs, BATCH), torch.split(targets, BATCH), strict=True):
            loss = functional.cross_entropy(model(x), y, reduction="sum")
            gradients = torch.autograd.grad(loss, [seen[layer][1] for layer in layers])
            parts = [squares(layer, seen[layer][0], r) for layer, r in zip(layers, gradients, strict=True)]
            norms.append(torch.stack(parts).double().sum(0).sqrt())
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(norms).numpy()
