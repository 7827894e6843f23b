"""One sample for each region of the data: the samples nearest to k-means centres."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._validation import check_count
from ..coresets.coreset import Coreset
from ..coresets.covering import cover_rows, dense_centred
from .context import SelectionContext
from .inputs import Floats, Indices
from .strategy import Checks, Selector, one_blas_thread

_CELLS = 5  # separates the stream of the centres from others of the same seed


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
            return cover_rows(features, size, own, weights=context.sizes, per_cell=self.per_cell)
