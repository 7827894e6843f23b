r"""Networks of Gaussians: their loss as Gaussian sums, its gradient, and where a weighted subset is worst.

A network of L neurons has the outputs :math:`\phi_k(p) = \sum_i a_{ik} f(p, c_i)`, :math:`f(p, c) = e^{-|p-c|^2}`,
and on targets y (n, K) the loss :math:`\sum_p w_p |y_p - \phi(p)|^2`. Multiplied out it is made of sums that depend on
the centres alone (docs/theory.md, "Networks of Gaussians"): a subset that keeps these keeps the loss.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.random import Generator
from scipy.optimize import minimize

from coresift.core.audit import uniform_in_ball, worst_query
from coresift.core.points import Block, Points, Subset, squared_distances, squared_norms

_RANDOM_PER_START = 8  # random networks tried for each local search


@dataclass(frozen=True, eq=False)
class NetworkSums:
    """The sums that the loss of every network with given centres is made of."""

    targets: np.ndarray  # (K,) sum of w y_k^2
    positive: np.ndarray  # (L, K) sums of w y_k f(p, c_i) over the rows with y_k > 0
    negative: np.ndarray  # (L, K) sums of w |y_k| f(p, c_i) over the rows with y_k < 0
    gram: np.ndarray  # (L, L) sums of w f(p, c_i) f(p, c_j)

    def cross(self, alphas: np.ndarray) -> float:
        r""":math:`\sum_p w_p\, y_p \cdot \phi(p) = \sum_{ik} a_{ik} ( \phi^+_{ik} - \phi^-_{ik} )`."""
        return float(np.sum(alphas * (self.positive - self.negative)))

    def square(self, alphas: np.ndarray) -> float:
        r""":math:`\sum_p w_p |\phi(p)|^2 = \sum_{ijk} a_{ik} a_{jk} G_{ij}`."""
        return float(np.sum(alphas * (self.gram @ alphas)))

    def loss(self, alphas: np.ndarray) -> float:
        r""":math:`\sum_p w_p |y_p - \phi(p)|^2`, multiplied out; its rounding error is a part of :meth:`magnitude`."""
        return float(self.targets.sum()) - 2.0 * self.cross(alphas) + self.square(alphas)

    def cross_magnitude(self, alphas: np.ndarray) -> float:
        r""":math:`\sum_{ik} |a_{ik}| (\phi^+_{ik} + \phi^-_{ik})`: what the cross term's error is measured by."""
        return float(np.sum(np.abs(alphas) * (self.positive + self.negative)))

    def magnitude(self, alphas: np.ndarray) -> float:
        r""":math:`\sum_{pk} w_p (|y_{pk}| + \sum_i |a_{ik}| f(p, c_i))^2`: the loss, every term with a plus."""
        absolute = np.abs(alphas)
        return float(self.targets.sum()) + 2.0 * self.cross_magnitude(alphas) + self.square(absolute)

    def diagonal(self, alphas: np.ndarray) -> float:
        r""":math:`D = \sum_{ik} a_{ik}^2 G_{ii}`: by Cauchy the square is at most :math:`L D`, the paper's bound."""
        return float(np.sum(alphas**2 * self.gram.diagonal()[:, None]))

    def largest_relative_error(self, other: Self) -> float:
        """The least eps such that every sum of ``other`` is within a factor ``1 +- eps`` of this one."""
        each = (np.r_[s.targets.sum(), s.positive.flat, s.negative.flat, s.gram.flat] for s in (self, other))
        mine, theirs = each
        gap = np.abs(theirs - mine)
        with np.errstate(divide="ignore", invalid="ignore"):  # equal sums, zeros among them, do not err
            return float(np.where(gap > 0, gap / mine, 0.0).max())


