"""What a selection will do, before it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._errors import InvalidInputError
from ..rows.rows import BLOCK_BYTES, CHUNK_BYTES, Rows
from .fitting import Estimator, peek
from .rbf import RBFCoreset

if TYPE_CHECKING:
    from .selecting import Options

_MOST_NAMES = 8  # that are printed
_PROCESS_BYTES = 190e6  # an interpreter with NumPy, SciPy, scikit-learn and PyArrow
# chunks, copies of a block; what readers and products by cells need
_WORK_BYTES = 3 * CHUNK_BYTES + 8 * BLOCK_BYTES + 2e8
_CANDIDATE_BYTES = 3 * 44  # of a row that may win, kept about three times
_TABLE_BYTES = 60  # of a row, where the scores of all rows are kept
_FLOPS = 4e9  # of one core, in products of small matrices
_SMALL = 2e10  # operations of the exact bound that take about a second


@dataclass(frozen=True)
class Plan:
    """Rows, passes, memory and time of a selection."""

    source: Rows
    options: Options
    passes: tuple[str, ...]
    memory: float
    """Bytes, about, of all processes together."""
    seconds: float
    """A rough estimate."""

    def lines(self) -> list[str]:
        """The plan in words."""
        source, options = self.source, self.options
        size = "as many rows as the error needs" if options.budget is None else f"{options.budget:,} rows"
        minutes = f"{self.seconds:.0f} s" if self.seconds < 120 else f"{self.seconds / 60:.0f} min"
        where = f"{options.workers} worker{'s' if options.workers > 1 else ''}, {options.engine}"
        return [
            f"{source.name}: {source.n:,} rows, {source.d} columns, {len(source.files):,} "
            f"file{'s' if len(source.files) > 1 else ''}.",
            *_columns_in_words(source),
            f"Choosing {size}: {options.loss} loss, bound {options.bound}, method {options.method}.",
            f"{len(self.passes)} passes ({', '.join(self.passes)}), {where}; about {self.memory / 1e6:.0f} MB "
            f"of memory and {minutes}.",
        ]

    def as_dict(self) -> dict[str, Any]:
        """The plan for programs."""
        return {
            "rows": self.source.n,
            "columns": self.source.d,
            "features": None if self.source.names is None else list(self.source.names),
            "left_out": dict(self.source.left_out),
            "files": len(self.source.files),
            "budget": self.options.budget,
            "passes": list(self.passes),
            "memory_bytes": int(self.memory),
            "seconds": round(self.seconds, 1),
        }


def _columns_in_words(source: Rows) -> list[str]:
    """Which columns are used and which are not, with the reasons; nothing where columns have no names."""
    if source.names is None:
        return []
    text = f"Columns used: {_shortened(source.names)}."
    reasons: dict[str, list[str]] = {}
    for name, reason in source.left_out.items():
        reasons.setdefault(reason, []).append(name)
    if reasons:
        groups = (f"{_shortened(names)} ({reason})" for reason, names in reasons.items())
        text += f" Left out: {'; '.join(groups)}."
    return [text]


def _shortened(names: Sequence[str]) -> str:
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[: _MOST_NAMES - 2])} ... {names[-1]} ({len(names):,})"


def is_small(estimator: Estimator, source: Rows, per_class: bool) -> bool:
    """Whether the estimator is used on an array: the exact bound is asked for, or takes no more than a second."""
    n, d = source.n, source.d
    if estimator.bound == "exact":
        if estimator.max_exact is not None and n > estimator.max_exact:
            raise InvalidInputError(
                f"bound='exact' compares every row with every other: {n:,} rows exceed {estimator.max_exact:,}. "
                "Use bound='cells'."
            )
        return True
    steps = 10.0 if isinstance(estimator, RBFCoreset) else 1.0
    return estimator.bound == "auto" and not per_class and 4.0 * n * n * (d + 8) * steps <= _SMALL


def make_plan(source: Rows, options: Options, estimator: Estimator) -> Plan:
    """The passes of a selection, its memory and its time."""
    n, d = source.n, source.d
    small = is_small(estimator, source, options.per_class)
    passes = ["survey"]
    if options.bandwidth is None:
        passes.append("farthest row, if the survey leaves it open")
    with_cells = not small and _has_cells(estimator, n, d)
    if with_cells:
        passes.append("cells")
    elif estimator.bound in ("paper", "lemma"):
        passes.append("about six for Lewis weights")
    passes.append("exact sensitivities" if small else "draw" if options.method == "keys" else "sensitivities")
    if options.n_queries:
        passes.append("check")
    n_workers = options.workers if source.is_portable else 1
    processes = 1 + (n_workers if n_workers > 1 else 0)
    kept = (
        options.budget * _CANDIDATE_BYTES if options.method == "keys" and options.budget else n * _TABLE_BYTES
    )
    memory = processes * (_PROCESS_BYTES + _WORK_BYTES) + kept + (n * source.row_bytes if small else 0)
    per_row = peek(source)[1] + 12e-9 + 4e-9 * d
    seconds = len(passes) * n * per_row
    if with_cells:
        k = min(options.n_cells, n)
        seconds += 4.0 * n * k * (min(d, k) + 8) * 10 / _FLOPS
    seconds += options.n_queries * n * (2.0 * d / _FLOPS + 8e-9)
    return Plan(source, options, tuple(passes), memory, seconds / n_workers + (1.5 if n_workers > 1 else 0.0))


def _has_cells(estimator: Estimator, n: int, d: int) -> bool:
    if estimator.bound == "cells":
        return True
    if estimator.bound != "auto":
        return False
    # whether the closed form leaves something to gain is found out by the survey
    return not isinstance(estimator, RBFCoreset) or estimator._cheapest(float("inf"), n, d) == "cells"
