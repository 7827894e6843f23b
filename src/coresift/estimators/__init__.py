"""Estimators: ``fit`` once, ``sample`` as often as wanted."""

from ._functions import audit, l1_svd
from ._network_results import NetworkError, SignedCoreset
from .laplacian import LaplacianCoreset
from .network_coreset import RBFNetworkCoreset
from .network_models import RBFNetworkClassifier, RBFNetworkRegressor
from .rbf import RBFCoreset

__all__ = [
    "LaplacianCoreset",
    "NetworkError",
    "RBFCoreset",
    "RBFNetworkClassifier",
    "RBFNetworkCoreset",
    "RBFNetworkRegressor",
    "SignedCoreset",
    "audit",
    "l1_svd",
]