def network_sums(
    points: Points, weights: np.ndarray, targets: np.ndarray, centers: np.ndarray, rows: np.ndarray | None = None
) -> NetworkSums:
    """The sums over all rows, or over ``rows`` (then ``weights`` are theirs), in O(n L (d + L + K)), by blocks."""
    n_centers, n_outputs = len(centers), targets.shape[1]
    totals = np.zeros(n_outputs)
    positive, negative = np.zeros((n_centers, n_outputs)), np.zeros((n_centers, n_outputs))
    gram = np.zeros((n_centers, n_centers))
    if rows is not None:
        points, targets = _some(points, rows), targets[rows]
    for span, block in points.blocks(extra_columns=3 * n_centers + 3 * n_outputs):
        values, w, y = np.exp(-squared_distances(block, centers)), weights[span, None], targets[span]
        totals += np.sum(w * y**2, axis=0)
        positive += values.T @ (w * np.maximum(y, 0.0))
        negative += values.T @ (w * np.maximum(-y, 0.0))
        gram += values.T @ (w * values)
    return NetworkSums(totals, positive, negative, 0.5 * (gram + gram.T))


def _some(points: Points, rows: np.ndarray) -> Points:
    return Points(points.X[rows], points.center, points.scale, points.max_norm)


@dataclass(frozen=True, eq=False)
class Network:
    r"""The function :math:`b_k + \sum_i a_{ik} e^{-|p-c_i|^2 / h^2}`, or a gradient of the same shape."""

    centers: np.ndarray  # (L, d)
    alphas: np.ndarray  # (L, K)
    intercept: np.ndarray  # (K,) b
    log_bandwidth: float = 0.0  # log h

    def flat(self) -> np.ndarray:
        parts = (self.centers.ravel(), self.alphas.ravel(), self.intercept, [self.log_bandwidth])
        return np.concatenate(parts)

    def from_flat(self, vector: np.ndarray) -> Self:
        ends = np.cumsum([self.centers.size, self.alphas.size, self.intercept.size])
        centers, alphas, intercept, (log_bandwidth,) = np.split(vector, ends)
        centers, alphas = centers.reshape(self.centers.shape), alphas.reshape(self.alphas.shape)
        return type(self)(centers, alphas, intercept, float(log_bandwidth))

    def outputs(self, points: Points) -> np.ndarray:
        out = np.empty((points.n, len(self.intercept)))
        for span, block in points.blocks(extra_columns=2 * len(self.centers)):
            out[span] = self.hidden(block) @ self.alphas + self.intercept
        return out

    def hidden(self, block: Block) -> np.ndarray:
        return np.exp(-squared_distances(block, self.centers) * np.exp(-2.0 * self.log_bandwidth))


def loss_and_gradient(
    points: Points, weights: np.ndarray, targets: np.ndarray, network: Network
) -> tuple[float, Network]:
    r"""The loss :math:`\sum_p w_p |\phi(p) - y_p|^2` and its derivatives, in O(n L (d + K)), by blocks."""
    narrow = float(np.exp(-2.0 * network.log_bandwidth))  # 1 / h^2
    loss, d_log_bandwidth = 0.0, 0.0
    d_centers, mass = np.zeros_like(network.centers), np.zeros(len(network.centers))
    d_alphas, d_intercept = np.zeros_like(network.alphas), np.zeros_like(network.intercept)
    for span, block in points.blocks(extra_columns=4 * len(network.centers)):
        squares = squared_distances(block, network.centers)  # (b, L)
        values = np.exp(-narrow * squares)
        residual = values @ network.alphas + network.intercept - targets[span]  # (b, K)
        slope = 2.0 * weights[span, None] * residual
        loss += 0.5 * float(np.sum(slope * residual))
        d_alphas += values.T @ slope
        d_intercept += slope.sum(axis=0)
        # for f = exp(-u / h^2), u = |p - c|^2: df/dc = f 2 (p - c) / h^2 and df/d(ln h) = f 2 u / h^2
        pull = (slope @ network.alphas.T) * values  # (b, L)
        d_centers += block.weighted_sum(pull)
        mass += pull.sum(axis=0)
        d_log_bandwidth += float(np.sum(pull * squares))
    d_centers -= mass[:, None] * network.centers
    return loss, Network(2.0 * narrow * d_centers, d_alphas, d_intercept, float(2.0 * narrow * d_log_bandwidth))


