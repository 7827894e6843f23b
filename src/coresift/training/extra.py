"""Imported first: where PyTorch is missing, the error says what to install."""

from .._errors import MissingExtraError

try:
    import safetensors  # noqa: F401
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in ("torch", "safetensors"):
        raise
    raise MissingExtraError('training needs PyTorch: pip install "coresift[train]"') from error
