"""What the coreset estimators share: fit the sensitivities once, draw from them as often as needed."""

import math
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._errors import InvalidInputError
from .._progress import logger
from .._validation import (
    check_budget,
    check_choice,
    check_count,
    check_generator,
    check_probability,
    check_seed,
    record_features,
)
from ..core.draw import METHODS, DrawTable, default_method
from ..core.gaussian import CELLS_TOLERANCE, EXACT_TOLERANCE
from ..core.lewis_passes import Triangle
from ..core.points import Points, SensitivityBound
from ..core.sizes import SampleSize, bernstein_error, finite, rounded_up
from ..rows.rows import Rows
from .bounds import Geometry, draw_scores, log_unit_of, rank_of, spanning_rows, uniform_factor, uniform_in_words
from .certifying import improved, normalized, pool_size
from .coreset import Coreset, Guarantee, QueryBall
from .fitting import Prepared, Runner, all_bounds, children, given_rows, prepare
from .options import BoundSpec

_NEARLY_ALL = 0.5  # a total of this many sensitivities a row promises nothing, and this share of the rows is most
_FINER = {"closed-form": "cells", "cells": "exact"}
_STATED_DELTA = 0.05
_TOLERANCES = {"exact": EXACT_TOLERANCE, "cells": CELLS_TOLERANCE}
_RANK_OPERATIONS = 1e11  # limit on the cost of finding the dimension of the data
LOADED_BYTES = 2e9  # rows of files above this are mapped from a temporary file where all are needed at once


@dataclass(frozen=True)
class Fit:
    """The result of the passes, before anything is set."""

    geometry: Geometry
    bound: SensitivityBound
    weights: np.ndarray
    prepared: Prepared | None = None
    codes: np.ndarray | None = None  # numbers of the labels, if they were asked for


