"""A sampler that serves PyTorch's ``DataLoader`` a fresh weighted subset, and a data set that carries weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed
from torch.utils.data import Dataset, Sampler, TensorDataset

from .._containers import as_numpy, n_rows
from .._errors import CoresiftError, InvalidInputError
from .._validation import check_budget, check_count
from ..coresets.coreset import Coreset, Guarantee
from ..selection import SelectionContext, Selector, Strategy, phases, strategy_named
from ..selection.context import SEEN
from ..selection.strategy import asks_for

_SELECTION, _ORDER = 11, 12  # keep the streams of one seed apart


class WeightedIndex(int):
    """The number of a row, with the weight that it has in the subset.

    It is an ``int`` wherever one is wanted. As the weight travels with the index it reaches the workers of a
    ``DataLoader``, persistent ones too, without anything that is shared.
    """

    weight: float

    def __new__(cls, row: int, weight: float = 1.0) -> Self:
        """A row and its weight."""
        index = super().__new__(cls, row)
        index.weight = weight
        return index

    def __getnewargs__(self) -> tuple[int, float]:  # type: ignore[override]
        return int(self), self.weight


class WeightedDataset(Dataset[Any]):
    """A map-style data set whose items carry a weight: ``(x, y)`` becomes ``(x, y, w)``.

    The weight is that of the index that :class:`CoresetSampler` gives; a plain integer has weight 1.

    Parameters
    ----------
    dataset : map-style data set
        Its items are tuples, to whose end the weight goes, mappings, which get the key ``"weight"``, or single values.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        item = self.dataset[int(index)]
        weight = torch.tensor(getattr(index, "weight", 1.0), dtype=torch.float32)
        if isinstance(item, Mapping):
            return {**item, "weight": weight}
        return (*item, weight) if isinstance(item, tuple | list) else (item, weight)


