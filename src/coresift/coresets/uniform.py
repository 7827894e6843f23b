"""Uniform subsets: the baseline of every other draw."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._validation import check_generator
from .coreset import Coreset, QueryBall


def uniform_coreset(
    n_samples: int,
    size: int,
    random_state: Any = None,
    *,
    sample_weight: NDArray[np.float64] | None = None,
    nested: bool = False,
    method: str = "uniform",
    ball: QueryBall | None = None,
) -> Coreset:
    """Draw rows uniformly without replacement; row i weighs ``w_i * n / size``, which makes weighted sums unbiased.

    Parameters
    ----------
    n_samples, size : int
        Rows of the data, and rows to draw.
    random_state : None, int or numpy.random.Generator
    sample_weight : (n,) array, default ones
    nested : bool, default False
        Take the first rows of a permutation, in O(n): from the same seed, a smaller size gives a part of a larger one.
    method, ball : str, QueryBall or None
        Recorded in the coreset.
    """
    rng = check_generator(random_state)
    rows = rng.permutation(n_samples)[:size] if nested else rng.choice(n_samples, size, replace=False)
    weights = np.ones(n_samples) if sample_weight is None else sample_weight
    drawn, total = weights[rows] * (n_samples / size), float(weights.sum())
    return Coreset(rows, drawn, n_samples, method=method, ball=ball, total_weight=total)