def ridge_outputs(
    hidden: np.ndarray, weights: np.ndarray, targets: np.ndarray, ridge: float, fit_intercept: bool
) -> tuple[np.ndarray, np.ndarray]:
    r"""Minimise :math:`\sum_p w_p |H_p a + b - y_p|^2 + \lambda |a|^2` by singular values, of least norm; O(n L^2)."""
    total = weights.sum()
    hidden_mean, target_mean = np.zeros(hidden.shape[1]), np.zeros(targets.shape[1])
    if fit_intercept:
        hidden_mean, target_mean = weights @ hidden / total, weights @ targets / total
    root = np.sqrt(weights)[:, None]
    U, s, Vt = np.linalg.svd(root * (hidden - hidden_mean), full_matrices=False)
    cutoff = max(hidden.shape) * np.finfo(np.float64).eps * s.max(initial=0.0)
    gain = np.divide(s, s * s + ridge, out=np.zeros_like(s), where=s > cutoff)
    alphas = Vt.T @ (gain[:, None] * (U.T @ (root * (targets - target_mean))))
    return alphas, target_mean - hidden_mean @ alphas


@dataclass(frozen=True, eq=False)
class NetworkAudit:
    """The worst network that a search found. The true worst error may be larger; it is never smaller.

    ``loss_data``, ``loss_coreset`` and ``magnitude`` are its sums; ``n_networks`` were compared.
    """

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
    subset: Subset, targets: np.ndarray, n_neurons: int, rng: Generator, *, n_starts: int = 8, max_iter: int = 60
) -> NetworkAudit:
    r"""Search for the network of ``n_neurons`` with centres in the ball whose loss a subset gets most wrong.

    L-BFGS maximises the error over the magnitude, from the best of random networks and from the worst single query of
    the square term. Centres are :math:`c = R u / \sqrt{1 + |u|^2}`. About ``n_starts * (max_iter + 8)`` evaluations.
    """
    n_random = _RANDOM_PER_START * n_starts
    problem = _Problem(subset, targets)
    starts = problem.starts(n_neurons, n_random, rng)
    values = np.array([-problem.negative(start, 1.0)[0] for start in starts])
    order = np.argsort(-np.abs(values), kind="stable")[:n_starts]
    best, best_value = starts[order[0]], values[order[0]]
    for at in order:
        sign = 1.0 if values[at] >= 0 else -1.0
        found = minimize(problem.negative, starts[at], (sign,), "L-BFGS-B", jac=True, options={"maxiter": max_iter})
        if -found.fun > abs(best_value):
            best, best_value = found.x, -sign * found.fun
    network, _, _ = problem.network(best)
    truth = network_sums(subset.points, subset.shares, targets, network.centers)
    drawn = network_sums(subset.points, subset.weights, targets, network.centers, subset.rows)
    magnitude = truth.magnitude(network.alphas)
    loss_data, loss_coreset = truth.loss(network.alphas), drawn.loss(network.alphas)
    mean_error = float(np.abs(values[:n_random]).mean())
    about = (loss_data, loss_coreset, magnitude, mean_error, problem.n_evaluations)
    error = abs(loss_coreset - loss_data) / magnitude
    return NetworkAudit(error, subset.points.to_data(network.centers), network.alphas, *about)


