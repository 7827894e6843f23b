"""Networks of Gaussians as scikit-learn regressors and classifiers, to be trained on weighted subsets."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from coresift._errors import InvalidInputError, InvalidTypeError
from coresift._progress import logger
from coresift._threads import SCIKIT_LEARN
from coresift._validation import (
    LARGEST_MAGNITUDE,
    LARGEST_RATIO,
    LARGEST_TARGET,
    check_choice,
    check_count,
    check_generator,
    check_number,
    check_targets,
    check_weights,
)
from coresift.core.points import Points, squared_norms
from coresift.coresets.fitting import MEDIAN_SAMPLE, median_distance
from coresift.coresets.options import check_bandwidth
from paper.networks.sums import Network, loss_and_gradient, ridge_outputs

Solver = Callable[[Network, Points, np.ndarray, np.ndarray, float, int], Network]


class _RBFNetwork(BaseEstimator):
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
        self.n_centers, self.centers, self.bandwidth, self.ridge = n_centers, centers, bandwidth, ridge
        self.fit_intercept, self.solver, self.max_iter = fit_intercept, solver, max_iter
        self.random_state = random_state

    def _checked_input(self, X: Any, y: Any, multi_output: bool) -> tuple[np.ndarray, Any]:
        """Float64 rows and targets as they are; the parameters are checked too."""
        check_count(self.n_centers, "n_centers")
        check_choice(self.centers, "centers", ("k-means++", "random", "learned"))
        check_bandwidth(self.bandwidth)
        check_count(self.max_iter, "max_iter", minimum=0)
        check_number(self.ridge, "ridge", at_least=0.0, at_most=LARGEST_MAGNITUDE)
        if not callable(self.solver):
            check_choice(self.solver, "solver", ("lbfgs",))
        with SCIKIT_LEARN, _own_errors():
            rows, targets = validate_data(self, X, y, dtype=np.float64, multi_output=multi_output)
        _check_magnitude(rows, LARGEST_TARGET, "X has an entry of magnitude")
        return rows, targets

    def _fit_network(self, X: np.ndarray, targets: np.ndarray, sample_weight: Any) -> None:
        """Place the centres, solve for the outputs, and descend if they are to be learned."""
        weights = check_weights(sample_weight, len(X))
        rng = check_generator(self.random_state)
        # choices among distinct rows are the same whether a row is given twice or with twice the weight
        used = weights > 0
        distinct, which = np.unique(X[used], axis=0, return_inverse=True)
        mass = np.bincount(which.ravel(), weights[used] / weights.sum())
        n_centers = min(self.n_centers, len(distinct))
        if n_centers < self.n_centers:
            logger.info("%d centres for n_centers = %d: no more distinct rows", n_centers, self.n_centers)
        choose = random_rows if self.centers == "random" else spread_rows
        chosen = choose(distinct, mass, n_centers, rng)
        center = mass @ distinct
        scale = float(np.sqrt(squared_norms(distinct - center).max())) or 1.0
        if isinstance(self.bandwidth, str):
            sample = random_rows(distinct, mass, min(MEDIAN_SAMPLE, len(distinct)), rng)
            scale = median_distance(sample, center, scale)
        elif self.bandwidth is not None:
            scale = float(self.bandwidth)
        _check_magnitude((X - center) / scale, LARGEST_RATIO, f"bandwidth = {scale:.3g}: a row of X is, in bandwidths,")
        points = Points(X, center, scale, max_norm=np.inf)
        shares = weights / weights.sum()  # a mean, so that ridge means the same for any number of rows
        network = Network((chosen - center) / scale, np.empty((n_centers, 0)), np.empty(0))
        network = self._with_outputs(network, points, shares, targets)
        self.n_iter_ = 1
        if self.centers == "learned" and self.max_iter > 0:
            if callable(self.solver):
                network = self.solver(network, points, shares, targets, float(self.ridge), self.max_iter)
            else:
                network = self._descend(network, points, shares, targets)
            network = self._with_outputs(network, points, shares, targets)
        self.centers_ = points.to_data(network.centers)
        self.alphas_, self.intercept_ = network.alphas, network.intercept
        self.bandwidth_ = scale * float(np.exp(network.log_bandwidth))

    def _with_outputs(self, network: Network, points: Points, shares: np.ndarray, targets: np.ndarray) -> Network:
        used = np.flatnonzero(shares)
        seen = (network.hidden(points.gather(used)), shares[used], targets[used])
        alphas, intercept = ridge_outputs(*seen, float(self.ridge), bool(self.fit_intercept))
        return replace(network, alphas=alphas, intercept=intercept)

    def _descend(self, network: Network, points: Points, weights: np.ndarray, targets: np.ndarray) -> Network:
        """Minimise the weighted loss plus ``ridge |a|^2`` over all parameters by L-BFGS."""
        ridge = float(self.ridge)

        def objective(vector: np.ndarray) -> tuple[float, np.ndarray]:
            current = network.from_flat(vector)
            loss, gradient = loss_and_gradient(points, weights, targets, current)
            alphas = gradient.alphas + 2.0 * ridge * current.alphas
            slope = replace(gradient, alphas=alphas, intercept=gradient.intercept * self.fit_intercept)
            return loss + ridge * float(np.sum(current.alphas**2)), slope.flat()

        options = {"maxiter": self.max_iter, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-9}
        found = minimize(objective, network.flat(), jac=True, method="L-BFGS-B", options=options)
        self.n_iter_ = int(found.nit)
        return network.from_flat(found.x)

    def _outputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "alphas_")
        with SCIKIT_LEARN, _own_errors():
            rows = validate_data(self, X, dtype=np.float64, reset=False)
        origin = self.centers_[0]  # and not 0, which may be far away from all of them
        with np.errstate(over="ignore"):
            ratios = (rows - origin) / self.bandwidth_
        _check_magnitude(ratios, LARGEST_RATIO, "a row of X is, in bandwidths,")
        points = Points(rows, origin, self.bandwidth_, max_norm=np.inf)
        network = Network((self.centers_ - origin) / self.bandwidth_, self.alphas_, self.intercept_)
        return network.outputs(points)


@contextmanager
def _own_errors() -> Iterator[None]:
    """Raise scikit-learn's errors as our own; its checks may overflow."""
    try:
        with np.errstate(all="ignore"):
            yield
    except ValueError as error:
        raise InvalidInputError(str(error)) from error
    except TypeError as error:
        raise InvalidTypeError(str(error)) from error


