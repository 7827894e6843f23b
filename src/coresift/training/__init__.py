"""Training with PyTorch, an extra: nothing here is imported by the package itself."""

from . import extra  # noqa: F401 - the first, as it explains what is missing
from .augment import normalize
from .checkpoint import DamagedCheckpointError
from .loop import TrainResult, train
from .loss import weighted_loss
from .metrics import Seconds, evaluate
from .models import build_model
from .sampler import CoresetSampler, WeightedDataset, WeightedIndex

__all__ = [
    "CoresetSampler",
    "DamagedCheckpointError",
    "Seconds",
    "TrainResult",
    "WeightedDataset",
    "WeightedIndex",
    "build_model",
    "evaluate",
    "normalize",
    "train",
    "weighted_loss",
]
