"""CRAIG: medoids of the gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._progress import logger
from .._validation import check_positive
from ..coresets.coreset import Coreset
from .context import SelectionContext
from .facility import Distances, facility_location
from .gradients import Gradients
from .strategy import Selector, one_blas_thread


@dataclass(frozen=True, eq=False)
class Craig(Selector):
    r"""Samples whose gradients are near to all others (Mirzasoleiman, Bilmes and Leskovec, ICML 2020).

    .. math:: \max_{|S| = k} \sum_i \max_{j \in S} \bigl(d_{\max} - |a_i - a_j|\bigr)

    with :math:`a_i` the last-layer gradient of sample i, by greedy. A pick weighs the number of samples that it is
    nearest to, at least 1; the weights sum to n. By the triangle inequality the weighted gradient is within
    :math:`\sum_i \min_{j \in S} |a_i - a_j|` of the full one.

    The paper's CRAIG is ``PerClass(Craig())``, its CRAIGPB ``PerBatch(Craig())``.

    Parameters
    ----------
    bias_only : bool, default False
        Use the gradients of the layer's bias only.
    memory_limit : float, default 512 MiB
        Bytes. A matrix of distances is held when it fits; above, its rows are computed when they are needed. No matrix
        larger than this is ever made.
    max_pairs : float, default 1e10
        Above so many pairs of samples, picks are chosen among a random part of the samples, as large as the limit
        allows; all samples are still represented. It is logged, and ``method`` of the coreset says so.
    """

    bias_only: bool = False
    memory_limit: float = 512 * 2**20
    max_pairs: float = 1e10

    def _check(self) -> None:
        check_positive(self.memory_limit, "memory_limit")
        check_positive(self.max_pairs, "max_pairs")

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        gradients = context.gradients(bias_only=self.bias_only)
        n = len(gradients)
        candidates, name = np.arange(n), self.name
        n_candidates = max(size, int(self.max_pairs / n))
        if n_candidates < n:
            candidates = np.sort(rng.choice(n, n_candidates, replace=False))
            name = f"{name} (picks among {n_candidates} of {n} samples)"
            logger.warning(
                "Craig: %d samples make more than max_pairs = %g pairs; picks are chosen among %d of them.",
                n,
                self.max_pairs,
                n_candidates,
            )
        with one_blas_thread():
            return self._located(gradients, candidates, size, context.sizes, name)

    def _located(
        self,
        gradients: Gradients,
        candidates: NDArray[np.int64],
        size: int,
        sizes: NDArray[np.float64],
        name: str,
    ) -> Coreset:
        n = len(gradients)
        distances = Distances(gradients, candidates, self.memory_limit)
        if not distances.is_held:
            logger.info(
                "Craig: %d x %d distances exceed memory_limit = %g bytes; computed by blocks as needed.",
                len(candidates),
                n,
                self.memory_limit,
            )
        found = facility_location(distances, size, sizes)
        return Coreset(found.rows, found.served, n, method=name, total_weight=float(sizes.sum()))
