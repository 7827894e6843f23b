"""Facility location by lazy greedy, over distances that need not fit into memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .gradients import Gradients

Floats = NDArray[np.float64]
_BLOCK_BYTES = 1 << 24  # of the temporaries: they stay near the cache
_FIRST_TRIES = 8  # candidates that are evaluated together at first; doubled while none is good enough


class Distances:
    r"""Euclidean distances from candidates to all points, :math:`d_{ij}^2 = |a_i|^2 + |a_j|^2 - 2 a_i \cdot a_j`.

    Held as a matrix of ``len(candidates) * n`` numbers when that takes at most ``memory_limit`` bytes, otherwise made
    again, block by block, whenever it is asked for.
    """

    def __init__(self, gradients: Gradients, candidates: NDArray[np.int64], memory_limit: float) -> None:
        self._gradients = gradients.double()
        self._squares = self._gradients.sq_norms()
        self.candidates = candidates
        self.n = len(gradients)
        self.is_held = 8.0 * self.n * len(candidates) <= memory_limit
        self._matrix: Floats | None = None
        if self.is_held:
            self._matrix = np.empty((len(candidates), self.n))
            for start in range(0, len(candidates), self.block_rows):
                rows = slice(start, start + self.block_rows)
                self._compute(candidates[rows], self._matrix[rows])

    @property
    def block_rows(self) -> int:
        """Candidates whose distances to all points make one block."""
        return max(1, _BLOCK_BYTES // (8 * self.n))

    def __call__(self, positions: NDArray[np.int64] | slice) -> Floats:
        """Distances from some candidates (by their place among them) to all points, (m, n). Not to be changed."""
        if self._matrix is not None:
            return self._matrix[positions]
        return self._compute(self.candidates[positions])

    def _compute(self, rows: NDArray[np.int64], out: Floats | None = None) -> Floats:
        distances = self._gradients.products(self._gradients.take(rows), out)
        distances *= -2.0
        distances += self._squares[rows, None]
        distances += self._squares
        np.maximum(distances, 0.0, out=distances)
        distances[np.arange(len(rows)), rows] = 0.0  # rounding would leave a little
        return np.sqrt(distances, out=distances)


class Facilities(NamedTuple):
    """Picks in the order of the greedy, as rows of the points, and for each the weight of the points nearest to it."""

    rows: NDArray[np.int64]
    served: Floats
    cost: float  # sum of the weighted distances from every point to the nearest pick
    n_evaluated: int  # distance rows that were looked at


def facility_location(distances: Distances, size: int, weights: Floats) -> Facilities:
    r"""Greedy for :math:`\max_{|S| = k} \sum_i w_i \max_{j \in S} (d_{\max} - d_{ij})`.

    A gain is :math:`\sum_i w_i (\delta_i - d_{ij})_+`, with :math:`\delta_i` the distance to the nearest pick so far.
    The first pick has the least sum of distances, whatever :math:`d_{\max}` is, and from then on :math:`d_{\max}`
    cancels: it is never computed. Gains only fall (the function is submodular), so an old gain is an upper bound:
    candidates are evaluated from the largest bound down, until the best gain found is above all bounds that remain
    (Minoux, 1978). What is picked is what the plain greedy picks, of equal gains the first; the value is at least
    1 - 1/e of the best.

    Two passes over all distances, then rows of distances as they are needed. O(n) memory beside ``distances``.
    """
    m, block = len(distances.candidates), distances.block_rows
    sums = _over_blocks(distances, block, lambda rows: rows @ weights)
    picks = [int(np.argmin(sums))]
    nearest = distances(np.array(picks))[0].copy()
    owner = np.zeros(distances.n, dtype=np.int64)

    def gains_of(rows: Floats) -> Floats:
        gap = nearest - rows
        return np.maximum(gap, 0.0, out=gap) @ weights

    bounds = _over_blocks(distances, block, gains_of)
    bounds[picks[0]] = -np.inf
    n_evaluated, is_fresh = 2 * m, np.ones(m, dtype=bool)
    while len(picks) < size:
        best = float(np.max(bounds, where=is_fresh, initial=-np.inf))
        tries = _FIRST_TRIES
        while True:
            stale = np.flatnonzero(~is_fresh & (bounds >= best) & (bounds > -np.inf))
            if not len(stale):
                break
            if len(stale) > tries:
                stale = stale[np.argpartition(bounds[stale], len(stale) - tries)[-tries:]]
            bounds[stale] = np.concatenate(
                [gains_of(distances(stale[at : at + block])) for at in range(0, len(stale), block)]
            )
            is_fresh[stale] = True
            n_evaluated += len(stale)
            best = max(best, float(bounds[stale].max()))
            tries *= 2
        pick = int(np.argmax(np.where(is_fresh, bounds, -np.inf)))
        row = distances(np.array([pick]))[0]
        closer = row < nearest
        nearest[closer] = row[closer]
        owner[closer] = len(picks)
        picks.append(pick)
        bounds[pick] = -np.inf
        is_fresh[:] = False
    rows = distances.candidates[np.array(picks)]
    owner[rows] = np.arange(size)  # also where another pick is as near: each stands for itself at least
    served: Floats = np.bincount(owner, weights=weights, minlength=size).astype(np.float64, copy=False)
    return Facilities(rows, served, float(nearest @ weights), n_evaluated)


def _over_blocks(distances: Distances, block: int, summary: Callable[[Floats], Floats]) -> Floats:
    starts = range(0, len(distances.candidates), block)
    return np.concatenate([summary(distances(slice(start, start + block))) for start in starts])
