"""Coresets of the loss of networks of Gaussians."""

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import Any, Self

import numpy as np
from scipy.optimize import brentq
from sklearn.utils.validation import check_is_fitted

from .._errors import InvalidInputError, InvalidTypeError
from .._validation import (
    check_choice,
    check_count,
    check_features,
    check_generator,
    check_positive,
    check_probability,
    check_targets,
)
from ..core.network import network_sums
from ..core.network_audit import NetworkAudit, worst_network
from ..core.points import Matrix, SensitivityBound, log_shares, squared_norms
from ..core.sizes import covering, paper_formula, vc
from ..rows.arrays import ArrayRows
from .base import LOADED_BYTES, Fit
from .bounds import Geometry
from .coreset import Coreset, Guarantee, QueryBall
from .estimators import RBFCoreset
from .fitting import Runner, bound_of, geometry_of, serial_runner
from .network_results import NetworkComparison, SignedCoreset, compared
from .options import BoundSpec

CONSTRUCTIONS = ("whole-loss", "paper")
_ROOT = float(np.sqrt(2.0))
_ON_THE_BALL = 1e-9  # a centre may be outside by rounding


class RBFNetworkCoreset(RBFCoreset):
    r"""A weighted subset that keeps the loss of every network of Gaussians with centres in a ball.

    The loss is :math:`\sum_p w_p |y_p - \sum_i a_i e^{-|p-c_i|^2/\sigma^2}|^2`. Multiplied out it is made of four
    families of sums: :math:`w y^2`; the Gaussian sums of the rows with :math:`y > 0` and of those with :math:`y < 0`;
    and, for the square term, Gaussian sums of bandwidth :math:`\sigma/\sqrt 2`. Kept within a factor
    :math:`1 \pm \epsilon` each, they give for any number of neurons and any signs

    .. math:: |loss_S - loss_P| \le \epsilon \sum_p w_p \Bigl( |y_p| + \sum_i |a_i| f(p, c_i) \Bigr)^2 .

    A relative error of the loss itself is impossible: a network can interpolate a small subset.

    Parameters
    ----------
    radius, bandwidth, bound, n_cells, max_exact, verbose, random_state
        As for :class:`RBFCoreset`. The ball, of the centres, is around the weighted mean of the rows.
    construction : {"whole-loss", "paper"}, default "whole-loss"
        "whole-loss": one sample, drawn by the largest of the sensitivities of the four families. "paper": a
        :class:`SignedCoreset` for the cross term of a single output, drawn by the sensitivities of the two signed
        families (pass ``bound="paper"`` for those of Algorithm 1).

    Attributes
    ----------
    family_totals_ : dict
        Total sensitivity of each family; ``positive[k]`` and ``negative[k]`` belong to output k.
    coreset_ : Coreset or SignedCoreset
        The last draw.
    sensitivities_, total_sensitivity_, uniform_factor_, center_, scale_, bound_, is_certified_, bound_note_
        As for :class:`RBFCoreset`, of the largest sensitivity of each row.

    Examples
    --------
    >>> import numpy as np
    >>> from coresift import RBFNetworkCoreset
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> y = np.cos(2 * X[:, 0]) * X[:, 1]
    >>> est = RBFNetworkCoreset(bandwidth=3.0, random_state=0).fit(X, y)
    >>> core = est.sample(200)
    >>> found = est.loss_error(centers=[[0.0, 1.0], [1.0, 0.0]], alphas=[1.0, -0.5])
    >>> bool(found.loss_error <= found.family_error * found.magnitude)
    True
    """

    def __init__(
        self,
        radius: float = 1.0,
        *,
        bandwidth: Any = None,
        construction: str = "whole-loss",
        bound: str = "auto",
        n_cells: int = 64,
        max_exact: int | None = 20_000,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        shared = {"bandwidth": bandwidth, "bound": bound, "n_cells": n_cells, "max_exact": max_exact}
        super().__init__(radius, **shared, random_state=random_state, verbose=verbose)
        self.construction = construction

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Bound the sensitivity of every row in every family.

        Parameters
        ----------
        X : array-like, frame or sparse matrix of shape (n, d)
            Not copied. A reference is kept for ``loss_error`` and ``audit``, but not in pickles.
        y : array-like of shape (n,) or (n, K)
            Targets, required. For K outputs the loss is the sum of the losses of each.
        sample_weight : array-like of shape (n,), optional
            Non-negative weights of the rows.
        """
        return super().fit(X, y, sample_weight)

    def sample(  # type: ignore[override]  # the paper's construction is a pair
        self, size: int | float, *, method: str | None = None, random_state: Any = None, normalize: bool = False
    ) -> Coreset | SignedCoreset:
        """Draw a coreset: one for the whole loss, or the paper's pair, ``size`` points in both together.

        The arguments are those of :meth:`RBFCoreset.sample`. A pair is one draw, split by the sign of the target: each
        row has its own family's sensitivity, and how many points a set gets is left to the draw.
        """
        core = super().sample(size, method=method, random_state=random_state, normalize=normalize)
        self.coreset_ = core if self.construction == "whole-loss" else self._signed(core)
        return self.coreset_

    def loss_error(
        self,
        centers: Any,
        alphas: Any,
        *,
        core: Coreset | SignedCoreset | None = None,
        eps: float | None = None,
        delta: float = 0.05,
    ) -> NetworkComparison:
        """How wrong a coreset is about one network, term by term, with the guarantee's right-hand side.

        Parameters
        ----------
        centers : array-like of shape (L, d)
            In the units of the data, within the ball.
        alphas : array-like of shape (L,) or (L, K)
            Outputs of the neurons, of any sign.
        core : Coreset or SignedCoreset, optional
            By default the last one drawn.
        eps : float, optional
            The error of the families to state the right-hand side for. By default what is guaranteed for this draw
            with probability ``1 - delta``, which exists for ``method="iid"`` and enough draws.
        """
        merged = self._merged(core)
        with self._loaded("loss_error") as (points, shares):
            weights, targets = shares * self._input_weight, self._targets
            network_centers, outputs = self._checked_network(centers, alphas, targets.shape[1])
            eps = self.guaranteed_error(merged, delta=delta) if eps is None else check_positive(eps, "eps")
            truth = network_sums(points, weights, targets, network_centers)
            drawn = network_sums(points, merged.weights, targets, network_centers, merged.indices)
        return compared(truth, drawn, outputs, eps, self.construction == "whole-loss")

    def guaranteed_error(self, core: Coreset | SignedCoreset | None = None, *, delta: float = 0.05) -> float | None:
        """The least eps that is guaranteed for all families and the whole ball with probability ``1 - delta``.

        None if the draws were not independent or not by this fit, the bound is not certified, or they are too few for
        any eps below 1.
        """
        core = self._merged(core)
        delta = check_probability(delta, "delta")
        if core.n_draws is None or core.adjustments or not self.is_certified_:
            return None
        if (core.total_sensitivity, core.bound) != (self.total_sensitivity_, self.bound_):
            return None  # drawn by something else
        draws = float(core.n_draws)

        def excess(eps: float) -> float:
            sizes = self._sizes(eps, delta, None)
            return float(np.log(min(sizes["covering"], sizes["vc"]) / draws))

        low, high = 1e-6, 1.0 - 1e-9
        if excess(high) > 0:
            return None
        return float(brentq(excess, low, high, xtol=1e-6)) if excess(low) > 0 else low

    def audit(
        self,
        n_neurons: int = 3,
        *,
        core: Coreset | SignedCoreset | None = None,
        n_starts: int = 8,
        max_iter: int = 60,
        random_state: Any = 0,
    ) -> NetworkAudit:
        """Search for the network of ``n_neurons``, centres in the ball, about which a coreset is most wrong.

        The error is ``|loss_S - loss_P|`` over the magnitude in the guarantee, so the result is a lower bound on the
        least eps for which the guarantee holds. ``n_starts`` local searches of ``max_iter`` steps each, from the best
        of random networks and of networks at the worst single query.
        """
        merged, rng = self._merged(core), check_generator(random_state)
        counts = {"n_neurons": n_neurons, "n_starts": n_starts, "max_iter": max_iter}
        for name, count in counts.items():
            counts[name] = check_count(count, name)
        rows, drawn, radius = merged.indices, merged.weights, self.radius_
        with self._loaded("audit") as (points, shares):
            weights, targets = shares * self._input_weight, self._targets
            return worst_network(points, weights, targets, rows, drawn, radius, rng=rng, **counts)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags

    def spec(self) -> BoundSpec:
        check_choice(self.construction, "construction", CONSTRUCTIONS)
        return super().spec()

    def _checked_targets(self, y: Any, n_samples: int) -> np.ndarray:
        targets = check_targets(y, n_samples)
        if self.construction == "paper":
            if targets.shape[1] > 1:
                raise InvalidInputError(
                    f"y has {targets.shape[1]} outputs; construction='paper' is for one. Use 'whole-loss', or one "
                    "estimator for each output."
                )
            if not targets.any():
                raise InvalidInputError("y is zero in every row: neither signed set has a point to draw.")
        return targets

    def _find(self, runner: Runner, spec: BoundSpec, rng: np.random.Generator, y: Any, is_sampled: bool) -> Fit:
        """The largest of the families' bounds; rows in no family keep ``-inf``."""
        rows = runner.rows
        if y is None and rows.is_portable:
            raise InvalidInputError(
                "y is missing: the loss of a network needs targets, and rows of files carry labels, not targets. Pass "
                "y, an array with a target for each row."
            )
        targets = self._checked_targets(y, rows.n)
        geometry = geometry_of(runner, spec, rng)
        with rows.load(LOADED_BYTES) as everything:
            weights = np.array(everything.weights)
            shares = weights / weights.sum()
            # at least one: the square term's, or one of the signs
            families = list(self._families(everything.X, shares, targets, geometry, spec, rng))
        totals = {name: float(bound.values.sum()) for name, bound in families}
        bound = reduce(_larger, (bound for _, bound in families))
        floor, carried = shares, weights
        if self.construction == "paper":
            column = targets[:, 0]
            parts = [_family(shares, np.maximum(part, 0.0)) for part in (column, -column)]
            floor = np.sum([part for part in parts if part is not None], axis=0)
            carried = weights * np.abs(column)
        return Fit(geometry, bound, weights, floor, carried, targets=targets, totals=totals)

    def _record(self, fit: Fit) -> None:
        assert fit.targets is not None
        assert fit.totals is not None
        self.family_totals_, self._targets = fit.totals, fit.targets
        # a pair is split by the sign of the targets, by a copy of this estimator too, which has no other data
        self._column = fit.targets[:, 0] if self.construction == "paper" else None
        if self._column is not None:
            carried = fit.weights * self._column
            self._signed_weights = carried[carried > 0].sum(), -carried[carried < 0].sum()
        if hasattr(self, "coreset_"):  # of the last fit
            del self.coreset_

    def _families(
        self,
        X: Matrix,
        shares: np.ndarray,
        targets: np.ndarray,
        geometry: Geometry,
        spec: BoundSpec,
        rng: np.random.Generator,
    ) -> Iterator[tuple[str, SensitivityBound]]:
        """The bounds of the families that this construction keeps and that are not empty.

        A family is a set of shares of the rows, with a ball that is not centred at their mean.
        """

        def bounded(family: np.ndarray, factor: float = 1.0) -> SensitivityBound:
            wide = replace(spec, radius=factor * spec.radius)
            ball = QueryBall("gaussian", geometry.center, geometry.scale / factor, wide.radius)
            return bound_of(serial_runner(ArrayRows(X, family), self.verbose), wide, rng, ball)

        is_whole = self.construction == "whole-loss"
        sizes = np.sqrt(squared_norms(targets / (np.abs(targets).max() or 1.0)))
        of_targets = _family(shares, sizes, power=2)
        if is_whole and of_targets is not None:
            note = "One sum: the sensitivities are the shares."
            yield "targets", SensitivityBound(log_shares(of_targets), "exact", True, note)
        for k, column in enumerate(targets.T):
            for name, part in (("positive", column), ("negative", -column)):
                signed = _family(shares, np.maximum(part, 0.0))
                if signed is not None:
                    yield f"{name}[{k}]", bounded(signed)
        if is_whole:
            # the kernel of bandwidth 1/sqrt 2: every length is sqrt 2 times as many bandwidths
            yield "square", bounded(shares, _ROOT)

    def _ball_sizes(self, t: float, dimension: int, eps: float, delta: float) -> dict[str, float]:
        # A union over the families; that of the square term has the widest ball, sqrt 2 R, and the farthest points.
        each = delta / len(self.family_totals_)
        factor = _ROOT if self.construction == "whole-loss" else 1.0
        radius, max_norm = factor * self.radius_, factor * self._geometry.max_norm
        return {
            "covering": covering(t, dimension, radius, max_norm, eps, each),
            "vc": vc(t, dimension + 1, eps, each),
            "paper": paper_formula(t, len(self.center_) + 1, eps, each),
        }

    def _guarantee(self, method: str, count: int) -> Guarantee | None:
        proved = super()._guarantee(method, count)
        return proved and replace(proved, queries="families")

    def _signed(self, core: Coreset) -> SignedCoreset:
        assert self._column is not None
        rows, weights, targets = core.indices, core.weights, self._column[core.indices]
        positive, negative = (
            replace(core, indices=rows[own], weights=weights[own], total_weight=float(total))
            for own, total in zip((targets > 0, targets < 0), self._signed_weights, strict=True)
        )
        return SignedCoreset(positive, negative, np.abs(targets))

    def _merged(self, coreset: Any) -> Coreset:
        check_is_fitted(self, "sensitivities_")
        coreset = getattr(self, "coreset_", None) if coreset is None else coreset
        if coreset is None:
            raise InvalidInputError("there is no coreset yet: call sample(), or pass one.")
        if isinstance(coreset, SignedCoreset):
            coreset = coreset.merged()
        if not isinstance(coreset, Coreset):
            raise InvalidTypeError(f"core = {type(coreset).__name__} must be a Coreset or a SignedCoreset.")
        if coreset.n_samples != self._table.n_samples:
            raise InvalidInputError(
                f"the coreset was drawn from {coreset.n_samples} rows, the estimator fitted on {self._table.n_samples}."
            )
        return coreset

    def _checked_network(self, centers: Any, alphas: Any, n_outputs: int) -> tuple[np.ndarray, np.ndarray]:
        """Centres in scaled coordinates and outputs (L, K)."""
        rows = check_features(centers, name="centers")
        rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
        if rows.shape[1] != len(self.center_):
            raise InvalidInputError(
                f"centers has {rows.shape[1]} columns, but X has {len(self.center_)}; they must be equal."
            )
        outputs = check_targets(alphas, len(rows), name="alphas")
        if outputs.shape[1] != n_outputs:
            raise InvalidInputError(
                f"alphas has {outputs.shape[1]} outputs, but y has {n_outputs}; they must be equal."
            )
        scaled = (rows.astype(np.float64) - self.center_) / self.scale_
        farthest = float(np.sqrt(squared_norms(scaled).max()))
        if farthest > self.radius_ * (1.0 + _ON_THE_BALL):
            raise InvalidInputError(
                f"centers has a row {farthest:.4g} bandwidths from the mean; radius = {self.radius_} is the limit."
            )
        return scaled, outputs


def _family(shares: np.ndarray, sizes: np.ndarray, power: int = 1) -> np.ndarray | None:
    """Shares of the weights times a power of ``sizes``; None if no row of positive weight has a size above 0."""
    peak = sizes.max(where=shares > 0, initial=0.0)
    if peak == 0.0:
        return None
    mass = shares * (sizes / peak) ** power  # products of small numbers must not vanish
    return mass / mass.sum()


def _larger(a: SensitivityBound, b: SensitivityBound) -> SensitivityBound:
    """The larger of two bounds for each row, and what is known of both."""
    take = b.log_values > a.log_values
    gaps = [np.zeros(len(take)) if bound.gap is None else bound.gap for bound in (a, b)]
    worst = a if not a.is_certified else b
    return SensitivityBound(
        np.where(take, b.log_values, a.log_values),
        b.name,
        a.is_certified and b.is_certified,
        worst.note,
        None if a.gap is None and b.gap is None else np.where(take, gaps[1], gaps[0]),
    )
