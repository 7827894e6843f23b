"""What the coreset estimators share: fit the sensitivities once, draw from them as often as wanted."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._errors import InvalidInputError
from .._progress import Progress, logger
from .._validation import (
    LARGEST_MAGNITUDE,
    check_budget,
    check_choice,
    check_count,
    check_features,
    check_finite,
    check_generator,
    check_probability,
    check_seed,
    check_weights,
    record_features,
)
from ..core.bound import SensitivityBound
from ..core.draw import METHODS, DrawTable
from ..core.points import Moments, Points, moments
from ..core.sizes import SampleSize, finite, rounded_up
from .coreset import Coreset, Guarantee, QueryBall
from .geometry import check_bandwidth, check_reach, choose_scale
from .improve import affine_rank, improved, normalized, pool_size
from .scores import children, draw_scores, uniform_factor

_NEARLY_ALL = 0.5  # a total of so many sensitivities a row leaves nothing to gain
_AS_GOOD = 1.5  # plain sampling that needs at most this factor more points is called as good
_STATED_DELTA = 0.05


@dataclass(frozen=True)
class FitContext:
    """What a bound may use: the data in scaled coordinates and what one look at it gave."""

    points: Points
    shares: np.ndarray  # weights divided by their sum
    sq_norms: np.ndarray  # |z|^2
    second_moment: float  # of the shares about the centre, scaled: their variance if the centre is their mean
    center_error: float  # how far the centre may be from the mean, scaled
    rng: np.random.Generator
    targets: np.ndarray | None = None  # (n, K), where the loss has targets
    from_mean: np.ndarray | None = None  # distances from the mean of the shares, where it is not the centre


@dataclass(frozen=True)
class Fit:
    """What was found of the data, by whatever way, before anything is set."""

    center: np.ndarray
    scale: float
    bound: SensitivityBound
    total_weight: float
    floor: np.ndarray  # the least scores, as shares
    carried: np.ndarray  # the weights that a draw carries
    context: FitContext | None = None  # None where the rows are not in memory


@singledispatch
def fit_elsewhere(
    X: Any, estimator: SensitivityCoreset, sample_weight: Any, rng: np.random.Generator
) -> Fit | None:
    """Fit what is no array: layers above register their sources of rows here."""
    return None


class SensitivityCoreset(BaseEstimator):
    """Base of the estimators: validation, geometry, drawing. A subclass gives the loss and its bounds."""

    loss: str

    # set by the subclass's __init__
    bandwidth: Any
    bound: str
    n_cells: int
    max_exact: int | None
    verbose: int
    random_state: Any

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Bound the sensitivity of every row.

        Parameters
        ----------
        X : array-like, frame or sparse matrix of shape (n, d), or source of rows
            Not copied. A reference is kept for ``reweight``, ``refine`` and ``sample_size``, but not in pickles.
            A source (:func:`coresift.open_rows`) is read in passes and may be larger than memory.
        y : ignored
            Present by the conventions of scikit-learn.
        sample_weight : array-like of shape (n,), optional
            Non-negative weights of the rows; a row of weight zero is never drawn.
        """
        from . import fit as _  # noqa: F401 - registers the fit on Rows, until both are one

        self._check_parameters()
        geometry_rng, order_rng, draw_rng = children(check_generator(self.random_state), 3)
        fit = fit_elsewhere(X, self, sample_weight, geometry_rng)
        if fit is None:
            fit = self._fit_array(X, y, sample_weight, geometry_rng)
        scores, log_unit = draw_scores(fit.bound, fit.floor)
        # a weight too small to have a share of the total counts as none
        table = DrawTable(scores, np.where(fit.floor > 0, fit.carried, 0.0), order_rng)

        # nothing is set before everything is known: a fit that fails leaves the estimator as it was
        if fit.context is not None:
            record_features(self, X)
        else:
            self.n_features_in_ = len(fit.center)
        bound = fit.bound
        self.center_ = fit.center
        if hasattr(self, "radius"):
            self.radius_ = float(
                self.radius
            )  # of the fit: changing the parameter afterwards changes no guarantee
        self.scale_ = fit.scale
        self.sensitivities_ = bound.values
        self.total_sensitivity_ = float(self.sensitivities_.sum())
        self.bound_ = bound.name
        self.is_certified_ = bound.is_certified
        self.bound_note_ = bound.note
        self.duality_gap_ = bound.gap
        self.n_unconverged_ = (
            None if bound.gap is None else int(np.sum(bound.gap > self._tolerance(bound.name)))
        )
        self.uniform_factor_ = uniform_factor(scores, fit.floor)
        self._draw_total = float(scores.sum()) * float(np.exp(log_unit))
        self._input_weight = fit.total_weight
        self._total_weight = float(fit.carried.sum())
        self._table = table
        context = fit.context
        self._data = None if context is None else (context.points, context.shares, context.targets)
        self._draw_rng = draw_rng
        if context is not None:
            self._record(context, bound)
        if not bound.is_certified:
            logger.warning(
                "%s: bound %r is not a certificate here. %s", type(self).__name__, bound.name, bound.note
            )
        if self.n_unconverged_:
            logger.warning(
                "%s: %d of %d points stopped before the duality gap closed; their bounds hold but are loose.",
                type(self).__name__,
                self.n_unconverged_,
                len(fit.floor),
            )
        return self

    def _fit_array(self, X: Any, y: Any, sample_weight: Any, geometry_rng: np.random.Generator) -> Fit:
        """Check an array, look at it for its mean and distances, and bound its sensitivities."""
        rows = check_features(X, estimator=self, finite=False)
        weights = check_weights(sample_weight, rows.shape[0])
        targets = self._checked_targets(y, rows.shape[0])
        total_weight = float(weights.sum())
        shares = weights / total_weight

        found = moments(rows, shares)
        if not np.isfinite(found.sq_norms).all() or found.unit > LARGEST_MAGNITUDE:
            check_finite(rows, X)
        scale = self._choose_scale(rows, found, shares, geometry_rng)
        check_reach(found, scale)
        points = Points(rows, found.mean, scale, found.max_norm / scale)
        context = FitContext(
            points,
            shares,
            found.scaled_sq_norms(scale),
            found.scaled_variance(scale),
            found.center_error / scale,
            geometry_rng,
            targets,
        )
        bound = self._bound(context)
        floor, carried = self._carried(context, weights)
        return Fit(found.mean, scale, bound, total_weight, floor, carried, context)

    def sample(
        self,
        size: int | float,
        *,
        method: str = "systematic",
        random_state: Any = None,
        reweight: bool = False,
        refine: bool | int = False,
        normalize: bool = False,
    ) -> Coreset:
        """Draw a coreset.

        Parameters
        ----------
        size : int or float
            A number of points, or a fraction of the rows in (0, 1], rounded up.
        method : {"systematic", "iid", "keys"}
            ``systematic``: exactly ``size`` distinct points. ``iid``: the draw of the theorems; repeats are
            merged, so fewer points may come out. ``keys``: exactly ``size`` distinct points, the same from
            files, chunks or workers.
        random_state : None, int or Generator
            None draws afresh at each call, in a sequence that the estimator's own ``random_state`` repeats. The seed
            used is kept in the result: ``random_state=core.seed`` draws the same coreset again.
        reweight : bool
            Replace the weights by the non-negative ones that minimise the discrepancy, and certify the result
            (:meth:`Coreset.reweight`).
        refine : bool or int
            Draw a pool, choose from it greedily the points that lower the discrepancy most, and reweight. The
            certificate falls faster than one over the root of the size. True: four times ``size`` points, and at
            least 4,000 (or all); an integer: so many times ``size``. Half of the pool is drawn by weight where
            the total sensitivity is at most 10.
        normalize : bool
            Rescale the weights so that they sum to the data's total weight: less noise in totals, a bias of
            order 1/size.

        Notes
        -----
        ``refine``, ``reweight`` and ``normalize`` give up exact unbiasedness; ``adjustments`` of the result says so.
        """
        check_is_fitted(self, "sensitivities_")
        method = check_choice(method, "method", METHODS)
        count = check_budget(size, self._table.n_samples)
        seed = check_seed(random_state, self._draw_rng)
        pool = pool_size(refine, count, self._table.n_samples)
        drawn = self._table.draw(count, method, seed)
        core = Coreset._trusted(
            indices=drawn.indices,
            weights=drawn.weights,
            n_samples=self._table.n_samples,
            method=method,
            n_draws=drawn.n_draws,
            seed=seed,
            total_sensitivity=self.total_sensitivity_,
            bound=self.bound_,
            guarantee=self._guarantee(method, count),
            ball=self._ball(),
            total_weight=self._total_weight,
        )
        if pool is not None or reweight:
            points, shares, _ = self._fitted_data("reweight and refine")
            wide = None if pool is None else self._table.draw(pool, method, seed).indices
            core = improved(core, points, shares, count, wide, self.verbose)
        return normalized(core) if normalize else core

    def sample_size(self, eps: float, delta: float = 0.05, n_queries: int | None = None) -> SampleSize:
        """How many points, drawn with ``method="iid"``, guarantee a relative error.

        Parameters
        ----------
        eps, delta : float in (0, 1)
            Relative error, and the probability with which the draw may miss it.
        n_queries : int, optional
            Ask for so many queries, fixed before the draw, instead of all queries of the ball: a weaker guarantee that
            needs fewer points.

        Returns
        -------
        SampleSize
            The smallest of the sizes that are proved, and which argument proves it; ``note`` says it in words,
            and whether it is smaller than the data.
        """
        check_is_fitted(self, "sensitivities_")
        eps, delta = check_probability(eps, "eps"), check_probability(delta, "delta")
        if n_queries is not None:
            n_queries = check_count(n_queries, "n_queries")
        if not self.is_certified_:
            raise InvalidInputError(
                f"bound = {self.bound_!r} is not a certificate here, so no sample size follows from it. "
                f"{self.bound_note_}"
            )
        candidates = self._sizes(eps, delta, n_queries)
        proved = {name: size for name, size in candidates.items() if name not in ("paper", "plain")}
        argument = min(proved, key=proved.__getitem__)
        strength = "all queries of space" if self.loss == "laplacian" else "all queries of the ball"
        if argument == "finite":
            strength = "one query" if n_queries == 1 else f"{n_queries:,} queries"
            strength += " fixed beforehand"
        rounded = {name: rounded_up(size) for name, size in candidates.items()}
        return SampleSize(rounded[argument], argument, strength, eps, delta, self._table.n_samples, rounded)

    def advice(self) -> str:
        """Whether these sensitivities help, in plain words."""
        check_is_fitted(self, "sensitivities_")
        text = f"Total sensitivity {self.total_sensitivity_:.3g} (the least possible is 1), bound {self.bound_!r}."
        if not self.is_certified_:
            return f"{text} {self.bound_note_}"
        if self.total_sensitivity_ >= _NEARLY_ALL * self._table.n_samples:
            if self.bound_ in ("exact", "cells"):
                return f"{text} Nearly every row is needed at this bandwidth: no small subset keeps the sums."
            return f"{text} That is about the number of rows, so it promises nothing; try bound='cells'."
        factor = self.uniform_factor_
        if factor <= _AS_GOOD:
            needs = f"Plain sampling needs at most {factor:.2f} times as many points"
            return f"{text} {needs}: uniform sampling is as good here."
        return (
            f"{text} Plain sampling may need up to {factor:.3g} times as many points for the same guarantee."
        )

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_data"}

    def _fitted_data(self, what: str) -> tuple[Points, np.ndarray, np.ndarray | None]:
        """Points, shares and targets, where ``fit`` has been called on this very object."""
        data: tuple[Points, np.ndarray, np.ndarray | None] | None = getattr(self, "_data", None)
        if data is None:
            raise InvalidInputError(
                f"{what} need the data, which a copied or unpickled estimator does not carry, nor one of a source: fit "
                "again. (A coreset has certify(X) and reweight(X), which take the data.)"
            )
        return data

    def _sizes(self, eps: float, delta: float, n_queries: int | None) -> dict[str, float]:
        """Candidates by name, not rounded; "plain" and "paper" are for comparison."""
        t, (points, shares, _) = self._draw_total, self._fitted_data("sample sizes")
        sizes = {} if n_queries is None else {"finite": finite(t, math.log(n_queries), eps, delta)}
        if self._ball() is not None:
            sizes |= self._ball_sizes(t, affine_rank(points, shares), points, shares, eps, delta)
        elif n_queries is None:
            raise InvalidInputError(
                "sample sizes for all queries need metric='euclidean'; for another metric pass n_queries."
            )
        return sizes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_parameters(self) -> None:
        check_bandwidth(self.bandwidth)
        check_choice(self.bound, "bound", self._bounds())
        check_count(self.n_cells, "n_cells")
        if self.max_exact is not None:
            check_count(self.max_exact, "max_exact")

    def _checked_targets(self, y: Any, n_samples: int) -> np.ndarray | None:
        """(n, K) targets, for a loss that has them."""
        return None

    def _carried(self, context: FitContext, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The least scores, as shares of the sums that are kept, and the weights that a draw carries."""
        return context.shares, weights

    def _record(self, context: FitContext, bound: SensitivityBound) -> None:
        """Set what a subclass knows of its bound besides, at the end of ``fit``."""

    def _choose_scale(self, X: Any, found: Moments, shares: np.ndarray, rng: np.random.Generator) -> float:
        return choose_scale(self.bandwidth, X, found, shares, rng)

    def _guarantee(self, method: str, count: int) -> Guarantee | None:
        """Bernstein's inequality for each single query, which needs independent draws."""
        if method != "iid" or not self.is_certified_:
            return None
        # 2 exp(-m e^2 / (2 t (1 + e/3))) = delta  <=>  e^2 = a (1 + e/3),  a = 2 t ln(2/delta) / m
        a = 2.0 * self._draw_total * math.log(2.0 / _STATED_DELTA) / count
        eps = a / 6.0 + math.sqrt(a * a / 36.0 + a)
        if eps >= 1.0:
            return None
        ball = self._ball()
        radius = None if ball is None else ball.radius
        return Guarantee("single", eps, _STATED_DELTA, "Bernstein", radius, count, self._draw_total)

    def _refuse_large(self, n: int) -> None:
        if self.max_exact is not None and n > self.max_exact:
            raise InvalidInputError(
                f"bound='exact' compares every row with every other: n_samples = {n} exceeds max_exact = "
                f"{self.max_exact}. Use bound='cells', or pass max_exact=None to force it."
            )

    def _progress(self, label: str, n: int) -> Progress:
        return Progress(label, n, self.verbose)

    @abstractmethod
    def _bound(self, context: FitContext) -> SensitivityBound: ...

    @abstractmethod
    def _bounds(self) -> tuple[str, ...]: ...

    @abstractmethod
    def _tolerance(self, bound_name: str) -> float: ...

    @abstractmethod
    def _ball(self) -> QueryBall | None: ...

    @abstractmethod
    def _ball_sizes(
        self, t: float, dimension: int, points: Points, shares: np.ndarray, eps: float, delta: float
    ) -> dict[str, float]: ...
