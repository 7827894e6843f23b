"""From bounds to draws: the scores that points are drawn by, and the generators of a fit."""

from __future__ import annotations

import numpy as np

from ..core.bound import SensitivityBound

_WIDEST = 700.0  # exp of this is near the largest float


def draw_scores(bound: SensitivityBound, shares: np.ndarray) -> tuple[np.ndarray, float]:
    """Scores to draw by, and the logarithm of their unit: the sensitivities, but never below the share of the weight.

    The floor is still a certificate and adds at most 1 to the total. It bounds what a draw adds to a weight by
    ``W t / m``: without it a point far outside the ball, to which no query is sensitive, would be drawn once in
    ages with a weight to match.
    """
    # "paper" and "lemma" can exceed what floats hold: relative to the largest, what would vanish stays drawable
    peak = max(float(bound.log_values.max()), 0.0)
    values = bound.values if peak == 0.0 else np.exp(np.maximum(bound.log_values - peak, -_WIDEST))
    log_unit = min(peak, _WIDEST)
    scores = np.maximum(values, shares * np.exp(-log_unit), out=np.zeros(len(shares)), where=shares > 0)
    return scores, log_unit


def uniform_factor(scores: np.ndarray, shares: np.ndarray) -> float:
    """What all shares must be multiplied with to dominate the scores, over the total of the scores."""
    with np.errstate(over="ignore"):
        excess = np.divide(scores, shares, out=np.zeros(len(shares)), where=shares > 0)
    return float(excess.max()) / float(scores.sum())


def children(rng: np.random.Generator, count: int) -> list[np.random.Generator]:
    """Independent generators made from ``rng``, whatever it was made from."""
    return [np.random.default_rng(seed) for seed in rng.integers(0, 2**63, size=(count, 2))]
