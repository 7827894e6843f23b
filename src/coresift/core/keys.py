r"""Draws by keys, for rows that are seen once, in blocks, by any number of workers.

Row p gets the key :math:`E_p / s_p`, E standard exponential, a function of (seed, row) alone; the m smallest win. With
the (m+1)-th smallest key tau, the weight is :math:`w_p / (1 - e^{-s_p \tau})`: given the other keys, p wins if its own
is below tau.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError
from .points import stacked

Floats = NDArray[np.float64]

_SEED_LIMIT = 1 << 128  # Philox has a 128-bit key
_SLACK = 4096  # rows kept above twice what is needed before they are sorted out


class Draw(NamedTuple):
    """The rows of one draw, strictly increasing, and their weights; ``n_draws`` is m for ``iid``, else None."""

    indices: NDArray[np.int64]
    weights: Floats
    n_draws: int | None


def exponential_keys(seed: int, start: int, stop: int) -> Floats:
    """Standard exponentials of rows ``start`` to ``stop - 1``, each from its own word of a Philox stream."""
    if not 0 <= seed < _SEED_LIMIT:
        raise InvalidInputError(f"seed={seed} is outside 0 ... 2**128 - 1")
    stream = np.random.Philox(key=seed)
    step, skip = divmod(start, 4)
    stream.advance(step)
    return _exponentials(stream.random_raw(stop - start + skip)[skip:])


def _exponentials(words: NDArray[np.uint64]) -> Floats:
    words >>= np.uint64(12)
    values = words.astype(np.float64)
    values += 0.5
    values *= 2.0**-52
    np.log(values, out=values)
    return np.negative(values, out=values)


def keys_of(scores: Floats, seed: int, start: int) -> Floats:
    """Keys E/s of the rows numbered from ``start``, infinite where s is zero; s within about 1e-290 to 1e290."""
    keys = exponential_keys(seed, start, start + scores.size)
    with np.errstate(divide="ignore", over="ignore"):
        keys /= scores
    return keys


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
        keys, drawable = keys_of(scores, self.seed, start), scores > 0
        if groups is None:
            self.counts[0] += np.count_nonzero(drawable)
        else:
            self.counts += np.bincount(groups[drawable], minlength=len(self.sizes))
        kept = np.flatnonzero((keys <= self.bars[0 if groups is None else groups]) & drawable)
        if groups is None and len(kept) > self.sizes[0] + 1:
            kept = kept[smallest(keys[kept], int(self.sizes[0]) + 1)]
        if len(kept) == 0:
            return
        part = {name: values[kept] for name, values in attached.items()}
        part |= {"row": kept + start, "key": keys[kept], "score": scores[kept], "weight": weights[kept]}
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
        columns, draws = self.columns(), self.draws()
        kept = np.isin(columns["row"], np.concatenate([draw.indices for draw in draws]))
        return {name: values[kept] for name, values in columns.items()}, draws

    def draws(self) -> list[Draw]:
        columns, found = self.columns(), []
        for group, size in enumerate(self.sizes.tolist()):
            mine = columns["group"] == group
            row, key, score, weight = (columns[name][mine] for name in ("row", "key", "score", "weight"))
            found.append(finish_keys(row, key, score, weight, size))
        return found

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
        low, high = 0.0, 1.0 / s.min()
        for _ in range(60):
            middle = 0.5 * (low + high)
            enough = float(-(r @ np.expm1(-s * middle))) >= wanted
            low, high = (low, middle) if enough else (middle, high)
        bars[group] = high
    return bars


def check_size(size: int) -> None:
    """Refuse to draw nothing."""
    if size < 1:
        raise InvalidInputError(f"size={size} must be at least 1")
