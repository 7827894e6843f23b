"""Where data comes from: readers of files and named data sets. No torch here."""

from .datasets import DATASETS, DatasetInfo, available_datasets, load_dataset
from .idx import read_idx
from .named import NAMES, Dataset, find_file, load_named
from .splits import ArrayDataset, DatasetSplits, LazyDataset, Scaling

__all__ = [
    "DATASETS",
    "NAMES",
    "ArrayDataset",
    "Dataset",
    "DatasetInfo",
    "DatasetSplits",
    "LazyDataset",
    "Scaling",
    "available_datasets",
    "find_file",
    "load_dataset",
    "load_named",
    "read_idx",
]
