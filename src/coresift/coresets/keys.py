"""Draws by keys over blocks of rows, per group: which rows have the smallest keys, and what goes with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.draw import Draw, KeyCandidates, finish_keys, keys_of, merge_candidates, smallest

_SLACK = 4096  # rows kept above twice what is needed before they are sorted out


def stacked(parts: list[Any]) -> Any:
    """Arrays, or sparse matrices, one below the other."""
    return sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)


class KeyPool:
    """The ``sizes[g] + 1`` smallest keys of every group, with scores, weights and attached columns.

    The keys are those of :func:`coresift.core.draw.keys_of`, functions of the seed and the number of the row: what is
    kept does not depend on blocks, nor on ``bars``, a guess of the largest keys that can win. If a guess was too low,
    :meth:`is_complete` says so. Memory: about three times what is kept in the end.
    """

    def __init__(self, seed: int, sizes: np.ndarray, bars: np.ndarray | None = None) -> None:
        self.seed, self.sizes = seed, sizes
        self.bars = np.full(len(sizes), np.inf) if bars is None else bars.copy()
        self.guessed = bars is not None
        self.counts = np.zeros(len(sizes), dtype=np.int64)  # rows seen that could be drawn
        self._parts: list[dict[str, Any]] = []
        self._pending = 0
        self._is_compact = False
        self._limit = 2 * int(sizes.sum()) + _SLACK

    def update(
        self,
        start: int,
        scores: np.ndarray,
        weights: np.ndarray,
        groups: np.ndarray | None = None,
        **attached: Any,
    ) -> None:
        """Add rows numbered from ``start``; rows of ``attached`` arrays go with them."""
        keys = keys_of(scores, self.seed, start)
        if groups is None:
            self.counts[0] += np.count_nonzero(scores)
            kept = np.flatnonzero((keys <= self.bars[0]) & (scores > 0))
        else:
            self.counts += np.bincount(groups, weights=scores > 0, minlength=len(self.sizes)).astype(np.int64)
            kept = np.flatnonzero((keys <= self.bars[groups]) & (scores > 0))
        if len(kept) == 0:
            return
        part = {name: values[kept] for name, values in attached.items()}
        part |= {"row": kept + start, "key": keys[kept], "score": scores[kept], "weight": weights[kept]}
        part["group"] = (
            np.zeros(len(kept), dtype=np.int32) if groups is None else groups[kept].astype(np.int32)
        )
        self._add(part)

    def merge(self, other: KeyPool, **renumbered: np.ndarray) -> None:
        """Add what was kept of later rows; ``renumbered`` maps the entries of attached columns."""
        self.counts += other.counts
        for part in other._parts:
            self._add({**part, **{name: to[part[name]] for name, to in renumbered.items()}})

    def compact(self) -> None:
        """Keep no more than can win."""
        if self._is_compact or not self._parts:
            return
        columns = self._columns()
        group, key = columns["group"], columns["key"]
        self._is_compact = True
        if len(self.sizes) == 1:
            kept = smallest(key, int(self.sizes[0]) + 1)
            if len(kept) > self.sizes[0]:
                self.bars[0] = min(self.bars[0], float(key[kept].max()))
            self._keep(columns, kept)
            return
        order = np.lexsort((columns["row"], key, group))  # ties by row, as in core.draw
        sizes = np.bincount(group, minlength=len(self.sizes))
        rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        kept = order[rank < self.sizes[group[order]] + 1]
        full = np.flatnonzero(sizes > self.sizes)
        ends = np.cumsum(sizes) - sizes + self.sizes  # where the last of a full group stands in the order
        self.bars[full] = np.minimum(self.bars[full], key[order[ends[full]]])
        self._keep(columns, np.sort(kept))

    def _keep(self, columns: dict[str, Any], kept: np.ndarray) -> None:
        self._parts = [{name: values[kept] for name, values in columns.items()}]
        self._pending = len(kept)

    def is_complete(self) -> bool:
        """Whether every group has as many candidates as it needs, or as it has rows."""
        self.compact()
        found = np.bincount(self.columns()["group"], minlength=len(self.sizes))
        return bool((found >= np.minimum(self.sizes + 1, self.counts)).all())

    def columns(self) -> dict[str, Any]:
        """What is kept, by name, in the order of the rows; empty if there was nothing to keep."""
        self.compact()
        if not self._parts:
            return {name: np.empty(0, dtype=np.int64) for name in ("row", "key", "score", "weight", "group")}
        return self._parts[0]

    def draws(self) -> list[Draw]:
        """The draw of each group."""
        columns = self.columns()
        found = []
        for group, size in enumerate(self.sizes):
            mine = columns["group"] == group
            candidates = KeyCandidates(*(columns[name][mine] for name in ("row", "key", "score", "weight")))
            found.append(finish_keys(merge_candidates([candidates], int(size)), int(size)))
        return found

    def _add(self, part: dict[str, Any]) -> None:
        self._parts.append(part)
        self._is_compact = False
        self._pending += len(part["row"])
        if self._pending > self._limit:
            self.compact()

    def _columns(self) -> dict[str, Any]:
        if len(self._parts) == 1:
            return self._parts[0]
        return {name: stacked([part[name] for part in self._parts]) for name in self._parts[0]}


def guess_bars(
    scores: np.ndarray, inverse_rates: np.ndarray, sizes: np.ndarray, groups: np.ndarray
) -> np.ndarray:
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
