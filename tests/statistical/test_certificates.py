"""The sampled certificate holds as often as it says, and the terms that make it so are needed."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import binom

from coresift.core.certificate import certify_exact, certify_sampled
from coresift.core.points import Points, Subset

REPEATS = 300
DELTA = 0.1
N_SAMPLED = 40


class Problem:
    """Weighted rows and a subset whose discrepancy is small beside the noise of a sample, or large."""

    def __init__(self, loss, subset_kind, seed=0):
        rng = np.random.default_rng(seed)
        n, m = 150, 60
        Z = rng.normal(size=(n, 3)) * 0.7
        w = rng.gamma(1.0, size=n)
        self.shares = w / w.sum()
        self.loss = loss
        self.points = Points(Z, np.zeros(3), 1.0, float(np.linalg.norm(Z, axis=1).max()))
        self.K = np.exp(-cdist(Z, Z, "sqeuclidean" if loss == "gaussian" else "euclidean"))
        if subset_kind == "drawn":
            rows = np.unique(rng.choice(n, size=m, p=self.shares))
            v = np.full(len(rows), 1 / len(rows))
        elif subset_kind == "all":  # the discrepancy is zero
            rows, v = np.arange(n), self.shares.copy()
        else:  # one side of the data
            rows = np.sort(np.argsort(Z[:, 0])[: n // 2])
            v = np.full(len(rows), 1 / len(rows))
        self.rows, self.v = rows, v
        self.truth = certify_exact(Subset(self.points, self.shares, rows, v, 1.0, loss)).discrepancy

    def sampled(self, seed):
        return certify_sampled(
            Subset(self.points, self.shares, self.rows, self.v, 1.0, self.loss),
            N_SAMPLED,
            DELTA,
            np.random.default_rng(seed),
        ).discrepancy

    def without_deviations(self, seed):
        """The same estimate with neither deviation term nor c: the root of the estimated inner product."""
        rng = np.random.default_rng(seed)
        first, second = (rng.choice(len(self.shares), size=N_SAMPLED, p=self.shares) for _ in range(2))
        a = np.bincount(first, minlength=len(self.shares)) / N_SAMPLED
        a[self.rows] -= self.v
        g = self.K @ a
        return np.sqrt(max(g[second].mean() - self.v @ g[self.rows], 0.0))


def too_many(failures):
    """More failures than REPEATS trials of probability DELTA give once in a million."""
    return failures > binom.isf(1e-6, REPEATS, DELTA)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["gaussian", "laplacian"])
@pytest.mark.parametrize("kind", ["drawn", "all", "one side"])
def test_the_bound_holds_with_the_stated_confidence(loss, kind):
    problem = Problem(loss, kind)
    bounds = np.array([problem.sampled(seed) for seed in range(REPEATS)])
    assert not too_many(np.sum(bounds < problem.truth * (1 - 1e-9)))
    if kind != "all":  # power: what is left without the deviation terms fails far more often than stated
        bare = np.array([problem.without_deviations(seed) for seed in range(REPEATS)])
        assert too_many(np.sum(bare < problem.truth))
        assert bare.mean() == pytest.approx(problem.truth, rel=0.5)


@pytest.mark.parametrize("loss", ["gaussian", "laplacian"])
def test_the_bound_is_about_one_over_the_root_of_the_sample_at_most(loss):
    # nothing is there to be found in "all": what remains is the price of sampling, some sqrt(2 ln(2/delta)/N)
    problem = Problem(loss, "all")
    bounds = [problem.sampled(seed) for seed in range(20)]
    assert np.mean(bounds) < 2.5 * np.sqrt(2 * np.log(2 / DELTA) / N_SAMPLED)
