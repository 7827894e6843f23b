"""The formulas behind adaptive draws: against enumeration where it is possible, against draws where it is not."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from coresift import CoresiftError
from coresift.core.draw import DrawTable
from coresift.selection import Gradients
from coresift.selection.variance import (
    best_pool_factor,
    draw_probabilities,
    draw_variance,
    gradient_norms,
    inclusion_probabilities,
    replacement_variance,
    two_stage_variance,
    variance_times_time,
)

SEEDS = range(2)


def gradients_of(n, seed=0, spread=1.2):
    """Factors of gradients whose norms differ by orders of magnitude, as those of a trained model do."""
    rng = np.random.default_rng(seed)
    residuals = rng.normal(size=(n, 3)) * np.exp(spread * rng.normal(size=(n, 1)))
    return Gradients(residuals, rng.normal(size=(n, 4)) + 0.5)


def shares_of(seed, n, mix=0.2):
    gradients = gradients_of(n, seed)
    return draw_probabilities(gradient_norms(gradients), np.ones(n), mix)


def test_norms_are_those_of_the_gradients_multiplied_out():
    gradients = gradients_of(9)
    np.testing.assert_allclose(gradient_norms(gradients), np.linalg.norm(gradients.dense(), axis=1))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_norms_that_are_no_numbers_are_refused_with_their_row(bad):
    residuals = np.ones((5, 2))
    residuals[3, 1] = bad
    with pytest.raises(CoresiftError, match="row 3"):
        gradient_norms(Gradients(residuals))


@pytest.mark.slow
@given(st.integers(0, 2**32), st.integers(2, 40), st.floats(0.01, 1.0))
def test_shares_sum_to_one_and_keep_their_floor(seed, n, mix):
    p = shares_of(seed, n, mix)
    assert math.isclose(p.sum(), 1.0, rel_tol=1e-12)
    assert (p >= mix / n * (1 - 1e-12)).all()


def test_shares_without_gradients_and_at_extreme_scales():
    np.testing.assert_allclose(draw_probabilities(np.zeros(4), np.ones(4), 0.3), 0.25)
    norms, ones = np.array([1.0, 2.0, 5.0]), np.ones(3)
    for scale in (1e-300, 1e300):
        np.testing.assert_allclose(draw_probabilities(scale * norms, ones, 0.3), draw_probabilities(norms, ones, 0.3))


@given(st.integers(0, 2**32), st.integers(2, 40), st.data())
def test_inclusion_probabilities_are_capped_shares_that_sum_to_the_size(seed, n, data):
    size = data.draw(st.integers(1, n))
    shares = shares_of(seed, n, mix=0.05)
    pi = inclusion_probabilities(shares, size)
    assert math.isclose(pi.sum(), size, rel_tol=1e-9)
    assert ((pi > 0) & (pi <= 1)).all()
    assert (pi >= np.minimum(1, size * shares) * (1 - 1e-9)).all()
    free = pi < 1
    if free.any():  # one factor for all that are not certain
        np.testing.assert_allclose(pi[free] / shares[free], (pi[free] / shares[free])[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_inclusion_probabilities_are_those_of_the_draw(seed):
    shares, rng = shares_of(seed, 30, mix=0.05), np.random.default_rng(seed)
    pi = inclusion_probabilities(shares, 12)
    for _ in range(20):
        drawn = DrawTable(shares, np.ones(30)).systematic(12, rng)
        np.testing.assert_allclose(1 / drawn.weights, pi[drawn.indices])
    assert (pi == 1).any()


def test_inclusion_of_equal_shares_and_of_one_row_that_has_nearly_all():
    np.testing.assert_allclose(inclusion_probabilities(np.full(8, 1 / 8), 2), 0.25)
    pi = inclusion_probabilities(np.array([1.0, 1e-9, 1e-9, 1e-9]), 2)
    np.testing.assert_allclose(pi, [1, 1 / 3, 1 / 3, 1 / 3])


def test_variance_of_independent_draws_by_enumeration():
    gradients = gradients_of(5)
    dense, p = gradients.dense(), shares_of(0, 5)
    weights = np.array([1.0, 2.0, 1.5, 1.0, 3.0])
    total = weights @ dense
    by_hand = sum(p[i] * np.sum((weights[i] * dense[i] / p[i] - total) ** 2) for i in range(5))
    assert replacement_variance(gradients, gradient_norms(gradients), weights, p) == pytest.approx(by_hand)


@given(st.integers(0, 2**32), st.integers(2, 30), st.floats(0.01, 1.0))
def test_no_shares_are_better_than_the_norms_and_the_floor_never_hurts_beyond_uniform(seed, n, mix):
    gradients = gradients_of(n, seed)
    norms, ones = gradient_norms(gradients), np.ones(n)
    rng = np.random.default_rng(seed)

    def of(shares):
        return replacement_variance(gradients, norms, ones, shares)

    best = of(norms / norms.sum())
    slack = 1e-9 * norms.sum() ** 2
    other = rng.random(n) + 0.01
    assert best <= of(other / other.sum()) + slack
    mixed, uniform = of(draw_probabilities(norms, ones, mix)), of(ones / n)
    # 1/p is convex: a mixture is at most as bad as the mixture of the variances
    assert mixed <= (1 - mix) * best + mix * uniform + slack
    # and the sum of squares over p is at most 1/(1 - mix) of the least one
    if mix < 1:
        assert mixed - best <= mix / (1 - mix) * norms.sum() ** 2 + slack


@pytest.mark.parametrize(("n", "m"), [(6, 3), (7, 2), (5, 4)])
def test_variance_without_repeats_is_exact_for_equal_probabilities(n, m):
    gradients = gradients_of(n)
    dense = gradients.dense()
    total = dense.sum(axis=0)
    subsets = list(itertools.combinations(range(n), m))
    by_hand = np.mean([np.sum((n / m * dense[list(rows)].sum(axis=0) - total) ** 2) for rows in subsets])
    pi = np.full(n, m / n)
    found = draw_variance(gradients, gradient_norms(gradients), np.ones(n), pi)
    assert found == pytest.approx(by_hand)
    assert draw_variance(gradients, gradient_norms(gradients), np.ones(n), np.ones(n)) == 0


def test_one_row_has_no_variance():
    gradients = gradients_of(1)
    assert draw_variance(gradients, gradient_norms(gradients), np.ones(1), np.ones(1)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_variance_of_unequal_draws_agrees_with_draws(seed):
    n, m, repeats = 200, 60, 1500
    gradients, rng = gradients_of(n, seed), np.random.default_rng((seed, 1))
    dense, norms = gradients.dense(), gradient_norms(gradients)
    shares = draw_probabilities(norms, np.ones(n), 0.2)
    total = dense.sum(axis=0)
    errors, uniform = np.empty(repeats), np.empty(repeats)
    for k in range(repeats):
        order = rng.permutation(n)
        drawn = DrawTable(shares[order], np.ones(n)).systematic(m, rng)
        errors[k] = np.sum((drawn.weights @ dense[order[drawn.indices]] - total) ** 2)
        uniform[k] = np.sum((n / m * dense[rng.choice(n, m, replace=False)].sum(axis=0) - total) ** 2)
    pi = inclusion_probabilities(shares, m)
    found = draw_variance(gradients, norms, np.ones(n), pi)
    equal = draw_variance(gradients, norms, np.ones(n), np.full(n, m / n))

    def agrees(value, sample):
        # five standard errors of the mean, and Hájek's own O(1/m): two of it
        return abs(sample.mean() - value) < 5 * sample.std() / math.sqrt(repeats) + 2 / m * value

    assert agrees(found, errors)
    assert agrees(equal, uniform)
    assert not agrees(equal, errors)  # power: the gain is there
    assert not agrees(replacement_variance(gradients, norms, np.ones(n), shares) / m, errors)  # repeats cost


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_variance_of_two_stages_is_unbiased_over_pools(seed):
    """Pools as the draw makes them: the mean of what they say, against the mean of squared errors."""
    n, pool, m, repeats = 240, 90, 30, 1500
    gradients, rng = gradients_of(n, seed, spread=0.8), np.random.default_rng((seed, 2))
    dense, total = gradients.dense(), gradients.total()
    said, uniform, errors = np.empty(repeats), np.empty(repeats), np.empty(repeats)
    for k in range(repeats):
        rows = rng.permutation(n)[:pool]
        part = gradients.take(rows)
        norms, weights = gradient_norms(part), np.full(pool, n / pool)
        shares = draw_probabilities(norms, weights, 0.2)
        found = two_stage_variance(part, norms, weights, inclusion_probabilities(shares, m), n, m)
        said[k], uniform[k] = found.pool + found.inside, found.uniform
        drawn = DrawTable(shares, weights).systematic(m, rng)
        errors[k] = np.sum((drawn.weights @ dense[rows[drawn.indices]] - total) ** 2)
    exact = draw_variance(gradients, gradient_norms(gradients), np.ones(n), np.full(n, m / n))
    assert abs(uniform.mean() - exact) < 5 * uniform.std() / math.sqrt(repeats)
    deviation = math.sqrt((said.var() + errors.var()) / repeats)
    assert abs(said.mean() - errors.mean()) < 5 * deviation + 2 / m * said.mean()
    assert abs(uniform.mean() - errors.mean()) > 5 * deviation  # power


def test_two_stages_of_a_whole_pool_and_of_no_variance():
    gradients, n = gradients_of(50), 50
    norms, ones = gradient_norms(gradients), np.ones(n)
    whole = two_stage_variance(gradients, norms, ones, np.full(n, 10 / n), n, 10)
    assert whole.pool == 0
    assert whole.ratio == pytest.approx(1)
    still = Gradients(np.ones((4, 2)))
    found = two_stage_variance(still, gradient_norms(still), np.ones(4), np.full(4, 0.5), 4, 2)
    assert (found.uniform, found.ratio) == (0, 1)
    assert "1 of a uniform draw's" in str(found)


@given(st.floats(1, 1e4), st.integers(1, 50), st.floats(1, 1e3))
def test_the_pool_is_the_minimum_of_variance_times_time(gain, every, factor):
    best = best_pool_factor(gain, every)
    least = variance_times_time(best, gain, every)
    assert least <= variance_times_time(factor, gain, every) * (1 + 1e-12)
    assert math.isclose(least, (gain**-0.5 + (3 * every) ** -0.5) ** 2)


@given(st.floats(1, 1e4), st.integers(1, 50), st.floats(0.01, 0.9), st.floats(0, 1))
def test_the_pool_of_a_share_is_the_minimum_as_well(gain, every, share, where):
    """(1/f - s) / (1 - s) of the variance is the pool's, nothing of it if the pool is all data: f = 1/s."""
    best = best_pool_factor(gain, every, share)
    assert 1 <= best <= 1 / share * (1 + 1e-12)
    factor = 1 + where * (1 / share - 1)
    least = variance_times_time(best, gain, every, share)
    assert least <= variance_times_time(factor, gain, every, share) * (1 + 1e-12)
    expected = (max(0, 1 / factor - share) / (1 - share) + 1 / gain) * (1 + factor / (3 * every))
    assert math.isclose(variance_times_time(factor, gain, every, share), expected)


