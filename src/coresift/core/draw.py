r"""Weighted draws from a table of scores: row p is chosen with probability proportional to its score s_p.

The input weight is divided by the expected number of times the row is chosen: every weighted sum is unbiased.

* ``iid``: m independent draws, :math:`v_p = w_p t / (m s_p)` for each of them, t the total score. Repeats are merged.
  Only these carry the concentration bounds of the sampling theorems.
* ``systematic``: inclusion probabilities :math:`\pi_p = \min(1, m s_p / t)`, normalised again until they
  sum to m, and one row from each m-th part of the rows. Exactly m rows, no repeats, :math:`v_p = w_p / \pi_p`.
* ``keys``: the m smallest of random keys win (:mod:`~coresift.core.keys`). Exactly m rows, whoever reads them.
"""

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError
from .keys import Draw, Floats, check_size, finish_keys, keys_of, smallest

Ints = NDArray[np.signedinteger]

METHODS = ("systematic", "iid", "keys")

_MOST_KEPT = 5_000_000  # rows of which all scores are kept, unless a method is named
_EPS = float(np.finfo(np.float64).eps)
_KEPT_SIZES = 2  # sizes whose capped draws are kept; each holds a float64 vector of n


def default_method(n_rows: int) -> str:
    """The method where none is named: "keys", which needs no table, for more than five million rows."""
    return "systematic" if n_rows <= _MOST_KEPT else "keys"


class DrawTable:
    """Scores and weights of n rows, prepared in O(n) for draws in O(m log n); ``keys`` cost O(n).

    Both are finite, not negative, and zero for the same rows: one of positive weight that can never be drawn would bias
    every estimate. They are referred to, not copied, unless the largest score is outside 1e-150 to 1e150.
    """

    def __init__(self, scores: Floats, weights: Floats) -> None:
        drawable = scores > 0
        if not np.array_equal(drawable, weights > 0):
            row = int(np.flatnonzero(drawable != (weights > 0))[0])
            what = f"row {row} has score {scores[row]} and weight {weights[row]}"
            raise InvalidInputError(f"scores must be positive exactly where weights are; {what}")
        self.n_samples, self.n_drawable = int(scores.size), int(np.count_nonzero(drawable))
        if self.n_drawable == 0:
            raise InvalidInputError(f"none of the {scores.size} rows has a positive weight: there is nothing to draw")
        largest = float(scores.max())
        if not 1e-150 <= largest <= 1e150:  # their sum could overflow, or quotients underflow; positive stays so
            scores = np.ldexp(scores, -int(np.frexp(largest)[1]))
            np.maximum(scores, np.finfo(np.float64).tiny, where=drawable, out=scores)
        self.scores, self.weights = scores, weights
        self._base = _Line(self.scores)
        self._largest = float(self.scores.max())
        self._capped: dict[int, tuple[Ints, _Line]] = {}

    def draw(self, size: int, method: str, seed_or_rng: np.random.Generator | int) -> Draw:
        """Draw by one of ``METHODS``, from a Generator or a seed; ``keys`` draws its seed from a Generator."""
        if method == "keys":
            if isinstance(seed_or_rng, np.random.Generator):
                seed_or_rng = int(seed_or_rng.integers(2**63))
            return self.keys(size, seed_or_rng)
        if method not in METHODS:
            raise InvalidInputError(f"method={method!r} is unknown; choose one of {', '.join(METHODS)}")
        rng = np.random.default_rng(seed_or_rng)  # a Generator stays what it is
        return self.iid(size, rng) if method == "iid" else self.systematic(size, rng)

    def iid(self, size: int, rng: np.random.Generator) -> Draw:
        """``size`` independent draws with probability s/t, from sorted uniforms; c of them weigh ``c w t / (m s)``."""
        check_size(size)
        spacings = rng.standard_exponential(size + 1)
        at = np.cumsum(spacings, out=spacings)
        rows = self._base.locate(at[:-1] * (self._base.total / at[-1]))
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        weights = self._weights_of(rows[first], self._base.total / size)
        weights *= np.diff(first, append=size)
        return Draw(rows[first], weights, size)

    def systematic(self, size: int, rng: np.random.Generator, *, in_steps: bool = False) -> Draw:
        r"""Exactly ``size`` distinct rows, row p with probability :math:`\pi_p`, weighted :math:`w_p/\pi_p`.

        ``in_steps``: the owners of u, u + 1, ... on a line of m parts, for one uniform u (Madow); more even if
        neighbours are alike.
        """
        check_size(size)
        if size >= self.n_drawable:
            rows = np.flatnonzero(self.scores > 0)
            return Draw(rows, self.weights[rows], None)
        if size == 1 or size * self._largest < (1.0 - _slack(self.n_drawable, size)) * self._base.total:
            rows = self._base.walk(size, rng, in_steps)
            return Draw(rows, self._weights_of(rows, self._base.total / size), None)
        if size not in self._capped:
            while len(self._capped) >= _KEPT_SIZES:
                del self._capped[next(iter(self._capped))]
            self._capped[size] = _cap(self.scores, self.n_drawable, size)
        certain, line = self._capped[size]
        free = line.walk(size - certain.size, rng, in_steps)
        rows = np.concatenate((certain, free))
        weights = np.concatenate((self.weights[certain], self._weights_of(free, line.total / free.size)))
        order = np.argsort(rows)
        return Draw(rows[order], weights[order], None)

    def _weights_of(self, rows: Ints, step: float) -> Floats:
        r"""Weights over inclusion probabilities, :math:`\pi = s` / ``step``."""
        with np.errstate(over="ignore", divide="ignore"):  # infinite only where pi is too small for a row to be met
            return np.asarray(self.weights.take(rows) / (self.scores.take(rows) / step))

    def keys(self, size: int, seed: int) -> Draw:
        """The ``size`` rows with the smallest keys E/s: the same from any chunks of these rows with this seed."""
        check_size(size)
        keys = keys_of(self.scores, seed, 0)
        kept = np.flatnonzero(self.scores > 0)
        kept = kept[smallest(keys[kept], size + 1)]
        return finish_keys(kept, keys[kept], self.scores[kept], self.weights[kept], size)


