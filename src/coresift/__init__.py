"""Small weighted subsets of a data set, with a stated error."""

__version__ = "0.1.0"
