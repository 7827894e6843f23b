from . import coresets as coresets, data as data, rows as rows, selection as selection, training as training
from ._errors import (
    CoresiftError as CoresiftError,
    InvalidInputError as InvalidInputError,
    InvalidTypeError as InvalidTypeError,
    MissingExtraError as MissingExtraError,
)
from .core.audit import AuditResult as AuditResult
from .core.lewis import L1SVD as L1SVD
from .core.points import Certificate as Certificate
from .core.racing import Fidelity as Fidelity
from .core.sizes import SampleSize as SampleSize
from .coresets import (
    Coreset as Coreset,
    CoresetClassifier as CoresetClassifier,
    CoresetRegressor as CoresetRegressor,
    CoresetSearchCV as CoresetSearchCV,
    Guarantee as Guarantee,
    KMeansCoreset as KMeansCoreset,
    KMeansCost as KMeansCost,
    LaplacianCoreset as LaplacianCoreset,
    LeastSquaresCoreset as LeastSquaresCoreset,
    LinearCoreset as LinearCoreset,
    LinearModel as LinearModel,
    ModelCertificate as ModelCertificate,
    QueryBall as QueryBall,
    RBFCoreset as RBFCoreset,
    Report as Report,
    Selection as Selection,
    SquaresCertificate as SquaresCertificate,
    StreamingCoreset as StreamingCoreset,
    audit as audit,
    certify_model as certify_model,
    fit_model as fit_model,
    l1_svd as l1_svd,
    nested_coresets as nested_coresets,
    select as select,
)
from .rows.opening import open_rows as open_rows
from .rows.preparation import Preparation as Preparation
from .rows.rows import Rows as Rows

__version__: str
