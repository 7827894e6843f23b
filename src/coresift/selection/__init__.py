"""Strategies that choose what to train on: one verb, ``select(context, budget, rng) -> Coreset``."""

from ._classes import PerClass
from ._context import Cost, SelectionContext
from ._gradients import Gradients, Validation
from ._registry import register, registry, strategy_named
from ._strategy import Plan, Selector, Strategy, plan
from .adaptive import AdaptiveCoreset
from .cover import Cover
from .craig import Craig
from .fixed import FixedCoreset
from .glister import Glister
from .gradmatch import GradMatch
from .sensitivity import RBF, Laplacian
from .simple import AdaptiveRandom, Full, Random
from .wrappers import PerBatch, Warm

__all__ = [
    "RBF",
    "AdaptiveCoreset",
    "AdaptiveRandom",
    "Cost",
    "Cover",
    "Craig",
    "FixedCoreset",
    "Full",
    "Glister",
    "GradMatch",
    "Gradients",
    "Laplacian",
    "PerBatch",
    "PerClass",
    "Plan",
    "Random",
    "SelectionContext",
    "Selector",
    "Strategy",
    "Validation",
    "Warm",
    "plan",
    "register",
    "registry",
    "strategy_named",
]
