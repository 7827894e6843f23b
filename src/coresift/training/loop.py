"""Training on subsets: one loop, which reads from top to bottom."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .. import __version__
from .._errors import InvalidInputError, InvalidTypeError
from .._validation import check_choice
from ..coresets.budget import parse_budget
from ..coresets.coreset import Coreset
from ..data.splits import DatasetSplits
from ..selection import SelectionContext, Strategy, strategy_named
from ..selection.hooks import linear_layer, only_tensor, undisturbed
from ..selection.losses import per_sample_loss, with_class_numbers
from ..selection.strategy import asks_for, rounded_up
from .checkpoint import RunFolder, check_finite_loss, part_of, restore, snapshot
from .feeds import TensorFeed, feeds_of
from .loss import weighted_loss
from .metrics import CLOCKS, Seconds, are_classes, counts_hits, evaluate
from .progress import Bar, NoBar
from .recorder import NormRecorder
from .sampler import CoresetSampler
from .settings import (
    Settings,
    derived_seed,
    described,
    device_named,
    own_randomness,
    stored,
    validation_share,
)

Metrics = dict[str, Any]
_SPLIT, _EPOCH, _LOOKS, _CHOICE, _EVALUATION = 21, 22, 23, 24, 25  # keep the streams of one seed apart


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """What a run found.

    Attributes
    ----------
    model : torch.nn.Module
        The one that was given, trained.
    history : list of dict
        The metrics of each epoch.
    test : dict or None
        Loss, and accuracy or root mean square error, on the test set.
    seconds : Seconds
        Time of selection, training and evaluation.
    n_epochs : int
        Epochs that were run; a warm start runs fewer than were asked for.
    subset_size : int
        Samples of the last epoch's subset.
    coreset : Coreset or None
        That subset; None when the run had been finished before.
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
    budget: int | float | str = 0.1,
    *,
    test: Any = None,
    epochs: int = 200,
    batch_size: int = 20,
    select_every: int = 20,
    lr: float = 0.01,
    momentum: float = 0.9,
    weight_decay: float = 5e-4,
    loss: Any = None,
    schedule: str = "cosine",
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
    progress: bool | Bar = False,
    about: dict[str, Any] | None = None,
    clock: str = "wall",
) -> TrainResult:
    """Train a model on a subset that is selected anew every ``select_every`` epochs.

    Stochastic gradient descent on ``sum w l / sum w``, by default as the paper has it. Random numbers come from
    ``seed`` alone; the global generators are left as they were. With ``out``, the same call made again after a kill
    goes on from the last checkpoint and ends with the same weights and metrics, bit by bit (on the same machine, with
    as many threads); made again after the end, it returns at once.

    Parameters
    ----------
    model : torch.nn.Module
        It is trained in place.
    data : pair ``(X, y)``, map-style data set, or ``DatasetSplits``
        Arrays and tensors go to the device as they are, and are indexed there; a data set is read by ``workers``.
    strategy : str or Strategy, default "rbf"
    budget : int, float or str, default 0.1
        Samples, a fraction of the training samples, or ``"1%"``.
    test : optional
        As ``data``. It is looked at once, at the end.
    epochs : int, default 200
        A warm start (kappa = 1/2) runs ``ceil(kappa * epochs * fraction)`` on all the data, then
        ``epochs - kappa * epochs`` on the subset.
    batch_size, select_every, lr, momentum, weight_decay
    loss : str or callable, optional
        As in :class:`coresift.selection.SelectionContext`; "mse", "l1" or "huber" for regression. By default
        "cross_entropy", or "mse" where ``data`` is a ``DatasetSplits`` of a regression.
    schedule : {"cosine", "constant"}, default "cosine"
        The learning rate of epoch t of the T that are run: ``lr / 2 * (1 + cos(pi t / T))``. T counts the epochs that
        are run: a warm start does not begin with a rate that skipped epochs have lowered.
    val_fraction : float, optional
        Share of the training data set aside for validation; by default 0.1 if it is looked at, else none.
    eval_every : int, default 0
        Epochs between two evaluations on the validation data; 0 for none.
    transform : callable, optional
        Of a batch of inputs on the device, before the model. By default bytes are divided by 255, and the inputs of a
        ``DatasetSplits`` normalised.
    augment : callable of a batch and a generator, or bool, default True
        In training only, before ``transform``. True means what a ``DatasetSplits`` asks for.
    seed : int, default 0
    device : default "auto"
        CUDA, else MPS, else the CPU.
    workers : int, default 0
        Processes that read a data set which is not in memory.
    out : path, optional
        Folder of the run: ``config.json``, ``data.json`` (of a ``DatasetSplits``: names of classes and columns, what
        columns were standardised by), ``metrics.jsonl``, ``model.safetensors``, ``result.json``, checkpoints.
    checkpoint_seconds : float, default 30
        Time between two checkpoints, at ends of epochs; 0 for one after each.
    on_epoch : callable, optional
        Called with the metrics of each epoch, when they are written.
    progress : bool, default False
        Draw a bar on standard error (needs the extra ``cli``).
    about : dict, optional
        Kept in ``config.json``.
    clock : {"wall", "cpu"}, default "wall"
        What ``seconds`` are measured by. "cpu" counts what this process computed, on a machine that is shared.

    Returns
    -------
    TrainResult
    """
    settings = Settings(
        epochs, batch_size, select_every, lr, momentum, weight_decay, schedule, eval_every, seed, workers
    ).checked()
    strategy = strategy_named(strategy) if isinstance(strategy, str) else strategy
    if not isinstance(strategy, Strategy):
        raise InvalidTypeError(f"strategy = {strategy!r} must be a name, or have a method select.")
    if loss is None:
        is_of_numbers = isinstance(data, DatasetSplits) and data.task == "regression"
        loss = "mse" if is_of_numbers else "cross_entropy"
    compute, has_classes = per_sample_loss(loss), counts_hits(loss)
    place = device_named(device)
    check_choice(clock, "clock", tuple(CLOCKS))

    # The data: on the device, with the validation part taken off.
    feed, test_feed, looks = feeds_of(data, test, transform, augment, place, workers)
    share = validation_share(val_fraction, strategy, eval_every)
    rest = np.random.default_rng((seed, _SPLIT)).permutation(len(feed))
    n_val = rounded_up(share * len(feed))
    if n_val >= len(feed):
        raise InvalidInputError(
            f"val_fraction = {share} takes all of {len(feed)} samples; none is left to train on."
        )
    val_feed = feed.take(np.sort(rest[:n_val])) if n_val else None
    fingerprint = feed.fingerprint()
    if n_val:
        feed = feed.take(np.sort(rest[n_val:]))
    for each in (feed, val_feed, test_feed):
        if isinstance(each, TensorFeed):
            each.y = with_class_numbers(each.y, loss)
    budget = parse_budget(budget, len(feed))

    # The folder: the configuration first; a finished run is only read.
    run = None if out is None else RunFolder(Path(out))
    if run is not None:
        config = {**stored(settings, strategy, loss, model), "budget": budget, "val_fraction": share}
        config |= {"augment": described(looks), "transform": described(transform)}
        config["test"] = None if test_feed is None else test_feed.fingerprint()
        run.begin({**config, "data": fingerprint, "software": _software(), "about": about})
        if (found := run.result()) is not None:
            run.load_model(model.to(place))
            return _finished(model, found)
        if isinstance(data, DatasetSplits):
            run.describe(data.described())

    # What is selected, from what, when.
    model.to(place)
    context = SelectionContext(
        feed.X,
        feed.y,
        model=model,
        loss=loss,
        X_val=None if val_feed is None else val_feed.X,
        y_val=None if val_feed is None else val_feed.y,
        n_epochs=epochs,
        seed=seed,
        transform=feed.transform,
    )
    sampler = CoresetSampler(context, strategy, budget, select_every=select_every, seed=seed, num_replicas=1)
    n_epochs = sampler.phases.total
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum, weight_decay=weight_decay)

    recorder = None
    if asks_for(strategy, "reuses_norms"):
        with own_randomness(derived_seed(seed, _EVALUATION), place), undisturbed(model):
            example, _, _ = next(feed.batches(np.zeros(2, dtype=np.int64), np.ones(2), 2))
            recorder = NormRecorder(linear_layer(model, None, example) or model)

    # Where the run was, if it was killed.
    history: list[Metrics] = []
    seconds = Seconds(clock=clock)
    if run is not None:
        if (kept := run.load()) is not None:
            tensors, state = kept
            restore(model, optimizer, tensors, state)
            sampler.load_state_dict({**state["sampler"], **part_of("sampler", tensors)})
            with own_randomness(derived_seed(seed, _CHOICE), place):
                sampler.recall()
            if hasattr(strategy, "load_state_dict"):
                strategy.load_state_dict({**state["strategy"], **part_of("strategy", tensors)})
            history, seconds = state["history"], Seconds(**state["seconds"])
        run.rewrite(history)

    looking = derived_seed(seed, _EVALUATION)
    saved_at = time.monotonic()
    with Bar(n_epochs) if progress is True else progress or NoBar() as bar:
        for epoch in range(len(history), n_epochs):
            # one seed for all selections: what a strategy keeps is the same, whenever it is computed
            with seconds.counted("selection", place), own_randomness(derived_seed(seed, _CHOICE), place):
                sampler.set_epoch(epoch)
                rows, weights = sampler.epoch_rows()

            for group in optimizer.param_groups:
                group["lr"] = settings.rate(epoch, n_epochs)
            losses: list[torch.Tensor] = []
            hits: list[torch.Tensor] = []
            bar.begin(epoch, len(rows))
            with (
                seconds.counted("training", place),
                own_randomness(derived_seed(seed, _EPOCH, epoch), place),
                nullcontext() if recorder is None else recorder.watching(),
            ):
                model.train()
                for x, y, w in feed.batches(
                    rows, weights, batch_size, derived_seed(seed, _LOOKS, epoch), looks
                ):
                    outputs = only_tensor(_forward(model, x))  # (b, K)
                    batch_loss = weighted_loss(compute(outputs, y), w)
                    optimizer.zero_grad(set_to_none=True)
                    batch_loss.backward()  # type: ignore[no-untyped-call]
                    if recorder is not None:
                        recorder.end_step(w)
                    optimizer.step()
                    losses.append(batch_loss.detach())
                    if has_classes and are_classes(outputs, y):
                        hits.append((outputs.detach().argmax(1) == y).sum())
                    bar.advance(len(w))
                mean_loss = float(torch.stack(losses).mean())
                if recorder is not None:
                    context.record(rows, recorder.take())
            check_finite_loss(mean_loss, epoch)

            metrics: Metrics = {
                "epoch": epoch + 1,
                "n_epochs": n_epochs,
                "lr": settings.rate(epoch, n_epochs),
            }
            metrics |= {
                "loss": mean_loss,
                "subset": len(rows),
                "selected": epoch == sampler.selection_epoch(epoch),
            }
            if hits:
                metrics["accuracy"] = int(torch.stack(hits).sum()) / len(rows)
            if (
                val_feed is not None
                and eval_every
                and ((epoch + 1) % eval_every == 0 or epoch + 1 == n_epochs)
            ):
                with seconds.counted("evaluation", place), own_randomness(looking, place):
                    quality = evaluate(model, val_feed, loss)
                metrics |= {f"val_{name}": value for name, value in quality.items()}
            metrics["seconds"] = seconds.rounded()

            history.append(metrics)
            if run is not None:
                run.append(metrics)
                if time.monotonic() - saved_at >= checkpoint_seconds and epoch + 1 < n_epochs:
                    own = strategy.state_dict() if hasattr(strategy, "state_dict") else {}
                    tensors, state = snapshot(model, optimizer, sampler=sampler.state_dict(), strategy=own)
                    state |= {"history": history, "seconds": dataclasses.asdict(seconds)}
                    run.save(epoch + 1, tensors, state)
                    saved_at = time.monotonic()
            bar.end(metrics)
            if on_epoch is not None:
                on_epoch(metrics)

    # The test set, once.
    quality_of_test = None
    if test_feed is not None:
        with seconds.counted("evaluation", place), own_randomness(looking, place):
            quality_of_test = evaluate(model, test_feed, loss)
    core = sampler.coreset
    result = TrainResult(model, history, quality_of_test, seconds, n_epochs, core.size, core)
    if run is not None:
        run.finish(model, _kept(result))
    return result


def _forward(model: nn.Module, x: torch.Tensor) -> Any:
    try:
        return model(x)
    except ValueError as error:
        if len(x) > 1 or "more than 1 value per channel" not in str(error):
            raise
        raise InvalidInputError(
            "the last batch of the subset has one sample, whose variance batch normalisation cannot take: choose a "
            "budget or a batch_size with another remainder."
        ) from error


def _kept(result: TrainResult) -> dict[str, Any]:
    return {
        "test": result.test,
        "seconds": dataclasses.asdict(result.seconds),
        "n_epochs": result.n_epochs,
        "subset_size": result.subset_size,
        "history": result.history,
    }


def _finished(model: nn.Module, found: dict[str, Any]) -> TrainResult:
    seconds = Seconds(**found["seconds"])
    return TrainResult(
        model, found["history"], found["test"], seconds, found["n_epochs"], found["subset_size"]
    )


def _software() -> dict[str, str]:
    return {"coresift": __version__, "torch": torch.__version__, "numpy": np.__version__}
