"""Strategies made of strategies: within each class, with mini-batches as items, and after a warm start."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError
from .._validation import check_budget, check_count
from ..core.budgets import class_quotas, random_budgets
from ..coresets.coreset import Coreset
from .context import SelectionContext
from .gradients import Gradients, Validation
from .inputs import Indices
from .keeping import Kept
from .strategy import Full, Phases, Selector, Strategy, name_of, setting

_CLASSES = 10  # separates the stream that leaves out classes from others of the same seed


@dataclass(frozen=True, eq=False)
class _Wrapper(Selector):
    strategy: Strategy
    suffix = ""

    @property
    def name(self) -> str:
        return name_of(self.strategy) + self.suffix


@dataclass(frozen=True, eq=False)
class PerClass(_Wrapper):
    """Apply a ``strategy`` within each class: class c gets ``ceil(budget * n_c / n)``, trimmed to the budget in all.

    If that leaves out classes, chance decides which: the quota q < 1 of a class is the probability that it gets a
    sample, whose weight is divided by q. In a regression the strategy is applied to all samples.

    Parameters
    ----------
    min_per_class : int, default 0
        Least number of samples of each class; all of them if it has fewer.
    power : float in (0, 1], default 1
        Shares are proportional to ``n_c ** power``, up to the size of the class.

    Examples
    --------
    >>> from coresift.selection import RBF
    >>> y = np.repeat([0, 1], [90, 10])
    >>> chosen = PerClass(RBF()).select(SelectionContext(np.eye(100), y), 10, np.random.default_rng(0))
    >>> np.bincount(y[chosen.indices])
    array([9, 1])
    """

    min_per_class: int = setting(0, least=0)
    power: float = setting(1.0, above=0.0, at_most=1.0)

    @property
    def is_kept(self) -> bool:
        return getattr(self.strategy, "is_kept", False)

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        if not context.has_classes:
            if n := self.min_per_class:
                raise InvalidInputError(f"min_per_class = {n}: y holds numbers (loss = {context.loss!r}), not classes.")
            return self.strategy.select(context, size, rng)
        counts = np.array(list(map(len, context.classes().values())))
        own = context.fixed_rng(_CLASSES) if self.is_kept else rng
        budgets, factors = random_budgets(counts, size, own, min_per_class=self.min_per_class, power=self.power)
        if isinstance(self.strategy, Kept):
            for budget, (_, part) in zip(budgets, context.parts(), strict=True):
                self.strategy._included(part, int(budget))  # raises for a class that gets too little
        parts = [
            (positions, factor, self.strategy.select(part, int(budget), rng))
            for budget, factor, (positions, part) in zip(budgets, factors, context.parts(), strict=True)
            if budget > 0
        ]
        bounds, methods = ({getattr(core, name) for _, _, core in parts} for name in ("bound", "method"))
        ball_of = getattr(self.strategy, "ball", None)
        return Coreset(
            np.concatenate([positions[core.indices] for positions, _, core in parts]),
            np.concatenate([factor * core.weights for _, factor, core in parts]),
            context.n_samples,
            method="; ".join(sorted(methods, key=lambda method: (len(method), method))),  # with remarks on some classes
            bound=bounds.pop() if len(bounds) == 1 else None,
            ball=None if ball_of is None else ball_of(context),
            total_weight=float(context.sizes.sum()),
        )


@dataclass(frozen=True, eq=False)
class PerBatch(_Wrapper):
    """Apply a ``strategy`` to random mini-batches of ``batch_size`` with their mean gradients.

    A surplus over the budget is dropped at random, evenly. The members of a batch share its weight equally.
    """

    batch_size: int = setting(20, least=1)
    suffix = "pb"

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        n, sizes = context.n_samples, context.sizes
        batch_size = min(self.batch_size, n)
        groups = np.array_split(rng.permutation(n), n // batch_size)
        wanted = min(math.ceil(size / batch_size), len(groups))
        core = self.strategy.select(BatchContext(context, groups), wanted, rng)
        chosen = [groups[batch] for batch in core.indices]
        counts = even_counts(size, np.array([len(group) for group in chosen]), rng)
        members = [group[:count] for group, count in zip(chosen, counts, strict=True)]  # already shuffled
        pairs = zip(members, core.weights, strict=True)
        weights = np.concatenate([weight * sizes[group] / sizes[group].sum() for group, weight in pairs])
        method = core.method.replace(name_of(self.strategy), self.name, 1)
        return Coreset(np.concatenate(members), weights, n, method=method, total_weight=core.total_weight)


class BatchContext(SelectionContext):
    """Groups of samples as items: gradients and features are means, ``sizes`` counts members; there are no labels."""

    has_labels, is_batched = False, True

    def __init__(self, samples: SelectionContext, groups: Sequence[Indices]) -> None:
        vars(self).update(vars(samples))
        self._samples, self._groups = samples, groups
        self.rows = np.arange(len(groups))
        self.sizes = np.array([samples.sizes[group].sum() for group in groups])
        self._kept, self._now = {}, {}

    @property
    def labels(self) -> NDArray[Any]:
        raise InvalidInputError("a mini-batch has no class: use PerClass(PerBatch(...)), not PerBatch(PerClass(...)).")

    def features(self, embedding: Any = "raw") -> Any:
        whole = self._samples.features(embedding)
        return np.stack([np.asarray(whole[group].mean(axis=0)).ravel() for group in self._groups])

    def gradients(self, *, output: int | None = None) -> Gradients:
        return self.now(output, lambda: self._samples.gradients(output=output).means(self._groups))

    def gradients_of(self, positions: Indices) -> Gradients:
        return self.gradients().take(positions)

    def seen(self, name: str = "norms") -> NDArray[Any] | None:
        """Means over the members of which something was recorded."""
        if (norms := self._samples.seen(name)) is None:
            return None
        met = (group[np.isfinite(norms[group])] for group in self._groups)
        return np.array([norms[group].mean() if len(group) else np.nan for group in met], dtype=np.float32)

    def validation(self) -> Validation:
        return self._samples.validation()


@dataclass(frozen=True, eq=False)
class Warm(_Wrapper):
    """Train on all data first, then on the subset of a ``strategy``: a share ``kappa`` of the compute is for all data.

    Of a run of T epochs on a fraction f of the data, ``ceil(kappa * T * f)`` epochs are on all data and
    ``ceil(T - kappa * T)`` on the subset. A training loop must follow :meth:`phases`; the context's ``n_epochs`` is T.
    """

    kappa: float = setting(0.5, above=0.0, below=1.0)
    suffix = "-warm"

    def phases(self, n_epochs: int, fraction: float) -> Phases:
        """Number of epochs on all data, and on the subset, of ``n_epochs`` on a ``fraction`` of the data."""
        self._check()
        check_count(n_epochs, "n_epochs")
        shares = self.kappa * fraction, 1.0 - self.kappa
        return Phases(*(check_budget(share, n_epochs, "share of the epochs") for share in shares))

    def select(self, context: SelectionContext, budget: int | float, rng: np.random.Generator) -> Coreset:
        """All samples in the epochs on all data; otherwise as :meth:`Selector.select` of the strategy."""
        if context.n_epochs is None:
            raise InvalidInputError("a warm start needs the length of the run: give the context n_epochs.")
        size = check_budget(budget, context.n_samples, "budget")
        run = self.phases(context.n_epochs, size / context.n_samples)
        if context.epoch < run.n_full or (run.n_last and context.epoch >= run.n_subset):
            return Full().everything(context)
        return super().select(context.derived(n_epochs=run.total, first_epoch=run.n_full), size, rng)

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        return self.strategy.select(context, size, rng)


@dataclass(frozen=True, eq=False)
class WarmEnd(Warm):
    """Train on the subset of a strategy first, then on all data, for as many epochs as :class:`Warm`."""

    suffix = "-warm-end"

    def phases(self, n_epochs: int, fraction: float) -> Phases:
        """Number of epochs on the subset, and on all data, of ``n_epochs`` on a ``fraction`` of the data."""
        warm = super().phases(n_epochs, fraction)
        return Phases(0, warm.n_subset, warm.n_full)


def even_counts(size: int, capacities: NDArray[np.int64], rng: np.random.Generator) -> Indices:
    """Distribute ``size`` items over places of given capacities as evenly as possible, the odd ones at random."""
    if size >= capacities.sum():
        return capacities
    counts = np.floor(class_quotas(capacities, size, power=0.0) + 1e-9).astype(np.int64)
    open_places = np.flatnonzero(capacities > counts)
    counts[rng.choice(open_places, size - int(counts.sum()), replace=False)] += 1
    return counts
