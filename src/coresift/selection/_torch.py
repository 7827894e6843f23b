"""PyTorch, which only strategies that ask for gradients need."""

from __future__ import annotations

from typing import Any

from .._errors import MissingExtraError


def load_torch() -> Any:
    """The module torch, or an error that says what to install."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("gradients of a model need PyTorch: pip install 'coresift[train]'") from error
    return torch
