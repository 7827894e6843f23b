r"""Sensitivities of the Gaussian loss, :math:`s(p) = \sup_{|x| \le R} w_p f(p,x) / F(x)`, bounded and exact.

Coordinates are those of :class:`~coresift.core.points.Points`: the weighted mean is the origin and the centre of the
query ball. ``shares`` are the weights divided by their sum; a point of share 0 has sensitivity 0.

All bounds but the closed form are found by dual ascent (docs/theory.md, "Gaussian sensitivities are concave problems").
For atoms ``(M_j, mu_j, V_j)``, mass, mean and variance of the cells of any partition, at *any* x in the ball

    log s(p)  <=  log w_p - |p|^2 + 2 m.x - L(x) + 2 R |p - m| ,    L(x) = logsumexp_j( b_j + 2 mu_j.x ),

with ``b_j = log M_j - |mu_j|^2 - V_j``, ``m = sum_j lam_j mu_j`` and ``lam = softmax(b + 2 mu.x)``. The distance from
the value reached at x is the duality gap ``2 R |p - m| - 2 x.(p - m)``, zero at the maximiser; with the points as atoms
the two bracket the sensitivity. The ascent is Nesterov's, two matrix products a step; the certificate ends it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from .points import (
    CACHE_BYTES,
    Block,
    Points,
    SensitivityBound,
    log_shares,
    rounding_slack,
    row_slices,
    squared_distances,
    squared_norms,
)

CELLS_TOLERANCE = 1e-3  # a certificate within 0.1 % of the best one that these cells can give
EXACT_TOLERANCE = 1e-6
MAX_STEPS = 1000
_TINY = np.finfo(np.float64).tiny
_MOST_EXPONENT = 80.0  # in single precision, nothing overflows or underflows up to 87
_TRIES, _LLOYD_STEPS = 6, 20  # of the centres of cells


def closed_form(
    sq_norms: np.ndarray,
    shares: np.ndarray,
    second_moment: float,
    radius: float,
    slack: float = 0.0,
    from_mean: np.ndarray | None = None,
    square_error: float = 0.0,
) -> SensitivityBound:
    r"""The one-atom certificate, from distances alone; O(n).

    .. math:: s(p) \le \frac{w_p}{W} \exp\bigl( V + R^2 - (|p - \mu| - R)^2 \bigr)

    The total is at most :math:`e^{V+R^2}`, in any dimension. ``slack`` covers rounding, ``square_error`` that of the
    squares, which cancel near the mean. For a ball that is not centred at the mean, ``from_mean`` holds :math:`|p -
    \mu|`, ``second_moment`` is :math:`M = V + |\mu|^2`, and the exponent :math:`M - |p|^2 + 2 R |p - \mu|`.
    """
    log_values = log_shares(shares)
    if from_mean is None:
        from_mean = np.sqrt(sq_norms + square_error)
    log_values += 2.0 * radius * from_mean - sq_norms + (second_moment + slack)
    np.minimum(log_values, 0.0, out=log_values)
    return SensitivityBound(log_values, "closed-form", True)


@dataclass(frozen=True)
class Cells:
    """Mass, mean and variance of the cells of a partition of the points; masses sum to 1."""

    mass: np.ndarray  # (k,) all positive
    means: np.ndarray  # (k, d)
    variances: np.ndarray  # (k,)

    @cached_property
    def frame(self) -> tuple[np.ndarray | None, np.ndarray]:
        """The means, in a basis (d, k) of their span and one more coordinate where that is shorter."""
        k, d = self.means.shape
        if k + 1 >= d:
            return None, self.means
        basis = np.linalg.qr(self.means.T)[0]
        return basis, np.column_stack([self.means @ basis, np.zeros(k)])


class CellSums:
    """Sums over cells, fed with blocks: a point belongs to the nearest of ``centers``; variances are about these."""

    def __init__(self, centers: np.ndarray) -> None:
        k, d = centers.shape
        self.centers = centers
        self.mass, self.sums, self.moments = np.zeros(k), np.zeros((k, d)), np.zeros(k)

    def update(self, block: Block, share: np.ndarray) -> None:
        k, n = len(self.mass), len(share)
        nearest, squares = np.empty(n, dtype=np.intp), np.empty(n)
        doubled, norms, numbers = -2.0 * self.centers, squared_norms(self.centers), np.arange(n)
        for part in row_slices(n, 4.0 * k):  # products that stay in the cache
            products = Block(block.rows[part], block.shift).dot(doubled)
            products += norms
            nearest[part] = products.argmin(axis=1)
            squares[part] = products[numbers[: len(products)], nearest[part]]
        np.maximum(squares + block.sq_norms, 0.0, out=squares)  # rounding can leave a tiny negative number
        self.mass += np.bincount(nearest, weights=share, minlength=k)
        self.moments += np.bincount(nearest, weights=share * squares, minlength=k)
        self.sums += block.group_sums(share, nearest, k)

    def merge(self, other: Self) -> None:
        self.mass += other.mass
        self.sums += other.sums
        self.moments += other.moments

    def finish(self) -> Cells:
        """The cells that have mass, scaled to a total mass of 1."""
        full = self.mass > 0
        mass = self.mass[full]
        means = self.sums[full] / mass[:, None]
        variances = self.moments[full] / mass - squared_norms(means - self.centers[full])
        return Cells(mass / mass.sum(), means, np.maximum(variances, 0.0))


def lloyd_centers(points: np.ndarray, n_cells: int, seed: int) -> np.ndarray:
    """Greedy k-means++ and Lloyd's steps; scikit-learn's takes longer to import than a million rows to be read."""
    n, rows, rng = len(points), Block(points.astype(np.float64)), np.random.default_rng(seed)
    picks, nearest = [int(rng.integers(n))], np.full(n, np.inf)
    while True:
        nearest = np.minimum(nearest, squared_distances(rows, points[picks[-1:]])[:, 0])
        reach = np.cumsum(nearest)
        if len(picks) == n_cells or reach[-1] <= 0.0:
            break
        tried = np.minimum(np.searchsorted(reach, rng.random(_TRIES) * reach[-1], side="right"), n - 1)
        left = np.minimum(nearest[:, None], squared_distances(rows, points[tried]))
        picks.append(int(tried[left.sum(axis=0).argmin()]))
    centers = points[picks]
    for _ in range(_LLOYD_STEPS):
        sums = CellSums(centers)
        sums.update(rows, np.full(n, 1.0 / n))
        centers = sums.finish().means
    return centers


@dataclass(frozen=True)
class Atoms:
    """Where the mass is: the means as rows, and the offsets b_j."""

    rows: Block | Points  # k rows; points are read block by block, without a copy of the data
    offsets: np.ndarray  # (k,)
    means: np.ndarray | None = None  # the rows once more if they are cells: these are few

    @cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean (d,) and covariance (d, d) of the mass of cells at the centre of the ball."""
        share = np.exp(self.offsets - self.offsets.max())
        share /= share.sum()
        mean = share @ self.means
        return mean, (share[:, None] * (self.means - mean)).T @ (self.means - mean)

    def first_queries(self, p: np.ndarray, radius: float) -> np.ndarray:
        """Near the maxima of ``2 p.x - L(x)``: these are along ``p - m(x)``, and ``m(x)`` is about ``mean + 2 C x``.

        Where ``2 C x`` is large, that says little, and the ascent begins at the point itself, brought into the ball.
        """
        if self.means is None:
            return into_ball(p, radius)
        mean, covariance = self.moments
        found = p - mean
        length = np.sqrt(squared_norms(found))
        drift = found @ (2.0 * radius * covariance)
        drift /= np.maximum(length, 1e-100)[:, None]
        is_far = np.sqrt(squared_norms(drift)) >= 0.5 * length
        found -= drift
        found *= (radius / np.maximum(np.sqrt(squared_norms(found)), 1e-100))[:, None]
        if is_far.any():
            found[is_far] = into_ball(p[is_far], radius)
        return found

    @cached_property
    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """For cells: what ``(y, 1)`` is multiplied by to get ``b_j + 2 mu_j.y`` less the largest b_j; the means."""
        right = np.column_stack([np.asarray(self.means), np.ones(len(self.offsets))])
        left = np.column_stack([2.0 * right[:, :-1], self.offsets - self.offsets.max()])
        return left.T.astype(np.float32), right.astype(np.float32)

    def rounding(self, most: float) -> float:
        """How much :meth:`tilted` in single precision adds to a gap; 0 where that is too much, and for atoms of rows.

        ``most`` bounds ``|2 mu_j.y|``. The sums are derived in docs/theory.md ("Cells, k atoms"), and doubled.
        """
        if self.means is None:
            return 0.0
        (k, d), span = self.means.shape, most + float(np.ptp(self.offsets))
        error = 1.2e-7 * ((d + 4) * span + (5 * k + 16) * (1.0 + most))
        return error if error <= 0.2 * CELLS_TOLERANCE and most + span <= _MOST_EXPONENT else 0.0

    def tilted(self, y: np.ndarray, is_single: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """``L(y)``, (b,), and the mean of the mass as seen from each y, (b, d)."""
        if is_single:
            weights = np.column_stack([y, np.ones(len(y))]).astype(np.float32) @ self.tables[0]
            sums = (np.exp(weights, out=weights) @ self.tables[1]).astype(np.float64)
            return np.log(sums[:, -1]) + self.offsets.max(), sums[:, :-1] / sums[:, -1:]
        weights = self.rows.dot(2.0 * y)  # (k, b); in place, without a second array of this size
        weights += self.offsets[:, None]
        peak = weights.max(axis=0)
        weights -= peak
        np.exp(weights, out=weights)
        mass = weights.sum(axis=0)
        m = self.rows.weighted_sum(weights)
        m /= mass[:, None]
        return np.log(mass) + peak, m


class Ascent(NamedTuple):
    """Bounds on ``max_x 2 p.x - L(x)`` for a block of points."""

    upper: np.ndarray
    lower: np.ndarray
    n_steps: int


def ascend(
    p: np.ndarray, atoms: Atoms, radius: float, upper: np.ndarray, max_curvature: float, tol: float, max_steps: int
) -> Ascent:
    """Maximise ``2 p.x - L(x)``, at most ``upper``, over ``|x| <= radius`` for each row of p, to a gap of ``tol``."""
    lower, upper, active = np.full(len(p), -np.inf), upper.copy(), np.arange(len(p))
    state = _Momentum(p, atoms.first_queries(p, radius), max_curvature)
    reach = radius * float(np.sqrt(max_curvature))  # the most that 2 c.y can be
    slack = atoms.rounding(reach)
    for n_steps in range(1, max_steps + 1):
        log_mass, m = atoms.tilted(state.y, is_single=slack > 0)
        ascent_direction = np.subtract(state.p, m, out=m)  # half the gradient
        towards = np.einsum("ij,ij->i", state.y, ascent_direction)
        at_y = 2.0 * np.einsum("ij,ij->i", state.y, state.p) - log_mass
        gap = 2.0 * (radius * np.sqrt(squared_norms(ascent_direction)) - towards)
        lower[active] = np.maximum(lower[active], at_y - slack)
        upper[active] = np.minimum(upper[active], at_y + np.maximum(gap, 0.0) + slack)
        open_ = upper[active] - lower[active] > tol
        if n_steps == max_steps or not open_.any():
            break
        # a point that is done keeps its certificate, whatever points share its block: blocks do not change results
        active = active[open_]
        state.keep(open_)
        state.advance(2.0 * ascent_direction[open_], radius)
    return Ascent(upper, lower, n_steps)


def into_ball(x: np.ndarray, radius: float) -> np.ndarray:
    """Project rows on the ball around the origin."""
    return x * (radius / np.maximum(np.sqrt(squared_norms(x)), radius))[:, None]


class _Momentum:
    """Nesterov's iterates of a block: extrapolated points ``y``, with curvature and restarts per point."""

    def __init__(self, p: np.ndarray, x: np.ndarray, max_curvature: float) -> None:
        self.p, self.x, self.y = p, x, x
        self.max_curvature = max(max_curvature, _TINY)
        self.curvature, self.age = np.zeros(len(p)), np.ones(len(p))
        self.previous: tuple[np.ndarray, np.ndarray] | None = None  # (y, gradient)

    def advance(self, gradient: np.ndarray, radius: float) -> None:
        if self.previous is None:
            self.curvature[:] = self.max_curvature / 16.0  # a guess; corrected by the first pair of gradients
        else:
            old_y, old_gradient = self.previous
            moved = np.sqrt(squared_norms(self.y - old_y))
            bent = np.sqrt(squared_norms(gradient - old_gradient))
            secant = np.divide(bent, moved, out=np.zeros_like(bent), where=moved > 0)
            # the secant underestimates the curvature ahead; the old estimate fades slowly
            self.curvature = np.minimum(np.maximum(1.2 * secant, 0.95 * self.curvature), self.max_curvature)
        self.previous = (self.y, gradient)
        step = 1.0 / np.maximum(self.curvature, max(1e-12 * self.max_curvature, 1e-300))
        # atoms at the centre have no curvature: no step needs to be longer than many times through the ball
        length = np.sqrt(squared_norms(gradient))
        through = np.divide(1e3 * radius, length, out=np.full_like(length, np.inf), where=length > 1e-200)
        step = np.minimum(step, through)
        new_x = into_ball(self.y + step[:, None] * gradient, radius)
        uphill = np.einsum("ij,ij->i", gradient, new_x - self.x) >= 0
        self.age = np.where(uphill, self.age, 1.0)
        next_age = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * self.age**2))
        momentum = np.where(uphill, (self.age - 1.0) / next_age, 0.0)
        # outside the ball the certificate would still hold, but the value reached would not count
        y = into_ball(new_x + momentum[:, None] * (new_x - self.x), radius)
        self.x, self.y, self.age = new_x, y, next_age

    def keep(self, rows: np.ndarray) -> None:
        self.p, self.x, self.y = self.p[rows], self.x[rows], self.y[rows]
        self.curvature, self.age = self.curvature[rows], self.age[rows]
        if self.previous is not None:
            self.previous = (self.previous[0][rows], self.previous[1][rows])


