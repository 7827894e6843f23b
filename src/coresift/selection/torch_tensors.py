"""PyTorch, which only strategies that ask for gradients need."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._containers import as_numpy
from .._errors import InvalidInputError, MissingExtraError


def load_torch() -> Any:
    """The module torch, or an error that says what to install."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("gradients of a model need PyTorch: pip install 'coresift[train]'") from error
    return torch


def as_tensor(values: Any, what: str) -> Any:
    """Numbers of any container as a tensor."""
    torch = load_torch()
    if isinstance(values, torch.Tensor):
        return values
    array = as_numpy(values)
    if array.dtype.kind not in "biufc":
        raise InvalidInputError(
            f"{what} holds {array.dtype}, and the model needs numbers. Classes that are text have to be numbered: "
            "numpy.unique(y, return_inverse=True)[1]."
        )
    return torch.as_tensor(np.require(array, requirements=["W"]))  # tensors share memory, and want to write
