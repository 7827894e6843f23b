"""Strategies by name."""

from __future__ import annotations

from typing import Any

from .._errors import InvalidInputError, InvalidTypeError
from .adaptive import AdaptiveCoreset
from .classes import PerClass
from .cover import Cover
from .craig import Craig
from .fixed import FixedCoreset
from .glister import Glister
from .gradmatch import GradMatch
from .sensitivity import RBF
from .simple import AdaptiveRandom, Full, Random
from .strategy import Strategy
from .wrappers import PerBatch, Warm

_PLAIN: dict[str, Strategy] = {
    "RANDOM": Random(),
    "ADAPTIVE-RANDOM": AdaptiveRandom(),
    "GLISTER": Glister(),
    "CRAIG": PerClass(Craig()),
    "CRAIGPB": PerBatch(Craig()),
    "GRADMATCH": PerClass(GradMatch(ridge=0.5)),
    "GRADMATCHPB": PerBatch(GradMatch(ridge=0.0)),
    "RBF": RBF(),
    "ADAPTIVE-CORESET": AdaptiveCoreset(),
    "ADAPTIVE-CORESET-AUTO": AdaptiveCoreset(automatic=True),
    "ADAPTIVE-CORESET-SEEN": AdaptiveCoreset(scores="seen"),
    "FIXED-CORESET": FixedCoreset(),
    "COVER": PerClass(Cover(), power=0.5),
}
_REGISTRY: dict[str, Strategy] = {
    "FULL": Full(),
    **_PLAIN,
    **{f"{name}-WARM": Warm(strategy) for name, strategy in _PLAIN.items()},
}


def registry() -> dict[str, Strategy]:
    """The strategies by the paper's names, and those that were registered. They have no state: use them as they are."""
    return dict(_REGISTRY)


def register(name: str, strategy: Any, *, replace: bool = False) -> None:
    """Give a strategy a name: anything with ``select(context, budget, rng) -> Coreset``."""
    key = _key(name)
    if not isinstance(strategy, Strategy) or isinstance(strategy, type):
        raise InvalidTypeError(f"{strategy!r} is no strategy: it must be an object with a method select.")
    if key in _REGISTRY and not replace:
        raise InvalidInputError(f"there is a strategy {key!r} already; pass replace=True to replace it.")
    _REGISTRY[key] = strategy


def strategy_named(name: str) -> Strategy:
    """The strategy of that name, in any case, with ``-`` or ``_``."""
    found = _REGISTRY.get(_key(name))
    if found is None:
        raise InvalidInputError(f"strategy {name!r} is unknown; there are {', '.join(_REGISTRY)}.")
    return found


def _key(name: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise InvalidTypeError(f"name = {name!r} must be a string.")
    return name.strip().upper().replace("_", "-")
