"""The search for the query at which a weighted subset is worst: a lower bound on its error."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .gaussian import into_ball
from .points import Subset, squared_distances, squared_norms
from .ratio import LogRatio

QUANTILES = (0.5, 0.9, 0.99)

Map = Callable[[np.ndarray], np.ndarray]
Paths = tuple[np.ndarray, np.ndarray]  # points, and what they are worth

_FAR = 1e6  # a query at this many data radii sees a Laplacian as from infinity, up to a relative 1e-6
_COVER_SAMPLE = 128  # subset points used to see which rows the subset covers least
_SEPARATION = 0.3  # starts closer than this (in bandwidths, or radii if smaller) climb the same hill
_QUERY_BYTES = 1 << 26  # most that the random queries, dense, may take
_N_VERIFIED = 8  # candidates recomputed without cancellation
_LEAST_GAIN = 1e-5  # a path that would gain less than this part of its value in a step is done
_MEMORY = 4  # values the non-monotone line search looks back on


@dataclass(frozen=True, eq=False)
class AuditResult:
    """The worst query that a search found. The true worst error may be larger; it is never smaller.

    ``n_queries`` were compared, of this ``loss``, in the ball of this ``radius`` (in bandwidths; infinite for R^d).

    >>> from coresift import RBFCoreset, audit
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> found = audit(X, RBFCoreset().fit(X).sample(100, random_state=0), random_state=0)
    >>> found.mean_error < found.worst_error < 0.5
    True
    """

    worst_error: float
    """``|S(x)/F(x) - 1|`` at ``worst_query``."""
    worst_query: np.ndarray
    """(d,) in the units of the data."""
    worst_ratio: float
    """``S(x)/F(x)`` there: above 1 the subset overestimates, below 1 it underestimates."""
    mean_error: float
    """Over random queries: half uniform in the ball (Laplacian: of the data), half rows drawn by weight, projected."""
    quantiles: dict[float, float]
    """Quantiles of the error over the same random queries."""
    n_queries: int
    loss: str
    radius: float

    def __repr__(self) -> str:
        where = "in R^d" if np.isinf(self.radius) else f"in the ball of radius {self.radius:g}"
        levels = ", ".join(f"{level:.0%} {value:.3g}" for level, value in self.quantiles.items())
        worst = f"worst error found {self.worst_error:.4g} (ratio {self.worst_ratio:.4g}) among {self.n_queries}"
        return f"{worst} {self.loss} queries {where}; random queries: mean {self.mean_error:.3g}, quantiles {levels}"


def worst_query(
    subset: Subset,
    rng: np.random.Generator,
    *,
    n_starts: int = 32,
    n_random: int = 1000,
    max_iter: int = 50,
    max_evaluations: float | None = None,
) -> AuditResult:
    r"""Search for the worst query of a weighted subset: a LOWER bound on :math:`\max_{|x| \le R} |S(x)/F(x) - 1|`.

    The queries are ``n_random`` random ones, about as many chosen ones, the ends of projected gradient ascents on
    ``|log(S/F)|`` from the best ``n_starts``, and for the Laplacian nearby rows and far-away directions. The best are
    computed again without cancellation. The work is at most about ``n (2 n_random + n_starts max_iter)`` kernel
    evaluations (Laplacian: twice as many), and about ``max_evaluations``, but not below about 200 n.
    """
    is_laplacian, points = subset.loss == "laplacian", subset.points
    ratio = LogRatio(subset)
    search = _Search(ratio, subset.radius, rng, max_evaluations, max_iter)
    n_random = max(2, min(search.affordable(n_random, share=0.25), _QUERY_BYTES // (8 * points.d)))
    random_errors = _error(search.evaluate(search.random_queries(n_random)))
    search.evaluate(search.chosen_queries(n_random))
    search.climb(n_starts)
    if is_laplacian:
        search.try_nearest_rows()
        search.climb_far_away(n_starts)
    order = np.argsort(search.values, kind="stable")
    few = np.unique(np.concatenate((order[:_N_VERIFIED], order[-_N_VERIFIED:])))  # of each side
    precise = ratio.precise(search.queries[few])
    worst_at = int(np.argmax(_error(precise)))
    query, log_ratio = search.queries[few[worst_at]], float(precise[worst_at])
    quantiles = {level: float(np.quantile(random_errors, level)) for level in QUANTILES}
    with np.errstate(over="ignore"):
        worst = float(np.abs(np.expm1(log_ratio))), points.to_data(query), float(np.exp(log_ratio))
    mean = float(random_errors.mean())
    return AuditResult(*worst, mean, quantiles, search.n_queries, subset.loss, float(subset.radius))


def _error(log_ratio: np.ndarray) -> np.ndarray:
    """``|exp(g) - 1|`` without cancellation near 0."""
    with np.errstate(over="ignore"):
        return np.abs(np.expm1(log_ratio))


class _Search:
    """Queries tried so far with their log ratios, and the ways to try more."""

    def __init__(
        self, ratio: LogRatio, radius: float, rng: np.random.Generator, most: float | None = None, max_iter: int = 50
    ) -> None:
        self.ratio, self.points, self.weights = ratio, ratio.points, ratio.weights
        self.radius, self.rng = radius, rng
        self.reach = radius if np.isfinite(radius) else max(self.points.max_norm, 1.0)
        self.left, self.max_iter = np.inf if most is None else float(most), max_iter
        self.n_queries = 0
        self.queries = np.empty((0, self.points.d))
        self.values = np.empty(0)

    def affordable(self, wanted: int, share: float = 1.0) -> int:
        """How many of ``wanted`` queries a share of what is left pays for, at least 4."""
        return int(min(wanted, max(4.0, share * self.left / self.points.n)))

    def spend(self, n_queries: int) -> None:
        self.n_queries += n_queries
        self.left -= n_queries * self.points.n

    def evaluate(self, queries: np.ndarray) -> np.ndarray:
        values = self.ratio(queries)
        self.spend(len(queries))
        self.remember(queries, values)
        return values

    def remember(self, queries: np.ndarray, values: np.ndarray) -> None:
        self.queries = np.concatenate((self.queries, queries))
        self.values = np.concatenate((self.values, values))

    def project(self, queries: np.ndarray) -> np.ndarray:
        return queries if np.isinf(self.radius) else into_ball(queries, self.radius)

    def random_queries(self, count: int) -> np.ndarray:
        in_ball = self.reach * uniform_in_ball(count // 2, self.points.d, self.rng)
        picks = self.rng.choice(self.points.n, count - count // 2, p=self.weights / self.weights.sum())
        return np.concatenate((in_ball, self.project(self.points.take(picks))))

    def chosen_queries(self, count: int) -> np.ndarray:
        """The centre and up to ``count`` rows where the ratio may be extreme, in the ball and on its boundary."""
        share = max(1, count // 8)
        subset = self.ratio.rows
        positive = np.flatnonzero(self.weights)
        with np.errstate(divide="ignore"):
            excess = self.ratio.subset_weights / self.weights[subset]
        norms, cover = self._norms_and_cover()
        kinds = (
            subset[np.argsort(-excess, kind="stable")[:share]],
            subset[self.rng.permutation(subset.size)[:share]],
            positive[np.argsort(-norms[positive], kind="stable")[:share]],
            positive[np.argsort(cover[positive], kind="stable")[:share]],
        )
        chosen = self.points.take(positive if positive.size <= count else np.unique(np.concatenate(kinds)))
        parts = [np.zeros((1, self.points.d)), self.project(chosen)]
        if np.isfinite(self.radius):
            parts.append(self.radius * _directions(chosen))
        return np.concatenate(parts)

    def _norms_and_cover(self) -> tuple[np.ndarray, np.ndarray]:
        """``|z|`` of every row, and the squared distance (negative) from a sample of the subset."""
        sample = self.rng.permutation(self.ratio.rows)[:_COVER_SAMPLE]
        anchors = self.points.take(sample)
        norms, cover = np.empty(self.points.n), np.zeros(self.points.n)
        for span, block in self.points.blocks(extra_columns=2 * len(sample), budget=1 << 22):
            norms[span] = np.sqrt(block.sq_norms)
            if len(sample):
                cover[span] = -squared_distances(block, anchors).min(axis=1)
        self.left -= len(sample) * self.points.n
        return norms, cover

    def climb(self, n_starts: int) -> None:
        """Ascend from the best queries so far, and from the centre, upwards and downwards."""
        count = max(1, self.affordable(n_starts) - 2)
        length = min(1.0, self.reach)
        starts, signs = _both_ways(self.queries, self.values, count, _SEPARATION * length)
        starts = np.concatenate((starts, np.zeros((2, self.points.d))))
        signs = np.concatenate((signs, (1.0, -1.0)))
        self.remember(*self._ascend(starts, signs, self.project, length))

    def try_nearest_rows(self) -> None:
        """Evaluate the rows next to the best queries: the Laplacian ratio has its kinks, and most extremes, there."""
        order = np.argsort(-_error(self.values), kind="stable")[: self.affordable(64)]
        rows = np.unique(np.concatenate(self.ratio.nearest(self.queries[order])))
        self.left -= order.size * self.points.n
        self.evaluate(self.points.take(rows))

    def climb_far_away(self, n_starts: int) -> None:
        """Ascend on a sphere so far out that the Laplacian ratio is at its limit in each direction."""
        far = _FAR * max(self.points.max_norm, 1.0)
        count = self.affordable(8 * n_starts)
        random = self.rng.standard_normal((count // 2, self.points.d))
        outer = np.argsort(-squared_norms(self.queries), kind="stable")[: count - count // 2]
        queries = far * _directions(np.concatenate((random, self.queries[outer])))
        starts, signs = _both_ways(queries, self.evaluate(queries), self.affordable(n_starts), _SEPARATION * far)
        self.remember(*self._ascend(starts, signs, lambda x: far * _directions(x), far))

    def _ascend(self, starts: np.ndarray, signs: np.ndarray, project: Map, length: float) -> Paths:
        """Spectral projected gradient ascent on ``signs * g`` (Birgin et al. 2000): the best points and their g."""
        x = starts
        values, gradient = self._signed(x, signs)
        best, best_values = x.copy(), values.copy()
        step = 0.1 * length / _positive_norms(gradient)
        history = np.tile(values, (_MEMORY, 1))
        path = np.arange(len(x))
        for iteration in range(self.max_iter):
            trial = project(x + step[:, None] * gradient)
            gain = np.sum(gradient * (trial - x), axis=1)  # to first order; not negative, by the projection
            going = gain > _LEAST_GAIN * np.abs(values)
            if not going.any() or self.left < going.sum() * self.points.n:
                break
            x, trial, gradient, history = x[going], trial[going], gradient[going], history[:, going]
            values, gain, step, path = values[going], gain[going], step[going], path[going]
            new_values, new_gradient = self._signed(trial, signs[path])
            better = new_values > best_values[path]
            best[path[better]], best_values[path[better]] = trial[better], new_values[better]
            # Spectral steps need the freedom to be worse than the last, but not than the worst of the last few.
            accepted = new_values >= history.min(axis=0) + 1e-4 * gain
            move = trial - x
            bend = np.einsum("ij,ij->i", move, gradient - new_gradient)  # minus the curvature along the move
            spectral = np.where(bend > 0.0, squared_norms(move) / np.where(bend > 0.0, bend, 1.0), 4.0 * step)
            step = np.where(accepted, spectral, 0.25 * step)
            x = np.where(accepted[:, None], trial, x)
            gradient = np.where(accepted[:, None], new_gradient, gradient)
            values = np.where(accepted, new_values, values)
            history[iteration % _MEMORY] = values
            step = np.minimum(step, length / _positive_norms(gradient))
        return best, signs * best_values

    def _signed(self, x: np.ndarray, signs: np.ndarray) -> Paths:
        values, gradient = self.ratio.with_gradient(x)
        self.spend(len(x))
        return signs * values, signs[:, None] * gradient


def uniform_in_ball(count: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Draw (count, d) points uniformly from the unit ball."""
    return _directions(rng.standard_normal((count, d))) * rng.random((count, 1)) ** (1.0 / d)


