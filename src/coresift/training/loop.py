"""Training on subsets: prepare, resume if there is a checkpoint, then train epoch by epoch."""

import math
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .._errors import DivergedError, InvalidInputError
from .._progress import Display, Progress, bars, logger
from .._validation import check_choice, check_instance
from ..coresets.coreset import Coreset
from ..data.splits import DatasetSplits
from ..selection import Regime, Strategy
from ..selection.gradients import called, only_tensor
from ..selection.losses import per_sample_loss
from .checkpoint import RunFolder
from .metrics import CLOCKS, Seconds, are_classes, summands
from .options import TrainOptions
from .run import Metrics, Run, identity, load, resolve


@dataclass(frozen=True)
class TrainResult:
    """The trained ``model``, its ``history`` (the metrics of each epoch), the metrics on the ``test`` set, ``seconds``.

    ``n_epochs`` were run (a warm start runs fewer). ``coreset`` is the subset of the last epoch, of ``subset_size``
    rows of the data that were given; None if the run had finished before. ``regime`` is what "auto" decided.

    >>> data = torch.eye(4).repeat(25, 1), torch.arange(100) % 4
    >>> result = train(nn.Linear(4, 4), data, "random", 0.5, epochs=2)
    >>> result.subset_size, len(result.history)
    (50, 2)
    """

    model: nn.Module
    history: list[Metrics]
    test: dict[str, float] | None
    seconds: Seconds
    n_epochs: int
    subset_size: int
    coreset: Coreset | None = None
    regime: Regime | None = None


