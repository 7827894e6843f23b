from .checkpoint import DamagedCheckpointError as DamagedCheckpointError, RunFolder as RunFolder
from .feeds import normalize as normalize
from .loop import TrainResult as TrainResult, train as train
from .metrics import Seconds as Seconds, evaluate as evaluate, weighted_loss as weighted_loss
from .models import build_model as build_model
from .options import TrainOptions as TrainOptions
from .recorder import NormRecorder as NormRecorder
from .sampler import (
    CoresetSampler as CoresetSampler,
    WeightedDataset as WeightedDataset,
    WeightedIndex as WeightedIndex,
)
from .search import NetworkSearch as NetworkSearch, search_networks as search_networks
from .sifting import CoresetCallback as CoresetCallback, SiftedLoader as SiftedLoader, sift as sift
