r"""How the bandwidth changes the sensitivities, and the errors of subsets of one size.

The queries stay the same while the bandwidth changes: all x in the smallest ball around the mean that holds the data,
whose radius is 1 in the paper's normalisation and ``1 / bandwidth`` in units of the bandwidth. The loss is
:math:`e^{-|p-x|^2/\sigma^2}`. With a very small bandwidth every
sensitivity is 1 and no point can be left out; with a very large one each is 1/n and any point can.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from coresift import __version__
from coresift._validation import check_budget
from coresift.coresets import RBFCoreset, audit
from coresift.coresets.coreset import Coreset, QueryBall
from coresift.coresets.uniform import uniform_coreset

from .figure_data import Dataset

logger = logging.getLogger(__name__)

AS_GOOD = 1.5  # largest over mean sensitivity up to which uniform sampling counts as good
_search = partial(audit, n_starts=16, n_random=256, max_iter=30)  # less effort than by default: there are many


def bandwidth_grid(count: int) -> tuple[float, ...]:
    """Return ``count`` bandwidths from 1/8 to 8, evenly spaced in their logarithm."""
    return tuple(float(b) for b in np.geomspace(1 / 8, 8, count).round(6))


@dataclass(frozen=True)
class Plan:
    """What to measure: bandwidths relative to the distance from the mean to the farthest point."""

    bandwidths: Sequence[float]
    size: int | float = 0.1
    n_seeds: int = 3
    seed: int = 0
    eps: float = 0.1
    delta: float = 0.05

    @property
    def seeds(self) -> range:
        """Seeds of the draws."""
        return range(self.seed, self.seed + self.n_seeds)

    @property
    def n_steps(self) -> int:
        """Number of calls of ``on_step`` by :func:`measure` for a data set."""
        return len(self.bandwidths) * self.n_seeds * len(METHODS)


@dataclass(frozen=True)
class Measurement:
    """One subset at one bandwidth: a row of the table. What belongs to the bandwidth or the data is repeated."""

    dataset: str
    title: str
    preparation: str
    n_samples: int
    n_features: int
    bandwidth: float  # over the distance from the mean to the farthest point, the paper's normalisation
    bandwidth_in_data_units: float
    median_distance: float  # relative, like the bandwidth
    radius: float  # of the ball of queries, in bandwidths
    bound: str
    total_sensitivity: float
    uniform_factor: float  # largest over mean sensitivity
    eps: float
    delta: float
    size_needed: int  # draws for eps, delta and all queries, from the sensitivities
    argument: str  # which proof gives it
    plain_size_needed: int  # the same for plain sampling
    method: str
    seed: int
    size: int  # points asked for
    n_points: int  # distinct points in the subset
    certified: float  # the error is proved not to be larger, for any query
    found: float  # the largest error that a search found
    version: str


@dataclass(frozen=True, eq=False)
class _Setting:
    """A data set at a bandwidth: what a method may draw from."""

    X: np.ndarray
    ours: RBFCoreset
    paper: RBFCoreset
    size: int
    ball: QueryBall

    def uniform(self, seed: int) -> Coreset:
        """Plain sampling without replacement: every row as likely as any other, all with weight n/m."""
        return uniform_coreset(len(self.X), self.size, seed, ball=self.ball)


# Names as in the table; the paper's scores are those of its own normalisation, at every bandwidth.
METHODS: dict[str, Callable[[_Setting, int], Coreset]] = {
    "uniform": _Setting.uniform,
    "paper": lambda at, seed: replace(at.paper.sample(at.size, method="iid", random_state=seed), ball=at.ball),
    "uniform reweighted": lambda at, seed: at.uniform(seed).reweight(at.X),
    "ours": lambda at, seed: at.ours.sample(at.size, random_state=seed),
    "ours reweighted": lambda at, seed: at.ours.sample(at.size, random_state=seed, reweight=True),
    "ours refined": lambda at, seed: at.ours.sample(at.size, random_state=seed, refine=4),
}


def measure(data: Dataset, plan: Plan, on_step: Callable[[], None] = lambda: None) -> Iterator[Measurement]:
    """Yield every method at every bandwidth with every seed; ``on_step`` is called after each."""
    X, size = data.X, check_budget(plan.size, len(data.X))
    paper = RBFCoreset(bound="paper", random_state=plan.seed).fit(X)
    unit = paper.scale_
    median = RBFCoreset(bound="closed-form", bandwidth="median", random_state=plan.seed).fit(X).scale_
    for bandwidth in plan.bandwidths:
        ours = RBFCoreset(radius=1.0 / bandwidth, bandwidth=bandwidth * unit, random_state=plan.seed).fit(X)
        ball = QueryBall("gaussian", ours.center_, ours.scale_, ours.radius)
        at = _Setting(X, ours, paper, size, ball)
        needed = ours.sample_size(plan.eps, plan.delta)
        logger.info("%s, bandwidth %.3g: %s", data.name, bandwidth, ours.advice())
        for seed in plan.seeds:
            for method, draw in METHODS.items():
                core = draw(at, seed)
                certificate = core.certificate or core.certify(X, method="exact")
                found = _search(X, core, random_state=plan.seed)
                on_step()
                yield Measurement(
                    dataset=data.name,
                    title=data.title,
                    preparation=data.preparation,
                    n_samples=X.shape[0],
                    n_features=X.shape[1],
                    bandwidth=bandwidth,
                    bandwidth_in_data_units=ours.scale_,
                    median_distance=median / unit,
                    radius=ours.radius,
                    bound=ours.bound_,
                    total_sensitivity=ours.total_sensitivity_,
                    uniform_factor=ours.uniform_factor_,
                    eps=plan.eps,
                    delta=plan.delta,
                    size_needed=needed.size,
                    argument=needed.argument,
                    plain_size_needed=needed.candidates["plain"],
                    method=method,
                    seed=seed,
                    size=size,
                    n_points=core.size,
                    certified=certificate.eps,
                    found=found.worst_error,
                    version=__version__,
                )


def expected_seconds(data: Dataset, plan: Plan) -> float:
    """Estimate the time of :func:`measure` on one core: a subset costs a sum over pairs and searches over rows."""
    n, d = data.X.shape
    entries = n * (d + 20.0)
    return plan.n_steps * (0.1 + 4e-11 * n * entries + 3.5e-7 * entries)
