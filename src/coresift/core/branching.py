r"""The largest error over the ball by branch and bound, where the rows span at most three dimensions.

In the notation of :mod:`~coresift.core.moments` the error at a query y within :math:`\eta` of the centre x of a box is
at most :math:`|M(y)| / D(x)`, with m the mean of the rows in proportion to :math:`w_p e_p`, :math:`e_p = e^{-|p|^2 + 2
p \cdot x}`, and :math:`M(y) = \sum_p \nu_p e_p e^{2 (p-m) \cdot (y-x)}`. M is expanded about x to the second order, and
its third derivatives are bounded. Boxes whose bound is not above the largest error met so far, and 2 % more, are done;
the others are halved along every axis. docs/theory.md ("In one, two and three dimensions") has the proof.
"""

import numpy as np

from .gaussian import into_ball
from .points import Block, Points, Subset, rounding_slack, row_slices, squared_distances, squared_norms

MOST_DIMENSIONS = 3
_GAP = 0.02  # of the largest error met: boxes that cannot be worse by more than that are done
_LEAST = 1e-9  # an error that is not worth another box
_MOST_VALUES = 4e7  # kernel values that may be computed, besides half as many as there are pairs: about a second
_OF_A_BOX = 300  # what a box costs besides them
_TILE = 1 << 19  # kernel values at a time
_UNIT = float(np.finfo(np.float64).eps) / 2.0


def span_coordinates(points: Points, rows: np.ndarray, radius: float) -> np.ndarray | None:
    """(len(rows), r) coordinates in an orthonormal basis of the rows' span; None if it has above three dimensions."""
    tolerance = rounding_slack(points.max_norm, radius) / (2.0 * radius)  # as an error of 2 p.x it is allowed for
    basis = np.zeros((0, points.d))
    for _ in range(MOST_DIMENSIONS + 1):
        parts, largest, farthest = [], tolerance, None
        for part in row_slices(len(rows), 8.0 * points.d, 1 << 22):
            scaled = points.take(rows[part])
            parts.append(scaled @ basis.T)
            rest = scaled - parts[-1] @ basis
            lengths = np.sqrt(squared_norms(rest))
            if lengths.max(initial=0.0) > largest:
                farthest, largest = rest[lengths.argmax()], float(lengths.max())
        if farthest is None:
            return np.concatenate(parts) if len(basis) else None  # no span: nothing to search
        if len(basis) == MOST_DIMENSIONS:
            break
        for _ in range(2):  # the second time removes what the first has left to rounding
            farthest = farthest / np.linalg.norm(farthest)
            farthest = farthest - basis.T @ (basis @ farthest)
        basis = np.concatenate((basis, farthest[None] / np.linalg.norm(farthest)))
    return None