def train(
    model: nn.Module,
    data: Any,
    strategy: str | Strategy = "auto",
    budget: int | float | str | None = None,
    *,
    test: Any = None,
    labels: Any = None,
    epochs: int = 200,
    select_every: int | None = None,
    batch_size: int = 20,
    lr: float = 0.01,
    momentum: float = 0.9,
    weight_decay: float = 5e-4,
    schedule: str = "cosine",
    optimizer: Any = "sgd",
    scheduler: Any = None,
    amp: Any = None,
    clip: float | None = None,
    accumulate: int = 1,
    early_stopping: Any = None,
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
    """Train a model on a weighted subset, selected again every ``select_every`` epochs; return a :class:`TrainResult`.

    Each step minimises ``sum w l / sum w``; the defaults are those of the paper. All random numbers come from ``seed``.
    If a call with ``out`` is killed, the same call resumes from the last checkpoint and ends with the same weights and
    metrics, bit for bit (on the same machine, with as many threads). After the end, it returns the stored result.

    Parameters
    ----------
    model : torch.nn.Module
        Trained in place.
    data, test : pair ``(X, y)``, map-style data set, ``DataLoader`` over one, or ``DatasetSplits``
        Items are pairs or mappings with "labels", whose other entries are the arguments of the model. Integers stay
        integers if the model has an embedding. ``test`` is optional, and evaluated once, at the end.
    labels : array, optional
        Labels for the strategy; by default ``data.labels``, ``.targets`` or ``.y``, if it is a data set.
    strategy, budget, select_every
        As in :class:`CoresetSampler`; the budget is a number or fraction of the training samples.
    epochs, batch_size, lr, momentum, weight_decay, schedule, seed
        The learning rate in epoch t of T is ``lr / 2 * (1 + cos(pi t / T))``, or ``lr`` with the schedule "constant"; T
        counts the epochs that are run, fewer than ``epochs`` for a warm start (:class:`coresift.selection.Warm`).
    optimizer : {"sgd", "adam", "adamw"}, optimizer, or callable of the parameters, default "sgd"
        ``lr``, ``momentum`` and ``weight_decay`` are for names; ``schedule`` scales the optimizer's own rates.
    scheduler : scheduler, or callable of the optimizer, optional
        Stepped after each epoch, instead of ``schedule``.
    amp, clip, accumulate : "bf16", "fp16", torch.dtype or bool; float; int; optional
        Mixed precision (True means bf16); largest norm of a step's gradient; number of batches in a step.
    early_stopping : int or callable of the history, optional
        Stop after this many evaluations without a smaller validation loss (needs ``eval_every``).
    loss : str or callable, optional
        As in :class:`coresift.selection.SelectionContext`; "mse", "l1" or "huber" for regression. By default
        "cross_entropy", or "mse" if ``data`` is a ``DatasetSplits`` of a regression.
    val_fraction, eval_every
        Fraction of the training data held out, by default 0.1 if it is used, else 0; epochs between two evaluations.
    transform, augment : callable, optional, callable of a batch and a generator, or bool, default True
        Applied to a batch of inputs on the device, before the model; by default bytes are divided by 255 and the inputs
        of a ``DatasetSplits`` are normalised. ``augment`` comes before, in training; True is what the data ask for.
    device, workers
        "auto" is CUDA, else MPS, else the CPU; ``workers`` are processes that read a data set which is not in memory.
    out, about, checkpoint_seconds
        Folder of the run: ``config.json`` (with the dictionary ``about``), ``data.json`` (what a ``DatasetSplits`` says
        of classes and columns), ``metrics.jsonl``, ``model.safetensors``, ``result.json``, and checkpoints. These are
        written at the end of an epoch, at least ``checkpoint_seconds`` apart.
    on_epoch, progress : callable, optional, bool or display, default False
        Called with the metrics of each epoch; whether to draw a bar on standard error (needs the extra ``cli``).
    clock : {"wall", "cpu"}, default "wall"
        How ``seconds`` are measured. "cpu" counts the processor time of this process, for busy machines.

    Examples
    --------
    >>> X = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    >>> y = (X[:, 0] > 0).long()
    >>> model = torch.nn.Linear(4, 2)
    >>> result = train(model, (X, y), "adaptive-random", "50%", epochs=2, select_every=1)
    >>> result.subset_size
    100
    """
    given = locals()
    check_choice(clock, "clock", tuple(CLOCKS))
    check_instance(model, "model", nn.Module)
    options = TrainOptions(**{each.name: given[each.name] for each in fields(TrainOptions)}).checked()
    options = resolve(options, data)
    feeds, options = load(model, data, labels, test, transform, options)

    folder = None if out is None else RunFolder(Path(out))
    shared = torch.distributed.is_available() and torch.distributed.is_initialized()
    writes = folder is not None and not (shared and torch.distributed.get_rank())
    with ExitStack() as held:
        if folder is not None:
            if writes:
                folder.begin({**identity(model, feeds, transform, scheduler, options), "about": about}, held)
            if shared:
                torch.distributed.barrier()
            if (found := folder.result()) is not None:
                folder.load_model(model.to(options.device))
                found["seconds"], decided = Seconds(**found["seconds"]), found.pop("regime", None)
                return TrainResult(model, regime=decided and Regime(**decided), **found)
            if writes and isinstance(data, DatasetSplits):
                folder.describe(data.described())

        run = Run(model, feeds, options, clock, scheduler)
        if folder is not None:
            run.resume(folder)
        saved_at = time.monotonic()
        display = progress or partial(Progress, warn_after=math.inf)
        with bars(transient=True) if display is True else nullcontext(display) as show:
            bar = show("training", run.n_epochs, unit="epochs")
            for epoch in range(len(run.history), run.n_epochs):
                if options.stops(run.history):
                    break
                metrics = _epoch(run, epoch, bar)
                run.history.append(metrics)
                if folder is not None and writes:
                    folder.append(metrics)
                    if time.monotonic() - saved_at >= checkpoint_seconds and epoch + 1 < run.n_epochs:
                        run.save(folder)
                        saved_at = time.monotonic()
                logger.info("%s", line := summary(metrics))
                bar.move(epoch + 1, line)
                if on_epoch is not None:
                    on_epoch(metrics)

        context, own = run.sampler.context, getattr(options.strategy, "regime", None)
        core, regime = run.sampler.coreset, None if own is None else own(context)
        core = replace(core, indices=context.numbers[core.indices], n_samples=context.n_given)
        result: dict[str, Any] = {"test": run.evaluate(feeds.test), "n_epochs": len(run.history)}
        result |= {"subset_size": core.size, "history": run.history}
        if folder is not None and writes:
            more = {"seconds": asdict(run.seconds)} | ({} if regime is None else {"regime": asdict(regime)})
            folder.finish(model, result | more)
        return TrainResult(model, seconds=run.seconds, coreset=core, regime=regime, **result)


def _epoch(run: Run, epoch: int, bar: Progress) -> Metrics:
    """Select a subset if one is due, train on it, and evaluate on the validation data if that is due."""
    with run.stage("selection"):
        run.sampler.set_epoch(epoch)
        rows, weights = run.sampler.epoch_rows()

    rate = run.set_rate(epoch)
    with run.stage("training", epoch):
        loss, hits = _steps(run, epoch, rows, weights, bar)
    if not math.isfinite(loss):  # a checkpoint of this would replace a good one
        raise DivergedError(f"the loss is {loss} in epoch {epoch + 1}: training diverged; lower lr.")

    metrics: Metrics = {"epoch": epoch + 1, "n_epochs": run.n_epochs, "lr": rate, "loss": loss}
    metrics |= {"subset": run.sampler.n_served, "selected": epoch == run.sampler.selection_epoch(epoch)}
    if hits is not None:
        metrics["accuracy"] = hits / run.sampler.n_served
    every, is_last = run.options.eval_every, epoch + 1 == run.n_epochs
    if every and ((epoch + 1) % every == 0 or is_last):
        metrics |= {f"val_{name}": value for name, value in (run.evaluate(run.feeds.val) or {}).items()}
    if run.scheduler is not None:  # one that watches a metric gets the validation loss, if there is one
        is_watching = isinstance(run.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
        run.scheduler.step(*([metrics.get("val_loss", loss)] if is_watching else []))
    return {**metrics, **{f"{part}_seconds": value for part, value in run.seconds.rounded().items()}}


def _steps(run: Run, epoch: int, rows: np.ndarray, weights: np.ndarray, bar: Progress) -> tuple[float, int | None]:
    """Take one step per batch; return the mean loss, and for classes the number of correct predictions."""
    options, recorder = run.options, run.recorder if run.sampler.watches else None
    compute, seed = per_sample_loss(options.loss), run.seed("augmentation", epoch)
    shares, n_steps, seen = *run.shares(weights), 0
    losses: list[torch.Tensor] = []
    guesses: list[tuple[torch.Tensor, torch.Tensor]] = []  # and classes
    run.model.train()
    run.optimizer.zero_grad(set_to_none=True)
    watching = nullcontext() if recorder is None else recorder.watching()
    with torch.autocast(options.device.type, enabled=False), watching:  # not that of a caller
        batches = run.feeds.train.batches(rows, shares, run.batch_size, seed, run.feeds.augment)
        for number, (x, y, w) in enumerate(batches):
            part = slice(seen, seen := seen + len(w))
            is_last = seen == len(rows) or (number + 1) % options.accumulate == 0
            with run.batch(is_last=is_last):
                outputs = only_tensor(_forward(run.forward, x))  # (b, K)
                each = compute(outputs, y)
                terms = summands(each, w)  # (b,); a step minimises w @ terms, whose gradient in terms is w
                terms.backward(run.scaler.scale(w).to(terms.dtype))  # type: ignore[no-untyped-call]
            if recorder is not None:
                recorder.end_step(rows[part], w, each, outputs, y, 1.0 / run.scaler.get_scale())
            if is_last:
                run.step()
            losses.append(terms.detach())
            if number == len(guesses) and are_classes(outputs, y, options.loss):
                guesses.append((outputs.detach().argmax(1), y))
            bar.move(epoch + seen / len(rows))
    if recorder is not None:
        run.sampler.record(**recorder.take())
    guessed, known = map(torch.cat, zip(*guesses, strict=True)) if guesses else (torch.zeros(0), torch.zeros(0))
    hits = np.count_nonzero((guessed == known).cpu().numpy() & (weights > 0)[: len(known)])
    sums = torch.tensor([shares @ torch.cat(losses).cpu().double().numpy(), hits])
    if run.world > 1:
        torch.distributed.all_reduce(sums := sums.to(options.device))
    return float(sums[0]) / (run.world * n_steps), int(sums[1]) if guesses else None


def _forward(model: nn.Module, x: Any) -> Any:
    try:
        return called(model, x)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        text = "the last batch of the subset has one sample, too few for batch normalisation"
        raise InvalidInputError(f"{text}: change budget or batch_size.") from error


def summary(metrics: Metrics) -> str:
    """Return a line about an epoch."""
    words = [f"epoch {metrics['epoch']}/{metrics['n_epochs']}", f"loss {metrics['loss']:.4f}"]
    shares = {"accuracy": "accuracy", "validation": "val_accuracy"}
    words += [f"{word} {metrics[key]:.1%}" for word, key in shares.items() if key in metrics]
    return ", ".join([*words, f"{metrics['subset']:,} samples"])
