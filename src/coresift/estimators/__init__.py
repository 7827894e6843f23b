"""Estimators: ``fit`` once, ``sample`` as often as wanted."""

from ._functions import audit, l1_svd
from ._network_results import NetworkError, SignedCoreset
from .laplacian import LaplacianCoreset
from .network_coreset import RBFNetworkCoreset
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
