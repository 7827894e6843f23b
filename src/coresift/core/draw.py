r"""Weighted draws, from a table of scores or by keys: row p is chosen with probability proportional to its score s_p.

The input weight is divided by the expected number of times the row is chosen: every weighted sum is unbiased.

* ``iid``: m independent draws, :math:`v_p = w_p t / (m s_p)` for each of them, t the total score. Repeats are merged.
  Only these carry the concentration bounds of the sampling theorems.
* ``systematic``: inclusion probabilities :math:`\pi_p = \min(1, m s_p / t)`, normalised again until they sum to m, and
  one row from each m-th part of the rows. Exactly m rows, no repeats, :math:`v_p = w_p / \pi_p`.
* ``keys``: row p gets the key :math:`E_p / s_p`, E standard exponential, a function of (seed, row) alone; the m
  smallest win. With the (m+1)-th smallest key tau, the weight is :math:`w_p / (1 - e^{-s_p \tau})`: given the other
  keys, p wins if its own is below tau. Exactly m rows, from rows seen once, in blocks, by any number of workers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError
from .points import stacked

Floats = NDArray[np.float64]
Ints = NDArray[np.signedinteger]

METHODS = ("systematic", "iid", "keys")

_MOST_KEPT = 5_000_000  # rows of which all scores are kept, unless a method is named
_EPS = float(np.finfo(np.float64).eps)
_KEPT_SIZES = 2  # sizes whose capped draws are kept; each holds a float64 vector of n
_SEED_LIMIT = 1 << 128  # Philox has a 128-bit key
_GUESSED_FROM = 2048  # rows from which a draw guesses how small the keys are that win
_SLACK = 4096  # rows kept above twice what is needed before they are sorted out


class Draw(NamedTuple):
    """The rows of one draw, strictly increasing, and their weights; ``n_draws`` is m for ``iid``, else None."""

    indices: NDArray[np.int64]
    weights: Floats
    n_draws: int | None


def default_method(n_rows: int) -> str:
    """The method where none is named: "keys", which needs no table, for more than five million rows."""
    return "systematic" if n_rows <= _MOST_KEPT else "keys"


class DrawTable:
    """Scores and weights of n rows, prepared in O(n) for draws in O(m log n); ``keys`` cost O(n).

    Both are finite, not negative, zero for the same rows, but not for all; the largest score is in 1e-150 to 1e150.
    """

    def __init__(self, scores: Floats, weights: Floats) -> None:
        drawable = scores > 0
        if not np.array_equal(drawable, weights > 0):
            row = int(np.flatnonzero(drawable != (weights > 0))[0])
            what = f"row {row} has score {scores[row]} and weight {weights[row]}"
            raise InvalidInputError(f"scores must be positive exactly where weights are; {what}")
        self.n_samples, self.n_drawable = int(scores.size), int(np.count_nonzero(drawable))
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
        rng = np.random.default_rng(seed_or_rng)  # a Generator stays what it is
        return self.iid(size, rng) if method == "iid" else self.systematic(size, rng)

    def iid(self, size: int, rng: np.random.Generator) -> Draw:
        """``size`` independent draws with probability s/t, from sorted uniforms; c of them weigh ``c w t / (m s)``."""
        spacings = rng.standard_exponential(size + 1)
        at = np.cumsum(spacings, out=spacings)
        rows = self._base.locate(at[:-1] * (self._base.total / at[-1]))
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        weights = self._weights_of(rows[first], self._base.total / size)
        weights *= np.diff(first, append=size)
        return Draw(rows[first], weights, size)

    def systematic(self, size: int, rng: np.random.Generator, *, in_steps: bool = False) -> Draw:
        r"""Exactly ``size`` distinct rows, row p with probability :math:`\pi_p`, weighted :math:`w_p/\pi_p`.

        ``in_steps``: in equal steps from one uniform offset (Madow), more even if neighbours are alike.
        """
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
        every = max(1, self.n_samples // _GUESSED_FROM)
        some = self.scores[::every]
        some = some[some > 0]
        guess = guess_bars(some, np.full(some.size, every), np.array([size]), np.zeros(some.size, dtype=np.intp))
        for bar in (guess[0], np.inf):  # the guess may be too low
            kept, keys = keys_below(self.scores, seed, 0, bar)
            if kept.size > min(size, self.n_drawable - 1):
                break
        best = smallest(keys, size + 1)
        kept = kept[best]
        return finish_keys(kept, keys[best], self.scores[kept], self.weights[kept], size)


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

        Deville's systematic sampling: in every part a uniform point is drawn. Only a row on both sides of an edge could
        be met twice: b of it before the edge, a behind. If it was met before (probability b), the point behind is
        uniform on the part without a. If not, its density is ``1/(1-b)`` on a, and on the rest what makes the mixture
        uniform. Variances are at most those of independent draws (Chauvet 2012).
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


def _numbers(seed: int, start: int, stop: int) -> Floats:
    """Whole numbers below 2**52, one for each row, from its own word of a Philox stream."""
    if not 0 <= seed < _SEED_LIMIT:
        raise InvalidInputError(f"seed={seed} is outside 0 ... 2**128 - 1")
    stream = np.random.Philox(key=seed)
    step, skip = divmod(start, 4)
    stream.advance(step)
    words = stream.random_raw(stop - start + skip)[skip:]
    words >>= np.uint64(12)
    return words.view(np.int64).astype(np.float64)  # ten times as fast as from unsigned integers


def keys_below(scores: Floats, seed: int, start: int, bars: Any) -> tuple[NDArray[np.intp], Floats]:
    r"""Positions of the rows, numbered from ``start``, with positive scores and keys of at most ``bars``; these keys.

    The number v of a row stands for :math:`u = (v + 1/2) / 2^{52}` and :math:`E = -\ln u`. If :math:`E/s \le b`, then
    :math:`u \ge e^{-sb} \ge 1 - sb`: the other rows need no logarithm. Scores are within about 1e-290 to 1e290.
    """
    numbers = _numbers(seed, start, start + scores.size)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # 0 times infinity is below nothing
        needed = scores * (-(2.0**52 + 2.0**12) * bars)  # a little more for what is rounded
        needed += 2.0**52 - 1
        near = np.flatnonzero(numbers >= needed)
        s = scores[near]
        keys = -np.log((numbers[near] + 0.5) * 2.0**-52) / s
    kept = (keys <= (bars[near] if np.ndim(bars) else bars)) & (s > 0)
    return near[kept], keys[kept]


def finish_keys(rows: NDArray[np.int64], keys: Floats, scores: Floats, weights: Floats, size: int) -> Draw:
    """The draw from the rows, ascending, of the ``size + 1`` smallest keys: all but the last, whose key is tau."""
    if rows.size <= size:
        return Draw(rows, weights, None)
    last = rows.size - 1 - int(np.argmax(keys[::-1]))
    won = np.arange(rows.size) != last
    return Draw(rows[won], weights[won] / -np.expm1(-scores[won] * keys[last]), None)


def smallest(keys: Floats, count: int) -> NDArray[np.intp]:
    """Positions, ascending, of the ``count`` smallest keys; of equal keys the earlier ones."""
    if keys.size <= count:
        return np.arange(keys.size)
    border = np.partition(keys, count - 1)[count - 1]
    chosen = keys < border
    missing = count - np.count_nonzero(chosen)
    chosen[np.flatnonzero(keys == border)[:missing]] = True
    return np.flatnonzero(chosen)


class KeyPool:
    """The ``sizes[g] + 1`` smallest keys of every group, whatever guess ``bars`` is, unless it was too low."""

    def __init__(self, seed: int, sizes: np.ndarray, bars: np.ndarray | None = None, slack: int = _SLACK) -> None:
        self.seed, self.sizes = seed, sizes
        self.bars = np.full(len(sizes), np.inf) if bars is None else bars.copy()
        self.counts = np.zeros(len(sizes), dtype=np.int64)  # rows seen that could be drawn
        self._parts: list[dict[str, Any]] = []
        self._pending = 0
        self._is_compact = False
        self._limit = 2 * int(sizes.sum()) + slack

    def update(
        self, start: int, scores: np.ndarray, weights: np.ndarray, groups: np.ndarray | None = None, **attached: Any
    ) -> None:
        """Add rows numbered from ``start``; rows of ``attached`` arrays go with them."""
        if groups is None:
            self.counts[0] += np.count_nonzero(scores)
        else:
            self.counts += np.bincount(groups[scores > 0], minlength=len(self.sizes))
        kept, keys = keys_below(scores, self.seed, start, self.bars[0 if groups is None else groups])
        if groups is None and len(kept) > self.sizes[0] + 1:
            best = smallest(keys, int(self.sizes[0]) + 1)
            kept, keys = kept[best], keys[best]
        if len(kept) == 0:
            return
        part = {name: values[kept] for name, values in attached.items()}
        part |= {"row": kept + start, "key": keys, "score": scores[kept], "weight": weights[kept]}
        part["group"] = np.zeros(len(kept), np.int32) if groups is None else groups[kept].astype(np.int32)
        self._add(part)

    def merge(self, other: Self, **renumbered: np.ndarray) -> None:
        """Add what was kept of later rows; ``renumbered`` maps the entries of attached columns."""
        self.counts += other.counts
        for part in other._parts:
            self._add({**part, **{name: to[part[name]] for name, to in renumbered.items()}})

    def compact(self) -> None:
        """Keep only the rows whose keys can win, and lower the bars to them."""
        if self._is_compact or not self._parts:
            return
        columns = self._parts[0]
        if len(self._parts) > 1:
            columns = {name: stacked([part[name] for part in self._parts]) for name in columns}
        kept, key = [np.empty(0, dtype=np.intp)], columns["key"]
        for group in np.unique(columns["group"]):
            mine, size = np.flatnonzero(columns["group"] == group), int(self.sizes[group])
            kept.append(mine[smallest(key[mine], size + 1)])
            if len(kept[-1]) > size:
                self.bars[group] = min(self.bars[group], float(key[kept[-1]].max()))
        chosen = np.sort(np.concatenate(kept))
        self._parts = [{name: values[chosen] for name, values in columns.items()}]
        self._pending, self._is_compact = len(chosen), True

    def is_complete(self) -> bool:
        """Whether every group has as many candidates as it needs, or as it has rows."""
        found = np.bincount(self.columns()["group"], minlength=len(self.sizes))
        return bool((found >= np.minimum(self.sizes + 1, self.counts)).all())

    def columns(self) -> dict[str, Any]:
        """What is kept, by name, in the order of the rows; empty if there was nothing to keep."""
        self.compact()
        if not self._parts:
            return {name: np.empty(0, dtype=np.int64) for name in ("row", "key", "score", "weight", "group")}
        return self._parts[0]

    def winners(self) -> tuple[dict[str, Any], list[Draw]]:
        """The columns of the rows that are drawn, and the draw of each group."""
        columns, draws = self.columns(), []
        for group, size in enumerate(self.sizes.tolist()):
            mine = columns["group"] == group
            row, key, score, weight = (columns[name][mine] for name in ("row", "key", "score", "weight"))
            draws.append(finish_keys(row, key, score, weight, size))
        kept = np.isin(columns["row"], np.concatenate([draw.indices for draw in draws]))
        return {name: values[kept] for name, values in columns.items()}, draws

    def _add(self, part: dict[str, Any]) -> None:
        self._parts.append(part)
        self._is_compact = False
        self._pending += len(part["row"])
        if self._pending > self._limit:
            self.compact()


class KeyDraw:
    """The pass of one draw: ``score`` maps a block to the scores of its rows and to arrays that go with them."""

    def __init__(self, score: Callable[[Any], tuple[Floats, dict[str, Any]]], seed: int, size: int) -> None:
        self.score, self.pool = score, KeyPool(seed, np.array([size]))

    def update(self, block: Any) -> None:
        scores, attached = self.score(block)
        self.pool.update(block.start, scores, block.weights, **attached)

    def merge(self, other: Self) -> None:
        self.pool.merge(other.pool)

    def finish(self) -> tuple[dict[str, Any], Draw]:
        columns, (draw,) = self.pool.winners()
        return columns, draw


def guess_bars(scores: np.ndarray, inverse_rates: np.ndarray, sizes: np.ndarray, groups: np.ndarray) -> np.ndarray:
    r"""Keys b that as many rows as needed pass, :math:`\sum_i r_i (1 - e^{-s_i b})` by a sample, if it is large."""
    bars = np.full(len(sizes), np.inf)
    for group, size in enumerate(sizes):
        mine = groups == group
        s, r = scores[mine], inverse_rates[mine]
        wanted = 1.5 * (size + 1) + 1000
        if len(s) < 500 or wanted > 0.5 * r.sum():
            continue
        low, high = wanted / float(r @ s), 1.0 / s.min()  # since 1 - e^-x <= x, and 0.6 of all rows pass the latter
        while high > 1.05 * low:
            middle = np.sqrt(low) * np.sqrt(high)
            enough = float(-(r @ np.expm1(-s * middle))) >= wanted
            low, high = (low, middle) if enough else (middle, high)
        bars[group] = high
    return bars
