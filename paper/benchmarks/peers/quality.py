r"""How good a weighted subset is: discrepancy, RBF error certified and found, accuracy of a classifier.

For points z with weights v (shares of the total), potentials :math:`b_i = \sum_p w_p k(z_i, p)` and the constant
:math:`c = \sum_{pq} w_p w_q k(p, q)`,

.. math:: \mathrm{MMD}^2 = v^\top K v - 2 b^\top v + c.

c and the floor of F belong to the data: they are computed once, and each subset costs only its potentials. Up to
``_EXACT_ROWS`` rows the certified error is that of ``Coreset.certify``. Above, where all pairs would be summed for each
subset anew, it is the same bound by moments (:mod:`coresift.core.moments`) with the orders from 3 on taken together:
:math:`\mathrm{MMD}^2 = \sum_k 2^k |T_k|^2 / k!`, so the low orders, which cost one pass over the data, leave the rest,
and by Cauchy and Schwarz the terms of the rest sum to at most its root times :math:`(\sum_{k \ge 3} (2R^2)^k /
k!)^{1/2}`. Where all pairs are too many to sum even once, c is estimated; then so is the error.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from coresift import Coreset, RBFCoreset, audit
from coresift.core.certificate import certify_exact, log_floor
from coresift.core.discrepancy import kernel_tile, quadratic_form
from coresift.core.points import Block, Points, Subset as WeightedSubset
from coresift.core.quadrature import Quadrature, pivoted_weights
from coresift.coresets.coreset import QueryBall
from paper.benchmarks.peers.data import Data
from paper.benchmarks.peers.methods import Subset, nearest

_EXACT_ROWS = 20_000  # up to which every subset gets the library's own certificate
_AFFORDABLE_PAIRS = 2e12  # pairs of rows times columns; an exponential costs as much as a hundred columns
_REFERENCE_ROWS = 2048  # rows at which the data's potential is taken to estimate c
_REFERENCE_SAMPLE, _REFERENCE_POOL, _REFERENCE_SIZE = (20_000, 2000, 512)  # from which S* is chosen, and its size
_AUDIT_EVALUATIONS = 5e7
_TEST_ROWS = 2000


@dataclass
class Reference:
    """What belongs to the data and is the same for all subsets."""

    points: Points
    ball: QueryBall
    square: float  # c
    square_error: float  # standard error of c; 0 if exact
    floor: float
    processor: float  # seconds that c and the floor took
    low: LowOrders

    @property
    def is_exact(self) -> bool:
        """Whether all pairs of rows were summed."""
        return self.square_error == 0.0


def reference(X: np.ndarray, known: dict[str, float] | None = None, affordable: float = _AFFORDABLE_PAIRS) -> Reference:
    """Bandwidth (median distance), ball (radius 1 around the mean), c and the floor; the last two may be known."""
    start = time.process_time()
    estimator = RBFCoreset(bandwidth="median", bound="closed-form", random_state=0).fit(X)
    ball = estimator.sample(1).ball
    assert ball is not None
    shares = np.full(len(X), 1.0 / len(X))
    points = Points(X, ball.center, ball.scale, max_norm=np.inf)
    points.max_norm = float(np.sqrt(max(block.sq_norms.max() for _, block in points.blocks())))
    low = LowOrders.of(points, shares)
    if known is not None:
        constants = (known[name] for name in ("square", "square_error", "floor", "certificate_processor"))
        return Reference(points, ball, *constants, low)
    if float(len(X)) ** 2 * (X.shape[1] + 100) <= affordable:
        square, error = quadratic_form(points, shares, "gaussian"), 0.0
    else:
        square, error = estimated_square(points)
    floor = float(np.exp(log_floor(points, shares, ball.radius, "gaussian")))
    return Reference(points, ball, square, error, floor, time.process_time() - start, low)


@dataclass
class LowOrders:
    """The moments T_0, T_1 and T_2 of weighted points, each weight times ``exp(-|p|^2)``."""

    zero: float
    one: np.ndarray
    two: np.ndarray

    @classmethod
    def of(cls, points: Points, shares: np.ndarray) -> LowOrders:
        """Sum them up in one pass."""
        found = cls(0.0, np.zeros(points.d), np.zeros((points.d, points.d)))
        for rows, block in points.blocks():
            c, Z = shares[rows] * np.exp(-block.sq_norms), block.dense()
            found.zero += float(c.sum())
            found.one += c @ Z
            found.two += Z.T @ (Z * c[:, None])
        return found

    def error_over(self, other: LowOrders, square: float, floor: float, radius: float) -> float:
        """Bound the relative error of two sums whose squared discrepancy is known, over the ball."""
        zero, one = abs(self.zero - other.zero), float(np.linalg.norm(self.one - other.one))
        two = np.abs(np.linalg.eigvalsh(self.two - other.two))
        terms = zero + 2.0 * radius * one + 2.0 * radius**2 * float(two.max(initial=0.0))
        rest = square - zero**2 - 2.0 * one**2 - 2.0 * float(two @ two)
        t = 2.0 * radius**2
        terms += float(np.sqrt(max(rest, 0.0) * (np.exp(t) - 1.0 - t - 0.5 * t * t)))
        return min(terms * float(np.exp(-(radius**2))), float(np.sqrt(max(square, 0.0)))) / floor


def estimated_square(points: Points, seed: int = 0) -> tuple[float, float]:
    r"""An unbiased estimate of c, and its standard error.

    c is the mean over the data of the data's own potential b(x). A weighted subset S* approximates it, and the mean of
    its sum S*(x) over the data is known exactly: :math:`v^\top b`. So only the mean of the small difference b - S*
    is estimated, from random rows.
    """
    rng = np.random.default_rng(seed)
    assert isinstance(points.X, np.ndarray)
    few = np.sort(rng.choice(points.n, min(_REFERENCE_SAMPLE, points.n), replace=False))
    some = Points(points.X[few], points.center, points.scale, points.max_norm)
    pool = np.arange(min(_REFERENCE_POOL, some.n))
    mean = Quadrature(some, np.full(some.n, 1.0 / some.n), "gaussian")
    rows = mean.chosen(pool, min(_REFERENCE_SIZE, len(pool)))
    positions, sample = some.take(rows), points.take(rng.choice(points.n, _REFERENCE_ROWS))
    b = potentials(points, positions)
    v = pivoted_weights(kernel(positions, positions), b)
    assert v is not None
    differences = potentials(points, sample) - kernel(sample, positions) @ v
    return float(v @ b + differences.mean()), float(differences.std(ddof=1) / np.sqrt(len(differences)))


def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Kernel values of scaled positions."""
    return kernel_tile("gaussian", Block(a), Block(b))


