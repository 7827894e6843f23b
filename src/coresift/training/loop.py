"""Training on subsets: prepare, resume if there is something to resume, then epoch after epoch."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .. import __version__
from .._errors import InvalidInputError, InvalidTypeError
from .._progress import Bars, Display, Progress
from .._validation import check_choice
from ..coresets.budget import parse_budget
from ..coresets.coreset import Coreset
from ..data.splits import DatasetSplits
from ..selection import SelectionContext, Strategy, strategy_named
from ..selection.hooks import linear_layer, only_tensor, undisturbed
from ..selection.losses import per_sample_loss, with_class_numbers
from ..selection.strategy import asks_for, rounded_up
from .checkpoint import RunFolder, part_of, restore, snapshot
from .feeds import Augment, Feed, TensorFeed, feeds_of
from .metrics import CLOCKS, Seconds, are_classes, counts_hits, evaluate, weighted_loss
from .options import TrainOptions
from .recorder import NormRecorder
from .runtime import derived_seed, described, device_named, own_randomness
from .sampler import CoresetSampler

Metrics = dict[str, Any]
_VAL_FRACTION = 0.1
# Keys of the random streams of a run. All selections share one: what a strategy computes once and keeps is then the
# same whenever it is computed.
_SPLIT, _EPOCH, _AUGMENT, _SELECT, _EVALUATE = (21,), 22, 23, (24,), (25,)


@dataclass(frozen=True)
class TrainResult:
    """The result of a run.

    Attributes
    ----------
    model : torch.nn.Module
        The model that was given, trained.
    history : list of dict
        The metrics of each epoch.
    test : dict or None
        Loss, and accuracy or root mean square error, on the test set.
    seconds : Seconds
        Time spent on selection, training and evaluation.
    n_epochs : int
        Epochs that were run; a warm start runs fewer than requested.
    subset_size : int
        Samples in the subset of the last epoch.
    coreset : Coreset or None
        That subset; None if the run had been finished before.
    """

    model: nn.Module
    history: list[Metrics]
    test: dict[str, float] | None
    seconds: Seconds
    n_epochs: int
    subset_size: int
    coreset: Coreset | None = None


def train(
    model: nn.Module,
    data: Any,
    strategy: str | Strategy = "rbf",
    budget: int | float | str = "10%",
    *,
    test: Any = None,
    epochs: int = 200,
    select_every: int = 20,
    batch_size: int = 20,
    lr: float = 0.01,
    momentum: float = 0.9,
    weight_decay: float = 5e-4,
    schedule: str = "cosine",
    loss: str | Callable[..., Any] | None = None,
    val_fraction: float | None = None,
    eval_every: int = 0,
    transform: Callable[[Any], Any] | None = None,
    augment: Callable[[Any, torch.Generator], Any] | bool = True,
    seed: int = 0,
    device: str | torch.device = "auto",
    workers: int = 0,
    out: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
    on_epoch: Callable[[Metrics], None] | None = None,
    progress: bool | Display = False,
    about: dict[str, Any] | None = None,
    clock: str = "wall",
) -> TrainResult:
    """Train a model on a weighted subset that is selected again every ``select_every`` epochs.

    Each step of stochastic gradient descent minimises ``sum w l / sum w``; the defaults are those of the paper. All
    random numbers come from ``seed``; the global generators are left as they were. If a call with ``out`` is killed,
    the same call resumes from the last checkpoint and ends with the same weights and metrics, bit for bit (on the
    same machine, with the same number of threads). After the end, it returns the stored result.

    Parameters
    ----------
    model : torch.nn.Module
        Trained in place.
    data : pair ``(X, y)``, map-style data set, or ``DatasetSplits``
        Arrays and tensors are moved to the device and indexed there; a data set is read by ``workers``.
    strategy : str or Strategy, default "rbf"
    budget : int, float or str, default "10%"
        Number of samples, fraction of the training samples, or percentage.
    test : optional
        Like ``data``; evaluated once, at the end.
    epochs : int, default 200
        A warm start (kappa = 1/2) runs ``ceil(kappa * epochs * fraction)`` epochs on all data, then
        ``epochs - kappa * epochs`` on the subset.
    select_every, batch_size, lr, momentum, weight_decay
    schedule : {"cosine", "constant"}, default "cosine"
        The learning rate in epoch t of T is ``lr / 2 * (1 + cos(pi t / T))``, where T counts the epochs that are run.
    loss : str or callable, optional
        As in :class:`coresift.selection.SelectionContext`; "mse", "l1" or "huber" for regression. By default
        "cross_entropy", or "mse" if ``data`` is a ``DatasetSplits`` of a regression.
    val_fraction : float, optional
        Fraction of the training data held out for validation; by default 0.1 if it is used, else 0.
    eval_every : int, default 0
        Epochs between two evaluations on the validation data; 0 for none.
    transform : callable, optional
        Applied to a batch of inputs on the device, before the model. By default bytes are divided by 255 and the
        inputs of a ``DatasetSplits`` are normalised.
    augment : callable of a batch and a generator, or bool, default True
        Applied before ``transform``, in training only. True means what a ``DatasetSplits`` asks for.
    seed : int, default 0
    device : default "auto"
        "auto" is CUDA, else MPS, else the CPU.
    workers : int, default 0
        Processes that read a data set which is not in memory.
    out : path, optional
        Folder of the run: ``config.json``, ``data.json`` (for ``DatasetSplits``: names of classes and columns, means
        and deviations of standardised columns), ``metrics.jsonl``, ``model.safetensors``, ``result.json``, checkpoints.
    checkpoint_seconds : float, default 30
        Minimum time between two checkpoints, written at the end of an epoch; 0 for one after each.
    on_epoch : callable, optional
        Called with the metrics of each epoch after they are written.
    progress : bool or display, default False
        Draw a bar on standard error (needs the extra ``cli``).
    about : dict, optional
        Stored in ``config.json``.
    clock : {"wall", "cpu"}, default "wall"
        How ``seconds`` are measured. "cpu" counts the processor time of this process, for busy machines.

    Returns
    -------
    TrainResult
    """
    given = locals()
    check_choice(clock, "clock", tuple(CLOCKS))
    options = TrainOptions(**{each.name: given[each.name] for each in dataclasses.fields(TrainOptions)})
    options = _resolve(options.checked(), data)
    feeds, options = _load(data, test, transform, options)

    folder = None if out is None else RunFolder(Path(out))
    if folder is not None:
        identity = _identity(model, feeds, transform, options)
        folder.begin({**identity, "software": _software(), "about": about})
        if (found := folder.result()) is not None:
            folder.load_model(model.to(options.device))
            return _result(model, found, Seconds(**found["seconds"]))
        if isinstance(data, DatasetSplits):
            folder.describe(data.described())

    run = _prepare(model, feeds, options, clock)
    if folder is not None:
        _resume(run, folder)
    saved_at = time.monotonic()
    with _shown(progress, run.n_epochs) as bar:
        for epoch in range(len(run.history), run.n_epochs):
            metrics = _epoch(run, epoch, bar)
            run.history.append(metrics)
            if folder is not None:
                folder.append(metrics)
                if time.monotonic() - saved_at >= checkpoint_seconds and epoch + 1 < run.n_epochs:
                    _save(run, folder)
                    saved_at = time.monotonic()
            bar.move(epoch + 1, _summary(metrics))
            if on_epoch is not None:
                on_epoch(metrics)

    quality = None if feeds.test is None else _evaluate(run, feeds.test)
    found = {"test": quality, "seconds": dataclasses.asdict(run.seconds), "n_epochs": run.n_epochs}
    found |= {"subset_size": run.sampler.coreset.size, "history": run.history}
    if folder is not None:
        folder.finish(model, found)
    return _result(model, found, run.seconds, run.sampler.coreset)


@dataclass(frozen=True)
class _Feeds:
    """The data of a run on its device: training, validation and test part, and the augmentation."""

    train: Feed
    val: Feed | None
    test: Feed | None
    augment: Augment | None
    fingerprint: str  # of the training data, before the validation part was taken off


@dataclass
class _Run:
    """A run in memory, and how far it is."""

    model: nn.Module
    feeds: _Feeds
    options: TrainOptions
    sampler: CoresetSampler
    optimizer: torch.optim.Optimizer
    recorder: NormRecorder | None
    seconds: Seconds
    history: list[Metrics] = field(default_factory=list)

    @property
    def n_epochs(self) -> int:
        return self.sampler.plan.total

    @contextmanager
    def stage(self, part: str, *stream: int) -> Iterator[None]:
        """Count the time of the block as ``part``, and give it its own random stream."""
        seed, device = derived_seed(self.options.seed, *stream), self.options.device
        with self.seconds.counted(part, device), own_randomness(seed, device):
            yield


# Prepare.


def _resolve(options: TrainOptions, data: Any) -> TrainOptions:
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


def _load(data: Any, test: Any, transform: Any, options: TrainOptions) -> tuple[_Feeds, TrainOptions]:
    """Move the data to the device and hold out the validation part; the budget becomes a number of samples."""
    whole, test_feed, augment = feeds_of(
        data, test, transform, options.augment, options.device, options.workers
    )
    n, fraction = len(whole), options.val_fraction or 0.0
    n_val = rounded_up(fraction * n)
    if n_val >= n:
        raise InvalidInputError(f"val_fraction = {fraction} takes all of {n} samples; none is left to train on.")
    order = np.random.default_rng((options.seed, *_SPLIT)).permutation(n)
    feed = whole.take(np.sort(order[n_val:])) if n_val else whole
    val_feed = whole.take(np.sort(order[:n_val])) if n_val else None
    fingerprint = whole.fingerprint()
    for each in (feed, val_feed, test_feed):
        if isinstance(each, TensorFeed):
            each.y = with_class_numbers(each.y, options.loss)
    options = replace(options, budget=parse_budget(options.budget, len(feed)))
    return _Feeds(feed, val_feed, test_feed, augment, fingerprint), options


def _identity(model: nn.Module, feeds: _Feeds, transform: Any, options: TrainOptions) -> dict[str, Any]:
    """Return what identifies a run, as JSON can hold it: another run is not continued in the same folder."""
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
    }


def _software() -> dict[str, str]:
    return {"coresift": __version__, "torch": torch.__version__, "numpy": np.__version__}


def _prepare(model: nn.Module, feeds: _Feeds, options: TrainOptions, clock: str) -> _Run:
    """Make the sampler, the optimizer and, for strategies that use it, the recorder of gradient norms."""
    model.to(options.device)
    context = SelectionContext(
        feeds.train.X,
        feeds.train.y,
        model=model,
        loss=options.loss,
        X_val=None if feeds.val is None else feeds.val.X,
        y_val=None if feeds.val is None else feeds.val.y,
        n_epochs=options.epochs,
        seed=options.seed,
        transform=feeds.train.transform,
    )
    sampler = CoresetSampler(
        context,
        options.strategy,
        options.budget,
        select_every=options.select_every,
        seed=options.seed,
        num_replicas=1,
    )
    optimizer = torch.optim.SGD(
        model.parameters(), lr=options.lr, momentum=options.momentum, weight_decay=options.weight_decay
    )
    recorder = None
    if asks_for(options.strategy, "reuses_norms"):
        seed = derived_seed(options.seed, *_EVALUATE)
        with own_randomness(seed, options.device), undisturbed(model):
            example, _, _ = next(feeds.train.batches(np.zeros(2, dtype=np.int64), np.ones(2), 2))
            recorder = NormRecorder(linear_layer(model, None, example) or model)
    return _Run(model, feeds, options, sampler, optimizer, recorder, Seconds(clock=clock))


# Resume.


def _save(run: _Run, folder: RunFolder) -> None:
    """Write a checkpoint of everything that has a state."""
    strategy = run.options.strategy
    own = strategy.state_dict() if hasattr(strategy, "state_dict") else {}
    tensors, state = snapshot(run.model, run.optimizer, sampler=run.sampler.state_dict(), strategy=own)
    state |= {"history": run.history, "seconds": dataclasses.asdict(run.seconds)}
    folder.save(len(run.history), tensors, state)


def _resume(run: _Run, folder: RunFolder) -> None:
    """Go back to the newest checkpoint, if there is one, and cut the file of metrics back to it."""
    if (kept := folder.load()) is not None:
        tensors, state = kept
        restore(run.model, run.optimizer, tensors, state)
        run.sampler.load_state_dict({**state["sampler"], **part_of("sampler", tensors)})
        with own_randomness(derived_seed(run.options.seed, *_SELECT), run.options.device):
            run.sampler.recall()
        if hasattr(run.options.strategy, "load_state_dict"):
            run.options.strategy.load_state_dict({**state["strategy"], **part_of("strategy", tensors)})
        run.history, run.seconds = state["history"], Seconds(**state["seconds"])
    folder.rewrite(run.history)


# Epoch after epoch.


def _epoch(run: _Run, epoch: int, bar: Progress) -> Metrics:
    """Select a subset if one is due, train on it, and evaluate on the validation data if that is due."""
    with run.stage("selection", *_SELECT):
        run.sampler.set_epoch(epoch)
        rows, weights = run.sampler.epoch_rows()

    rate = run.options.rate(epoch, run.n_epochs)
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    with run.stage("training", _EPOCH, epoch):
        loss, hits = _steps(run, epoch, rows, weights, bar)
    if not math.isfinite(loss):  # a checkpoint of this would replace a good one
        raise InvalidInputError(
            f"the loss is {loss} in epoch {epoch + 1}: training diverged; a smaller lr may help."
        )

    metrics: Metrics = {"epoch": epoch + 1, "n_epochs": run.n_epochs, "lr": rate, "loss": loss}
    metrics |= {"subset": len(rows), "selected": epoch == run.sampler.selection_epoch(epoch)}
    if hits is not None:
        metrics["accuracy"] = hits / len(rows)
    every, is_last = run.options.eval_every, epoch + 1 == run.n_epochs
    if run.feeds.val is not None and every and ((epoch + 1) % every == 0 or is_last):
        quality = _evaluate(run, run.feeds.val)
        metrics |= {f"val_{name}": value for name, value in quality.items()}
    return {**metrics, "seconds": run.seconds.rounded()}


def _steps(
    run: _Run, epoch: int, rows: np.ndarray, weights: np.ndarray, bar: Progress
) -> tuple[float, int | None]:
    """Take one step per batch; return the mean loss, and for classes the number of correct predictions."""
    model, options, recorder = run.model, run.options, run.recorder
    compute, has_classes = per_sample_loss(options.loss), counts_hits(options.loss)
    losses: list[torch.Tensor] = []
    hits: list[torch.Tensor] = []
    seen = 0
    seed = derived_seed(options.seed, _AUGMENT, epoch)
    model.train()
    with nullcontext() if recorder is None else recorder.watching():
        for x, y, w in run.feeds.train.batches(rows, weights, options.batch_size, seed, run.feeds.augment):
            outputs = only_tensor(_forward(model, x))  # (b, K)
            loss = weighted_loss(compute(outputs, y), w)
            run.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            if recorder is not None:
                recorder.end_step(w)
            run.optimizer.step()
            losses.append(loss.detach())
            if has_classes and are_classes(outputs, y):
                hits.append((outputs.detach().argmax(1) == y).sum())
            seen += len(w)
            bar.move(epoch + seen / len(rows))
    if recorder is not None:
        run.sampler.context.record(rows, recorder.take())
    return float(torch.stack(losses).mean()), int(torch.stack(hits).sum()) if hits else None


def _forward(model: nn.Module, x: torch.Tensor) -> Any:
    try:
        return model(x)
    except ValueError as error:
        if len(x) > 1 or "more than 1 value per channel" not in str(error):
            raise
        raise InvalidInputError(
            "the last batch of the subset has one sample, which batch normalisation cannot handle: choose a budget or "
            "a batch_size with another remainder."
        ) from error


def _evaluate(run: _Run, feed: Feed) -> dict[str, float]:
    with run.stage("evaluation", *_EVALUATE):
        return evaluate(run.model, feed, run.options.loss)


def _result(model: nn.Module, found: Metrics, seconds: Seconds, coreset: Coreset | None = None) -> TrainResult:
    sizes = found["n_epochs"], found["subset_size"]
    return TrainResult(model, found["history"], found["test"], seconds, *sizes, coreset)


@contextmanager
def _shown(progress: bool | Display, n_epochs: int) -> Iterator[Progress]:
    """Yield the display of the epochs: a bar, the caller's display, or the log."""
    with Bars(transient=True) if progress is True else nullcontext(progress) as display:
        if display is False:
            yield Progress("training", n_epochs, unit="epochs", warn_after=math.inf)
        else:
            yield display("training", n_epochs, unit="epochs")


def _summary(metrics: Metrics) -> str:
    words = [f"epoch {metrics['epoch']}/{metrics['n_epochs']}", f"loss {metrics['loss']:.4f}"]
    if "accuracy" in metrics:
        words.append(f"accuracy {metrics['accuracy']:.1%}")
    if "val_accuracy" in metrics:
        words.append(f"validation {metrics['val_accuracy']:.1%}")
    return ", ".join([*words, f"{metrics['subset']:,} samples"])
