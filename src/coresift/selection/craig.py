"""CRAIG: medoids of the gradients, found by facility location over distances that need not fit into memory."""

from dataclasses import dataclass

import numpy as np

from .._progress import logger
from ..coresets.coreset import Coreset
from .context import SelectionContext
from .gradients import Gradients
from .inputs import Floats, Indices
from .strategy import Selector, one_blas_thread, setting

_BLOCK_BYTES = 1 << 24  # size of the temporaries: they stay near the cache
_FIRST_TRIES = 8  # candidates evaluated together at first; doubled while none is good enough


@dataclass(frozen=True, eq=False)
class Craig(Selector):
    r"""Samples whose gradients are close to all others (Mirzasoleiman, Bilmes and Leskovec, ICML 2020).

    .. math:: \max_{|S| = k} \sum_i \max_{j \in S} \bigl(d_{\max} - |a_i - a_j|\bigr)

    with :math:`a_i` the last-layer gradient of sample i, by greedy. A pick weighs the number of samples that it is
    nearest to, at least 1; the weights sum to n. By the triangle inequality the weighted gradient is within
    :math:`\sum_i \min_{j \in S} |a_i - a_j|` of the full one.

    Parameters
    ----------
    memory_limit : float, default 512 MiB
    max_pairs : float, default 1e10
        Distances that take more bytes are computed when needed, not stored; with more pairs, picks come from random
        candidates, and a warning and ``method`` say so.
    """

    memory_limit: float = setting(512 * 2**20, above=0.0)
    max_pairs: float = setting(1e10, above=0.0)

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        gradients = context.gradients()
        n, remark = len(gradients), ""
        candidates = np.arange(n)
        n_candidates = max(size, int(self.max_pairs / n))
        if n_candidates < n:
            candidates = np.sort(rng.choice(n, n_candidates, replace=False))
            remark = f"picks among {n_candidates} of {n} samples"
            logger.warning("Craig: more pairs than max_pairs = %g; %s.", self.max_pairs, remark)
        with one_blas_thread():
            distances = Distances(gradients, candidates, self.memory_limit)
            if not distances.is_held:
                logger.info("Craig: %d x %d distances exceed memory_limit; computing in blocks.", len(candidates), n)
            rows, served = facility_location(distances, size, context.sizes)
        return self.coreset(context, rows, served, remark)


class Distances:
    r"""Distances from candidates to all points; stored if the matrix takes at most ``memory_limit`` bytes."""

    def __init__(self, gradients: Gradients, candidates: Indices, memory_limit: float) -> None:
        self._gradients = gradients.double()
        self._squares = self._gradients.sq_norms()
        self.candidates = candidates
        self.n = len(gradients)
        self.block_rows = max(1, _BLOCK_BYTES // (8 * self.n))
        self.is_held = 8.0 * self.n * len(candidates) <= memory_limit
        if self.is_held:
            self._matrix = np.empty((len(candidates), self.n))
            for start in range(0, len(candidates), self.block_rows):
                rows = slice(start, start + self.block_rows)
                self._compute(candidates[rows], self._matrix[rows])

    def __call__(self, positions: Indices | slice) -> Floats:
        """Distances from some candidates (positions among them) to all points, (m, n). Do not modify them."""
        return self._matrix[positions] if self.is_held else self._compute(self.candidates[positions])

    def _compute(self, rows: Indices, out: Floats | None = None) -> Floats:
        distances = self._gradients.products(self._gradients.take(rows), out)
        distances *= -2.0
        distances += self._squares[rows, None]
        distances += self._squares
        np.maximum(distances, 0.0, out=distances)
        distances[np.arange(len(rows)), rows] = 0.0  # exactly, in spite of rounding
        return np.sqrt(distances, out=distances)


def facility_location(
    distances: Distances, size: int, weights: Floats, include: Indices | None = None
) -> tuple[Indices, Floats]:
    r"""Greedy for :math:`\max_{|S| = k} \sum_i w_i \max_{j \in S} (d_{\max} - d_{ij})`: picks, and what each serves.

    A gain is :math:`\sum_i w_i (\delta_i - d_{ij})_+`, with :math:`\delta_i` the distance to the nearest pick so far.
    The first pick has the least sum of distances; from then on :math:`d_{\max}` cancels. Gains only fall, so an old
    gain is an upper bound: candidates are tried from the largest bound down, until the best gain exceeds the remaining
    bounds (Minoux, 1978). The picks are those of the plain greedy; the value is at least 1 - 1/e of the best. Two
    passes over all distances, then rows as needed; O(n) memory in addition to ``distances``. Candidates in ``include``
    are picked first.
    """
    m, block = len(distances.candidates), distances.block_rows
    blocks = [slice(start, start + block) for start in range(0, m, block)]
    if include is None or not len(include):
        include = np.array([np.argmin(np.concatenate([distances(rows) @ weights for rows in blocks]))])
    picks: list[int] = []
    nearest, owner = np.full(distances.n, np.inf), np.zeros(distances.n, dtype=np.int64)

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
    is_fresh = np.ones(m, dtype=bool)
    while len(picks) < size:
        best = float(np.max(bounds, where=is_fresh, initial=-np.inf))
        tries = _FIRST_TRIES
        while True:
            stale = np.flatnonzero(~is_fresh & (bounds >= best) & (bounds > -np.inf))
            if not len(stale):
                break
            if len(stale) > tries:
                stale = stale[np.argpartition(bounds[stale], len(stale) - tries)[-tries:]]
            lots = (stale[at : at + block] for at in range(0, len(stale), block))
            bounds[stale] = np.concatenate([gains_of(distances(lot)) for lot in lots])
            is_fresh[stale] = True
            best = max(best, float(bounds[stale].max()))
            tries *= 2
        pick = int(np.argmax(np.where(is_fresh, bounds, -np.inf)))
        add(pick)
        bounds[pick] = -np.inf
        is_fresh[:] = False
    rows = distances.candidates[np.array(picks)]
    owner[rows] = np.arange(size)  # even if another pick is as near: each represents at least itself
    served: Floats = np.bincount(owner, weights=weights, minlength=size).astype(np.float64, copy=False)
    return rows, served
