"""One line around an existing ``DataLoader``, and a callback for Lightning and the Hugging Face ``Trainer``."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader

from .._errors import InvalidInputError, InvalidTypeError
from ..selection import Strategy
from ..selection.gradients import only_tensor
from ..selection.inputs import split_batch
from ..selection.losses import per_sample_loss
from .recorder import NormRecorder
from .sampler import CoresetSampler, WeightedDataset

_KEPT = ("num_workers", "pin_memory", "drop_last", "timeout", "worker_init_fn", "multiprocessing_context")
_KEPT_TOO = ("prefetch_factor", "persistent_workers", "pin_memory_device", "batch_size")


class _Carried(WeightedDataset):
    """Items with their rows and weights, whatever they are."""

    def __getitem__(self, index: int) -> tuple[int, float, Any]:
        return int(index), getattr(index, "weight", 1.0), self.dataset[int(index)]


def _collated(items: list[tuple[int, float, Any]], collate: Any) -> tuple[Tensor, Tensor, Any]:
    """Collate items of :class:`_Carried` to rows (b,), weights (b,) and the batch that ``collate`` makes."""
    rows, weights, values = zip(*items, strict=True)
    return torch.tensor(rows), torch.tensor(weights, dtype=torch.float32), collate(list(values))


class SiftedLoader:
    """Serve the batches of a ``DataLoader``, drawn by a strategy that sees what the model does with them.

    A batch is what the loader would make of its rows; train on it before asking for the next. ``weights`` and ``rows``
    are those of the current batch; where the weights differ, use them: ``weighted_loss(losses, loader.weights)``. Each
    iteration is the next epoch, unless :meth:`set_epoch` says otherwise. Made by :func:`sift`; ``sampler`` selects.

    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> model, data = nn.Linear(8, 4), TensorDataset(torch.eye(8), torch.arange(8) % 4)
    >>> loader = sift(DataLoader(data, batch_size=4), model, n_epochs=3)
    >>> for x, y in loader:
    ...     model(x).square().sum().backward()
    >>> len(loader), loader.weights
    (2, tensor([1., 1., 1., 1.]))
    """

    def __init__(self, loader: DataLoader[Any], model: nn.Module, sampler: CoresetSampler) -> None:
        self.model = model
        self.coreset_sampler = sampler  # a trainer that finds "sampler" would set its epoch too early
        kept = {name: getattr(loader, name) for name in (*_KEPT, *_KEPT_TOO) if hasattr(loader, name)}
        if kept.get("drop_last") and sampler.budget < (size := kept.get("batch_size") or 1):
            raise InvalidInputError(f"budget = {sampler.budget}, but with drop_last=True no batch of {size} is left.")
        data, collate = _Carried(loader.dataset), partial(_collated, collate=loader.collate_fn)
        self.loader: DataLoader[Any] = DataLoader(data, sampler=sampler, collate_fn=collate, **kept)
        self.dataset, self.batch_size = loader.dataset, loader.batch_size
        self.rows, self._weights, self._is_read = torch.zeros(0, dtype=torch.int64), torch.zeros(0), False
        self._next = 0
        self._recorder, self._hooks = NormRecorder(None), ExitStack()
        self._outputs: Tensor | None = None
        self._batch: Any = None

    @property
    def weights(self) -> Tensor:
        """The weights of the current batch, (b,)."""
        self._is_read = True
        return self._weights

    def set_epoch(self, epoch: int) -> None:
        """Go to an ``epoch``."""
        self._next = epoch

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        self.finish()  # the last epoch, if its last batch was never followed by a request for another
        self.coreset_sampler.set_epoch(self._next)
        self._next += 1
        self._recorder = NormRecorder(self.model if self.coreset_sampler.watches else None)
        self._hooks.enter_context(self._recorder.watching())
        self._hooks.enter_context(self.model.register_forward_hook(self._catch))
        for rows, weights, batch in self.loader:
            self.rows, self._weights, self._batch, self._outputs = rows, weights, batch, None
            yield batch
            self._end_step()
        self.finish()

    def _catch(self, module: nn.Module, given: Any, output: Any) -> None:
        if (found := only_tensor(output)).requires_grad:
            self._outputs = found.detach()

    def finish(self) -> None:
        """Record what was seen of the current epoch; the next iteration does so, too."""
        self._end_step()
        self._hooks.close()
        if self.coreset_sampler.watches and len((found := self._recorder.take())["rows"]):
            self.coreset_sampler.record(**found)

    def _end_step(self) -> None:
        """Record what the model did with the batch that was served last."""
        batch, self._batch, outputs, self._outputs = self._batch, None, self._outputs, None
        if batch is None:
            return
        if not self._is_read and len(set(self._weights[self._weights > 0].tolist())) > 1:
            self.coreset_sampler.warn("the weights differ, but nobody read loader.weights: use them in the loss.")
        if not self.coreset_sampler.watches:
            return
        if outputs is None or len(outputs) != len(self.rows):
            self.coreset_sampler.warn("the model given to sift did not run on this batch: nothing is recorded of it.")
            return
        (_, targets), loss, losses = split_batch(batch), self.coreset_sampler.context.loss, None
        if targets is not None:
            targets = targets.to(outputs.device)
            if loss != "cross_entropy" or (outputs.ndim == 2 and targets.ndim == 1):
                losses = per_sample_loss(loss)(outputs, targets)
        # the user's loss is taken to be a mean, up to a factor
        self._recorder.end_step(self.rows, torch.ones(len(outputs), device=outputs.device), losses, outputs, targets)

    def metrics(self) -> dict[str, float]:
        """Numbers about the current epoch, for a logger."""
        sampler = self.coreset_sampler
        return {"coreset_samples": float(sampler.n_served), "coreset_rows": float(sampler.coreset.size)}

    def state_dict(self) -> dict[str, Any]:
        """Return the state, for a checkpoint at the end of an epoch."""
        return {"sampler": self.coreset_sampler.state_dict(), "epoch": self._next - 1}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a ``state`` of :meth:`state_dict`."""
        self.coreset_sampler.load_state_dict(state["sampler"])
        self._next = state["epoch"] + 1


