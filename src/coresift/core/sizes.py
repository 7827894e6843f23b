"""How many independent draws an error needs, with every constant.

Draws are proportional to scores that dominate the sensitivities and sum to t: a draw's contribution to
:math:`S(x)/F(x)`, times m, lies in [0, t] and has mean 1. docs/theory.md ("Sample sizes") has the proofs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import brentq, minimize_scalar

_HUGE = 1e100  # larger sizes all mean the same, and products of them would overflow
_MOST_TERMS = 64  # of the series of moments: more are needed only where it says nothing


@dataclass(frozen=True)
class SampleSize:
    """The least number of independent draws for which an error is guaranteed, and by which argument.

    Attributes
    ----------
    size, n_samples : int
        Draws (``method="iid"``), as ``int(...)`` of this object gives them, too; rows of the data.
    argument, strength : str
        Which candidate it is: "moments", "covering", "dimension-free", "vc" or "finite"; and for what it holds: "all
        queries" (with probability 1 - delta, at once) or "n_queries queries".
    eps, delta : float
        The relative error, and the probability of exceeding it.
    candidates : dict
        All sizes computed. Two are never chosen: "plain" is the smaller of "moments" and "dimension-free" for draws in
        proportion to the weights; "paper" is the paper's formula with the constant 1, which no proof has.

    Examples
    --------
    >>> from coresift import RBFCoreset
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> needed = RBFCoreset(bandwidth=10.0).fit(X).sample_size(eps=0.3, delta=0.1)
    >>> int(needed) == needed.size < 1000, needed.strength
    (True, 'all queries of the ball')
    """

    size: int
    argument: str
    strength: str
    eps: float
    delta: float
    n_samples: int
    candidates: dict[str, int] = field(default_factory=dict)

    @property
    def is_smaller_than_data(self) -> bool:
        """Whether the size is below the number of rows."""
        return self.size < self.n_samples

    @property
    def note(self) -> str:
        """What to make of it, in plain words."""
        claim = f"{self.size:,} draws give a relative error of at most {self.eps:g} for {self.strength}"
        text = f"{claim}, with probability {1 - self.delta:g} ({self.argument})."
        if "plain" in self.candidates and self.argument != "finite":
            text += f" Plain sampling needs {self.candidates['plain']:,}."
        if not self.is_smaller_than_data:
            text += f" The data have only {self.n_samples:,} rows, so no smaller subset is guaranteed in advance."
            text += " The certificate of a drawn subset (certify, refine=True) may hold with far fewer."
        return text

    def __int__(self) -> int:
        return self.size

    __index__ = __int__

    def __str__(self) -> str:
        return self.note


def bernstein_error(t: float, size: int, delta: float) -> float:
    """The relative error at one query that ``size`` draws exceed with probability at most ``delta``."""
    # 2 exp(-m e^2 / (2 t (1 + e/3))) = delta  <=>  e^2 = a (1 + e/3),  a = 2 t ln(2/delta) / m
    a = 2.0 * t * math.log(2.0 / delta) / size
    return a / 6.0 + math.sqrt(a * a / 36.0 + a)


def finite(t: float, log_queries: float, eps: float, delta: float) -> float:
    r"""Draws for :math:`N` queries fixed beforehand, by Chernoff and Hoeffding, with kl the Bernoulli divergence.

    .. math:: m \ge (\ln N + \ln(2/\delta)) / \min\{ \mathrm{kl}((1+\epsilon)/t, 1/t),
        \mathrm{kl}((1-\epsilon)/t, 1/t) \}
    """
    t = min(max(t, 1.0), _HUGE)
    rate = min(_divergence(-eps, t), _divergence(eps, t))
    return min((log_queries + float(np.log(2.0 / delta))) / rate, _HUGE) if rate > 0 else _HUGE


def _divergence(e: float, t: float) -> float:
    """kl((1+e)/t, 1/t), from the logarithms of both quotients: nearly equal arguments would cancel all digits."""
    rest = t - 1.0
    if rest - e <= 0:  # (1+e)/t = 1 leaves one term; above 1 it never happens
        return float(np.log(t)) if rest == e > 0 else np.inf
    return float(((1.0 + e) * np.log1p(e) + (rest - e) * np.log1p(-e / rest)) / t) if rest > 0 else np.inf


def covering(t: float, dimension: int, radius: float, max_norm: float, eps: float, delta: float) -> float:
    """Draws for all queries of the ball by a net of ``(1 + 2R/eta)^d`` balls; log S/F is 4 rho-Lipschitz."""
    return _best_split(eps, lambda e, room: finite(t, _log_net(dimension, 4.0 * max_norm * radius / room), e, delta))


def covering_laplacian(t: float, dimension: int, max_norm: float, eps: float, delta: float) -> float:
    r"""Draws for all queries of space, Laplacian loss: a net on a ball of radius A beyond which little changes.

    With :math:`2\eta + \rho^2/(2A)` in place of :math:`4\rho\eta`; ``dimension`` is that of the affine hull.
    """

    def draws(e: float, room: float) -> float:
        def with_outer(share: float) -> float:
            outer = max_norm**2 / (2.0 * share * room)
            return finite(t, _log_net(dimension, 2.0 * outer / ((1.0 - share) * room)), e, delta)

        return float(minimize_scalar(with_outer, bounds=(1e-3, 1.0 - 1e-3), method="bounded").fun)

    return _best_split(eps, draws)


def _log_net(dimension: int, radii: float) -> float:
    """Logarithm of the balls that cover one whose radius is ``radii`` times theirs."""
    return dimension * float(np.log1p(2.0 * radii))


def _best_split(eps: float, draws: Callable[[float, float], float]) -> float:
    """The least of ``draws(e, room)`` over the error e at the net's centres; room is what Lipschitz may use."""

    def with_share(share: float) -> float:
        e = share * eps
        room = min(np.log1p(eps) - np.log1p(e), np.log1p(-e) - np.log1p(-eps))
        return draws(e, float(room))

    return float(minimize_scalar(with_share, bounds=(1e-3, 1.0 - 1e-3), method="bounded").fun)


