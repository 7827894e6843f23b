"""One sample for each region of the data: the samples nearest to k-means centres."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._validation import check_count
from ..coresets.bounds import kmeans_centers
from ..coresets.coreset import Coreset
from .context import SelectionContext
from .inputs import Floats, Indices, dense_centred
from .strategy import Checks, Selector, one_blas_thread

_CELLS = 5  # separates the stream of the centres from others of the same seed
_BLOCK = 1 << 22  # distances computed at once


@dataclass(frozen=True, eq=False, kw_only=True)
class Cover(Selector):
    """The sample nearest to the centre of each k-means cell, with as many cells as the budget; kept for the run.

    A cluster with a thousandth of the samples hardly changes a sum over the data, so draws made for sums miss it. A
    cover finds it: use it for nearest neighbours and rare groups, and :class:`FixedCoreset` to train networks. A sample
    weighs as much as its cell. The registry's ``COVER`` is ``PerClass(Cover(), power=0.5)``.

    Parameters
    ----------
    features : "raw", "pca", array or callable, default "pca"
        Features in which distances are measured, as in :class:`RBF`.
    n_components : int, default 50
    per_cell : int, default 64
        The centres are found from a random part of the data, with at most this many samples per cell.
    seed : int, by default that of the run, ``SelectionContext(seed=)``
    """

    features: Any = "pca"
    n_components: int = 50
    per_cell: int = 64
    seed: int | None = None

    checks: ClassVar[Checks] = {"n_components": check_count, "per_cell": check_count}

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        return self.coreset(context, *self.once(context, lambda: self._covered(context, size), size))

    def _covered(self, context: SelectionContext, size: int) -> tuple[Indices, Floats]:
        features = dense_centred(context.features(self.features, self.n_components))
        own = context.fixed_rng(_CELLS, self.seed)
        with context.accounted(f"cells ({self.name})", len(features)), one_blas_thread():
            sample = own.permutation(len(features))[: self.per_cell * size]
            centers = kmeans_centers(features[sample], size, int(own.integers(2**31)))
            cells, distances = nearest_centers(features, centers)
        order = np.lexsort((distances, cells))  # by cell, nearest first
        is_first = np.r_[True, cells[order][1:] != cells[order][:-1]]
        chosen = order[is_first]
        if len(chosen) < size:  # empty cells: add the samples that are represented worst
            others = order[~is_first]
            worst = np.argsort(-distances[others], kind="stable")[: size - len(chosen)]
            chosen = np.concatenate((chosen, others[worst]))
        masses = np.bincount(cells, weights=context.sizes)
        shares = np.bincount(cells[chosen], minlength=len(masses))
        return chosen, masses[cells[chosen]] / shares[cells[chosen]]


def nearest_centers(features: Floats, centers: Floats) -> tuple[Indices, Floats]:
    """The nearest centre of every row, and its squared distance."""
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
