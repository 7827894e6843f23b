"""Estimators: ``fit`` once, ``sample`` as often as wanted."""

from ._functions import audit, l1_svd
from .laplacian import LaplacianCoreset
from .rbf import RBFCoreset

__all__ = ["LaplacianCoreset", "RBFCoreset", "audit", "l1_svd"]
