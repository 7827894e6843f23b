"""Medoids by facility location: of the gradients (CRAIG), or of the features, through a neighbour graph if many."""

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import sparse

from .._progress import logger
from ..coresets.coreset import Coreset
from ..coresets.covering import cover_centers, nearest_centers
from .context import SelectionContext
from .gradients import Array, Gradients
from .inputs import Floats, Indices
from .keeping import Chosen, Geometric
from .strategy import ONE_BLAS_THREAD, Selector, setting

_BLOCK_BYTES = 1 << 24  # size of the temporaries: they stay near the cache
_FIRST_TRIES = 8  # candidates evaluated together at first; doubled while none is good enough
_POOL = 9  # separates the stream of the pool and of the cells from others of the same seed
_ROWS_PER_PICK = 128
_MEMORY = 512 * 2**20  # bytes of the matrix of distances; it is computed in blocks if it is larger
_AT_ONCE = 1024  # rows compared with others in one go
_SEARCHED = 3000  # rows among which the neighbours of a row are searched, at least


@dataclass(frozen=True, eq=False)
class Craig(Selector):
    r"""Samples whose gradients are close to all others (Mirzasoleiman, Bilmes and Leskovec, ICML 2020).

    .. math:: \max_{|S| = k} \sum_i \max_{j \in S} \bigl(d_{\max} - |a_i - a_j|\bigr)

    with :math:`a_i` the last-layer gradient of sample i, by greedy. A pick weighs the number of samples that it is
    nearest to; the weights sum to n. The weighted gradient is within :math:`\sum_i \min_{j \in S} |a_i - a_j|` of all.

    Parameters
    ----------
    memory_limit : float, default 512 MiB
        Distances that take more bytes are computed when needed, not stored.
    """

    memory_limit: float = setting(_MEMORY, above=0.0)

    def _select(self, context: SelectionContext, size: int, rng: Generator) -> Coreset:
        with ONE_BLAS_THREAD:
            distances = Distances(context.gradients(), self.memory_limit)
            if not distances.is_held:
                logger.info("Craig: the distances of %d samples exceed memory_limit; using blocks.", distances.n)
            return self.coreset(context, *facility_location(distances, size, context.sizes))


