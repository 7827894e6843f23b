r"""Weighted draws from a table of scores: row p is chosen with probability proportional to its score s_p.

They replace :math:`F = \sum_p w_p f_p`, for every non-negative f, by an unbiased sum :math:`\sum_{p \in S} v_p f_p`
over few rows: the input weight is divided by the expected number of times the row is chosen.

* ``iid``: m independent draws, :math:`v_p = w_p t / (m s_p)` for each of them, t the total score. Repeats are merged.
* ``systematic``: inclusion probabilities :math:`\pi_p = \min(1, m s_p / t)`, normalised again until they
  sum to m, one random start along a new random order. Exactly m rows, no repeats, :math:`v_p = w_p / \pi_p`.
* ``keys``: the m smallest of random keys win (:mod:`~coresift.core.keys`). Exactly m rows, whoever reads them.

Only ``iid`` carries the concentration bounds of the sampling theorems. A :class:`DrawTable` is prepared once, in
O(n); ``iid`` and ``systematic`` then cost O(m) and a sort of m rows, ``keys`` O(n).
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError
from .keys import Draw, Floats, check_size, finish_keys, key_candidates

Ints = NDArray[np.signedinteger]

METHODS = ("systematic", "iid", "keys")

_MOST_KEPT = 5_000_000  # rows of which all scores are kept, unless a method is named
_EPS = float(np.finfo(np.float64).eps)
_KEPT_SIZES = 2  # sizes whose capped draws are kept; each holds about 1.75 float64 vectors of n
_MOST_PIECES = 256  # of a line, put in a new order for each systematic draw


def default_method(n_rows: int) -> str:
    """The method where none is named: "systematic", or "keys" for more than five million rows.

    The weights of "systematic" vary least: on data of even sensitivities its errors are a third of those of "keys".
    "keys" needs no table of all rows, which takes about 100 bytes of each. The choice depends on the number of rows
    alone, so that arrays, files and every engine give the same rows.
    """
    return "systematic" if n_rows <= _MOST_KEPT else "keys"


class DrawTable:
    """Scores and weights of n rows, prepared for drawing again and again.

    Parameters
    ----------
    scores, weights : (n,) float64, finite, >= 0
        Sensitivities, or upper bounds of them, of any positive scale, and input weights. Both are zero for the same
        rows: one of positive weight that can never be drawn would bias every estimate.
    order_rng : numpy.random.Generator or None
        Gives the random order of the rows on the line along which ``systematic`` walks: sorted, interleaved or periodic
        labels end up in random places. None keeps the order of the rows, for a draw along strata.

    Notes
    -----
    O(n) time: a permutation, a gather, a cumulative sum. Memory beyond the two inputs: about 22 bytes a row, and as
    much for each of the last two sizes at which some inclusion probability reached one. The inputs are referred to,
    not copied (do not change them), unless the largest score is outside 1e-150 to 1e150.
    """

    def __init__(self, scores: Floats, weights: Floats, order_rng: np.random.Generator | None) -> None:
        drawable = scores > 0
        if not np.array_equal(drawable, weights > 0):
            row = int(np.flatnonzero(drawable != (weights > 0))[0])
            raise InvalidInputError(
                "scores must be positive exactly where weights are; "
                f"row {row} has score {scores[row]} and weight {weights[row]}"
            )
        n_drawable = int(np.count_nonzero(drawable))
        if n_drawable == 0:
            raise InvalidInputError(f"none of the {scores.size} rows has a positive weight: there is nothing to draw")
        self.scores = _of_ordinary_size(scores)
        self.weights = weights
        with np.errstate(over="ignore"):  # infinite only where s/t is too small for the row ever to be met
            self._ratios = np.divide(weights, self.scores, out=np.zeros_like(self.scores), where=drawable)
        self.n_drawable = n_drawable
        kind = np.int32 if scores.size < 2**31 else np.int64
        rows: Ints = np.flatnonzero(drawable).astype(kind)
        if order_rng is not None:
            order_rng.shuffle(rows)
        self._base = _Line(rows, self.scores, is_mixed=order_rng is not None)
        self._largest = float(self.scores.max())
        self._capped: dict[int, tuple[Ints, _Line, Floats]] = {}
        self.n_samples = int(scores.size)

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
        r"""``size`` independent draws with probability s/t; a row drawn c times weighs :math:`c w_p t / (m s_p)`.

        ``size`` may exceed the number of rows. The first m partial sums of m + 1 exponentials, over the
        whole sum, are m sorted uniforms (Rényi), so nothing is sorted before the search.
        """
        check_size(size)
        line = self._base
        spacings = rng.standard_exponential(size + 1)
        at = np.cumsum(spacings, out=spacings)
        at = at[:-1] * (line.total / at[-1])
        rows, counts = np.unique(line.rows.take(line.locate(at)), return_counts=True)
        weights = self._ratios.take(rows)
        weights *= line.total / size
        weights *= counts
        return Draw(rows.astype(np.int64), weights, size)

    def systematic(self, size: int, rng: np.random.Generator) -> Draw:
        r"""Exactly ``size`` distinct rows, row p with probability :math:`\pi_p`, weighted :math:`w_p/\pi_p`.

        Row p owns an interval of length :math:`\pi_p` of a line of integer length, in a random order; the rows that
        own u, u + 1, u + 2, ... for one uniform u are drawn. A size of at least ``n_drawable`` returns every drawable
        row with its own weight. The first draw of a size at which some :math:`m s_p / t` reaches 1 costs O(n + m log
        m); all others O(m log m). The order is drawn once for all rows, and again at each draw for some hundred pieces
        of the line: along one fixed order n equal scores and m a divisor of n would allow only n/m different draws.
        """
        check_size(size)
        if size >= self.n_drawable:
            rows = np.flatnonzero(self.scores > 0)
            return Draw(rows, self.weights[rows], None)
        if size > 1 and size * self._largest >= (1.0 - _slack(self.n_drawable, size)) * self._base.total:
            return self._systematic_capped(size, rng)
        rows = np.sort(self._base.walk(size, rng)).astype(np.int64)
        weights = self._ratios.take(rows)
        weights *= self._base.total / size
        return Draw(rows, weights, None)

    def _systematic_capped(self, size: int, rng: np.random.Generator) -> Draw:
        if size not in self._capped:
            while len(self._capped) >= _KEPT_SIZES:
                del self._capped[next(iter(self._capped))]
            self._capped[size] = _cap(self._base, self.scores, self.weights, size)
        certain, line, weights = self._capped[size]
        rows = np.sort(np.concatenate((certain, line.walk(size - certain.size, rng)))).astype(np.int64)
        return Draw(rows, weights.take(rows), None)

    def keys(self, size: int, seed: int) -> Draw:
        """The ``size`` rows with the smallest keys E/s: the same from any chunks of these rows with this seed.

        O(n) time, two float64 vectors of n. From ``n_drawable`` on, every drawable row with its own weight.
        """
        return finish_keys(key_candidates(self.scores, self.weights, seed, 0, size), size)


class _Line:
    """Rows as neighbouring intervals of length s on [0, total)."""

    def __init__(self, rows: Ints, scores: Floats, is_mixed: bool) -> None:
        self.rows, self.is_mixed = rows, is_mixed
        ends = scores[rows]
        self.ends = np.cumsum(ends, out=ends)
        self.total = float(self.ends[-1])

    @cached_property
    def _guide(self) -> tuple[float, Ints]:
        """Buckets per unit of length, and the number of ends in the buckets before each (Chen and Asau's index table).

        Ends and points get their buckets from one monotone function, so a search that starts at the guide starts at the
        owner or before it, whatever the rounding.
        """
        n_buckets = max(1, self.rows.size // 2)
        per_unit = min(n_buckets / self.total, float(np.finfo(np.float64).max))
        counts = np.bincount((self.ends * per_unit).astype(np.intp))
        return per_unit, np.cumsum(np.concatenate(([0], counts)), dtype=self.rows.dtype)

    def locate(self, at: Floats) -> NDArray[np.intp]:
        """Positions i with ends[i-1] <= at < ends[i], so never an empty interval; points at the total move below it."""
        at = np.minimum(at, np.nextafter(self.total, 0.0))
        per_unit, guide = self._guide
        found = guide.take((at * per_unit).astype(np.intp)).astype(np.intp)
        behind = np.flatnonzero(self.ends.take(found) <= at)
        for _ in range(4):  # a bucket holds two ends on average
            found[behind] += 1
            behind = behind[self.ends.take(found[behind]) <= at[behind]]
        found[behind] = np.searchsorted(self.ends, at[behind], side="right")
        return found

    @cached_property
    def _edges(self) -> Floats:
        """Where the pieces of the line begin and end: about as many rows in each."""
        count = min(_MOST_PIECES, self.rows.size)
        last = np.arange(1, count + 1) * self.rows.size // count - 1
        return np.concatenate(([0.0], self.ends[last]))

    def walk(self, size: int, rng: np.random.Generator) -> Ints:
        """The owners of u, u + step, u + 2 step, ...: distinct if no interval exceeds ``1 - _slack`` steps."""
        start, step = rng.random(), self.total / size
        at = np.arange(size, dtype=np.float64)
        if self.is_mixed:
            # the walk goes along the pieces in a new order; its points are then moved to where the pieces are here
            edges = self._edges
            order = rng.permutation(edges.size - 1)
            ends = np.cumsum(np.diff(edges)[order])
            passed = np.minimum(np.ceil(ends / step - start), size)  # points before the end of each piece
            passed[ends >= (1.0 - 4.0 * _EPS * order.size) * ends[-1]] = size  # nothing is left for empty last pieces
            table = np.empty((3, order.size))
            table[:, order] = passed, np.diff(passed, prepend=0.0), edges[1:][order] - ends
            passed, counts, moves = table[0], table[1].astype(np.intp), table[2]
            at += np.repeat(passed - np.cumsum(counts), counts)
            at = (at + start) * step + np.repeat(moves, counts)
            at = np.clip(at, np.repeat(edges[:-1], counts), np.repeat(np.nextafter(edges[1:], 0.0), counts))
        else:
            at = (at + start) * step
        return self.rows.take(self.locate(at))


def _slack(n: int, size: int) -> float:
    """How close to 1 an inclusion probability counts as 1, so that no walk meets a row twice by rounding.

    In steps of a walk of m points, both a point and the length of an interval are off by at most 2 m eps, the ends of
    k pieces in another order by at most 4 k m eps, and the two sums of n scores that are compared (the sorted tail of
    ``_cap``, the end of the line) differ by at most 2 n eps relatively. Weights use the probability that is then in
    force, so this costs no bias.
    """
    return 16.0 * _EPS * (n + _MOST_PIECES * size)


def _cap(base: _Line, scores: Floats, weights: Floats, size: int) -> tuple[Ints, _Line, Floats]:
    r"""The rows with :math:`\pi = 1`, the line of the others, and w/pi of all n rows; 1 < size < rows of ``base``.

    With the scores descending and :math:`T_k` the sum of all but the k largest, row k + 1 is certain while :math:`(m
    - k) s_{(k+1)} \ge T_k`, and once this fails it fails for the rest. At most m - 1 are taken: an m-th would leave
    no draw to rows whose probability is tiny but not zero, and a single point cannot meet a row twice.
    """
    values = scores[base.rows]
    n = values.size
    split = np.partition(values, n - size)
    ascending = np.sort(split[n - size :])  # only the m largest can be certain
    tails = (split[: n - size].sum() + np.cumsum(ascending))[::-1]  # summed upwards: no cancellation
    remaining = np.arange(size, 0, -1)
    fails = remaining * ascending[::-1] < (1.0 - _slack(n, size)) * tails
    n_certain = min(int(np.argmax(fails)) if fails.any() else size, size - 1)
    free = np.ones(n, dtype=bool)
    if n_certain:
        border = ascending[size - n_certain]
        free[values > border] = False
        tied = np.flatnonzero(values == border)
        free[tied[: n_certain - (n - np.count_nonzero(free))]] = False
    line = _Line(base.rows[free], scores, base.is_mixed)
    scaled = weights.copy()
    with np.errstate(over="ignore", divide="ignore"):  # as in DrawTable
        scaled[line.rows] /= scores[line.rows] / line.total * (size - n_certain)
    return base.rows[~free], line, scaled


def _of_ordinary_size(scores: Floats) -> Floats:
    """The scores, times a power of two if their sum could overflow or quotients underflow; positive stays so."""
    largest = float(scores.max())
    if 1e-150 <= largest <= 1e150:
        return scores
    scaled = np.ldexp(scores, -int(np.frexp(largest)[1]))
    return np.maximum(scaled, np.finfo(np.float64).tiny, where=scores > 0, out=scaled)
