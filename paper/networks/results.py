"""Results for the loss of a network: certificates, and the errors of one network."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from coresift._errors import InvalidInputError
from coresift._validation import check_features, check_targets
from coresift.core.points import SensitivityBound, Subset, squared_norms
from coresift.coresets.certifying import certified
from paper.networks.sums import NetworkSums

ROOT = float(np.sqrt(2.0))
_ROUNDED = 1e-12  # of a sum of positive terms
_ON_THE_BALL = 1e-9  # a centre may be outside by rounding


@dataclass(frozen=True)
class NetworkCertificate:
    """A proved bound on the error of a weighted subset, for every network of Gaussians with centres in a ball.

    Attributes
    ----------
    families : dict
        Bound on the relative error of the sums of each family (:class:`RBFNetworkCoreset`).
    is_exact, confidence : bool, float
        Whether the bounds are certain; the probability with which all bounds hold.
    """

    families: dict[str, float]
    is_exact: bool
    confidence: float

    @property
    def eps(self) -> float:
        """Bounds the error of the loss over ``sum w (|y| + sum |a_i| f(p, c_i))^2``: the largest of all families."""
        return max(self.families.values())

    @property
    def cross(self) -> float:
        """Bounds the error of the cross term over ``sum |a_i| (phi+ + phi-)``."""
        return max((eps for name, eps in self.families.items() if name not in ("targets", "square")), default=0.0)

    @property
    def square(self) -> float:
        """Bounds the error of the square term over ``sum w (sum |a_i| f(p, c_i))^2``."""
        return self.families["square"]

    def __str__(self) -> str:
        how = "no probability" if self.is_exact else f"with probability {self.confidence:g}"
        return (
            f"error of the loss at most {self.eps:.3g} of its magnitude for all networks with centres in the ball "
            f"(cross term {self.cross:.3g}, square term {self.square:.3g}; {how})"
        )


def family_masses(shares: np.ndarray, sizes: np.ndarray, power: int = 1) -> tuple[np.ndarray, float]:
    """Weights times a power of ``sizes``, which vanish nowhere, and the unit in which sizes were measured."""
    peak = float(sizes.max(where=shares > 0, initial=0.0))
    with np.errstate(over="ignore"):
        return shares * (sizes / (peak or 1.0)) ** power, peak  # products of small numbers must not vanish


def family_shares(shares: np.ndarray, sizes: np.ndarray, power: int = 1) -> np.ndarray | None:
    """Shares of the weights times a power of ``sizes``; None if no row of positive weight has a size above 0."""
    mass, peak = family_masses(shares, sizes, power)
    return mass / mass.sum() if peak > 0 else None


def largest_bound(bounds: list[SensitivityBound]) -> SensitivityBound:
    """The largest of the bounds for each row, and what is known of all."""
    logs, rows = np.array([bound.log_values for bound in bounds]), np.arange(len(bounds[0].log_values))
    which = logs.argmax(axis=0)
    gaps = np.array([np.zeros(len(rows)) if bound.gap is None else bound.gap for bound in bounds])
    gap = None if all(bound.gap is None for bound in bounds) else gaps[which, rows]
    worst = next((bound for bound in bounds if not bound.is_certified), bounds[-1])
    return SensitivityBound(logs[which, rows], bounds[-1].name, worst.is_certified, worst.note, gap)


def signed_sizes(targets: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The names of the signed families of targets (n, K), and the sizes of the targets in them."""
    for k, column in enumerate(targets.T):
        yield f"positive[{k}]", np.maximum(column, 0.0)
        yield f"negative[{k}]", np.maximum(-column, 0.0)


def target_sizes(targets: np.ndarray) -> np.ndarray:
    """The norms of targets (n, K), over the largest value."""
    return np.sqrt(squared_norms(targets / (np.abs(targets).max() or 1.0)))


