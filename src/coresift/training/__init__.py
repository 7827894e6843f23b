"""Training with PyTorch (extra ``train``): a loop, a sampler for your own loop, and models."""

from .._imports import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__, torch="train", safetensors="train")
del attach
