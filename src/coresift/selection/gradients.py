"""Last-layer gradients of any ``torch.nn.Module``, read by hooks that leave it unchanged, and stored as factors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError, InvalidTypeError
from .._progress import logger
from .._threads import RANDOM_STATES
from .._validation import check_length
from .inputs import as_numbers, torch
from .losses import Loss, per_sample_loss

Array = NDArray[np.floating[Any]]
Batches = Callable[[], Iterator[tuple[Any, Any]]]
Forward = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class Gradients:
    r"""Gradients :math:`a_i = r_i h_i^\top` of n samples, stored as factors.

    The loss of sample i, as a function of a linear layer :math:`z = W h`, has the gradient :math:`r_i h_i^\top`, with
    the residual :math:`r_i = \partial \ell_i / \partial z`. ``residuals`` is (n, C), ``inputs`` (n, H), the last of
    them 1 if the layer has a bias; or None: the gradient is the residual alone (or any flat vector). Hence

    .. math:: a_i \cdot a_j = (r_i \cdot r_j)(h_i \cdot h_j),

    in O(C + H) instead of O(C H) time, with n (C + H) numbers stored instead of n C H.

    >>> Gradients(residuals=np.ones((100, 10)), inputs=np.ones((100, 85)))
    Gradients(100 x 850)
    """

    residuals: Array
    inputs: Array | None = None

    def __post_init__(self) -> None:
        given = {"residuals": self.residuals} | ({} if self.inputs is None else {"inputs": self.inputs})
        for name, value in given.items():
            if not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.kind != "f":
                raise InvalidInputError(f"{name} must be a two-dimensional array of floats")
            check_length(len(value), len(self.residuals), name, "residuals")

    def __len__(self) -> int:
        return len(self.residuals)

    def __repr__(self) -> str:
        return f"Gradients({len(self):,} x {self.width:,})"

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of one gradient: outputs and inputs."""
        return self.residuals.shape[1], 1 if self.inputs is None else self.inputs.shape[1]

    @property
    def width(self) -> int:
        """Length of one gradient."""
        return math.prod(self.shape)

    def is_finite(self) -> bool:
        """Whether no factor is NaN or infinite."""
        return all(part is None or np.isfinite(part).all() for part in (self.residuals, self.inputs))

    def take(self, rows: NDArray[np.integer[Any]] | slice) -> Gradients:
        """Gradients of the samples at ``rows``."""
        return Gradients(self.residuals[rows], None if self.inputs is None else self.inputs[rows])

    def double(self) -> Gradients:
        """The same as float64."""
        inputs = None if self.inputs is None else self.inputs.astype(np.float64, copy=False)
        return Gradients(self.residuals.astype(np.float64, copy=False), inputs)

    def of_output(self, output: int) -> Gradients:
        """Gradients with respect to one row of the layer, that of an ``output``."""
        return Gradients(self.residuals[:, output : output + 1], self.inputs)

    def dense(self) -> Array:
        """The products, (n, width): for each output its inputs."""
        if self.inputs is None:
            return self.residuals
        return (self.residuals[:, :, None] * self.inputs[:, None, :]).reshape(len(self), -1)

    def products(self, other: Self, out: Array | None = None) -> Array:
        """Inner products with the gradients ``other``, (len(other), n), written to ``out`` if that is given."""
        grams: Array = np.matmul(other.residuals, self.residuals.T, out=out)
        if self.inputs is not None and other.inputs is not None:
            grams *= other.inputs @ self.inputs.T
        return grams

    def sq_norms(self) -> Array:
        """Squared norms, (n,)."""
        squares = np.einsum("ij,ij->i", self.residuals, self.residuals)
        if self.inputs is not None:
            squares *= np.einsum("ij,ij->i", self.inputs, self.inputs)
        return squares

    def along(self, direction: Array) -> Array:
        """Inner products with ``direction``, a vector of ``width`` numbers, (n,)."""
        if self.inputs is None:
            return self.residuals @ direction
        return np.einsum("ij,ij->i", self.residuals, self.inputs @ direction.reshape(self.shape).T)

    def total(self, weights: Array | None = None) -> Array:
        """Sum, weighted if there are ``weights``: a vector of ``width`` numbers."""
        residuals = self.residuals if weights is None else self.residuals * weights[:, None]
        return residuals.sum(axis=0) if self.inputs is None else (residuals.T @ self.inputs).reshape(-1)

    def means(self, groups: Sequence[NDArray[np.int64]]) -> Gradients:
        """Mean gradients of ``groups`` of samples, as flat vectors: a mean of products is not a product."""
        found = np.empty((len(groups), self.width))
        for mean, rows in zip(found, groups, strict=True):
            mean[:] = self.take(rows).double().total() / len(rows)
        return Gradients(found)


