"""Strategies that choose what to train on: one verb, ``select(context, budget, rng) -> Coreset``."""

from .adaptive import AdaptiveCoreset
from .classes import PerClass
from .context import Cost, SelectionContext
from .cover import Cover
from .craig import Craig
from .fixed import FixedCoreset
from .glister import Glister
from .gradients import Gradients, Validation
from .gradmatch import GradMatch
from .names import register, registry, strategy_named
from .sensitivity import RBF, Laplacian
from .simple import AdaptiveRandom, Full, Random
from .strategy import Phases, Selector, Strategy, phases
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
    "Phases",
    "Random",
    "SelectionContext",
    "Selector",
    "Strategy",
    "Validation",
    "Warm",
    "phases",
    "register",
    "registry",
    "strategy_named",
]
