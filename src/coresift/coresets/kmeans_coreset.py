"""Coresets of k-means: draws by the sensitivities of a rough solution."""

import operator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.utils.validation import check_is_fitted

from .._errors import InvalidInputError
from .._validation import LARGEST_TARGET, check_budget, check_count, check_features, check_instance, check_seed
from ..core.draw import KeyDraw
from ..core.points import BLOCK_BYTES, Matrix, Points, as_dense, float_rows, squared_distances
from ..rows.rows import Block
from .base import PassCoreset
from .bounds import kmeans_centers
from .coreset import Coreset
from .fitting import Runner
from .linear_rows import ColumnMoments

_PILOT = (2000, 40)  # rows that the rough solution is found on: at least, and for each cluster
_PILOT_STARTS = 3
_ADVISED = 80  # rows for each cluster that the advice is for, by default
_AS_GOOD = (0.01, 1.25)  # expected excess of uniform draws: above that of the coreset by, or times


@dataclass(frozen=True)
class KMeansCost:
    """The cost of some centres: over ``all_rows``, and as estimated from a ``coreset``.

    >>> round(KMeansCost(all_rows=200.0, coreset=210.0).error, 3)
    0.05
    """

    all_rows: float
    coreset: float

    @property
    def error(self) -> float:
        """Relative error of the estimate."""
        return abs(self.coreset / self.all_rows - 1.0) if self.all_rows > 0 else float(self.coreset > 0)


class KMeansCoreset(PassCoreset):
    r"""A weighted subset for k-means: the cost of any centres on it stands for their cost on all rows.

    The cost of a set C of centres is :math:`\sum_i w_i \min_{c \in C} |x_i - c|^2`, in the columns as they are: scale
    them first if their units differ. A rough solution with ``n_clusters`` centres is found on a few thousand rows; row
    i is then drawn in proportion to

    .. math:: \frac{w_i}{4} \left( \frac{1}{W} + \frac{|x_i - \mu|^2}{\sum_j w_j |x_j - \mu|^2}
        + \frac{|x_i - c_i|^2}{\sum_j w_j |x_j - c_j|^2} + \frac{1}{k W_{c_i}} \right)

    with :math:`\mu` the mean, :math:`c_i` the nearest of the rough centres and :math:`W_c` the weight of the rows
    nearest to c: the terms of a lightweight coreset (Bachem, Lucic and Krause 2018), which alone overlooks small
    clusters beside a distant one, and of a bicriteria solution (Feldman and Langberg 2011). ``fit`` makes three passes
    over the rows and each draw one more; nothing is kept per row.

    Parameters
    ----------
    n_clusters : int
        The number of centres that are to be fitted.
    random_state
        As in :class:`RBFCoreset`.

    Attributes
    ----------
    centers_, cost_ : (k, d) array, float
        The rough solution, not a good clustering but one that tells rows apart, and its cost over all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from coresift import KMeansCoreset
    >>> X = np.random.default_rng(0).normal(size=(5000, 2))
    >>> est = KMeansCoreset(3, random_state=0).fit(X)
    >>> core = est.sample(500)
    >>> est.cost([[0.0, 1.0], [1.0, -1.0], [-1.0, -1.0]], core=core).error < 0.1
    True
    """

    def __init__(self, n_clusters: int, *, random_state: Any = None) -> None:
        self.n_clusters, self.random_state = n_clusters, random_state

    def _find(self, runner: Runner, rng: np.random.Generator) -> None:
        k, rows = check_count(self.n_clusters, "n_clusters"), runner.rows
        moments = runner.run("columns", ColumnMoments(rows.d))
        if moments.n_rows < k:
            raise InvalidInputError(f"{rows.name}: n_samples={moments.n_rows} with weight should be >= n_clusters={k}.")
        mean, mass, spread = moments.mean, moments.mass, float(moments.scatter.sum())
        light = _Scores(mean, mass, spread, np.zeros((1, rows.d)), np.full(1, mass), spread)
        size = min(max(_PILOT[0], _PILOT[1] * k), rows.n)
        kept, drawn = runner.run("pilot", KeyDraw(light.scored, int(rng.integers(2**63)), size)).finish()
        pilot, seed = kept["X"], int(rng.integers(2**31))
        is_dense = isinstance(pilot, np.ndarray)
        if pilot.shape[0] <= k:
            centers = as_dense(pilot) - mean
        else:  # sparse rows stay sparse
            sample = pilot - mean if is_dense else pilot.astype(np.float64)
            centers = kmeans_centers(sample, k, seed, drawn.weights, _PILOT_STARTS) - (0.0 if is_dense else mean)
        sums_of = partial(cluster_sums, mean=mean, centers=centers)
        masses, costs, spreads = runner.reduce("clusters", sums_of, operator.add)
        used = masses > 0
        self.cost_ = float(costs.sum())
        self.centers_ = centers[used] + mean
        self._scores = scores = _Scores(mean, mass, spread, centers[used], masses[used], self.cost_)
        self._clusters = costs[used], spreads[used], scores.mean_rates(pilot, drawn.weights)
        self._n_samples = rows.n

    def sample(self, size: int | float, *, random_state: Any = None) -> Coreset:
        """Draw rows, in one pass, some 80 for each cluster (:meth:`advice`). Weighted sums over them are unbiased.

        ``size`` and ``random_state`` are as in :meth:`RBFCoreset.sample`.
        """
        runner = self._fitted_runner()
        count, seed = check_budget(size, runner.rows.n), check_seed(random_state, self._draw_rng)
        _, drawn = runner.run("draw", KeyDraw(self._scores.scored, seed, count)).finish()
        about: dict[str, Any] = {"method": "keys", "seed": seed, "bound": "bicriteria"}
        return Coreset(drawn.indices, drawn.weights, runner.rows.n, total_weight=self._scores.total, **about)

    def cost(self, centers: Any, *, core: Coreset) -> KMeansCost:
        """The cost of any ``centers`` (k, d) over all rows, in one pass, beside the estimate of any ``core``."""
        runner = self._fitted_runner(check_instance(core, "core", Coreset))
        given, d = np.asarray(check_features(centers, name="centers"), dtype=np.float64), runner.rows.d
        if given.shape[1] != d:
            raise InvalidInputError(f"centers have {given.shape[1]} columns, but {d} were fitted.")
        if not (largest := float(np.abs(given).max())) <= LARGEST_TARGET:
            raise InvalidInputError(f"centers has an entry of magnitude {largest:g}, above {LARGEST_TARGET:g}.")
        mean = self._scores.mean
        over_all = runner.reduce("cost", partial(cluster_sums, mean=mean, centers=given - mean), operator.add)[1].sum()
        squares = nearest(runner.rows.take(core.indices).X, mean, given - mean)[1]
        return KMeansCost(float(over_all), float(core.weights @ squares))

    def advice(self, size: int | float | None = None) -> str:
        r"""Whether this draw helps, in plain words; by default for 80 rows for each cluster.

        It compares how much more than the best centres those fitted to ``size`` rows are expected to cost, estimated at
        the rough centres: a cluster without a row goes to the next centre, the others are off by the error of a
        weighted mean. For draws by q, with :math:`D_c` the squared distance to the next centre, clusters contribute

        .. math:: e^{-m Q_c} W_c D_c + \min(W_c D_c, \sum_{i \in c} w_i^2 |x_i - c|^2 / (m q_i W_c))
        """
        check_is_fitted(self, "centers_")
        size = min(_ADVISED * len(self.centers_), self._n_samples) if size is None else size
        size = check_budget(size, self._n_samples)
        uniform, coreset = self._expected_excess(size)
        text = f"With {size:,} rows, centres fitted to a uniform sample are expected to cost {uniform:.2%} more"
        text += f" than the best, those fitted to this coreset {coreset:.2%}."
        if uniform <= max(coreset + _AS_GOOD[0], coreset * _AS_GOOD[1]):
            return f"{text} Uniform sampling is as good here."
        return f"{text} Uniform samples miss small or distant clusters: draw the coreset."

    def _expected_excess(self, m: int) -> list[float]:
        """For m uniform draws, and for m draws of the coreset, as shares of the cost; see :meth:`advice`."""
        (cost, spread, rates), scores = self._clusters, self._scores
        mass, total = scores.masses, scores.total
        if self.cost_ <= 1e-14 * scores.spread:  # none, but for rounding
            return [0.0, 0.0]
        gaps = cdist(scores.centers, scores.centers, "sqeuclidean")
        np.fill_diagonal(gaps, np.inf)
        next_best = mass * gaps.min(axis=1)  # infinite for a single cluster
        chance = 0.25 * (mass / total + spread / scores.spread + cost / self.cost_ + 1.0 / len(mass))
        excess = []
        for hit, rate in ((mass / total, 1.0 / total), (chance, rates)):
            missed = np.where(np.isfinite(next_best), np.exp(-m * hit) * next_best, 0.0)
            excess.append(float((missed + np.minimum(cost / (m * rate * mass), next_best)).sum()) / self.cost_)
        return excess


