"""Where data comes from: readers of files and named data sets. No torch here."""

from .datasets import DATASETS, DatasetInfo, available_datasets, load_dataset
from .idx import read_idx
from .splits import ArrayDataset, DatasetSplits, LazyDataset, Scaling

__all__ = [
    "DATASETS",
    "ArrayDataset",
    "DatasetInfo",
    "DatasetSplits",
    "LazyDataset",
    "Scaling",
    "available_datasets",
    "load_dataset",
    "read_idx",
]