def dimension_free(largest_step: float, second_moment: float, floor: float, eps: float, delta: float) -> float:
    r"""Draws for all queries of the ball in any dimension, Gaussian loss, by McDiarmid's inequality.

    .. math:: m \ge \left( \frac{\sqrt Q + B \sqrt{\ln(1/\delta)}}{\epsilon F_{\min}} \right)^2

    with :math:`B = t \max w/s` and :math:`Q = t \sum w^2/s`, for weights that sum to 1.
    """
    step = math.sqrt(second_moment) + largest_step * math.sqrt(math.log(1.0 / delta))
    return (step / max(eps * floor, step / math.sqrt(_HUGE))) ** 2


def expected_error(
    sq_norms: np.ndarray,
    shares: np.ndarray,
    chances: np.ndarray,
    dimension: int,
    radius: float,
    log_least: float,
    slack: float,
) -> float:
    r"""A bound on the mean of :math:`\sup_x |S(x)/F(x) - 1|` over the ball, times the root of the number of draws.

    Rows are drawn with probabilities :math:`q_p` (``chances``). The bound is :math:`\sum_k (2R)^k/k! \sqrt{Q_k}` over
    the least D (``log_least``), in the series of :mod:`~coresift.core.moments`, with

    .. math:: Q_k = \sum_p \frac{w_p^2}{q_p} e^{-2|p|^2} |p|^{2k} - \|M_k\|^2, \qquad \|M_k\|^2 \ge
        \Big(\sum_p w_p e^{-|p|^2} |p|^k\Big)^2 \prod_{i<k/2} \frac{1+2i}{r+2i} \text{ in r dimensions, for even k.}
    """
    used = shares > 0
    squares, w = sq_norms[used], shares[used]
    reach = max(float(squares.max()), 1e-200)
    z = 2.0 * radius * math.sqrt(reach) * (1.0 + slack)
    if not z < _MOST_TERMS - 1:
        return math.inf
    with np.errstate(over="ignore", under="ignore"):
        mass = w * np.exp(-squares - log_least)
        square = mass * (mass / chances[used])
        error = 4.0 * slack + 4.0 * (len(w) + 10) * 2.0**-53
        squares, factor, isotropic, total = squares / reach, 1.0, 1.0, 0.0
        for k in range(_MOST_TERMS):
            if k % 2 == 0:
                isotropic *= (k - 1) / (dimension + k - 2) if k else 1.0
                known = isotropic * float(mass.sum()) ** 2 * (1.0 - error)
                mass *= squares  # of order k / 2 + 1
            second = float(square.sum()) * (1.0 + error)
            total += factor * math.sqrt(max(second - (known if k % 2 == 0 else 0.0), 0.0))
            square *= squares
            factor *= z / (k + 1)
            if k + 2 > z and factor <= 1e-9 * total:
                break
        # the terms from k + 1 on; what underflows is far below the least D
        return total + factor / (1.0 - z / (k + 2)) * math.sqrt(float(square.sum()) * (1.0 + error)) + 1e-12


