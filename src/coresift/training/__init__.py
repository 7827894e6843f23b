"""Training with PyTorch (extra ``train``): a loop, a sampler for your own loop, and models.

Names are imported on first use, so that ``coresift train --help`` does not load PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .._errors import MissingExtraError
from .options import TrainOptions

if TYPE_CHECKING:
    from .augment import normalize
    from .checkpoint import DamagedCheckpointError
    from .loop import TrainResult, train
    from .metrics import Seconds, evaluate, weighted_loss
    from .models import build_model
    from .sampler import CoresetSampler, WeightedDataset, WeightedIndex

__all__ = [
    "CoresetSampler",
    "DamagedCheckpointError",
    "Seconds",
    "TrainOptions",
    "TrainResult",
    "WeightedDataset",
    "WeightedIndex",
    "build_model",
    "evaluate",
    "normalize",
    "train",
    "weighted_loss",
]

_MODULES = {
    "augment": ("normalize",),
    "checkpoint": ("DamagedCheckpointError",),
    "loop": ("TrainResult", "train"),
    "metrics": ("Seconds", "evaluate", "weighted_loss"),
    "models": ("build_model",),
    "sampler": ("CoresetSampler", "WeightedDataset", "WeightedIndex"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors"):
            raise
        raise MissingExtraError('training needs PyTorch: pip install "coresift[train]"') from error