def test_when_it_pays():
    """Gains at which it begins to pay: by hand, from (1/f + 1/g)(1 + f/(3R)) = 1."""

    def pays(gain, every, most):
        return variance_times_time(min(most, best_pool_factor(gain, every)), gain, every) < 1

    assert not pays(1.0, 1000, 1e6)  # no gain, whatever it costs
    assert not pays(5.95, 1, 3)  # (1/3 + 1/g) 2 = 1: g = 6
    assert pays(6.05, 1, 3)
    assert not pays(1.3, 20, 60)  # f* = sqrt(60 g) = 8.9: g = (1 - 60 ** -0.5) ** -2 = 1.319
    assert pays(1.34, 20, 60)


@pytest.mark.parametrize("kappa", [1.0, 1.5, 10.0])
@pytest.mark.parametrize("mix", [0.05, 0.2, 0.5])
def test_old_scores_cost_at_most_what_they_have_changed_by(kappa, mix):
    """sum |a|^2 / p is at most kappa^2 / (1 - mu) times the least, and at most 1 / mu times that of a uniform draw."""
    rng = np.random.default_rng(0)
    ones = np.ones(200)
    worst = 0.0
    for spread in (0.1, 1.0, 3.0):
        norms = rng.lognormal(0, spread, 200)
        least, uniform = norms.sum() ** 2, 200 * np.sum(norms**2)
        for changes in (rng.uniform(-1, 1, 200), rng.choice([-1.0, 1.0], 200), np.where(norms > 1, -1.0, 1.0)):
            shares = draw_probabilities(norms * kappa**changes, ones, mix)
            found = float(np.sum(norms**2 / shares))
            assert least * (1 - 1e-12) <= found <= min(kappa**2 / (1 - mix) * least, uniform / mix) * (1 + 1e-12)
            worst = max(worst, found / least)
    if kappa > 1:
        assert worst > 1.0 + 0.5 * (min(kappa, 2.0) - 1.0) ** 2 * (1 - mix)  # power: the changes do cost something
