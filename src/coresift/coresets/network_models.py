"""Networks of Gaussians as scikit-learn regressors and classifiers, to be trained on weighted subsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.distance import cdist, pdist
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .._errors import InvalidInputError, InvalidTypeError
from .._progress import logger
from .._validation import (
    LARGEST_MAGNITUDE,
    LARGEST_RATIO,
    LARGEST_TARGET,
    check_choice,
    check_count,
    check_generator,
    check_targets,
    check_weights,
)
from ..core.network import Network, loss_and_gradient, ridge_outputs
from ..core.points import Points
from .geometry import check_bandwidth

CENTERS = ("k-means++", "random", "learned")
_MEDIAN_SAMPLE = 1000

Solver = Callable[[Network, Points, np.ndarray, np.ndarray, float, int], Network]


class _RBFNetwork(BaseEstimator):
    """What both have in common: centres, bandwidth, output layer."""

    def __init__(
        self,
        *,
        n_centers: int = 50,
        centers: str = "k-means++",
        bandwidth: Any = "median",
        ridge: float = 1e-6,
        fit_intercept: bool = True,
        solver: str | Solver = "lbfgs",
        max_iter: int = 200,
        random_state: Any = None,
    ) -> None:
        self.n_centers = n_centers
        self.centers = centers
        self.bandwidth = bandwidth
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.random_state = random_state

    def _checked_input(self, X: Any, y: Any, multi_output: bool) -> tuple[np.ndarray, Any]:
        """Float64 rows and targets as they are; the parameters are checked too."""
        check_count(self.n_centers, "n_centers")
        check_choice(self.centers, "centers", CENTERS)
        check_bandwidth(self.bandwidth)
        check_count(self.max_iter, "max_iter", minimum=0)
        if not (isinstance(self.ridge, (int, float)) and 0 <= self.ridge <= LARGEST_MAGNITUDE):
            raise InvalidInputError(f"ridge = {self.ridge!r} must be a number of at least 0.")
        if not callable(self.solver):
            check_choice(self.solver, "solver", ("lbfgs",))
        try:
            with np.errstate(all="ignore"):  # it adds up what it is to find not finite
                rows, targets = validate_data(
                    self, X, y, dtype=np.float64, multi_output=multi_output, y_numeric=False
                )
        except ValueError as error:
            raise InvalidInputError(str(error)) from error
        except TypeError as error:
            raise InvalidTypeError(str(error)) from error
        _check_magnitude(rows, LARGEST_TARGET, "X has an entry of magnitude")
        return rows, targets

    def _fit_network(self, X: np.ndarray, targets: np.ndarray, sample_weight: Any) -> None:
        """Place the centres, solve for the outputs, and descend if they are to be learned."""
        weights = check_weights(sample_weight, len(X))
        rng = check_generator(self.random_state)
        distinct, mass = merged_rows(X, weights)
        n_centers = min(self.n_centers, len(distinct))
        if n_centers < self.n_centers:
            logger.info(
                "%d centres for n_centers = %d: X has no more distinct rows", n_centers, self.n_centers
            )
        random = self.centers == "random"
        chosen = (random_rows if random else spread_rows)(distinct, mass, n_centers, rng)
        scale = self._scale(distinct, mass, chosen, rng)
        center = (mass / mass.sum()) @ distinct
        _check_magnitude(
            (X - center) / scale, LARGEST_RATIO, f"bandwidth = {scale:.3g}: a row of X is, in bandwidths,"
        )
        points = Points(X, center, scale, max_norm=np.inf)
        shares = weights / weights.sum()  # a mean, so that ridge means the same for any number of rows
        network = Network((chosen - center) / scale, np.empty((n_centers, 0)), np.empty(0))
        network = self._with_outputs(network, points, shares, targets)
        self.n_iter_ = 1
        if self.centers == "learned" and self.max_iter > 0:
            if callable(self.solver):
                network = self.solver(network, points, shares, targets, float(self.ridge), self.max_iter)
            else:
                network, self.n_iter_ = descend(
                    network, points, shares, targets, float(self.ridge), self.max_iter, self.fit_intercept
                )
            network = self._with_outputs(network, points, shares, targets)
        self.centers_ = points.to_data(network.centers)
        self.bandwidth_ = scale * float(np.exp(network.log_bandwidth))
        self.alphas_ = network.alphas
        self.intercept_ = network.intercept

    def _with_outputs(
        self, network: Network, points: Points, shares: np.ndarray, targets: np.ndarray
    ) -> Network:
        """The network with the best output layer for its centres."""
        used = np.flatnonzero(shares)
        hidden = network.hidden(points.gather(used))
        alphas, intercept = ridge_outputs(
            hidden, shares[used], targets[used], float(self.ridge), bool(self.fit_intercept)
        )
        return Network(network.centers, alphas, intercept, network.log_bandwidth)

    def _scale(
        self, distinct: np.ndarray, mass: np.ndarray, chosen: np.ndarray, rng: np.random.Generator
    ) -> float:
        if self.bandwidth is None:
            mean = (mass / mass.sum()) @ distinct
            scale = float(np.sqrt(((distinct - mean) ** 2).sum(axis=1).max()))
        elif isinstance(self.bandwidth, str):
            sample = random_rows(distinct, mass, min(_MEDIAN_SAMPLE, len(distinct)), rng)
            distances = pdist(sample)
            scale = float(np.median(distances)) if len(distances) > 0 else 1.0
        else:
            scale = float(self.bandwidth)
        return scale if scale > 0 else 1.0

    def _outputs(self, X: Any) -> np.ndarray:
        """(n, K) values of the network."""
        check_is_fitted(self, "alphas_")
        try:
            with np.errstate(all="ignore"):
                rows = validate_data(self, X, dtype=np.float64, reset=False)
        except ValueError as error:
            raise InvalidInputError(str(error)) from error
        except TypeError as error:
            raise InvalidTypeError(str(error)) from error
        origin = self.centers_[0]  # and not 0, which may be far away from all of them
        with np.errstate(over="ignore"):
            _check_magnitude(
                (rows - origin) / self.bandwidth_, LARGEST_RATIO, "a row of X is, in bandwidths,"
            )
        points = Points(rows, origin, self.bandwidth_, max_norm=np.inf)
        network = Network((self.centers_ - origin) / self.bandwidth_, self.alphas_, self.intercept_)
        return network.outputs(points)


def _check_magnitude(values: np.ndarray, most: float, what: str) -> None:
    """Refuse numbers whose squares, or fourth powers, overflow."""
    largest = float(np.abs(values).max(initial=0.0))
    if not largest <= most:
        raise InvalidInputError(
            f"{what} {largest:.3g}; at most {most:g} is possible. Scale the columns of X."
        )


class RBFNetworkRegressor(RegressorMixin, _RBFNetwork):
    r"""A network of Gaussians fitted by weighted least squares.

    .. math:: \min \frac{1}{W} \sum_p w_p \Bigl| y_p - b - \sum_i a_i e^{-|x_p - c_i|^2/\sigma^2} \Bigr|^2
        + \lambda \sum_i |a_i|^2

    Parameters
    ----------
    n_centers : int, default 50
        Neurons; fewer where X has fewer distinct rows of positive weight.
    centers : {"k-means++", "random", "learned"}, default "k-means++"
        Rows chosen far apart, in proportion to weight and squared distance; rows chosen in proportion to weight; or
        all of centres, bandwidth and outputs learned by ``solver``, from k-means++.
    bandwidth : "median", None or float, default "median"
        :math:`\sigma`: the median distance of rows; the distance from the mean to the farthest; or a number.
        "learned" starts from it.
    ridge : float, default 1e-6
        :math:`\lambda`. The intercept is not penalised.
    fit_intercept : bool, default True
        Whether there is a b. The coresets of :class:`RBFNetworkCoreset` are for networks without.
    solver : "lbfgs" or callable, default "lbfgs"
        What learns: L-BFGS with analytic gradients, or a function of ``(network, points, weights, targets, ridge,
        max_iter)`` that returns a network, such as ``coresift.training.rbf_layer.torch_solver``.
    max_iter : int, default 200
        Steps of the solver.
    random_state : None, int or Generator

    Attributes
    ----------
    centers_ : ndarray of shape (L, d)
    bandwidth_ : float
    alphas_ : ndarray of shape (L, K)
    intercept_ : ndarray of shape (K,)
    n_iter_ : int
        Steps that the solver took.

    Examples
    --------
    >>> import numpy as np
    >>> from coresift import RBFNetworkRegressor
    >>> X = np.linspace(-3, 3, 200)[:, None]
    >>> model = RBFNetworkRegressor(n_centers=20, bandwidth=1.0, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.score(X, np.sin(X[:, 0])) > 0.999
    True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows (n, d) and targets (n,) or (n, K), with non-negative weights, such as a coreset's."""
        X, y = self._checked_input(X, y, multi_output=True)
        targets = check_targets(y, len(X))
        self._fit_network(X, targets, sample_weight)
        self._is_flat = np.ndim(y) == 1
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Values of the network, (n,) or (n, K) as the targets were."""
        outputs = self._outputs(X)
        return outputs[:, 0] if self._is_flat else outputs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class RBFNetworkClassifier(ClassifierMixin, _RBFNetwork):
    """A network of Gaussians with one output for each class, fitted to 0 and 1 by weighted least squares.

    The class with the largest output is predicted. Parameters and attributes are those of
    :class:`RBFNetworkRegressor`, and ``classes_``.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from coresift import RBFNetworkClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = RBFNetworkClassifier(n_centers=100, random_state=0).fit(X[:1000], y[:1000])
    >>> model.score(X[1000:], y[1000:]) > 0.9
    True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows (n, d) and labels (n,), with non-negative weights, such as a coreset's."""
        X, y = self._checked_input(X, y, multi_output=False)
        try:
            with np.errstate(all="ignore"):  # floats are tried as integers
                check_classification_targets(y)
        except ValueError as error:
            raise InvalidInputError(str(error)) from error
        classes, codes = np.unique(y, return_inverse=True)
        self._fit_network(X, np.eye(len(classes))[codes], sample_weight)
        self.classes_ = classes
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """(n, K) outputs; for two classes (n,), the second output minus the first."""
        outputs = self._outputs(X)
        return outputs[:, 1] - outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict(self, X: Any) -> np.ndarray:
        """The class of the largest output."""
        outputs = self._outputs(X)
        return self.classes_[outputs.argmax(axis=1)]


def merged_rows(X: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows of positive weight, sorted, and the weight of each.

    Choices made among these are the same whether a row is given twice or with twice the weight.
    """
    used = weights > 0
    distinct, which = np.unique(X[used], axis=0, return_inverse=True)
    return distinct, np.bincount(which.ravel(), weights=weights[used], minlength=len(distinct))


def random_rows(rows: np.ndarray, mass: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """``count`` distinct rows, drawn one after the other in proportion to mass (exponential keys)."""
    keys = rng.standard_exponential(len(rows)) / mass
    return rows[np.sort(np.argsort(keys, kind="stable")[:count])]


def spread_rows(rows: np.ndarray, mass: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """``count`` distinct rows by k-means++ (Arthur and Vassilvitskii 2007): each far from those before, by mass."""
    chosen = np.empty((count, rows.shape[1]))
    nearest = np.ones(len(rows))
    for i in range(count):
        cumulative = np.cumsum(mass * nearest)
        if cumulative[-1] > 0:
            at = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
        else:
            at = int(rng.integers(len(rows)))  # distances too small for their squares
        chosen[i] = rows[min(at, len(rows) - 1)]
        distances = cdist(rows, chosen[i : i + 1], "sqeuclidean")[:, 0]
        nearest = distances if i == 0 else np.minimum(nearest, distances)
    return chosen


def descend(
    network: Network,
    points: Points,
    weights: np.ndarray,
    targets: np.ndarray,
    ridge: float,
    max_iter: int,
    fit_intercept: bool = True,
) -> tuple[Network, int]:
    """Minimise the weighted loss plus ``ridge |a|^2`` over all parameters by L-BFGS; the network, the steps taken."""

    def objective(vector: np.ndarray) -> tuple[float, np.ndarray]:
        current = network.from_flat(vector)
        loss, gradient = loss_and_gradient(points, weights, targets, current)
        slope = Network(
            gradient.centers,
            gradient.alphas + 2.0 * ridge * current.alphas,
            gradient.intercept if fit_intercept else np.zeros_like(gradient.intercept),
            gradient.log_bandwidth,
        )
        return loss + ridge * float(np.sum(current.alphas**2)), slope.flat()

    options = {"maxiter": max_iter, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-9}
    found = minimize(objective, network.flat(), jac=True, method="L-BFGS-B", options=options)
    return network.from_flat(found.x), int(found.nit)
