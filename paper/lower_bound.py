r"""The circle that has no small coreset: its sensitivities, and how its subsets fail.

For comparison, as many points in the unit disc with queries in the unit ball, where small subsets do well: the ball of
queries makes the difference, not the number of points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from coresift import __version__
from coresift.coresets import RBFCoreset, audit
from coresift.coresets.coreset import Coreset, QueryBall
from coresift.coresets.uniform import uniform_coreset
from paper.circle import lower_bound_circle


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    counts: Sequence[int] = (8, 16, 32, 64, 128, 256, 512)
    n_samples: int = 200
    shares: Sequence[float] = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.0)
    n_draws: int = 10
    seed: int = 0

    @property
    def n_steps(self) -> int:
        """Number of calls of ``on_step`` by :func:`measure`."""
        return len(DATA) * len(self.shares) * self.n_draws * len(METHODS)


@dataclass(frozen=True)
class CircleSensitivities:
    """Exact sensitivities of the circle of n points: a row of a table."""

    n_samples: int
    circle_radius: float
    spacing: float  # between neighbours
    smallest: float
    largest: float
    total: float


@dataclass(frozen=True)
class SubsetError:
    """One subset: a row of the table."""

    data: str
    n_samples: int
    radius: float
    total_sensitivity: float
    method: str
    size: int
    seed: int
    found: float  # the largest error that a search found
    version: str


def _disc(n: int, rng: np.random.Generator) -> np.ndarray:
    angles = rng.uniform(0.0, 2.0 * np.pi, n)
    return np.sqrt(rng.random((n, 1))) * np.column_stack((np.cos(angles), np.sin(angles)))


# the points, and the radius of the ball of queries; the bandwidth is 1 for both
DATA: dict[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    "circle": lambda n, _: lower_bound_circle(n),
    "disc": _disc,
}


def _fitted(X: np.ndarray, seed: int) -> RBFCoreset:
    radius = float(np.linalg.norm(X - X.mean(axis=0), axis=1).max())
    return RBFCoreset(radius, bandwidth=1.0, bound="exact", random_state=seed).fit(X)


def _ours(est: RBFCoreset, size: int, seed: int) -> Coreset:
    return est.sample(size, random_state=seed)


def _uniform(est: RBFCoreset, size: int, seed: int) -> Coreset:
    ball = QueryBall("gaussian", est.center_, est.scale_, est.radius)
    return uniform_coreset(len(est.sensitivities_), size, seed, ball=ball)


METHODS: dict[str, Callable[[RBFCoreset, int, int], Coreset]] = {"uniform": _uniform, "ours": _ours}


def sensitivities(plan: Plan) -> list[CircleSensitivities]:
    """Compute exact sensitivities of circles of growing size."""
    found = []
    for n in plan.counts:
        X = lower_bound_circle(n)
        est = _fitted(X, plan.seed)
        found.append(
            CircleSensitivities(
                n_samples=n,
                circle_radius=float(np.linalg.norm(X[0])),
                spacing=float(np.linalg.norm(X[1] - X[0])),
                smallest=float(est.sensitivities_.min()),
                largest=float(est.sensitivities_.max()),
                total=est.total_sensitivity_,
            )
        )
    return found


def measure(plan: Plan, on_step: Callable[[], None] = lambda: None) -> Iterator[SubsetError]:
    """Yield subsets of both data sets, of all sizes."""
    for name, make in DATA.items():
        X = make(plan.n_samples, np.random.default_rng(plan.seed))
        est = _fitted(X, plan.seed)
        for share in plan.shares:
            size = int(np.ceil(share * len(X)))
            for seed in range(plan.seed, plan.seed + plan.n_draws):
                for method, draw in METHODS.items():
                    found = audit(X, draw(est, size, seed), n_starts=16, n_random=200, random_state=0)
                    on_step()
                    yield SubsetError(
                        data=name,
                        n_samples=len(X),
                        radius=float(est.radius),
                        total_sensitivity=est.total_sensitivity_,
                        method=method,
                        size=size,
                        seed=seed,
                        found=found.worst_error,
                        version=__version__,
                    )
