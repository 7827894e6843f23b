"""A run in memory: its device and random streams, how it is prepared, saved to a folder, and resumed from it."""

import dataclasses
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from .. import __version__
from .._errors import InvalidInputError, InvalidTypeError
from .._validation import check_budget
from ..coresets.options import parse_budget
from ..data.splits import DatasetSplits
from ..selection import Strategy, strategy_named
from ..selection.hooks import linear_layer, undisturbed
from ..selection.losses import per_sample_loss, with_class_numbers
from ..selection.strategy import asks_for
from .checkpoint import RunFolder, load_tensors, tensors_of
from .feeds import Augment, Feed, TensorFeed, feeds_of
from .metrics import Seconds, evaluate
from .options import TrainOptions
from .recorder import NormRecorder
from .sampler import CoresetSampler

Metrics = dict[str, Any]
_VAL_FRACTION = 0.1
# Random streams. All selections share one, so what a strategy computes once and keeps is always the same.
_STREAMS = {"split": 21, "training": 22, "augmentation": 23, "selection": 24, "evaluation": 25}


def device_named(device: str | torch.device) -> torch.device:
    """Return the device, "auto" being the best available; raise if it cannot be used."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:  # asserts if built without CUDA
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInputError(f"device = {str(device)!r} cannot be used: {reason}") from None
    return found


@contextmanager
def own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the global generators (dropout uses no others) inside the block; restore their states afterwards."""
    generators = [torch.default_generator]
    if device.type == "cuda":
        generators.append(torch.cuda.default_generators[device.index or 0])
    elif device.type == "mps":
        generators.append(torch.mps._get_default_mps_generator())
    states = [generator.get_state() for generator in generators]
    try:
        for generator in generators:
            generator.manual_seed(seed)
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def described(thing: Any) -> str:
    """Return the qualified name of a function or class, with arguments, simple attributes and a checksum of tensors."""
    if thing is None:
        return "none"
    if isinstance(thing, partial):
        return f"{described(thing.func)} {thing.args} {thing.keywords}"
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if not isinstance(thing, nn.Module):
        return name
    own = ((key, value) for key, value in vars(thing).items() if key != "training" and key[0] != "_")
    simple = {key: value for key, value in own if isinstance(value, int | float | str)}
    checksum = 0
    for tensor in thing.state_dict().values():
        checksum = zlib.crc32(np.ascontiguousarray(tensor.detach().cpu().float().numpy()).data, checksum)
    return f"{name} {simple}" + (f" {checksum:08x}" if checksum else "")


@dataclass(frozen=True)
class Feeds:
    """The data of a run on its device: training, validation and test part, and the augmentation."""

    train: Feed
    val: Feed | None
    test: Feed | None
    augment: Augment | None
    fingerprint: str  # of the training data, before the validation part was taken off


