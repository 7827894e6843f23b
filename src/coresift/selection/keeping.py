"""What the strategies share that choose a subset once and keep it: rows that must stay, features, and the greedy."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._errors import InvalidInputError
from .._validation import as_numpy, check_features
from ..coresets.coreset import Coreset
from ..coresets.covering import dense_centred
from .context import SelectionContext
from .gradients import Array
from .inputs import Floats, Indices
from .strategy import ONE_BLAS_THREAD, Selector, scaled_weights

Chosen = tuple[Indices, Floats | None]  # rows and weights; None for equal ones that sum to n
_OFF_CENTRE = 100.0  # |mean|^2 over the variance from which float32 would lose distances


@dataclass(frozen=True, eq=False, kw_only=True)
class Kept(Selector):
    """Base of the strategies whose subset is chosen at the first selection of a run and kept.

    Parameters
    ----------
    include : integers, optional
        Rows of the data that must be chosen. They count towards the budget, which must be large enough; under
        :class:`PerClass`, that of each class.
    """

    include: Any = None
    is_kept = True

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        rows, weights = self.once(context, lambda: self._chosen(context, size, self._included(context, size)), size)
        return self.coreset(context, rows, scaled_weights(context, rows) if weights is None else weights)

    def _included(self, context: SelectionContext, size: int) -> Indices:
        """Positions in the context of the rows that must be chosen; raise if a budget of ``size`` is too small."""
        if self.include is None:
            return np.zeros(0, dtype=np.int64)
        if context.is_batched:
            raise InvalidInputError("include names samples, but the items of this selection are mini-batches.")
        given = np.unique(as_numpy(self.include))
        n = context.whole().n_samples
        if given.size and (given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= n):
            raise InvalidInputError(f"include must hold integers from 0 to {n - 1}.")
        found = np.flatnonzero(np.isin(context.rows, given))
        if len(found) > size:
            where = "" if context.n_samples == n else " of a class"
            raise InvalidInputError(f"include has {len(found)} rows{where} whose budget is {size}: raise the budget.")
        return found

    @abstractmethod
    def _chosen(self, context: SelectionContext, size: int, include: Indices) -> Chosen:
        """Choose ``size`` rows, those in ``include`` among them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Geometric(Kept):
    """Base of the strategies that see features alone.

    Parameters
    ----------
    features : "raw", "pca", array or callable, default "pca"
        As in :class:`RBF`; for features of a network pass a function of the inputs, or an array.
    """

    features: Any = "pca"

    def _chosen(self, context: SelectionContext, size: int, include: Indices) -> Chosen:
        X = self._matrix(context)
        with context.accounted(self.name, len(X)), ONE_BLAS_THREAD:
            return self._picked(context, X, size, include)

    @abstractmethod
    def _picked(self, context: SelectionContext, X: Array, size: int, include: Indices) -> Chosen: ...

    def _matrix(self, context: SelectionContext) -> Array:
        """The features, dense, float32 or float64. A copy about the mean is made only where rounding asks for it."""
        found = check_features(context.features(self.features), name="features")
        if not isinstance(found, np.ndarray):
            return dense_centred(found)
        mean = found.mean(axis=0, dtype=np.float64)
        square = float(np.einsum("ij,ij->", found, found, dtype=np.float64)) / len(found)
        if not 1e-24 < square < 1e24:  # near the limits of float32
            return dense_centred(found)
        if float(mean @ mean) > _OFF_CENTRE * (square - float(mean @ mean)):
            return found - mean.astype(found.dtype)
        return found


def greedy_rows(size: int, include: Indices, gains: Callable[[], Array], add: Callable[[int], None]) -> Indices:
    """Rows as they are picked, which ``add`` is told: those to include, then always the largest of ``gains()``."""
    picks = np.empty(size, dtype=np.int64)
    for t in range(size):
        if t < len(include):
            picks[t] = include[t]
        else:
            values = gains()
            values[picks[:t]] = -np.inf
            picks[t] = np.argmax(values)
        add(int(picks[t]))
    return picks