@dataclass(frozen=True)
class Problem:
    """Whose sensitivities are wanted: scaled points, their squared norms and shares, and the radius of the ball."""

    points: Points
    sq_norms: np.ndarray
    shares: np.ndarray
    radius: float


def cells_bound(problem: Problem, summary: Cells, start: SensitivityBound) -> SensitivityBound:
    """The certificate of k atoms, never above ``start``: two products (points x k) by (k x min(d, k + 1)) a step."""
    k, points = len(summary.mass), problem.points
    basis, means = summary.frame
    offsets = np.log(summary.mass) - squared_norms(summary.means) - summary.variances
    atoms = Atoms(Block(means), offsets, means)

    def coordinates() -> Iterator[tuple[slice, np.ndarray]]:
        for rows, block in points.blocks(extra_columns=k // 2 + 4 * means.shape[1], budget=CACHE_BYTES):
            if basis is None:
                yield rows, block.dense()
                continue
            inside = block.dot(basis.T)
            # rounding may hide a part of what sticks out: a longer |p - m| is safe, a shorter one is not
            hidden = 2e-15 * np.sqrt(points.d) * (block.sq_norms + block.sq_shift)
            outside = np.maximum(block.sq_norms - squared_norms(inside), 0.0) + hidden
            yield rows, np.column_stack([inside, np.sqrt(outside)])

    curvature = 4.0 * float(squared_norms(means).max())
    return _ascend_blocks("cells", problem, start, coordinates(), atoms, curvature, CELLS_TOLERANCE)


def row_atoms(problem: Problem) -> Atoms:
    """Every point of positive share an atom."""
    positive = np.flatnonzero(problem.shares > 0)
    offsets = np.log(problem.shares[positive]) - problem.sq_norms[positive]
    return Atoms(problem.points.gather(positive), offsets)


def exact(problem: Problem, start: SensitivityBound, atoms: Atoms | None = None) -> SensitivityBound:
    """The sensitivities to 1e-6: all points are atoms. O(n^2 d) a step, some ten steps on ordinary data."""
    points = problem.points
    atoms = row_atoms(problem) if atoms is None else atoms
    blocks = points.blocks(extra_columns=len(atoms.offsets) + 7 * points.d)
    coordinates = ((rows, block.dense()) for rows, block in blocks)
    return _ascend_blocks("exact", problem, start, coordinates, atoms, 4.0 * points.max_norm**2, EXACT_TOLERANCE)


def _ascend_blocks(
    name: str,
    problem: Problem,
    start: SensitivityBound,
    coordinates: Iterator[tuple[slice, np.ndarray]],
    atoms: Atoms,
    curvature: float,
    tol: float,
) -> SensitivityBound:
    """Ascend for all points: the least of the certificates, ``start`` and 1, and the gaps."""
    positive = problem.shares > 0
    is_plain = bool(positive.all())
    constant = np.where(positive, log_shares(problem.shares) - problem.sq_norms, 0.0)
    upper, lower = start.log_values - constant, np.zeros(len(constant))
    slack = rounding_slack(problem.points.rounding_norm, problem.radius)
    for rows, p in coordinates:
        own: Any = slice(None) if is_plain else np.flatnonzero(positive[rows])
        at = rows if is_plain else own + rows.start
        if len(mine := p[own]):
            # to half of the tolerance: the slack for rounding adds to the gap
            found = ascend(mine, atoms, problem.radius, upper[at], curvature, 0.5 * tol, MAX_STEPS)
            upper[at], lower[at] = found.upper, found.lower
    log_values = np.minimum(start.log_values, constant + upper + slack)
    return SensitivityBound(log_values, name, True, gap=np.maximum(log_values - (constant + lower), 0.0))
