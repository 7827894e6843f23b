"""A sampler that serves a weighted subset to PyTorch's ``DataLoader``, and a data set that carries the weights."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset, Sampler, TensorDataset

from .._containers import n_rows
from .._errors import CoresiftError, InvalidInputError
from .._validation import as_numpy, check_budget, check_count
from ..coresets.coreset import Coreset, Guarantee
from ..selection import SelectionContext, Selector, Strategy, phases, strategy_named
from ..selection.strategy import asks_for

_SELECTION, _ORDER = 11, 12  # keys of the random streams of one seed


class WeightedIndex(int):
    """A row number that carries its weight, without shared state, to a ``DataLoader``'s workers, persistent or not."""

    weight: float

    def __new__(cls, row: int, weight: float = 1.0) -> Self:
        index = super().__new__(cls, row)
        index.weight = weight
        return index

    def __getnewargs__(self) -> tuple[int, float]:  # type: ignore[override]
        return int(self), self.weight


class WeightedDataset(Dataset[Any]):
    """A map-style data set whose items carry a weight: ``(x, y)`` becomes ``(x, y, w)``.

    The weight is that of the index from :class:`CoresetSampler`; a plain integer has weight 1. It is appended to items
    of ``dataset`` that are tuples, and stored as ``"weight"`` in items that are mappings.
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
    """Serve the rows of a subset in random order, and select a new subset every ``select_every`` epochs.

    Call :meth:`set_epoch` before each epoch (Lightning does). The subset depends on the seed, the epoch and, for
    strategies that use it, the model at the time of the selection.

    Under DDP the first rank selects and sends the subset to the others; each rank serves its part of one common order.
    Rows of weight 0 make the parts equal in length, so no rank waits and no weight counts twice.

    Parameters
    ----------
    data : SelectionContext, data set, array, tensor, or pair ``(X, y)``
    strategy : str or Strategy, default "rbf"
    budget : int or float, default 0.1
        Number of samples, or fraction of the samples.
    select_every : int, default 20
        Epochs between two selections. Strategies that draw one subset and keep it (``Random``) are not affected.
    seed : int, default 0
    shuffle : bool, default True
        Whether the order changes from epoch to epoch.
    num_replicas, rank : int, optional
        By default those of ``torch.distributed``, if it is initialised. Use ``num_replicas=1`` with Accelerate, which
        shards the batches itself.
    **context
        Further arguments of :class:`coresift.selection.SelectionContext`: ``model``, ``loss``, ``n_epochs``, ...

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
            raise InvalidInputError(f"{', '.join(context)}: data is a SelectionContext, which has its own.")
        self.context = data
        self.strategy = strategy_named(strategy) if isinstance(strategy, str) else strategy
        self.budget = budget
        self.select_every = check_count(select_every, "select_every")
        self.shuffle = shuffle
        self._replicas, self._rank = num_replicas, rank
        self._check_replicas()
        size = check_budget(budget, self.context.n_samples, "budget")
        self.phases = phases(self.strategy, self.context.n_epochs or 1, size / self.context.n_samples)
        self.epoch = 0
        self._core: Coreset | None = None
        self._selected_at = -1

    def _check_replicas(self) -> None:
        rank, replicas = self._rank, self._replicas
        if replicas is not None:
            check_count(replicas, "num_replicas")
        if (rank is None) != (replicas in (None, 1)) and rank != 0:
            raise InvalidInputError(f"rank = {rank} and num_replicas = {replicas} must be given together.")
        if rank is not None and not 0 <= check_count(rank, "rank", 0) < (replicas or 1):
            raise InvalidInputError(f"rank = {rank} must be below num_replicas = {replicas or 1}.")
        if (replicas or 1) > 1 and asks_for(self.strategy, "reuses_norms"):
            raise InvalidInputError(
                f"num_replicas = {replicas}: ranks that select separately do not know the norms of the others. "
                "Leave it out under torch.distributed, or use fresh scores."
            )

    @property
    def num_replicas(self) -> int:
        """The number of processes that share the subset."""
        return self._place()[1]

    @property
    def rank(self) -> int:
        """The part of the subset that is served here."""
        return self._place()[0]

    def _place(self) -> tuple[int, int]:
        if self._replicas is not None:
            return self._rank or 0, self._replicas
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1

    @property
    def coreset(self) -> Coreset:
        """The subset of the current epoch, on all ranks; selected on first access."""
        if self._core is None:
            self.set_epoch(self.epoch)
        assert self._core is not None
        return self._core

    def selection_epoch(self, epoch: int) -> int:
        """Return the epoch at whose start the subset of ``epoch`` is selected."""
        return self.phases.selection_epoch(epoch, self.select_every)

    def set_epoch(self, epoch: int) -> None:
        """Go to an epoch: a new order, and a new selection if one is due. A second call changes nothing."""
        due = self.selection_epoch(check_count(epoch, "epoch", 0))
        if self._core is None or due != self._selected_at:
            self._core, self._selected_at = self._selected(due), due
        self.epoch = epoch

    def epoch_rows(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return rows and weights of this rank, in the order of the current epoch."""
        core = self.coreset
        order = np.arange(core.size)
        if self.shuffle:
            order = np.random.default_rng((self.seed, _ORDER, self.epoch)).permutation(core.size)
        rows, weights = core.indices[order], core.weights[order]
        rank, replicas = self._place()
        lacking = -core.size % replicas
        rows = np.concatenate((rows, np.resize(rows, lacking)))
        weights = np.concatenate((weights, np.zeros(lacking)))
        return rows[rank::replicas], weights[rank::replicas]

    def record(self, norms: Any) -> None:
        """Record the gradient norms of the current epoch, one per row of this rank, in the order of serving.

        Ranks that share a selection share the norms too, so each of them must call this.
        """
        rows, weights = self.epoch_rows()
        norms = as_numpy(norms)
        if norms.shape != rows.shape:
            raise InvalidInputError(f"norms of shape {norms.shape}: one for each of {len(rows)} rows needed.")
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
        """Return the state as numbers and tensors, with the subset, since the model that selected it has changed."""
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
        """Restore a state of :meth:`state_dict`."""
        if state["n_samples"] != self.context.n_samples:
            given = self.context.n_samples
            raise InvalidInputError(f"the state has n_samples = {state['n_samples']}, but there are {given}.")
        indices, weights = (state[key].cpu().numpy() for key in ("indices", "weights"))
        proved = state.get("guarantee")  # 0.1 stored a sentence
        about = {"method": state["method"], "total_weight": state.get("total_weight")}
        about["guarantee"] = Guarantee.from_dict(proved) if isinstance(proved, dict) else None
        self._core = Coreset(indices, weights, state["n_samples"], **about)
        self.epoch, self._selected_at, self.seed = state["epoch"], state["selected_at"], state["seed"]
        seen = state.get("seen")
        self.context.restore(self.seed, None if seen is None else seen.cpu().numpy())

    def recall(self) -> None:
        """After :meth:`load_state_dict`, compute what the strategy keeps for a run (a fit, say) and no state holds.

        Otherwise the next selection would, and the run's clock would count it twice. A user's own strategy may not
        expect an extra call, and strategies that reuse norms keep nothing else: both are left alone.
        """
        if isinstance(self.strategy, Selector) and not asks_for(self.strategy, "reuses_norms"):
            with suppress(Exception):  # the next selection raises it again
                self._select(self._selected_at, needs_model=False)

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

    def _select(self, epoch: int, *, needs_model: bool = True) -> Coreset:
        context = self.context.at(epoch)
        context.select_every = self.select_every
        if not needs_model:
            context.model = None  # what a strategy keeps depends on the data alone
        elif isinstance(context.model, DistributedDataParallel):
            context.model = context.model.module  # the wrapper's forward pass would wait for the other ranks
        rng = np.random.default_rng((self.seed, _SELECTION, epoch))
        return self.strategy.select(context, self.budget, rng)


def inputs_and_targets(data: Any) -> tuple[Any, Any]:
    """Return X and y of a pair or a data set of tensors; of anything else, itself and None."""
    if isinstance(data, WeightedDataset):
        data = data.dataset
    if isinstance(data, TensorDataset):
        if len(data.tensors) > 2:
            raise InvalidInputError(f"the TensorDataset has {len(data.tensors)} tensors; expected X and y.")
        data = data.tensors if len(data.tensors) == 2 else data.tensors[0]
    if isinstance(data, tuple | list) and len(data) == 2 and hasattr(data[0], "shape"):
        n, entries = n_rows(data[0]), n_rows(data[1])
        if n != entries:
            raise InvalidInputError(f"y has {entries} entries, but X has {n} rows; they must be equal.")
        return data[0], data[1]
    return data, None
