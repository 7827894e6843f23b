"""Strategies that choose what to train on: one verb, ``select(context, budget, rng) -> Coreset``."""

from .._imports import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
del attach
