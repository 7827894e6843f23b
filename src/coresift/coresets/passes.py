"""The passes of a selection: the survey of all rows, the draw by keys, and the check at random queries."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.random import Generator

from ..core.draw import KeyPool, smallest
from ..core.gaussian import into_ball
from ..core.points import CACHE_BYTES, LARGEST_EXPONENT, Matrix, Points, as_dense, float_rows, squared_norms, stacked
from ..rows.rows import Block, check_block, recode
from .bounds import Geometry, RowBound, by_group, draw_scores, excess_over, label_numbers

_FARTHEST_KEPT = 128
# an origin this much farther (squared) than the rows are wide costs two digits, not more
LARGEST_SHIFT = 100.0
_SAFE_SQUARES = (1e-120, 1e120)  # squares inside are free of overflow and underflow, and so are sums of them


@dataclass
class Reduced:
    """A pass that is one function of a block."""

    function: Callable[[Block], Any]
    combine: Callable[[Any, Any], Any]
    value: Any = None

    def update(self, block: Block) -> None:
        self._add(self.function(block))

    def merge(self, other: Self) -> None:
        if other.value is not None:
            self._add(other.value)

    def _add(self, value: Any) -> None:
        self.value = value if self.value is None else self.combine(self.value, value)


class GroupMoments:
    """Rows with weight, mass, mean and variance of each group, merged by the formula of Chan, Golub and LeVeque."""

    def __init__(self, n_groups: int, d: int) -> None:
        self.counts = np.zeros(n_groups, dtype=np.int64)
        self.mass, self.variance = np.zeros(n_groups), np.zeros(n_groups)
        self.mean = np.zeros((n_groups, d))

    def grow(self, n_groups: int) -> None:
        more = n_groups - len(self.mass)
        if more > 0:
            self.counts = np.pad(self.counts, (0, more))
            self.mass, self.variance = np.pad(self.mass, (0, more)), np.pad(self.variance, (0, more))
            self.mean = np.pad(self.mean, ((0, more), (0, 0)))

    def add(
        self, groups: np.ndarray, counts: np.ndarray, mass: np.ndarray, mean: np.ndarray, variance: np.ndarray
    ) -> None:
        """Add the moments of other rows of ``groups``, distinct numbers."""
        total = self.mass[groups] + mass
        part = np.divide(mass, total, out=np.zeros(len(total)), where=total > 0)
        way = mean - self.mean[groups]
        with np.errstate(over="ignore", invalid="ignore"):  # a survey that overflowed is made again
            between = part * (1.0 - part) * squared_norms(way)
            self.variance[groups] += part * (variance - self.variance[groups]) + between
        self.mean[groups] += way * part[:, None]
        self.mass[groups] = total
        self.counts[groups] += counts


class Survey:
    """Counts, mass, mean and variance of each group; the rows farthest from ``near``; samples by keys; the labels.

    ``near`` is a guess of the mean. If that turns out to be ``e`` away, the row farthest from it is among those within
    ``2e`` of the farthest from ``near``, so that mostly no second pass is needed (:meth:`farthest`). Lengths are in
    units of ``unit``, a power of two. ``all_equal``: the rows of positive weight are known to equal ``near``.
    """

    def __init__(
        self,
        near: np.ndarray,
        samples: dict[str, tuple[int, int]],
        by_label: bool = False,
        *,
        unit: float = 1.0,
        is_short: bool = False,
        all_equal: bool = False,
    ) -> None:
        d = len(near)
        self.near, self.unit, self.by_label, self.all_equal = near, unit, by_label, all_equal
        # differences from ``near`` are formed, unless it is short: then squares are expanded, which is faster
        self.origin = np.zeros(d) if is_short else near
        self.moments = GroupMoments(0 if by_label else 1, d)
        self.labels: dict[Any, int] = {}
        self.samples = {name: KeyPool(seed, np.array([size])) for name, (seed, size) in samples.items()}
        self.reach = 0.0  # largest square of any row, with weight or without
        self.far: Matrix | None = None
        self._far_squares = np.zeros(0)
        self._bar = -1.0  # squares up to it are not among the farthest

    def update(self, block: Block) -> None:
        """Add a block of rows; refuse what is not finite."""
        w, X = block.weights, float_rows(block.X)
        codes = None if block.labels is None else recode(block.labels.names, self.labels)[block.labels.codes]
        codes = codes if self.by_label else None
        with np.errstate(over="ignore", invalid="ignore"):
            squares = self._add(X, w, codes)
            reach = float(squares.max())
            usable = np.isfinite(squares.sum()) and w.min() >= 0 and np.isfinite(w.sum())
        if not usable:
            check_block(block)
            reach, squares = np.inf, np.nan_to_num(squares, nan=np.inf)
        self.reach = max(self.reach, reach)
        if reach > self._bar:
            self._keep_far(X, np.where(w > 0, squares, -1.0))
        for pool in self.samples.values():
            pool.update(block.start, w, w, X=X, **({} if codes is None else {"code": codes}))

    def merge(self, other: Self) -> None:
        to = recode(other.labels, self.labels)
        if self.by_label:
            self.moments.grow(len(self.labels))
        groups = to if self.by_label else np.zeros(1, dtype=np.int64)
        theirs = other.moments
        self.moments.add(groups, theirs.counts, theirs.mass, theirs.mean, theirs.variance)
        self.reach = max(self.reach, other.reach)
        if other.far is not None:
            self._keep_far(other.far, other._far_squares)
        for name, pool in self.samples.items():
            pool.merge(other.samples[name], **({"code": to} if self.by_label else {}))

    @property
    def is_ordinary(self) -> bool:
        """Whether squares neither overflowed nor vanished, and have not lost their digits to a far origin."""
        farthest = float(self._far_squares.max(initial=0.0))
        return (
            np.isfinite(self.reach)
            and _SAFE_SQUARES[0] < farthest < _SAFE_SQUARES[1]
            and (isinstance(self.far, np.ndarray) or float(self.near @ self.near) <= LARGEST_SHIFT * farthest)
        )

    def center(self) -> np.ndarray:
        """The mean of all rows, relative to ``near``, in units."""
        share = self.moments.mass / self.moments.mass.sum()
        return np.asarray(share @ self.moments.mean)

    def farthest(self, mean: np.ndarray) -> tuple[float, bool]:
        """The largest distance from ``mean`` of a row of positive weight; or an upper bound, and then False."""
        if self.far is None or self.all_equal:
            return 0.0, True
        shift = math.hypot(*(mean - self.near) / self.unit)  # does not overflow: a given centre may be far away
        reach = float(np.sqrt(self._far_squares.max()))
        few = len(self._far_squares) < _FARTHEST_KEPT
        if not few and not float(np.sqrt(self._far_squares.min())) < reach - 2.0 * shift:
            return (reach + shift) * self.unit, False
        unit = self.unit * max(1.0, 1e-100 * shift)  # squares of a long way would overflow
        return float(np.sqrt(Points(self.far, mean, unit, np.inf).gather(slice(None)).sq_norms.max())) * unit, True

    def _add(self, X: Matrix, w: np.ndarray, codes: np.ndarray | None) -> np.ndarray:
        """Add the moments of a block; returns the squared distances from ``near``."""
        groups = np.zeros(1, dtype=np.int64)
        if codes is not None:
            groups, codes = np.unique(codes, return_inverse=True)
            self.moments.grow(len(self.labels))
        k, n = len(groups), len(w)
        mass = np.array([w.sum()]) if codes is None else np.bincount(codes, w, k)
        divisor = np.where(mass > 0, mass, 1.0)
        shares = w / (divisor[0] if codes is None else divisor[codes])
        squares, mean = np.zeros(n), np.zeros((k, X.shape[1]))
        shift = (self.near - self.origin) / self.unit
        is_shifted, points = shift.any(), Points(X, self.origin, self.unit, np.inf)
        for part, rows in () if self.all_equal else points.blocks(budget=CACHE_BYTES):
            squares[part] = rows.sq_norms
            if is_shifted:
                squares[part] += shift @ shift - 2.0 * rows.dot(shift[None])[:, 0]
            mean += rows.group_sums(shares[part], None if codes is None else codes[part], k)
        np.maximum(squares, 0.0, out=squares)
        second = np.array([shares @ squares]) if codes is None else np.bincount(codes, shares * squares, k)
        counts = np.array([np.count_nonzero(w)]) if codes is None else np.bincount(codes[w > 0], minlength=k)
        mean -= shift if not self.all_equal else 0.0
        mean[mass == 0] = 0.0
        self.moments.add(groups, counts, mass, mean, np.maximum(second - squared_norms(mean), 0.0))
        return squares

    def _keep_far(self, X: Matrix, squares: np.ndarray) -> None:
        above = np.flatnonzero(squares > self._bar)
        above = above[smallest(-squares[above], _FARTHEST_KEPT)]
        if not len(above):
            return
        far, squares = X[above], squares[above]
        if self.far is not None:
            far, squares = stacked([self.far, far]), np.concatenate([self._far_squares, squares])
        best = smallest(-squares, _FARTHEST_KEPT)
        self.far, self._far_squares = far[best], squares[best]
        if len(best) == _FARTHEST_KEPT:
            self._bar = float(self._far_squares.min())


def extent(block: Block) -> np.ndarray:
    """(2, d) the smallest number in each column and minus the largest, over the rows of positive weight."""
    kept = block.X[block.weights > 0]
    if not kept.shape[0]:
        return np.full((2, block.X.shape[1]), np.inf)
    ends = (kept.min(axis=0), -kept.max(axis=0))
    return np.array([as_dense(end).ravel() for end in ends], dtype=np.float64)


def largest_distance(block: Block, center: np.ndarray, unit: float = 1.0, metric: Any = "euclidean") -> float:
    """The largest distance from a centre of a row of positive weight, in units of ``unit``; 0 if there is none."""
    if metric == "euclidean":
        distances = np.sqrt(Points(float_rows(block.X), center, unit, np.inf).squares)
    else:
        from scipy.spatial.distance import cdist

        distances = cdist(block.X, center[None], metric=metric)[:, 0]
    return float(distances.max(where=block.weights > 0, initial=0.0))


class Scores:
    """Totals and largest of the bounds in every group, and the draw by keys; other rows are not kept."""

    def __init__(self, bound: RowBound, pool: KeyPool, log_unit: float, labels: dict[Any, int] | None) -> None:
        g = len(bound.geometry.mass)
        self.bound, self.pool, self.log_unit, self.labels = bound, pool, log_unit, labels
        self.total, self.score_total = np.zeros(g), np.zeros(g)
        self.largest, self.largest_excess = np.zeros(g), np.zeros(g)  # bound; score / share

    def update(self, block: Block) -> None:
        geometry = self.bound.geometry
        groups = geometry.groups(block)
        shares = geometry.shares(block.weights, groups)
        log_values = self.bound.log_values(block, groups)
        values = np.exp(np.minimum(log_values, LARGEST_EXPONENT))
        scores = draw_scores(log_values, shares, self.log_unit, values)
        excess = excess_over(scores, shares)
        for group, rows in by_group(groups, len(shares)):
            self.total[group] += values[rows].sum()
            self.score_total[group] += scores[rows].sum()
            self.largest[group] = max(self.largest[group], float(values[rows].max()))
            self.largest_excess[group] = max(self.largest_excess[group], float(excess[rows].max()))
        labels = label_numbers(block, self.labels)
        attached = {} if labels is None else {"label": labels.astype(np.int32)}
        # a weight too small to have a share of the total counts as none
        self.pool.update(block.start, scores, np.where(shares > 0, block.weights, 0.0), groups, **attached)

    def merge(self, other: Self) -> None:
        self.total += other.total
        self.score_total += other.score_total
        self.largest = np.maximum(self.largest, other.largest)
        self.largest_excess = np.maximum(self.largest_excess, other.largest_excess)
        self.pool.merge(other.pool)

    @property
    def uniform_factor(self) -> float:
        """As :func:`uniform_factor`, of the group where it is largest."""
        used = self.score_total > 0
        return float(np.max(self.largest_excess[used] / self.score_total[used]))


class QuerySums:
    """Sums of the loss at some queries, over all rows and over the chosen ones with their weights."""

    def __init__(self, geometry: Geometry, loss: str, queries: np.ndarray, rows: np.ndarray, weights: Any) -> None:
        self.geometry, self.loss, self.queries = geometry, loss, queries
        self.rows, self.weights = rows, weights
        mass = geometry.mass / geometry.mass.sum()
        # mean square distance of the rows from a query, V + |x - mu|^2: relative to Jensen's bound nothing underflows
        spread = squared_norms(geometry.offsets) + geometry.variances
        squares = mass @ spread - 2.0 * queries @ (mass @ geometry.offsets) + squared_norms(queries)
        self.floor = squares if loss == "gaussian" else np.sqrt(np.maximum(squares, 0.0))
        self.whole, self.part = np.zeros(len(queries)), np.zeros(len(queries))

    def update(self, block: Block) -> None:
        first, last = np.searchsorted(self.rows, (block.start, block.start + block.n))
        own = self.rows[first:last] - block.start
        points = self.geometry.points(block.X)
        for rows, scaled in points.blocks(extra_columns=2 * len(self.queries), budget=1 << 22):
            exponents = scaled.dot(self.queries)
            exponents *= -2.0
            exponents += squared_norms(self.queries)
            exponents += scaled.sq_norms[:, None]
            np.maximum(exponents, 0.0, out=exponents)
            if self.loss == "laplacian":
                np.sqrt(exponents, out=exponents)
            values = np.exp(np.subtract(self.floor, exponents, out=exponents), out=exponents)
            self.whole += block.weights[rows] @ values
            here = slice(*np.searchsorted(own, (rows.start, rows.stop)))
            self.part += self.weights[first:last][here] @ values[own[here] - rows.start]

    def merge(self, other: Self) -> None:
        self.whole += other.whole
        self.part += other.part

    def errors(self) -> np.ndarray:
        ratios = np.divide(self.part, self.whole, out=np.ones_like(self.whole), where=self.whole > 0)  # underflow
        return np.abs(ratios - 1.0)


def random_queries(geometry: Geometry, sample: Matrix, radius: float, count: int, rng: Generator) -> np.ndarray:
    """Queries in scaled coordinates: half uniform in the ball, half rows of a ``sample``, brought into it."""
    d = len(geometry.center)
    # the Laplacian's queries are all of space: the ball of the data stands for it
    reach = radius if np.isfinite(radius) else max(geometry.max_norm, 1.0)
    inside = rng.standard_normal((count // 2, d))
    inside *= reach * rng.random((len(inside), 1)) ** (1.0 / d) / np.sqrt(squared_norms(inside))[:, None]
    rows = geometry.points(sample).take(rng.integers(sample.shape[0], size=count - len(inside)))
    return np.concatenate([inside, into_ball(rows, reach)])
