"""Training with PyTorch (extra ``train``): a loop, a sampler for your own loop, and models."""

from typing import Any

from .._errors import MissingExtraError
from .._imports import attach, how_to_install

_load, __dir__, __all__ = attach(__name__, __file__)
del attach


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors"):
            raise
        raise MissingExtraError(f"training needs PyTorch: {how_to_install('train')}") from error