@dataclass(eq=False)
class _Problem:
    """The signed error of a network as a function of one vector: coordinates ``u`` of the centres, then outputs."""

    given: Subset
    targets: np.ndarray
    n_evaluations: int = 0

    @cached_property
    def subset(self) -> Points:
        return _some(self.given.points, self.given.rows)

    def network(self, vector: np.ndarray) -> tuple[Network, np.ndarray, np.ndarray]:
        """The network, the coordinates ``u`` of its centres, and ``1 / sqrt(1 + |u|^2)``."""
        d, n_outputs = self.given.points.d, self.targets.shape[1]
        free, alphas = np.split(vector, [len(vector) // (d + n_outputs) * d])
        free = free.reshape(-1, d)
        shrink = 1.0 / np.sqrt(1.0 + squared_norms(free))[:, None]
        made = Network(self.given.radius * free * shrink, alphas.reshape(-1, n_outputs), np.zeros(n_outputs))
        return made, free, shrink

    def joined(self, centers: np.ndarray, alphas: np.ndarray) -> np.ndarray:
        """The vector of a network; centres on the boundary are drawn in a little, for there u is infinite."""
        ratio = centers / self.given.radius
        length = np.sqrt(squared_norms(ratio))[:, None]
        ratio = ratio * np.minimum(1.0, 0.999 / np.maximum(length, 1e-300))
        free = ratio / np.sqrt(1.0 - squared_norms(ratio))[:, None]
        return np.concatenate((free.ravel(), alphas.ravel()))

    def negative(self, vector: np.ndarray, sign: float) -> tuple[float, np.ndarray]:
        self.n_evaluations += 1
        network, free, shrink = self.network(vector)
        plus = Network(network.centers, -np.abs(network.alphas), network.intercept)
        given, data = self.given, (self.given.points, self.given.shares)
        of_data, slope = loss_and_gradient(*data, self.targets, network)
        of_subset, subset_slope = loss_and_gradient(self.subset, given.weights, self.targets[given.rows], network)
        magnitude, magnitude_slope = loss_and_gradient(*data, np.abs(self.targets), plus)
        value = (of_subset - of_data) / magnitude
        d_centers = subset_slope.centers - slope.centers - value * magnitude_slope.centers
        d_alphas = subset_slope.alphas - slope.alphas + value * magnitude_slope.alphas * np.sign(network.alphas)
        # dc/du = R (I - u u^T / (1 + |u|^2)) / sqrt(1 + |u|^2)
        along = np.sum(free * d_centers, axis=1, keepdims=True)
        d_free = given.radius * shrink * (d_centers - free * along * shrink**2)
        gradient = np.concatenate((d_free.ravel(), d_alphas.ravel())) / magnitude
        return -sign * value, -sign * gradient

    def starts(self, n_neurons: int, n_random: int, rng: Generator) -> list[np.ndarray]:
        """Random networks with centres at rows and in the ball, outputs from negligible to dominant; chosen ones."""
        points, weights, radius = self.given.points, self.given.shares, self.given.radius
        n_outputs = self.targets.shape[1]
        typical = np.sqrt(weights @ squared_norms(self.targets) / weights.sum()) or 1.0
        starts = []
        for _ in range(n_random):
            at_rows = points.take(rng.choice(points.n, n_neurons, p=weights / weights.sum()))
            in_ball = radius * uniform_in_ball(n_neurons, points.d, rng)
            centers = np.where(rng.random((n_neurons, 1)) < 0.5, at_rows, in_ball)
            alphas = typical * 10.0 ** rng.uniform(-1, 2) * rng.standard_normal((n_neurons, n_outputs))
            starts.append(self.joined(centers, alphas))
        root = float(np.sqrt(2.0))
        of_square = replace(self.given, points=points.rescaled(root), radius=root * radius)
        worst = worst_query(of_square, rng, n_starts=8, n_random=200, max_iter=25)
        center = points.to_scaled(worst.worst_query)
        for size in (1.0, 1e2, 1e4):
            centers = center + 1e-2 * radius * rng.standard_normal((n_neurons, points.d))
            starts.append(self.joined(centers, np.full((n_neurons, n_outputs), size * typical)))
        return starts