def moments(t: float, expected: float, eps: float, delta: float) -> float:
    r"""Draws for all queries of the ball in any dimension, Gaussian loss; :math:`A/\sqrt m` bounds the mean error.

    The smaller of McDiarmid's and Bousquet's (2002) terms bounds what it exceeds that by, b = max(t - 1, 1).
    """
    if not expected < math.sqrt(_HUGE):
        return _HUGE
    t, log_term = min(max(t, 1.0), _HUGE), math.log(1.0 / delta)
    b = max(t - 1.0, 1.0)

    def excess(u: float) -> float:  # u is one over the root of m
        deviation = math.sqrt(2.0 * log_term * (t - 1.0 + 2.0 * b * expected * u)) * u + b * log_term / 3.0 * u**2
        return expected * u + deviation - eps

    u = brentq(excess, 0.0, 2.0 * math.sqrt(3.0 * eps / (b * log_term)), xtol=1e-100, rtol=1e-12)
    by_range = (expected + t * math.sqrt(0.5 * log_term)) / eps
    return min(u**-2.0 * (1.0 + 1e-9), by_range**2, _HUGE)


def vc(t: float, vc_dimension: int, eps: float, delta: float) -> float:
    r"""Draws for all queries at once, Gaussian loss, by the VC dimension with every constant.

    .. math:: m \ge \frac{4t(1+\epsilon)}{\epsilon^2} \left( d' \ln\frac{2em}{d'} + \ln\frac{8}{\delta} \right)

    Vapnik's relative deviations (Anthony and Shawe-Taylor 1993) over the level sets of :math:`w_p f(p,x)/s_p`.
    """
    factor = 4.0 * min(t, _HUGE) * (1.0 + eps) / eps**2
    draws = factor * vc_dimension
    # the right-hand side is concave in m: from below, iterating it climbs to the solution
    for _ in range(200):
        draws = factor * (vc_dimension * math.log(2.0 * math.e * draws / vc_dimension) + math.log(8.0 / delta))
    return draws


def paper_formula(t: float, vc_dimension: int, eps: float, delta: float) -> float:
    r""":math:`c\, t/\epsilon^2 (d' \ln \max(t, e) + \ln(1/\delta))`, the paper's size; its c = 1 is not proved."""
    t = min(t, _HUGE)
    return t / eps**2 * (vc_dimension * math.log(max(t, math.e)) + math.log(1.0 / delta))


def rounded_up(draws: float) -> int:
    """An integer of draws, at least one; beyond the range of int64 it says only that."""
    return max(1, int(np.ceil(draws))) if draws < 9e18 else 9_000_000_000_000_000_000
