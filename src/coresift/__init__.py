"""Small weighted subsets of a data set, with a stated error."""

from ._coreset import Coreset, QueryBall
from ._errors import CoresiftError, InvalidInputError, InvalidTypeError, MissingExtraError
from .core.audit import AuditResult
from .core.circle import lower_bound_circle
from .core.lewis import L1SVD
from .core.network_audit import NetworkAudit
from .data.source import Source
from .data.sources import open_source
from .estimators import (
    LaplacianCoreset,
    NetworkError,
    RBFCoreset,
    RBFNetworkClassifier,
    RBFNetworkCoreset,
    RBFNetworkRegressor,
    SignedCoreset,
    audit,
    l1_svd,
)
from .scale import Report, Selection, StreamingCoreset, select

__version__ = "0.1.0"

__all__ = [
    "L1SVD",
    "AuditResult",
    "Coreset",
    "CoresiftError",
    "InvalidInputError",
    "InvalidTypeError",
    "LaplacianCoreset",
    "MissingExtraError",
    "NetworkAudit",
    "NetworkError",
    "QueryBall",
    "RBFCoreset",
    "RBFNetworkClassifier",
    "RBFNetworkCoreset",
    "RBFNetworkRegressor",
    "Report",
    "Selection",
    "SignedCoreset",
    "Source",
    "StreamingCoreset",
    "audit",
    "l1_svd",
    "lower_bound_circle",
    "open_source",
    "select",
]
