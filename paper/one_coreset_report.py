"""The outcome of :mod:`~paper.one_coreset` as a table: Markdown, JSON, and cells for a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coresift.coresets.files import write_whole

from .one_coreset import Line, Outcome

_FORMAT = "coresift.one-coreset"


def as_json(outcome: Outcome) -> str:
    """All runs, and the table."""
    about = {"format": _FORMAT, **asdict(outcome)}
    return json.dumps({**about, "table": [asdict(line) for line in outcome.lines]}, indent=1) + "\n"


def write(outcome: Outcome, path: Path) -> Path:
    """The report as ``.md`` or ``.json``, whole or not at all."""
    text = as_json(outcome) if path.suffix == ".json" else as_markdown(outcome)
    write_whole(path, lambda file: file.writelines([text.encode()]))
    return path


HEADINGS = ("network", "epochs", "method", "accuracy", "range", "selection", "training")


def cells(line: Line) -> tuple[str, ...]:
    """A line of the table as text, under :data:`HEADINGS`."""
    spread = f"{line.lowest:.2%} to {line.highest:.2%}" if line.n_seeds > 1 else "one seed"
    return (
        line.network,
        str(line.epochs),
        line.method,
        f"{line.accuracy:.2%}",
        spread,
        f"{line.selection:.2f} s",
        f"{line.training:.1f} s",
    )


def amortised(outcome: Outcome) -> str:
    """What one fit costs, and what it would have cost to fit for every network."""
    n = len({run.network for run in outcome.runs})
    return (
        f"One fit ({outcome.bound}) took {outcome.fit_seconds:.2f} s and serves all {n} networks: "
        f"{outcome.fit_seconds / n:.2f} s each. Total sensitivity {outcome.total_sensitivity:.3g}, largest over mean "
        f"{outcome.uniform_factor:.3g}."
    )


def as_markdown(outcome: Outcome) -> str:
    """The table, with a sentence on what it shows."""
    share = outcome.size / outcome.n_samples
    n_seeds = outcome.lines[0].n_seeds
    text = [
        f"# One coreset for all networks: {outcome.dataset}",
        "",
        f"{outcome.size:,} of {outcome.n_samples:,} samples ({100 * share:.3g} %), means of {n_seeds} seeds. "
        "R: epochs between two draws. Seconds are the processor's, of one run; the first network pays for the fit.",
        "",
        *_table(HEADINGS, map(cells, outcome.lines)),
        "",
        amortised(outcome),
        "",
        f"Made by coresift {outcome.version}.",
    ]
    return "\n".join(text) + "\n"


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    left = ("network", "method")
    rule = ["---" if name in left else "---:" for name in headings]
    lines: list[Any] = [headings, rule, *rows]
    return [f"| {' | '.join(line)} |" for line in lines]
