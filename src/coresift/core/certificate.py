r"""A bound on the error of the subset at hand, over all queries of a ball, in any dimension.

.. math:: \left| \frac{S(x)}{F(x)} - 1 \right| \le \frac{\mathrm{MMD}(S, P)}{\min_{|x| \le R} F(x)}

for both losses. For the Gaussian the moments of the difference (:mod:`~coresift.core.moments`) mostly give a bound
several times smaller, and in three dimensions or fewer branch and bound (:mod:`~coresift.core.branching`) closes the
gap. The Laplacian has neither: its kernel has a kink where the query meets a point. The proofs are in docs/theory.md
("A certificate for the subset at hand").
"""

import numpy as np
from scipy.optimize import minimize_scalar

from .branching import span_coordinates, worst_in_ball
from .discrepancy import AllOrders, Progress, first_equal, laplacian_form, rounding_of_form, silent
from .gaussian import Atoms, ascend
from .moments import LARGEST_EXPONENT, WIDEST_MATRIX, HighOrders, chosen_stretch, log_low_orders, pair_sums, rest
from .points import Certificate, Points, Subset, log_shares, rounding_slack

_FLOOR_TOLERANCE = 1e-3  # of log F: a thousandth of eps
_FLOOR_STEPS = 50
_SMALL_BYTES = 1 << 26  # data that may be scaled once instead of at every step
_ROUNDED_SQUARE = 1e-9  # of kernel values; rounding moves those of rows that are often drawn by less
_ROUNDED = 1e-12  # relative difference of weights by rounding


def log_floor(points: Points, shares: np.ndarray, radius: float, loss: str) -> float:
    r"""A lower bound on ``log F(x)`` over the ball of ``radius`` around the origin, for weights that sum to 1.

    By Jensen :math:`-V - |x-\mu|^2` (Gaussian) and :math:`-\sqrt{V + |x-\mu|^2}` (Laplacian); for the Gaussian also by
    duality (:mod:`~coresift.core.gaussian` with p = 0), in O(n d) a step.
    """
    if np.isinf(radius):
        return -np.inf
    spread = _spread(points, shares)
    if loss == "laplacian":
        return -_farthest_mean_distance(spread, radius) - rounding_slack(points.rounding_norm, radius)
    jensen = -(_farthest_mean_distance(spread, radius) ** 2)
    known, curvature = np.array([np.inf]), 4.0 * points.max_norm**2
    offsets = log_shares(shares) - points.squares
    is_small = not points.is_sparse and 8 * points.n * points.d <= _SMALL_BYTES
    atoms = Atoms(points.gather(slice(0, points.n)) if is_small else points, offsets)
    lowest = ascend(np.zeros((1, points.d)), atoms, radius, known, curvature, _FLOOR_TOLERANCE, _FLOOR_STEPS)
    duality = -(radius**2) - float(lowest.upper[0])
    return max(jensen, duality) - rounding_slack(points.rounding_norm, radius)


def _spread(points: Points, shares: np.ndarray) -> tuple[float, float]:
    """The length of the mean, and the mean square."""
    return float(np.linalg.norm(points.weighted_sum(shares[:, None])[0])), float(shares @ points.squares)


def _farthest_mean_distance(spread: tuple[float, float], radius: float) -> float:
    """The largest root mean square distance from a query of the ball: opposite to the mean."""
    mean, second = spread
    return float(np.sqrt(second + 2.0 * radius * mean + radius**2))


def certify_exact(subset: Subset, progress: Progress = silent) -> Certificate:
    """The certificate that always holds, from sums over pairs: O(n^2 d) time at most, a few tiles of memory."""
    points, shares, difference = subset.points, subset.shares, subset.difference
    radius, loss = subset.radius, subset.loss
    log_least = log_floor(points, shares, radius, loss)
    if loss == "laplacian":
        first = first_equal(points)
        added, own = (np.bincount(first, values, minlength=points.n) for values in (difference, shares))
        square = laplacian_form(points, added, progress)
    else:
        rows = np.flatnonzero((shares > 0) | (difference != 0))
        coordinates = span_coordinates(points, rows, radius)
        order = 0 if coordinates is None else 3
        square, log_bounds = pair_sums(points, difference, radius, log_least + radius**2, progress, order)
        square += rounding_of_form(points, difference, loss)
    # rounding of the weights moves it by at most the sum of their changes
    discrepancy = float(np.sqrt(max(square, 0.0))) + 1e-15 * (1.0 + float(subset.weights.sum()))
    eps, floor = _over_floor(subset, discrepancy, log_least)
    if loss == "laplacian":
        eps = min(eps, _ROUNDED) if (abs(added) <= 0.9 * _ROUNDED * own).all() else eps
    else:
        log_eps = float(log_bounds[0]) - log_least - radius**2
        by_moments = float(np.exp(log_eps)) if log_eps < 700.0 else np.inf
        # the weights' own rounding moves S and F by a part in 10^15
        eps = min(eps, by_moments + 1e-15 * (2.0 + by_moments))
        if coordinates is not None:
            eps = worst_in_ball(subset, rows, coordinates, log_bounds, eps)
    return Certificate(eps, discrepancy, floor, loss, radius, True, 1.0)


