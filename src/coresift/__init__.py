"""Small weighted subsets of a data set, with a stated error."""

from ._errors import CoresiftError, InvalidInputError, InvalidTypeError, MissingExtraError
from .core.audit import AuditResult
from .core.certificate import Certificate
from .core.circle import lower_bound_circle
from .core.lewis import L1SVD
from .core.network_audit import NetworkAudit
from .core.sizes import SampleSize
from .coresets import (
    LaplacianCoreset,
    NetworkComparison,
    RBFCoreset,
    RBFNetworkClassifier,
    RBFNetworkCoreset,
    RBFNetworkRegressor,
    Report,
    Selection,
    SignedCoreset,
    StreamingCoreset,
    audit,
    l1_svd,
    select,
)
from .coresets.coreset import Coreset, Guarantee, QueryBall
from .rows.opening import open_rows
from .rows.rows import Rows

__version__ = "0.1.0"

__all__ = [
    "L1SVD",
    "AuditResult",
    "Certificate",
    "Coreset",
    "CoresiftError",
    "Guarantee",
    "InvalidInputError",
    "InvalidTypeError",
    "LaplacianCoreset",
    "MissingExtraError",
    "NetworkAudit",
    "NetworkComparison",
    "QueryBall",
    "RBFCoreset",
    "RBFNetworkClassifier",
    "RBFNetworkCoreset",
    "RBFNetworkRegressor",
    "Report",
    "Rows",
    "SampleSize",
    "Selection",
    "SignedCoreset",
    "StreamingCoreset",
    "audit",
    "l1_svd",
    "lower_bound_circle",
    "open_rows",
    "select",
]
