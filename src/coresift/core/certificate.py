r"""A bound on the error of the subset at hand, over all queries of a ball, in any dimension.

.. math:: \left| \frac{S(x)}{F(x)} - 1 \right| \le \frac{\mathrm{MMD}(S, P)}{\min_{|x| \le R} F(x)}

for both losses; for the Gaussian the moments of the difference give a bound that is mostly several times smaller
(:mod:`~coresift.core.moments`), and the smaller one counts. The Laplacian has no such series: its kernel is not
analytic where the query meets a point.

The numerator bounds the absolute error for all x at once (:mod:`~coresift.core.discrepancy`). The denominator needs a
lower bound. With weights that sum to 1, mean :math:`\mu` and variance V:

* Gaussian, by Jensen: :math:`F(x) \ge e^{-V - |x-\mu|^2}`, at least :math:`e^{-(V+R^2)}` in a ball around the mean.
* Gaussian, sharper: :math:`F(x) = e^{-|x|^2 + L(x)}` with L convex; :math:`-|x|^2 \ge -R^2`, and the minimum of L
  over the ball is certified from below by duality (:mod:`~coresift.core.gaussian` with the point p = 0), O(n d) a step.
* Laplacian, by Jensen twice: :math:`F(x) \ge e^{-\sqrt{V + |x-\mu|^2}}`.

Over all of space F has no positive lower bound, but the Laplacian ratio soon stops changing: let every point (of the
data and of the subset) have norm at most rho, x be a query beyond a radius A and x' its projection on that ball. For
each point q, :math:`|x| - |q-x|` exceeds :math:`A - |q-x'|` by between 0 and :math:`\tau = \rho^2/(2A)`: it grows with
:math:`|x|` to :math:`a = q \cdot x/|x|`, and :math:`a - A + \sqrt{A^2 - 2Aa + |q|^2}` is largest at :math:`a =
|q|^2/(2A)`. So :math:`S(x)/F(x)` is within a factor :math:`e^{\pm\tau}` of :math:`S(x')/F(x')`, and :math:`(1 +
\epsilon_A) e^\tau - 1` bounds the error everywhere; A is chosen best. The Gaussian has no such bound: there a subset
needs every vertex of the convex hull.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar

from .discrepancy import Progress, first_equal, laplacian_form, potential, quadratic_form, rounding_of_form
from .gaussian import Atoms, ascend
from .moments import WIDEST_MATRIX, HighOrders, chosen_stretch, log_low_orders, pair_sums
from .points import Points, log_shares, rounding_slack

_FLOOR_TOLERANCE = 1e-3  # of log F: a thousandth of eps
_FLOOR_STEPS = 50
_LARGEST_EXPONENT = 50.0  # of a kernel of higher moments, whose digits cancel beyond
_SMALL_BYTES = 1 << 26  # data that may be scaled once instead of at every step
_ROUNDED = 1e-12  # relative difference of weights by rounding


@dataclass(frozen=True)
class Certificate:
    """A proved bound on the relative error of a weighted subset, for every query of a ball.

    Attributes
    ----------
    eps : float
        ``|S(x)/F(x) - 1| <= eps`` for all x of the ball. Above 1 it says nothing about how small S can be.
    discrepancy : float
        ``MMD(S, P) / W``; in the sampled form an upper bound on it.
    floor : float
        Lower bound on ``F(x) / W`` over the ball. ``eps`` is at most ``discrepancy / floor`` (over all of space a
        little more): for the Gaussian in its exact form a bound by moments is mostly several times smaller.
    loss, radius : str, float
        The loss, and the radius of the ball in bandwidths: infinite for the Laplacian, over all of space.
    is_exact : bool
        Whether all pairs of rows were summed, so that the bound is certain; otherwise the sums were sampled.
    confidence : float
        Probability that ``eps`` is a valid bound: 1 if exact.
    n_sampled : int, or None if exact
    """

    eps: float
    discrepancy: float
    floor: float
    loss: str
    radius: float
    is_exact: bool
    confidence: float
    n_sampled: int | None = None

    def __str__(self) -> str:
        how = "no probability" if self.is_exact else f"with probability {self.confidence:g}"
        where = "of space" if np.isinf(self.radius) else f"within radius {self.radius:g}"
        return f"relative error at most {self.eps:.3g} for all queries {where} ({self.loss}, {how})"


def log_floor(points: Points, shares: np.ndarray, radius: float, loss: str) -> float:
    """A lower bound on ``log F(x)`` over the ball of ``radius`` around the origin, for weights that sum to 1."""
    spread = _spread(points, shares)
    if loss == "laplacian":
        return -_farthest_mean_distance(spread, radius) - rounding_slack(points.rounding_norm, radius)
    jensen = -(_farthest_mean_distance(spread, radius) ** 2)
    known, curvature = np.array([np.inf]), 4.0 * points.max_norm**2
    atoms = _row_atoms(points, shares)
    lowest = ascend(np.zeros((1, points.d)), atoms, radius, known, curvature, _FLOOR_TOLERANCE, _FLOOR_STEPS)
    duality = -(radius**2) - float(lowest.upper[0])
    return max(jensen, duality) - rounding_slack(points.rounding_norm, radius)


def _spread(points: Points, shares: np.ndarray) -> tuple[float, float]:
    """Norm of the mean, and the mean of the squared norms."""
    mean = np.zeros(points.d)
    second = 0.0
    for rows, block in points.blocks():
        mean += block.weighted_sum(shares[rows, None])[0]
        second += float(shares[rows] @ block.sq_norms)
    return float(np.linalg.norm(mean)), second


def _farthest_mean_distance(spread: tuple[float, float], radius: float) -> float:
    """The largest root mean square distance from a query of the ball: opposite to the mean."""
    mean, second = spread
    return float(np.sqrt(second + 2.0 * radius * mean + radius**2))


def _row_atoms(points: Points, shares: np.ndarray) -> Atoms:
    offsets = log_shares(shares)
    for rows, block in points.blocks():
        offsets[rows] -= block.sq_norms
    is_small = not points.is_sparse and 8 * points.n * points.d <= _SMALL_BYTES
    return Atoms(points.gather(slice(0, points.n)) if is_small else points, offsets)


def certify_exact(
    points: Points,
    shares: np.ndarray,
    subset: np.ndarray,
    subset_shares: np.ndarray,
    radius: float,
    loss: str,
    progress: Progress | None = None,
) -> Certificate:
    """The certificate with all pairs summed: O(n^2 d / 2) time, a few tiles of memory.

    For the Laplacian equal rows count as one. If all weights are those of the data to rounding, so are all sums.
    """
    difference = -shares
    difference[subset] += subset_shares
    if loss == "laplacian":
        first = first_equal(points)
        added, own = (np.bincount(first, values, minlength=points.n) for values in (difference, shares))
        square = laplacian_form(points, added, progress)
        floor = log_floor(points, shares, radius, loss) if np.isfinite(radius) else -np.inf
        found = _certificate(points, shares, _discrepancy(square, subset_shares), radius, loss, floor)
        return replace(found, eps=min(found.eps, _ROUNDED)) if (abs(added) <= 0.9 * _ROUNDED * own).all() else found
    floor = log_floor(points, shares, radius, loss)
    rounding = rounding_of_form(points, difference, loss)
    square, log_bound = pair_sums(points, difference, radius, floor + radius**2, progress)
    found = _certificate(points, shares, _discrepancy(square + rounding, subset_shares), radius, loss, floor)
    log_eps = log_bound - floor - radius**2
    by_moments = float(np.exp(log_eps)) if log_eps < 700.0 else np.inf
    # the weights' own rounding moves S and F by a part in 10^15
    return replace(found, eps=min(found.eps, by_moments + 1e-15 * (2.0 + by_moments)))


def _discrepancy(square: float, subset_shares: np.ndarray) -> float:
    """The root of the quadratic form; rounding of the weights moves it by at most the sum of their changes."""
    return float(np.sqrt(max(square, 0.0))) + 1e-15 * (1.0 + float(subset_shares.sum()))


def certify_sampled(
    points: Points,
    shares: np.ndarray,
    subset: np.ndarray,
    subset_shares: np.ndarray,
    radius: float,
    loss: str,
    n_sampled: int,
    delta: float,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> Certificate:
    """The certificate with sums over pairs of rows estimated from two samples of ``n_sampled`` rows.

    For the Gaussian the moments below order 3 (2 for wide rows), most of what matters, are exact: one pass. Only the
    norm of the higher ones is estimated, by :class:`~coresift.core.moments.HighOrders`.
    """
    problem = (points, shares, subset, subset_shares)
    floor = log_floor(points, shares, radius, loss) if np.isfinite(radius) else -np.inf
    stretch = chosen_stretch(radius, loss)
    if loss == "laplacian" or 2.0 * stretch * points.max_norm**2 > _LARGEST_EXPONENT:
        norm = _sampled_norm(*problem, loss, n_sampled, delta, rng, progress)
        discrepancy = _discrepancy(norm**2, subset_shares)
        return _certificate(points, shares, discrepancy, radius, loss, floor, 1.0 - delta, n_sampled)
    first = 3 if points.d <= WIDEST_MATRIX else 2
    kernel = HighOrders(first, radius, stretch)
    high = kernel.factor * _sampled_norm(*problem, kernel, n_sampled, delta, rng, progress)
    difference = -shares
    difference[subset] += subset_shares
    low = float(np.exp(log_low_orders(points, difference, radius, first)))
    discrepancy = _discrepancy(((low + high) * np.exp(-(radius**2))) ** 2, subset_shares)
    return _certificate(points, shares, discrepancy, radius, loss, floor, 1.0 - delta, n_sampled)


def _sampled_norm(
    points: Points,
    shares: np.ndarray,
    subset: np.ndarray,
    subset_shares: np.ndarray,
    kernel: str | HighOrders,
    n_sampled: int,
    delta: float,
    rng: np.random.Generator,
    progress: Progress | None,
) -> float:
    r"""A bound on :math:`\|\mu_P - \mu_S\|` that holds with probability ``1 - delta``.

    Rows are drawn in proportion to :math:`w_p \|k_p\|` and weighted by :math:`H / \|k_p\|`, where :math:`H = \sum_p
    w_p \|k_p\|`: each stands for a vector of norm H (1 for a loss). Write :math:`b = \mu_P - \mu_S`, whose norm is
    wanted, T for the mean of the first sample, :math:`a = \mu_T - \mu_S`, which is known, and :math:`\xi = \mu_T -
    \mu_P`. Then :math:`\|b\|^2 = \langle a, b \rangle - \langle \xi, b \rangle`.

    * :math:`\langle a, b \rangle` is the mean over the draws of :math:`g(z) = \langle a, k_z \rangle H / \|k_z\|`,
      less a sum over S. The second sample estimates the mean; by Maurer and Pontil (2009), with probability
      :math:`1 - \delta/2` it exceeds the estimate by at most :math:`\sqrt{2 \hat v \ln(4/\delta)/N} + 7 r
      \ln(4/\delta)/(3(N-1))`, where the range r of g is at most :math:`2H \|a\|`, and :math:`\sqrt 2 \|a\|` for a
      loss, since :math:`\|k_z - k_{z'}\|^2 = 2 - 2k(z,z') \le 2`.
    * :math:`-\langle \xi, b \rangle` is a mean of N independent terms of mean 0, at most :math:`r/\|a\|` times
      :math:`\|b\|` each, of variance at most :math:`\sigma^2 \|b\|^2` with :math:`\sigma = H`; for a loss
      :math:`\sigma^2 = 1 - \|\mu_P\|^2`, and :math:`\|\mu_P\|^2 = E\,k(z,z') \ge e^{-2V}` (Laplacian:
      :math:`e^{-\sqrt{2V}}`) by Jensen. By Bernstein it is at most :math:`c \|b\|` with probability
      :math:`1 - \delta/2`, :math:`c = \sigma \sqrt{2 \ln(2/\delta)/N} + (r/\|a\|) \ln(2/\delta)/(3N)`.

    So :math:`\|b\|^2 \le U + c\|b\|`, that is :math:`\|b\| \le (c + \sqrt{c^2 + 4U})/2`. O(N (N + m) d) time.
    """
    if isinstance(kernel, str):
        lengths, spread, width = np.ones(points.n), _root_variance(points, shares, kernel), float(np.sqrt(2.0))
        largest, loss = lengths, kernel
    else:
        squares = np.concatenate([block.sq_norms for _, block in points.blocks()])
        lengths = np.where(shares > 0, kernel.lengths(squares), 0.0)
        largest, loss = kernel.largest(squares), "gaussian"
        spread = float(shares @ lengths)
        width = 2.0 * spread
    scores = shares * lengths
    total = float(scores.sum())
    if total == 0.0:  # all at the centre: there are no higher moments
        return 0.0
    first, second = (rng.choice(points.n, n_sampled, p=scores / total) for _ in range(2))
    worth = np.divide(total, lengths, out=np.zeros(points.n), where=lengths > 0)
    known = np.bincount(first, minlength=points.n) * worth / n_sampled
    known[subset] -= subset_shares
    rounding = rounding_of_form(points, known * largest, loss)
    norm_a = float(np.sqrt(max(quadratic_form(points, known, kernel, progress), 0.0) + rounding))

    values = potential(points, second, known, kernel) * worth[second]
    log_term = float(np.log(4.0 / delta))
    deviation = np.sqrt(2.0 * float(values.var(ddof=1)) * log_term / n_sampled)
    deviation += 7.0 * width * norm_a * log_term / (3.0 * (n_sampled - 1))
    upper = float(values.mean()) + deviation - float(subset_shares @ potential(points, subset, known, kernel))
    upper += rounding
    log_term = float(np.log(2.0 / delta))
    c = spread * np.sqrt(2.0 * log_term / n_sampled) + width * log_term / (3.0 * n_sampled)
    return float(0.5 * (c + np.sqrt(c * c + 4.0 * max(upper, 0.0))))


def _root_variance(points: Points, shares: np.ndarray, loss: str) -> float:
    mean, second_moment = _spread(points, shares)
    variance = max(second_moment - mean * mean, 0.0)
    overlap = np.exp(-2.0 * variance) if loss == "gaussian" else np.exp(-np.sqrt(2.0 * variance))
    return float(np.sqrt(1.0 - overlap))


def _certificate(
    points: Points,
    shares: np.ndarray,
    discrepancy: float,
    radius: float,
    loss: str,
    log_least: float,
    confidence: float = 1.0,
    n_sampled: int | None = None,
) -> Certificate:
    if np.isinf(radius) and loss == "laplacian":
        eps, floor = _everywhere(_spread(points, shares), points.max_norm, discrepancy)
    else:
        floor = float(np.exp(log_least))
        eps = discrepancy / floor if floor > 0 else float("inf")  # a floor that underflows says nothing
    return Certificate(eps, discrepancy, floor, loss, radius, n_sampled is None, confidence, n_sampled)


def _everywhere(spread: tuple[float, float], max_norm: float, discrepancy: float) -> tuple[float, float]:
    """The Laplacian's bound over all of space and the floor it rests on: the best ball beyond which little changes."""
    if max_norm == 0.0:  # the ratio is the same everywhere
        return discrepancy, 1.0

    def exponents(outer: float) -> tuple[float, float]:
        return _farthest_mean_distance(spread, outer), max_norm**2 / (2.0 * outer)

    def log_bound(log_outer: float) -> float:  # of 1 + eps, so that it never overflows
        inside, beyond = exponents(float(np.exp(log_outer)))
        return float(np.logaddexp(0.0, np.log(discrepancy) + inside)) + beyond

    # every A is valid; one below max_norm is best only where nothing can be said, one far above for a tiny discrepancy
    ends = np.log(max_norm) + np.array([-1.0, 30.0])
    outer = float(np.exp(minimize_scalar(log_bound, bounds=ends, method="bounded").x))
    inside, beyond = exponents(outer)
    slack = rounding_slack(max_norm, outer)
    with np.errstate(over="ignore"):  # infinite where nothing can be said
        eps = discrepancy * np.exp(inside + beyond + slack) + np.expm1(beyond + slack)
    return float(eps), float(np.exp(-inside))
