"""Last-layer gradients of any ``torch.nn.Module``, read by hooks; the model is left exactly as it was.

torch is imported inside the functions: strategies that need no gradients work without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._errors import InvalidInputError, InvalidTypeError
from .._progress import logger
from .gradients import Gradients, Validation
from .losses import Loss, per_sample_loss
from .torch_tensors import load_torch

if TYPE_CHECKING:
    import torch


def linear_layer(model: torch.nn.Module, name: str | None, example: Any) -> torch.nn.Module | None:
    """The layer of that name, or the linear layer that runs last on an example; None if it is not the last of all.

    Behind it there may be activations and normalisations. A layer with a matrix of its own, such as a convolution,
    would take what it gives for mere features, and its gradients say little of the loss.
    """
    torch = load_torch()
    linear = {path: module for path, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    if name is not None:
        if name not in linear:
            raise InvalidInputError(
                f"layer = {name!r} is no linear layer of the model; there are {', '.join(linear) or 'none'}."
            )
        return linear[name]
    ran: list[Any] = []
    with ExitStack() as hooks, torch.no_grad():
        for module in model.modules():
            is_leaf = next(module.children(), None) is None
            has_matrix = is_leaf and any(p.ndim > 1 for p in module.parameters(recurse=False))
            # a linear layer may have children: what computes its weights, which run before it
            if isinstance(module, torch.nn.Linear) or (
                has_matrix and not isinstance(module, torch.jit.ScriptModule)  # takes no hooks
            ):
                handle = module.register_forward_hook(lambda module, inputs, output: ran.append(module))
                hooks.callback(handle.remove)
        model(example)
    return ran[-1] if ran and isinstance(ran[-1], torch.nn.Linear) else None


@contextmanager
def undisturbed(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards the mode of every module and the random state are what they were.

    The flags are set one by one: ``model.eval()`` may be overridden, and ``model.train()`` would also wake layers that
    the user froze. In evaluation mode batch norms do not move and dropout draws nothing.
    """
    torch = load_torch()
    modes = [(module, module.training) for module in model.modules()]
    device = device_of(model)
    states = [(torch.random, torch.random.get_rng_state())]
    if device.type != "cpu":
        kind = torch.get_device_module(device)
        states.append((kind, kind.get_rng_state()))
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for kind, state in states:
            kind.set_rng_state(state)


def device_of(model: torch.nn.Module) -> torch.device:
    """Where the model's first parameter is."""
    torch = load_torch()
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device


class LayerPass(NamedTuple):
    """What one pass over samples gave."""

    gradients: Gradients
    outputs: np.ndarray  # of the layer
    targets: Any  # a tensor, on the model's device
    is_output: bool  # whether the layer's outputs are the model's


def layer_pass(
    model: torch.nn.Module,
    batches: Callable[[], Iterator[tuple[Any, Any]]],
    loss: str | Loss,
    layer: str | None,
) -> LayerPass:
    """Gradients of the loss with respect to a linear layer, over batches ``(x, y)``; without one, in the outputs.

    The forward pass builds no graph up to the layer; from its output on, autograd gives the residuals. Parameters get
    no ``.grad``, and their ``requires_grad`` is neither needed nor changed.
    """
    torch = load_torch()
    compute = per_sample_loss(loss)
    residuals, inputs, outputs, targets = [], [], [], []
    is_output = True
    with undisturbed(model), torch.no_grad():
        chosen = linear_layer(model, layer, next(batches())[0][:2])
        if chosen is None:
            return _output_pass(model, batches, compute)
        calls: list[tuple[Any, Any, Any]] = []  # what the layer was given, its output, the same as handed on

        def catch(module: Any, given: tuple[Any, ...], output: Any) -> Any:
            # a layer that runs again depends on its own first output, and stays in that graph
            caught = output if output.requires_grad else output.detach().requires_grad_()
            torch.set_grad_enabled(True)  # from here to the end of this forward pass
            calls.append((given[0].detach(), caught, caught.clone()))  # a copy, as in-place layers may follow
            return calls[-1][2]

        handle = chosen.register_forward_hook(catch)
        try:
            for x, y in batches():
                calls.clear()
                with torch.no_grad():  # restores the mode that the hook changes
                    output = only_tensor(model(x))
                    if not calls:
                        raise InvalidInputError(
                            f"layer = {layer!r} took no part in the model's forward pass."
                        )
                    losses = _one_each(compute(output, y))
                    slopes = torch.autograd.grad(losses.sum(), [caught for _, caught, _ in calls])
                is_output = is_output and len(calls) == 1 and output is calls[0][2] and output.ndim == 2
                factors = layer_factors(
                    [given for given, _, _ in calls], slopes, len(x), chosen.bias is not None
                )
                residuals.append(factors[0])
                inputs.append(factors[1])
                outputs.append(_numpy(calls[-1][1].reshape(len(x), -1)))
                targets.append(y)
        finally:
            handle.remove()
    vectors = [part for part in inputs if part is not None]
    inputs_of_all = np.concatenate(vectors) if vectors else None
    gradients = _checked(Gradients(np.concatenate(residuals), inputs_of_all, chosen.bias is not None))
    return LayerPass(gradients, np.concatenate(outputs), torch.cat(targets), is_output)


