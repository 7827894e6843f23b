r"""Networks of Gaussians: their loss as Gaussian sums, and its gradient.

A network of L neurons has the outputs :math:`\phi_k(p) = \sum_i a_{ik} f(p, c_i)`, :math:`f(p, c) = e^{-|p-c|^2}`,
and on targets y the loss :math:`\sum_p w_p |y_p - \phi(p)|^2`. Multiplied out, with

.. math:: |p-a|^2 + |p-b|^2 = 2 \left| p - \tfrac{a+b}{2} \right|^2 + \tfrac12 |a-b|^2 ,

the loss is made of sums over the data that depend on the centres alone: the sum of :math:`w |y|^2`; the Gaussian sums
of the rows with :math:`y_k > 0` and :math:`y_k < 0`, weighted by :math:`w |y_k|`, at the centres; and
:math:`\sum_p w_p f(p,c_i) f(p,c_j) = e^{-|c_i-c_j|^2/2} \sum_p w_p e^{-2|p-(c_i+c_j)/2|^2}`, Gaussian sums of
bandwidth :math:`1/\sqrt 2` at the midpoints. A weighted subset that keeps these *families* keeps the loss.

Coordinates are those of :class:`~coresift.core.points.Points`. Targets are (n, K), outputs (L, K).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .points import Block, Points, squared_distances


def activations(block: Block, centers: np.ndarray) -> np.ndarray:
    """(b, L) values ``exp(-|p - c|^2)``."""
    squares = squared_distances(block, centers)
    return np.exp(np.negative(squares, out=squares), out=squares)


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
        r""":math:`D = \sum_{ik} a_{ik}^2 G_{ii}`, the paper's stand-in for the square term.

        By Cauchy the square is at most :math:`L D`, and at least D when no two outputs of a column differ in sign.
        """
        return float(np.sum(alphas**2 * self.gram.diagonal()[:, None]))

    def largest_relative_error(self, other: NetworkSums) -> float:
        """The least eps such that every sum of ``other`` is within a factor ``1 +- eps`` of this one."""
        mine, theirs = (
            np.concatenate(([sums.targets.sum()], sums.positive.flat, sums.negative.flat, sums.gram.flat))
            for sums in (self, other)
        )
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
        points, targets = points.subset(rows), targets[rows]
    for span, block in points.blocks(extra_columns=3 * n_centers + 3 * n_outputs):
        values, w, y = activations(block, centers), weights[span, None], targets[span]
        totals += np.sum(w * y**2, axis=0)
        positive += values.T @ (w * np.maximum(y, 0.0))
        negative += values.T @ (w * np.maximum(-y, 0.0))
        gram += values.T @ (w * values)
    return NetworkSums(totals, positive, negative, 0.5 * (gram + gram.T))


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

    def from_flat(self, vector: np.ndarray) -> Network:
        ends = np.cumsum([self.centers.size, self.alphas.size, self.intercept.size])
        centers, alphas, intercept, log_bandwidth = np.split(vector, ends)
        return Network(
            centers.reshape(self.centers.shape), alphas.reshape(self.alphas.shape), intercept, float(log_bandwidth[0])
        )

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
    r"""The loss :math:`\sum_p w_p |\phi(p) - y_p|^2` and its derivatives, in O(n L (d + K)), by blocks.

    With :math:`f = e^{-u/h^2}`, :math:`u = |p-c|^2`: :math:`\partial f/\partial c = f \cdot 2(p-c)/h^2` and
    :math:`\partial f/\partial \ln h = f \cdot 2u/h^2`. One coefficient :math:`2 w (\phi - y) \cdot a_i f` per row and
    neuron carries both.
    """
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
        pull = (slope @ network.alphas.T) * values  # (b, L)
        d_centers += block.weighted_sum(pull)
        mass += pull.sum(axis=0)
        d_log_bandwidth += float(np.sum(pull * squares))
    d_centers -= mass[:, None] * network.centers
    return loss, Network(2.0 * narrow * d_centers, d_alphas, d_intercept, float(2.0 * narrow * d_log_bandwidth))


def ridge_outputs(
    hidden: np.ndarray, weights: np.ndarray, targets: np.ndarray, ridge: float, fit_intercept: bool
) -> tuple[np.ndarray, np.ndarray]:
    r"""The output layer :math:`(a, b)` that minimises :math:`\sum_p w_p |H_p a + b - y_p|^2 + \lambda |a|^2`.

    Through the singular values of the weighted neurons, not their Gram matrix: Gaussians that overlap make it
    singular to rounding. The intercept is not penalised: it is eliminated by centring. Directions whose singular
    value is below rounding are left out, so that ``ridge=0`` is the least-squares solution of least norm. O(n L^2).
    """
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
