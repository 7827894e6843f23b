"""What a preparation learns from a table: one pass over its columns, merged exactly, and the decisions that follow."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from .._errors import InvalidInputError
from .._validation import LARGEST_MAGNITUDE, check_bool, check_choice, check_instance, check_number
from ..core.draw import KeyPool
from .columns import as_table, categories, flat, hashes, numbers, pa
from .rows import Block

SAMPLE = 2047  # rows whose median stands for that of all rows: it is within 5 % of the middle rank (4 deviations)
_SAMPLE_ENTRIES = 1 << 23  # of a sample: that of a wide table has fewer rows
CYCLES = {"day": 86_400.0, "week": 604_800.0, "year": 31_556_952.0}  # seconds
_SKETCH = 1024  # smallest hashes kept to estimate a number of distinct values, to about 3 %
_MANY = 0.9  # share of distinct values above which a column identifies rows
_FEW_ROWS = 20  # below which nothing is called an id
_PARSED = ("number", "boolean", "date")
_KINDS = (*_PARSED, "one-hot", "hashed", "missing", "left out")
_ID = re.compile(r"(?:^|[^a-z])(?:id|ids|uuid|guid|index)$|[a-z](?:ID|Id)$|^unnamed: \d+$|^__index_level_\d+__$")


@dataclass(frozen=True)
class Column:
    """How one column is read, and why.

    ``kind`` is "number" (``(x - shift) / scale``, missing entries as ``fill``), "boolean" (0 and 1), "date" (seconds as
    a number, and sine and cosine of ``cycles``), "one-hot", "hashed", "missing" (only whether an entry is) or "left
    out". ``has_missing`` adds a feature that is 1 where an entry is missing.
    """

    name: str
    kind: str
    why: str = ""
    shift: float = 0.0
    scale: float = 1.0
    fill: float = 0.0
    has_missing: bool = False
    categories: tuple[str, ...] = ()
    cycles: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse values that no pass could have found."""
        check_choice(self.kind, "kind", _KINDS)
        check_bool(self.has_missing, "has_missing")
        for name in ("shift", "scale", "fill"):
            check_number(getattr(self, name), name, at_least=-LARGEST_MAGNITUDE, at_most=LARGEST_MAGNITUDE)
        for word in (self.name, self.why, *self.categories):
            check_instance(word, "text of a column", str)
        for cycle in self.cycles:
            check_choice(cycle, "cycles", tuple(CYCLES))
        if self.scale <= 0 or len(set(self.categories)) < len(self.categories):
            raise InvalidInputError(f"column {self.name!r} has a scale of {self.scale}, or categories twice")


class Distinct:
    """An estimate of the number of distinct values from the smallest of their hashes; exact up to ``_SKETCH``."""

    def __init__(self) -> None:
        self.smallest = np.zeros(0, dtype=np.uint64)

    def add(self, hashed: np.ndarray) -> None:
        if len(self.smallest) == _SKETCH:
            hashed = hashed[hashed < self.smallest[-1]]
        if len(hashed):
            self.smallest = np.union1d(self.smallest, hashed)[:_SKETCH]

    def count(self) -> float:
        if len(self.smallest) < _SKETCH:
            return float(len(self.smallest))
        return (_SKETCH - 1) * 2.0**64 / float(self.smallest[-1])


@dataclass
class _Text:
    """What is known of a column of text, or of one that is to be read as categories."""

    most: int
    parses_as: tuple[str, ...]  # readings that no entry has contradicted
    n_parsed: int = 0  # entries seen while it was read as something else than names
    names: set[str] | None = field(default_factory=set)  # None: more than ``most``
    distinct: Distinct = field(default_factory=Distinct)
    n: int = 0
    fingerprint: int = 0

    def add(self, names: set[str] | None, hashed: np.ndarray) -> None:
        self.distinct.add(hashed)
        both = None if self.names is None or names is None else self.names | names
        self.names = None if both is None or len(both) > self.most else both

    def merge(self, other: Self) -> None:
        self.parses_as = tuple(kind for kind in self.parses_as if kind in other.parses_as)
        self.n_parsed += other.n_parsed
        self.add(other.names, other.distinct.smallest)
        self.n += other.n
        self.fingerprint = (self.fingerprint + other.fingerprint) % 2**64