class _Ratio:
    """The error and its bounds over boxes, from the rows in the coordinates of their span."""

    def __init__(
        self, Z: np.ndarray, squares: np.ndarray, shares: np.ndarray, nu: np.ndarray, radius: float, slack: float
    ) -> None:
        self.Z, self.squares, self.radius, self.n = Z, squares, radius, len(Z)
        self.sizes, self.reach = np.abs(nu), float(np.sqrt(squared_norms(Z).max()))
        self.pairs = np.triu_indices(Z.shape[1])
        moved = Z * nu[:, None]
        products = moved[:, self.pairs[0]] * Z[:, self.pairs[1]]
        self.columns = np.column_stack((shares, nu, self.sizes, Z * shares[:, None], moved, products))
        self.slack = slack + 2.0 * (self.n + 20) * _UNIT

    @np.errstate(divide="ignore", invalid="ignore", over="ignore")  # a D that vanishes beside N bounds nothing
    def __call__(self, x: np.ndarray, eta: float, log_bounds: np.ndarray) -> np.ndarray:
        """(3, k): errors at queries ``x``, bounds within ``eta`` of them in the ball, what rounding has in those."""
        r = x.shape[1]
        exponents = 2.0 * (x @ self.Z.T) - self.squares
        tops = exponents.max(axis=1)
        terms = np.exp(np.subtract(exponents, tops[:, None], out=exponents), out=exponents)
        sums = terms @ self.columns
        sums[:, 1:] /= sums[:, :1]
        error, size, m, moved = sums[:, 1], sums[:, 2], sums[:, 3 : 3 + r], sums[:, 3 + r : 3 + 2 * r]
        slope = 2.0 * (moved - error[:, None] * m)
        bend = np.zeros((len(x), r, r))
        bend[:, self.pairs[0], self.pairs[1]] = bend[:, self.pairs[1], self.pairs[0]] = sums[:, 3 + 2 * r :]
        bend -= m[:, :, None] * moved[:, None] + moved[:, :, None] * m[:, None]
        bend = 4.0 * (bend + error[:, None, None] * m[:, :, None] * m[:, None])
        usable = np.isfinite(sums).all(axis=1) & (sums[:, 0] > 0)
        curvature = np.linalg.eigvalsh(np.where(usable[:, None, None], bend, 0.0))
        # e^{2|m| eta} sum_j (3 over j) (2|m|)^{3-j} B_j, with bounds B on the derivatives of N, small for a good subset
        tilt = 2.0 * np.sqrt(squared_norms(m))
        derivatives = np.exp(log_bounds - (tops + np.log(sums[:, 0]))[:, None])
        products = np.array([1.0, 3.0, 3.0, 1.0]) * tilt[:, None] ** np.arange(3, -1, -1) * derivatives
        third = np.fmin(np.exp(tilt * eta) * products.sum(axis=1), self._third_of_rows(terms, m, eta) / sums[:, 0])
        over = error + self._rise(x, slope, curvature[:, -1], eta)
        under = -error + self._rise(x, -slope, -curvature[:, 0], eta)
        rounding = 16.0 * self.slack * (1.0 + size) * (1.0 + 2.0 * self.reach * eta) ** 2
        upper = np.maximum(over, under) + third * eta**3 / 6.0 + rounding
        usable &= ~np.isnan(upper)
        return np.where(usable, [np.abs(error), upper, rounding], [[0.0], [np.inf], [0.0]])

    def _rise(self, x: np.ndarray, slope: np.ndarray, curvature: np.ndarray, eta: float) -> np.ndarray:
        """A bound on ``slope . s + curvature |s|^2 / 2`` over the steps s of at most ``eta`` that stay in the ball."""
        lengths = np.sqrt(squared_norms(x))
        outward = x / np.maximum(lengths, 1e-300)[:, None]
        out = np.sum(slope * outward, axis=1)
        along = np.sqrt(squared_norms(slope - out[:, None] * outward)) + np.maximum(-out, 0.0)
        room = np.minimum(eta, np.maximum(self.radius - lengths, 0.0) + 1e-14 * self.radius)

        def rise(slope: np.ndarray) -> np.ndarray:
            best = np.divide(slope, -curvature, out=np.full(len(slope), eta), where=curvature < 0)
            best = np.minimum(best, eta)
            return slope * best + 0.5 * curvature * best**2

        # outwards by at most the room, and in the other directions; or in any direction
        return np.minimum(rise(np.sqrt(squared_norms(slope))), rise(along) + np.maximum(out, 0.0) * room)

    def _third_of_rows(self, terms: np.ndarray, m: np.ndarray, eta: float) -> np.ndarray:
        r""":math:`8 \sum_p |\nu_p| e_p |p-m|^3 e^{2|p-m|\eta}`, which does not grow with the size of the ball."""
        distances = np.sqrt(squared_distances(Block(m), self.Z))
        distances += 1e-7 * self.reach  # of a rounded square
        terms *= distances**3
        terms *= np.exp(np.multiply(distances, 2.0 * eta, out=distances), out=distances)
        return np.asarray(8.0 * (terms @ self.sizes))


def worst_in_ball(
    subset: Subset, rows: np.ndarray, coordinates: np.ndarray, log_bounds: np.ndarray, known: float
) -> float:
    """An upper bound on the error over the ball, at most ``known``, from about ``4e7 + n^2/4`` kernel values."""
    points, radius = subset.points, subset.radius
    slack = 2.0 * rounding_slack(points.rounding_norm, radius)
    ratio = _Ratio(coordinates, points.squares[rows], subset.shares[rows], subset.difference[rows], radius, slack)
    r = coordinates.shape[1]
    corners = np.stack(np.meshgrid(*[[-1.0, 1.0]] * r, indexing="ij"), axis=-1).reshape(-1, r)
    values_left = _MOST_VALUES + 0.25 * float(ratio.n) ** 2
    best, done, half = 0.0, 0.0, radius
    centers, upper = np.zeros((1, r)), np.array([known])
    while len(centers):
        affordable = int(values_left / ((ratio.n + _OF_A_BOX) * len(corners)))
        worst_first = np.argsort(-upper)
        done = float(upper[worst_first[affordable:]].max(initial=done))
        parents = worst_first[:affordable]
        half *= 0.5
        centers = (centers[parents, None] + half * corners).reshape(-1, r)
        inherited = np.repeat(upper[parents], len(corners))
        nearest = np.maximum(np.abs(centers) - half, 0.0)
        inside = squared_norms(nearest) <= radius**2 * (1.0 + 1e-12)
        centers, inherited = centers[inside], inherited[inside]
        values_left -= (ratio.n + _OF_A_BOX) * len(centers)
        projected = into_ball(centers, radius)
        parts = [ratio(projected[part], half * r**0.5, log_bounds) for part in row_slices(len(centers), ratio.n, _TILE)]
        if not parts:
            break
        found, upper, rounding = np.concatenate(parts, axis=1)
        upper = np.minimum(upper, inherited)
        best = max(best, float(found.max()))
        is_done = upper <= max((1.0 + _GAP) * best, _LEAST) + 2.0 * rounding
        done = float(upper.max(where=is_done, initial=done))
        if done >= known:
            return known
        centers, upper = centers[~is_done], upper[~is_done]
    return min(done, known)
