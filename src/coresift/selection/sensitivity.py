"""The paper's method: sensitivities of the inputs, fitted once, and a fresh draw at every selection."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._validation import check_features
from ..core.draw import METHODS
from ..coresets import LaplacianCoreset, RBFCoreset
from ..coresets.coreset import Coreset, QueryBall
from ..coresets.fitting import array_runner, geometry_of
from .context import SelectionContext
from .strategy import Selector, setting

_FIT = 2  # separates the stream of the fit from others of the same seed
_OF_THE_FIT = ("bound", "bandwidth", "n_cells", "max_exact")  # settings that the estimators share
_OF_THE_DRAW = ("method",)  # settings that the fit does not depend on


@dataclass(frozen=True, eq=False, kw_only=True)
class _Sensitivity(Selector):
    bound: str = "auto"
    bandwidth: Any = None
    features: Any = "raw"
    method: str | None = setting(None, choices=METHODS)
    n_cells: int = 64
    max_exact: int | None = 20_000

    _kind: ClassVar[Any]
    _own: ClassVar[str]  # a setting that only this estimator has

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        return self._fitted(context).sample(size, method=self.method, random_state=rng)

    def ball(self, context: SelectionContext) -> QueryBall | None:
        """The query ball of a whole ``context``, by which :class:`PerClass` joins classes; None for other metrics."""

        def find() -> QueryBall | None:
            spec, rng = self._estimator(np.random.default_rng(0)).spec(), context.fixed_rng(_FIT)
            if spec.metric != "euclidean":
                return None
            matrix = check_features(context.features(self.features))
            found = geometry_of(array_runner(matrix, context.sizes), spec, rng)
            return QueryBall(spec.loss, found.center, found.scale, spec.radius)

        return self.once(context, find, "ball", ignore=_OF_THE_DRAW)

    def _fitted(self, context: SelectionContext) -> Any:
        def fit() -> Any:
            matrix = context.features(self.features)
            with context.accounted(f"sensitivities ({self.name})", context.n_samples):
                return self._estimator(context.fixed_rng(_FIT)).fit(matrix, sample_weight=context.sizes)

        return self.once(context, fit, ignore=_OF_THE_DRAW)

    def _estimator(self, rng: np.random.Generator) -> Any:
        return self._kind(**{name: getattr(self, name) for name in (*_OF_THE_FIT, self._own)}, random_state=rng)


@dataclass(frozen=True, eq=False, kw_only=True)
class RBF(_Sensitivity):
    """Draws by the sensitivities of the Gaussian loss (:class:`coresift.RBFCoreset`) of the inputs.

    They are fitted once in a run, without labels or a model, and a selection is a draw. Weights are unbiased.

    Parameters
    ----------
    bound, radius, bandwidth, n_cells, max_exact
        As in :class:`coresift.RBFCoreset`; the bound "paper" is the paper's Algorithm 1.
    features : "raw", "pca", array or callable, default "raw"
        The inputs, 50 principal components of more than 100 columns, the given rows, or a function of the inputs.
    method : {"systematic", "iid", "keys"}, optional
        As in :meth:`coresift.RBFCoreset.sample`. "iid" merges repeats and may return fewer samples.
    """

    radius: float = 1.0
    _kind, _own = RBFCoreset, "radius"


@dataclass(frozen=True, eq=False, kw_only=True)
class Laplacian(_Sensitivity):
    """Like :class:`RBF`, for the Laplacian loss: ``metric`` is as in :class:`coresift.LaplacianCoreset`."""

    metric: Any = "euclidean"
    _kind, _own = LaplacianCoreset, "metric"