def _check_magnitude(values: np.ndarray, most: float, what: str) -> None:
    """Refuse numbers whose squares, or fourth powers, overflow."""
    found = float(np.abs(values).max(initial=0.0))
    if not found <= most:
        raise InvalidInputError(f"{what} {found:.3g}; at most {most:g} is possible. Scale the columns of X.")


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
        :math:`\sigma`: median distance of rows, distance from mean to farthest row, or a number;
        "learned" starts from it.
    ridge : float, default 1e-6
        :math:`\lambda`. The intercept is not penalised.
    fit_intercept : bool, default True
        Whether there is a b. The coresets of :class:`RBFNetworkCoreset` are for networks without.
    solver : "lbfgs" or callable, default "lbfgs"
        What learns: L-BFGS with analytic gradients, or a function of ``(network, points, weights, targets, ridge,
        max_iter)`` that returns a network, such as ``torch_solver`` in ``paper/networks/layer.py``.
    max_iter : int, default 200
        Steps of the solver.
    random_state : None, int or Generator

    Attributes
    ----------
    centers_, alphas_, intercept_, bandwidth_ : ndarrays of shape (L, d), (L, K) and (K,), float
    n_iter_ : int
        Steps that the solver took.

    Examples
    --------
    >>> import numpy as np
    >>> from paper.networks import RBFNetworkRegressor
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

    Predicts the class of the largest output. Parameters, attributes: :class:`RBFNetworkRegressor`, and ``classes_``.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from paper.networks import RBFNetworkClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = RBFNetworkClassifier(n_centers=100, random_state=0).fit(X[:1000], y[:1000])
    >>> model.score(X[1000:], y[1000:]) > 0.9
    True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows (n, d) and labels (n,), with non-negative weights, such as a coreset's."""
        X, y = self._checked_input(X, y, multi_output=False)
        with SCIKIT_LEARN, _own_errors():
            check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        self._fit_network(X, np.eye(len(classes))[codes], sample_weight)
        self.classes_ = classes
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """(n, K) outputs; for two classes (n,), the second output minus the first."""
        outputs = self._outputs(X)
        return outputs[:, 1] - outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict_proba(self, X: Any) -> np.ndarray:
        r"""(n, K) probabilities of the classes: the outputs, projected onto the probability simplex.

        Least squares on targets 0 and 1 estimates probabilities, but the outputs may be negative and need not sum to 1.
        The projection (Duchi et al. 2008) is at least as close to the true probabilities, and keeps their order.
        """
        outputs = self._outputs(X)
        ordered = -np.sort(-outputs, axis=1)
        excess = (np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, outputs.shape[1] + 1)
        last = np.count_nonzero(ordered > excess, axis=1) - 1  # the entries that stay positive
        return np.maximum(outputs - np.take_along_axis(excess, last[:, None], axis=1), 0.0)

    def predict(self, X: Any) -> np.ndarray:
        """The class of the largest output."""
        outputs = self._outputs(X)
        return self.classes_[outputs.argmax(axis=1)]


def random_rows(rows: np.ndarray, mass: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """``count`` distinct rows, drawn one after the other in proportion to mass (exponential keys)."""
    keys = rng.standard_exponential(len(rows)) / mass
    return rows[np.sort(np.argsort(keys, kind="stable")[:count])]


def spread_rows(rows: np.ndarray, mass: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """``count`` distinct rows by k-means++ (Arthur and Vassilvitskii 2007): each far from those before, by mass."""
    chosen: list[int] = []
    nearest = np.ones(len(rows))
    for _ in range(count):
        cumulative = np.cumsum(mass * nearest)
        if cumulative[-1] > 0:
            at = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
        else:
            at = int(rng.integers(len(rows)))  # distances too small for their squares
        chosen.append(min(at, len(rows) - 1))
        distances = cdist(rows, rows[chosen[-1:]], "sqeuclidean")[:, 0]
        nearest = distances if len(chosen) == 1 else np.minimum(nearest, distances)
    return rows[chosen]
