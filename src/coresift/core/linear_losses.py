"""Losses of linear models as functions of scores ``z = coef . x + intercept``, (b, K), with their conjugates."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, log_softmax, softmax, xlog1py, xlogy


class LinearLoss(ABC):
    """A convex loss of the score. ``y`` are numbers of classes (0 and 1; 0 to K - 1), or targets."""

    name: str
    n_outputs = 1
    is_classifier = False

    @abstractmethod
    def values(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """(b,) losses, not negative."""

    @abstractmethod
    def slopes(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """(b, K) derivatives by the scores."""

    @abstractmethod
    def curvatures(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """(b, K) second derivatives c, one of them where there are two; for K > 1 they are ``diag(c) - c c^T``."""

    def turns(self, z: np.ndarray, y: np.ndarray, step: np.ndarray) -> np.ndarray:
        """(b, K) second derivatives times ``step``: how the slopes change at first."""
        c = self.curvatures(z, y)
        along = c * step
        return along if self.n_outputs == 1 else along - c * along.sum(axis=1, keepdims=True)

    @abstractmethod
    def conjugates(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        """(b,) values of ``l*``; infinite where ``a`` is not a slope of the loss."""

    @abstractmethod
    def nearest_slopes(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        """(b, K) slopes of the loss near ``a``, with finite conjugates; of multinomial ``a`` the rows sum to 0."""

    def supports(self, a: np.ndarray, z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(b,) values ``a z - l*(a)``, at most ``l(z)``, and the sizes of the terms that rounding is relative to."""
        products, conjugates = (a * z).sum(axis=1), self.conjugates(a, y)
        return products - conjugates, np.abs(a * z).sum(axis=1) + np.abs(conjugates)


def _sign(y: np.ndarray) -> np.ndarray:
    return np.where(y == 1, 1.0, -1.0)


class Logistic(LinearLoss):
    """``log(1 + e^z) - y z`` for two classes; positive scores mean class 1."""

    name, is_classifier = "logistic", True

    def values(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        against = -_sign(y) * z[:, 0]
        return np.maximum(against, 0.0) + np.log1p(np.exp(-np.abs(against)))  # as logaddexp, three times as fast

    def slopes(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (-_sign(y) * expit(-_sign(y) * z[:, 0]))[:, None]

    def curvatures(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(expit(z) * expit(-z))

    def conjugates(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        # a = p - y: the distance from the label keeps its digits where p itself would lose them
        off = -_sign(y) * a[:, 0]
        inside = (off >= 0) & (off <= 1)
        off = np.where(inside, off, 0.0)
        return np.where(inside, xlogy(off, off) + xlog1py(1.0 - off, -off), np.inf)

    def nearest_slopes(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where((y == 1)[:, None], np.clip(a, -1.0, 0.0), np.clip(a, 0.0, 1.0))


@dataclass(frozen=True)
class Multinomial(LinearLoss):
    """``log sum_c e^{z_c} - z_y`` for K classes."""

    n_outputs: int

    name, is_classifier = "multinomial", True

    def values(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return -np.take_along_axis(log_softmax(z, axis=1), y[:, None], axis=1)[:, 0]

    def slopes(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        p = softmax(z, axis=1)
        p[np.arange(len(y)), y] = 0.0
        p[np.arange(len(y)), y] = -p.sum(axis=1)  # 1 - p_y would lose the digits of a sure prediction
        return p

    def curvatures(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(softmax(z, axis=1))

    def conjugates(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        off, own = a.copy(), -a[np.arange(len(y)), y]
        off[np.arange(len(y)), y] = 0.0
        is_slope = (off >= 0).all(axis=1) & (own <= 1) & (np.abs(off.sum(axis=1) - own) <= 1e-12 * (1.0 + own))
        off, own = np.maximum(off, 0.0), np.clip(own, 0.0, 1.0)
        return np.where(is_slope, xlogy(off, off).sum(axis=1) + xlog1py(1.0 - own, -own), np.inf)

    def nearest_slopes(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        rows = np.arange(len(y))
        off = np.maximum(a, 0.0)
        off[rows, y] = 0.0
        total = off.sum(axis=1)
        off /= np.maximum(total, 1.0)[:, None]
        off[rows, y] = -np.minimum(total, 1.0)
        return off


class Squared(LinearLoss):
    """``(z - y)^2 / 2``."""

    name = "squared"

    def values(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 0.5 * (z[:, 0] - y) ** 2

    def slopes(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return z - y[:, None]

    def curvatures(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.ones((len(z), 1))

    def conjugates(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 0.5 * a[:, 0] ** 2 + a[:, 0] * y

    def nearest_slopes(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return a

    def supports(self, a: np.ndarray, z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # by residuals: targets far from zero would cost digits
        products, half = a[:, 0] * (z[:, 0] - y), 0.5 * a[:, 0] ** 2
        return products - half, np.abs(products) + half


@dataclass(frozen=True)
class Huber(Squared):
    """``r^2 / 2`` for residuals up to ``threshold``, and linear beyond."""

    threshold: float

    name = "huber"

    def values(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        size = np.abs(z[:, 0] - y)
        near = np.minimum(size, self.threshold)
        return near * (size - 0.5 * near)

    def slopes(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.clip(z - y[:, None], -self.threshold, self.threshold)

    def curvatures(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (np.abs(z - y[:, None]) <= self.threshold).astype(np.float64)

    def conjugates(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(np.abs(a[:, 0]) <= self.threshold, super().conjugates(a, y), np.inf)

    def nearest_slopes(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.clip(a, -self.threshold, self.threshold)


class SquaredHinge(LinearLoss):
    """``max(0, 1 - s z)^2`` for two classes, with s = 1 for class 1 and -1 for class 0."""

    name, is_classifier = "squared_hinge", True

    def values(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.maximum(0.0, 1.0 - _sign(y) * z[:, 0]) ** 2

    def slopes(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (-2.0 * _sign(y) * np.maximum(0.0, 1.0 - _sign(y) * z[:, 0]))[:, None]

    def curvatures(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(_sign(y) * z[:, 0] < 1.0, 2.0, 0.0)[:, None]

    def conjugates(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        along = _sign(y) * a[:, 0]
        return np.where(along <= 0, along + 0.25 * along**2, np.inf)

    def nearest_slopes(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where((y == 1)[:, None], np.minimum(a, 0.0), np.maximum(a, 0.0))


class Poisson(LinearLoss):
    """Half the deviance of counts with mean ``e^z``: ``e^z - y z + y log y - y``."""

    name = "poisson"

    def values(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.exp(z[:, 0]) - y * z[:, 0] + (xlogy(y, y) - y)

    def slopes(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.exp(z) - y[:, None]

    def curvatures(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.exp(z)

    def conjugates(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        mean = a[:, 0] + y
        usable = np.maximum(mean, 0.0)
        return np.where(mean >= 0, xlogy(usable, usable) - usable - (xlogy(y, y) - y), np.inf)

    def nearest_slopes(self, a: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.maximum(a, -y[:, None])

    def supports(self, a: np.ndarray, z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, sizes = super().supports(a, z, y)
        mean = a[:, 0] + y
        return values, sizes + np.abs(xlogy(y, y)) + y + np.abs(xlogy(mean, mean)) + mean
