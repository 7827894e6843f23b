"""Weighted subsets of rows, and the estimators that draw them."""

from .coreset import Coreset, Guarantee, QueryBall
from .fit import fit_rows
from .functions import audit, l1_svd
from .laplacian import LaplacianCoreset
from .network_coreset import RBFNetworkCoreset
from .network_models import RBFNetworkClassifier, RBFNetworkRegressor
from .network_results import NetworkComparison, SignedCoreset
from .rbf import RBFCoreset
from .result import Report, Selection, check_output, load_run
from .selecting import Options, plan, run, select
from .stream import StreamingCoreset

__all__ = [
    "Coreset",
    "Guarantee",
    "LaplacianCoreset",
    "NetworkComparison",
    "Options",
    "QueryBall",
    "RBFCoreset",
    "RBFNetworkClassifier",
    "RBFNetworkCoreset",
    "RBFNetworkRegressor",
    "Report",
    "Selection",
    "SignedCoreset",
    "StreamingCoreset",
    "audit",
    "check_output",
    "fit_rows",
    "l1_svd",
    "load_run",
    "plan",
    "run",
    "select",
]
