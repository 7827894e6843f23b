"""Weighted subsets of rows, and the estimators that draw them."""

from .._imports import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
del attach
