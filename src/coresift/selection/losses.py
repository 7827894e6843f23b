"""Losses by name or as modules: their kind, and one loss per sample."""

import copy
from collections.abc import Callable
from enum import Enum
from typing import Any

from .._errors import InvalidInputError
from .inputs import torch

Loss = Callable[[Any, Any], Any]
LOSSES = {  # with their names in PyTorch
    "cross_entropy": "CrossEntropyLoss",
    "mse": "MSELoss",
    "l1": "L1Loss",
    "huber": "HuberLoss",
    "bce": "BCEWithLogitsLoss",
}


class Kind(Enum):
    """What the targets of a loss are."""

    CLASSES = "the number of a class, one per sample"
    NUMBERS = "a number for each output"
    SWITCHES = "0 or 1 for each output"


_KINDS = {
    **dict.fromkeys(("CrossEntropyLoss", "NLLLoss"), Kind.CLASSES),
    **dict.fromkeys(("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss"), Kind.NUMBERS),
    **dict.fromkeys(("BCELoss", "BCEWithLogitsLoss"), Kind.SWITCHES),
}
_BOUNDED = (  # losses whose slope in the outputs is bounded
    *("CrossEntropyLoss", "NLLLoss", "BCEWithLogitsLoss", "MultiLabelSoftMarginLoss"),
    *("L1Loss", "SmoothL1Loss", "HuberLoss"),
)


def kind_of(loss: Any, *, derived: bool = True) -> Kind | None:
    """The kind of a PyTorch loss, or of a class derived from one; None for a user's function."""
    if isinstance(loss, str):
        return _KINDS.get(LOSSES.get(loss, ""))
    kinds = type(loss).__mro__ if derived else (type(loss),)
    names = [each.__name__ for each in kinds if each.__module__.startswith("torch.nn.")]
    return next((_KINDS[name] for name in names if name in _KINDS), None)


def has_bounded_slope(loss: Any) -> bool:
    """Whether the derivative of one sample's loss in the outputs is bounded, as far as the name of the loss tells."""
    return (LOSSES.get(loss) if isinstance(loss, str) else type(loss).__name__) in _BOUNDED


def per_sample_loss(loss: str | Loss) -> Loss:
    """A function of outputs and targets that returns one loss per sample."""
    if isinstance(loss, str) and loss in LOSSES:
        return _guarded(getattr(torch.nn, LOSSES[loss])(reduction="none"))
    if not callable(loss):
        known = ", ".join(map(repr, LOSSES))
        raise InvalidInputError(f"loss = {loss!r} is not one of {known}, nor a function of outputs and targets.")
    if getattr(loss, "reduction", "none") != "none":
        loss = copy.copy(loss)  # the caller's module keeps its reduction
        loss.reduction = "none"  # type: ignore[attr-defined]
    return _guarded(loss)


def with_class_numbers(targets: Any, loss: Any) -> Any:
    """Convert labels (n,) or (n, 1) of a classification loss to int64 (n,), not class probabilities (n, K)."""
    if (kind := kind_of(loss, derived=False)) is Kind.SWITCHES and bool(((targets < 0) | (targets > 1)).any()):
        raise InvalidInputError(f"y has {targets.min():g} to {targets.max():g}, but the loss is for labels of 0 and 1.")
    if kind is not Kind.CLASSES:
        return targets
    targets = targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets
    is_float, is_labels = targets.is_floating_point(), targets.ndim == 1
    if is_float and bool((targets % 1 != 0).any() if is_labels else (targets < 0).any()):
        wrong = "NaN" if bool(targets.isnan().any()) else "fractions" if is_labels else "negative numbers"
        raise InvalidInputError(f"y has {wrong}, but the loss is for classification: choose another, such as 'mse'.")
    return targets.long() if is_labels else targets


def _guarded(loss: Loss) -> Loss:
    """A loss that accepts classes of any integer type and targets (n,) for outputs (n, 1), and explains errors."""
    own, inherited = kind_of(loss, derived=False), kind_of(loss)

    def guarded(outputs: Any, targets: Any) -> Any:
        # a class derived from PyTorch's may need more numbers in its targets than there are outputs
        fits = targets.numel() == outputs.numel()
        if inherited in (Kind.NUMBERS, Kind.SWITCHES) and (fits or own is not None):
            if not fits:
                shapes = f"targets have shape {tuple(targets.shape)} and outputs {tuple(outputs.shape)}"
                raise InvalidInputError(f"{shapes}: one target is needed for each output.")
            targets = targets.reshape(outputs.shape).to(outputs.dtype)  # (n,) beside (n, 1) would make (n, n)
        elif own is Kind.CLASSES and targets.ndim < outputs.ndim and not targets.is_floating_point():
            places = [1] * (outputs.ndim - 2) if targets.ndim == 1 else targets.shape[1:]  # outputs (n, K, 1)
            targets = targets.long().reshape(-1, *places)
        if own is Kind.CLASSES and outputs.ndim == 2 and outputs.shape[1] == 1:
            how = "choose 'mse' for numbers, 'bce' for binary labels, or one output for each class"
            raise InvalidInputError(f"the model has one output, and the cross entropy of one class is always 0: {how}.")
        try:
            losses = loss(outputs, targets)
        except (IndexError, RuntimeError, ValueError, TypeError) as error:
            if own is not Kind.CLASSES or not isinstance(error, IndexError):
                if own is None:  # of the caller
                    raise
                shapes = f"outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)}, {targets.dtype}"
                raise InvalidInputError(f"the loss of {shapes} failed: {str(error).partition(chr(10))[0]}") from error
            known, n_outputs = f"y has labels {int(targets.min())} to {int(targets.max())}", outputs.shape[1]
            text = f"{known}, but the model has {n_outputs} outputs: labels must be from 0 to {n_outputs - 1}."
            raise InvalidInputError(text) from error
        if (n := len(outputs)) > 1 and tuple(outputs.shape) == (n, 1) and tuple(losses.shape) == (n, n):
            why = f"has shape {tuple(losses.shape)} instead of one number per sample"
            raise InvalidInputError(f"the loss {why}: give targets of shape ({n}, 1), not {tuple(targets.shape)}.")
        return losses

    return guarded