def _directions(vectors: np.ndarray) -> np.ndarray:
    return vectors / _positive_norms(vectors)[:, None]


def _positive_norms(vectors: np.ndarray) -> np.ndarray:
    norms = np.sqrt(squared_norms(vectors))
    return np.where(norms > 0.0, norms, 1.0)


def _both_ways(queries: np.ndarray, values: np.ndarray, count: int, apart: float) -> tuple[np.ndarray, np.ndarray]:
    """``count`` starts for an ascent with their signs: half of large value, +1, and half of small value, -1."""
    # a ratio too low errs by 1 at most: once it is too high by more than that, all starts go up
    n_high = count if _error(values.max(keepdims=True))[0] > 1.0 and values.max() > 0.0 else (count + 1) // 2
    high = _spread_best(queries, values, n_high, apart)
    low = _spread_best(queries, -values, count - n_high, apart)
    signs = np.concatenate((np.ones(high.size), -np.ones(low.size)))
    return queries[np.concatenate((high, low))], signs


def _spread_best(queries: np.ndarray, values: np.ndarray, count: int, apart: float) -> np.ndarray:
    """Positions of ``count`` queries of large value, each ``apart`` from the better ones as long as there are such."""
    order = np.argsort(-values, kind="stable")
    order = order[np.isfinite(values[order])]  # g = -inf: the error is 1 already
    chosen: list[int] = []
    skipped: list[int] = []
    for candidate in order:
        if len(chosen) == count:
            break
        near = squared_norms(queries[chosen] - queries[candidate]).min(initial=np.inf) < apart**2
        (skipped if near else chosen).append(int(candidate))
    return np.array((chosen + skipped)[:count], dtype=np.int64)
