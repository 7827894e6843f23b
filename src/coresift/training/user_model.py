"""A user's own model, named as ``package.module:factory``."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Mapping
from typing import Any

from torch import nn

from .._errors import InvalidInputError, InvalidTypeError


def call_factory(name: str, given: Mapping[str, Any]) -> nn.Module:
    """The module that the factory ``name`` makes; of ``given`` it gets what it has parameters for and is not None.

    An option that the user set (``width``, ``stem``) and the factory does not know is refused: it would have no effect.
    """
    factory = _find(name)
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"model = {name!r}: its parameters cannot be found out ({error}).") from error
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    passed = {key: value for key, value in given.items() if value is not None and (takes_all or key in named)}
    for option in ("width", "stem"):
        if given.get(option) is not None and option not in passed:
            raise InvalidInputError(
                f"{option} = {given[option]!r}: the factory {name!r} has no such parameter."
            )
    needed = {
        p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    }
    if missing := sorted(needed - set(passed)):
        raise InvalidTypeError(
            f"model = {name!r} needs {', '.join(missing)}, which cannot be given: a factory is called with "
            f"{', '.join(given)}, as far as it has such parameters."
        )
    model = factory(**passed)
    if not isinstance(model, nn.Module):
        raise InvalidTypeError(
            f"model = {name!r} returned {type(model).__name__}; a torch.nn.Module is needed."
        )
    return model


def _find(name: str) -> Any:
    """The object behind a name; modules of the current folder are found too."""
    module_name, _, path = name.partition(":")
    parts = [*module_name.split("."), *path.split(".")]
    if not all(part.isidentifier() for part in parts):
        raise InvalidInputError(f"model = {name!r} must have the form package.module:factory.")
    here = os.getcwd()
    sys.path.append(here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            raise InvalidInputError(
                f"model = {name!r}: no module {error.name!r} is installed, or in the current folder."
            ) from error
        raise InvalidInputError(
            f"model = {name!r}: {module_name} imports {error.name!r}, which is missing."
        ) from error
    finally:
        sys.path.remove(here)
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise InvalidInputError(f"model = {name!r}: {module_name} has no {path!r}.") from None
    if not callable(found):
        raise InvalidTypeError(f"model = {name!r} is {type(found).__name__}, which cannot be called.")
    return found
