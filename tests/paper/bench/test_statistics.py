"""Comparisons over seeds: SciPy as the oracle, Holm by hand, and the rate of false findings measured."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from paper.bench.statistics import LEVEL, Comparison, compare_pairs, holm, mean_and_deviation, paired_effect

VALUES = st.floats(0, 100).map(lambda value: round(value, 2))
P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def by_seed(values: np.ndarray) -> dict[int, float]:
    return dict(enumerate(values.tolist()))


@given(st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=8))
def test_test_and_interval_are_scipys(pairs: list[tuple[float, float]]) -> None:
    ours, reference = np.array(pairs).T
    differences = ours - reference
    found = compare_pairs(by_seed(ours), by_seed(reference))
    assert found.n_pairs == len(pairs)
    assert found.difference == pytest.approx(differences.mean(), abs=1e-12)
    if np.ptp(differences) < 1e-6:
        assert found.reason == "the differences are all equal"
        assert found.p_value is found.effect is found.low is None
        return
    expected = stats.ttest_rel(ours, reference)
    low, high = expected.confidence_interval()
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
    assert (found.low, found.high) == (pytest.approx(low, rel=1e-6), pytest.approx(high, rel=1e-6))
    assert found.reason == ""


def test_only_common_seeds_are_compared_whatever_their_order() -> None:
    found = compare_pairs({3: 9.0, 0: 2.0, 1: 4.0, 7: 50.0}, {0: 1.0, 3: 6.0, 1: 2.0, 5: -50.0})
    assert (found.n_pairs, found.difference) == (3, 2.0)  # differences 1, 2, 3: mean 2, deviation 1
    assert found.p_value == pytest.approx(2 * stats.t.sf(2 * math.sqrt(3), 2))
    assert found.effect == pytest.approx(2 / math.sqrt(math.pi))  # J(2) = 1 / sqrt(pi)


@pytest.mark.parametrize(
    ("ours", "reference", "expected"),
    [
        ({}, {0: 1.0}, Comparison(0, reason="no common seed")),
        ({1: 1.0}, {0: 1.0}, Comparison(0, reason="no common seed")),
        ({0: 3.0, 1: 1.0}, {0: 1.0}, Comparison(1, 2.0, reason="one common seed")),
        ({0: 3.0, 1: 4.0}, {0: 1.0, 1: 2.0}, Comparison(2, 2.0, reason="the differences are all equal")),
        ({0: 0.0, 1: 0.0}, {0: 0.0, 1: 0.0}, Comparison(2, 0.0, reason="the differences are all equal")),
    ],
)
def test_what_cannot_be_tested(ours: dict[int, float], reference: dict[int, float], expected: Comparison) -> None:
    assert compare_pairs(ours, reference) == expected
    assert not expected.is_significant


def test_rounding_errors_are_no_deviation() -> None:
    ours, reference = {0: 100 * 0.9801, 1: 100 * 0.9702}, {0: 100 * 0.9701, 1: 100 * 0.9602}
    assert ours[0] - reference[0] != ours[1] - reference[1]
    assert compare_pairs(ours, reference).reason == "the differences are all equal"
    one_image = {0: 98.01, 1: 97.03}  # of 10,000: a real difference
    assert compare_pairs(one_image, reference).p_value is not None


def test_two_pairs_have_a_test_but_no_effect_size() -> None:
    found = compare_pairs({0: 1.0, 1: 3.0}, {0: 0.0, 1: 0.0})
    assert found.effect is None
    assert found.p_value == pytest.approx(2 * stats.t.sf(2.0, 1))


@pytest.mark.parametrize("n", [4, 5, 8])
def test_the_effect_size_is_unbiased_and_without_correction_would_not_be(n: int) -> None:
    true = 0.8
    draws = np.random.default_rng(n).normal(true, 1.0, (40_000, n))
    means, deviations = draws.mean(1), draws.std(1, ddof=1)
    effects = np.array([paired_effect(m, s, n) for m, s in zip(means, deviations, strict=True)])
    tol = 5 * effects.std() / math.sqrt(len(effects))  # n >= 4: the variance exists
    assert abs(effects.mean() - true) < tol
    assert abs((means / deviations).mean() - true) > tol


def test_holm_by_hand() -> None:
    # sorted: .005 * 4 = .02, .01 * 3 = .03, .03 * 2 = .06, .04 * 1 = .04 but not below the one before
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


@given(P_VALUES, st.randoms())
def test_holm_lies_between_nothing_and_bonferroni_and_keeps_the_order(p: list[float], random: object) -> None:
    adjusted = holm(p)
    for value, corrected in zip(p, adjusted, strict=True):
        assert value <= corrected <= min(1.0, len(p) * value)
    assert sorted(adjusted) == [corrected for _, corrected in sorted(zip(p, adjusted, strict=True))]
    order = list(range(len(p)))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert holm([p[i] for i in order]) == [adjusted[i] for i in order]


def corrected(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """p-values, plain and corrected, of all rows against the last, over columns as seeds."""
    reference = by_seed(table[-1])
    p = [compare_pairs(by_seed(row), reference).p_value for row in table[:-1]]
    return np.array(p), np.array(holm(p))


N_METHODS, N_SEEDS = 12, 5


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "heavy tails", "skewed"])
def test_false_findings_of_a_table_are_held_to_the_level(kind: str) -> None:
    """All methods alike: a table with any finding is wrong. All share a reference, as ours do."""
    rng, n_tables = np.random.default_rng(7), 800
    size = (n_tables, N_METHODS + 1, N_SEEDS)
    draws = {
        "normal": lambda: rng.normal(98, 0.2, size),
        "heavy tails": lambda: 98 + 0.2 * rng.standard_t(2, size),
        "skewed": lambda: 98 - rng.exponential(0.2, size),  # most runs good, some bad
    }[kind]()
    plain, holms = zip(*map(corrected, draws), strict=True)
    tol = 5 * math.sqrt(LEVEL * (1 - LEVEL) / n_tables)  # of a rate of LEVEL, five sigma
    assert np.mean([(p <= LEVEL).any() for p in holms]) < LEVEL + tol
    if kind == "normal":  # what the correction is for
        assert np.mean([(p <= LEVEL).any() for p in plain]) > LEVEL + tol


def test_a_real_difference_is_found_with_five_seeds() -> None:
    """At least as often as Bonferroni's correction would, exactly known; sign flips would find nothing at all."""
    rng, n_tables, gain = np.random.default_rng(3), 500, 4.0
    draws = rng.normal(0.0, 1.0, (n_tables, N_METHODS + 1, N_SEEDS))
    draws[:, 0] += gain * math.sqrt(2)  # differences have the deviation sqrt(2)
    found = np.mean([corrected(table)[1][0] <= LEVEL for table in draws])
    threshold = stats.t.isf(LEVEL / N_METHODS / 2, N_SEEDS - 1)
    power = stats.nct.sf(threshold, N_SEEDS - 1, gain * math.sqrt(N_SEEDS))
    assert power > 0.8
    assert found > power - 5 * math.sqrt(power * (1 - power) / n_tables)
    assert 2 / 2**N_SEEDS > LEVEL


@given(st.lists(VALUES, min_size=1, max_size=8))
def test_mean_and_deviation(values: list[float]) -> None:
    mean, deviation = mean_and_deviation(values)
    assert mean == pytest.approx(np.mean(values), abs=1e-9)
    if len(values) == 1:
        assert deviation is None
    else:
        assert deviation == pytest.approx(np.std(values, ddof=1), abs=1e-9)
