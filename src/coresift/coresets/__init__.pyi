from .bounds import l1_svd as l1_svd
from .certifying import audit as audit
from .coreset import Coreset as Coreset, Guarantee as Guarantee, QueryBall as QueryBall
from .estimators import LaplacianCoreset as LaplacianCoreset, RBFCoreset as RBFCoreset
from .files import check_output as check_output, load_run as load_run
from .fit_rules import nested_coresets as nested_coresets
from .kmeans_coreset import KMeansCoreset as KMeansCoreset, KMeansCost as KMeansCost
from .least_squares import LeastSquaresCoreset as LeastSquaresCoreset, SquaresCertificate as SquaresCertificate
from .linear_coreset import LinearCoreset as LinearCoreset
from .linear_result import LinearModel as LinearModel, fit_model as fit_model
from .meta import CoresetClassifier as CoresetClassifier, CoresetRegressor as CoresetRegressor
from .model_certificate import ModelCertificate as ModelCertificate, certify_model as certify_model
from .options import SelectOptions as SelectOptions
from .search import CoresetSearchCV as CoresetSearchCV
from .selecting import Report as Report, Selection as Selection, run as run, select as select
from .stream import StreamingCoreset as StreamingCoreset
