r"""Few rows with the same Gram matrix: Caratheodory's theorem, computed.

A sum :math:`\sum_i w_i f_i` of vectors of rank N, w > 0, is also a sum over at most N of them: moving w along a null
vector drops a row. For the products :math:`f_i = a_i a_i^\top` of rows with r columns N is at most r (r + 1) / 2. In
groups this is linear in the rows (Maalouf, Jubran and Feldman 2019): 2 N intervals are reduced to N, which are halved.
"""

from collections.abc import Callable

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dgeqrf, dormqr

_RANK_TOLERANCE = 1e-13  # of a pivot beside the largest: what is lost in each step
_NO_PIVOT = 1e-14  # of an entry of a unit vector
_PANEL = 48  # rows dropped before the other null vectors are updated


def few_rows(rows_of: Callable[[int, int], np.ndarray], n: int, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows, ascending and at most ``rank``, and factors of their weights that keep the Gram matrix of all n rows."""
    if n <= rank:
        return np.arange(n), np.ones(n)
    edges = np.unique(np.linspace(0, n, min(2 * rank, n) + 1).astype(np.int64))
    starts, ends, factors = edges[:-1], edges[1:], np.ones(len(edges) - 1)
    while True:
        vectors = [gram_vector(rows_of(start, end)) for start, end in zip(starts, ends, strict=True)]
        factors = reduced_weights(np.array(vectors), factors)
        kept = factors > 0
        starts, ends, factors = starts[kept], ends[kept], factors[kept]
        if (ends - starts == 1).all():
            return starts, factors
        middle = (starts + ends + 1) // 2
        starts, ends = np.column_stack([starts, middle]).ravel(), np.column_stack([middle, ends]).ravel()
        factors, full = np.repeat(factors, 2), starts < ends
        starts, ends, factors = starts[full], ends[full], factors[full]


def reduced_weights(vectors: np.ndarray, weights: np.ndarray) -> np.ndarray:
    r"""Non-negative weights with the same :math:`\sum_i w_i f_i`, at most as many of them positive as the rank.

    Panels of null vectors of the (k, N) ``vectors`` are used up to drop as many rows; O(k^2 N) time.
    """
    norms = np.linalg.norm(vectors, axis=1)
    alive = np.flatnonzero((weights > 0) & (norms > 0))
    found = np.zeros(len(weights))
    x = weights[alive] * norms[alive]
    units = vectors[alive] / norms[alive, None]
    (reflectors, tau), R, _ = scipy.linalg.qr(units, mode="raw", pivoting=True, check_finite=False)
    pivots = np.abs(R.diagonal())
    rank = int(np.count_nonzero(pivots > _RANK_TOLERANCE * pivots.max(initial=0.0)))
    Z = np.zeros((len(alive), len(alive) - rank), order="F")
    Z[rank:] = np.eye(Z.shape[1])
    if Z.shape[1]:
        Z = _times_q("L", reflectors[:, : len(tau)], tau, Z)
    while Z.shape[1]:
        dropped = _drop_rows(Z[:, :_PANEL].copy(), x)
        reflectors, tau, *_ = dgeqrf(Z[dropped].T)
        kept = np.delete(np.arange(len(x)), dropped)
        Z = np.asfortranarray(_times_q("R", reflectors, tau, Z)[kept, len(dropped) :])
        x, alive = x[kept], alive[kept]
    found[alive] = x / norms[alive]
    return found


def _times_q(side: str, reflectors: np.ndarray, tau: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Q Z or Z Q for the orthogonal factor Q of a QR, as LAPACK stores it."""
    _, size, _ = dormqr(side, "N", reflectors, tau, Z, -1)
    return np.asarray(dormqr(side, "N", reflectors, tau, Z, int(size[0]), overwrite_c=1)[0])


def _drop_rows(panel: np.ndarray, x: np.ndarray) -> list[int]:
    """Move the weights x along each null vector of the panel until one is zero; returns these rows."""
    dropped = []
    for _ in range(panel.shape[1]):
        z = panel[:, 0]
        steps = np.divide(x, np.abs(z), out=np.full(len(x), np.inf), where=np.abs(z) > _NO_PIVOT)
        row = int(np.argmin(steps))
        x -= np.copysign(steps[row], z[row]) * z
        np.maximum(x, 0.0, out=x)
        x[row] = 0.0
        dropped.append(row)
        v = panel[row].copy()  # a reflection that leaves the row in the first vector only, which is dropped
        v[0] += np.copysign(np.linalg.norm(v), v[0])
        panel = (panel - np.outer(panel @ v, v * (2.0 / (v @ v))))[:, 1:]
        panel[row] = 0.0
    return dropped


def gram_vector(U: np.ndarray) -> np.ndarray:
    """(r (r + 1) / 2,) the Gram matrix of the rows, as a vector with the same inner products."""
    i, j = np.triu_indices(U.shape[1])
    return np.asarray((U.T @ U)[i, j] * np.where(i == j, 1.0, np.sqrt(2.0)))
