"""Losses by name or as modules: which kind they are, and one loss for each sample.

torch is imported inside the functions: strategies that need no gradients work without it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from enum import Enum
from typing import Any

from .._errors import InvalidInputError
from .torch_tensors import load_torch

Loss = Callable[[Any, Any], Any]
LOSSES = {  # and what PyTorch calls them
    "cross_entropy": "CrossEntropyLoss",
    "mse": "MSELoss",
    "l1": "L1Loss",
    "huber": "HuberLoss",
    "bce": "BCEWithLogitsLoss",
}


class Kind(Enum):
    """What the targets of a loss are."""

    CLASSES = "the number of a class, one a sample"
    NUMBERS = "a number for each output"
    SWITCHES = "0 or 1 for each output"


_KINDS = {
    **dict.fromkeys(("CrossEntropyLoss", "NLLLoss"), Kind.CLASSES),
    **dict.fromkeys(("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss"), Kind.NUMBERS),
    **dict.fromkeys(("BCELoss", "BCEWithLogitsLoss"), Kind.SWITCHES),
}


def kind_of(loss: Any, *, derived: bool = True) -> Kind | None:
    """The kind of a loss of PyTorch, or of a class derived from one; None for a function of the user."""
    if isinstance(loss, str):
        return _KINDS.get(LOSSES.get(loss, ""))
    kinds = type(loss).__mro__ if derived else (type(loss),)
    names = [each.__name__ for each in kinds if each.__module__.startswith("torch.nn.")]
    return next((_KINDS[name] for name in names if name in _KINDS), None)


def per_sample_loss(loss: str | Loss) -> Loss:
    """A function of outputs and targets to losses that are not reduced over the samples."""
    nn = load_torch().nn
    if isinstance(loss, str) and loss in LOSSES:
        return _guarded(getattr(nn, LOSSES[loss])(reduction="none"))
    if not callable(loss):
        known = ", ".join(map(repr, LOSSES))
        raise InvalidInputError(
            f"loss = {loss!r} is not one of {known}, nor a function of outputs and targets."
        )
    if getattr(loss, "reduction", "none") != "none":
        # a module such as CrossEntropyLoss(): the caller's own keeps its reduction
        loss = copy.copy(loss)
        loss.reduction = "none"  # type: ignore[attr-defined]
    return _guarded(loss)


def with_class_numbers(targets: Any, loss: Any) -> Any:
    """Labels (n,) of a loss of classes as PyTorch wants them, whatever type of whole numbers they have.

    Shares (n, K) of the classes are left as they are.
    """
    if kind_of(loss, derived=False) is not Kind.CLASSES:
        return targets
    if targets.ndim != 1:
        if targets.is_floating_point() and bool((targets < 0).any()):
            raise InvalidInputError(
                "y has numbers below 0, but the loss is one of classes: choose another, such as 'mse'."
            )
        return targets
    if targets.is_floating_point() and bool((targets % 1 != 0).any()):
        raise InvalidInputError(
            "y has numbers with fractions, but the loss is one of classes: choose another, such as 'mse'."
        )
    return targets.long()


def _guarded(loss: Loss) -> Loss:
    """A loss that takes the targets that people have: classes of any integer type, numbers (n,) beside (n, 1)."""
    own, inherited = kind_of(loss, derived=False), kind_of(loss)

    def guarded(outputs: Any, targets: Any) -> Any:
        # a class that is derived from PyTorch's may want more in its targets than there are outputs
        is_alike = own is not None or targets.numel() == outputs.numel()
        if inherited in (Kind.NUMBERS, Kind.SWITCHES) and is_alike:
            targets = _of_shape(targets, outputs)
        elif own is Kind.CLASSES and targets.ndim == outputs.ndim - 1 and not targets.is_floating_point():
            targets = targets.long()
        if own is Kind.CLASSES and outputs.ndim == 2 and outputs.shape[1] == 1:
            raise InvalidInputError(
                "the model has one output, and a loss of classes is 0 for every sample of one class: choose 'mse' for "
                "numbers, 'bce' for yes and no, or one output for each class."
            )
        try:
            losses = loss(outputs, targets)
        except IndexError as error:
            if own is not Kind.CLASSES:
                raise
            raise InvalidInputError(
                f"y has the labels {int(targets.min())} to {int(targets.max())}, but the model {outputs.shape[1]} "
                f"outputs: labels must be from 0 to {outputs.shape[1] - 1}."
            ) from error
        n = len(outputs)
        if n > 1 and tuple(outputs.shape) == (n, 1) and tuple(losses.shape) == (n, n):
            raise InvalidInputError(
                f"the loss of outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)} has the shape "
                f"{tuple(losses.shape)}: one number a sample is needed. Give targets of shape ({n}, 1)."
            )
        return losses

    return guarded


def _of_shape(targets: Any, outputs: Any) -> Any:
    """Numbers beside numbers: targets (n,) beside outputs (n, 1) would broadcast to (n, n)."""
    if targets.numel() != outputs.numel():
        raise InvalidInputError(
            f"targets of shape {tuple(targets.shape)} beside outputs of shape {tuple(outputs.shape)}: one is needed "
            "for each output."
        )
    return targets.reshape(outputs.shape).to(outputs.dtype)
