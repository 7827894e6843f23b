"""A strategy that looks at the data and at what training sees, and does what pays; else it trains on all data."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._progress import logger
from ..coresets.coreset import Coreset
from ..coresets.covering import in_units
from .adaptive import draw_probabilities, known_or_mean
from .context import SelectionContext
from .inputs import Floats, Indices
from .pruning import LEAST, MOST, kept
from .seen import wrong_labels
from .strategy import Watcher, filled, turn

_NEAR, _EQUAL = 0.03, 1e-6  # distances of near-duplicates, over the median distance
_ALL = 0.95  # share of near-duplicates from which there is no gap to see
_PROBE, _POOL, _BLOCK = 500, 50_000, 8192
_ROUNDS, _PROJECTIONS = 12, 6
_LOOK = 4  # separates the stream of the search for duplicates from others of the same seed
_DUPLICATES = 0.2  # share of near-duplicates from which they are removed
_AGAIN = 4.0  # how often a row is served in an epoch, at most, if duplicates leave room
_CLEAN = 0.04  # share of labels in the lower half of the ranking up to which draws follow the norms
_LEARNT = 0.6  # share of the labels that seem right which the model must predict before rows are left out
_UNIFORM = 0.3  # share of the uniform draw beside that by norms
_REGIME = "regime of auto"


@dataclass(frozen=True)
class Regime:
    """What :class:`Auto` saw up to an ``epoch``, and its ``action``: "look", "all data", "hard samples" or "trim".

    ``removed`` near-duplicates are left out; ``duplicates``, ``wrong`` and ``low`` are the shares of near-duplicates,
    of wrong labels, and of labels in the lower half of the model's ranking.

    >>> print(Regime("trim", duplicates=0.0, wrong=0.2, low=0.1))
    near-duplicates 0.0%, wrong labels 20.0%, labels ranked low 10.0%: trim
    """

    action: str = "look"
    duplicates: float | None = None
    removed: int = 0
    wrong: float | None = None
    low: float | None = None
    epoch: int = 0

    def __str__(self) -> str:
        seen = {"near-duplicates": self.duplicates, "wrong labels": self.wrong, "labels ranked low": self.low}
        words = [f"{name} {'unknown' if value is None else f'{value:.1%}'}" for name, value in seen.items()]
        return f"{', '.join(words)}: {self.action}" + (f", {self.removed:,} duplicates removed" * bool(self.removed))


@dataclass(frozen=True, eq=False)
class Auto(Watcher):
    """Train on all data, except where something else is known to be better; never slower than that by much.

    1. More than a fifth of the rows of an array are near-duplicates: one of each group is used.
    2. The first n samples are uniform. Training records losses and how the labels rank in its predictions.
    3. At least 15 % of the labels seem wrong: the rows with the highest mean losses are left out (:class:`Trim`).
    4. Nearly all labels rank high: samples are drawn by gradient norms, more and more uniformly over the last third.
    5. Otherwise all data are used, or uniform turns (:class:`RS2`) if the budget is smaller.

    Steps 3 and 4 need four classes or more and the length of the run. A row may be served more than once in an epoch.
    """

    repeats = True
    reuses_norms = True
    name: ClassVar[str] = "auto"

    def regime(self, context: SelectionContext) -> Regime:
        """What was seen and decided so far in the run of this ``context``."""
        return context.shared.get(_REGIME, Regime())

    def has_seen_enough(self, context: SelectionContext) -> bool:
        """Whether nothing has to be recorded any more in the run of this ``context``."""
        return self.regime(context).action == "all data"

    def state(self, context: SelectionContext) -> dict[str, Any]:
        """What a checkpoint of this ``context``'s run stores beside the records."""
        return asdict(self.regime(context))

    def restore(self, context: SelectionContext, state: dict[str, Any]) -> None:
        """Go back to a ``state`` of :meth:`state`, in the run of this ``context``."""
        context.shared[_REGIME] = Regime(**state)

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        share, pool = self.once(context, lambda: self._unique(context))
        self.warn_unless_recorded(context, context.seen("losses"))
        regime = self.regime(context)
        if regime.action == "look":
            context.shared[_REGIME] = regime = self._decided(context, share, pool)
            if regime.action != "look":
                logger.info("auto, epoch %d: %s.", context.epoch, regime)
        if size < context.n_samples and len(pool) < size:  # duplicates fill the budget
            pool = filled(pool, context.n_samples, size, rng)
        size = min(size, int(_AGAIN * len(pool)))
        if regime.action in ("look", "all data") and size <= len(pool):
            return self.coreset(context, turn(context, pool, size), np.ones(size), regime.action)
        counts = counts_of(self._shares(context, regime, pool), size, rng)
        return self.coreset(context, pool[counts > 0], counts[counts > 0].astype(float), regime.action)

    def _unique(self, context: SelectionContext) -> tuple[float | None, Indices]:
        """The share of near-duplicates, None if it was not looked for, and the rows to use."""
        everything, own = np.arange(context.n_samples), context.fixed_rng(_LOOK)
        X = context.features() if context.has_arrays and context.n_samples > 1 else None
        if not isinstance(X, np.ndarray) or X.dtype.kind not in "biuf" or not np.isfinite(X).all():
            return None, everything
        with context.accounted("search for duplicates", len(X)):
            X, _ = in_units(X)
            share, distance = duplicate_share(X, own)
            if share <= _DUPLICATES:
                return share, everything
            labels = context.labels if context.has_labels and context.labels.ndim == 1 else None
            numbers = None if labels is None else np.unique(labels, return_inverse=True)[1]
            return share, without_duplicates(X, numbers, distance, own)

    def _decided(self, context: SelectionContext, share: float | None, pool: Indices) -> Regime:
        known: dict[str, Any] = {"duplicates": share, "removed": context.n_samples - len(pool), "epoch": context.epoch}
        n_epochs, seen = context.n_epochs, context.records
        if n_epochs is None:
            self.warn_once(context, "n_epochs", "n_epochs is not known; all data are used, without duplicates.")
            return Regime("all data", **known)
        rounds = seen.n_met // context.n_samples
        if rounds < 1:
            return Regime("look", **known)
        if (found := wrong_labels(seen)) is None:
            return Regime("all data", **known)
        low, wrong = found[0], min(*found, self.regime(context).wrong or 1.0)
        known |= {"low": low, "wrong": wrong}
        if wrong < LEAST:
            return Regime("hard samples" if low < _CLEAN else "all data", **known)
        if n_epochs < 4 or context.epoch > n_epochs / 3 + 1:
            return Regime("all data", **known)
        # a model that has not learnt yet looks like wrong labels, but not for long; one that cannot tell classes apart
        # does, too, but then it is wrong far more often than the labels seem to be
        known_rows = seen["sure"][np.isfinite(seen["sure"])]
        is_likely = wrong <= MOST and float(np.mean(known_rows > 0)) >= _LEARNT * (1.0 - wrong)
        return Regime("trim" if rounds >= 2 and is_likely else "look", **known)

    def _shares(self, context: SelectionContext, regime: Regime, pool: Indices) -> Floats:
        """Probabilities of the rows of the pool."""
        if regime.action in ("look", "all data"):
            return np.full(len(pool), 1.0 / len(pool))
        if regime.action == "trim":
            is_kept = kept(context, regime.wrong or 0.0)[pool]
            return is_kept / is_kept.sum()
        late = 3.0 * (context.epoch + 0.5) / (context.n_epochs or 1) - 2.0  # the share of the last third that is over
        uniform = _UNIFORM + (1.0 - _UNIFORM) * min(1.0, max(0.0, late))
        return draw_probabilities(known_or_mean(context.seen())[pool], context.sizes[pool], uniform)


