"""Subsets that are chosen once, without a model: grown by a proxy (FixedCoreset), or covering the data (Cover)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._progress import logger
from ..coresets.coreset import Coreset
from ..coresets.covering import cover_rows, dense_centred, grown_rows, in_units, proxy_targets
from ..coresets.judging import Estimate, Examples, estimates
from ..coresets.uniform import even_draw
from .context import SelectionContext
from .inputs import Floats, Indices
from .strategy import ONE_BLAS_THREAD, Selector, scaled_weights

_GROW, _CELLS = 3, 5  # separate the streams of the draws and of the centres from others of the same seed
_MOST = 100_000  # candidates, drawn at random


@dataclass(frozen=True, eq=False, kw_only=True)
class FixedCoreset(Selector):
    r"""A subset that is selected once, without a model, and serves every network.

    It grows in twelve rounds, from at most 100,000 samples. A proxy, kernel ridge regression of the targets (one-hot
    for classes), is fitted to at most 2000 of the samples chosen so far, with :math:`\lambda = 0.01` and half the
    median distance as :math:`\sigma`,

    .. math:: F(x) = \bar y + \sum_{j \in S} \alpha_j e^{-|x - x_j|^2 / (2 \sigma^2)}, \qquad
              \alpha = (K_{SS} + \lambda I)^{-1} (y_S - \bar y),

    and the next samples are drawn with probabilities proportional to :math:`|y_i - F(x_i)|^2`, a tenth of them
    uniformly. The draw is stratified by class and, within a class, by k-means cell. Every sample weighs n / budget, so
    weighted sums are biased, by design. Without targets (``labels=False``, or no y) it is uniform over the cells.

    Parameters
    ----------
    features : "raw", "pca", array or callable, default "pca"
        Inputs of the kernel, as in :class:`RBF`.
    labels, check : bool, default True
        Whether to use the targets; and to estimate out of sample, with two more selections, whether a kernel regression
        does better than on a stratified draw. If not, select that; the log and ``coreset.method`` say so.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> FixedCoreset().select(SelectionContext(X, X[:, 0] > 0), 0.1, np.random.default_rng(0)).size
    50
    """

    features: Any = "pca"
    labels: bool = True
    check: bool = True

    name = "fixed-coreset"
    is_kept = True

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        rows, remark = self.once(context, lambda: self._grown(context, size), size)
        return self.coreset(context, rows, scaled_weights(context, rows), remark)

    def _grown(self, context: SelectionContext, size: int) -> tuple[Indices, str]:
        """The rows, and a remark if they are not those that were grown."""
        own = context.fixed_rng(_GROW)
        pool = own.permutation(context.n_samples)[: max(size, _MOST)]
        features, _ = in_units(dense_centred(context.features(self.features)[pool]))
        targets, classes = None, np.zeros(len(pool), dtype=np.int64)
        with context.accounted(f"proxy ({self.name})", len(pool)), ONE_BLAS_THREAD:
            if self.labels and context.has_labels:
                targets, classes = proxy_targets(context.labels[pool], context.has_classes)
            rows = grown_rows(features, targets, classes, size, own)
            if self.check and targets is not None and min(targets.shape[1], 2) == (2 if classes.any() else 1):
                found = self._estimate(features, targets, classes, size, own)
                if found is not None and not found.is_better:
                    drawn = even_draw(np.ones(len(pool)), classes, size, own).indices
                    logger.warning("%s: %s; a stratified draw is used instead.", self.name, found)
                    return np.sort(pool[drawn]), f"stratified: {found}"
                if found is not None:
                    logger.info("%s: %s", self.name, found)
        return np.sort(pool[rows]), ""

    def _estimate(
        self, features: Floats, targets: Floats, classes: Indices, size: int, own: np.random.Generator
    ) -> Estimate | None:
        def choose(pool: Indices, count: int, rng: np.random.Generator) -> tuple[Indices, Floats]:
            return pool[grown_rows(features[pool], targets[pool], classes[pool], count, rng)], np.ones(count)

        is_classes = bool(classes.any())
        examples = Examples(features, classes if is_classes else targets[:, 0], targets.shape[1] if is_classes else 0)
        return estimates({self.name: choose}, examples, size, "kernel", own).get(self.name)


@dataclass(frozen=True, eq=False, kw_only=True)
class Cover(Selector):
    """The sample nearest to the centre of each k-means cell, with as many cells as the budget; kept for the run.

    Use it for nearest neighbours and for rare groups, which draws made for sums miss, and :class:`FixedCoreset` to
    train networks. A sample weighs as much as its cell. The registry's ``COVER`` is ``PerClass(Cover(), power=0.5)``.

    Parameters
    ----------
    features : "raw", "pca", array or callable, default "pca"
        As in :class:`RBF`.
    """

    features: Any = "pca"
    is_kept = True

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        return self.coreset(context, *self.once(context, lambda: self._covered(context, size), size))

    def _covered(self, context: SelectionContext, size: int) -> tuple[Indices, Floats]:
        features, _ = in_units(dense_centred(context.features(self.features)))
        own = context.fixed_rng(_CELLS)
        with context.accounted(f"cells ({self.name})", len(features)), ONE_BLAS_THREAD:
            return cover_rows(features, size, own, weights=context.sizes)
