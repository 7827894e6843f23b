"""What a strategy is: one verb, from a context and a budget to a coreset. The baselines: all data, uniform draws."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np

from .._progress import logger
from .._threads import ONE_BLAS_THREAD as ONE_BLAS_THREAD  # for many small products: more would wait for each other
from .._validation import LARGEST_MAGNITUDE, check_budget, check_choice, check_count, check_generator, check_number
from ..coresets.coreset import Coreset
from ..coresets.uniform import uniform_coreset
from .context import SelectionContext
from .inputs import Floats, Indices

T = TypeVar("T")
_FIXED, _TURNS = 1, 5  # separate the streams of the fixed draw and of the turns from others of the same seed


@runtime_checkable
class Strategy(Protocol):
    """Anything that selects. :class:`Selector` is a convenient base, but not required.

    Optional attributes of a strategy, or of the strategy it wraps (``.strategy``): ``needs_validation`` (hold out a
    validation split), ``reuses_norms`` and ``reuses_losses`` (record gradient norms, or losses and predictions, while
    training), ``every`` and ``own_budget`` (the defaults), ``repeats`` (weights are how often a row is served),
    ``divides_by_count`` (a step divides by the number of samples, not by their weight), ``phases(n_epochs, fraction)``
    (train on all data first) and ``ball(context)`` (the ball of queries of a selection within each class).

    >>> from coresift.selection import Random
    >>> isinstance(Random(), Strategy)
    True
    """

    def select(self, context: SelectionContext, budget: int | float, rng: np.random.Generator) -> Coreset:
        """Select ``budget`` items of the ``context``, and weigh them; ``rng`` is for new draws."""


def setting(default: Any, *, least: int | None = None, choices: tuple[str, ...] | None = None, **limits: float) -> Any:
    """Make a field whose values are checked: integers from ``least`` on, ``choices``, numbers in limits, or None."""
    if limits and not limits.keys() & {"below", "at_most"}:
        limits["at_most"] = LARGEST_MAGNITUDE
    return field(default=default, metadata={"least": least, "choices": choices, "limits": limits})


class Selector(ABC):
    """Base class of the strategies.

    A new strategy is a frozen dataclass of its settings (:func:`setting`) with one method, ``_select``, which returns
    ``size`` distinct items, wrapped by :meth:`coreset`. Strategies have no state: one object serves many runs, and what
    is computed once in a run (:meth:`once`) is kept in the context.

    Examples
    --------
    >>> from coresift.selection import SelectionContext, Selector
    >>> class Smallest(Selector):
    ...     def _select(self, context, size, rng):
    ...         return self.coreset(context, np.argsort(context.features()[:, 0])[:size])
    >>> Smallest().select(SelectionContext(np.eye(4)), 3, np.random.default_rng(0)).indices
    array([1, 2, 3])
    """

    prunes: ClassVar[bool] = False  # whether it may leave out samples if the budget is everything

    def select(self, context: SelectionContext, budget: int | float, rng: np.random.Generator) -> Coreset:
        """Select ``budget`` items of the ``context``: a number, or a fraction in (0, 1], rounded up.

        They are distinct; all of them, with their own weights, if the budget is everything. ``rng`` is for new draws.
        """
        size = check_budget(budget, context.n_samples, "budget")
        rng = check_generator(rng, "rng")
        self._check()
        if size == context.n_samples and not asks_for(self, "prunes"):
            if check := asks_for(self, "_included"):  # the rows that must be chosen, of a strategy that is Kept
                check(context, size)
            return self.everything(context)
        return self._select(context, size, rng)

    @property
    def name(self) -> str:
        """Name recorded in ``Coreset.method``."""
        return type(self).__name__.lower()

    @property
    def is_kept(self) -> bool:
        """Whether the first selection of a run is that of the whole run, whatever the epoch and the model."""
        return False

    def coreset(
        self, context: SelectionContext, rows: Any, weights: Any = None, remark: str = "", **fields: Any
    ) -> Coreset:
        """Return a coreset: ``rows``, ``weights`` (by default the ``context``'s), a ``remark``, other ``fields``."""
        return Coreset(
            rows,
            context.sizes[rows] if weights is None else weights,
            context.n_samples,
            method=f"{self.name} ({remark})" if remark else self.name,
            total_weight=float(context.sizes.sum()),
            **fields,
        )

    def everything(self, context: SelectionContext) -> Coreset:
        """Select all items of the ``context``, each with its own weight."""
        return self.coreset(context, np.arange(context.n_samples))

    def warn_once(self, context: SelectionContext, about: str, message: str) -> None:
        """Log a ``message`` with the strategy's name as a warning, once for each ``about`` in a ``context``'s run."""
        if not context.shared.setdefault((self.name, about), False):
            context.shared[self.name, about] = True
            logger.warning("%s, epoch %d: %s", self.name, context.epoch, message)

    def warn_unless_recorded(self, context: SelectionContext, seen: Any) -> None:
        """Warn if the ``context`` is past the first epoch but training has recorded nothing (``seen`` is None)."""
        if seen is None and context.epoch > 0:
            self.warn_once(context, "no record", "nothing was recorded (CoresetSampler.record); the draw is uniform.")

    def once(self, context: SelectionContext, compute: Callable[[], T], *key: Any, ignore: tuple[str, ...] = ()) -> T:
        """Return ``compute()``, called once in a ``context``'s run for this ``key`` and settings not in ``ignore``."""
        settings = (value for name, value in vars(self).items() if name not in ignore)
        values = (value if isinstance(value, str | int | float | None) else id(value) for value in settings)
        # the strategy is stored too, so that the ids in the key are not reused
        found: tuple[T, Any] = context.kept((type(self), *key, *values), lambda: (compute(), self))
        return found[0]

    def _check(self) -> None:
        settings: tuple[Field[Any], ...] = fields(self) if is_dataclass(self) else ()
        for each in settings:
            value, known = getattr(self, each.name), each.metadata
            if value is None or not known:
                continue
            if known["choices"]:
                check_choice(value, each.name, known["choices"])
            elif known["least"] is not None:
                check_count(value, each.name, known["least"])
            else:
                check_number(value, each.name, **known["limits"])

    @abstractmethod
    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset: ...


class Watcher(Selector):
    """Base class of the strategies that select anew in every epoch, from what training saw of all samples."""

    every = 1
    own_budget = 1.0
    prunes = True
    reuses_losses = True


@dataclass(frozen=True)
class Phases:
    """Number of epochs on all data (``n_full``), then on the subset (``n_subset``), and on all data (``n_last``).

    >>> Phases(n_full=2, n_subset=6).selection_epoch(5, every=2)
    4
    """

    n_full: int
    n_subset: int
    n_last: int = 0

    @property
    def total(self) -> int:
        """Number of all epochs."""
        return self.n_full + self.n_subset + self.n_last

    def selection_epoch(self, epoch: int, every: int) -> int:
        """The epoch before which the subset of ``epoch`` is selected, if one is selected every ``every`` epochs."""
        since = epoch - self.n_full
        if self.n_last and since >= self.n_subset:
            return self.n_full + self.n_subset
        return 0 if since < 0 else epoch - since % check_count(every, "every")


def phases(strategy: Any, n_epochs: int, fraction: float) -> Phases:
    """The phases of a run of ``n_epochs`` on a ``fraction`` of the data: the ``strategy``'s, or the subset only.

    >>> from coresift.selection import Random, Warm
    >>> phases(Warm(Random()), 100, 0.1)
    Phases(n_full=5, n_subset=50, n_last=0)
    """
    own = getattr(strategy, "phases", None)
    return Phases(0, n_epochs) if own is None else own(n_epochs, fraction)


def asks_for(strategy: Any, what: str) -> Any:
    """An attribute of a strategy, or of one that it wraps, if it is true; else False."""
    while strategy is not None:
        if found := getattr(strategy, what, False):
            return found
        strategy = getattr(strategy, "strategy", None)
    return False


def name_of(strategy: Any) -> str:
    """Name of any strategy, also of one without a ``name``."""
    return getattr(strategy, "name", type(strategy).__name__.lower())


@dataclass(frozen=True, eq=False)
class Full(Selector):
    """All samples, whatever the budget, each of weight 1."""

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        return self.everything(context)


@dataclass(frozen=True, eq=False)
class AdaptiveRandom(Selector):
    """A uniform draw without repeats, new at every selection; each sample weighs n / budget, so the sum is n."""

    name = "adaptive-random"

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        return uniform_coreset(context.n_samples, size, rng, sample_weight=context.sizes, method=self.name)


@dataclass(frozen=True, eq=False)
class Random(Selector):
    """A uniform draw without repeats, made once, by the seed of the run: a smaller budget selects part of a larger."""

    is_kept = True

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        own, sizes = context.fixed_rng(_FIXED), context.sizes
        return uniform_coreset(context.n_samples, size, own, sample_weight=sizes, nested=True, method=self.name)


@dataclass(frozen=True, eq=False)
class RS2(Selector):
    r"""Repeated sampling without replacement (Okanovic et al., 2024); each sample weighs n / budget.

    .. math:: S_t = \{\pi_r(ik + 1), \dots, \pi_r(ik + k)\}, \qquad
              t = r \lceil n/k \rceil + i, \quad 0 \le i < \lceil n/k \rceil

    for selection t and budget k: the samples are served in turns, in the order of a permutation :math:`\pi_r` that is
    drawn anew after each round r. The first samples of it fill up the last turn.
    """

    every = 1

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        rows = turn(context, np.arange(context.n_samples), size)
        return self.coreset(context, rows, scaled_weights(context, rows))


def scaled_weights(context: SelectionContext, rows: Indices) -> Floats:
    """Weights of some rows, scaled to the sum of all."""
    own = context.sizes[rows]
    return own * (context.sizes.sum() / own.sum())


def turn(context: SelectionContext, pool: Indices, size: int) -> Indices:
    """Rows of the pool that have their turn in this selection."""
    round_, turn = divmod((context.epoch - context.first_epoch) // (context.select_every or 1), -(-len(pool) // size))
    own = np.random.default_rng((int(context.fixed_rng(_TURNS).integers(2**62)), round_))
    return own.permutation(pool).take(np.arange(size) + turn * size, mode="wrap")


def filled(pool: Indices, n: int, size: int, rng: np.random.Generator) -> Indices:
    """The pool and, if it has fewer than ``size`` of the n rows, random others."""
    others = np.setdiff1d(np.arange(n), pool, assume_unique=True)
    return np.concatenate((pool, rng.permutation(others)[: max(0, size - len(pool))]))