class Run:
    """A run in memory, and how far it is."""

    def __init__(self, model: nn.Module, feeds: Feeds, options: TrainOptions, clock: str) -> None:
        self.model, self.feeds, self.options = model.to(options.device), feeds, options
        self.seconds = Seconds(clock=clock)
        self.history: list[Metrics] = []
        self.sampler = CoresetSampler(
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
        self.optimizer = torch.optim.SGD(
            model.parameters(), lr=options.lr, momentum=options.momentum, weight_decay=options.weight_decay
        )
        self.recorder: NormRecorder | None = None
        if asks_for(options.strategy, "reuses_norms"):
            with own_randomness(self.seed("evaluation"), options.device), undisturbed(model):
                example, _, _ = next(feeds.train.batches(np.zeros(2, dtype=np.int64), np.ones(2), 2))
                self.recorder = NormRecorder(linear_layer(model, None, example) or model)

    @property
    def n_epochs(self) -> int:
        return self.sampler.phases.total

    def seed(self, stream: str, *more: int) -> int:
        sequence = np.random.SeedSequence((self.options.seed, _STREAMS[stream], *more))
        return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))

    @contextmanager
    def stage(self, part: str, *more: int) -> Iterator[None]:
        """Count the time of the block as ``part``, and give it its random stream."""
        place = self.options.device
        with self.seconds.counted(part, place), own_randomness(self.seed(part, *more), place):
            yield

    def evaluate(self, feed: Feed | None) -> dict[str, float] | None:
        if feed is None:
            return None
        with self.stage("evaluation"):
            return evaluate(self.model, feed, self.options.loss)

    def save(self, folder: RunFolder) -> None:
        strategy, found = self.options.strategy, self.optimizer.state_dict()
        parts = {
            "model": tensors_of(self.model),
            "optimizer": {f"{n}/{key}": kept[key] for n, kept in found["state"].items() for key in kept},
            "param_groups": found["param_groups"],
            "sampler": self.sampler.state_dict(),
            "strategy": strategy.state_dict() if hasattr(strategy, "state_dict") else {},
            "history": self.history,
            "seconds": dataclasses.asdict(self.seconds),
        }
        folder.save(len(self.history), parts)

    def resume(self, folder: RunFolder) -> None:
        """Go back to the newest checkpoint, if there is one, and cut the file of metrics back to it."""
        if (kept := folder.load()) is not None:
            load_tensors(self.model, kept["model"], folder.path)
            states: dict[int, dict[str, Any]] = {}
            for name, value in kept["optimizer"].items():
                number, key = name.split("/", 1)
                states.setdefault(int(number), {})[key] = value
            self.optimizer.load_state_dict({"state": states, "param_groups": kept["param_groups"]})
            self.sampler.load_state_dict(kept["sampler"])
            with own_randomness(self.seed("selection"), self.options.device):
                self.sampler.recall()
            if hasattr(self.options.strategy, "load_state_dict"):
                self.options.strategy.load_state_dict(kept["strategy"])
            self.history, self.seconds = kept["history"], Seconds(**kept["seconds"])
        folder.rewrite(self.history)


def resolve(options: TrainOptions, data: Any) -> TrainOptions:
    """Replace the names of strategy, loss and device by what they mean for these data."""
    strategy, loss, val_fraction = options.strategy, options.loss, options.val_fraction
    if isinstance(strategy, str):
        strategy = strategy_named(strategy)
    if not isinstance(strategy, Strategy):
        raise InvalidTypeError(f"strategy = {strategy!r} must be a name or have a method select.")
    if loss is None:
        is_regression = isinstance(data, DatasetSplits) and data.task == "regression"
        loss = "mse" if is_regression else "cross_entropy"
    per_sample_loss(loss)  # raises if it cannot be used
    validates = asks_for(strategy, "needs_validation")
    is_used = bool(validates or options.eval_every)
    if val_fraction is None:
        val_fraction = _VAL_FRACTION if is_used else 0.0
    if val_fraction == 0 and is_used:
        who = "this strategy" if validates else f"eval_every = {options.eval_every}"
        raise InvalidInputError(f"val_fraction = 0, but {who} needs validation data; 0.1 is usual.")
    found = {"strategy": strategy, "loss": loss, "val_fraction": val_fraction}
    return replace(options, device=device_named(options.device), **found)


def load(data: Any, test: Any, transform: Any, options: TrainOptions) -> tuple[Feeds, TrainOptions]:
    """Move the data to the device and hold out the validation part; the budget becomes a number of samples."""
    place, fraction = options.device, options.val_fraction or 0.0
    whole, test_feed, augment = feeds_of(data, test, transform, options.augment, place, options.workers)
    n = len(whole)
    n_val = check_budget(float(fraction), n, "val_fraction") if fraction else 0
    if n_val >= n:
        raise InvalidInputError(f"val_fraction = {fraction} takes all of {n} samples; none is left to train.")
    order = np.random.default_rng((options.seed, _STREAMS["split"])).permutation(n)
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
