"""Samples chosen by a score: the hardest, the easiest, those near the median, or some of every degree."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from .._errors import InvalidInputError
from .context import SelectionContext
from .inputs import Floats, Indices
from .keeping import Chosen, Kept
from .proxy import SCORES, Scores, proxy_scores
from .strategy import setting
from .wrappers import even_counts

KEEP = ("hard", "easy", "ccs", "moderate")
_TIES = 8  # separates the stream that breaks ties from others of the same seed


@dataclass(frozen=True, eq=False, kw_only=True)
class ByScore(Kept):
    r"""The samples that a score of a short training chooses; each weighs n / budget.

    Let h be the hardness of a sample: its score, or minus it for ``margin`` and ``aum``.

    * ``"hard"``, ``"easy"``: the largest, or the smallest h.
    * ``"ccs"``: coverage-centric selection (Zheng et al., ICLR 2023). The share ``cut`` of the hardest samples, which
      may have wrong labels, is left out. The range of h of the others is cut into 50 intervals of equal length,
       the budget is split among these as evenly as their sizes allow, and drawn uniformly within each.
    * ``"moderate"``: the smallest :math:`|h - \mathrm{median}(h)|` (Xia et al., ICLR 2023, with the score "distance").

    Ties are broken at random, by the seed of the run.

    Parameters
    ----------
    score : str, default "el2n"
        One of the names in :class:`Scores`.
    keep : {"hard", "easy", "ccs", "moderate"}, default "hard"
    cut : float in [0, 1), default 0.1
        Less is cut where the budget would not be left otherwise.
    scores : Scores or path, optional
        Scores of all samples, such as those of a longer training; by default :func:`proxy_scores` of the context.
    include : integers, optional
        Rows that must be chosen.
    """

    score: str = setting("el2n", choices=SCORES)
    keep: str = setting("hard", choices=KEEP)
    cut: float = setting(0.1, at_least=0.0, below=1.0)
    scores: Any = None

    @property
    def name(self) -> str:
        return self.score if self.keep == "hard" else f"{self.score}-{self.keep}"

    def _chosen(self, context: SelectionContext, size: int, include: Indices) -> Chosen:
        hard = self._hardness(context).astype(np.float64)
        rng = context.fixed_rng(_TIES)
        others = np.setdiff1d(np.arange(len(hard)), include, assume_unique=True)
        rows = others[ranked(hard[others], size - len(include), self.keep, rng, self.cut)]
        return np.concatenate((include, rows)), None

    def _hardness(self, context: SelectionContext) -> NDArray[np.float32]:
        if context.is_batched:
            raise InvalidInputError("scores belong to samples: PerBatch has no use for them.")
        found = self.scores
        if found is None:
            found = proxy_scores(context)
        elif isinstance(found, str | os.PathLike):
            found = Scores.load(found)
        if len(found) != (n := context.whole().n_samples):
            raise InvalidInputError(f"scores has {len(found)} rows, but there are {n} samples.")
        return found.hardness(self.score)[context.rows]


def ranked(hard: Floats, size: int, keep: str, rng: Generator, cut: float = 0.1, n_strata: int = 50) -> Indices:
    """Positions of ``size`` values, by one of the rules of :class:`ByScore`."""
    key = {"hard": -hard, "easy": hard, "ccs": -hard, "moderate": np.abs(hard - np.median(hard))}[keep]
    order = np.lexsort((rng.permutation(len(hard)), key))
    if keep != "ccs" or size == 0:
        return order[:size]
    left = rng.permutation(order[min(int(cut * len(hard)), len(hard) - size) :])
    low, high = float(hard[left].min()), float(hard[left].max())
    width = (high - low) / n_strata or 1.0
    strata = np.minimum((hard[left] - low) / width, n_strata - 1).astype(np.int64)
    counts = even_counts(size, np.bincount(strata, minlength=n_strata), rng)
    by_stratum = np.argsort(strata, kind="stable")
    starts = np.searchsorted(strata[by_stratum], np.arange(n_strata))
    rank = np.arange(len(left)) - starts[strata[by_stratum]]
    return left[by_stratum[rank < counts[strata[by_stratum]]]]
