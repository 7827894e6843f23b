"""Estimators: ``fit`` once, ``sample`` as often as wanted."""

from ._functions import audit, l1_svd
from .laplacian import LaplacianCoreset
from .network_coreset import NetworkError, RBFNetworkCoreset, SignedCoreset
from .rbf import RBFCoreset

__all__ = [
    "LaplacianCoreset",
    "NetworkError",
    "RBFCoreset",
    "RBFNetworkCoreset",
    "SignedCoreset",
    "audit",
    "l1_svd",
]
