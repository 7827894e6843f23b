"""Where data comes from: readers of files and named data sets. No torch here."""

from .idx import read_idx
from .named import NAMES, Dataset, find_file, load_file, load_named

__all__ = ["NAMES", "Dataset", "find_file", "load_file", "load_named", "read_idx"]
