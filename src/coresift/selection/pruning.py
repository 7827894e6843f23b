"""Pruning by what training saw: easy samples softly (Lossless, InfoBatch), suspicious ones wholly (Trim)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..coresets.coreset import Coreset
from .context import SelectionContext
from .seen import wrong_labels
from .strategy import Watcher, filled, scaled_weights, setting, turn

MOST = 0.5  # rows that are left out at most, of all and of each class
RAMP = 1 / 3  # share of the run in which the share that is left out grows
LEAST = 0.15  # estimated share of wrong labels below which nothing is left out


@dataclass(frozen=True, eq=False, kw_only=True)
class Lossless(Watcher):
    """Keep every sample whose score is at least the mean, and a random share of the others, scaled up.

    An easy sample is kept with probability ``share`` and then weighs 1 / ``share``, so weighted sums are unbiased.
    Before training has seen anything, all data are used. A budget below 1 is the part of the data that this is applied
    to, in turns. The number of samples differs from epoch to epoch.

    Parameters
    ----------
    share : float, default 0.5
    last : float, default 0.125
        Share of the easy samples to keep; share of the epochs, at the end, that use all data.
    scores : {"norms", "losses"}, default "norms"
        What training saw of a sample last: the norm of its gradient, or its loss.
    """

    share: float = setting(0.5, above=0.0, below=1.0)
    last: float = setting(0.125, at_least=0.0, below=1.0)
    scores: str = setting("norms", choices=("norms", "losses"))

    @property
    def reuses_norms(self) -> bool:
        """Whether training must record gradient norms."""
        return self.scores == "norms"

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        n, seen = context.n_samples, context.seen(self.scores)
        rows = np.arange(n) if size == n else turn(context, np.arange(n), size)
        weights = context.sizes if size == n else scaled_weights(context, rows)
        is_last = context.n_epochs is not None and context.epoch >= (1.0 - self.last) * context.n_epochs
        if seen is None or is_last or np.isnan(seen[rows]).all():
            self.warn_unless_recorded(context, seen)
            return self.coreset(context, rows, weights, "all data" if size == n else "uniform")
        scores = seen[rows]
        is_easy = scores < np.nanmean(scores, dtype=np.float64)  # rows that training has not met are not easy
        easy = np.flatnonzero(is_easy)
        n_kept = int(self.share * len(easy))
        if n_kept:
            kept = np.concatenate((np.flatnonzero(~is_easy), rng.choice(easy, n_kept, replace=False)))
            weights = np.where(is_easy, weights * (len(easy) / n_kept), weights)
            rows, weights = rows[kept], weights[kept]
        return self.coreset(context, rows, weights, f"{n_kept or len(easy)} of {len(easy)} easy samples")


@dataclass(frozen=True, eq=False, kw_only=True)
class InfoBatch(Lossless):
    r"""InfoBatch as published (Qin et al., 2024): half of the losses below the mean are pruned, but not at the end.

    .. math:: P(i \text{ is left out}) = r \, [l_i < \bar l] \, [t < (1 - \delta) T], \qquad
              r = 1/2, \quad w_i = 1 / (1 - P)

    for the loss :math:`l_i` last seen in training, its mean, and epoch t of T; :math:`\delta` is ``last``.

    A step of ``train`` is divided by the number of samples, not by the sum of their weights: fewer, but longer steps.
    """

    scores: str = "losses"
    divides_by_count = True


@dataclass(frozen=True, eq=False, kw_only=True)
class Trim(Watcher):
    """Leave out the samples with the highest running means of losses, more and more over a third of the run.

    Without wrong labels this leaves out what the model has yet to learn: at 0 % wrong it lost up to 4.7 points.

    Parameters
    ----------
    share : float in [0, 0.5], optional
        Share of the samples to leave out. By default the share of wrong labels as estimated after each epoch from the
        predictions that training made (for four classes or more); nothing is left out if that is below 0.15.
    """

    share: float | None = setting(None, at_least=0.0, at_most=MOST)

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        share, losses = self.share, context.seen("means")
        self.warn_unless_recorded(context, losses)
        if share is None:
            found = wrong_labels(context.records)
            share = 0.0 if found is None or min(found) < LEAST else min(*found, MOST)
        pool = np.flatnonzero(kept(context, share))
        if size < context.n_samples:
            pool = turn(context, filled(pool, context.n_samples, size, rng), size)
        return self.coreset(context, pool, remark=f"{share:.0%} to be left out")


def kept(context: SelectionContext, share: float) -> NDArray[np.bool_]:
    """Which samples are kept now if, in the end, ``share`` of them, the highest running means, are left out."""
    losses, n = context.seen("means"), context.n_samples
    if losses is None or share <= 0:
        return np.ones(n, dtype=bool)
    ramp = 1.0 if context.n_epochs is None else min(1.0, context.epoch / (RAMP * context.n_epochs))
    ranks = np.empty(n, dtype=np.int64)
    order = np.argsort(np.nan_to_num(-losses.astype(np.float64), nan=np.inf), kind="stable")  # not met yet: last
    ranks[order] = np.arange(n)
    is_out = ranks < int(ramp * share * n)
    if context.has_labels and context.labels.ndim == 1 and context.has_classes:
        for rows in context.classes().values():
            highest = rows[np.argsort(ranks[rows], kind="stable")]
            is_out[highest[int(MOST * len(rows)) :]] = False
    return ~is_out