@dataclass(frozen=True, eq=False, kw_only=True)
class FacilityLocation(Geometric):
    r"""Facility location over features, by greedy (Wei, Iyer and Bilmes, ICML 2015, for data subsets).

    .. math:: \max_{|S| = k} \sum_i \max_{j \in S} \bigl(c_i - |x_i - x_j|\bigr)_+

    Each pick weighs the number of rows that it is nearest to; the weights sum to n. Up to ``max_exact`` rows, c is the
    largest distance: the picks are those of the plain greedy, within 1 - 1/e of the best. Above, each row knows its
    nearest rows only, twice as many as there are rows per pick and at least 32, and :math:`c_i` is the distance to the
    last of them: the same guarantee holds for this objective. At most 128 rows per pick enter the greedy, drawn at
    random; weights count all rows. The registry's ``FACILITY-LOCATION`` is ``PerClass(FacilityLocation())``.

    Parameters
    ----------
    max_exact : int, default 20000
    """

    max_exact: int = setting(20_000, least=1)

    name = "facility-location"

    def _picked(self, context: SelectionContext, X: Array, size: int, include: Indices) -> Chosen:
        rng = context.fixed_rng(_POOL)
        n_pool = min(len(X), max(self.max_exact, _ROWS_PER_PICK * size))
        pool = np.arange(len(X))
        if n_pool < len(X):
            others = np.setdiff1d(pool, include, assume_unique=True)
            pool = np.sort(np.concatenate((include, rng.permutation(others)[: n_pool - len(include)])))
        own, sizes, kept = X[pool], context.sizes[pool], np.searchsorted(pool, include)
        if n_pool <= self.max_exact:
            picks, _ = facility_location(Distances(Gradients(own), _MEMORY), size, sizes, kept)
        else:
            graph = neighbour_graph(own, min(max(32, 2 * n_pool // size), n_pool), rng)
            picks = graph_facilities(*graph, size, sizes, kept)
        rows = pool[picks]
        owner, _ = nearest_centers(X, X[rows])
        owner[rows] = np.arange(size)  # even if another pick is as near
        return rows, np.bincount(owner, weights=context.sizes, minlength=size).astype(np.float64, copy=False)


class Distances:
    """Distances between all points; stored if the matrix takes at most ``memory_limit`` bytes."""

    def __init__(self, gradients: Gradients, memory_limit: float) -> None:
        self._gradients = gradients.double()
        self._squares = self._gradients.sq_norms()
        self.n = len(gradients)
        self.block_rows = max(1, _BLOCK_BYTES // (8 * self.n))
        self.blocks = [slice(start, start + self.block_rows) for start in range(0, self.n, self.block_rows)]
        self.is_held = 8.0 * self.n**2 <= memory_limit
        if self.is_held:
            self._matrix = np.empty((self.n, self.n))
            for rows in self.blocks:
                self._compute(rows, self._matrix[rows])

    def __call__(self, rows: Indices | slice) -> Floats:
        """Distances from some points to all, (m, n). Do not modify them."""
        return self._matrix[rows] if self.is_held else self._compute(rows)

    def _compute(self, rows: Indices | slice, out: Floats | None = None) -> Floats:
        distances = self._gradients.products(self._gradients.take(rows), out)
        distances *= -2.0
        distances += self._squares[rows, None]
        distances += self._squares
        np.maximum(distances, 0.0, out=distances)
        distances[np.arange(len(distances)), np.arange(self.n)[rows]] = 0.0  # exactly, in spite of rounding
        return np.sqrt(distances, out=distances)


def facility_location(
    distances: Distances, size: int, weights: Floats, include: Indices | None = None
) -> tuple[Indices, Floats]:
    r"""Greedy for :math:`\max_{|S| = k} \sum_i w_i \max_{j \in S} (d_{\max} - d_{ij})`: picks, and what each serves.

    A gain is :math:`\sum_i w_i (\delta_i - d_{ij})_+`, with :math:`\delta_i` the distance to the nearest pick so far.
    The first pick has the least sum of distances; from then on :math:`d_{\max}` cancels. Gains only fall, so an old
    gain is an upper bound: candidates are tried from the largest bound down, until the best gain exceeds the remaining
    bounds (Minoux, 1978). The picks are those of the plain greedy, after the rows in ``include``. Two passes over all
    distances, then rows as needed; O(n) memory in addition to ``distances``.
    """
    n, blocks, at_once = distances.n, distances.blocks, distances.block_rows
    if include is None or not len(include):
        include = np.array([np.argmin(np.concatenate([distances(rows) @ weights for rows in blocks]))])
    picks: list[int] = []
    nearest, owner = np.full(n, np.inf), np.zeros(n, dtype=np.int64)

    def add(pick: int) -> None:
        row = distances(np.array([pick]))[0]
        closer = row < nearest
        nearest[closer] = row[closer]
        owner[closer] = len(picks)
        picks.append(pick)

    for pick in include.tolist():
        add(pick)

    def gains_of(rows: Floats) -> Floats:
        gap = nearest - rows
        return np.maximum(gap, 0.0, out=gap) @ weights

    bounds = np.concatenate([gains_of(distances(rows)) for rows in blocks])
    bounds[picks] = -np.inf
    is_fresh = np.ones(n, dtype=bool)
    while len(picks) < size:
        best = float(np.max(bounds, where=is_fresh, initial=-np.inf))
        tries = _FIRST_TRIES
        while True:
            stale = np.flatnonzero(~is_fresh & (bounds >= best) & (bounds > -np.inf))
            if not len(stale):
                break
            if len(stale) > tries:
                stale = stale[np.argpartition(bounds[stale], len(stale) - tries)[-tries:]]
            lots = (stale[at : at + at_once] for at in range(0, len(stale), at_once))
            bounds[stale] = np.concatenate([gains_of(distances(lot)) for lot in lots])
            is_fresh[stale] = True
            best = max(best, float(bounds[stale].max()))
            tries *= 2
        pick = int(np.argmax(np.where(is_fresh, bounds, -np.inf)))
        add(pick)
        bounds[pick] = -np.inf
        is_fresh[:] = False
    rows = np.array(picks)
    owner[rows] = np.arange(size)  # even if another pick is as near: each represents at least itself
    return rows, np.bincount(owner, weights=weights, minlength=size).astype(np.float64, copy=False)


def neighbour_graph(X: Array, n_neighbors: int, rng: Generator) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The nearest rows of each row, itself first, and their distances: (n, k) twice, approximately.

    Rows are put into about sqrt(n) cells of k-means. Neighbours are searched in the own cell and those nearest to it,
    until these hold ``max(3000, 4 k)`` rows, or at random among them. Memory is O(n k), time O(n k d) but for cells.
    """
    n = len(X)
    n_cells = max(1, int(np.sqrt(n)))
    X = X.astype(np.float64, copy=False)  # float32 would lose the distances beside a column of large numbers
    centers = cover_centers(X[rng.permutation(n)[: 40 * n_cells]], n_cells, rng)
    cells, _ = nearest_centers(X, centers)
    counts = np.bincount(cells, minlength=len(centers))
    members = np.split(np.argsort(cells, kind="stable"), np.cumsum(counts)[:-1])
    rows = np.empty((n, n_neighbors), dtype=np.int32)
    far = np.empty((n, n_neighbors), dtype=np.float32)
    wanted = min(n, max(_SEARCHED, 4 * n_neighbors))
    norms = np.einsum("ij,ij->i", X, X)
    for cell, members_here in enumerate(members):
        near = np.argsort(((centers - centers[cell]) ** 2).sum(axis=1), kind="stable")
        n_near = int(np.searchsorted(np.cumsum(counts[near]), wanted)) + 1
        pool = np.concatenate([members[each] for each in near[:n_near]])
        for start in range(0, len(members_here), _AT_ONCE):
            own, others = members_here[start : start + _AT_ONCE], pool
            if len(pool) > 2 * wanted:
                others = np.union1d(own, rng.choice(pool, wanted, replace=False))
            squares = X[own] @ X[others].T
            squares *= -2.0
            squares += norms[others]
            squares += norms[own, None]
            squares[own[:, None] == others] = -1.0  # itself, exactly and first
            found = np.argpartition(squares, n_neighbors - 1, axis=1)[:, :n_neighbors]
            rows[own] = others[found]
            far[own] = np.sqrt(np.maximum(np.take_along_axis(squares, found, axis=1), 0.0))
    return rows, far


def graph_facilities(
    rows: NDArray[np.int32], far: NDArray[np.float32], size: int, weights: Floats, include: Indices
) -> Indices:
    r"""Lazy greedy for :math:`\sum_i w_i \max_{j \in S} (c_i - d_{ij})_+` over the edges (i, ``rows[i]``)."""
    n, n_neighbors = rows.shape
    nearest = far.max(axis=1)  # c, and later the distance to the nearest pick, if that is smaller
    ends = np.arange(0, rows.size + 1, n_neighbors, dtype=np.int32 if rows.size < 2**31 else np.int64)
    graph = sparse.csr_array((far.ravel(), rows.ravel(), ends), shape=(n, n)).tocsc()  # a distance of 0 stays an edge
    served, gaps, starts = graph.indices, graph.data, graph.indptr

    def edges(row: int) -> slice:
        return slice(starts[row], starts[row + 1])

    def gain(row: int) -> float:
        at = edges(row)
        return float(np.maximum(nearest[served[at]] - gaps[at], 0.0) @ weights[served[at]])

    picks: list[int] = []

    def add(pick: int) -> None:
        at = edges(pick)
        nearest[served[at]] = np.minimum(nearest[served[at]], gaps[at])
        picks.append(pick)

    given = set(include.tolist())
    for pick in sorted(given):
        add(pick)
    first = np.zeros(n)
    for start in range(0, n, step := max(1, _BLOCK_BYTES // (8 * n_neighbors))):
        block = slice(start, start + step)
        gains = weights[block, None] * np.maximum(nearest[block, None] - far[block], 0.0)
        first += np.bincount(rows[block].ravel(), weights=gains.ravel(), minlength=n)
    bounds = [(-value, row) for row, value in enumerate(first.tolist()) if row not in given]
    heapq.heapify(bounds)
    while len(picks) < size:  # gains only fall, so an old one is an upper bound (Minoux, 1978)
        fresh = -gain(bounds[0][1]), bounds[0][1]
        heapq.heapreplace(bounds, fresh)
        if bounds[0] is fresh:
            add(heapq.heappop(bounds)[1])
    return np.array(picks, dtype=np.int64)
