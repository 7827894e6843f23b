"""The paper's method: sensitivities of the inputs, fitted once, and a fresh draw at every selection."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError
from .._validation import check_choice, check_count
from ..coresets import LaplacianCoreset, RBFCoreset
from ..coresets.coreset import Coreset
from .classes import PerClass
from .context import SelectionContext
from .strategy import Selector

_FIT = 2  # keeps the stream of the fit apart from others of the same seed
_OF_THE_DRAW = ("method", "per_class", "min_per_class")
_METHODS = ("keys", "systematic", "iid")


@dataclass(frozen=True, eq=False, kw_only=True)
class _Sensitivity(Selector):
    """Shared by the losses: fit the estimator once for the data of a run, sample from it at each selection."""

    bound: str = "auto"
    bandwidth: Any = None
    features: Any = "raw"
    n_components: int = 50
    per_class: bool = False
    min_per_class: int = 0
    method: str = "keys"
    n_cells: int = 64
    max_exact: int | None = 20_000

    def _check(self) -> None:
        check_choice(self.method, "method", _METHODS)
        check_count(self.min_per_class, "min_per_class", 0)
        if self.min_per_class and not self.per_class:
            raise InvalidInputError(
                f"min_per_class = {self.min_per_class} needs per_class=True: a draw over all classes promises none."
            )

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        if self.per_class:
            return PerClass(_Part(self), self.min_per_class).select(context, size, rng)
        return self._draw(context, size, rng)

    def _draw(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        # the strategy is kept beside the fit, so that the ids in the key are not given to other objects
        fitted, _ = context.kept(self._fit_key(), lambda: (self._fitted(context), self))
        return fitted.sample(size, method=self.method, random_state=rng)

    def shares(self, context: SelectionContext) -> NDArray[np.float64] | None:
        """The probabilities of one draw, which sum to 1; None where each class has its own."""
        if self.per_class:
            return None
        fitted, _ = context.kept(self._fit_key(), lambda: (self._fitted(context), self))
        scores: NDArray[np.float64] = fitted._table.scores
        return scores / scores.sum()

    def _fit_key(self) -> tuple[Any, ...]:
        """Of the settings that the fit depends on: strategies that share them share the fit."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _OF_THE_DRAW}
        return (
            type(self),
            *(v if isinstance(v, str | int | float | None) else id(v) for v in values.values()),
        )

    def _fitted(self, context: SelectionContext) -> Any:
        matrix = context.features(self.features, self.n_components)
        with context.accounted(f"sensitivities ({self.name})", context.n_samples):
            return self._estimator(context.fixed_rng(_FIT)).fit(matrix, sample_weight=context.sizes)

    @abstractmethod
    def _estimator(self, rng: np.random.Generator) -> Any: ...


@dataclass(frozen=True, eq=False)
class _Part(Selector):
    """The draw within one class."""

    whole: _Sensitivity

    @property
    def name(self) -> str:
        return self.whole.name

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        return self.whole._draw(context, size, rng)


@dataclass(frozen=True, eq=False, kw_only=True)
class RBF(_Sensitivity):
    """Draws by the sensitivities of the Gaussian loss (:class:`coresift.RBFCoreset`) of the inputs.

    The sensitivities know neither labels nor model: they are fitted once for the data of a run, and a selection is a
    draw. Weights are unbiased; their sum is n on average.

    Parameters
    ----------
    bound : str, default "auto"
        Of :class:`coresift.RBFCoreset`; "paper" is the paper's Algorithm 1.
    radius, bandwidth, n_cells, max_exact
        Of :class:`coresift.RBFCoreset`.
    features : "raw", "pca", array or callable, default "raw"
        What the sensitivities are of: the inputs, their first ``n_components`` principal components, rows given here,
        or a function of the inputs.
    n_components : int, default 50
    per_class : bool, default False
        A coreset of each class, fitted and drawn within it: sums over every class are kept, not only over all.
    min_per_class : int, default 0
        With ``per_class``: at least so many samples of each class.
    method : {"keys", "systematic", "iid"}, default "keys"
        How to draw. Not "systematic" by default: with its fixed order there are only about n / budget different draws,
        too few for a subset that is redrawn every epoch. "iid" merges repeats, and may return fewer.
    """

    radius: float = 1.0

    def _estimator(self, rng: np.random.Generator) -> Any:
        return RBFCoreset(
            self.radius,
            bandwidth=self.bandwidth,
            bound=self.bound,
            n_cells=self.n_cells,
            max_exact=self.max_exact,
            random_state=rng,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Laplacian(_Sensitivity):
    """As :class:`RBF`, with the sensitivities of the Laplacian loss (:class:`coresift.LaplacianCoreset`).

    Parameters
    ----------
    metric : str or callable, default "euclidean"
    bound, bandwidth, n_cells, max_exact
        Of :class:`coresift.LaplacianCoreset`.
    features, n_components, per_class, min_per_class, method
        Of :class:`RBF`.
    """

    metric: Any = "euclidean"

    def _estimator(self, rng: np.random.Generator) -> Any:
        return LaplacianCoreset(
            metric=self.metric,
            bandwidth=self.bandwidth,
            bound=self.bound,
            n_cells=self.n_cells,
            max_exact=self.max_exact,
            random_state=rng,
        )