@dataclass(frozen=True, eq=False)
class Validation:
    """The validation loss as a function of the last layer.

    ``gradients``: one per validation sample, at the current model. ``outputs``: those of the layer, (n, C).
    ``residuals_at`` maps outputs to residuals; None if more layers follow, so that it would need the model.

    >>> Validation(Gradients(np.ones((5, 3))), outputs=np.zeros((5, 3))).residuals_at is None
    True
    """

    gradients: Gradients
    outputs: Array
    residuals_at: Callable[[Array], Array] | None = None


def called(model: torch.nn.Module, x: Any) -> Any:
    """Call a model with a batch of inputs; a mapping gives its arguments by name, as Hugging Face models want it."""
    return model(**x) if isinstance(x, Mapping) else model(x)


def as_accepted(x: Any, model: torch.nn.Module, known: dict[Any, bool]) -> Any:
    """Convert integers as ``train`` does, unless the model accepts them; ``known`` stores which types it does."""
    if not isinstance(x, torch.Tensor) or x.is_floating_point() or x.is_complex():
        return x
    if x.dtype not in known:
        known[x.dtype] = False
        with suppress(RuntimeError), undisturbed(model), torch.no_grad():  # PyTorch's error for a wrong type
            known[x.dtype] = only_tensor(called(model, x[:2])).is_floating_point()
    return x if known[x.dtype] else as_numbers(x, has_embedding(model))


def has_embedding(model: torch.nn.Module) -> bool:
    """Whether integers are meant for an embedding."""
    return any(isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag) for module in model.modules())


def check_trainable(parameters: Iterable[Any]) -> None:
    """Raise unless one of the parameters to train requires gradients."""
    if not any(each.requires_grad for each in parameters):
        text = "model: 0 of the parameters to train have requires_grad = True; at least 1 is needed"
        raise InvalidInputError(f"{text}. Unfreeze a layer, or the whole model by model.requires_grad_().")


def linear_layer(model: torch.nn.Module, name: str | None, example: Any, forward: Forward | None = None) -> Any:
    """The layer of that name, or the linear one that runs last on an example; None if another weight matrix follows."""
    linear = {path: module for path, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    if name is not None:
        if name not in linear:
            known = ", ".join(linear) or "none"
            raise InvalidInputError(f"layer = {name!r} is not a linear layer of the model; choose one of {known}.")
        return linear[name]
    ran: list[Any] = []
    with ExitStack() as hooks, torch.no_grad():
        for module in model.modules():
            is_leaf = next(module.children(), None) is None
            has_matrix = is_leaf and any(p.ndim > 1 for p in module.parameters(recurse=False))
            # a linear layer may have children that compute its weights, and run before it; scripts support no hooks
            if isinstance(module, torch.nn.Linear) or (has_matrix and not isinstance(module, torch.jit.ScriptModule)):
                hooks.enter_context(module.register_forward_hook(lambda module, inputs, output: ran.append(module)))
        (forward or partial(called, model))(_first_two(example))
    return ran[-1] if ran and isinstance(ran[-1], torch.nn.Linear) else None


def _first_two(x: Any) -> Any:
    if isinstance(x, Mapping):
        return {key: _first_two(value) for key, value in x.items()}
    return x[:2] if isinstance(x, torch.Tensor) and x.ndim else x


@contextmanager
def own_randomness(device: torch.device, seed: int | None = None) -> Iterator[None]:
    """Restore the global generators (dropout uses no others) after the block; seed them in it if a seed is given."""
    generators = [torch.default_generator]
    if device.type == "cuda":
        generators.append(torch.cuda.default_generators[device.index or 0])
    elif device.type == "mps":
        generators.append(torch.mps._get_default_mps_generator())
    with RANDOM_STATES:  # threads that train or select take turns
        states = [generator.get_state() for generator in generators]
        try:
            if seed is not None:
                for generator in generators:
                    generator.manual_seed(seed)
            yield
        finally:
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)


