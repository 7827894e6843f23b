"""One subset for many networks, grown in rounds from what a kernel regression does not yet explain."""

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from .._errors import InvalidInputError
from .._progress import logger
from .._validation import check_count, check_positive
from ..core.draw import DrawTable
from ..coresets.bounds import kmeans_centers
from ..coresets.coreset import Coreset
from ..coresets.fitting import MEDIAN_SAMPLE
from .context import SelectionContext
from .cover import nearest_centers
from .inputs import Floats, Indices, dense_centred
from .strategy import Checks, Selector, one_blas_thread

_GROW = 3  # separates the stream of the draws from others of the same seed
_ROUNDING = 1e-12
_BLOCK = 4096  # rows of the kernel computed at once
_CELLS = 64  # strata within a class
_LITTLE = 0.2  # explained variance below which the subset was no more accurate than a random one
_MANY = 10  # with this many samples per distinct value, float labels count as classes


@dataclass(frozen=True, eq=False, kw_only=True)
class FixedCoreset(Selector):
    r"""A subset that is selected once, without a model, and serves every network.

    It grows in rounds. A proxy, Gaussian kernel ridge regression from the features to the targets (one-hot for
    classes), is fitted to the samples chosen so far,

    .. math:: F(x) = \bar y + \sum_{j \in S} \alpha_j e^{-|x - x_j|^2 / (2 \sigma^2)}, \qquad
              \alpha = (K_{SS} + \lambda I)^{-1} (y_S - \bar y),

    and the next samples are drawn with probabilities proportional to :math:`|y_i - F(x_i)|^\gamma`, plus a uniform
    share: the residual is the gradient of the proxy's loss in its outputs. The draw is stratified by class and, within
    a class, by k-means cell. Every sample weighs n / budget, so weighted sums are biased, by design. The proxy uses
    the targets of all candidates; if they are not known yet, as when the subset is to be labelled, pass
    ``labels=False`` or give the context no y: the draw is then uniform over the cells.

    Parameters
    ----------
    features : "raw", "pca", array or callable, default "pca"
        Inputs of the kernel, as in :class:`RBF`.
    n_components : int, default 50
    rounds : int, default 12
        Number of rounds; the first draws without a proxy.
    power : float, default 2
        The :math:`\gamma` above. Larger values favour the hardest samples, and also those with wrong labels.
    mix : float in (0, 1], default 0.1
        Share of the uniform draw.
    ridge : float, default 0.01
    bandwidth : float, optional
        The :math:`\lambda` and :math:`\sigma` above; by default :math:`\sigma` is half the median distance.
    max_centers : int, default 2000
    max_pool : int, default 100000
        Maximum number of samples to fit the proxy to, drawn from those chosen; and of candidates, drawn at random.
    labels : bool, default True
    seed : int, by default that of the run, ``SelectionContext(seed=)``
    """

    features: Any = "pca"
    n_components: int = 50
    rounds: int = 12
    power: float = 2.0
    mix: float = 0.1
    ridge: float = 0.01
    bandwidth: float | None = None
    max_centers: int = 2000
    max_pool: int = 100_000
    labels: bool = True
    seed: int | None = None

    name = "fixed-coreset"
    checks: ClassVar[Checks] = {
        **dict.fromkeys(("rounds", "max_centers", "max_pool", "n_components"), check_count),
        **dict.fromkeys(("ridge", "bandwidth"), check_positive),
        "power": partial(check_positive, at_most=100.0),
        "mix": partial(check_positive, at_most=1.0),
    }

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        rows, sizes = self.once(context, lambda: self._grown(context, size), size), context.sizes
        return self.coreset(context, rows, sizes[rows] * (sizes.sum() / sizes[rows].sum()))

    def _grown(self, context: SelectionContext, size: int) -> Indices:
        own = context.fixed_rng(_GROW, self.seed)
        pool = own.permutation(context.n_samples)[: max(size, self.max_pool)]
        features = dense_centred(context.features(self.features, self.n_components)[pool])
        with context.accounted(f"proxy ({self.name})", len(pool)), one_blas_thread():
            targets, classes = _targets(context, pool, self.labels)
            strata = _strata(features, classes, size, own)
            scale = self.bandwidth or 0.5 * _median_distance(features, own)
            chosen = np.zeros(len(pool), dtype=bool)
            scores = np.ones(len(pool))
            explained = None
            rounds = min(self.rounds, size) if targets is not None else 1
            for count in np.diff(np.linspace(0, size, rounds + 1).astype(np.int64)):
                if targets is not None and chosen.any():
                    residuals = self._residuals(features, targets, np.flatnonzero(chosen), scale, own)
                    scores = (residuals / (residuals.max() or 1.0)) ** self.power
                    variance = targets[~chosen].var(axis=0).sum()
                    explained = 1.0 - np.mean(residuals[~chosen] ** 2) / variance if variance > 0 else 1.0
                chosen[self._drawn(scores, chosen, strata, int(count), own)] = True
        if explained is not None:
            is_little = explained < _LITTLE
            logger.log(
                logging.WARNING if is_little else logging.INFO,
                "%s: the proxy explains %.0f %% of the variance of unseen targets%s",
                *(self.name, 100 * explained, "; a random subset may do as well" if is_little else ""),
            )
        return np.sort(pool[chosen])

    def _drawn(
        self, scores: Floats, chosen: NDArray[np.bool_], strata: Indices, count: int, own: np.random.Generator
    ) -> Indices:
        """Draw ``count`` rows that are not chosen yet, systematically along the strata, in random order inside each."""
        free = np.flatnonzero(~chosen)
        total = float(scores[free].sum())
        shares = np.full(len(free), self.mix / len(free))
        shares += (1 - self.mix) * (scores[free] / total if total > 0 else 1 / len(free))
        order = np.lexsort((own.random(len(free)), strata[free]))
        table = DrawTable(shares[order], np.ones(len(free)), order_rng=None)
        return free[order[table.systematic(count, own).indices]]

    def _residuals(
        self, features: Floats, targets: Floats, chosen: Indices, scale: float, own: np.random.Generator
    ) -> Floats:
        """Distances of the targets from the predictions of the proxy, (n,)."""
        if len(chosen) > self.max_centers:
            chosen = own.choice(chosen, self.max_centers, replace=False)
        centers, mean = features[chosen], targets[chosen].mean(axis=0)
        kernel = _gaussian(centers, centers, scale)
        kernel[np.diag_indices(len(chosen))] += self.ridge  # now positive definite
        slopes = np.linalg.solve(kernel, targets[chosen] - mean)
        found = np.empty(len(features))
        for start in range(0, len(features), _BLOCK):
            block = slice(start, start + _BLOCK)
            predicted = _gaussian(features[block], centers, scale) @ slopes + mean
            found[block] = np.linalg.norm(targets[block] - predicted, axis=1)
        return found


