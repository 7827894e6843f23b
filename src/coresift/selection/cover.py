"""One sample for every region of the data: the rows nearest to the centres of k-means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._validation import check_count
from ..coresets.coreset import Coreset
from ..coresets.geometry import kmeans_centers
from .context import SelectionContext
from .inputs import Indices, dense_centred
from .strategy import Selector, one_blas_thread
from .variance import Floats

_CELLS = 5  # keeps the stream of the centres apart from others of the same seed
_BLOCK = 1 << 22  # distances that are held at once


@dataclass(frozen=True, eq=False, kw_only=True)
class Cover(Selector):
    """As many cells of k-means as the budget has samples: of each, the sample nearest to its centre, once and for all.

    A sum over the data hardly notices a cluster of a thousandth of the samples, so that no draw made for sums finds it.
    A cover does: use it for nearest neighbours and for rare groups, and :class:`FixedCoreset` to train networks. A
    sample weighs as much as its cell. The registry's ``COVER`` is ``PerClass(Cover(), power=0.5)``.

    Parameters
    ----------
    features : "raw", "pca", array or callable, default "pca"
        What distances are measured in: as in :class:`RBF`.
    n_components : int, default 50
    per_cell : int, default 64
        The centres are those of a random part of the data, of so many samples a cell at most.
    seed : int, optional
        By default the run's own, ``SelectionContext(seed=)``.
    """

    features: Any = "pca"
    n_components: int = 50
    per_cell: int = 64
    seed: int | None = None

    def _check(self) -> None:
        check_count(self.n_components, "n_components")
        check_count(self.per_cell, "per_cell")
        if self.seed is not None:
            check_count(self.seed, "seed", 0)

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        by = self.features if isinstance(self.features, str) else id(self.features)
        key = (self.name, size, by, self.n_components, self.per_cell, self.seed)
        (rows, weights), _ = context.kept(key, lambda: (self._covered(context, size), self))
        total = float(context.sizes.sum())
        return Coreset(rows, weights, context.n_samples, method=self.name, total_weight=total)

    def _covered(self, context: SelectionContext, size: int) -> tuple[Indices, Floats]:
        features = dense_centred(context.features(self.features, self.n_components))
        own = context.fixed_rng(_CELLS, self.seed)
        with context.accounted(f"cells ({self.name})", len(features)), one_blas_thread():
            sample = own.permutation(len(features))[: self.per_cell * size]
            centers = kmeans_centers(features[sample], size, int(own.integers(2**31)))
            cells, distances = _nearest(features, centers)
        order = np.lexsort((distances, cells))  # cell by cell, the nearest first
        is_first = np.r_[True, cells[order][1:] != cells[order][:-1]]
        chosen = order[is_first]
        if len(chosen) < size:  # empty cells: what is worst represented comes in addition
            others = order[~is_first]
            worst = np.argsort(-distances[others], kind="stable")[: size - len(chosen)]
            chosen = np.concatenate((chosen, others[worst]))
        masses = np.bincount(cells, weights=context.sizes)
        shares = np.bincount(cells[chosen], minlength=len(masses))
        return chosen, masses[cells[chosen]] / shares[cells[chosen]]


def _nearest(features: Floats, centers: Floats) -> tuple[Indices, Floats]:
    """The nearest centre of every row, and the square of its distance."""
    cells = np.empty(len(features), dtype=np.int64)
    squares = np.einsum("ij,ij->i", features, features)
    norms = np.einsum("ij,ij->i", centers, centers)
    step = max(1, _BLOCK // len(centers))
    for start in range(0, len(features), step):
        block = slice(start, start + step)
        far = norms - 2.0 * features[block] @ centers.T
        cells[block] = far.argmin(axis=1)
        squares[block] += far[np.arange(len(far)), cells[block]]
    return cells, squares
