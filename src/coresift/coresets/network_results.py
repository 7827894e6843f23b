"""Results for the loss of a network: the paper's pair of coresets, and the errors of one network."""

from dataclasses import dataclass, field, replace

import numpy as np

from ..core.network import NetworkSums
from .coreset import Coreset


@dataclass(frozen=True, eq=False)
class SignedCoreset:
    r"""The paper's pair of coresets for the cross term of a network's loss; both serve neurons of either sign.

    .. math:: \sum_p w_p y_p \phi(p) \approx \sum_i a_i \bigl( g_{S_1}(c_i) - g_{S_2}(c_i) \bigr), \qquad
        g_S(c) = \sum_{p \in S} v_p f(p, c)

    Attributes
    ----------
    positive, negative : Coreset
        Rows with :math:`y > 0` and with :math:`y < 0`; their weights carry :math:`w |y|`, and ``total_weight`` is the
        sum of that over such rows of the data. One of them is empty when the targets have one sign. Rows with
        :math:`y = 0` are in neither. ``n_draws`` is that of the pair, which was drawn as one.
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
        r"""Return both as one training set, in the weights of the rows: :math:`v / |y|`.

        Its cross term is that of the pair. It stands for the rows with :math:`y \ne 0`, unbiased for the whole loss
        over them; the paper proves nothing about its square term.
        """
        indices = np.concatenate((self.positive.indices, self.negative.indices))
        weights = np.concatenate((self.positive.weights, self.negative.weights))
        order = np.argsort(indices)
        weights = weights[order] / self._magnitudes
        return replace(self.positive, indices=indices[order], weights=weights, guarantee=None, total_weight=None)


@dataclass(frozen=True)
class NetworkComparison:
    """The sums of one network over a coreset and over the data. All errors are absolute differences of sums.

    ``loss``, ``cross`` (``sum w y phi``) and ``square`` (``sum w phi^2``) are over the data. The error of the loss is
    relative to ``magnitude``, ``sum w (|y| + sum |a_i| f(p, c_i))^2``, that of the cross term to ``cross_magnitude``,
    ``sum |a_i| (phi+ + phi-)``. If all families of sums are kept within ``1 +- eps``, these errors are at most ``eps``
    times them; and ``square_error <= eps * square`` if no two outputs of a column have opposite signs.
    """

    loss: float
    loss_coreset: float
    loss_error: float
    cross: float
    cross_error: float
    square: float
    square_error: float
    magnitude: float
    cross_magnitude: float
    square_bound: float
    """The paper's ``L sum a_i^2 sum_S v f(p, c_i)^2``: bounds the square term within ``1 + eps``, up to L too large."""
    family_error: float
    """The largest relative error among the sums in this loss: an eps for this network, found, not guaranteed."""
    eps: float | None
    """The eps asked for, or the one that is guaranteed for this draw; None if there is none."""
    covers_loss: bool
    """Whether the construction keeps all families; the paper's pair keeps those of the cross term only."""

    @property
    def bound(self) -> float | None:
        """Right-hand side of the guarantee for the loss, ``eps * magnitude``; None without an eps or for a pair."""
        return None if self.eps is None or not self.covers_loss else self.eps * self.magnitude

    @property
    def cross_bound(self) -> float | None:
        """The same for the cross term, ``eps * cross_magnitude``."""
        return None if self.eps is None else self.eps * self.cross_magnitude

    @property
    def relative_error(self) -> float:
        """``loss_error / magnitude``."""
        return self.loss_error / self.magnitude if self.magnitude > 0 else 0.0


def compared(
    truth: NetworkSums, drawn: NetworkSums, alphas: np.ndarray, eps: float | None, covers_loss: bool
) -> NetworkComparison:
    """Compare the sums over a draw with those over all rows."""
    loss, loss_coreset = truth.loss(alphas), drawn.loss(alphas)
    cross, square = truth.cross(alphas), truth.square(alphas)
    return NetworkComparison(
        loss=loss,
        loss_coreset=loss_coreset,
        loss_error=abs(loss_coreset - loss),
        cross=cross,
        cross_error=abs(drawn.cross(alphas) - cross),
        square=square,
        square_error=abs(drawn.square(alphas) - square),
        magnitude=truth.magnitude(alphas),
        cross_magnitude=truth.cross_magnitude(alphas),
        square_bound=len(alphas) * drawn.diagonal(alphas),
        family_error=truth.largest_relative_error(drawn),
        eps=eps,
        covers_loss=covers_loss,
    )