class CoresetSampler(Sampler[int]):
    """Serves the rows of a subset in random order, and selects the subset anew every ``select_every`` epochs.

    Call :meth:`set_epoch` before each epoch (Lightning does so itself). Which subset an epoch sees
    follows from seed, epoch and, for strategies that look at it, the model at the time of the selection.

    Under DDP the first rank selects and the others receive; every rank serves its part of one common order, and the
    union of the parts is the subset. Parts are made equal in length by rows of weight 0, so that no rank waits for
    another and no weight is counted twice.

    Parameters
    ----------
    data : SelectionContext, data set, array, tensor, or pair ``(X, y)``
        What to select from.
    strategy : str or Strategy, default "rbf"
    budget : int or float, default 0.1
        Samples, or a fraction of them.
    select_every : int, default 20
        Epochs between two selections. A strategy that draws once and keeps it (``Random``) is not disturbed by it.
    seed : int, default 0
    shuffle : bool, default True
        Whether the order changes from epoch to epoch.
    num_replicas, rank : int, optional
        By default those of ``torch.distributed``, if it is initialised. ``num_replicas=1`` serves everything on every
        rank: for Accelerate, which shards by itself.
    **context
        Further arguments of :class:`coresift.selection.SelectionContext`: ``model``, ``loss``, ``n_epochs``, ...

    Attributes
    ----------
    coreset : Coreset
        The subset of the current epoch, of all ranks.
    epoch : int

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 3)).astype("float32")
    >>> sampler = CoresetSampler(X, "adaptive-random", 0.1, select_every=1)
    >>> len(sampler), [index.weight for index in sampler][0]
    (10, 10.0)
    >>> before = set(sampler)
    >>> sampler.set_epoch(1)
    >>> set(sampler) == before
    False
    """

    def __init__(
        self,
        data: Any,
        strategy: str | Strategy = "rbf",
        budget: int | float = 0.1,
        *,
        select_every: int = 20,
        seed: int = 0,
        shuffle: bool = True,
        num_replicas: int | None = None,
        rank: int | None = None,
        **context: Any,
    ) -> None:
        self.seed = check_count(seed, "seed", 0)
        if not isinstance(data, SelectionContext):
            X, y = inputs_and_targets(data)
            data = SelectionContext(X, context.pop("y", y), seed=self.seed, **context)
        elif context:
            raise InvalidInputError(f"{', '.join(context)}: a context was given, which has its own.")
        self.context = data
        self.strategy = strategy_named(strategy) if isinstance(strategy, str) else strategy
        self.budget = budget
        self.select_every = check_count(select_every, "select_every")
        self.shuffle = shuffle
        if num_replicas is not None:
            check_count(num_replicas, "num_replicas")
        if (rank is None) != (num_replicas in (None, 1)) and rank != 0:
            raise InvalidInputError(
                f"rank = {rank} and num_replicas = {num_replicas} must be given together."
            )
        if rank is not None and not 0 <= check_count(rank, "rank", 0) < (num_replicas or 1):
            raise InvalidInputError(f"rank = {rank} must be below num_replicas = {num_replicas or 1}.")
        self._replicas, self._rank = num_replicas, rank
        if num_replicas is not None and num_replicas > 1 and asks_for(self.strategy, "reuses_norms"):
            raise InvalidInputError(
                f"num_replicas = {num_replicas}: ranks that select for themselves do not know what the others saw. "
                "Leave it out under torch.distributed, or choose fresh scores."
            )
        size = check_budget(budget, self.context.n_samples, "budget")
        self.phases = phases(self.strategy, self.context.n_epochs or 1, size / self.context.n_samples)
        self.epoch = 0
        self._core: Coreset | None = None
        self._selected_at = -1

    @property
    def num_replicas(self) -> int:
        """Among how many processes the subset is shared."""
        if self._replicas is not None:
            return self._replicas
        return distributed.get_world_size() if _is_distributed() else 1

    @property
    def rank(self) -> int:
        """Which part of the subset is served here."""
        if self._replicas is not None:
            return self._rank or 0
        return distributed.get_rank() if _is_distributed() else 0

    @property
    def coreset(self) -> Coreset:
        """The subset of the current epoch, of all ranks; selected now if it was not before."""
        if self._core is None:
            self.set_epoch(self.epoch)
        assert self._core is not None
        return self._core

    def selection_epoch(self, epoch: int) -> int:
        """The epoch before which the subset of this epoch is selected."""
        return self.phases.selection_epoch(epoch, self.select_every)

    def set_epoch(self, epoch: int) -> None:
        """Go to an epoch: a new order, and a new selection if one is due. Calling it twice changes nothing."""
        due = self.selection_epoch(check_count(epoch, "epoch", 0))
        if self._core is None or due != self._selected_at:
            self._core, self._selected_at = self._selected(due), due
        self.epoch = epoch

    def epoch_rows(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Rows and weights of this rank, in the order of the current epoch."""
        core = self.coreset
        order = np.arange(core.size)
        if self.shuffle:
            order = np.random.default_rng((self.seed, _ORDER, self.epoch)).permutation(core.size)
        rows, weights = core.indices[order], core.weights[order]
        replicas = self.num_replicas
        lacking = -core.size % replicas
        rows = np.concatenate((rows, np.resize(rows, lacking)))
        weights = np.concatenate((weights, np.zeros(lacking)))
        return rows[self.rank :: replicas], weights[self.rank :: replicas]

    def record(self, norms: Any) -> None:
        """Tell what training saw of the current epoch: a norm for each row of this rank, in the order it was served.

        Ranks that share a selection share what they saw, too: each of them must call it.
        """
        rows, weights = self.epoch_rows()
        norms = as_numpy(norms)
        if norms.shape != rows.shape:
            raise InvalidInputError(
                f"norms of shape {norms.shape}: one for each of {len(rows)} rows is needed."
            )
        parts: list[Any] = [(rows[weights > 0], norms[weights > 0])]
        if self._shares_selection():
            own, parts = parts[0], [None] * self.num_replicas
            distributed.all_gather_object(parts, own)
        for part in parts:
            self.context.record(*part)

    def __iter__(self) -> Iterator[int]:
        rows, weights = self.epoch_rows()
        yield from map(WeightedIndex, rows.tolist(), weights.tolist())

    def __len__(self) -> int:
        return -(-self.coreset.size // self.num_replicas)

    def state_dict(self) -> dict[str, Any]:
        """Numbers and tensors: the subset cannot always be selected again, since the model has moved on."""
        core = self.coreset
        seen = self.context.seen()
        return {
            **({} if seen is None else {"seen": torch.tensor(seen)}),
            "epoch": self.epoch,
            "selected_at": self._selected_at,
            "seed": self.seed,
            "n_samples": core.n_samples,
            "method": core.method,
            "total_weight": core.total_weight,
            "guarantee": core.guarantee and core.guarantee.as_dict(),
            "indices": torch.tensor(core.indices),
            "weights": torch.tensor(core.weights),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to where :meth:`state_dict` was taken."""
        if state["n_samples"] != self.context.n_samples:
            raise InvalidInputError(
                f"the state is of a sampler of {state['n_samples']} samples, but there are {self.context.n_samples}."
            )
        indices, weights = (state[key].cpu().numpy() for key in ("indices", "weights"))
        proved = state.get("guarantee")
        self._core = Coreset(
            indices,
            weights,
            state["n_samples"],
            method=state["method"],
            total_weight=state.get("total_weight"),
            guarantee=proved and Guarantee.from_dict(proved),
        )
        self.epoch, self._selected_at, self.seed = state["epoch"], state["selected_at"], state["seed"]
        self.context._seed = self.seed  # of draws that are made once and kept
        self.context._root_kept.pop(SEEN, None)
        if "seen" in state:
            self.context.record(np.arange(state["n_samples"]), state["seen"].cpu().numpy())

    def _selected(self, epoch: int) -> Coreset:
        if not self._shares_selection():
            return self._select(epoch)
        box: list[Any] = [None]
        if distributed.get_rank() == 0:
            try:
                box[0] = self._select(epoch)
            except CoresiftError as error:  # the others wait for an answer
                box[0] = error
        distributed.broadcast_object_list(box, src=0)
        if isinstance(box[0], CoresiftError):
            raise box[0]
        return box[0]

    def _shares_selection(self) -> bool:
        return self._replicas is None and self.num_replicas > 1

    def recall(self) -> None:
        """Compute again what the strategy keeps for a run (a fit, say), which no state holds.

        The next selection would do it otherwise, and the clock of a run that goes on would count it a second time.
        """
        context = self.context.at(self._selected_at)
        context.model = (
            None  # what is kept is of the data alone: strategies that need more have nothing to recall
        )
        # one's own strategy may mind being asked; one that goes by what training saw keeps nothing else
        if isinstance(self.strategy, Selector) and not asks_for(self.strategy, "reuses_norms"):
            with suppress(Exception):  # the next selection says what is wrong, if it is
                self.strategy.select(
                    context, self.budget, np.random.default_rng((self.seed, _SELECTION, self._selected_at))
                )

    def _select(self, epoch: int) -> Coreset:
        model = self.context.model
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            model = model.module  # the wrapper's forward pass would wait for the other ranks
        rng = np.random.default_rng((self.seed, _SELECTION, epoch))
        context = self.context.at(epoch, model)
        context.select_every = self.select_every
        return self.strategy.select(context, self.budget, rng)


def inputs_and_targets(data: Any) -> tuple[Any, Any]:
    """X and y of a pair, of a data set of tensors, or of anything else as it is."""
    if isinstance(data, WeightedDataset):
        data = data.dataset
    if isinstance(data, TensorDataset):
        if len(data.tensors) > 2:
            raise InvalidInputError(
                f"the TensorDataset has {len(data.tensors)} tensors; inputs and targets are needed, and no more."
            )
        data = data.tensors if len(data.tensors) == 2 else data.tensors[0]
    if isinstance(data, tuple | list) and len(data) == 2 and hasattr(data[0], "shape"):
        if n_rows(data[0]) != n_rows(data[1]):
            raise InvalidInputError(
                f"y has {n_rows(data[1])} entries, but X has {n_rows(data[0])} rows; they must be equal."
            )
        return data[0], data[1]
    return data, None


def _is_distributed() -> bool:
    return distributed.is_available() and distributed.is_initialized()
