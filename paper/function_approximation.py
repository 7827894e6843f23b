r"""Function approximation from few points: networks trained on subsets, judged on all the data.

The paper's experiment: 10,000 points in the plane, targets :math:`z = e^{-|x|^2} + 0.2 \cos(4 |x|)`, a network trained
on 400 of them. Every subset is drawn from the same data with the same seed, and every network begins with the same
seed, so that errors are compared in pairs. The error is the root mean square over all 10,000 points.

Two designs: points from the standard normal distribution, thin at the rim, and from a square, even everywhere. Networks
have centres by k-means++ among their own training points, no intercept, and weighted least squares
for the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from coresift import __version__
from coresift.coresets import RBFCoreset
from coresift.coresets.coreset import Coreset
from coresift.coresets.uniform import uniform_coreset
from paper.networks import RBFNetworkCoreset, RBFNetworkRegressor

RIDGE = 1e-8  # far below every error here; it keeps overlapping Gaussians apart from rounding
SURFACE_RADIUS = 3.0  # beyond it lie about 1 % of the normal points
SURFACE_NEURONS = 100
RINGS, SPOKES = 31, 73  # of the polar grid that the surfaces are drawn on

DESIGNS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, n: rng.standard_normal((n, 2)),
    "square": lambda rng, n: rng.uniform(-3.0, 3.0, (n, 2)),
}


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    n_samples: int = 10_000
    size: int = 400
    neurons: Sequence[int] = (50, 100, 150)
    bandwidth: float = 1.0  # of the networks and of the coresets
    n_seeds: int = 50
    seed: int = 0

    @property
    def seeds(self) -> range:
        """Seeds of the data, the draws and the networks."""
        return range(self.seed, self.seed + self.n_seeds)

    @property
    def n_steps(self) -> int:
        """Number of calls of ``on_step`` by :func:`measure`."""
        return len(DESIGNS) * self.n_seeds


@dataclass(frozen=True)
class Fit:
    """One network trained on one subset: a row of the table."""

    design: str
    n_samples: int
    bandwidth: float
    neurons: int
    seed: int
    method: str
    n_points: int  # distinct rows it was trained on
    rmse: float  # over all rows
    max_error: float
    version: str


@dataclass(frozen=True)
class SurfacePoint:
    """The function and a network's value at one place: a row of the table behind the surfaces."""

    method: str
    x: float
    y: float
    value: float
    truth: float


def target(X: np.ndarray) -> np.ndarray:
    r""":math:`e^{-|x|^2} + 0.2 \cos(4 |x|)`."""
    radius = np.linalg.norm(X, axis=1)
    return np.exp(-(radius**2)) + 0.2 * np.cos(4.0 * radius)


@dataclass(frozen=True, eq=False)
class _Sampler:
    """A data set, and what its estimators have fitted."""

    X: np.ndarray
    z: np.ndarray
    size: int
    bandwidth: float
    seed: int

    @property
    def reach(self) -> float:
        return float(np.linalg.norm(self.X - self.X.mean(axis=0), axis=1).max())

    def all(self) -> Coreset:
        n = len(self.X)
        return Coreset(np.arange(n), np.ones(n), n, method="all")

    def uniform(self) -> Coreset:
        return uniform_coreset(len(self.X), self.size, np.random.default_rng((self.seed, 1)))

    def paper(self) -> Coreset:
        """Algorithm 1 in the paper's normalisation, i.i.d. draws; repeats are merged, so there are fewer points."""
        est = RBFCoreset(bound="paper", random_state=self.seed).fit(self.X)
        return est.sample(self.size, method="iid", random_state=self.seed)

    def ours(self) -> Coreset:
        """One sample for the whole loss, for all networks with centres among the data."""
        est = RBFNetworkCoreset(
            self.reach / self.bandwidth, bandwidth=self.bandwidth, bound="cells", random_state=self.seed
        )
        core = est.fit(self.X, self.z).sample(self.size, random_state=self.seed)
        assert isinstance(core, Coreset)
        return core

    def unweighted(self) -> Coreset:
        """The same points with equal weights, which no longer stand for the data."""
        return replace(self.ours(), weights=np.ones(self.size))

    def refined(self) -> Coreset:
        """Points chosen from a pool drawn by the Gaussian sensitivities, with the best weights."""
        est = RBFCoreset(self.reach / self.bandwidth, bandwidth=self.bandwidth, bound="cells", random_state=self.seed)
        return est.fit(self.X).sample(self.size, random_state=self.seed, refine=4)