class TableSummary:
    """A pass over the raw columns of a table: moments, range, a sample, distinct values, and how text can be read."""

    def __init__(self, kinds: dict[str, str | None], max_categories: int, categorical: tuple[str, ...] = ()) -> None:
        self.kinds, c = kinds, len(kinds)
        self.text = {
            name: _Text(max_categories, () if name in categorical else _PARSED)
            for name, kind in kinds.items()
            if kind == "text" or name in categorical
        }
        self.n = 0
        self.counts, self.mean, self.scatter = np.zeros(c), np.zeros(c), np.zeros(c)
        self.low, self.high = np.full(c, np.inf), np.full(c, -np.inf)
        self.is_whole, self.is_rising = np.ones(c, dtype=bool), np.ones(c, dtype=bool)
        self.first, self.last = np.full(c, np.nan), np.full(c, np.nan)
        self.fingerprints = np.zeros(c)
        self.distinct: defaultdict[int, Distinct] = defaultdict(Distinct)  # of columns of whole numbers
        size = min(SAMPLE, max(SAMPLE // 8, _SAMPLE_ENTRIES // max(c, 1)))
        self.sample = KeyPool(0, np.array([size]), slack=size)

    def update(self, block: Block) -> None:
        table, n = as_table(block.X), block.n
        rows = _mixed(np.arange(block.start, block.start + n, dtype=np.uint64))  # factors of fingerprints
        values = np.empty((n, len(self.kinds)), order="F")
        for i, (name, kind) in enumerate(self.kinds.items()):
            array = flat(table.column(name))
            if name in self.text:
                found = self._parsed(array, self.text[name])
                values[:, i] = np.nan if found is None else found
                if found is None:
                    text, (codes, names) = self.text[name], categories(array)
                    hashed = _mixed(hashes(names).astype(np.uint64)) if names else np.zeros(0, dtype=np.uint64)
                    text.add(set(names), hashed)
                    text.n += int(np.count_nonzero(codes >= 0))
                    each = np.append(hashed, np.uint64(0))[codes]
                    each ^= each >> np.uint64(32)  # products modulo 2**64 lose the high bits
                    text.fingerprint = (text.fingerprint + int(each @ rows)) % 2**64
            else:
                values[:, i] = np.nan if kind is None else numbers(array, kind)
        self._add_values(values, rows)
        self.sample.update(block.start, np.ones(n), np.ones(n), X=values)
        self.n += n

    def _parsed(self, array: Any, text: _Text) -> np.ndarray | None:
        if len(array) == array.null_count:
            return np.full(len(array), np.nan)
        for kind in text.parses_as:
            try:
                values = numbers(array, kind)
            except pa.ArrowInvalid:
                continue
            text.parses_as, text.n_parsed = (kind,), text.n_parsed + len(array) - array.null_count
            return values
        text.parses_as = ()
        return None

    def _add_values(self, values: np.ndarray, rows: np.ndarray) -> None:
        low, high = values.min(axis=0), values.max(axis=0)  # NaN where entries are missing
        is_full, c = ~np.isnan(low), len(self.kinds)
        counts, mean, scatter, fingerprints = np.zeros(c), np.zeros(c), np.zeros(c), np.zeros(c)
        factors = rows * 2.0**-64
        for i, column in enumerate(values.T):  # equal columns have equal sums, to the last bit
            known, own = column, factors
            if not is_full[i]:
                is_known = ~np.isnan(column)
                known, own = column[is_known], factors[is_known]
                low[i], high[i] = known.min(initial=np.inf), known.max(initial=-np.inf)
            counts[i], mean[i] = len(known), known.mean() if len(known) else 0.0
            way = known - mean[i]
            scatter[i], fingerprints[i] = way @ way, way @ own
        is_rising = np.zeros(c, dtype=bool)
        start = values[:64]
        self.is_whole &= ((start == np.rint(start)) | np.isnan(start)).all(axis=0)  # most that are not show it here
        for i in map(int, np.flatnonzero(self.is_whole)):
            known = values[:, i] if is_full[i] else values[~np.isnan(values[:, i]), i]
            self.is_whole[i] = bool((known == np.rint(known)).all())
            if self.is_whole[i]:
                is_rising[i] = is_full[i] and self.is_rising[i] and bool((np.diff(known) > 0).all())
                self.distinct[i].add(_mixed((known + 0.0).view(np.uint64)))
        self._combine(counts, mean, scatter, low, high, is_rising, values[0], values[-1], fingerprints)

    def _combine(self, counts: Any, mean: Any, scatter: Any, low: Any, high: Any, is_rising: Any, first: Any,
                 last: Any, fingerprints: Any) -> None:  # fmt: skip
        """Add the moments of later rows, by the formula of Chan, Golub and LeVeque."""
        total = self.counts + counts
        share, way = counts / np.maximum(total, 1.0), mean - self.mean
        self.scatter += scatter + (1.0 - share) * counts * way**2
        self.mean += share * way
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        self.is_rising &= is_rising & (np.isnan(self.last) | (self.last < first)) & (self.counts == self.n)
        self.first, self.last = np.where(self.counts > 0, self.first, first), last
        self.counts, self.fingerprints = total, self.fingerprints + fingerprints

    def merge(self, other: Self) -> None:
        self.is_whole &= other.is_whole
        for i, theirs in other.distinct.items():
            self.distinct[i].add(theirs.smallest)
        for name, text in self.text.items():
            text.merge(other.text[name])
        self._combine(other.counts, other.mean, other.scatter, other.low, other.high, other.is_rising, other.first,
                      other.last, other.fingerprints)  # fmt: skip
        self.sample.merge(other.sample)
        self.n += other.n

    @property
    def unsettled(self) -> tuple[str, ...]:
        """Columns that began as numbers, truth values or dates and then were not: a second pass reads them as names."""
        return tuple(name for name, text in self.text.items() if text.n_parsed and not text.parses_as)

    def decide(self, named: tuple[str, ...] = ()) -> list[Column]:
        """How each column is read. Columns that are ``named`` are left out only if they are empty or unreadable."""
        found: list[Column] = []
        seen: dict[Any, str] = {}
        for i, (name, kind) in enumerate(self.kinds.items()):
            is_names = name in self.text and not self.text[name].parses_as
            column = self._of_names(name, name in named) if is_names else self._of_numbers(i, name, name in named)
            numeric = (self.counts[i], self.mean[i], self.low[i], self.high[i], self.fingerprints[i])
            key = self.text[name].fingerprint if is_names else numeric
            if kind is None:
                column = Column(name, "left out", "a type that is not read; lists of numbers are named as an embedding")
            elif column.kind != "left out" and name not in named and seen.setdefault(key, name) != name:
                column = Column(name, "left out", f"the same as {seen[key]!r}")
            found.append(column)
        return found

    def _of_names(self, name: str, is_named: bool) -> Column:
        text = self.text[name]
        missing, count = self.n - text.n, min(text.distinct.count(), float(text.n))
        if text.n == 0:
            return Column(name, "left out", "empty")
        if not is_named and count == 1 and not missing:
            return Column(name, "left out", f"constant: {min(text.names or ()):.40}")
        if not is_named and count > _MANY * text.n and text.n >= _FEW_ROWS:
            return Column(name, "left out", f"an id or free text: about {count:,.0f} values in {text.n:,} rows")
        why = f"{count:,.0f} values{_and_missing(missing)}"
        if text.names is None:
            return Column(name, "hashed", f"about {why}", has_missing=missing > 0)
        return Column(name, "one-hot", why, has_missing=missing > 0, categories=tuple(sorted(text.names)))

    def _of_numbers(self, i: int, name: str, is_named: bool) -> Column:
        count, kind = float(self.counts[i]), self.text[name].parses_as[0] if name in self.text else self.kinds[name]
        missing, low, high = int(self.n - count), float(self.low[i]), float(self.high[i])
        if count == 0:
            return Column(name, "left out", "empty")
        if low == high and not is_named:
            if missing:
                return Column(name, "missing", f"always {low:g} where it is not missing", has_missing=True)
            return Column(name, "left out", f"constant: {low:g}")
        if kind == "number" and self.is_whole[i] and not is_named and count >= _FEW_ROWS:
            is_id, differs = _ID.search(name.lower()) or _ID.search(name), self.distinct[i].count() > _MANY * count
            if differs and (is_id or self.is_rising[i] or high - low + 1.0 == count):
                return Column(name, "left out", "an id: whole numbers that differ from row to row")
        sampled = self.sample.columns()["X"][:, i]
        sampled = sampled[~np.isnan(sampled)]
        fill = float(np.median(sampled)) if len(sampled) else float(self.mean[i])
        why = f"{low:g} to {high:g}{_and_missing(missing)}"
        if kind == "boolean":
            return Column(name, "boolean", f"true or false{_and_missing(missing)}", 0, 1, round(fill), missing > 0)
        way, share = fill - self.mean[i], missing / self.n  # moments once missing entries are filled in
        mean = float(self.mean[i] + share * way)
        scatter = float(self.scatter[i] + (1.0 - share) * missing * way**2)
        scale = float(np.sqrt(scatter / self.n)) or 1.0
        cycles: tuple[str, ...] = ()
        if kind == "date":
            first, last = (np.datetime64(int(edge), "s") for edge in (low, high))
            why = f"{first} to {last}{_and_missing(missing)}".replace("T00:00:00", "")
            cycles = tuple(name for name, t in CYCLES.items() if high - low >= t and len(np.unique(sampled % t)) > 1)
        return Column(name, str(kind), why, mean, scale, fill, missing > 0, cycles=cycles)


def _and_missing(count: int) -> str:
    return f", {count:,} missing" if count else ""


def _mixed(words: np.ndarray) -> np.ndarray:
    """SplitMix64: spread 64-bit words evenly."""
    z = words + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