def nearest(X: Matrix, mean: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The nearest of the centres (minus the mean) of each row, its squared distance, and that of the mean."""
    labels, squares, spread = np.empty(X.shape[0], dtype=np.int64), np.empty(X.shape[0]), np.empty(X.shape[0])
    for part, rows in Points(float_rows(X), mean, 1.0, np.inf).blocks(len(centers), BLOCK_BYTES):
        distances = squared_distances(rows, centers)
        labels[part] = distances.argmin(axis=1)
        squares[part], spread[part] = distances.min(axis=1), rows.sq_norms
    return labels, squares, spread


@dataclass(frozen=True)
class _Scores:
    """The map from rows to the scores that they are drawn by; see :class:`KMeansCoreset`."""

    mean: np.ndarray
    total: float
    spread: float  # cost of the mean
    centers: np.ndarray  # minus the mean
    masses: np.ndarray
    cost: float

    def rates(self, X: Matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores of rows of weight 1, which sum to 1 over all rows; the nearest centres and their squared distances."""
        labels, squares, spread = nearest(X, self.mean, self.centers)
        found = 1.0 / self.total + 1.0 / (len(self.masses) * self.masses[labels])
        for part, whole in ((spread, self.spread), (squares, self.cost)):
            found += part / whole if whole > 0 else 1.0 / self.total
        return 0.25 * found, labels, squares

    def scored(self, block: Block) -> tuple[np.ndarray, dict[str, Any]]:
        return block.weights * self.rates(block.X)[0], {"X": block.X}

    def mean_rates(self, X: Matrix, weights: np.ndarray) -> np.ndarray:
        """(k,) harmonic means of the rates of each cluster, by the cost of the rows; from a sample."""
        rates, labels, squares = self.rates(X)
        parts = weights * squares
        least = 0.25 / self.total + 0.25 / (len(self.masses) * self.masses)
        above, below = (np.bincount(labels, part, len(self.masses)) for part in (parts, parts / (rates * self.total)))
        return np.divide(above, below, out=least * self.total, where=below > 0) / self.total


def cluster_sums(block: Block, mean: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """(3, k) mass, cost and squared distance from the mean of the rows nearest to each centre."""
    labels, squares, spread = nearest(block.X, mean, centers)
    return np.array([np.bincount(labels, block.weights * values, len(centers)) for values in (1.0, squares, spread)])