def _output_pass(
    model: torch.nn.Module, batches: Callable[[], Iterator[tuple[Any, Any]]], compute: Loss
) -> LayerPass:
    """Gradients in the outputs themselves: those of a bias that is added to them."""
    torch = load_torch()
    logger.info("%s ends in no linear layer: gradients are those in its outputs.", type(model).__name__)
    residuals, outputs, targets = [], [], []
    for x, y in batches():
        output = only_tensor(model(x)).detach().requires_grad_()
        with torch.enable_grad():
            losses = _one_each(compute(output, y))
            (slope,) = torch.autograd.grad(losses.sum(), output)
        residuals.append(_numpy(slope.reshape(len(x), -1)))
        outputs.append(_numpy(output.reshape(len(x), -1)))
        targets.append(y)
    gradients = _checked(Gradients(np.concatenate(residuals)))
    return LayerPass(gradients, np.concatenate(outputs), torch.cat(targets), output.ndim == 2)


def _one_each(losses: Any) -> Any:
    if losses.ndim == 0:
        raise InvalidInputError(
            "the loss reduces over the samples; it must return one loss for each of them."
        )
    return losses


def _checked(gradients: Gradients) -> Gradients:
    if not gradients.is_finite():
        raise InvalidInputError(
            "the gradients contain NaN or infinity: the model has diverged, or its inputs are not finite."
        )
    return gradients


def layer_factors(
    given: Sequence[Any], slopes: Sequence[Any], n: int, has_bias: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """Residuals and inputs of a layer that ran once on vectors; else the product, summed over the places it ran at."""
    torch = load_torch()
    if len(given) == 1 and given[0].ndim == 2 and len(given[0]) == n:
        return _numpy(slopes[0]), _numpy(given[0])
    for tensor in given:
        if tensor.ndim < 2 or len(tensor) != n:
            raise InvalidInputError(
                f"the layer was given a tensor of shape {tuple(tensor.shape)} for {n} samples; "
                "it must have one row for each of them. Name another with layer=."
            )
    inputs = torch.cat([tensor.reshape(n, -1, tensor.shape[-1]) for tensor in given], dim=1)  # (n, places, H)
    residuals = torch.cat(
        [slope.reshape(n, -1, slope.shape[-1]) for slope in slopes], dim=1
    )  # (n, places, C)
    if has_bias:
        inputs = torch.cat([inputs, torch.ones_like(inputs[..., :1])], dim=2)
    return _numpy(torch.einsum("npc,nph->nch", residuals, inputs).reshape(n, -1)), None


def validation_of(found: LayerPass, loss: str | Loss) -> Validation:
    """The validation loss as a function of the last layer; its residuals by autograd from the outputs alone."""
    torch = load_torch()
    if not found.is_output:
        return Validation(found.gradients, found.outputs)
    if loss == "cross_entropy" and found.targets.ndim == 1:
        labels = found.targets.long().cpu().numpy()
        return Validation(found.gradients, found.outputs, lambda outputs: softmax_residuals(outputs, labels))
    compute, targets = per_sample_loss(loss), found.targets
    kind = torch.from_numpy(found.outputs[:0]).dtype  # a loss with class weights refuses another

    def residuals_at(outputs: np.ndarray) -> np.ndarray:
        leaf = torch.from_numpy(outputs).to(targets.device, kind).detach().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(compute(leaf, targets).sum(), leaf)
        return _numpy(slope)

    return Validation(found.gradients, found.outputs, residuals_at)


def softmax_residuals(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Softmax - onehot: the gradient of the cross entropy, some times faster than by autograd."""
    residuals = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    residuals /= residuals.sum(axis=1, keepdims=True)
    residuals[np.arange(len(labels)), labels] -= 1.0
    return residuals


def only_tensor(output: Any) -> Any:
    """The tensor of a model's output: itself, its ``logits``, or the first of several."""
    torch = load_torch()
    if isinstance(output, torch.Tensor):
        return output
    if hasattr(output, "logits"):
        return output.logits
    if isinstance(output, Mapping) and "logits" in output:
        return output["logits"]
    if isinstance(output, tuple | list) and output and isinstance(output[0], torch.Tensor):
        return output[0]
    raise InvalidTypeError(f"the model returned {type(output).__name__}; a tensor of outputs is needed.")


def _numpy(tensor: Any) -> np.ndarray:
    """Floats of a tensor of any device; half precision, which NumPy lacks or sums badly, becomes single."""
    torch = load_torch()
    tensor = tensor.detach().cpu()
    if tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.float()
    return tensor.numpy()
