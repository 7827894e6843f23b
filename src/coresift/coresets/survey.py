"""The first pass over the rows: their mass, mean and spread, the farthest of them, and samples drawn by keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import norm
from scipy.spatial.distance import cdist

from ..core.draw import Draw, KeyCandidates, finish_keys, keys_of, merge_candidates, smallest
from ..core.points import BLOCK_BYTES, Block as PointBlock, Matrix, Points, row_slices, squared_norms
from ..rows.rows import Block, check_block, recode

_FARTHEST_KEPT = 128
_SLACK = 4096  # rows kept above twice what is needed before they are sorted out
# an origin this much farther (squared) than the rows are wide costs two digits, not more
LARGEST_SHIFT = 100.0
_SAFE_SQUARES = (1e-120, 1e120)  # squares inside are free of overflow and underflow, and so are sums of them


def float_rows(X: Matrix) -> Matrix:
    """Rows in C order, so that the same rows give the same bits however they are stored."""
    return np.ascontiguousarray(X) if isinstance(X, np.ndarray) else X


def stacked(parts: list[Any]) -> Any:
    """Arrays, or sparse matrices, one below the other."""
    return sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)


class KeyPool:
    """The ``sizes[g] + 1`` smallest keys of every group, with scores, weights and attached columns.

    The keys are those of :func:`coresift.core.draw.keys_of`, functions of the seed and the number of the row: what is
    kept does not depend on blocks, nor on ``bars``, a guess of the largest keys that can win. If a guess was too low,
    :meth:`is_complete` says so. Memory: about three times what is kept in the end.
    """

    def __init__(self, seed: int, sizes: np.ndarray, bars: np.ndarray | None = None) -> None:
        self.seed, self.sizes = seed, sizes
        self.bars = np.full(len(sizes), np.inf) if bars is None else bars.copy()
        self.counts = np.zeros(len(sizes), dtype=np.int64)  # rows seen that could be drawn
        self._parts: list[dict[str, Any]] = []
        self._pending = 0
        self._is_compact = False
        self._limit = 2 * int(sizes.sum()) + _SLACK

    def update(
        self, start: int, scores: np.ndarray, weights: np.ndarray, groups: np.ndarray | None = None, **attached: Any
    ) -> None:
        """Add rows numbered from ``start``; rows of ``attached`` arrays go with them."""
        keys, drawable = keys_of(scores, self.seed, start), scores > 0
        if groups is None:
            self.counts[0] += np.count_nonzero(drawable)
        else:
            self.counts += np.bincount(groups[drawable], minlength=len(self.sizes))
        kept = np.flatnonzero((keys <= self.bars[0 if groups is None else groups]) & drawable)
        if len(kept) == 0:
            return
        part = {name: values[kept] for name, values in attached.items()}
        part |= {"row": kept + start, "key": keys[kept], "score": scores[kept], "weight": weights[kept]}
        part["group"] = np.zeros(len(kept), np.int32) if groups is None else groups[kept].astype(np.int32)
        self._add(part)

    def merge(self, other: KeyPool, **renumbered: np.ndarray) -> None:
        """Add what was kept of later rows; ``renumbered`` maps the entries of attached columns."""
        self.counts += other.counts
        for part in other._parts:
            self._add({**part, **{name: to[part[name]] for name, to in renumbered.items()}})

    def compact(self) -> None:
        if self._is_compact or not self._parts:
            return
        columns = self._parts[0]
        if len(self._parts) > 1:
            columns = {name: stacked([part[name] for part in self._parts]) for name in columns}
        kept = self._contenders(columns["group"], columns["key"], columns["row"])
        self._parts = [{name: values[kept] for name, values in columns.items()}]
        self._pending, self._is_compact = len(kept), True

    def _contenders(self, group: np.ndarray, key: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Positions, ascending, of the keys that can win; lowers the bars to them."""
        if len(self.sizes) == 1:
            kept = smallest(key, int(self.sizes[0]) + 1)
            if len(kept) > self.sizes[0]:
                self.bars[0] = min(self.bars[0], float(key[kept].max()))
            return kept
        order = np.lexsort((row, key, group))  # ties by row, as in core.draw
        sizes = np.bincount(group, minlength=len(self.sizes))
        rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        kept = order[rank < self.sizes[group[order]] + 1]
        full = np.flatnonzero(sizes > self.sizes)
        ends = np.cumsum(sizes) - sizes + self.sizes  # where the last of a full group stands in the order
        self.bars[full] = np.minimum(self.bars[full], key[order[ends[full]]])
        return np.sort(kept)

    def is_complete(self) -> bool:
        """Whether every group has as many candidates as it needs, or as it has rows."""
        self.compact()
        found = np.bincount(self.columns()["group"], minlength=len(self.sizes))
        return bool((found >= np.minimum(self.sizes + 1, self.counts)).all())

    def columns(self) -> dict[str, Any]:
        """What is kept, by name, in the order of the rows; empty if there was nothing to keep."""
        self.compact()
        if not self._parts:
            return {name: np.empty(0, dtype=np.int64) for name in ("row", "key", "score", "weight", "group")}
        return self._parts[0]

    def winners(self) -> tuple[dict[str, Any], list[Draw]]:
        """What goes with the rows drawn, in their order, and the draw of each group."""
        columns, draws = self.columns(), self.draws()
        kept = np.isin(columns["row"], np.concatenate([draw.indices for draw in draws]))
        return {name: values[kept] for name, values in columns.items()}, draws

    def draws(self) -> list[Draw]:
        columns = self.columns()
        found = []
        for group, size in enumerate(self.sizes):
            mine = columns["group"] == group
            candidates = KeyCandidates(*(columns[name][mine] for name in ("row", "key", "score", "weight")))
            found.append(finish_keys(merge_candidates([candidates], int(size)), int(size)))
        return found

    def _add(self, part: dict[str, Any]) -> None:
        self._parts.append(part)
        self._is_compact = False
        self._pending += len(part["row"])
        if self._pending > self._limit:
            self.compact()


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

    ``near`` is a guess of the mean. If the mean turns out to be ``e`` away, the row farthest from it is among those
    within ``2e`` of the farthest from ``near``, so that mostly no second pass is needed to find it (:meth:`farthest`).
    Lengths are in units of ``unit``, a power of two, and positions relative to ``near``. ``all_equal``: the rows of
    positive weight are known to be equal to ``near``.
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
        self._bar = -1.0

    def update(self, block: Block) -> None:
        """Add a block of rows; refuse what is not finite."""
        w, X = block.weights, float_rows(block.X)
        codes = None if block.labels is None else recode(block.labels, self.labels)[block.labels.codes]
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

    def merge(self, other: Survey) -> None:
        to = np.array([self.labels.setdefault(name, len(self.labels)) for name in other.labels], dtype=np.int64)
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
        shift = float(norm((mean - self.near) / self.unit))  # SciPy's does not overflow: a given centre may be far away
        reach = float(np.sqrt(self._far_squares.max()))
        few = len(self._far_squares) < _FARTHEST_KEPT
        if not few and not float(np.sqrt(self._far_squares.min())) < reach - 2.0 * shift:
            return (reach + shift) * self.unit, False
        unit = self.unit * max(1.0, 1e-100 * shift)  # squares of a long way would overflow
        return float(np.sqrt(Points(self.far, mean, unit, np.inf).gather(slice(None)).sq_norms.max())) * unit, True

    def _relative(self, X: Matrix, origin: np.ndarray) -> PointBlock:
        return Points(X, origin, self.unit, np.inf).gather(slice(None))

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
        per_row = 8.0 * (X.shape[1] if isinstance(X, np.ndarray) else 2.0 * X.nnz / max(n, 1))
        for part in () if self.all_equal else row_slices(n, per_row, BLOCK_BYTES):
            rows = self._relative(X[part], self.origin)
            squares[part] = rows.sq_norms
            if shift.any():
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


