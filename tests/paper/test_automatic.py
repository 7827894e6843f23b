"""The formulas behind adaptive draws: against enumeration where it is possible, against draws where it is not."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from coresift import CoresiftError
from coresift.core.draw import DrawTable
from coresift.selection import RBF, Gradients, SelectionContext
from coresift.selection.adaptive import draw_probabilities, gradient_norms
from paper.automatic import (
    AutomaticCoreset,
    PooledCoreset,
    Variance,
    best_pool_factor,
    draw_variance,
    gain_of,
    inclusion_probabilities,
    replacement_variance,
    strategies,
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


def context_of(n, scale=1.0):
    """Rows of signs, which are features of one length, and a linear model; zero if the scale is."""
    rows, torch_rng = np.sign(np.random.default_rng(0).normal(size=(n, 5))).astype(np.float32), torch.Generator()
    model = nn.Linear(5, 3, bias=False)
    with torch.no_grad():
        model.weight.copy_(scale * torch.randn(3, 5, generator=torch_rng.manual_seed(0)))
    return SelectionContext(rows, np.arange(n) % 3, model=model)


def rng(seed=1):
    return np.random.default_rng(seed)


def test_scores_that_do_not_pay_are_not_computed():
    """At a fresh model that says the same of every sample, all gradients have one length."""
    context = context_of(2000, scale=0.0)
    core = AutomaticCoreset(select_every=20).select(context, 400, rng())
    assert context.costs["gradients"].samples == 100  # the probe, a quarter of the budget
    assert "would not pay" in core.method
    np.testing.assert_allclose(core.weights, 5.0)


@pytest.mark.parametrize("every", [20, 50])
def test_an_automatic_pool_follows_the_gain(every):
    context = context_of(4000, scale=20.0)
    AutomaticCoreset(select_every=every, mix=0.1).select(context, 40, rng())
    gain = gain_of(context.gradients_of(rng().permutation(4000)[:64]).double(), np.ones(64), 0.1)
    factor = min(best_pool_factor(gain, every, 0.01), 3 * every)
    assert context.costs["gradients"].samples == math.ceil(factor * 40) + 2 * 64  # one probe is this test's own


def test_an_automatic_draw_is_unbiased_where_it_decides_now_so_now_so():
    """The rows that decide whether scores pay are not those of the pool: a probe of hard rows would bring them in."""
    given = np.full((2000, 1), 0.05)
    hard = np.arange(2000) % 50 == 0
    given[hard] = 1.0
    context = SelectionContext(np.zeros((2000, 1)), gradients=given)
    strategy = AutomaticCoreset(correction=1.0, select_every=2)
    cores = [strategy.select(context, 64, rng(seed)) for seed in range(2500)]
    fell_back = np.mean(["would not pay" in core.method for core in cores])
    assert 0.1 < fell_back < 0.9
    counts = np.array([core.weights[hard[core.indices]].sum() for core in cores])
    error = counts.std(ddof=1) / np.sqrt(len(counts))
    assert abs(counts.mean() - 40) < 4 * error
    assert error < 0.5  # power: the rows of the probe kept in the pool gave 42.4


@pytest.mark.parametrize(("n", "size", "every"), [(1000, 500, 1), (400, 200, 1), (1000, 100, 20)])
def test_an_automatic_draw_knows_that_all_rows_are_no_more_than_all(n, size, every):
    """A pool of all rows leaves nothing out, and costs no more than all."""
    context = SelectionContext(np.zeros((n, 1)), gradients=rng().lognormal(0, 1.5, (n, 1)))
    settings = {} if every == 1 else {"pool_factor": 1000.0}
    strategy = AutomaticCoreset(correction=1.0, mix=0.2, select_every=every, **settings)
    assert "would not pay" not in strategy.select(context, size, rng()).method


def test_automatic_draws_of_small_budgets_probe_no_more_than_pays():
    context = context_of(4000)
    assert "would not pay" in AutomaticCoreset(select_every=1).select(context, 40, rng()).method
    assert context.costs == {}  # a probe of 64 rows would be half of the training


@pytest.mark.parametrize(("size", "probe"), [(100, 64), (259, 64), (260, 65), (2000, 500), (2052, 512), (2900, 512)])
def test_a_probe_is_a_quarter_of_the_budget_within_limits(size, probe):
    """Gradients of one length gain nothing, so the cost is that of the probe alone."""
    context = context_of(3000, scale=0.0)
    assert "would not pay" in AutomaticCoreset(select_every=1).select(context.at(4), size, rng()).method
    assert context.costs["gradients"].samples == probe


def test_it_has_a_name_with_and_without_a_warm_start():
    assert isinstance(strategies()["ADAPTIVE-CORESET-AUTO"], AutomaticCoreset)
    assert isinstance(strategies()["ADAPTIVE-CORESET-AUTO-WARM"].strategy, AutomaticCoreset)


def test_variances_of_nothing_and_of_a_hand_made_draw():
    assert Variance(0.0, 0.0, 0.0).ratio == 1.0
    assert Variance(4.0, 1.0, 2.0).ratio == 0.75
    a = Gradients(np.array([[1.0], [3.0], [8.0]]))
    norms, one = a.residuals[:, 0], np.ones(3)
    # two of three without repeats, each with probability 2/3: n^2 (1/m - 1/n) S^2 = 9 (1/2 - 1/3) 13
    assert draw_variance(a, norms, one, np.full(3, 2 / 3)) == pytest.approx(19.5)
    assert draw_variance(a, norms, one, one) == 0.0
    assert draw_variance(a.take(np.array([0])), norms[:1], one[:1], np.array([0.5])) == 0.0
    found = two_stage_variance(a, norms, one * 2, np.full(3, 2 / 3), 6, 2)
    assert found.uniform == pytest.approx(36 * (1 / 2 - 1 / 6) * 13)
    assert found.pool == pytest.approx(36 * (1 / 3 - 1 / 6) * 13)
    assert found.inside == pytest.approx(4 * 19.5)
    single = two_stage_variance(a.take(np.array([2])), norms[2:], one[:1], np.ones(1), 6, 1)
    assert (single.uniform, single.pool, single.inside) == (0.0, 0.0, 0.0)


def test_the_variance_of_mini_batches_counts_their_members():
    """Groups of b equal rows are those rows: their sums vary as those of b times the rows."""
    gradients = Gradients(rng().normal(size=(40, 3)))
    norms = gradient_norms(gradients)
    inclusion = np.full(25, 0.2)
    part = gradients.take(np.arange(25))
    single = two_stage_variance(part, norms[:25], np.full(25, 40 / 25), inclusion, 40, 5)
    groups = two_stage_variance(part, norms[:25], np.full(25, 6 * 40 / 25), inclusion, 40, 5)
    assert groups.ratio == pytest.approx(single.ratio)
    assert groups.uniform == pytest.approx(36 * single.uniform)


def test_the_gain_is_the_ratio_of_the_variances_between_one_and_the_rows():
    one = np.ones(4)
    assert gain_of(Gradients(np.zeros((4, 2))), one, 0.2) == 1.0  # nothing varies
    assert gain_of(Gradients(np.ones((4, 2))), one, 0.2) == pytest.approx(1.0)
    # numbers of one sign: a draw by the norms has no variance, a uniform one has; four rows show a gain of four
    values = np.array([[1.0], [2.0], [3.0], [6.0]])
    assert gain_of(Gradients(values), one, 0.0) == 4.0
    assert gain_of(Gradients(values), one, 0.5) == 4.0  # 4.24 by the formula below
    shares = 0.25 * values[:, 0] / 12 + 0.75 / 4
    # with repeats, of one draw: E (a / p)^2 - (sum a)^2
    expected = (np.sum(values**2) * 4 - 144) / (np.sum(values[:, 0] ** 2 / shares) - 144)
    assert expected < 3.0
    assert gain_of(Gradients(values), one, 0.75) == pytest.approx(expected)


def test_sums_are_unbiased_in_a_pool_of_another_draw():
    context, f = SelectionContext(gradients_of(150).inputs, gradients=gradients_of(150)), np.arange(150.0)
    strategy = PooledCoreset(pool=RBF(), pool_factor=4.0, correction=1.0, mix=0.2)
    sums = [core.weights @ f[core.indices] for core in (strategy.select(context, 20, rng(seed)) for seed in range(400))]
    assert abs(np.mean(sums) - f.sum()) < 4 * np.std(sums) / 20
