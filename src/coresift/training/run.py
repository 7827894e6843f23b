"""A run in memory: its device and random streams, how it is prepared, saved to a folder, and resumed from it."""

import dataclasses
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from .. import __version__
from .._errors import InvalidInputError, InvalidTypeError
from .._validation import as_numpy, check_budget, check_length, parse_budget
from ..data.splits import DatasetSplits
from ..selection import strategy_named
from ..selection.gradients import check_trainable, has_embedding, linear_layer, own_randomness, undisturbed
from ..selection.losses import per_sample_loss, with_class_numbers
from ..selection.strategy import asks_for
from .checkpoint import RunFolder, load_tensors, tensors_of
from .feeds import Augment, Feed, feeds_of, targets_of
from .metrics import Seconds, evaluate
from .options import AMP, OPTIMIZERS, TrainOptions
from .recorder import NormRecorder
from .sampler import CoresetSampler, with_defaults

Metrics = dict[str, Any]
_VAL_FRACTION = 0.1
_PLAIN = (int, float, str, list, dict, type(None))  # what JSON can hold of the state of a scheduler
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
    numbers: NDArray[np.int64]  # of the training rows in that data


class Run:
    """A run in memory, and how far it is. Several processes share a run if ``torch.distributed`` is initialised."""

    def __init__(self, model: nn.Module, feeds: Feeds, options: TrainOptions, clock: str, scheduler: Any) -> None:
        self.model, self.feeds, self.options = model.to(options.device), feeds, options
        self.seconds = Seconds(clock=clock)
        self.history: list[Metrics] = []
        known = {"y": feeds.train.y, "transform": feeds.train.transform, "loss": options.loss, "model": model}
        known |= {"seed": options.seed, "n_epochs": options.epochs, "workers": options.workers}
        if feeds.val is not None:
            known |= {"X_val": feeds.val.samples, "y_val": feeds.val.y}
        strategy, every = options.strategy, options.select_every
        self.sampler = CoresetSampler(feeds.train.samples, strategy, options.budget, select_every=every, **known)
        held_out = 0 if feeds.val is None else len(feeds.val)
        self.sampler.context.numbers, self.sampler.context.n_given = feeds.numbers, len(feeds.train) + held_out
        self.n_epochs = self.sampler.phases.total
        self.rank, self.world = self.sampler.rank, self.sampler.num_replicas
        if options.batch_size % self.world:
            raise InvalidInputError(f"batch_size = {options.batch_size} must be a multiple of {self.world} processes.")
        self.batch_size = options.batch_size // self.world
        self.optimizer = optimizer_of(options, model)
        self.forward = DistributedDataParallel(model) if self.world > 1 else model
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        is_made = scheduler is None or hasattr(scheduler, "state_dict")
        self.scheduler = scheduler if is_made else scheduler(self.optimizer)
        self.amp = _amp_type(options.amp, options.device)
        self.scaler = torch.amp.GradScaler(options.device.type, enabled=self.amp is torch.float16)
        layer = None
        if self.sampler.watches and asks_for(options.strategy, "reuses_norms"):
            with own_randomness(options.device, self.seed("evaluation")), undisturbed(model):
                rows = np.arange(min(2, len(feeds.train)))
                example, _, _ = next(feeds.train.batches(rows, np.ones(len(rows)), 2))
                layer = linear_layer(model, None, example) or model
        self.recorder = NormRecorder(layer)

    def seed(self, stream: str, *more: int) -> int:
        sequence = np.random.SeedSequence((self.options.seed, _STREAMS[stream], *more))
        return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))

    @contextmanager
    def stage(self, part: str, *more: int) -> Iterator[None]:
        """Count the time of the block as ``part``, and give it its random stream."""
        place = self.options.device
        with self.seconds.counted(part, place), own_randomness(place, self.seed(part, *more)):
            yield

    def evaluate(self, feed: Feed | None) -> dict[str, float] | None:
        """Evaluate the model; the first process does, for all."""
        box: list[Any] = [None]
        with self.stage("evaluation"):
            if feed is not None and self.rank == 0:
                box = [evaluate(self.model, feed, self.options.loss)]
            if self.world > 1:
                torch.distributed.broadcast_object_list(box)
        return box[0]

    def shares(self, weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
        """Return the share of each sample's loss in that of its step, and the number of steps.

        A step divides by the weight of its samples or, if the strategy says so, by their number.
        """
        counted = weights
        if asks_for(self.options.strategy, "divides_by_count"):  # within k of n, a sample that counts once weighs n/k
            n = len(self.feeds.train)
            unit = n / float(self.options.budget or n) if len(weights) * self.world < n else 1.0  # 1 on all data
            counted = np.where(weights > 0, unit, 0.0)
        size = self.batch_size * self.options.accumulate
        found = np.add.reduceat(counted, np.arange(0, len(weights), size))
        if self.world > 1:  # the gradients are averaged over the processes
            mean = torch.tensor(found, dtype=torch.float32, device=self.options.device) / self.world
            torch.distributed.all_reduce(mean)
            found = mean.double().cpu().numpy()
        return weights / np.maximum(found.repeat(size)[: len(weights)], np.finfo(np.float32).tiny), len(found)

    def set_rate(self, epoch: int) -> float:
        """Set the learning rate of an epoch, unless there is a scheduler that does, and return it."""
        groups = self.optimizer.param_groups
        if self.scheduler is None:
            for group, rate in zip(groups, self.rates, strict=True):
                group["lr"] = rate * self.options.factor(epoch, self.n_epochs)
        return float(groups[0]["lr"])

    @contextmanager
    def batch(self, *, is_last: bool) -> Iterator[None]:
        """Compute in mixed precision if asked to; processes exchange gradients at the last batch of a step only."""
        waits = not is_last and isinstance(self.forward, DistributedDataParallel)
        alone = self.forward.no_sync() if waits else nullcontext()  # type: ignore[operator]
        mixed = nullcontext() if self.amp is None else torch.autocast(self.options.device.type, self.amp)
        with mixed, alone:
            yield

    def step(self) -> None:
        """Take a step along the gradients, clipped if asked for, and clear them."""
        if self.options.clip is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def save(self, folder: RunFolder) -> None:
        strategy, found = self.options.strategy, self.optimizer.state_dict()
        plan = {} if self.scheduler is None else self.scheduler.state_dict()
        parts = {
            "model": tensors_of(self.model),
            "optimizer": {f"{n}/{key}": kept[key] for n, kept in found["state"].items() for key in kept},
            "param_groups": found["param_groups"],
            "scheduler": {key: value for key, value in plan.items() if isinstance(value, _PLAIN)},
            "scaler": self.scaler.state_dict(),
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
            if self.scheduler is not None:
                self.scheduler.load_state_dict(kept["scheduler"])
            self.scaler.load_state_dict(kept.get("scaler", {}))
            self.sampler.load_state_dict(kept["sampler"])
            with own_randomness(self.options.device, self.seed("selection")):
                self.sampler.recall()
            if hasattr(self.options.strategy, "load_state_dict"):
                self.options.strategy.load_state_dict(kept["strategy"])
            self.history, self.seconds = kept["history"], Seconds(**kept["seconds"])
        if self.rank == 0:
            folder.rewrite(self.history)


def optimizer_of(options: TrainOptions, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer: by name, as it was given, or made of the parameters by the function that was given."""
    given = options.optimizer
    groups = getattr(given, "param_groups", [{"params": model.parameters()}])
    check_trainable(each for group in groups for each in group["params"])
    if isinstance(given, str):
        more = {"momentum": options.momentum} if given == "sgd" else {}
        kind = getattr(torch.optim, OPTIMIZERS[given])
        decay, fused = options.weight_decay, _can_fuse(model, options.device) or None
        given = kind(model.parameters(), lr=options.lr, weight_decay=decay, fused=fused, **more)
        if fused and more.get("momentum"):
            for each in model.parameters():  # for those without a gradient in the first step it would never be made
                given.state[each] = {"momentum_buffer": torch.zeros_like(each)}
    elif callable(given) and not isinstance(given, torch.optim.Optimizer):
        given = given(model.parameters())
    if not isinstance(given, torch.optim.Optimizer):
        raise InvalidTypeError(f"optimizer = {given!r} must be a name, an optimizer, or a function of the parameters.")
    return given


def _can_fuse(model: nn.Module, device: torch.device) -> bool:
    """Whether one call can update all parameters, in the order of memory; on a CPU it is several times as fast."""

    def fits(each: nn.Parameter) -> bool:
        is_usual = each.requires_grad and each.is_floating_point() and not is_lazy(each)
        return is_usual and torch.ops.aten.is_non_overlapping_and_dense(each)

    is_sparse = any(getattr(module, "sparse", False) for module in model.modules())
    return device.type == "cpu" and not is_sparse and all(map(fits, model.parameters()))


def _amp_type(amp: Any, device: torch.device) -> torch.dtype | None:
    if amp is None or amp is False:
        return None
    found = torch.bfloat16 if amp is True else getattr(torch, AMP[amp]) if isinstance(amp, str) else amp
    if found is torch.float16 and device.type == "cpu":
        raise InvalidInputError("amp = 'fp16' needs a GPU; on a CPU use 'bf16'.")
    return found


def resolve(options: TrainOptions, data: Any) -> TrainOptions:
    """Replace the names of strategy, loss and device by what they mean for these data."""
    strategy, loss, val_fraction = strategy_named(options.strategy), options.loss, options.val_fraction
    if loss is None:
        loss = "mse" if isinstance(data, DatasetSplits) and data.task == "regression" else "cross_entropy"
    per_sample_loss(loss)  # raises if it cannot be used
    validates = asks_for(strategy, "needs_validation")
    is_used = validates or options.eval_every
    if val_fraction is None:
        val_fraction = _VAL_FRACTION if is_used else 0.0
    if val_fraction == 0 and is_used:
        who = "this strategy" if validates else f"eval_every = {options.eval_every}"
        raise InvalidInputError(f"val_fraction = 0, but {who} needs validation data; 0.1 is usual.")
    budget, every = with_defaults(strategy, options.budget, options.select_every)
    found = {"strategy": strategy, "loss": loss, "val_fraction": val_fraction, "budget": budget, "select_every": every}
    return replace(options, device=device_named(options.device), **found)


def load(
    model: nn.Module, data: Any, labels: Any, test: Any, transform: Any, options: TrainOptions
) -> tuple[Feeds, TrainOptions]:
    """Move the data to the device and hold out the validation part; the budget becomes a number of samples."""
    place, fraction = options.device, options.val_fraction or 0.0
    reading = place, options.workers, has_embedding(model)
    whole, test_feed, augment = feeds_of(data, test, transform, options.augment, *reading)
    if labels is not None:
        check_length(len(labels), len(whole), "labels", "data")
        whole.y = targets_of(labels).to(place) if whole.is_held else labels
    if not (n := len(whole)) or (test_feed is not None and not len(test_feed)):
        raise InvalidInputError(f"the {'test' if n else 'training'} data has no samples.")
    fingerprint = whole.fingerprint()
    n_val = check_budget(float(fraction), n, "val_fraction") if fraction else 0
    if n_val >= n:
        raise InvalidInputError(f"val_fraction = {fraction} takes all of {n} samples; none is left to train.")
    order = np.random.default_rng((options.seed, _STREAMS["split"])).permutation(n)
    if n_val and (kept := asks_for(options.strategy, "_included")):  # rows that must be chosen are not held out
        order = order[np.argsort(np.isin(order, as_numpy(kept.__self__.include)), kind="stable")]
    feed = whole.take(np.sort(order[n_val:])) if n_val else whole
    val_feed = whole.take(np.sort(order[:n_val])) if n_val else None
    for each in (feed, val_feed, test_feed):
        if each is not None:
            each.loss = options.loss
            each.y = with_class_numbers(each.y, options.loss) if each.is_held else each.y
    options = replace(options, budget=parse_budget(options.budget, len(feed)))
    return Feeds(feed, val_feed, test_feed, augment, fingerprint, np.sort(order[n_val:])), options


def identity(model: nn.Module, feeds: Feeds, transform: Any, scheduler: Any, options: TrainOptions) -> dict[str, Any]:
    """Return what tells one run from another, as JSON can hold it, and the versions of the software."""
    strategy, loss = options.strategy, options.loss
    shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in model.named_parameters())
    return {
        **options.recorded(),
        "strategy": _settings(strategy) if dataclasses.is_dataclass(strategy) else described(strategy),
        **{name: _named(getattr(options, name)) for name in ("optimizer", "amp", "early_stopping")},
        "scheduler": None if scheduler is None else described(scheduler),
        "loss": loss if isinstance(loss, str) else described(loss),
        "model": type(model).__name__,
        "parameters": shapes if len(shapes) < 2000 else f"{shapes[:2000]}...",
        "augment": described(feeds.augment),
        "transform": described(transform),
        "test": None if feeds.test is None else feeds.test.fingerprint(),
        "data": feeds.fingerprint,
        "software": {"coresift": __version__, "torch": torch.__version__, "numpy": np.__version__},
    }


def _settings(value: Any) -> str:
    """Describe a strategy with its settings: arrays and files of scores by a checksum, functions by their names."""
    if dataclasses.is_dataclass(value):
        names = [each.name for each in dataclasses.fields(value)]
        return f"{type(value).__name__}({', '.join(f'{name}={_settings(getattr(value, name))}' for name in names)})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}={_settings(each)}' for key, each in value.items())}}}"
    if isinstance(value, str | os.PathLike) and Path(value).suffix == ".npz" and Path(value).is_file():
        return f"{zlib.crc32(Path(value).read_bytes()):08x}"
    if hasattr(value, "shape") or (isinstance(value, list | tuple) and value):
        array = np.ascontiguousarray(as_numpy(value.toarray() if hasattr(value, "toarray") else value))
        return f"{array.shape} {array.dtype} {zlib.crc32(array.tobytes()):08x}"
    return described(value) if callable(value) or repr(value) == object.__repr__(value) else repr(value)


def _named(value: Any) -> Any:
    if isinstance(value, torch.optim.Optimizer):
        return f"{described(value)} {value.defaults}"
    return value if isinstance(value, str | int | None) else described(value)
