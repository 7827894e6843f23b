"""What the draws promise on average and in probability, with tolerances derived from the designs.

Each check is a function of the estimates alone, so that known mistakes can be put through the same check and fail it.
"""

import numpy as np
import pytest

from coresift.core.draw import METHODS, DrawTable

SEEDS = range(4)
REPEATS = 3000


class Problem:
    """Weighted rows, scores that are not proportional to the weights, and a loss that is not proportional to either."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.n, self.m = 60, 20
        self.weights = np.exp(rng.normal(size=self.n))
        self.scores = self.weights * np.exp(1.2 * rng.normal(size=self.n))
        self.loss = rng.random(self.n) + (self.scores > np.median(self.scores))
        self.table = DrawTable(self.scores, self.weights)
        share = self.scores / self.scores.sum()
        certain = np.zeros(self.n, dtype=bool)
        for _ in range(self.n):
            share = self.scores / self.scores[~certain].sum() * (self.m - certain.sum())
            certain |= share >= 1
        self.inclusion = np.where(certain, 1.0, share)
        assert abs(self.inclusion.sum() - self.m) < 1e-9
        assert certain.sum() >= 2  # else t w/(s m) would be right for the systematic draw

    def draws(self, method: str, seed: int):
        rng = np.random.default_rng([seed, 1])
        seeds = rng.integers(2**62, size=REPEATS)
        for k in range(REPEATS):
            yield self.table.draw(self.m, method, int(seeds[k]) if method == "keys" else rng)

    def variance(self, method: str, loss: np.ndarray) -> float:
        """Of the estimate of F = sum w f by one draw, or an upper bound of it, valid for every loss f >= 0."""
        value, s, t, m = self.weights * loss, self.scores, self.scores.sum(), self.m
        if method == "iid":
            return (t * (value**2 / s).sum() - value.sum() ** 2) / m
        if method == "systematic":
            # of ordered pivotal sampling: at most that of independent draws from the rows that are not certain
            free = self.inclusion < 1
            draws = self.inclusion[free].sum()
            return float((value[free] ** 2 / self.inclusion[free]).sum() - value[free].sum() ** 2 / draws)
        # keys: different rows are uncorrelated (fix all other keys: both win iff both are below one threshold), and
        # E[1/P - 1] <= E[1/(s tau)], and the m-th of the other keys is later than in a Poisson process of rate t - s.
        return float((value**2 * (t - s) / s).sum() / (m - 1))


def is_unbiased(estimates: np.ndarray, truth: float, variance: float) -> bool:
    """Five standard deviations of the mean: a right method fails by chance less than once in a million."""
    return abs(estimates.mean() - truth) < 5 * np.sqrt(variance / len(estimates))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("method", METHODS)
def test_weighted_sums_are_unbiased_and_common_mistakes_are_not(method, seed):
    problem = Problem(seed)
    w, s, f = problem.weights, problem.scores, problem.loss
    right, total, as_if_with_replacement, uniform = (np.empty(REPEATS) for _ in range(4))
    for k, drawn in enumerate(problem.draws(method, seed)):
        i = drawn.indices
        right[k] = drawn.weights @ f[i]
        total[k] = drawn.weights.sum()
        as_if_with_replacement[k] = (s.sum() * w[i] / (s[i] * problem.m)) @ f[i]
        uniform[k] = problem.n / problem.m * (w[i] @ f[i])
    truth, variance = float(w @ f), problem.variance(method, f)
    assert is_unbiased(right, truth, variance)
    assert is_unbiased(total, float(w.sum()), problem.variance(method, np.ones(problem.n)))
    # the variances are what the formulas say: equal for iid, below the bound for the others (relative error of a sample
    # variance of N estimates: about sqrt(2/N) times a factor for their tails, 3 here)
    slack = 1 + 5 * 3 * np.sqrt(2 / REPEATS)
    assert right.var() < variance * slack
    if method == "iid":
        assert right.var() > variance / slack
    # power
    assert not is_unbiased(uniform, truth, variance)
    assert not is_unbiased(as_if_with_replacement, truth, variance)


@pytest.mark.parametrize("seed", SEEDS)
def test_systematic_draws_every_row_as_often_as_its_inclusion_probability(seed):
    problem = Problem(seed)
    count = np.zeros(problem.n)
    for drawn in problem.draws("systematic", seed):
        count[drawn.indices] += 1
    frequency = count / REPEATS

    def agrees(pi: np.ndarray) -> bool:
        return bool((np.abs(frequency - pi) <= 5 * np.sqrt(pi * (1 - pi) / REPEATS) + 1 / REPEATS).all())

    assert agrees(problem.inclusion)
    assert not agrees(np.full(problem.n, problem.m / problem.n))
    assert not agrees(np.minimum(1, problem.m * problem.scores / problem.scores.sum()))  # not normalised again


N_ROWS, N_CLASSES = 5000, 10
LABELS = {"interleaved": np.arange(N_ROWS) % N_CLASSES, "sorted": np.arange(N_ROWS) * N_CLASSES // N_ROWS}


@pytest.mark.parametrize("arrangement", LABELS)
def test_labels_in_any_arrangement_are_seen_in_their_proportions(arrangement):
    """Equal scores: the counts of interleaved classes are multinomial, those of sorted ones do not vary at all."""
    labels, m, n_tables = LABELS[arrangement], N_ROWS // 10, 60
    share = 1 / N_CLASSES
    sigma = np.sqrt(m * share * (1 - share))
    drawable = DrawTable(np.ones(N_ROWS), np.ones(N_ROWS))
    draws = [drawable.systematic(m, np.random.default_rng(seed)).indices for seed in range(n_tables)]
    counts = np.array([np.bincount(labels[rows], minlength=N_CLASSES) for rows in draws])
    assert (np.abs(counts.mean(axis=0) - m * share) < 5 * sigma / np.sqrt(n_tables)).all()
    assert (np.abs(counts - m * share) < 6 * sigma).all()  # 600 counts: by chance less than once in a million
    assert counts.std() > sigma / 2 if arrangement == "interleaved" else counts.std() == 0
    # power: a walk of equal steps from one random start meets one class only
    assert len(set(LABELS["interleaved"][3 :: N_ROWS // m])) == 1


@pytest.mark.parametrize("arrangement", LABELS)
def test_redraws_from_one_table_weigh_every_class_without_bias(arrangement):
    """Periodic scores, in step with the interleaved labels; one table, as in training."""
    labels, m, n_draws = LABELS[arrangement], N_ROWS // 20, 400
    scores = 1 + 0.9 * np.cos(2 * np.pi * np.arange(N_ROWS) / N_CLASSES)
    rng = np.random.default_rng(0)
    drawable = DrawTable(scores, np.ones(N_ROWS))
    mass = np.empty((n_draws, N_CLASSES))
    for k in range(n_draws):
        drawn = drawable.systematic(m, rng)
        mass[k] = np.bincount(labels[drawn.indices], weights=drawn.weights, minlength=N_CLASSES)
        assert np.count_nonzero(np.bincount(labels[drawn.indices], minlength=N_CLASSES)) >= N_CLASSES // 2
    error = np.abs(mass.mean(axis=0) - N_ROWS / N_CLASSES)
    assert (error < 5 * mass.std(axis=0, ddof=1) / np.sqrt(n_draws)).all()
    # a walk of equal steps from one random start sees the same few phases of the period each time
    ends = np.cumsum(scores) / scores.sum() * m
    walked = [np.searchsorted(ends, rng.random() + np.arange(m), side="right") for _ in range(n_draws)]
    seen = [np.bincount(labels[i], weights=scores.sum() / m / scores[i], minlength=N_CLASSES) for i in walked]
    if arrangement == "interleaved":
        assert np.std(seen, axis=0).mean() > 2 * mass.std(axis=0).mean()


# Bernstein's inequality for one query.


def laplacian_problem():
    """500 points, three of them alone; exact Laplacian sensitivities; queries at points, where they are attained."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(500, 2))
    points[:3] = [[9, 0], [-9, 3], [0, 12]]
    weights = np.exp(0.3 * rng.normal(size=500))
    kernel = np.exp(-np.linalg.norm(points[:, None] - points[None], axis=2))  # (query, point)
    sensitivities = weights / (kernel @ weights)
    queries = np.concatenate((np.arange(3), rng.choice(500, 20, replace=False)))
    return weights, sensitivities, kernel[queries]