def certify_sampled(
    subset: Subset, n_sampled: int, delta: float, rng: np.random.Generator, progress: Progress = silent
) -> Certificate:
    """The certificate with sums over pairs from samples of N/4 and N/2 rows; of a Gaussian, low moments stay exact."""
    points, radius, loss, sampling = subset.points, subset.radius, subset.loss, (n_sampled, delta, rng, progress)
    stretch = chosen_stretch(radius, loss)
    if loss == "laplacian" or 2.0 * stretch * points.max_norm**2 > LARGEST_EXPONENT:
        norm = _sampled_norm(subset, AllOrders(points, loss), *sampling)
    else:
        first, used = 3 if points.d <= WIDEST_MATRIX else 2, subset.shares > 0
        used[subset.rows] |= subset.weights > 0
        with np.errstate(over="ignore", invalid="ignore"):  # of a large ball, where nothing can be said
            kernel = HighOrders(points, used, first, radius, stretch)
            own = np.exp(-kernel.squares) * rest(2.0 * radius * np.sqrt(kernel.squares), first)
            largest = np.abs(subset.difference) @ own * (1.0 + 1e-12)
            high = np.fmin(kernel.factor * np.float64(_sampled_norm(subset, kernel, *sampling)), largest)
            low = np.exp(log_low_orders(points, subset.difference, radius, first))
            norm = float(np.nan_to_num((low + high) * np.exp(-(radius**2)), nan=np.inf))
    discrepancy = norm + 1e-15 * (1.0 + float(subset.weights.sum()))
    eps, floor = _over_floor(subset, discrepancy, log_floor(points, subset.shares, radius, loss))
    return Certificate(eps, discrepancy, floor, loss, radius, False, 1.0 - delta, n_sampled)


def _sampled_norm(
    subset: Subset, kernel: AllOrders | HighOrders, n: int, delta: float, rng: np.random.Generator, progress: Progress
) -> float:
    r"""A bound on :math:`\|\mu_P - \mu_S\|` that holds with probability ``1 - delta``, in O(n (n + m) d).

    With b the vector whose norm is wanted, a its estimate from the first sample and :math:`\xi = a - b`, :math:`\|b\|^2
    = \langle a, b \rangle - \langle \xi, b \rangle`. The second sample bounds the first product by U, Bernstein the
    second by :math:`c \|b\|`: :math:`\|b\| \le (c + \sqrt{c^2 + 4U})/2`. A third sample bounds the variance in c by the
    Hilbert-Schmidt norm of the covariance; ``trace`` is its trace, ``width`` the range of a term over the norm. Each of
    four events may fail with probability ``delta / 4`` (docs/theory.md, "From a sample of the rows").
    """
    points, shares = subset.points, subset.shares
    if isinstance(kernel, AllOrders):
        mean, second_moment = _spread(points, shares)
        twice = 2.0 * max(second_moment - mean * mean, 0.0)
        trace = float(-np.expm1(-twice if subset.loss == "gaussian" else -np.sqrt(twice)))
        lengths, total, width = np.ones(points.n), 1.0, float(np.sqrt(2.0))
    else:
        lengths = np.where(shares > 0, kernel.lengths(), 0.0)
        total = float(shares @ lengths)
        trace, width = total**2, 2.0 * total
    if total == 0.0:  # all at the centre: there are no higher moments
        return 0.0
    n_first, n_second = max(1, n // 4), max(1, n // 2)
    drawn = rng.choice(points.n, n_first + n_second + 4 * n, p=shares * lengths / total)
    first, second, third = np.split(drawn, (n_first, n_first + n_second))
    known = np.bincount(first, total / lengths[first] / n_first, minlength=points.n)
    known[subset.rows] -= subset.weights
    masses = np.maximum(np.abs(known), shares)
    masses[subset.rows] += subset.weights
    norm_a = float(np.sqrt(max(kernel.form(known), 0.0) + kernel.rounding(known)))
    values = kernel.potential(known, second, lambda rows: progress(2 * rows)) * (total / lengths[second])
    log_term = float(np.log(4.0 / delta))

    def deviation(variance: float, width: float, count: int) -> float:  # by Bernstein
        return float(np.sqrt(2.0 * variance * log_term / count) + width * log_term / (3.0 * count))

    upper = float(values.mean() - subset.weights @ kernel.potential(known, subset.rows)) + kernel.rounding(masses)
    upper += deviation(_mean_below(values**2, (total * norm_a) ** 2, log_term), width * norm_a, n_second)
    squares = kernel.products(third.reshape(4, -1)) ** 2
    variance = min(trace, total**2 * float(np.sqrt(_mean_below(squares, 1.0, log_term) + _ROUNDED_SQUARE)))
    c = deviation(variance, width, n_first)
    return 0.5 * (c + float(np.sqrt(c * c + 4.0 * max(upper, 0.0))))


def _mean_below(values: np.ndarray, largest: float, log_term: float) -> float:
    r"""A bound on the mean m of terms in [0, h], from N of them, that fails with probability :math:`e^{-L}`.

    :math:`m - \bar y \le \sqrt{2 E[y^2] L/N}` (Maurer 2003) and :math:`E[y^2] \le h m`, so with :math:`q = h L/(2N)`
    :math:`\sqrt m \le \sqrt q + \sqrt{\bar y + q}`.
    """
    slack = largest * log_term / (2.0 * len(values))
    return float((np.sqrt(slack) + np.sqrt(values.mean() + slack)) ** 2)


def _over_floor(subset: Subset, discrepancy: float, log_least: float) -> tuple[float, float]:
    r"""The bound from the discrepancy, and the floor that it rests on.

    For the Laplacian over all of space :math:`(1 + \epsilon_A) e^\tau - 1`, with the error :math:`\epsilon_A` within
    the radius A, chosen best, and :math:`\tau = \rho^2/(2A)`: what the logarithm of the ratio changes beyond it.
    """
    if np.isfinite(subset.radius) or subset.loss != "laplacian":
        floor = float(np.exp(log_least))
        return discrepancy / floor if floor > 0 else np.inf, floor  # a floor that underflows says nothing
    spread, max_norm = _spread(subset.points, subset.shares), subset.points.max_norm
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