def sift(
    loader: DataLoader[Any],
    model: nn.Module,
    strategy: str | Strategy = "auto",
    budget: int | float | str | None = None,
    *,
    n_epochs: int | None = None,
    **options: Any,
) -> SiftedLoader:
    """Return a loader whose batches a strategy chooses. The loop stays as it is: ``for batch in sift(loader, model)``.

    Parameters
    ----------
    loader : DataLoader
        Over a map-style data set, with its own batch size, workers and collate function. Its order is replaced.
    model : torch.nn.Module
        Its outputs enter the loss: in Lightning the network, not the ``LightningModule``. It is watched in training.
    strategy, budget, n_epochs, **options
        As in :class:`CoresetSampler`; "auto" needs ``n_epochs``, the length of the run.

    Examples
    --------
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> loader = DataLoader(TensorDataset(torch.eye(8), torch.arange(8) % 4), batch_size=4)
    >>> model = nn.Linear(8, 4)
    >>> for x, y in sift(loader, model, n_epochs=3):
    ...     nn.functional.cross_entropy(model(x), y).backward()
    """
    if not isinstance(loader, DataLoader):
        raise InvalidTypeError(f"loader = {loader!r} must be a torch.utils.data.DataLoader.")
    if loader.batch_sampler is None or type(loader.batch_sampler) is not BatchSampler:
        raise InvalidInputError("the loader has a batch_sampler of its own: build it on a CoresetSampler, with record.")
    sampler = CoresetSampler(loader, strategy, budget, model=model, n_epochs=n_epochs, **options)
    return SiftedLoader(loader, model, sampler)


class CoresetCallback:
    """Keep ``loader``, a :class:`SiftedLoader`, in step with Lightning or with the ``Trainer`` of transformers.

    Metrics are logged. With Lightning, which also keeps the state in its checkpoints (transformers: the last line):

    >>> callback = CoresetCallback(sift(loader, network, n_epochs=10))  # doctest: +SKIP
    >>> Trainer(callbacks=[callback]).fit(module, callback.loader)  # doctest: +SKIP
    >>> callback.attach(trainer)  # doctest: +SKIP
    """

    state_key = "CoresetCallback"  # in a checkpoint of Lightning

    def __init__(self, loader: SiftedLoader) -> None:
        self.loader = loader
        self.state_dict, self.load_state_dict = loader.state_dict, loader.load_state_dict

    def __getattr__(self, name: str) -> Any:  # both frameworks call many hooks; those not defined here do nothing
        if name.startswith(("on_", "setup", "teardown")):
            return lambda *args, **kwargs: None
        raise AttributeError(name)

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        """Log the metrics of the epoch (Lightning)."""
        self.loader.finish()
        module.log_dict(self.loader.metrics())

    def attach(self, trainer: Any) -> None:
        """Let ``trainer``, a ``transformers.Trainer``, train on the loader."""
        if not inspect.ismethod(getattr(trainer, "get_train_dataloader", None)):
            raise InvalidTypeError(f"trainer = {trainer!r} has no get_train_dataloader: give a transformers.Trainer.")
        trainer.get_train_dataloader = lambda: self.loader
        trainer.add_callback(self)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Record what was seen of the epoch (transformers)."""
        self.loader.finish()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        """Add the metrics of the epoch to the log (transformers)."""
        if logs is not None:
            logs.update(self.loader.metrics())
