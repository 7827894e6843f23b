import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from coresift import RBFNetworkClassifier, RBFNetworkCoreset, RBFNetworkRegressor

SMALL = {"n_centers": 8, "max_iter": 3}


@parametrize_with_checks(
    [
        RBFNetworkRegressor(),
        RBFNetworkRegressor(**SMALL, centers="learned"),
        RBFNetworkRegressor(centers="random", bandwidth=None, fit_intercept=False),
        RBFNetworkClassifier(),
        RBFNetworkClassifier(**SMALL, centers="learned"),
        RBFNetworkCoreset(),
        RBFNetworkCoreset(bound="cells", n_cells=3),
    ]
)
def test_scikit_learn(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("arrays of other libraries are not among the inputs")
    check(estimator)
