"""A sampler that serves a weighted subset to PyTorch's ``DataLoader``, and a data set that carries the weights."""

import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed
from torch.nn.functional import cross_entropy, one_hot
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset, default_collate

from .._errors import CoresiftError, InvalidInputError, InvalidTypeError
from .._progress import logger
from .._validation import as_numpy, check_count, check_length, parse_budget
from ..coresets.coreset import Coreset, Guarantee
from ..rows.columns import n_rows
from ..selection import SelectionContext, Selector, Strategy, phases, strategy_named
from ..selection.inputs import is_dataset, known_targets, unwrapped
from ..selection.strategy import asks_for, name_of
from .recorder import predictions

_SELECTION, _ORDER = 11, 12  # keys of the random streams of one seed
_BUDGET, _EVERY = 0.1, 20


class WeightedIndex(int):
    """A ``row`` number that carries its ``weight``, without shared state, to a ``DataLoader``'s workers.

    >>> index = WeightedIndex(7, weight=2.5)
    >>> index + 1, index.weight
    (8, 2.5)
    """

    weight: float

    def __new__(cls, row: int, weight: float = 1.0) -> Self:
        index = super().__new__(cls, row)
        index.weight = weight
        return index

    def __getnewargs__(self) -> tuple[int, float]:  # type: ignore[override]
        return int(self), self.weight


class WeightedDataset(Dataset[Any]):
    """A map-style ``dataset`` whose items carry a weight: ``(x, y)`` becomes ``(x, y, w)``.

    The weight is that of the index from :class:`CoresetSampler`, or 1; mappings get it under ``key``. With a
    ``row_key`` the row number follows in the same way, for :meth:`CoresetSampler.record`.

    Examples
    --------
    >>> X, y = torch.eye(20), torch.arange(20) % 2
    >>> data = torch.utils.data.TensorDataset(X, y)
    >>> loader = torch.utils.data.DataLoader(WeightedDataset(data), 5, sampler=CoresetSampler((X, y), "random", 0.5))
    >>> [weights.tolist() for _, _, weights in loader]
    [[2.0, 2.0, 2.0, 2.0, 2.0], [2.0, 2.0, 2.0, 2.0, 2.0]]
    """

    made: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()  # to notice weights that nobody carries

    def __init__(self, dataset: Any, key: str = "weight", row_key: str | None = None) -> None:
        self.dataset, self.key, self.row_key = dataset, key, row_key
        self.made.add(self)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        item = self.dataset[int(index)]
        more = {self.key: torch.tensor(getattr(index, "weight", 1.0), dtype=torch.float32)}
        if self.row_key is not None:
            more[self.row_key] = torch.tensor(int(index))
        if not isinstance(item, Mapping):
            return (*(item if isinstance(item, tuple | list) else (item,)), *more.values())
        if taken := [name for name in more if name in item]:
            raise InvalidInputError(f"the items have a field {taken[0]!r} already; choose another key.")
        return {**item, **more}