def certified_network(subset: Subset, targets: np.ndarray, delta: float, **options: Any) -> NetworkCertificate:
    """Certify each family of the loss of a network by itself, as Gaussian sums of the rows in it.

    The weights of the draw in a family are multiplied by the sizes of its targets, over the family's total over the
    data. ``options`` go to :func:`.certified`.
    """
    points, shares, drawn = subset.points, subset.shares, np.zeros(subset.points.n)
    drawn[subset.rows] = subset.weights
    sizes = dict(signed_sizes(targets)) | {"square": np.ones(points.n)}
    lengths = target_sizes(targets)
    families, is_exact = {}, True
    if lengths.any():
        mass, peak = family_masses(shares, lengths, 2)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            ratio = float(drawn @ (lengths / peak) ** 2 / mass.sum())
        families["targets"] = abs(ratio - 1.0) + _ROUNDED * (1.0 + ratio) if ratio < np.inf else np.inf
    for name, own in sizes.items():
        mass, peak = family_masses(shares, own)
        total = float(mass.sum())
        chosen = np.flatnonzero((own > 0) & (drawn > 0))
        if total == 0.0:
            if len(chosen):  # rows without weight, given by hand: nothing to be relative to
                families[name] = np.inf
            continue
        factor = ROOT if name == "square" else 1.0  # the square of the kernel has bandwidth 1/sqrt 2
        weights = drawn[chosen] * (own[chosen] / peak) / total
        of_family = Subset(points.rescaled(factor), mass / total, chosen, weights, factor * subset.radius)
        found_here = certified(of_family, delta=delta / len(sizes), **options)
        families[name], is_exact = found_here.eps, is_exact and found_here.is_exact
    return NetworkCertificate(families, is_exact, 1.0 if is_exact else 1.0 - delta)


@dataclass(frozen=True)
class NetworkComparison:
    """The sums of one network over a coreset and over the data. All errors are absolute differences of sums.

    ``loss``, ``cross`` (``sum w y phi``) and ``square`` (``sum w phi^2``) are over the data, ``loss_coreset`` over the
    coreset. ``magnitude`` is ``sum w (|y| + sum |a_i| f(p, c_i))^2``, ``cross_magnitude`` ``sum |a_i| (phi+ + phi-)``.
    If all families of sums are kept within ``1 +- eps``, ``loss_error`` and ``cross_error`` are at most ``eps`` times
    these, and ``square_error <= eps * square`` if no two outputs of a column have opposite signs.
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
    """The eps asked for, or the one that is guaranteed for the loss of this draw; None if there is none."""
    cross_eps: float | None
    """The same for the cross term."""

    @property
    def bound(self) -> float | None:
        """Right-hand side of the guarantee for the loss, ``eps * magnitude``; None without an eps."""
        return None if self.eps is None else self.eps * self.magnitude

    @property
    def cross_bound(self) -> float | None:
        """The same for the cross term, ``cross_eps * cross_magnitude``."""
        return None if self.cross_eps is None else self.cross_eps * self.cross_magnitude

    @property
    def relative_error(self) -> float:
        """``loss_error / magnitude``."""
        return self.loss_error / self.magnitude if self.magnitude > 0 else 0.0


def compared(
    truth: NetworkSums, drawn: NetworkSums, alphas: np.ndarray, eps: float | None, cross_eps: float | None
) -> NetworkComparison:
    """Compare the sums over a draw with those over all rows."""
    terms, sizes = ("loss", "cross", "square"), ("magnitude", "cross_magnitude")
    values = {name: getattr(truth, name)(alphas) for name in terms + sizes}
    found = {name: getattr(drawn, name)(alphas) for name in terms}
    errors = {f"{name}_error": abs(value - values[name]) for name, value in found.items()}
    square_bound, family_error = len(alphas) * drawn.diagonal(alphas), truth.largest_relative_error(drawn)
    rest = {"loss_coreset": found["loss"], "square_bound": square_bound, "family_error": family_error}
    return NetworkComparison(**values, **errors, **rest, eps=eps, cross_eps=cross_eps)


def checked_network(est: Any, centers: Any, alphas: Any, n_outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Centres in the scaled coordinates of a fitted estimator, and outputs (L, K)."""
    rows = check_features(centers, name="centers")
    rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
    if rows.shape[1] != len(est.center_):
        raise InvalidInputError(f"centers has {rows.shape[1]} columns, but X has {len(est.center_)}.")
    outputs = check_targets(alphas, len(rows), name="alphas")
    if outputs.shape[1] != n_outputs:
        raise InvalidInputError(f"alphas has {outputs.shape[1]} outputs, but y has {n_outputs}.")
    scaled = (rows.astype(np.float64) - est.center_) / est.scale_
    farthest = float(np.sqrt(squared_norms(scaled).max()))
    if farthest > est.radius_ * (1.0 + _ON_THE_BALL):
        away = f"{farthest:.4g} bandwidths from the mean"
        raise InvalidInputError(f"centers has a row {away}; radius = {est.radius_} is the limit.")
    return scaled, outputs
