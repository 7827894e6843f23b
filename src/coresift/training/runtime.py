"""Where and how a run computes: its device, its random streams, and names for the functions it was given."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from .._errors import InvalidInputError


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


def derived_seed(*key: int) -> int:
    """Return a 63-bit seed for one purpose of a run."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))


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
    simple = {
        key: value
        for key, value in vars(thing).items()
        if isinstance(value, int | float | str) and key != "training" and key[0] != "_"
    }
    checksum = 0
    for tensor in thing.state_dict().values():
        checksum = zlib.crc32(np.ascontiguousarray(tensor.detach().cpu().float().numpy()).data, checksum)
    return f"{name} {simple}" + (f" {checksum:08x}" if checksum else "")
