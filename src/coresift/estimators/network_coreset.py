"""Coresets of the loss of networks of Gaussians."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Self

import numpy as np
from scipy.optimize import brentq
from sklearn.utils.validation import check_is_fitted

from .._coreset import Coreset
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
from ..core.bound import SensitivityBound, log_shares
from ..core.network import NetworkSums, network_sums
from ..core.network_audit import NetworkAudit, worst_network
from ..core.points import Points, squared_norms
from ..core.sizes import covering, paper_formula, vc
from ._base import FitContext
from .rbf import RBFCoreset

CONSTRUCTIONS = ("whole-loss", "paper")
_ROOT = float(np.sqrt(2.0))
_ON_THE_BALL = 1e-9  # a centre may be outside by rounding


@dataclass(frozen=True, eq=False)
class SignedCoreset:
    r"""The paper's pair of coresets for the cross term of a network's loss.

    .. math:: \sum_p w_p y_p \phi(p) \approx \sum_i a_i \bigl( g_{S_1}(c_i) - g_{S_2}(c_i) \bigr), \qquad
        g_S(c) = \sum_{p \in S} v_p f(p, c)

    Both sets serve every neuron, whatever the sign of its output.

    Attributes
    ----------
    positive, negative : Coreset
        Rows with :math:`y > 0` and with :math:`y < 0`; their weights carry :math:`w |y|`. One of them is empty when the
        targets have one sign. Rows with :math:`y = 0` are in neither.
    """

    positive: Coreset
    negative: Coreset
    _magnitudes: np.ndarray  # |y| of the rows of both, in the order of the merged indices

    @property
    def size(self) -> int:
        """Number of points in both."""
        return self.positive.size + self.negative.size

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"SignedCoreset(positive={self.positive!r}, negative={self.negative!r})"

    def merged(self) -> Coreset:
        r"""Both as one training set, in the weights of the rows: :math:`v / |y|`.

        Its cross term is that of the pair. It stands for the rows with :math:`y \ne 0`, unbiased for the whole loss
        over them; the paper proves nothing about its square term.
        """
        indices = np.concatenate((self.positive.indices, self.negative.indices))
        weights = np.concatenate((self.positive.weights, self.negative.weights))
        order = np.argsort(indices)
        return replace(
            self.positive,
            indices=indices[order],
            weights=weights[order] / self._magnitudes,
            guarantee=None,
            total_weight=None,
        )


@dataclass(frozen=True)
class NetworkError:
    """What a coreset says about one network, beside the truth. All errors are absolute differences of sums.

    With ``eps`` such that the families of sums are kept within ``1 +- eps``, it is guaranteed that
    ``cross_error <= eps * cross_scale`` and ``loss_error <= eps * scale``, and if no two outputs of a column differ in
    sign ``square_error <= eps * square``.
    """

    loss: float
    """Over the data."""
    loss_coreset: float
    loss_error: float
    cross: float
    """``sum w y phi`` over the data."""
    cross_error: float
    square: float
    """``sum w phi^2`` over the data."""
    square_error: float
    scale: float
    """``sum w (|y| + sum |a_i| f(p, c_i))^2``: what the error of the loss is measured by."""
    cross_scale: float
    """``sum |a_i| (phi+ + phi-)``: what the error of the cross term is measured by."""
    square_bound: float
    """The paper's ``L sum a_i^2 sum_S v f(p, c_i)^2``, which stands for the square term: an upper bound of it within
    ``1 + eps``, too large by up to a factor L."""
    family_error: float
    """The largest relative error among the sums that this loss is made of: an eps for this network, found, not
    guaranteed."""
    eps: float | None
    """The eps asked for, or the one that is guaranteed for this draw; None if there is none."""
    covers_loss: bool
    """Whether the construction keeps all families; the paper's pair keeps those of the cross term only."""

    @property
    def bound(self) -> float | None:
        """The guarantee's right-hand side for the loss, ``eps * scale``; None without an eps, or for the paper's pair."""
        return None if self.eps is None or not self.covers_loss else self.eps * self.scale

    @property
    def cross_bound(self) -> float | None:
        """The same for the cross term, ``eps * cross_scale``."""
        return None if self.eps is None else self.eps * self.cross_scale

    @property
    def relative_error(self) -> float:
        """``loss_error / scale``: the part of the scale that was lost."""
        return self.loss_error / self.scale if self.scale > 0 else 0.0