class RowsEstimator(BaseEstimator):
    """Base of estimators that are fitted to rows in memory or of files."""

    random_state: Any
    takes_targets = False
    _not_pickled: tuple[str, ...] = ()

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find how the rows are drawn.

        Parameters
        ----------
        X : array-like, frame or sparse matrix of shape (n, d), or Rows (:func:`coresift.open_rows`)
            Not copied. A reference is kept for later methods, but not in pickles.
        y : array-like of shape (n,)
            Labels or targets, if the estimator has some; None for Rows, which have them as a column of theirs.
        sample_weight : array-like of shape (n,), optional
            Non-negative weights of the rows; a row of weight zero is never drawn. None for Rows, as for ``y``.
        """
        rows = given_rows(X, sample_weight, estimator=self, y=y if self.takes_targets else None)
        self.fit_rows(runner=Runner(rows), X=X)
        return self

    @abstractmethod
    def fit_rows(self, *, runner: Runner, X: Any = None) -> Any:
        """Fit with the engine and the progress of ``runner``; ``X`` is as the caller gave it."""

    def _record_columns(self, rows: Rows, X: Any) -> None:
        if X is None or isinstance(X, Rows):
            self.n_features_in_ = rows.d
        else:
            record_features(self, X)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name not in self._not_pickled}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class PassCoreset(RowsEstimator):
    """Base of estimators that keep nothing per row: each draw is a pass over the rows."""

    _not_pickled = ("_runner",)

    def fit_rows(self, *, runner: Runner, X: Any = None) -> None:
        fit_rng, draw_rng = children(check_generator(self.random_state), 2)
        self._find(runner, fit_rng)
        self._record_columns(runner.rows, X)
        self._runner, self._draw_rng = runner, draw_rng

    @abstractmethod
    def _find(self, runner: Runner, rng: np.random.Generator) -> None:
        """Run the passes, then set the attributes."""

    def _fitted_runner(self, core: Coreset | None = None) -> Runner:
        """What ran the passes; refuse a ``core`` that was not drawn from these rows."""
        check_is_fitted(self, "n_features_in_")
        runner: Runner | None = getattr(self, "_runner", None)
        if runner is None:
            raise InvalidInputError("a copied or unpickled estimator does not carry the data: fit again.")
        if core is not None and core.n_samples != runner.rows.n:
            raise InvalidInputError(f"core was drawn from {core.n_samples} rows, but {runner.rows.n} were fitted.")
        return runner


class SensitivityCoreset(RowsEstimator):
    """Base of the estimators: passes, draws, sizes. A subclass gives the loss and its parameters."""

    loss: str
    _not_pickled: tuple[str, ...] = ("_rows",)

    def fit_rows(
        self, *, runner: Runner, X: Any = None, spec: BoundSpec | None = None, is_sampled: bool = False
    ) -> Fit:
        """Return the fit of ``X`` by ``runner``; ``spec`` is checked already, ``is_sampled`` keeps a sample."""
        spec = self.spec() if spec is None else spec
        fit_rng, draw_rng = children(check_generator(self.random_state), 2)
        fit = self._find(runner, spec, fit_rng, is_sampled)
        bound, geometry, shares = fit.bound, fit.geometry, fit.weights / fit.weights.sum()
        log_unit, values = log_unit_of(bound.log_values), bound.values
        scores = draw_scores(bound.log_values, shares, log_unit, values)
        # a weight too small to have a share of the total counts as none
        table = DrawTable(scores, np.where(shares > 0, fit.weights, 0.0))

        # nothing is set before everything is known: a fit that fails leaves the estimator as it was
        self._record_columns(runner.rows, X)
        self.center_, self.scale_ = geometry.center, geometry.scale
        self.radius_ = spec.radius  # of the fit: changing the parameter afterwards changes no guarantee
        self.sensitivities_ = values
        self.total_sensitivity_ = float(self.sensitivities_.sum())
        self.bound_, self.is_certified_, self.bound_note_ = bound.name, bound.is_certified, bound.note
        self.duality_gap_ = gap = bound.gap
        self.n_unconverged_ = None if gap is None else int(np.sum(gap > _TOLERANCES[bound.name]))
        self.uniform_factor_ = uniform_factor(scores, shares)
        self._draw_total = float(scores.sum()) * math.exp(min(log_unit, 700.0))
        self._total_weight = float(fit.weights.sum())
        self._table, self._draw_rng = table, draw_rng
        self._rows, self._geometry, self._dimension = runner.rows, geometry, 0
        # queries of another metric are not described by a ball
        is_euclidean = spec.metric == "euclidean"
        self._query_ball = QueryBall(self.loss, self.center_, self.scale_, spec.radius) if is_euclidean else None
        self._expected: tuple[float, float, float] | None = None  # what sizes need beyond that, found when asked for
        name = type(self).__name__
        if not bound.is_certified:
            logger.warning("%s: bound %r is not a certificate here. %s", name, bound.name, bound.note)
        if self.n_unconverged_:
            loose = "%s: %d of %d points stopped before the duality gap closed; their bounds hold but are loose."
            logger.warning(loose, name, self.n_unconverged_, len(scores))
        return fit

    def _find(self, runner: Runner, spec: BoundSpec, rng: np.random.Generator, is_sampled: bool) -> Fit:
        prepared = prepare(runner, spec, rng, is_sampled=is_sampled)
        bound, weights, codes = all_bounds(runner, prepared.bound, prepared.labels)
        return Fit(prepared.geometry, bound, weights, prepared, codes)

    def sample(
        self,
        size: int | float,
        *,
        method: str | None = None,
        random_state: Any = None,
        reweight: bool = False,
        refine: bool | int = False,
        normalize: bool = False,
    ) -> Coreset:
        """Draw a coreset.

        ``refine``, ``reweight`` and ``normalize`` give up exact unbiasedness; ``adjustments`` of the result says so.

        Parameters
        ----------
        size : int or float
            A number of points, or a fraction of the rows in (0, 1], rounded up.
        method : {"systematic", "iid", "keys"}, optional
            ``systematic``: exactly ``size`` distinct points; equal scores give equal weights, which sum to the total
            exactly. ``iid``: the draw of the theorems; repeats are merged, so fewer points may come out. ``keys``:
            exactly ``size`` distinct points, with noisier weights, which :func:`coresift.select` can draw without
            keeping the scores of all rows. By default ``systematic``, and ``keys`` above five million rows.
        random_state : None, int or Generator
            None draws afresh at each call, in a sequence that the estimator's own ``random_state`` repeats. The seed
            used is kept in the result: ``random_state=core.seed`` draws the same coreset again.
        reweight : bool
            Replace the weights by the non-negative ones that minimise the discrepancy, and certify the result
            (:meth:`Coreset.reweight`). All rows are loaded, those of files above 2 GB into a temporary file.
        refine : bool or int
            Draw a pool, choose from it greedily the points that lower the discrepancy most, and reweight. The
            certificate falls faster than one over the root of the size. True: four times ``size`` points, and at least
            4,000 (or all); an integer: that many times ``size``. Half of the pool is drawn by weight if the total
            sensitivity is at most 10.
        normalize : bool
            Scale the weights to sum to the data's total weight: less noise in totals, a bias of order 1/size.
        """
        check_is_fitted(self, "sensitivities_")
        method = default_method(self._table.n_samples) if method is None else check_choice(method, "method", METHODS)
        count = check_budget(size, self._table.n_samples)
        seed = check_seed(random_state, self._draw_rng)
        pool = None if refine is False else pool_size(refine, count, self._table.n_samples)
        drawn = self._table.draw(count, method, seed)
        core = Coreset(
            indices=drawn.indices,
            weights=drawn.weights,
            n_samples=self._table.n_samples,
            method=method,
            n_draws=drawn.n_draws,
            seed=seed,
            total_sensitivity=self.total_sensitivity_,
            bound=self.bound_,
            guarantee=self._guarantee(method, count),
            ball=self._query_ball,
            total_weight=self._total_weight,
        )
        if pool is not None or reweight:
            wide = None if pool is None else self._table.draw(pool, method, seed).indices
            with self._loaded("reweight and refine") as (points, shares):
                core = improved(core, points, shares, count, wide)
        return normalized(core) if normalize else core

    def sample_size(self, eps: float, delta: float = 0.05, *, n_queries: int | None = None) -> SampleSize:
        """How many points, drawn with ``method="iid"``, guarantee a relative error.

        The first call makes a few passes, and loads rows in memory or of files up to 2 GB.

        Parameters
        ----------
        eps, delta : float in (0, 1)
            Relative error, and the probability with which the draw may miss it.
        n_queries : int, optional
            Ask for that many queries, fixed before the draw, instead of all queries of the ball.

        Returns
        -------
        SampleSize
            The smallest of the sizes that are proved, and which argument proves it; ``note`` says it in words.
        """
        check_is_fitted(self, "sensitivities_")
        eps, delta = check_probability(eps, "eps"), check_probability(delta, "delta")
        if n_queries is not None:
            n_queries = check_count(n_queries, "n_queries")
        if not self.is_certified_:
            text = f"bound = {self.bound_!r} is not a certificate here, so no sample size follows from it."
            raise InvalidInputError(f"{text} {self.bound_note_}")
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
            if self._n_needed() >= _NEARLY_ALL * self._table.n_samples:
                return f"{text} At least {self._n_needed():,} rows are needed: subsets without one err by 1/3 or more."
            hint = f"try bound={_FINER[self.bound_]!r}" if self.bound_ in _FINER else "refine=True may find a subset"
            return f"{text} That is about the number of rows, so it promises nothing; {hint}."
        return f"{text} {uniform_in_words(self.uniform_factor_)}"

    def _n_needed(self) -> int:
        r"""Rows without which no weights :math:`v \ge 0` of the others give a relative error below 1/3; 0 if unproved.

        Let l_j <= s_j be the ratios reached, at queries x_j. An error of eps there means v_j <= (1 + eps) w_j / l_j, so
        without row i :math:`S(x_i) \le (1+\epsilon) \sum_{j \ne i} w_j f_j(x_i) / \min l = (1+\epsilon) F(x_i) (1 -
        l_i) / \min l`, while it must be at least (1 - eps) F.
        """
        reached = self.sensitivities_ * np.exp(0.0 if self.duality_gap_ is None else -self.duality_gap_)
        return int(np.sum(1.0 - reached < 0.499 * reached.min())) if self.bound_ == "exact" else 0  # 1/2, rounded

    def spec(self) -> BoundSpec:
        """Return the parameters of the bound; refuse those that are wrong whatever the data."""
        return BoundSpec(**{f.name: getattr(self, f.name) for f in fields(BoundSpec) if hasattr(self, f.name)})

    def _fitted_rows(self, what: str) -> Rows:
        """The rows, if ``fit`` was called on this very object."""
        rows: Rows | None = getattr(self, "_rows", None)
        if rows is None:
            text = f"{what} need the data, which a copied or unpickled estimator does not carry: fit again."
            raise InvalidInputError(f"{text} (A coreset has certify(X) and reweight(X), which take the data.)")
        return rows

    @contextmanager
    def _loaded(self, what: str) -> Iterator[tuple[Points, np.ndarray]]:
        """All rows as points, and their shares of the weight."""
        with self._fitted_rows(what).load(LOADED_BYTES) as block:
            yield self._geometry.points(block.X), block.weights / self._total_weight

    def _affine_rank(self) -> int:
        """The dimension of the rows' affine hull, or an upper bound where finding it would take long."""
        if not self._dimension:
            rows, geometry = self._fitted_rows("sample sizes"), self._geometry
            most = max(min(rows.d, int(geometry.counts.sum()) - 1), 1)
            if most > 1 and float(rows.n + rows.d) * rows.d**2 <= _RANK_OPERATIONS:
                spanning = Triangle(partial(spanning_rows, geometry=geometry), np.ones(rows.d))
                most = min(most, rank_of(Runner(rows).run("dimension", spanning).finish()))
            self._dimension = most
        return self._dimension

    def _sizes(self, eps: float, delta: float, n_queries: int | None) -> dict[str, float]:
        """Candidates by name, not rounded; "plain" and "paper" are for comparison."""
        t = self._draw_total
        sizes = {} if n_queries is None else {"finite": finite(t, math.log(n_queries), eps, delta)}
        if self._query_ball is not None:
            sizes |= self._ball_sizes(t, self._affine_rank(), eps, delta)
        elif n_queries is None:
            raise InvalidInputError("sample sizes for all queries need metric='euclidean'; else pass n_queries.")
        return sizes

    def _guarantee(self, method: str, count: int) -> Guarantee | None:
        """Bernstein's inequality for each single query, which needs independent draws."""
        if method != "iid" or not self.is_certified_:
            return None
        eps, ball = bernstein_error(self._draw_total, count, _STATED_DELTA), self._query_ball
        if eps >= 1.0:
            return None
        radius = None if ball is None else ball.radius
        return Guarantee("single", eps, _STATED_DELTA, "Bernstein", radius, count, self._draw_total)

    @abstractmethod
    def _ball_sizes(self, t: float, dimension: int, eps: float, delta: float) -> dict[str, float]: ...