def failure_rates(scores, weights, kernel, m, epsilon, repeats):
    """How often S(x)/F(x) is off by more than epsilon, for each query."""
    truth = kernel @ weights
    rng = np.random.default_rng(5)
    drawable = DrawTable(scores, weights)
    failures = np.zeros(len(kernel))
    for _ in range(repeats):
        drawn = drawable.iid(m, rng)
        failures += np.abs(kernel[:, drawn.indices] @ drawn.weights / truth - 1) > epsilon
    return failures / repeats


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.2, 0.5])
def test_independent_draws_keep_to_bernsteins_rate(epsilon):
    weights, s, kernel = laplacian_problem()
    t, repeats = s.sum(), 4000
    m = int(np.ceil(5.0 * t * (1 + epsilon / 3) / epsilon**2))  # the bound is 2 exp(-2.5) = 0.16

    def holds(rates: np.ndarray, factor: float = 1.0) -> bool:
        bound = 2 * np.exp(-factor * m * epsilon**2 / (2 * t * (1 + epsilon / 3)))
        return bool((rates <= bound + 5 * np.sqrt(bound * (1 - bound) / repeats)).all())

    rates = failure_rates(s, weights, kernel, m, epsilon, repeats)
    assert holds(rates)
    # upper bounds of the sensitivities have a larger total: the same m promises a smaller exponent
    inflated = s * np.random.default_rng(1).uniform(1, 3, size=len(s))
    looser = t / inflated.sum()
    assert holds(failure_rates(inflated, weights, kernel, m, epsilon, repeats), looser)
    # power: four times the exponent, a sixth of the draws, or draws that ignore the sensitivities break it
    assert not holds(rates, 4.0)
    assert not holds(failure_rates(s, weights, kernel, m // 6, epsilon, repeats))
    assert not holds(failure_rates(weights, weights, kernel, m, epsilon, 500))
