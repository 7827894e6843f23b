from .adaptive import AdaptiveCoreset as AdaptiveCoreset
from .context import Cost as Cost, SelectionContext as SelectionContext
from .cover import Cover as Cover
from .craig import Craig as Craig
from .fixed import FixedCoreset as FixedCoreset
from .glister import Glister as Glister
from .gradients import Gradients as Gradients, Validation as Validation
from .gradmatch import GradMatch as GradMatch
from .names import register as register, registry as registry, strategy_named as strategy_named
from .sensitivity import RBF as RBF, Laplacian as Laplacian
from .simple import AdaptiveRandom as AdaptiveRandom, Full as Full, Random as Random
from .strategy import Phases as Phases, Selector as Selector, Strategy as Strategy, phases as phases
from .wrappers import PerBatch as PerBatch, PerClass as PerClass, Warm as Warm
