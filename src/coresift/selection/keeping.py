"""What the strategies share that choose a subset once and keep it: rows that must stay, features, and the greedy."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._errors import InvalidInputError
from .._validation import as_numpy, check_features
from ..coresets.coreset import Coreset
from ..coresets.covering import dense_centred, in_units
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
        given, numbers = np.unique(as_numpy(self.include)), context.numbers
        unknown = given if given.dtype.kind not in "iu" else np.setdiff1d(given, numbers)
        if unknown.size:
            wanted = f"row numbers, integers from 0 to {numbers.max()}"
            raise InvalidInputError(f"include holds {unknown[0]!s:.60}; it must hold {wanted}.")
        found = np.flatnonzero(np.isin(numbers[context.rows], given))
        if len(found) > size:
            where = "" if context.n_samples == len(numbers) else " of a class"
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
    is_centred: ClassVar[bool] = True  # whether squares of features are used, which lose digits far from the mean

    def _chosen(self, context: SelectionContext, size: int, include: Indices) -> Chosen:
        X = self._matrix(context)
        with context.accounted(self.name, len(X)), ONE_BLAS_THREAD:
            return self._picked(context, X, size, include)

    @abstractmethod
    def _picked(self, context: SelectionContext, X: Array, size: int, include: Indices) -> Chosen: ...

    def _matrix(self, context: SelectionContext) -> Array:
        """The features, dense, float32 or float64; if rounding asks for it, a copy about the mean, in other units."""
        found = check_features(context.features(self.features), name="features")
        if isinstance(found, np.ndarray):
            mean = found.mean(axis=0, dtype=np.float64)
            square = float(np.einsum("ij,ij->", found, found, dtype=np.float64)) / len(found)
            if 1e-24 < square < 1e24:  # not near the limits of float32
                is_far = self.is_centred and float(mean @ mean) > _OFF_CENTRE * (square - float(mean @ mean))
                return found - mean.astype(found.dtype) if is_far else found
        return in_units(dense_centred(found))[0]


def greedy_rows(size: int, include: Indices, gains: Callable[[], Array], add: Callable[[int], Any]) -> Indices:
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
