"""Grow a subset in rounds, from what a kernel regression on the rows chosen so far does not yet explain."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.linalg import solve
from scipy.spatial.distance import pdist

from .._errors import InvalidInputError
from .._progress import Display, Progress
from ..core.draw import DrawTable
from .bounds import kmeans_centers
from .covering import Floats, Rows, nearest_centers
from .fitting import MEDIAN_SAMPLE

_ROUNDING = 1e-12
_ENTRIES = 1 << 19  # of the kernel computed at once: they stay in the cache
_CELLS = 64  # strata within a class
_MANY = 10  # with this many rows per distinct value, float labels count as classes


@dataclass(frozen=True)
class Growth:
    """How a subset grows; see :class:`coresift.selection.FixedCoreset`."""

    rounds: int = 12
    power: float = 2.0
    mix: float = 0.1
    ridge: float = 0.01
    bandwidth: float | None = None
    max_centers: int = 2000

    def rows(
        self,
        features: Floats,
        targets: Floats | None,
        classes: Rows,
        size: int,
        rng: Generator,
        display: Display = Progress,
    ) -> Rows:
        """Choose ``size`` rows of ``features``; without targets uniformly over the cells."""
        strata = _strata(features, classes, size, rng)
        scaled = _with_norms(features / (self.bandwidth or 0.5 * median_distance(features, rng)))
        chosen, scores = np.zeros(len(features), dtype=bool), np.ones(len(features))
        rounds = min(self.rounds, size) if targets is not None else 1
        progress = display("rounds", rounds, unit="rounds")
        for count in np.diff(np.linspace(0, size, rounds + 1).astype(np.int64)):
            if targets is not None and chosen.any():
                residuals = self._residuals(scaled, targets, np.flatnonzero(chosen), rng)
                scores = (residuals / (residuals.max() or 1.0)) ** self.power
            chosen[self._drawn(scores, chosen, strata, int(count), rng)] = True
            progress(1)
        return np.flatnonzero(chosen)

    def _drawn(self, scores: Floats, chosen: NDArray[np.bool_], strata: Rows, count: int, rng: Generator) -> Rows:
        """Draw ``count`` rows that are not chosen yet, systematically along the strata, in random order inside each."""
        free = np.flatnonzero(~chosen)
        total = float(scores[free].sum())
        shares = np.full(len(free), self.mix / len(free))
        shares += (1 - self.mix) * (scores[free] / total if total > 0 else 1 / len(free))
        order = np.lexsort((rng.random(len(free)), strata[free]))
        table = DrawTable(shares[order], np.ones(len(free)))
        return free[order[table.systematic(count, rng, in_steps=True).indices]]

    def _residuals(self, scaled: NDArray[np.float32], targets: Floats, chosen: Rows, rng: Generator) -> Floats:
        """Distances of the targets from the predictions of the proxy, (n,)."""
        if len(chosen) > self.max_centers:
            chosen = rng.choice(chosen, self.max_centers, replace=False)
        mean, kernel = targets[chosen].mean(axis=0), _gaussian(scaled[chosen], scaled[chosen]).astype(np.float64)
        kernel[np.diag_indices(len(chosen))] += self.ridge  # now positive definite
        slopes = solve(kernel, targets[chosen] - mean, assume_a="pos", overwrite_a=True).astype(np.float32)
        found, step = np.empty(len(scaled)), max(1, _ENTRIES // len(chosen))
        for start in range(0, len(scaled), step):
            block = slice(start, start + step)
            predicted = _gaussian(scaled[block], scaled[chosen]) @ slopes + mean
            found[block] = np.linalg.norm(targets[block] - predicted, axis=1)
        return found


def _with_norms(X: Floats) -> NDArray[np.float32]:
    """Rows in single precision, which scores need no more of, with minus half their squares and a one, (n, d + 2)."""
    return np.column_stack([X, -0.5 * np.einsum("ij,ij->i", X, X), np.ones(len(X))]).astype(np.float32)


def _gaussian(X: NDArray[np.float32], centers: NDArray[np.float32]) -> NDArray[np.float32]:
    """``exp(-|x - c|^2 / 2)``, (n, m), of rows with norms: the exponent is one product."""
    d = X.shape[1] - 2
    exponents = X @ centers[:, [*range(d), d + 1, d]].T
    return np.asarray(np.exp(exponents, out=exponents))


def proxy_targets(labels: NDArray[np.generic], are_classes: bool) -> tuple[Floats, Rows]:
    """Targets of the proxy, (n, k): one-hot for classes, else standardised; and the number of each row's class."""
    if labels.ndim == 1 and are_classes:
        names, classes = np.unique(labels, return_inverse=True)
        if labels.dtype.kind != "f" or _MANY * len(names) <= len(labels):
            return np.eye(len(names))[classes], classes
    values = labels.reshape(len(labels), -1).astype(np.float64)
    if not np.isfinite(values).all():
        raise InvalidInputError("y contains NaN or infinity; the proxy needs finite targets.")
    spread = values.std(axis=0)
    return (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0), np.zeros(len(labels), dtype=np.int64)


def _strata(features: Floats, classes: Rows, size: int, rng: Generator) -> Rows:
    """Number of the stratum of each row, a cell of its class; the strata of a class are consecutive."""
    strata = np.empty(len(features), dtype=np.int64)
    n_classes = int(classes.max()) + 1
    n_cells = max(1, min(_CELLS, size // n_classes))
    for number in range(n_classes):
        rows = np.flatnonzero(classes == number)
        if n_cells == 1 or len(rows) <= n_cells:
            cells = np.zeros(len(rows), dtype=np.int64)
        else:
            sample = rng.choice(rows, min(len(rows), 40 * n_cells), replace=False)
            centers = kmeans_centers(features[sample], n_cells, int(rng.integers(2**31)))
            cells, _ = nearest_centers(features[rows], centers)
        strata[rows] = number * _CELLS + cells
    return strata


def median_distance(features: Floats, rng: Generator) -> float:
    """The median distance of rows that differ, from a sample; 1 if all are equal."""
    sample = features[rng.permutation(len(features))[:MEDIAN_SAMPLE]]
    squares = pdist(sample, "sqeuclidean")
    squares = squares[squares > _ROUNDING * squares.max(initial=0.0)]
    return float(np.sqrt(np.median(squares))) if len(squares) else 1.0
