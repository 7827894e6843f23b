"""The paper's construction for networks of Gaussians: a pair of coresets, by the sign of the target."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coresift import Coreset
from coresift._errors import InvalidInputError
from coresift.core.draw import DrawTable
from coresift.core.sizes import covering, paper_formula, vc
from coresift.coresets.bounds import draw_scores, log_unit_of, uniform_factor
from coresift.coresets.certifying import normalized
from paper.networks import NetworkComparison, RBFNetworkCoreset
from paper.networks.coreset import NetworkFit
from paper.networks.results import family_shares, largest_bound, signed_sizes


@dataclass(frozen=True, eq=False)
class SignedCoreset:
    r"""The paper's pair of coresets for the cross term of a network's loss; both serve neurons of either sign.

    .. math:: \sum_p w_p y_p \phi(p) \approx \sum_i a_i \bigl( g_{S_1}(c_i) - g_{S_2}(c_i) \bigr), \qquad
        g_S(c) = \sum_{p \in S} v_p f(p, c)

    Attributes
    ----------
    positive, negative : Coreset
        Rows with :math:`y > 0` and with :math:`y < 0`; their weights carry :math:`w |y|`, and ``total_weight`` is the
        sum of that over such rows of the data. ``n_draws`` is that of the pair, which was drawn as one.
    """

    positive: Coreset
    negative: Coreset
    _magnitudes: np.ndarray = field(repr=False)  # |y| of the rows of both, in the order of the merged indices

    @property
    def size(self) -> int:
        """Number of points in both."""
        return self.positive.size + self.negative.size

    def __len__(self) -> int:
        return self.size

    def merged(self) -> Coreset:
        r"""Return both as one training set, with the weights :math:`v / |y|`; unbiased where :math:`y \ne 0`.

        Its cross term is that of the pair; the paper proves nothing about its square term.
        """
        indices = np.concatenate((self.positive.indices, self.negative.indices))
        weights = np.concatenate((self.positive.weights, self.negative.weights))
        order = np.argsort(indices)
        weights = weights[order] / self._magnitudes
        return replace(self.positive, indices=indices[order], weights=weights, guarantee=None, total_weight=None)


@dataclass(frozen=True, kw_only=True)
class SignedFit(NetworkFit):
    """The result of the passes, with what the pair is drawn by."""

    floor: np.ndarray  # the least scores, as shares
    table: DrawTable  # of weights times sizes of targets


class SignedNetworkCoreset(RBFNetworkCoreset):
    """A pair of coresets for the cross term of a network with one output, drawn by the two signed families.

    Parameters, attributes and methods are those of :class:`RBFNetworkCoreset`, which keeps the whole loss with one
    sample; pass ``bound="paper"`` for the sensitivities of Algorithm 1. Where a method takes a coreset it takes a pair,
    too, as one set of rows (:meth:`SignedCoreset.merged`).
    """

    def sample(self, size: int | float, **options: Any) -> SignedCoreset:  # type: ignore[override]
        """Draw a pair, ``size`` points in both together: one draw, split by the sign of the target."""
        is_normalized = options.pop("normalize", False)
        core = replace(super().sample(size, **options), total_weight=float(self._table.weights.sum()))
        core = normalized(core) if is_normalized else core
        targets = self._column[core.indices]
        positive, negative = (
            replace(core, indices=core.indices[own], weights=core.weights[own], total_weight=float(total))
            for own, total in zip((targets > 0, targets < 0), self._signed_weights, strict=True)
        )
        self.coreset_: Any = SignedCoreset(positive, negative, np.abs(targets))
        return self.coreset_

    def loss_error(self, *network: Any, eps: float | None = None, **options: Any) -> NetworkComparison:
        """As in the base; a given ``eps`` is that of the cross term alone."""
        found = super().loss_error(*network, eps=eps, **options)
        return found if eps is None else replace(found, eps=None)

    def fit_rows(self, **arguments: Any) -> NetworkFit:
        fit = super().fit_rows(**arguments)
        assert isinstance(fit, SignedFit)
        scores = fit.table.scores
        self._table, self.uniform_factor_ = fit.table, uniform_factor(scores, fit.floor)
        self._draw_total = float(scores.sum()) * math.exp(min(log_unit_of(fit.bound.log_values), 700.0))
        # a copy of this estimator, which has no other data, splits by the sign of the targets too
        self._column = fit.targets[:, 0]
        carried = fit.weights * self._column
        self._signed_weights = float(carried[carried > 0].sum()), -float(carried[carried < 0].sum())
        return fit

    def _find(self, *arguments: Any) -> SignedFit:
        fit = super()._find(*arguments)
        if (n := fit.targets.shape[1]) > 1:
            raise InvalidInputError(f"y has {n} outputs; the paper's pair is for one. Use RBFNetworkCoreset.")
        families = {name: bound for name, bound in fit.families.items() if name not in ("targets", "square")}
        if not families:
            raise InvalidInputError("y is zero in every row: neither signed set has a point to draw.")
        shares = fit.weights / fit.weights.sum()
        signed = (family_shares(shares, sizes) for _, sizes in signed_sizes(fit.targets))
        floor = np.sum([own for own in signed if own is not None], axis=0)
        bound, carried = largest_bound(list(families.values())), fit.weights * np.abs(fit.targets[:, 0])
        scores = draw_scores(bound.log_values, floor, log_unit_of(bound.log_values), bound.values)
        table = DrawTable(scores, np.where(floor > 0, carried, 0.0))
        known = (fit.geometry, bound, fit.weights)
        return SignedFit(*known, targets=fit.targets, families=families, floor=floor, table=table)

    def _ball_sizes(self, t: float, dimension: int, eps: float, delta: float) -> dict[str, float]:
        each = delta / len(self.family_totals_)
        return {
            "covering": covering(t, dimension, self.radius_, self._geometry.max_norm, eps, each),
            "vc": vc(t, dimension + 1, eps, each),
            "paper": paper_formula(t, len(self.center_) + 1, eps, each),
        }

    def _judged(self, coreset: Any) -> Coreset:
        given = getattr(self, "coreset_", None) if coreset is None else coreset
        return super()._judged(given.merged() if isinstance(given, SignedCoreset) else given)