class CoresetSampler(Sampler[int]):
    """Serve the rows of a subset in random order, and select a new subset every ``select_every`` epochs.

    Call :meth:`set_epoch` before each epoch (Lightning does). Under DDP the first rank selects and sends the subset to
    the others; each rank serves its part of one common order. Rows of weight 0 make the parts equal in length.

    Parameters
    ----------
    data : SelectionContext, data set, array, tensor, or pair ``(X, y)``
    strategy : str or Strategy, default "auto"
    budget : int, float or str, optional
        Number of samples, or fraction, such as 0.1 or "10%". By default all for strategies that prune, else 10 %.
    select_every : int, optional
        Epochs between two selections. By default 1 for strategies that redraw every epoch, else 20.
    seed, shuffle : int, default 0, bool, default True
        Random seed; whether the order changes from epoch to epoch.
    num_replicas, rank : int, optional
        By default as in ``torch.distributed``. Use ``num_replicas=1`` with Accelerate, which shards the batches.
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
        strategy: str | Strategy = "auto",
        budget: int | float | str | None = None,
        *,
        select_every: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        num_replicas: int | None = None,
        rank: int | None = None,
        **context: Any,
    ) -> None:
        self.seed = check_count(seed, "seed", 0)
        if not isinstance(data, SelectionContext):
            X, y = inputs_and_targets(data)
            found = known_targets(dataset) if y is None and is_dataset(dataset := unwrapped(X)[0]) else y
            data = SelectionContext(X, context.pop("y", found), seed=self.seed, **context)
        elif context:
            raise InvalidInputError(f"{', '.join(context)}: data is a SelectionContext, which has its own.")
        self.context = data
        self.strategy = strategy_named(strategy)
        budget, select_every = with_defaults(self.strategy, budget, select_every)
        self.budget = parse_budget(budget, self.context.n_samples)
        self.select_every, self.shuffle = check_count(select_every, "select_every"), shuffle
        self._replicas, self._rank = num_replicas, rank
        self._check_replicas()
        self.phases = phases(self.strategy, self.context.n_epochs or 1, self.budget / self.context.n_samples)
        self.epoch = 0
        self._core: Coreset | None = None
        self._selected_at = -1
        self._served_at: int | None = None
        self._warned: set[str] = set()

    def _check_replicas(self) -> None:
        rank, replicas = self._rank, self._replicas
        if replicas is not None:
            check_count(replicas, "num_replicas")
        if (rank is None) != (replicas in (None, 1)) and rank != 0:
            raise InvalidInputError(f"rank = {rank} and num_replicas = {replicas} must be given together.")
        if rank is not None and not 0 <= check_count(rank, "rank", 0) < (replicas or 1):
            raise InvalidInputError(f"rank = {rank} must be below num_replicas = {replicas or 1}.")
        if (replicas or 1) > 1 and self.watches:
            why = "ranks that select separately do not know the norms of the others"
            raise InvalidInputError(f"num_replicas = {replicas}: {why}. Leave it out under torch.distributed.")

    @property
    def watches(self) -> bool:
        """Whether the strategy uses, from now on, what :meth:`record` stores."""
        has_seen = getattr(self.strategy, "has_seen_enough", lambda context: False)
        asks = asks_for(self.strategy, "reuses_norms") or asks_for(self.strategy, "reuses_losses")
        return bool(asks and not has_seen(self.context))

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
        """Go to an ``epoch``: a new order, and a new selection if one is due. A second call changes nothing."""
        due = self.selection_epoch(check_count(epoch, "epoch", 0))
        is_kept = self._core is not None and getattr(self.strategy, "is_kept", False)
        if self._core is None or (due != self._selected_at and not is_kept):
            self._core = self._selected(due)
        self.epoch, self._selected_at = epoch, due

    def epoch_rows(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return rows and weights of this rank, in the order of the current epoch."""
        core = self.coreset
        rows, weights = core.indices, core.weights
        if asks_for(self.strategy, "repeats"):
            rows, weights = np.repeat(rows, weights.astype(np.int64)), np.ones(self.n_served)
        if self.shuffle:
            order = np.random.default_rng((self.seed, _ORDER, self.epoch)).permutation(len(rows))
            rows, weights = rows[order], weights[order]
        rank, replicas = self._place()
        lacking = -len(rows) % replicas
        rows = np.concatenate((rows, np.resize(rows, lacking)))
        weights = np.concatenate((weights, np.zeros(lacking)))
        return rows[rank::replicas], weights[rank::replicas]

    @property
    def n_served(self) -> int:
        """Number of samples of an epoch on all ranks: rows of the subset, counting those that are served repeatedly."""
        return int(self.coreset.weights.sum()) if asks_for(self.strategy, "repeats") else self.coreset.size

    def record(self, rows: Any, norms: Any = None, *, outputs: Any = None, targets: Any = None, **columns: Any) -> None:
        """Record what training saw of ``rows``, in any order: gradient ``norms``, or ``columns`` such as ``losses``.

        A classifier's ``outputs`` (b, C) and ``targets`` (b,) give all that a strategy may want; :class:`NormRecorder`
        collects it without them. Ranks that share a selection share records too: each must call this equally often.
        """
        if outputs is not None:
            outputs, targets = outputs.detach().float(), targets.to(outputs.device)
            losses = cross_entropy(outputs, targets, reduction="none")
            residuals = outputs.softmax(1) - one_hot(targets.clamp(min=0), outputs.shape[1])
            columns = {"losses": losses, **predictions(outputs, targets), **columns}
            norms = residuals.norm(dim=1) if norms is None else norms
        given = {"norms": norms, **columns}
        columns = {name: as_numpy(values) for name, values in given.items() if values is not None}
        if not columns:
            raise InvalidInputError("record(rows, norms) needs the rows and the norms, losses or outputs of each.")
        columns["rows"] = as_numpy(rows)
        if self._shares_selection():
            parts: list[Any] = [None] * self.num_replicas
            distributed.all_gather_object(parts, columns)
            is_even = len({len(part["rows"]) for part in parts}) == 1  # then in the order in which one rank would serve
            joined = (lambda each: np.stack(each, axis=1).ravel()) if is_even else np.concatenate
            columns = {name: joined([part[name] for part in parts]) for name in columns}
        self.context.record(**columns)

    def __iter__(self) -> Iterator[int]:
        rows, weights = self.epoch_rows()
        if self._served_at == self.epoch:
            self.warn("set_epoch was not called since the last epoch: the same subset is served in the same order.")
        if not WeightedDataset.made and len(set(weights[weights > 0].tolist())) > 1:
            self.warn("the weights differ, but there is no WeightedDataset to carry them to the loss.")
        yield from map(WeightedIndex, rows.tolist(), weights.tolist())
        self._served_at = self.epoch

    def warn(self, message: str) -> None:
        """Log a ``message`` with the strategy's name as a warning, once."""
        if message not in self._warned:
            self._warned.add(message)
            logger.warning("%s: %s", name_of(self.strategy), message)

    def __len__(self) -> int:
        return -(-self.n_served // self.num_replicas)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as numbers and tensors, with the subset, since the model that selected it has changed."""
        core, state = self.coreset, getattr(self.strategy, "state", None)
        return {
            **{f"seen {name}": torch.tensor(table) for name, table in self.context.records.tables.items()},
            **({} if state is None else {"state": state(self.context)}),
            "epoch": self.epoch,
            "selected_at": self._selected_at,
            "seed": self.seed,
            "n_samples": core.n_samples,
            "budget": self.budget,
            "strategy": name_of(self.strategy),
            "method": core.method,
            "total_weight": core.total_weight,
            "guarantee": core.guarantee and core.guarantee.as_dict(),
            "indices": torch.tensor(core.indices),
            "weights": torch.tensor(core.weights),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a ``state`` of :meth:`state_dict`."""
        n = self.context.n_samples
        for name, now in {"n_samples": n, "budget": self.budget, "strategy": name_of(self.strategy)}.items():
            if (before := state.get(name, now)) != now:
                raise InvalidInputError(f"the state has {name} = {before!r}, but this sampler has {now!r}.")
        indices, weights = (state[key].cpu().numpy() for key in ("indices", "weights"))
        proved = Guarantee.from_dict(p) if isinstance(p := state.get("guarantee"), dict) else None  # 0.1: a sentence
        total, method = state.get("total_weight"), state["method"]
        self._core = Coreset(indices, weights, n, method=method, total_weight=total, guarantee=proved)
        self.epoch, self._selected_at, self.seed = state["epoch"], state["selected_at"], state["seed"]
        tables = {name.removeprefix("seen "): state[name].cpu().numpy() for name in state if name.startswith("seen ")}
        self.context.restore(self.seed, tables)
        if "state" in state:
            self.strategy.restore(self.context, state["state"])  # type: ignore[attr-defined]

    def recall(self) -> None:
        """After :meth:`load_state_dict`, compute what the strategy keeps for a run (a fit, say) and no state holds."""
        # else the next selection would, and the run's clock count it twice; a user's own may not expect an extra call
        if isinstance(self.strategy, Selector) and not self.watches and not self.strategy.is_kept:
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


def with_defaults(strategy: Any, budget: Any, every: Any) -> tuple[Any, Any]:
    """Return the budget and the epochs between two selections: those of the strategy where they are None."""
    own = asks_for(strategy, "own_budget") or _BUDGET, asks_for(strategy, "every") or _EVERY
    return own[0] if budget is None else budget, own[1] if every is None else every


def inputs_and_targets(data: Any) -> tuple[Any, Any]:
    """Return X and y of a pair or a data set of tensors, also in a plain loader; of anything else, itself and None."""
    if isinstance(data, DataLoader) and isinstance(data.dataset, TensorDataset) and data.collate_fn is default_collate:
        data = data.dataset
    if isinstance(data, WeightedDataset):
        data = data.dataset
    if isinstance(data, TensorDataset):
        if len(data.tensors) > 2:
            raise InvalidInputError(f"the TensorDataset has {len(data.tensors)} tensors; expected X and y.")
        data = data.tensors if len(data.tensors) == 2 else data.tensors[0]
    is_pair = isinstance(data, tuple | list) and len(data) == 2 and hasattr(data[0], "shape")
    if isinstance(data, tuple | dict) and not is_pair:
        raise InvalidTypeError(f"data is a {type(data).__name__} of {len(data)}: pass arrays X, y, or a data set.")
    if is_pair:
        check_length(n_rows(data[1]), n_rows(data[0]), "y")
        return data[0], data[1]
    return data, None