@dataclass(frozen=True)
class FamilyBound(SensitivityBound):
    """The largest bound of each row over the families, and the total of each family."""

    totals: dict[str, float] = field(default_factory=dict)


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
    >>> bool(found.loss_error <= found.family_error * found.scale)
    True
    """

    def __init__(
        self,
        radius: float = 1.0,
        bandwidth: Any = None,
        construction: str = "whole-loss",
        bound: str = "auto",
        n_cells: int = 64,
        max_exact: int | None = 20_000,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        super().__init__(radius, bandwidth, bound, n_cells, max_exact, verbose, random_state)
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
        self,
        size: int | float,
        *,
        method: str = "systematic",
        random_state: Any = None,
        normalize: bool = False,
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
        coreset: Coreset | SignedCoreset | None = None,
        *,
        eps: float | None = None,
        delta: float = 0.05,
    ) -> NetworkError:
        """How wrong a coreset is about one network, term by term, with the guarantee's right-hand side.

        Parameters
        ----------
        centers : array-like of shape (L, d)
            In the units of the data, within the ball.
        alphas : array-like of shape (L,) or (L, K)
            Outputs of the neurons, of any sign.
        coreset : Coreset or SignedCoreset, optional
            By default the last one drawn.
        eps : float, optional
            The error of the families to state the right-hand side for. By default what is guaranteed for this draw
            with probability ``1 - delta``, which exists for ``method="iid"`` and enough draws.
        """
        core, (points, weights, targets) = self._merged(coreset), self._everything("loss_error")
        network_centers, outputs = self._checked_network(centers, alphas, targets.shape[1])
        if eps is None:
            eps = self.guaranteed_error(core, delta)
        else:
            eps = check_positive(eps, "eps")
        truth = network_sums(points, weights, targets, network_centers)
        drawn = network_sums(points, core.weights, targets, network_centers, core.indices)
        return _compared(truth, drawn, outputs, eps, self.construction == "whole-loss")

    def guaranteed_error(
        self, coreset: Coreset | SignedCoreset | None = None, delta: float = 0.05
    ) -> float | None:
        """The least eps that is guaranteed for all families and the whole ball with probability ``1 - delta``.

        None if the draws were not independent, the bound is no certificate, or they are too few for any eps below 1.
        """
        core = self._merged(coreset)
        delta = check_probability(delta, "delta")
        if core.n_draws is None or core.adjustments or not self.is_certified_:
            return None
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
        coreset: Coreset | SignedCoreset | None = None,
        *,
        n_starts: int = 8,
        max_iter: int = 60,
        random_state: Any = 0,
    ) -> NetworkAudit:
        """Search for the network of ``n_neurons``, centres in the ball, about which a coreset is most wrong.

        The error is ``|loss_S - loss_P|`` over the guarantee's scale: what is found is a lower bound on the least eps
        for which the guarantee holds. ``n_starts`` local searches of ``max_iter`` steps each, from the best of random
        networks and of networks at the worst single query.
        """
        core, (points, weights, targets) = self._merged(coreset), self._everything("audit")
        return worst_network(
            points,
            weights,
            targets,
            core.indices,
            core.weights,
            float(self.radius),
            check_count(n_neurons, "n_neurons"),
            check_generator(random_state),
            n_starts=check_count(n_starts, "n_starts"),
            max_iter=check_count(max_iter, "max_iter"),
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self.construction, "construction", CONSTRUCTIONS)

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

    def _bound(self, context: FitContext) -> SensitivityBound:
        """The largest of the families' bounds; rows in no family keep ``-inf``."""
        families = list(self._families(context))  # at least one: the square term's, or one of the signs
        totals = {name: float(bound.values.sum()) for name, bound in families}
        largest = reduce(_larger, (bound for _, bound in families))
        return FamilyBound(**vars(largest), totals=totals)

    def _record(self, context: FitContext, bound: SensitivityBound) -> None:
        assert isinstance(bound, FamilyBound)
        assert context.targets is not None
        self.family_totals_ = bound.totals
        # a pair is split by the sign of the targets, by a copy of this estimator too, which has no other data
        self._column = context.targets[:, 0] if self.construction == "paper" else None
        vars(self).pop("coreset_", None)  # of the last fit

    def _families(self, context: FitContext) -> Iterator[tuple[str, SensitivityBound]]:
        """The bounds of the families that this construction keeps and that are not empty."""
        assert context.targets is not None
        radius = float(self.radius)
        whole = self.construction == "whole-loss"
        if whole and context.targets.any():
            mass = context.shares * squared_norms(_unit_targets(context.targets))
            yield "targets", _single_query(mass / mass.sum())
        for k, column in enumerate(context.targets.T):
            for name, part in (("positive", column), ("negative", -column)):
                signed = signed_shares(context.shares, part)
                if signed is not None:
                    yield f"{name}[{k}]", self._bound_in_ball(_recentred(context, signed), radius)
        if whole:
            # bandwidth 1/sqrt 2: every length, the ball's radius too, is sqrt 2 times as many bandwidths
            narrow = replace(
                context,
                points=_narrowed(context.points),
                sq_norms=2.0 * context.sq_norms,
                second_moment=2.0 * context.second_moment,
                center_error=_ROOT * context.center_error,
            )
            yield "square", self._bound_in_ball(narrow, _ROOT * radius)

    def _carried(self, context: FitContext, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.construction == "whole-loss":
            return context.shares, weights
        assert context.targets is not None
        column = context.targets[:, 0]
        parts = [signed_shares(context.shares, part) for part in (column, -column)]
        floor = np.sum([part for part in parts if part is not None], axis=0)
        return floor, weights * np.abs(column)

    def _ball_sizes(
        self, t: float, dimension: int, points: Points, shares: np.ndarray, eps: float, delta: float
    ) -> dict[str, float]:
        # A union over the families; that of the square term has the widest ball, sqrt 2 R, and the farthest points.
        each = delta / len(self.family_totals_)
        factor = _ROOT if self.construction == "whole-loss" else 1.0
        radius, max_norm = factor * float(self.radius), factor * points.max_norm
        return {
            "covering": covering(t, dimension, radius, max_norm, eps, each),
            "vc": vc(t, dimension + 1, eps, each),
            "paper": paper_formula(t, points.d + 1, eps, each),
        }

    def _guarantee(self, method: str, count: int) -> str | None:
        sentence = super()._guarantee(method, count)
        of_families = "For each single query to each family of sums that the loss is made of"
        return sentence and sentence.replace("For each single query of the ball", of_families)

    def _signed(self, core: Coreset) -> SignedCoreset:
        assert self._column is not None
        targets = self._column[core.indices]
        halves = []
        for chosen in (targets > 0, targets < 0):
            halves.append(replace(core, indices=core.indices[chosen], weights=core.weights[chosen]))
        return SignedCoreset(halves[0], halves[1], np.abs(targets))

    def _merged(self, coreset: Any) -> Coreset:
        check_is_fitted(self, "sensitivities_")
        if coreset is None:
            coreset = getattr(self, "coreset_", None)
            if coreset is None:
                raise InvalidInputError("there is no coreset yet: call sample(), or pass one.")
        if isinstance(coreset, SignedCoreset):
            coreset = coreset.merged()
        if not isinstance(coreset, Coreset):
            raise InvalidTypeError(
                f"coreset = {type(coreset).__name__} must be a Coreset or a SignedCoreset."
            )
        if coreset.n_samples != self._table.n_samples:
            raise InvalidInputError(
                f"the coreset was drawn from {coreset.n_samples} rows, the estimator fitted on {self._table.n_samples}."
            )
        return coreset

    def _everything(self, what: str) -> tuple[Points, np.ndarray, np.ndarray]:
        points, shares, targets = self._fitted_data(what)
        assert targets is not None
        total = self._input_weight
        return points, shares * total, targets

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
        if farthest > float(self.radius) * (1.0 + _ON_THE_BALL):
            raise InvalidInputError(
                f"centers has a row {farthest:.4g} bandwidths from the mean; radius = {self.radius} is the limit."
            )
        return scaled, outputs


def signed_shares(shares: np.ndarray, targets: np.ndarray) -> np.ndarray | None:
    """``w y`` over its sum, of the rows with y > 0; None if there are none of positive weight."""
    part = np.maximum(targets, 0.0)
    peak = part.max(where=shares > 0, initial=0.0)
    if peak == 0.0:
        return None
    mass = shares * (part / peak)  # products of small numbers must not vanish
    return mass / mass.sum()


def _unit_targets(targets: np.ndarray) -> np.ndarray:
    return targets / np.abs(targets).max()


def _single_query(shares: np.ndarray) -> SensitivityBound:
    return SensitivityBound(log_shares(shares), "exact", True, "One sum: the sensitivities are the shares.")


def _recentred(context: FitContext, shares: np.ndarray) -> FitContext:
    """The same points and ball with other shares, whose mean is not the centre."""
    points = context.points
    mean = np.zeros(points.d)
    for rows, block in points.blocks():
        mean += block.weighted_sum(shares[rows, None])[0]
    squares = context.sq_norms.copy()
    for rows, block in points.blocks():
        squares[rows] -= 2.0 * block.dot(mean[None])[:, 0]
    squares += mean @ mean
    distances = np.sqrt(np.maximum(squares, 0.0))
    second_moment = float(shares @ context.sq_norms)
    return replace(context, shares=shares, second_moment=second_moment, from_mean=distances)


def _narrowed(points: Points) -> Points:
    return Points(points.X, points.center, points.scale / _ROOT, points.max_norm * _ROOT)


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


def _compared(
    truth: NetworkSums, drawn: NetworkSums, alphas: np.ndarray, eps: float | None, covers_loss: bool
) -> NetworkError:
    loss, loss_coreset = truth.loss(alphas), drawn.loss(alphas)
    cross, square = truth.cross(alphas), truth.square(alphas)
    return NetworkError(
        loss=loss,
        loss_coreset=loss_coreset,
        loss_error=abs(loss_coreset - loss),
        cross=cross,
        cross_error=abs(drawn.cross(alphas) - cross),
        square=square,
        square_error=abs(drawn.square(alphas) - square),
        scale=truth.scale(alphas),
        cross_scale=truth.cross_scale(alphas),
        square_bound=len(alphas) * drawn.diagonal(alphas),
        family_error=truth.largest_relative_error(drawn),
        eps=eps,
        covers_loss=covers_loss,
    )
