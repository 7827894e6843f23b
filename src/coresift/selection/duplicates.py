"""Near-duplicates: how common they are, and one row of each group. Never more than a few numbers per row."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .inputs import Indices

_NEAR, _EQUAL = 0.03, 1e-6  # of the median distance
_ALL = 0.95  # share from which there is no gap to see
_PROBE, _POOL, _BLOCK = 500, 50_000, 8192
_ROUNDS, _PROJECTIONS = 12, 6


def duplicate_share(X: NDArray[Any], rng: np.random.Generator) -> tuple[float, float]:
    """Estimate the share of rows that have a near-duplicate, and return the largest distance of two of them.

    A near-duplicate is closer than 0.03 of the median distance. Where rows are dense, as in a few columns, nearest
    neighbours are that close too, but most of them not closer than 0.01: then only equal rows count.
    """
    rows = rng.permutation(len(X))[:_POOL]
    mean = X[rows[:_BLOCK]].mean(axis=0, dtype=np.float64)
    probe = X[rows[:_PROBE]] - mean  # (p, d)
    squares = np.einsum("ij,ij->i", probe, probe)
    nearest, median = np.full(len(probe), np.inf), 0.0
    for start in range(0, len(rows), _BLOCK):
        block = X[rows[start : start + _BLOCK]] - mean
        found = squares[:, None] + np.einsum("ij,ij->i", block, block) - 2.0 * (probe @ block.T)
        found[found < 1e-13 * squares.max()] = 0.0  # rounding
        if start == 0:
            median = float(np.sqrt(np.median(found[:, : len(probe)][~np.eye(len(probe), dtype=bool)])))
            np.fill_diagonal(found, np.inf)
        nearest = np.minimum(nearest, found.min(axis=1))
    equal, third, near = (float(np.mean(np.sqrt(nearest) <= scale * median)) for scale in (_EQUAL, _NEAR / 3, _NEAR))
    return (near, _NEAR * median) if near / 2 <= third and near < _ALL else (equal, _EQUAL * median)


def without_duplicates(X: NDArray[Any], labels: Any, distance: float, rng: np.random.Generator) -> Indices:
    """Rows such that every other row is within ``distance`` of one with the same label, as far as hashing finds them.

    In each round a few random projections, cut into intervals, put near rows into the same cell, and the rows of a cell
    are compared with its first one. O(n d) for a round; rows that a border separates meet in another round.
    """
    kept = rng.permutation(len(X))  # so the first row of a cell is any of them
    for _ in range(_ROUNDS):
        directions = rng.normal(size=(X.shape[1], _PROJECTIONS)) / (4.0 * distance + 1e-300)
        places = np.concatenate([X[kept[i : i + _BLOCK]] @ directions for i in range(0, len(kept), _BLOCK)])
        cells = np.floor(places + rng.random(_PROJECTIONS))
        if labels is not None:
            cells = np.column_stack((cells, labels[kept]))
        _, first, cell = np.unique(cells, axis=0, return_index=True, return_inverse=True)
        leader = kept[first[cell.ravel()]]
        is_near = np.zeros(len(kept), dtype=bool)
        for i in range(0, len(kept), _BLOCK):
            part = slice(i, i + _BLOCK)
            gaps = X[kept[part]].astype(np.float64) - X[leader[part]]
            is_near[part] = np.einsum("ij,ij->i", gaps, gaps) <= distance**2
        kept = kept[~is_near | (leader == kept)]
    return np.sort(kept)
