"""Where data comes from: readers of files and named data sets. No torch here."""

from .._imports import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
del attach
