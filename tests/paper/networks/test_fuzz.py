"""Any array: a result that keeps its promises, or a clear error (as in ``tests/fuzz``)."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from coresift import CoresiftError
from paper.networks import RBFNetworkClassifier, RBFNetworkCoreset, RBFNetworkRegressor
from tests.fuzz.test_estimators import REFUSED, SIZES, WEIGHTS, check, matrices, n_rows_of


@pytest.mark.slow
@given(X=matrices(), y=st.one_of(WEIGHTS, hnp.arrays(np.int64, st.integers(3, 12))), weights=WEIGHTS, size=SIZES)
@settings(max_examples=150)
def test_networks(X: Any, y: Any, weights: Any, size: Any) -> None:
    for model in (
        RBFNetworkCoreset(random_state=0),
        RBFNetworkRegressor(n_centers=3, random_state=0),
        RBFNetworkClassifier(n_centers=3, random_state=0),
    ):
        try:
            model.fit(X, y)
        except REFUSED:
            continue
        if isinstance(model, RBFNetworkCoreset):
            try:
                check(model.sample(size), n_rows_of(X))
            except REFUSED:
                continue
        else:
            assert len(model.predict(X)) == n_rows_of(X)


def test_networks_far_from_the_origin_and_too_far_apart() -> None:
    """Predictions are the same wherever the data are; rows too far apart for their squares are refused."""
    X = np.random.default_rng(0).standard_normal((40, 2)).round(3)
    y = X[:, 0] ** 2
    here = RBFNetworkRegressor(n_centers=5, random_state=0).fit(X, y).predict(X)
    there = RBFNetworkRegressor(n_centers=5, random_state=0).fit(X + 1e6, y).predict(X + 1e6)
    np.testing.assert_allclose(there, here, atol=1e-6)
    with pytest.raises(CoresiftError, match="in bandwidths"):
        RBFNetworkRegressor(bandwidth=1e-80).fit(X, y)
    with pytest.raises(CoresiftError, match="X has an entry of magnitude"):
        RBFNetworkRegressor().fit([[1e225], [0.0]], [1.0, 2.0])
    with pytest.raises(CoresiftError):
        RBFNetworkClassifier().fit(X, 0.0)
