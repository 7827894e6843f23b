r"""RBF fitting on CovType: the error of the RBF cost against the size of the subset.

The cost is :math:`\sum_p e^{-|p-x|^2/\sigma^2}`, and its relative error is measured over random queries (half of them
uniform in the ball that holds the data, half rows) and at the worst query that a search finds. The queries stay the
same while the bandwidth changes: the ball has the radius of the data, ``1 / bandwidth`` in units of the bandwidth. The
bandwidth is counted in distances from the mean to the farthest row (1 is the normalisation of the paper).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from coresift import __version__
from coresift.core.points import Points
from coresift.core.quadrature import Quadrature
from coresift.coresets import RBFCoreset, audit
from coresift.coresets.coreset import Coreset, QueryBall
from coresift.coresets.uniform import uniform_coreset

from .figure_data import Dataset

logger = logging.getLogger(__name__)

BANDWIDTHS = (1.0, 0.3, 0.2)
PAPER_GAIN = 1.5  # the most that the paper reports over uniform sampling
_search = partial(audit, n_starts=8, n_random=200, max_iter=20, random_state=0)


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    sizes: Sequence[int] = (125, 250, 500, 1000)
    bandwidths: Sequence[float] = BANDWIDTHS
    n_draws: int = 30
    seed: int = 0

    @property
    def n_steps(self) -> int:
        """Number of calls of ``on_step`` by :func:`measure`."""
        return len(self.sizes) * len(self.bandwidths) * self.n_draws * len(METHODS)


@dataclass(frozen=True)
class CostError:
    """One subset: a row of the table. What belongs to the bandwidth or the data is repeated."""

    preparation: str
    n_samples: int
    n_features: int
    bandwidth: float  # over the distance from the mean to the farthest row
    radius: float  # of the ball of queries, in bandwidths
    total_sensitivity: float
    uniform_factor: float  # largest over mean sensitivity
    method: str
    size: int
    seed: int
    random_error: float  # mean over random queries
    optimised_error: float  # largest that a search found
    version: str


@dataclass(frozen=True, eq=False)
class _Setting:
    """The data at one bandwidth: what a method may draw from."""

    points: Points
    ours: RBFCoreset
    paper: RBFCoreset
    ball: QueryBall

    def uniform(self, size: int, seed: int) -> Coreset:
        return uniform_coreset(self.points.n, size, seed, ball=self.ball)

    def drawn(self, size: int, seed: int) -> Coreset:
        return self.ours.sample(size, random_state=seed)

    def from_paper(self, size: int, seed: int) -> Coreset:
        """Algorithm 1 in its own normalisation, at every bandwidth."""
        return replace(self.paper.sample(size, method="iid", random_state=seed), ball=self.ball)

    def reweighted(self, core: Coreset) -> Coreset:
        """The weights of least discrepancy; no certificate, which would cost more than everything else here."""
        n = self.points.n
        weights = (
            Quadrature(self.points, np.full(n, 1.0 / n), "gaussian").fitted(core.indices, core.weights / n).weights
        )
        return replace(core, weights=weights * n, adjustments=("reweighted",), guarantee=None)


METHODS: dict[str, Callable[[_Setting, int, int], Coreset]] = {
    "uniform": _Setting.uniform,
    "paper": _Setting.from_paper,
    "uniform reweighted": lambda at, size, seed: at.reweighted(at.uniform(size, seed)),
    "ours": _Setting.drawn,
    "ours reweighted": lambda at, size, seed: at.reweighted(at.drawn(size, seed)),
}


def measure(data: Dataset, plan: Plan, on_step: Callable[[], None] = lambda: None) -> Iterator[CostError]:
    """Yield every method at every bandwidth and size, with every seed."""
    X = data.X
    paper = RBFCoreset(bound="paper", random_state=plan.seed).fit(X)
    for bandwidth in plan.bandwidths:
        ours = RBFCoreset(1.0 / bandwidth, bandwidth=bandwidth * paper.scale_, random_state=plan.seed).fit(X)
        ball = QueryBall("gaussian", ours.center_, ours.scale_, ours.radius)
        at = _Setting(Points(X, ours.center_, ours.scale_, 1.0 / bandwidth), ours, paper, ball)
        logger.info("bandwidth %.3g: %s", bandwidth, ours.advice())
        for size in plan.sizes:
            for seed in range(plan.seed, plan.seed + plan.n_draws):
                for method, draw in METHODS.items():
                    found = _search(X, draw(at, size, seed))
                    on_step()
                    yield CostError(
                        preparation=data.preparation,
                        n_samples=X.shape[0],
                        n_features=X.shape[1],
                        bandwidth=bandwidth,
                        radius=ours.radius,
                        total_sensitivity=ours.total_sensitivity_,
                        uniform_factor=ours.uniform_factor_,
                        method=method,
                        size=size,
                        seed=seed,
                        random_error=found.mean_error,
                        optimised_error=found.worst_error,
                        version=__version__,
                    )


def median_gains(rows: pd.DataFrame | Sequence[CostError], over: str) -> pd.DataFrame:
    """Return the median of the error ``over`` of uniform sampling over that of each method, by size."""
    medians = pd.DataFrame(rows).pivot_table(over, "size", "method", aggfunc="median")
    return (1.0 / medians).mul(medians["uniform"], axis=0)
