r"""Draws by keys, for rows that are seen once, in blocks, by any number of workers.

Row p gets the key :math:`E_p / s_p`, E standard exponential; the m smallest win. Given the other keys, p wins when its
own is below the m-th smallest of them, which is the (m+1)-th smallest key tau of all when p does win. So the weight is
:math:`w_p / (1 - e^{-s_p \tau})`. E depends on (seed, row) alone: blocks and workers find the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

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


class KeyCandidates(NamedTuple):
    """Rows that can still win a ``keys`` draw, row numbers ascending, with their keys, scores and weights."""

    rows: NDArray[np.int64]
    keys: Floats
    scores: Floats
    weights: Floats


def exponential_keys(seed: int, start: int, stop: int) -> Floats:
    """Standard exponential variables of rows ``start`` to ``stop - 1``, functions of (seed, row) alone.

    Row i takes word i of the Philox stream with key ``seed`` (Salmon et al., SC 2011), four words a counter step. The
    upper 52 bits and a half make a uniform strictly inside (0, 1), exact at both ends. Equal to the last bit for any
    split of the rows on one NumPy build and kind of processor; elsewhere ``log`` may round differently.
    """
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
    """Keys E/s of the rows numbered from ``start``; infinite where the score is zero.

    Scores outside about 1e-290 to 1e290 leave the range of float64 here; a ``DrawTable`` rescales them first.
    """
    keys = exponential_keys(seed, start, start + scores.size)
    with np.errstate(divide="ignore", over="ignore"):
        keys /= scores
    return keys


def key_candidates(scores: Floats, weights: Floats, seed: int, start: int, size: int) -> KeyCandidates:
    """The ``size + 1`` smallest keys of a chunk of rows numbered from ``start``: no other can win or be tau."""
    check_size(size)
    keys = keys_of(scores, seed, start)
    kept = np.flatnonzero(scores > 0)
    kept = kept[smallest(keys[kept], size + 1)]
    return KeyCandidates(kept + start, keys[kept], scores[kept], weights[kept])


def merge_candidates(parts: Iterable[KeyCandidates], size: int) -> KeyCandidates:
    """The ``size + 1`` smallest keys of the union of disjoint chunks, at least one; in any order and nesting."""
    rows, keys, scores, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    ascending = np.argsort(rows)
    kept = ascending[smallest(keys[ascending], size + 1)]
    return KeyCandidates(rows[kept], keys[kept], scores[kept], weights[kept])


def finish_keys(candidates: KeyCandidates, size: int) -> Draw:
    r"""The draw of the merged candidates: all but the last in (key, row) order, whose key is tau.

    With at most ``size`` candidates every drawable row is among them, and each keeps its own weight.
    """
    rows, keys, scores, weights = candidates
    if rows.size <= size:
        return Draw(rows, weights, None)
    if rows.size > size + 1:
        return finish_keys(merge_candidates([candidates], size), size)
    last = rows.size - 1 - int(np.argmax(keys[::-1]))  # of equal largest keys the highest row number loses
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
    """The ``sizes[g] + 1`` smallest keys of every group, with scores, weights and attached columns.

    The keys are those of :func:`keys_of`, functions of the seed and the number of the row: what is
    kept does not depend on blocks, nor on ``bars``, a guess of the largest keys that can win. If a guess was too low,
    :meth:`is_complete` says so. Memory: about three times what is kept in the end.
    """

    def __init__(self, seed: int, sizes: np.ndarray, bars: np.ndarray | None = None) -> None:
        self.seed, self.sizes = seed, sizes
        self.bars = np.full(len(sizes), np.inf) if bars is None else bars.copy()
        self.counts = np.zeros(len(sizes), dtype=np.int64)  # rows seen that could be drawn
        self._parts: list[dict[str, Any]] = []
        self._pending = 0
        self._is_compact = False
        self._limit = 2 * int(sizes.sum()) + _SLACK

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
        if len(kept) == 0:
            return
        part = {name: values[kept] for name, values in attached.items()}
        part |= {"row": kept + start, "key": keys[kept], "score": scores[kept], "weight": weights[kept]}
        part["group"] = np.zeros(len(kept), np.int32) if groups is None else groups[kept].astype(np.int32)
        self._add(part)

    def merge(self, other: KeyPool, **renumbered: np.ndarray) -> None:
        """Add what was kept of later rows; ``renumbered`` maps the entries of attached columns."""
        self.counts += other.counts
        for part in other._parts:
            self._add({**part, **{name: to[part[name]] for name, to in renumbered.items()}})

    def compact(self) -> None:
        if self._is_compact or not self._parts:
            return
        columns = self._parts[0]
        if len(self._parts) > 1:
            columns = {name: stacked([part[name] for part in self._parts]) for name in columns}
        kept = self._contenders(columns["group"], columns["key"], columns["row"])
        self._parts = [{name: values[kept] for name, values in columns.items()}]
        self._pending, self._is_compact = len(kept), True

    def _contenders(self, group: np.ndarray, key: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Positions, ascending, of the keys that can win; lowers the bars to them."""
        if len(self.sizes) == 1:
            kept = smallest(key, int(self.sizes[0]) + 1)
            if len(kept) > self.sizes[0]:
                self.bars[0] = min(self.bars[0], float(key[kept].max()))
            return kept
        order = np.lexsort((row, key, group))  # ties by row, as in smallest
        sizes = np.bincount(group, minlength=len(self.sizes))
        rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        kept = order[rank < self.sizes[group[order]] + 1]
        full = np.flatnonzero(sizes > self.sizes)
        ends = np.cumsum(sizes) - sizes + self.sizes  # where the last of a full group stands in the order
        self.bars[full] = np.minimum(self.bars[full], key[order[ends[full]]])
        return np.sort(kept)

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
        """What goes with the rows drawn, in their order, and the draw of each group."""
        columns, draws = self.columns(), self.draws()
        kept = np.isin(columns["row"], np.concatenate([draw.indices for draw in draws]))
        return {name: values[kept] for name, values in columns.items()}, draws

    def draws(self) -> list[Draw]:
        columns = self.columns()
        found = []
        for group, size in enumerate(self.sizes):
            mine = columns["group"] == group
            candidates = KeyCandidates(*(columns[name][mine] for name in ("row", "key", "score", "weight")))
            found.append(finish_keys(candidates, int(size)))
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
        """Add a block of rows, with ``start`` and ``weights``."""
        scores, attached = self.score(block)
        self.pool.update(block.start, scores, block.weights, **attached)

    def merge(self, other: KeyDraw) -> None:
        """Add the draw from later rows."""
        self.pool.merge(other.pool)

    def finish(self) -> tuple[dict[str, Any], Draw]:
        """What goes with the rows drawn, and the draw."""
        columns, (draw,) = self.pool.winners()
        return columns, draw


def guess_bars(scores: np.ndarray, inverse_rates: np.ndarray, sizes: np.ndarray, groups: np.ndarray) -> np.ndarray:
    r"""Keys that the winners will hardly exceed, from a sample: row i stands for ``inverse_rates[i]`` rows.

    A bar b is passed by about :math:`\sum_i r_i (1 - e^{-s_i b})` rows; it is set where that is half as much again as
    is needed, and a thousand. A group with too small a sample gets no bar.
    """
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