class Extent:
    """The smallest and the largest number in each column, over the rows of positive weight."""

    def __init__(self, d: int) -> None:
        self.low, self.high = np.full(d, np.inf), np.full(d, -np.inf)

    def update(self, block: Block) -> None:
        kept = block.X[block.weights > 0]
        if kept.shape[0]:
            low, high = kept.min(axis=0), kept.max(axis=0)
            if sp.issparse(low):
                low, high = low.toarray().ravel(), high.toarray().ravel()
            self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)

    def merge(self, other: Extent) -> None:
        self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)

    @property
    def unit(self) -> float:
        """A power of two of the magnitude of the largest number."""
        peak = max(float(self.high.max()), -float(self.low.min()))
        return 2.0 ** min(float(np.ceil(np.log2(peak))), 1023.0) if peak > 0 else 1.0


class Reach:
    """The largest distance from a centre of a row of positive weight, in units of ``unit``, in any metric."""

    def __init__(self, center: np.ndarray, unit: float = 1.0, metric: Any = "euclidean") -> None:
        self.center, self.unit, self.metric, self.distance = center, unit, metric, 0.0

    def update(self, block: Block) -> None:
        if self.metric == "euclidean":
            parts = Points(float_rows(block.X), self.center, self.unit, np.inf).blocks(budget=BLOCK_BYTES)
            distances = np.sqrt(np.concatenate([rows.sq_norms for _, rows in parts]))
        else:
            distances = cdist(block.X, self.center[None], metric=self.metric)[:, 0]
        self.distance = max(self.distance, float(distances.max(where=block.weights > 0, initial=0.0)))

    def merge(self, other: Reach) -> None:
        self.distance = max(self.distance, other.distance)
