"""A training run in memory: prepared from the arguments of :func:`train`, saved to a folder, and resumed from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from .. import __version__
from .._errors import InvalidInputError, InvalidTypeError
from ..coresets.budget import parse_budget
from ..data.splits import DatasetSplits
from ..selection import Strategy, strategy_named
from ..selection.hooks import linear_layer, undisturbed
from ..selection.losses import per_sample_loss, with_class_numbers
from ..selection.strategy import asks_for, rounded_up
from .checkpoint import RunFolder, part_of, restore, snapshot
from .feeds import Augment, Feed, TensorFeed, feeds_of
from .metrics import Seconds
from .options import TrainOptions
from .recorder import NormRecorder
from .runtime import derived_seed, described, device_named, own_randomness
from .sampler import CoresetSampler

Metrics = dict[str, Any]
_VAL_FRACTION = 0.1
# Keys of the random streams of a run. All selections share one: what a strategy computes once and keeps is then the
# same whenever it is computed.
SPLIT, EPOCH, AUGMENT, SELECT, EVALUATE = 21, 22, 23, 24, 25


@dataclass(frozen=True)
class Feeds:
    """The data of a run on its device: training, validation and test part, and the augmentation."""

    train: Feed
    val: Feed | None
    test: Feed | None
    augment: Augment | None
    fingerprint: str  # of the training data, before the validation part was taken off


@dataclass
class Run:
    """A run in memory, and how far it is."""

    model: nn.Module
    feeds: Feeds
    options: TrainOptions
    sampler: CoresetSampler
    optimizer: torch.optim.Optimizer
    recorder: NormRecorder | None
    seconds: Seconds
    history: list[Metrics] = field(default_factory=list)

    @property
    def n_epochs(self) -> int:
        """Epochs in all."""
        return self.sampler.phases.total

    @contextmanager
    def stage(self, part: str, *stream: int) -> Iterator[None]:
        """Count the time of the block as ``part``, and give it its own random stream."""
        seed, device = derived_seed(self.options.seed, *stream), self.options.device
        with self.seconds.counted(part, device), own_randomness(seed, device):
            yield


def resolve(options: TrainOptions, data: Any) -> TrainOptions:
    """Replace the names of strategy, loss and device by what they mean for these data."""
    strategy, loss = options.strategy, options.loss
    if isinstance(strategy, str):
        strategy = strategy_named(strategy)
    if not isinstance(strategy, Strategy):
        raise InvalidTypeError(f"strategy = {strategy!r} must be a name or have a method select.")
    if loss is None:
        is_regression = isinstance(data, DatasetSplits) and data.task == "regression"
        loss = "mse" if is_regression else "cross_entropy"
    per_sample_loss(loss)  # raises if it cannot be used
    val_fraction = options.val_fraction
    validates = asks_for(strategy, "needs_validation")
    if val_fraction is None:
        val_fraction = _VAL_FRACTION if validates or options.eval_every else 0.0
    if val_fraction == 0 and (validates or options.eval_every):
        who = "this strategy" if validates else f"eval_every = {options.eval_every}"
        raise InvalidInputError(f"val_fraction = 0, but {who} needs validation data; 0.1 is usual.")
    return replace(
        options,
        strategy=strategy,
        loss=loss,
        val_fraction=float(val_fraction),
        device=device_named(options.device),
    )


def load(data: Any, test: Any, transform: Any, options: TrainOptions) -> tuple[Feeds, TrainOptions]:
    """Move the data to the device and hold out the validation part; the budget becomes a number of samples."""
    whole, test_feed, augment = feeds_of(
        data, test, transform, options.augment, options.device, options.workers
    )
    n, fraction = len(whole), options.val_fraction or 0.0
    n_val = rounded_up(fraction * n)
    if n_val >= n:
        raise InvalidInputError(
            f"val_fraction = {fraction} takes all of {n} samples; none is left to train on."
        )
    order = np.random.default_rng((options.seed, SPLIT)).permutation(n)
    feed = whole.take(np.sort(order[n_val:])) if n_val else whole
    val_feed = whole.take(np.sort(order[:n_val])) if n_val else None
    fingerprint = whole.fingerprint()
    for each in (feed, val_feed, test_feed):
        if isinstance(each, TensorFeed):
            each.y = with_class_numbers(each.y, options.loss)
    options = replace(options, budget=parse_budget(options.budget, len(feed)))
    return Feeds(feed, val_feed, test_feed, augment, fingerprint), options


def identity(model: nn.Module, feeds: Feeds, transform: Any, options: TrainOptions) -> dict[str, Any]:
    """Return what tells one run from another, as JSON can hold it, and the versions of the software."""
    strategy, loss = options.strategy, options.loss
    shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in model.named_parameters())
    return {
        **options.recorded(),
        "strategy": repr(strategy) if dataclasses.is_dataclass(strategy) else described(strategy),
        "loss": loss if isinstance(loss, str) else described(loss),
        "model": type(model).__name__,
        "parameters": shapes if len(shapes) < 2000 else f"{shapes[:2000]}...",
        "augment": described(feeds.augment),
        "transform": described(transform),
        "test": None if feeds.test is None else feeds.test.fingerprint(),
        "data": feeds.fingerprint,
        "software": {"coresift": __version__, "torch": torch.__version__, "numpy": np.__version__},
    }


def prepare(model: nn.Module, feeds: Feeds, options: TrainOptions, clock: str) -> Run:
    """Make the sampler, the optimizer and, for strategies that use it, the recorder of gradient norms."""
    model.to(options.device)
    sampler = CoresetSampler(
        feeds.train.X,
        options.strategy,
        options.budget,  # type: ignore[arg-type]
        select_every=options.select_every,
        seed=options.seed,
        num_replicas=1,
        y=feeds.train.y,
        model=model,
        loss=options.loss,
        X_val=None if feeds.val is None else feeds.val.X,
        y_val=None if feeds.val is None else feeds.val.y,
        n_epochs=options.epochs,
        transform=feeds.train.transform,
    )
    optimizer = torch.optim.SGD(
        model.parameters(), lr=options.lr, momentum=options.momentum, weight_decay=options.weight_decay
    )
    recorder = None
    if asks_for(options.strategy, "reuses_norms"):
        seed = derived_seed(options.seed, EVALUATE)
        with own_randomness(seed, options.device), undisturbed(model):
            example, _, _ = next(feeds.train.batches(np.zeros(2, dtype=np.int64), np.ones(2), 2))
            recorder = NormRecorder(linear_layer(model, None, example) or model)
    return Run(model, feeds, options, sampler, optimizer, recorder, Seconds(clock=clock))


def save(run: Run, folder: RunFolder) -> None:
    """Write a checkpoint of everything that has a state."""
    strategy = run.options.strategy
    own = strategy.state_dict() if hasattr(strategy, "state_dict") else {}
    tensors, state = snapshot(run.model, run.optimizer, sampler=run.sampler.state_dict(), strategy=own)
    state |= {"history": run.history, "seconds": dataclasses.asdict(run.seconds)}
    folder.save(len(run.history), tensors, state)


def resume(run: Run, folder: RunFolder) -> None:
    """Go back to the newest checkpoint, if there is one, and cut the file of metrics back to it."""
    if (kept := folder.load()) is not None:
        tensors, state = kept
        restore(run.model, run.optimizer, tensors, state)
        run.sampler.load_state_dict({**state["sampler"], **part_of("sampler", tensors)})
        with own_randomness(derived_seed(run.options.seed, SELECT), run.options.device):
            run.sampler.recall()
        if hasattr(run.options.strategy, "load_state_dict"):
            run.options.strategy.load_state_dict({**state["strategy"], **part_of("strategy", tensors)})
        run.history, run.seconds = state["history"], Seconds(**state["seconds"])
    folder.rewrite(run.history)
