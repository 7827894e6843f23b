from .adaptive import AdaptiveCoreset as AdaptiveCoreset
from .auto import Auto as Auto, Regime as Regime
from .context import Cost as Cost, SelectionContext as SelectionContext
from .facility import Craig as Craig, FacilityLocation as FacilityLocation
from .fixed import Cover as Cover, FixedCoreset as FixedCoreset
from .glister import Glister as Glister
from .gradients import Gradients as Gradients, Validation as Validation
from .gradmatch import GradMatch as GradMatch
from .graph_cut import GraphCut as GraphCut
from .herding import Herding as Herding
from .k_center import KCenter as KCenter
from .names import register as register, registry as registry, strategy_named as strategy_named
from .pruning import InfoBatch as InfoBatch, Lossless as Lossless, Trim as Trim
from .scores import ByScore as ByScore, Scores as Scores, proxy_scores as proxy_scores
from .sensitivity import RBF as RBF, Laplacian as Laplacian
from .strategy import (
    RS2 as RS2,
    AdaptiveRandom as AdaptiveRandom,
    Full as Full,
    Phases as Phases,
    Random as Random,
    Selector as Selector,
    Strategy as Strategy,
    phases as phases,
)
from .wrappers import PerBatch as PerBatch, PerClass as PerClass, Warm as Warm, WarmEnd as WarmEnd