def counts_of(shares: Floats, size: int, rng: np.random.Generator) -> Indices:
    r"""Draw how often each row occurs: :math:`E[c_i] = m p_i` and :math:`|c_i - m p_i| < 1`, with sum m."""
    order = rng.permutation(len(shares))
    ends = np.cumsum(shares[order])
    points = (rng.random() + np.arange(size)) * (ends[-1] / size)
    places = np.minimum(np.searchsorted(ends, points, side="right"), len(shares) - 1)
    return np.bincount(order[places], minlength=len(shares))


def duplicate_share(X: NDArray[Any], rng: np.random.Generator) -> tuple[float, float]:
    """Estimate the share of rows that have a near-duplicate, and return the largest distance of two of them."""
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
    # where rows are dense, neighbours are as near, but few of them within a third of that: then only equal rows count
    return (near, _NEAR * median) if near / 2 <= third and near < _ALL else (equal, _EQUAL * median)


def without_duplicates(X: NDArray[Any], labels: Any, distance: float, rng: np.random.Generator) -> Indices:
    """Rows such that every other row is within ``distance`` of one of the same label, as far as hashing finds them."""
    kept = rng.permutation(len(X))  # so the first row of a cell, with which the others are compared, is any of them
    for _ in range(_ROUNDS):  # rows that the border of a cell separates meet in another round
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
