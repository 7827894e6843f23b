"""How far a chosen subset is from all rows at a few queries: one pass."""

from __future__ import annotations

import numpy as np

from ..core.points import squared_norms
from ..rows.rows import Block
from .fitting import Sample
from .geometry import Geometry

_SAFE_EXPONENT = 600.0


class QuerySums:
    """Sums of the loss at some queries, over all rows and over the chosen ones with their weights.

    Exponents are taken relative to Jensen's lower bound on the sum at each query, so that the sums over all rows are at
    least their mass and nothing underflows.
    """

    def __init__(
        self, geometry: Geometry, loss: str, queries: np.ndarray, rows: np.ndarray, weights: np.ndarray
    ) -> None:
        self.geometry, self.loss, self.queries = geometry, loss, queries
        self.rows, self.weights = rows, weights
        mass = geometry.mass / geometry.mass.sum()
        # mean square distance of the rows from a query: V + |x - mu|^2, over all groups
        spread = squared_norms(geometry.offsets) + geometry.variances
        squares = mass @ spread - 2.0 * queries @ (mass @ geometry.offsets) + squared_norms(queries)
        self.floor = squares if loss == "gaussian" else np.sqrt(np.maximum(squares, 0.0))
        self.whole, self.part = np.zeros(len(queries)), np.zeros(len(queries))

    @property
    def is_safe(self) -> bool:
        """Whether the exponents stay in the range of floats."""
        return bool(self.floor.max(initial=0.0) < _SAFE_EXPONENT)

    def update(self, block: Block) -> None:
        """Add a block of rows."""
        first, last = np.searchsorted(self.rows, (block.start, block.start + block.n))
        own = self.rows[first:last] - block.start
        points = self.geometry.points(block.X)
        for rows, scaled in points.blocks(extra_columns=2 * len(self.queries), budget=1 << 22):
            exponents = scaled.dot(self.queries)
            exponents *= -2.0
            exponents += squared_norms(self.queries)
            exponents += scaled.sq_norms[:, None]
            np.maximum(exponents, 0.0, out=exponents)
            if self.loss == "laplacian":
                np.sqrt(exponents, out=exponents)
            values = np.exp(np.subtract(self.floor, exponents, out=exponents), out=exponents)
            self.whole += block.weights[rows] @ values
            here = slice(*np.searchsorted(own, (rows.start, rows.stop)))
            self.part += self.weights[first:last][here] @ values[own[here] - rows.start]

    def merge(self, other: QuerySums) -> None:
        """Add the sums over later rows."""
        self.whole += other.whole
        self.part += other.part

    def errors(self) -> np.ndarray:
        """Relative errors at the queries."""
        return np.abs(self.part / self.whole - 1.0)


def random_queries(
    geometry: Geometry, sample: Sample, radius: float, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Queries in scaled coordinates: half uniform in the ball, half rows of the sample, brought into it.

    The Laplacian's queries are all of space; the ball of the data stands for it.
    """
    d = len(geometry.center)
    reach = radius if np.isfinite(radius) else max(geometry.max_norm, 1.0)
    inside = rng.standard_normal((count // 2, d))
    inside *= reach * rng.random((len(inside), 1)) ** (1.0 / d) / np.sqrt(squared_norms(inside))[:, None]
    picks = rng.integers(len(sample.weights), size=count - len(inside))
    rows = geometry.points(sample.X).take(picks)
    norms = np.sqrt(squared_norms(rows))
    rows *= np.minimum(1.0, reach / np.maximum(norms, reach))[:, None]
    return np.concatenate([inside, rows])