@contextmanager
def undisturbed(model: torch.nn.Module) -> Iterator[None]:
    """Run in evaluation mode, with batch norms fixed and no dropout; then restore all modes and the random state."""
    modes = [(module, module.training) for module in model.modules()]
    with own_randomness(device_of(model)):
        try:
            for module, _ in modes:  # eval() may be overridden, and train() would change layers that the user froze
                module.training = False
            yield
        finally:
            for module, mode in modes:
                module.training = mode


def device_of(model: torch.nn.Module) -> torch.device:
    """Device of the model's first parameter."""
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device


class LayerPass(NamedTuple):
    """Result of a pass over samples."""

    gradients: Gradients
    outputs: np.ndarray  # of the model, flat
    targets: Any  # a tensor, on the model's device
    is_output: bool  # whether the layer's outputs are the model's


def layer_pass(
    model: torch.nn.Module, batches: Batches, loss: str | Loss, layer: str | None, forward: Forward | None = None
) -> LayerPass:
    """Gradients of the loss in a linear layer, over batches ``(x, y)``; without such a layer, in the outputs.

    The graph starts at the layer's output. Parameters get no ``.grad``; ``requires_grad`` is not needed or changed.
    """
    compute, forward = per_sample_loss(loss), forward or partial(called, model)
    # calls of the layer: its input, its output as a leaf of the graph, and the copy that is passed on
    calls: list[tuple[Any, Any, Any]] = []

    def catch(module: Any, given: tuple[Any, ...], output: Any) -> Any:
        # a layer that runs again depends on its own first output, and stays in that graph
        caught = output if output.requires_grad else output.detach().requires_grad_()
        torch.set_grad_enabled(True)  # until the end of this forward pass
        calls.append((given[0].detach(), caught, caught.clone()))  # a copy, as in-place layers may follow
        return calls[-1][2]

    with undisturbed(model), torch.no_grad():
        first, rest = itertools.tee(batches())  # no batch is read twice
        chosen = linear_layer(model, layer, next(first)[0], forward)
        del first
        if chosen is None:
            logger.info("%s does not end in a linear layer: using gradients in its outputs.", type(model).__name__)
        with nullcontext() if chosen is None else chosen.register_forward_hook(catch):
            parts = [_batch_pass(model, forward, chosen, calls, compute, x, y) for x, y in rest]
    residuals, inputs, outputs, targets, is_output = zip(*parts, strict=True)
    gradients = Gradients(np.concatenate(residuals), None if inputs[0] is None else np.concatenate(inputs))
    if not gradients.is_finite():
        raise InvalidInputError("gradients contain NaN or infinity: the model diverged, or its inputs are not finite.")
    return LayerPass(gradients, np.concatenate(outputs), torch.cat(targets), all(is_output))


