"""Small weighted subsets of a data set, with a stated error."""

from ._imports import attach

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = attach(__name__, __file__)
del attach
