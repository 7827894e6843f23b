"""The numbers of a run, checked; its device, its streams of random numbers, and how it is written down."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import nn

from .._errors import InvalidInputError, InvalidTypeError
from .._validation import check_choice, check_count, check_positive
from ..selection.strategy import asks_for

_VALIDATION_SHARE = 0.1
_SCHEDULES = ("cosine", "constant")
_LARGEST_COUNT = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Settings:
    """What :func:`coresift.training.train` was asked for, in numbers."""

    epochs: int
    batch_size: int
    select_every: int
    lr: float
    momentum: float
    weight_decay: float
    schedule: str
    eval_every: int
    seed: int
    workers: int

    def checked(self) -> Settings:
        """The same in numbers of Python; refuses what cannot be used."""
        counts: dict[str, Any] = {"seed": check_count(self.seed, "seed", 0)}
        for name, least in (
            ("epochs", 1),
            ("batch_size", 1),
            ("select_every", 1),
            ("eval_every", 0),
            ("workers", 0),
        ):
            counts[name] = check_count(getattr(self, name), name, least)
            if counts[name] > _LARGEST_COUNT:
                raise InvalidInputError(f"{name} = {getattr(self, name)} must be at most {_LARGEST_COUNT}.")
        check_positive(self.lr, "lr")
        for name in ("momentum", "weight_decay"):
            _check_number(getattr(self, name), name)
        check_choice(self.schedule, "schedule", _SCHEDULES)
        if not 0 <= self.momentum < 1:
            raise InvalidInputError(f"momentum = {self.momentum} must be at least 0 and below 1.")
        if not 0 <= self.weight_decay <= _LARGEST_COUNT:
            raise InvalidInputError(
                f"weight_decay = {self.weight_decay} must be at least 0 and at most {_LARGEST_COUNT}."
            )
        rates: dict[str, Any] = {
            name: float(getattr(self, name)) for name in ("lr", "momentum", "weight_decay")
        }
        return dataclasses.replace(self, **counts, **rates)  # numbers of NumPy are no JSON

    def rate(self, epoch: int, n_epochs: int) -> float:
        """The learning rate of an epoch: a function of its number, so that there is no state to keep."""
        if self.schedule == "constant":
            return self.lr
        return self.lr * 0.5 * (1.0 + math.cos(math.pi * epoch / n_epochs))


def _check_number(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidTypeError(f"{name} = {value!r} must be a number of at least 0.")


def validation_share(given: float | None, strategy: Any, eval_every: int) -> float:
    """The share set aside for validation: as given, or so much as is usual if somebody looks at it."""
    looks = asks_for(strategy, "needs_validation")
    if given is None:
        return _VALIDATION_SHARE if looks or eval_every else 0.0
    _check_number(given, "val_fraction")
    if not 0 <= given < 1:
        raise InvalidInputError(f"val_fraction = {given} must be at least 0 and below 1.")
    if given == 0 and (looks or eval_every):
        who = "this strategy looks" if looks else f"eval_every = {eval_every} looks"
        raise InvalidInputError(f"val_fraction = 0, but {who} at validation data; 0.1 is usual.")
    return given


def device_named(device: str | torch.device) -> torch.device:
    """The device, "auto" being the best there is; one that is not there is refused before anything is computed."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        # torch asserts where it was built without CUDA
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInputError(f"device = {str(device)!r} cannot be used: {reason}") from None
    return found


def derived_seed(*key: int) -> int:
    """A seed of 63 bits for one purpose of a run."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))


@contextmanager
def own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """What draws from the global generators inside (dropout, which knows no other) draws from this seed.

    Afterwards they are as they were: nothing outside sees it.
    """
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


def stored(settings: Settings, strategy: Any, loss: Any, model: nn.Module) -> dict[str, Any]:
    """What identifies a run, as JSON holds it."""
    selection = repr(strategy) if dataclasses.is_dataclass(strategy) else _name(strategy)
    shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in model.named_parameters())
    return {
        "strategy": selection,
        "loss": loss if isinstance(loss, str) else described(loss),
        "model": type(model).__name__,
        "parameters": shapes if len(shapes) < 2000 else f"{shapes[:2000]}...",
        # by how many processes data are read changes nothing
        **{name: value for name, value in dataclasses.asdict(settings).items() if name != "workers"},
    }


def described(thing: Any) -> str:
    """The name of a function or a class, with what it was made with as far as it can be seen."""
    if thing is None:
        return "none"
    if isinstance(thing, partial):
        return f"{described(thing.func)} {thing.args} {thing.keywords}"
    if not isinstance(thing, nn.Module):
        return _name(thing)
    simple = {
        name: value
        for name, value in vars(thing).items()
        if isinstance(value, int | float | str) and name != "training" and name[0] != "_"
    }
    held = 0
    for tensor in thing.state_dict().values():
        held = zlib.crc32(np.ascontiguousarray(tensor.detach().cpu().float().numpy()).data, held)
    return f"{_name(thing)} {simple}" + (f" {held:08x}" if held else "")


def _name(thing: Any) -> str:
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"
