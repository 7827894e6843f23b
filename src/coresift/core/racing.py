"""Racing of candidates on growing subsets: which of them may still be the best, and how far rankings agree."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

_LEVEL = 0.05  # one-sided


@dataclass(frozen=True)
class Fidelity:
    """How far the ranking of candidates on the subset of a ``step`` agrees with that on the next larger one.

    ``correlation`` is Spearman's, between mean scores of the ``n_candidates`` that both steps scored; ``error`` is its
    jackknife standard error over folds. Both are NaN for fewer than three candidates or without variation.

    >>> Fidelity(step=0, n_candidates=9, correlation=0.95, error=0.02).correlation  # of search.fidelity_[0]
    0.95
    """

    step: int
    n_candidates: int
    correlation: float
    error: float


def is_behind(scores: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which candidates are worse than the leader beyond chance, given scores of shape (candidates, folds).

    By the paired t-test at the level 5 %; training sets of folds overlap (Nadeau and Bengio 2003). NaN is behind all.
    """
    is_bad = np.asarray(np.isnan(scores).any(axis=1))
    if is_bad.all() or scores.shape[1] < 2:
        return is_bad
    n_folds = scores.shape[1]
    lead = int(np.argmax(np.where(is_bad, -np.inf, scores.mean(axis=1))))
    gaps = scores[lead] - np.where(is_bad[:, None], np.inf, scores)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = gaps.std(axis=1, ddof=1) * np.sqrt(1.0 / n_folds + 1.0 / (n_folds - 1))
        t = gaps.mean(axis=1) / spread  # nan for the leader and those that tie with it in every fold
    return is_bad | (t > stats.t.ppf(1.0 - _LEVEL, n_folds - 1))


def extrapolated(
    before: NDArray[np.float64], after: NDArray[np.float64], sizes: tuple[int, int], n: int, *, shrink: bool = False
) -> NDArray[np.float64]:
    r"""Return the scores to expect with n rows, from those with ``sizes``: m rows score :math:`a - b / \sqrt m`.

    ``shrink`` moves noisy gains towards their mean (James and Stein): for choosing one candidate, not for keeping some.
    """
    first, second, last = (size**-0.5 for size in (*sizes, n))
    gains = after - before
    if shrink:
        good = gains[~np.isnan(gains).any(axis=1)]
        n_candidates, n_folds = good.shape
        spread = good.mean(axis=1).var(ddof=1) if n_candidates > 2 else 0.0
        noise = float((good.var(axis=1, ddof=1) / n_folds).mean()) if n_folds > 1 else 0.0
        kept = max(0.0, 1.0 - noise / spread) if spread > 0 else 0.0
        gains = np.where(np.isnan(gains), np.nan, (middle := good.mean(axis=0)) + kept * (gains - middle))
    return after + gains * ((second - last) / (first - second))


def survivors(scores: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    """Return the candidates to go on with, the best first: those not behind, at least two and at most ``most``."""
    order = np.argsort(-np.nan_to_num(scores.mean(axis=1), nan=-np.inf), kind="stable")
    n_good = int(np.count_nonzero(~np.isnan(scores).any(axis=1)))
    n_kept = max(2, min(int(np.count_nonzero(~is_behind(scores))), most))
    return order[: max(1, min(n_kept, n_good))]


def rank_agreement(step: int, before: NDArray[np.float64], after: NDArray[np.float64]) -> Fidelity:
    """Compare the rankings of the same candidates in two steps, given scores of shape (candidates, folds)."""
    is_good = ~np.isnan(before + after).any(axis=1)
    before, after = before[is_good], after[is_good]
    n_candidates, n_folds = before.shape

    def correlation(folds: NDArray[np.bool_]) -> float:
        ranks = [stats.rankdata(scores[:, folds].mean(axis=1)) for scores in (before, after)]
        return float(np.corrcoef(ranks)[0, 1]) if min(map(np.ptp, ranks)) > 0 else np.nan

    if n_candidates < 3 or np.isnan(value := correlation(np.ones(n_folds, dtype=bool))):
        return Fidelity(step, n_candidates, np.nan, np.nan)
    without = (np.arange(n_folds) != fold for fold in range(n_folds) if n_folds > 1)
    parts = [part for part in map(correlation, without) if not np.isnan(part)]
    error = float(np.sqrt((n_folds - 1) * np.var(parts))) if len(parts) > 1 else np.nan
    return Fidelity(step, n_candidates, value, error)
