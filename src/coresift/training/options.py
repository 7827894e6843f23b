"""Options of a training run, with the help texts of ``coresift train``: nothing heavy is imported at the top."""

# ruff: noqa: RUF009 - the function called returns a field
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from .._errors import InvalidInputError
from ..coresets.options import option

SCHEDULES = ("cosine", "constant")
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}  # with their names in PyTorch
AMP = {"bf16": "bfloat16", "fp16": "float16"}
_LARGEST = 2**31 - 1  # of counts that reach PyTorch


def _strategies() -> list[str]:
    from ..selection import registry

    return [name.lower() for name in registry()]


@dataclass(frozen=True)
class TrainOptions:
    """Options of a training run; :func:`train` describes those that need more than a line.

    The metadata of a field has its help text, limits and choices; ``recorded=False`` if it does not change the result.

    >>> TrainOptions(strategy="random", budget="10%").epochs
    200
    """

    strategy: Any = option("auto", "See 'strategies'; 'full' trains on all data.", flags=("-s",), choices=_strategies)
    budget: int | float | str | None = option(
        None,
        "Samples to train on: 1%, 0.01 or 600. [default: the strategy's: all for auto, 10% for most]",
        flags=("-b",),
    )
    epochs: int = option(200, "Number of epochs; a warm start runs fewer.", min=1)
    select_every: int | None = option(
        None, "Epochs between two selections. [default: the strategy's: 1 for auto, 20 for most]", min=1
    )
    batch_size: int = option(20, "Samples per step.", min=1)
    lr: float = option(0.01, "Initial learning rate.", limits={"above": 0, "below": math.inf})
    momentum: float = option(0.9, "Momentum of SGD.", limits={"at_least": 0, "below": 1})
    weight_decay: float = option(5e-4, "Weight decay.", limits={"at_least": 0, "below": _LARGEST})
    schedule: str = option("cosine", "Learning rate schedule.", choices=SCHEDULES)
    optimizer: Any = option("sgd", "sgd, adam or adamw.", choices=lambda: list(OPTIMIZERS))
    amp: Any = option(None, "Mixed precision: bf16, or fp16 on a GPU.", choices=lambda: list(AMP))
    clip: float | None = option(None, "Clip gradients to this norm.", limits={"above": 0, "below": math.inf})
    accumulate: int = option(1, "Number of batches for each step of the optimizer.", min=1)
    early_stopping: int | Callable[..., Any] | None = option(
        None, "Stop after this many evaluations in a row without a smaller validation loss.", min=1
    )
    loss: Any = option(None, "cross_entropy, mse, l1, huber or bce. [default: cross_entropy, or mse for regression]")
    val_fraction: float | None = option(
        None,
        "Fraction of the training data held out for validation. [default: 0.1 if needed, else 0]",
        limits={"at_least": 0, "below": 1},
    )
    eval_every: int = option(0, "Epochs between two evaluations on the validation data; 0 means never.", min=0)
    augment: bool | Callable[..., Any] = option(True, "Augment images if the data set calls for it.")
    seed: int = option(0, "Random seed; the same seed gives the same run.", min=0)
    device: Any = option("auto", "auto, cpu, cuda, cuda:1 or mps.", recorded=False)
    workers: int = option(0, "Number of processes that read images.", flags=("-j",), min=0, recorded=False)
    checkpoint_seconds: float = option(30.0, "Seconds between two checkpoints.", limits={"at_least": 0}, recorded=False)

    def stops(self, history: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether to stop early after ``history``: as a function says, or for lack of improvement."""
        if self.early_stopping is None or callable(self.early_stopping):
            return self.early_stopping is not None and bool(self.early_stopping(history))
        losses = [line["val_loss"] for line in history if "val_loss" in line]
        return len(losses) - 1 - min(range(len(losses)), key=losses.__getitem__, default=0) >= self.early_stopping

    def recorded(self) -> dict[str, Any]:
        """Return the options that change the result."""
        kept = (each.name for each in fields(self) if each.metadata.get("recorded", True))
        return {name: getattr(self, name) for name in kept}

    def checked(self) -> Self:
        """Return the options with plain Python numbers, which JSON can hold; raise if one is invalid."""
        from .._validation import check_choice, check_count, check_number

        values: dict[str, Any] = {}
        for each in fields(self):
            value, about = getattr(self, each.name), each.metadata
            if "min" in about and not callable(value) and (value is not None or each.default is not None):
                values[each.name] = check_count(value, each.name, about["min"])
                check_number(value, each.name, at_most=_LARGEST if each.name != "seed" else math.inf)
            if "limits" in about and (value is not None or each.default is not None):
                values[each.name] = check_number(value, each.name, **about["limits"])
        check_choice(self.schedule, "schedule", SCHEDULES)
        for name, known in (("optimizer", OPTIMIZERS), ("amp", AMP)):
            if isinstance(value := getattr(self, name), str):
                check_choice(value, name, tuple(known))
        if isinstance(self.early_stopping, int) and not self.eval_every:
            raise InvalidInputError("early_stopping needs eval_every, the epochs between two evaluations.")
        return replace(self, **values)

    def factor(self, epoch: int, n_epochs: int) -> float:
        """Return the share of the learning rate in an ``epoch`` of ``n_epochs``; there is no other state to save."""
        return 1.0 if self.schedule == "constant" else 0.5 * (1.0 + math.cos(math.pi * epoch / n_epochs))
