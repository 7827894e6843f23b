"""Networks of Gaussians, the second half of the paper: coresets of their loss, and models to train on them."""

from paper.networks.coreset import RBFNetworkCoreset
from paper.networks.models import RBFNetworkClassifier, RBFNetworkRegressor
from paper.networks.results import NetworkCertificate, NetworkComparison
from paper.networks.sums import NetworkAudit

__all__ = [
    "NetworkAudit",
    "NetworkCertificate",
    "NetworkComparison",
    "RBFNetworkClassifier",
    "RBFNetworkCoreset",
    "RBFNetworkRegressor",
]
