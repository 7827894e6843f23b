"""What a selection will do, before it is done."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._errors import InvalidInputError
from ..rows.rows import BLOCK_BYTES, READ_BYTES, Rows
from .fitting import cheapest, check_exact, first_block, operations
from .options import SelectOptions, parse_budget

_MOST_NAMES = 8  # that are printed
_PROCESS_BYTES = 190e6  # an interpreter with NumPy, SciPy, scikit-learn and PyArrow
# chunks, copies of a block; what readers and products by cells need
_WORK_BYTES = 3 * READ_BYTES + 8 * BLOCK_BYTES + 2e8
_CANDIDATE_BYTES = 3 * 44  # of a row that may win, kept about three times
_TABLE_BYTES = 60  # of a row, where the scores of all rows are kept
_FLOPS = 4e9  # of one core, in products of small matrices


@dataclass(frozen=True)
class Plan:
    """Rows, passes, memory and time of a selection."""

    rows: Rows
    options: SelectOptions
    passes: tuple[str, ...]
    memory: float
    """Bytes, about, of all processes together."""
    seconds: float
    """A rough estimate."""

    def lines(self) -> list[str]:
        """The plan in words."""
        rows, options = self.rows, self.options
        size = "as many rows as the error needs" if options.budget is None else f"{options.budget:,} rows"
        minutes = f"{self.seconds:.0f} s" if self.seconds < 120 else f"{self.seconds / 60:.0f} min"
        where = f"{options.workers} worker{'s' if options.workers > 1 else ''}, {options.engine}"
        return [
            f"{rows.name}: {rows.n:,} rows, {rows.d} columns, {len(rows.files):,} "
            f"file{'s' if len(rows.files) > 1 else ''}.",
            *_columns_in_words(rows),
            f"Choosing {size}: {options.loss} loss, bound {options.bound}, method {options.method}.",
            f"{len(self.passes)} passes ({', '.join(self.passes)}), {where}; about {self.memory / 1e6:.0f} MB "
            f"of memory and {minutes}.",
        ]

    def as_dict(self) -> dict[str, Any]:
        """The plan for programs."""
        return {
            "rows": self.rows.n,
            "columns": self.rows.d,
            "features": None if self.rows.names is None else list(self.rows.names),
            "left_out": dict(self.rows.left_out),
            "files": len(self.rows.files),
            "budget": self.options.budget,
            "passes": list(self.passes),
            "memory_bytes": int(self.memory),
            "seconds": round(self.seconds, 1),
        }


def _columns_in_words(rows: Rows) -> list[str]:
    """Which columns are used and which are not, with the reasons; nothing if columns have no names."""
    if rows.names is None:
        return []
    text = f"Columns used: {_shortened(rows.names)}."
    reasons: dict[str, list[str]] = {}
    for name, reason in rows.left_out.items():
        reasons.setdefault(reason, []).append(name)
    if reasons:
        groups = (f"{_shortened(names)} ({reason})" for reason, names in reasons.items())
        text += f" Left out: {'; '.join(groups)}."
    return [text]


def _shortened(names: Sequence[str]) -> str:
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[: _MOST_NAMES - 2])} ... {names[-1]} ({len(names):,})"


def plan(rows: Rows, options: SelectOptions) -> Plan:
    """What a selection will do, before it is done; refuse what cannot be done with these rows, or in this memory."""
    if options.per_class and not rows.has_labels:
        raise InvalidInputError("per_class needs labels: pass labels, or label, the name of their column.")
    if options.budget is not None:
        options = replace(options, budget=parse_budget(options.budget, rows.n))
    n, d = rows.n, rows.d
    spec = options.estimator().spec()
    # whether the closed form leaves something to gain is found out by the survey
    bound = cheapest(spec, n, d) if spec.bound == "auto" else spec.bound
    if bound == "exact":
        check_exact(spec, n)
    passes = ["survey"]
    if options.bandwidth is None:
        passes.append("farthest row, if the survey leaves it open")
    if bound == "cells":
        passes.append("cells")
    elif bound in ("paper", "lemma"):
        passes.append("about six for Lewis weights")
    passes.append("draw" if options.method == "keys" else "sensitivities")
    if options.n_queries:
        passes.append("check")
    n_workers = options.workers if rows.is_portable else 1
    processes = 1 + (n_workers if n_workers > 1 else 0)
    kept = n * _TABLE_BYTES
    if options.method == "keys" and isinstance(options.budget, int):
        kept = options.budget * _CANDIDATE_BYTES
    loaded = n * rows.row_bytes if bound == "exact" else 0
    memory = processes * (_PROCESS_BYTES + _WORK_BYTES + loaded) + kept
    if options.max_memory is not None and memory > float(options.max_memory):
        raise InvalidInputError(
            f"max_memory = {float(options.max_memory) / 1e6:.0f} MB is less than the {memory / 1e6:.0f} MB that this "
            "needs: use fewer workers, a smaller budget or method='keys'."
        )
    started = time.perf_counter()
    n_read = first_block(rows).n
    per_row = (time.perf_counter() - started) / n_read + 12e-9 + 4e-9 * d
    seconds = len(passes) * n * per_row + operations(bound, spec.loss, n, d, spec.n_cells) / _FLOPS
    seconds += options.n_queries * n * (2.0 * d / _FLOPS + 8e-9)
    return Plan(rows, options, tuple(passes), memory, seconds / n_workers + (1.5 if n_workers > 1 else 0.0))