def potentials(points: Points, positions: np.ndarray) -> np.ndarray:
    """The mean of the kernel over the data, at scaled positions."""
    block = Block(positions)
    out = np.zeros(len(positions))
    for _, rows in points.blocks(extra_columns=len(positions)):
        out += kernel_tile("gaussian", rows, block).sum(axis=0)
    return out / points.n


def scaled_positions(data: Data, subset: Subset, points: Points) -> np.ndarray:
    """The points of a subset in units of the bandwidth."""
    return points.to_scaled(data.X[subset.indices] if subset.positions is None else subset.positions)


def judged(data: Data, subset: Subset, ref: Reference, seed: int = 0) -> dict[str, Any]:
    """All measures of one subset; the discrepancy also with the best non-negative weights for its points."""
    positions = scaled_positions(data, subset, ref.points)
    b, K = potentials(ref.points, positions), kernel(positions, positions)
    own = subset.weights / ref.points.n
    best = pivoted_weights(K, b)
    found: dict[str, Any] = {"size": len(own)}
    for name, v in (("", own), ("best_", best)):
        if v is None:
            continue
        square = float(v @ (K @ v) - 2.0 * b @ v) + ref.square
        found[f"{name}mmd"] = float(np.sqrt(max(square, 0.0)))
        if not name:
            found["certified"] = certified_error(ref, positions, v, square)
    found["found"] = found_error(data, subset, ref)
    return found | accuracies(data, subset, seed)


def certified_error(ref: Reference, positions: np.ndarray, v: np.ndarray, square: float) -> float:
    """The error that is proved for all queries of the ball; see the module."""
    n, d = ref.points.n, ref.points.d
    radius = ref.ball.radius
    if n > _EXACT_ROWS:
        here = LowOrders.of(Points(positions, np.zeros(d), 1.0, max_norm=np.inf), v)
        return here.error_over(ref.low, square, ref.floor, radius)
    rows = np.concatenate((ref.points.take(np.arange(n)), positions))
    farthest = float(np.linalg.norm(rows, axis=1).max())
    shares = np.concatenate((np.full(n, 1.0 / n), np.zeros(len(v))))
    points = Points(rows, np.zeros(d), 1.0, max_norm=farthest)
    return certify_exact(WeightedSubset(points, shares, np.arange(n, n + len(v)), v, radius, "gaussian")).eps


def found_error(data: Data, subset: Subset, ref: Reference) -> float:
    """The worst relative error that a search finds. Points that are no rows are appended, with weight 0 in the data."""
    n = ref.points.n
    if subset.positions is None:
        core = Coreset(subset.indices, subset.weights, n, ball=ref.ball)
        return audit(data.X, core, max_evaluations=_AUDIT_EVALUATIONS).worst_error
    m = len(subset.positions)
    core = Coreset(np.arange(n, n + m), subset.weights, n + m, ball=ref.ball)
    rows = np.concatenate((data.X, subset.positions.astype(data.X.dtype)))
    weights = np.concatenate((np.ones(n), np.zeros(m)))
    return audit(rows, core, sample_weight=weights, max_evaluations=_AUDIT_EVALUATIONS).worst_error


def labelled(data: Data, subset: Subset) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels to train on; a point that is no row gets the most frequent label of the rows it stands for."""
    if subset.positions is None:
        return data.X[subset.indices], data.y[subset.indices]
    assert subset.groups is not None
    classes, codes = np.unique(data.y, return_inverse=True)
    counts = np.zeros((len(subset.positions), len(classes)))
    np.add.at(counts, (subset.groups, codes), 1.0)
    labels = classes[counts.argmax(axis=1)]
    empty = counts.sum(axis=1) == 0
    if empty.any():  # it stands for no row: its own nearest
        labels[empty] = data.y[nearest(subset.positions[empty].astype(data.X.dtype), data.X)]
    return subset.positions.astype(data.X.dtype), labels


def accuracies(data: Data, subset: Subset, seed: int) -> dict[str, float]:
    """Of a logistic regression on the weighted points, and of the nearest neighbour, on test rows."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    rows, labels = labelled(data, subset)
    kept = subset.weights > 0
    weights = subset.weights * (len(rows) / subset.weights.sum())
    test = np.random.default_rng(seed).permutation(len(data.X_test))[:_TEST_ROWS]
    X_test, y_test = data.X_test[test], data.y_test[test]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rows for many classes, or steps that ran out: for all methods alike
        model = LogisticRegression(max_iter=300, tol=1e-3).fit(rows[kept], labels[kept], sample_weight=weights[kept])
        neighbour = KNeighborsClassifier(1).fit(rows[kept], labels[kept])
    return {"logistic": float(model.score(X_test, y_test)), "neighbour": float(neighbour.score(X_test, y_test))}
