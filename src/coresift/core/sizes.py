r"""How many independent draws an error needs, with every constant.

Draws are proportional to scores that dominate the sensitivities and sum to t. Then each draw's contribution to
:math:`S(x)/F(x)`, times m, lies in [0, t] and has mean 1, for every query x.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize_scalar

PAPER_CONSTANT = 1.0
_HUGE = 1e100  # larger sizes all mean the same, and products of them would overflow


@dataclass(frozen=True)
class SampleSize:
    """The least number of independent draws for which an error is guaranteed, and by which argument.

    Attributes
    ----------
    size : int
        Draws (``method="iid"``). ``int(...)`` of this object gives it too.
    argument : str
        Which candidate it is: "covering", "dimension-free", "vc" or "finite".
    strength : str
        For what it holds: "all queries" (with probability 1 - delta, at once) or "n_queries queries".
    candidates : dict
        All sizes computed. Two are shown and never chosen: "plain" is the dimension-free size of plain sampling
        (in proportion to the weights) instead of this estimator's draws; "paper" is the paper's formula with
        its VC dimension and the constant 1, which no proof has.
    n_samples : int, rows of the data
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
        plain = self.candidates.get("plain", self.size)
        if plain < self.size and self.argument != "finite":
            text += f" Plain sampling needs {plain:,}."
        if not self.is_smaller_than_data:
            text += f" That is no fewer than the {self.n_samples:,} rows: no size below promises it before the draw."
            text += " A certificate of the subset at hand (certify, refine=True) may hold with far fewer."
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
    r"""Draws for :math:`N` queries fixed beforehand (``log_queries`` is :math:`\ln N`), by Chernoff and Hoeffding.

    .. math:: m \ge \frac{\ln N + \ln(2/\delta)}{\min\{ \mathrm{kl}((1+\epsilon)/t, 1/t),\;
    \mathrm{kl}((1-\epsilon)/t, 1/t) \}}

    with kl the Bernoulli divergence; the first is infinite when :math:`1 + \epsilon > t`.
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
    r"""Draws for all queries of the ball, Gaussian loss, by a net.

    :math:`\log S(x)/F(x)` is :math:`4\rho`-Lipschitz (twice the difference of two tilted means of points of
    norm at most rho), and :math:`(1 + 2R/\eta)^d` balls of radius eta cover the ball. An error e at their
    centres, with :math:`(1+e) e^{4\rho\eta} \le 1+\epsilon` and :math:`(1-e) e^{-4\rho\eta} \ge 1-\epsilon`,
    gives epsilon everywhere; e is chosen best.
    """
    return _best_split(eps, lambda e, room: finite(t, _log_net(dimension, 4.0 * max_norm * radius / room), e, delta))


def covering_laplacian(t: float, dimension: int, max_norm: float, eps: float, delta: float) -> float:
    r"""Draws for all queries of space, Laplacian loss: a net on a ball beyond which little changes.

    The logarithm of the ratio is 2-Lipschitz, and from a query outside the ball of radius A to its projection it
    changes by at most :math:`\rho^2/(2A)`. So :math:`2\eta + \rho^2/(2A)` takes the place of :math:`4\rho\eta`;
    A is chosen best. As for the Gaussian the dimension of the data's affine hull counts, not that of space: outside
    of it sums are positive mixtures of sums inside.
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
    r"""Draws for all queries of the ball in any dimension, Gaussian loss, through the kernel's Hilbert space.

    With weights that sum to 1, a draw moves :math:`\mu_S` by a vector of length at most :math:`B = t \max w/s`
    over m, and of mean square :math:`Q = t \sum w^2/s`. So :math:`E\|\mu_S - \mu_P\| \le \sqrt{Q/m}`, and
    changing one draw changes the norm by at most :math:`\sqrt 2 B/m` (the kernel is not negative), which by
    McDiarmid adds :math:`B \sqrt{\ln(1/\delta)/m}`. Dividing by :math:`F_{min}`:

    .. math:: m \ge \left( \frac{\sqrt Q + B \sqrt{\ln(1/\delta)}}{\epsilon F_{\min}} \right)^2
    """
    step = math.sqrt(second_moment) + largest_step * math.sqrt(math.log(1.0 / delta))
    least = step / math.sqrt(_HUGE)
    return (step / max(eps * floor, least)) ** 2


def vc(t: float, vc_dimension: int, eps: float, delta: float) -> float:
    r"""Draws for all queries at once, Gaussian loss, by the VC dimension with every constant.

    .. math:: m \ge \frac{4t(1+\epsilon)}{\epsilon^2} \left( d' \ln\frac{2em}{d'} + \ln\frac{8}{\delta} \right)

    Vapnik's relative deviations (Anthony and Shawe-Taylor 1993), integrated over the level sets of :math:`w_p
    f(p,x)/s_p`, which are half-spaces of :math:`(|p|^2 - \log(w_p/s_p), p)`: the paper's argument, finished.
    The proof is on the theory page. Neither the radius nor the spread of the data enters.
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
    return PAPER_CONSTANT * t / eps**2 * (vc_dimension * math.log(max(t, math.e)) + math.log(1.0 / delta))


def rounded_up(draws: float) -> int:
    """An integer of draws, at least one; beyond the range of int64 it says only that."""
    return max(1, int(np.ceil(draws))) if draws < 9e18 else 9_000_000_000_000_000_000
