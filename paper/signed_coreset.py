"""The paper's construction for networks of Gaussians: a pair of coresets, by the sign of the target."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coresift import Coreset, NetworkComparison, RBFNetworkCoreset
from coresift._errors import InvalidInputError
from coresift.core.sizes import covering, paper_formula, vc
from coresift.coresets.base import Fit
from coresift.coresets.network_results import family_shares, largest_bound, signed_sizes


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


class SignedNetworkCoreset(RBFNetworkCoreset):
    """A pair of coresets for the cross term of a network with one output, drawn by the two signed families.

    Parameters, attributes and methods are those of :class:`coresift.RBFNetworkCoreset`, which keeps the whole loss with
    one sample; pass ``bound="paper"`` for the sensitivities of Algorithm 1. Where a method takes a coreset it takes a
    pair, too, as one set of rows (:meth:`SignedCoreset.merged`).
    """

    def sample(self, size: int | float, **options: Any) -> SignedCoreset:  # type: ignore[override]
        """Draw a pair, ``size`` points in both together: one draw, split by the sign of the target."""
        core = super().sample(size, **options)
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

    def _find(self, *arguments: Any) -> Fit:
        fit = super()._find(*arguments)
        assert fit.targets is not None
        assert fit.families is not None
        if (n := fit.targets.shape[1]) > 1:
            raise InvalidInputError(f"y has {n} outputs; the paper's pair is for one. Use RBFNetworkCoreset.")
        families = {name: bound for name, bound in fit.families.items() if name not in ("targets", "square")}
        if not families:
            raise InvalidInputError("y is zero in every row: neither signed set has a point to draw.")
        shares = (family_shares(fit.floor, sizes) for _, sizes in signed_sizes(fit.targets))
        floor = np.sum([own for own in shares if own is not None], axis=0)
        bound, carried = largest_bound(list(families.values())), fit.weights * np.abs(fit.targets[:, 0])
        return replace(fit, bound=bound, floor=floor, carried=carried, families=families)

    def _record(self, fit: Fit) -> None:
        super()._record(fit)
        # a copy of this estimator, which has no other data, splits by the sign of the targets too
        self._column = self._targets[:, 0]
        carried = fit.weights * self._column
        self._signed_weights = carried[carried > 0].sum(), -carried[carried < 0].sum()

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
