r"""Paired comparisons of two methods over common seeds, and Holm's correction for many of them.

The test is the two-sided paired t test. A sign-flip test assumes less, but its p-value is at least :math:`2 / 2^n`:
0.0625 with the paper's five seeds, so it could not find anything. The t test assumes normal differences. If two methods
have the same distribution and run independently, their differences are symmetric about 0; among symmetric
distributions, heavy tails make the t test conservative.

Holm's step-down procedure bounds the probability of one or more false findings in a table under any dependence between
the tests. They are dependent, because all tests of a column share a reference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special, stats

LEVEL = 0.05
MIN_SEEDS = 2  # a single difference has no deviation
# Differences that vary by less than this share of the values are equal up to rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Comparison:
    """A method against a reference over common seeds; None is what cannot be computed."""

    n_pairs: int  # seeds that both have
    difference: float | None = None  # mean of method minus reference
    low: float | None = None  # 95 % confidence interval of the difference, uncorrected
    high: float | None = None
    effect: float | None = None  # Hedges' g, from three pairs on
    p_value: float | None = None
    p_holm: float | None = None  # corrected for all tests of the table
    reason: str = ""  # why there is no test

    @property
    def is_significant(self) -> bool:
        """Whether the corrected p-value is at most 5 %."""
        return self.p_holm is not None and self.p_holm <= LEVEL


def compare_pairs(ours: Mapping[int, float], reference: Mapping[int, float]) -> Comparison:
    """Compare two methods, each a value per seed, over the seeds that both have."""
    seeds = sorted(set(ours) & set(reference))
    n = len(seeds)
    if n == 0:
        return Comparison(0, reason="no common seed")
    differences = np.array([ours[seed] - reference[seed] for seed in seeds])
    mean = float(differences.mean())
    if n < MIN_SEEDS:
        return Comparison(n, mean, reason="one common seed")
    deviation = float(differences.std(ddof=1))
    largest = max(abs(each[seed]) for each in (ours, reference) for seed in seeds)
    if deviation <= _ROUNDING * largest:  # t would be 0/0 or infinite
        return Comparison(n, mean, reason="the differences are all equal")
    error = deviation / math.sqrt(n)
    # stats.ttest_rel up to rounding; in this form the committed tables stay the same to the last bit
    p_value = 2.0 * stats.t.sf(abs(mean / error), n - 1)
    low, high = stats.t.interval(0.95, n - 1, mean, error)
    return Comparison(n, mean, float(low), float(high), paired_effect(mean, deviation, n), float(p_value))


def paired_effect(mean: float, deviation: float, n: int) -> float | None:
    r"""Compute Hedges' g of paired differences, the mean in deviations without small-sample bias.

    .. math:: g = J(n - 1)\, \bar d / s_d, \qquad J(m) = \frac{\Gamma(m/2)}{\sqrt{m/2}\; \Gamma((m-1)/2)}

    For normal differences :math:`E[\bar d / s_d] = \delta / J(n-1)`, with :math:`\delta` the true mean in true
    deviations (Hedges, 1981). With two pairs the expectation does not exist, and the result is None.
    """
    m = n - 1
    if m < 2:
        return None
    log_factor = special.gammaln(m / 2) - special.gammaln((m - 1) / 2) - 0.5 * math.log(m / 2)
    return float(math.exp(log_factor) * mean / deviation)


def holm(p_values: Sequence[float]) -> list[float]:
    r"""Adjust p-values by Holm's procedure (1979), in the order given.

    With :math:`p_{(1)} \le \dots \le p_{(m)}` the i-th becomes :math:`\max_{j \le i} \min(1, (m - j + 1)\, p_{(j)})`.
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(np.arange(len(p), 0, -1) * p[order]), 1.0)
    return [float(each) for each in adjusted]


def corrected(comparisons: Sequence[Comparison | None]) -> list[Comparison | None]:
    """Fill in ``p_holm`` for all comparisons that were tested, as one family."""
    adjusted = iter(holm([each.p_value for each in comparisons if each and each.p_value is not None]))
    return [replace(each, p_holm=next(adjusted)) if each and each.p_value is not None else each for each in comparisons]


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean, and the standard deviation with n - 1 in the denominator (None for one value)."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
