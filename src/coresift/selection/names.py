"""Strategies by name, and all methods in one table, for ``coresift strategies`` and the page "All methods"."""

import csv
from difflib import get_close_matches
from importlib.resources import files
from typing import Any

from .._errors import InvalidInputError, InvalidTypeError
from .adaptive import AdaptiveCoreset
from .auto import Auto
from .facility import Craig, FacilityLocation
from .fixed import Cover, FixedCoreset
from .glister import Glister
from .gradmatch import GradMatch
from .graph_cut import GraphCut
from .herding import Herding
from .k_center import KCenter
from .pruning import InfoBatch, Lossless, Trim
from .scores import SCORES, ByScore
from .sensitivity import RBF
from .strategy import RS2, AdaptiveRandom, Full, Random, Strategy
from .wrappers import PerBatch, PerClass, Warm

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
    "ADAPTIVE-CORESET-SEEN": AdaptiveCoreset(scores="seen"),
    "FIXED-CORESET": FixedCoreset(),
    "COVER": PerClass(Cover(), power=0.5),
    "RS2": RS2(),
    "STRATIFIED": PerClass(Random()),
    **{name.upper(): ByScore(score=name) for name in SCORES[:6]},  # the hardest
    "AUM": ByScore(score="aum", keep="easy"),  # its paper leaves out the samples with a small AUM
    "CCS": ByScore(score="aum", keep="ccs"),
    "MODERATE": ByScore(score="distance", keep="moderate"),
    "K-CENTER": KCenter(),
    "HERDING": PerClass(Herding()),
    "FACILITY-LOCATION": PerClass(FacilityLocation()),
    "GRAPH-CUT": PerClass(GraphCut()),
}
_REGISTRY: dict[str, Strategy] = {
    "FULL": Full(),
    "AUTO": Auto(),
    "LOSSLESS": Lossless(),
    "INFOBATCH": InfoBatch(),
    "TRIM": Trim(),
    **_PLAIN,
    **{f"{name}-WARM": Warm(strategy) for name, strategy in _PLAIN.items()},
}


def registry() -> dict[str, Strategy]:
    """Strategies by the paper's names, and registered ones. They have no state and can be shared.

    >>> "GRADMATCHPB" in registry()
    True
    """
    return dict(_REGISTRY)


def register(name: str, strategy: Any, *, replace: bool = False) -> None:
    """Register a ``strategy``, any object with a method ``select``, under a ``name``; ``replace`` allows one in use.

    >>> from coresift.selection import Random
    >>> register("mine", Random(), replace=True)
    >>> strategy_named("mine")
    Random()
    """
    key = _key(name)
    if not isinstance(strategy, Strategy) or isinstance(strategy, type):
        raise InvalidTypeError(f"{strategy!r} is not a strategy: it must be an object with a method select.")
    if key in _REGISTRY and not replace:
        raise InvalidInputError(f"strategy {key!r} already exists; pass replace=True to replace it.")
    _REGISTRY[key] = strategy


def strategy_named(name: Any) -> Strategy:
    """Look up a strategy by ``name``, ignoring case, with ``-`` or ``_``; return it if it is a strategy itself.

    >>> strategy_named("random").name
    'random'
    """
    if isinstance(name, Strategy) and not isinstance(name, type):
        return name
    if not isinstance(name, str):
        raise InvalidTypeError(f"strategy = {name!r:.60} must be a name, or an object with a method select.")
    found = _REGISTRY.get(_key(name))
    if found is None:
        close = get_close_matches(_key(name), _REGISTRY, n=1)
        names = ", ".join(each for each in _REGISTRY if not each.endswith("-WARM"))
        hint = f"did you mean {close[0]}?" if close else f"choose one of {names}; most also with -WARM."
        raise InvalidInputError(f"strategy {name!r} is unknown; {hint}")
    return found


def _key(name: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise InvalidTypeError(f"name = {name!r} must be a string.")
    return name.strip().upper().replace("_", "-")


def methods(name: str | None = None) -> list[dict[str, str]]:
    """The methods of ``methods.csv``, all or those behind a ``name``; "about" is the paragraph of "All methods"."""
    found = list(csv.DictReader((files(__package__) / "methods.csv").read_text(encoding="utf-8").splitlines()))
    if name is None:
        return found
    strategy_named(name)  # raises if it is unknown
    shown = _key(name).removesuffix("-WARM"), f"...{_key(name)[-5:]}"
    return [method for method in found if method["name"] in shown]