def _batch_pass(
    model: Any, forward: Forward, layer: Any, calls: list[Any], compute: Loss, x: Any, y: Any
) -> tuple[Any, ...]:
    """Residuals and inputs of the layer, outputs of the model, targets, and whether the outputs are the layer's."""
    calls.clear()
    with torch.no_grad():  # restores the mode that the hook changes
        output = only_tensor(forward(x))
        if layer is None:  # as if a bias were added to the outputs
            output = output.detach().requires_grad_()
            calls.append((None, output, output))
            torch.set_grad_enabled(True)
        elif not calls:
            name = next(path for path, module in model.named_modules() if module is layer)
            raise InvalidInputError(f"layer = {name!r} took no part in the model's forward pass.")
        losses = compute(output, y)
        if losses.ndim == 0:
            raise InvalidInputError("the loss reduces over the samples; it must return one loss per sample.")
        slopes = torch.autograd.grad(losses.sum(), [caught for _, caught, _ in calls])
    is_output = len(calls) == 1 and output is calls[0][2] and output.ndim == 2
    residuals, inputs = layer_factors(layer, [given for given, _, _ in calls], slopes, len(y))
    return residuals, inputs, _numpy(output.reshape(len(y), -1)), y, is_output


def layer_factors(layer: Any, given: Sequence[Any], slopes: Sequence[Any], n: int) -> tuple[Any, Any]:
    """Factors if a layer ran once on vectors, else products summed over calls; without a layer, the last residuals."""
    if not isinstance(layer, torch.nn.Linear):
        return _numpy(slopes[-1].reshape(n, -1)), None
    for tensor in given:
        if tensor.ndim < 2 or len(tensor) != n:
            shape = tuple(tensor.shape)
            raise InvalidInputError(f"the layer received a tensor of shape {shape} for {n} samples: choose another.")
    # (n, places, H), (n, places, C)
    inputs, residuals = (torch.cat([x.reshape(n, -1, x.shape[-1]) for x in each], dim=1) for each in (given, slopes))
    if layer.bias is not None:
        inputs = torch.cat([inputs, torch.ones_like(inputs[..., :1])], dim=2)
    if len(given) == 1 and given[0].ndim == 2:
        return _numpy(residuals[:, 0]), _numpy(inputs[:, 0])
    return _numpy(torch.einsum("npc,nph->nch", residuals, inputs).reshape(n, -1)), None


def validation_of(found: LayerPass, loss: str | Loss) -> Validation:
    """The validation loss as a function of the last layer, with residuals computed from the outputs alone."""
    if not found.is_output:
        return Validation(found.gradients, found.outputs)
    if loss == "cross_entropy" and found.targets.ndim == 1 and bool((found.targets >= 0).all()):  # -100 is ignored
        labels = found.targets.long().cpu().numpy()
        return Validation(found.gradients, found.outputs, lambda outputs: softmax_residuals(outputs, labels))
    compute, targets = per_sample_loss(loss), found.targets
    kind = torch.from_numpy(found.outputs[:0]).dtype  # a loss with class weights accepts no other

    def residuals_at(outputs: np.ndarray) -> np.ndarray:
        leaf = torch.from_numpy(outputs).to(targets.device, kind).detach().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(compute(leaf, targets).sum(), leaf)
        return _numpy(slope)

    return Validation(found.gradients, found.outputs, residuals_at)


def softmax_residuals(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Softmax - onehot: the gradient of the cross entropy, a few times faster than autograd."""
    residuals = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    residuals /= residuals.sum(axis=1, keepdims=True)
    residuals[np.arange(len(labels)), labels] -= 1.0
    return residuals


def only_tensor(output: Any) -> Any:
    """The tensor in a model's output: itself, its ``logits``, or the first of several."""
    if isinstance(output, torch.Tensor):
        return output
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    if isinstance(found, tuple | list) and found:
        found = found[0]
    if not isinstance(found, torch.Tensor):
        raise InvalidTypeError(f"the model returned {type(output).__name__}; a tensor of outputs is needed.")
    return found


def _numpy(tensor: Any) -> np.ndarray:
    """Convert a tensor to NumPy; half precision, which NumPy lacks or sums badly, becomes single."""
    tensor = tensor.detach().cpu()
    return (tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()).numpy()
