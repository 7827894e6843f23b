"""The search for the network at which a weighted subset is worst: a lower bound on its error."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from .audit import uniform_in_ball, worst_query
from .network import Network, loss_and_gradient, network_sums
from .points import Points, squared_norms

_RANDOM_PER_START = 8  # random networks tried for each local search


@dataclass(frozen=True, eq=False)
class NetworkAudit:
    """The worst network that a search found. The true worst error may be larger; it is never smaller."""

    worst_error: float
    """``|loss_S - loss_P| / magnitude`` there, for the magnitude ``sum w (|y| + sum |a| f)^2``: what an eps bounds."""
    centers: np.ndarray
    """(L, d), in the units of the data."""
    alphas: np.ndarray
    """(L, K)."""
    loss_data: float
    loss_coreset: float
    magnitude: float
    mean_error: float
    """Over the random networks that the search began with."""
    n_networks: int

    def __repr__(self) -> str:
        return (
            f"worst error found {self.worst_error:.4g} of the magnitude (loss {self.loss_coreset:.4g} for "
            f"{self.loss_data:.4g}) among {self.n_networks} networks of {len(self.centers)} neurons; "
            f"random networks: mean {self.mean_error:.3g}"
        )


def worst_network(
    points: Points,
    weights: np.ndarray,
    targets: np.ndarray,
    rows: np.ndarray,
    subset_weights: np.ndarray,
    radius: float,
    n_neurons: int,
    rng: np.random.Generator,
    *,
    n_starts: int = 8,
    max_iter: int = 60,
) -> NetworkAudit:
    r"""Search for the network of ``n_neurons`` with centres in the ball whose loss a subset gets most wrong.

    Maximised is :math:`|loss_S - loss_P| / \sum_p w_p (|y_p| + \sum_i |a_i| f(p,c_i))^2`, the number that the guarantee
    bounds by eps. Both losses and the denominator (the loss of the network ``-|a|`` on ``|y|``) come with gradients, so
    that L-BFGS climbs from the best of random networks and from networks at the worst single query of the square term,
    which a network of large outputs sees alone. Centres are kept in the ball by :math:`c = R u / \sqrt{1 + |u|^2}`.

    O(n L (d + K)) an evaluation, at most about ``n_starts * (max_iter + 8)`` of them and the search for single queries.
    """
    n_random = _RANDOM_PER_START * n_starts
    problem = _Problem(points, weights, targets, points.subset(rows), subset_weights, targets[rows], radius)
    starts = _starts(problem, rows, n_neurons, n_random, rng)
    values = np.array([problem.error(start) for start in starts])
    order = np.argsort(-np.abs(values), kind="stable")[:n_starts]
    best, best_value = starts[order[0]], values[order[0]]
    for at in order:
        sign = 1.0 if values[at] >= 0 else -1.0
        options = {"maxiter": max_iter}
        found = minimize(problem.negative, starts[at], (sign,), "L-BFGS-B", jac=True, options=options)
        if -found.fun > abs(best_value):
            best, best_value = found.x, -sign * found.fun
    network = problem.network(best)
    truth = network_sums(points, weights, targets, network.centers)
    drawn = network_sums(points, subset_weights, targets, network.centers, rows)
    magnitude = truth.magnitude(network.alphas)
    loss_data, loss_coreset = truth.loss(network.alphas), drawn.loss(network.alphas)
    return NetworkAudit(
        worst_error=abs(loss_coreset - loss_data) / magnitude,
        centers=points.to_data(network.centers),
        alphas=network.alphas,
        loss_data=loss_data,
        loss_coreset=loss_coreset,
        magnitude=magnitude,
        mean_error=float(np.abs(values[:n_random]).mean()),
        n_networks=problem.n_evaluations,
    )


@dataclass(eq=False)
class _Problem:
    """The signed error of a network as a function of one vector: coordinates ``u`` of the centres, then outputs."""

    points: Points
    weights: np.ndarray
    targets: np.ndarray
    subset: Points
    subset_weights: np.ndarray
    subset_targets: np.ndarray
    radius: float
    n_evaluations: int = 0

    def network(self, vector: np.ndarray) -> Network:
        free, alphas = self.split(vector)
        return Network(self.radius * free * _shrink(free), alphas, np.zeros(alphas.shape[1]))

    def split(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        d, n_outputs = self.points.d, self.targets.shape[1]
        end = len(vector) // (d + n_outputs) * d
        return vector[:end].reshape(-1, d), vector[end:].reshape(-1, n_outputs)

    def joined(self, centers: np.ndarray, alphas: np.ndarray) -> np.ndarray:
        """The vector of a network; centres on the boundary are drawn in a little, for there u is infinite."""
        ratio = centers / self.radius
        length = np.sqrt(squared_norms(ratio))[:, None]
        ratio = ratio * np.minimum(1.0, 0.999 / np.maximum(length, 1e-300))
        free = ratio / np.sqrt(1.0 - squared_norms(ratio))[:, None]
        return np.concatenate((free.ravel(), alphas.ravel()))

    def error(self, vector: np.ndarray) -> float:
        return -self.negative(vector, 1.0)[0]

    def negative(self, vector: np.ndarray, sign: float) -> tuple[float, np.ndarray]:
        """Minus ``sign`` times the error, and its gradient."""
        self.n_evaluations += 1
        free, alphas = self.split(vector)
        network = self.network(vector)
        plus = Network(network.centers, -np.abs(alphas), network.intercept)
        of_data, slope = loss_and_gradient(self.points, self.weights, self.targets, network)
        of_subset, subset_slope = loss_and_gradient(self.subset, self.subset_weights, self.subset_targets, network)
        magnitude, magnitude_slope = loss_and_gradient(self.points, self.weights, np.abs(self.targets), plus)
        value = (of_subset - of_data) / magnitude
        d_centers = subset_slope.centers - slope.centers - value * magnitude_slope.centers
        d_alphas = subset_slope.alphas - slope.alphas + value * magnitude_slope.alphas * np.sign(alphas)
        # dc/du = R (I - u u^T / (1 + |u|^2)) / sqrt(1 + |u|^2)
        shrink = _shrink(free)
        along = np.sum(free * d_centers, axis=1, keepdims=True)
        d_free = self.radius * shrink * (d_centers - free * along * shrink**2)
        gradient = np.concatenate((d_free.ravel(), d_alphas.ravel())) / magnitude
        return -sign * value, -sign * gradient


def _shrink(free: np.ndarray) -> np.ndarray:
    return 1.0 / np.sqrt(1.0 + squared_norms(free))[:, None]


def _starts(
    problem: _Problem, rows: np.ndarray, n_neurons: int, n_random: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Random networks with centres at rows and in the ball, outputs from negligible to dominant; then chosen ones."""
    points, n_outputs = problem.points, problem.targets.shape[1]
    typical = np.sqrt(problem.weights @ squared_norms(problem.targets) / problem.weights.sum()) or 1.0
    starts = []
    for _ in range(n_random):
        at_rows = points.take(rng.choice(points.n, n_neurons, p=problem.weights / problem.weights.sum()))
        in_ball = problem.radius * uniform_in_ball(n_neurons, points.d, rng)
        centers = np.where(rng.random((n_neurons, 1)) < 0.5, at_rows, in_ball)
        alphas = typical * 10.0 ** rng.uniform(-1, 2) * rng.standard_normal((n_neurons, n_outputs))
        starts.append(problem.joined(centers, alphas))
    root = np.sqrt(2.0)
    scaled = Points(points.X, points.center, points.scale / root, points.max_norm * root)
    subset, radius = (rows, problem.subset_weights), root * problem.radius
    worst = worst_query(
        scaled, problem.weights, *subset, radius, "gaussian", rng, n_starts=8, n_random=200, max_iter=25
    )
    center = points.to_scaled(worst.worst_query)
    for size in (1.0, 1e2, 1e4):
        centers = center + 1e-2 * problem.radius * rng.standard_normal((n_neurons, points.d))
        starts.append(problem.joined(centers, np.full((n_neurons, n_outputs), size * typical)))
    return starts
