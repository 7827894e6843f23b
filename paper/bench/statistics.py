r"""Two methods compared over the seeds that both were run with, and many such comparisons at once.

The test is the paired t test, two-sided. The alternative for pairs, flipping the signs of the differences, assumes
less, but its p-value is never below :math:`2 / 2^n`: 0.0625 with the paper's five seeds, before any correction, so that
it could not find anything. The t test assumes differences that are normal. If two methods have the same distribution
and are run independently, their differences are symmetric about 0 whatever that distribution is; among these, heavy
tails make the test cautious, not rash.

The p-values of a table are corrected by Holm's step-down procedure, which holds the probability of one false finding
or more, whatever the dependence between the tests. They are dependent: all of a column share a reference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

LEVEL = 0.05
MIN_SEEDS = 2  # below, the differences have no deviation

# Accuracies are multiples of one over the number of test samples, and are read from decimals. Differences that vary by
# less than this share of their size are one number with rounding errors.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Comparison:
    """A method against a reference, over common seeds.

    Attributes
    ----------
    n_pairs : int
        Seeds that both were run with.
    difference : float or None
        Mean of method minus reference, over those seeds; None without any.
    low, high : float or None
        Ends of the interval that holds the true difference with 95 % confidence, uncorrected.
    effect : float or None
        Hedges' g of the pairs, see :func:`paired_effect`; None below three pairs.
    p_value : float or None
        Of the paired t test; None where ``reason`` says why not.
    p_holm : float or None
        The same, corrected for all tests of the table.
    reason : str
        Why there is no test; empty if there is one.
    """

    n_pairs: int
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    effect: float | None = None
    p_value: float | None = None
    p_holm: float | None = None
    reason: str = ""

    @property
    def is_significant(self) -> bool:
        """Whether the corrected p-value is at most 5 %."""
        return self.p_holm is not None and self.p_holm <= LEVEL


def compare_pairs(ours: Mapping[int, float], reference: Mapping[int, float]) -> Comparison:
    """Compare two methods, each given as a value per seed, over the seeds that both have."""
    seeds = sorted(set(ours) & set(reference))
    n = len(seeds)
    if n == 0:
        return Comparison(0, reason="no common seed")
    differences = np.array([ours[seed] - reference[seed] for seed in seeds])
    mean = float(differences.mean())
    if n < MIN_SEEDS:
        return Comparison(n, mean, reason="one common seed")
    deviation = float(differences.std(ddof=1))
    largest = max(abs(value) for seed in seeds for value in (ours[seed], reference[seed]))
    if deviation <= _ROUNDING * largest:
        # No deviation, no scale: t is 0/0 or infinite, and a p-value of 0 from two seeds would be nonsense.
        return Comparison(n, mean, reason="the differences are all equal")
    error = deviation / math.sqrt(n)
    t = mean / error
    reach = float(special.stdtrit(n - 1, 0.975)) * error
    return Comparison(
        n_pairs=n,
        difference=mean,
        low=mean - reach,
        high=mean + reach,
        effect=paired_effect(mean, deviation, n),
        p_value=float(2.0 * special.stdtr(n - 1, -abs(t))),
    )


def paired_effect(mean: float, deviation: float, n: int) -> float | None:
    r"""Effect size of paired differences: their mean in deviations, without the bias of few pairs.

    .. math:: g = J(n - 1)\, \bar d / s_d, \qquad J(m) = \frac{\Gamma(m/2)}{\sqrt{m/2}\; \Gamma((m-1)/2)}

    For normal differences :math:`E[\bar d / s_d] = \delta / J(n-1)`, with :math:`\delta` the true mean in true
    deviations (Hedges, 1981): :math:`\bar d / s_d` alone is 1.77 times too large with three pairs, 1.25 times with
    five. With two pairs the expectation does not exist, and the result is None.
    """
    m = n - 1
    if m < 2:
        return None
    log_factor = special.gammaln(m / 2) - special.gammaln((m - 1) / 2) - 0.5 * math.log(m / 2)
    return float(math.exp(log_factor) * mean / deviation)


def holm(p_values: Sequence[float]) -> list[float]:
    r"""Holm's adjusted p-values, in the order given.

    With :math:`p_{(1)} \le \dots \le p_{(m)}` the adjusted value of the i-th is
    :math:`\max_{j \le i} \min(1, (m - j + 1)\, p_{(j)})`. Rejecting where it is at most :math:`\alpha` makes a false
    finding with probability at most :math:`\alpha` (Holm, 1979).
    """
    m = len(p_values)
    adjusted = [0.0] * m
    largest = 0.0
    for rank, position in enumerate(sorted(range(m), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (m - rank) * p_values[position]))
        adjusted[position] = largest
    return adjusted


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and standard deviation with n - 1 in the denominator, which one value does not have."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
