from .datasets import (
    DATASETS as DATASETS,
    DatasetInfo as DatasetInfo,
    available_datasets as available_datasets,
    load_dataset as load_dataset,
)
from .splits import (
    ArrayDataset as ArrayDataset,
    DatasetSplits as DatasetSplits,
    LazyDataset as LazyDataset,
    Scaling as Scaling,
)
from .standard import read_idx as read_idx