METHODS: dict[str, Callable[[_Sampler], Coreset]] = {
    "all": _Sampler.all,
    "uniform": _Sampler.uniform,
    "paper": _Sampler.paper,
    "ours": _Sampler.ours,
    "ours unweighted": _Sampler.unweighted,
    "ours refined": _Sampler.refined,
}


def _sampler(design: str, plan: Plan, seed: int) -> _Sampler:
    X = DESIGNS[design](np.random.default_rng(seed), plan.n_samples)
    return _Sampler(X, target(X), plan.size, plan.bandwidth, seed)


def _trained(at: _Sampler, core: Coreset, neurons: int) -> RBFNetworkRegressor:
    X, z, weights = core.take(at.X, at.z)
    model = RBFNetworkRegressor(
        n_centers=neurons, bandwidth=at.bandwidth, ridge=RIDGE, fit_intercept=False, random_state=at.seed
    )
    return model.fit(X, z, sample_weight=weights)


def measure(plan: Plan, on_step: Callable[[], None] = lambda: None) -> Iterator[Fit]:
    """Yield every method with every number of neurons, design and seed."""
    for design in DESIGNS:
        for seed in plan.seeds:
            at = _sampler(design, plan, seed)
            for method, draw in METHODS.items():
                core = draw(at)
                for neurons in plan.neurons:
                    errors = _trained(at, core, neurons).predict(at.X) - at.z
                    yield Fit(
                        design=design,
                        n_samples=plan.n_samples,
                        bandwidth=plan.bandwidth,
                        neurons=neurons,
                        seed=seed,
                        method=method,
                        n_points=core.size,
                        rmse=float(np.sqrt(np.mean(errors**2))),
                        max_error=float(np.abs(errors).max()),
                        version=__version__,
                    )
            on_step()


def surfaces(plan: Plan) -> list[SurfacePoint]:
    """Evaluate the networks of the first seed on normal points on a polar grid."""
    at = _sampler("normal", plan, plan.seed)
    radius, angle = np.meshgrid(
        np.linspace(0.0, SURFACE_RADIUS, RINGS), np.linspace(0.0, 2.0 * np.pi, SPOKES), indexing="ij"
    )
    places = np.column_stack(((radius * np.cos(angle)).ravel(), (radius * np.sin(angle)).ravel()))
    truth = target(places)
    found = []
    for method in ("all", "uniform", "paper", "ours"):
        values = _trained(at, METHODS[method](at), SURFACE_NEURONS).predict(places)
        found += [
            SurfacePoint(method, *(round(float(number), 6) for number in (*place, value, height)))
            for place, value, height in zip(places, values, truth, strict=True)
        ]
    return found


@dataclass(frozen=True)
class Summary:
    """A method against uniform sampling over paired seeds: a line of the table that is shown."""

    design: str
    neurons: int
    method: str
    n_seeds: int
    mean: float
    deviation: float
    gain: float  # mean error of uniform over this mean error
    p_value: float  # paired t test of the errors, two-sided; 1 for uniform itself


def summarise(fits: Sequence[Fit]) -> list[Summary]:
    """Return means, deviations and paired tests, in the order of the table."""
    errors: dict[tuple[str, int, str], dict[int, float]] = {}
    for fit in fits:
        errors.setdefault((fit.design, fit.neurons, fit.method), {})[fit.seed] = fit.rmse
    found = []
    for (design, neurons, method), by_seed in sorted(errors.items(), key=lambda item: _order(item[0])):
        plain = errors[design, neurons, "uniform"]
        mine = np.array(list(by_seed.values()))
        theirs = np.array([plain[seed] for seed in by_seed])
        several = method != "uniform" and len(mine) > 1
        found.append(
            Summary(
                design=design,
                neurons=neurons,
                method=method,
                n_seeds=len(mine),
                mean=float(mine.mean()),
                deviation=float(mine.std(ddof=1)) if len(mine) > 1 else 0.0,
                gain=float(theirs.mean() / mine.mean()),
                p_value=float(stats.ttest_rel(mine, theirs).pvalue) if several else 1.0,
            )
        )
    return found


def _order(key: tuple[str, int, str]) -> tuple[int, int, int]:
    design, neurons, method = key
    return list(DESIGNS).index(design), neurons, list(METHODS).index(method)