def _targets(context: SelectionContext, pool: Indices, wanted: bool) -> tuple[Floats | None, Indices]:
    """Targets of the proxy, (n, k), or None without labels; and the number of each row's class."""
    one_class = np.zeros(len(pool), dtype=np.int64)
    if not wanted or not context.has_labels:
        return None, one_class
    labels = context.labels[pool]
    if labels.ndim == 1 and context.has_classes:
        names, classes = np.unique(labels, return_inverse=True)
        if labels.dtype.kind != "f" or _MANY * len(names) <= len(pool):
            return np.eye(len(names))[classes], classes
    values = labels.reshape(len(pool), -1).astype(np.float64)
    if not np.isfinite(values).all():
        raise InvalidInputError("y contains NaN or infinity; the proxy needs finite targets.")
    spread = values.std(axis=0)
    return (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0), one_class


def _strata(features: Floats, classes: Indices, size: int, own: np.random.Generator) -> Indices:
    """Number of the stratum of each row, a cell of its class; the strata of a class are consecutive."""
    strata = np.empty(len(features), dtype=np.int64)
    n_classes = int(classes.max()) + 1
    n_cells = max(1, min(_CELLS, size // n_classes))
    for number in range(n_classes):
        rows = np.flatnonzero(classes == number)
        if n_cells == 1 or len(rows) <= n_cells:
            cells = np.zeros(len(rows), dtype=np.int64)
        else:
            sample = own.choice(rows, min(len(rows), 40 * n_cells), replace=False)
            centers = kmeans_centers(features[sample], n_cells, int(own.integers(2**31)))
            cells, _ = nearest_centers(features[rows], centers)
        strata[rows] = number * _CELLS + cells
    return strata


def _median_distance(features: Floats, own: np.random.Generator) -> float:
    sample = features[own.permutation(len(features))[:MEDIAN_SAMPLE]]
    squares = pdist(sample, "sqeuclidean")
    squares = squares[squares > _ROUNDING * squares.max(initial=0.0)]
    return float(np.sqrt(np.median(squares))) if len(squares) else 1.0


def _gaussian(left: Floats, right: Floats, scale: float) -> Floats:
    from sklearn.metrics.pairwise import rbf_kernel

    return rbf_kernel(left, right, gamma=0.5 / scale**2)