class _Line:
    """Rows as neighbouring intervals of length s on [0, total); that of a row with score 0 is empty."""

    def __init__(self, scores: Floats) -> None:
        self.ends = np.cumsum(scores)
        self.total = float(self.ends[-1])
        self._parts: tuple[int, Floats] = (0, np.empty((0, 0)))

    def locate(self, at: Floats) -> Ints:
        """Rows i with ends[i-1] <= at < ends[i], so never an empty interval; points at the total move below it."""
        return np.searchsorted(self.ends, np.minimum(at, np.nextafter(self.total, 0.0)), side="right")

    def walk(self, size: int, rng: np.random.Generator, in_steps: bool) -> Ints:
        """One row in each of ``size`` equal parts: ascending, and distinct if none exceeds ``1 - _slack`` parts.

        Deville's systematic sampling: in every part a uniform point is drawn. Only a row on both sides of
        an edge could be met twice: b of it before the edge, a behind. If it was met before (probability b), the point
        behind is uniform on the part without a. If not, its density is ``1/(1-b)`` on a, and on the rest what makes the
        mixture uniform. Variances are at most those of independent draws (Chauvet 2012).
        """
        if in_steps:
            return self.locate((np.arange(size, dtype=np.float64) + rng.random()) * (self.total / size))
        step = self.total / size
        if self._parts[0] != size:
            # of the row on the edge before each part: the edge, its start, end, length behind; and how points move
            edges = np.arange(size, dtype=np.float64) * step
            owners = self.locate(edges)
            starts, ends = np.where(owners > 0, self.ends[owners - 1], 0.0), self.ends[owners]
            stretch = (edges - starts) / np.maximum(step - (ends - starts), _EPS * step)  # b / (1 - a - b)
            last = np.nextafter(np.append(edges[1:], self.total), 0.0)
            self._parts = (size, np.stack((edges, starts, ends, ends - edges, stretch, last)))
        edges, starts, ends, behind, stretch, last = self._parts[1]
        u = rng.random(size)
        fresh = u * (step - (edges - starts))  # uniform, but a is longer by 1/(1-b), and the rest shorter
        beyond = np.maximum(fresh - behind, 0.0)
        fresh += np.multiply(beyond, stretch, out=beyond)
        fresh += edges
        met = np.multiply(u, step - behind, out=u)  # uniform behind a
        met += ends
        np.maximum(met, fresh, out=met)  # but for rounding it is not less anyway
        np.minimum(fresh, last, out=fresh)
        np.minimum(met, last, out=met)
        # whether the row on the next edge is met: whatever came before, or if the one on the edge before was met
        after_fresh, after_met = fresh[:-1] >= starts[1:], met[:-1] >= starts[1:]
        after_met[:1] = after_fresh[:1]
        known = np.maximum.accumulate(np.where(after_fresh == after_met, np.arange(size - 1), 0))
        np.copyto(fresh[1:], met[1:], where=after_fresh.take(known))
        return self.locate(fresh)


def _slack(n: int, size: int) -> float:
    """How close to 1 an inclusion probability counts as 1, so that no walk meets a row twice by rounding: no bias."""
    return 16.0 * _EPS * (n + size)


def _cap(scores: Floats, n_drawable: int, size: int) -> tuple[Ints, _Line]:
    r"""The rows with :math:`\pi = 1`, at most m - 1, and the line of the others; 1 < size < ``n_drawable``.

    Row k + 1 is certain while :math:`(m - k) s_{(k+1)} \ge T_k`, the sum of all scores but the k largest.
    """
    n = scores.size
    split = np.partition(scores, n - size)
    ascending = np.sort(split[n - size :])  # only the m largest can be certain
    tails = (split[: n - size].sum() + np.cumsum(ascending))[::-1]  # summed upwards: no cancellation
    remaining = np.arange(size, 0, -1)
    fails = remaining * ascending[::-1] < (1.0 - _slack(n_drawable, size)) * tails
    n_certain = min(int(np.argmax(fails)) if fails.any() else size, size - 1)
    certain = smallest(-scores, n_certain) if n_certain else np.empty(0, dtype=np.int64)
    free = scores.copy()
    free[certain] = 0.0
    return certain, _Line(free)
