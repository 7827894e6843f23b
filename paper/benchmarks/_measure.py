"""Times as medians of interleaved repeats, peak memory by tracemalloc, and the page that is made of them."""

from __future__ import annotations

import json
import platform
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE / "RESULTS.md"


@dataclass
class Table:
    """One section of the page: a title, what was done, and rows under a header."""

    title: str
    text: str
    header: list[str]
    rows: list[list[str]]


def seconds(*functions: Callable[[], object], repeats: int = 7) -> list[float]:
    """The least time of each function over interleaved repeats: noise of the machine only ever adds."""
    best = [np.inf] * len(functions)
    for _ in range(repeats):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def peak_bytes(function: Callable[[], object]) -> int:
    """Most memory allocated at a time while the function runs (NumPy reports its arrays to tracemalloc)."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def store(name: str, tables: list[Table]) -> None:
    """Keep the tables of one benchmark and write the page anew from all that were kept."""
    from coresift import __version__

    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept[name] = {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}, one thread",
        "version": __version__,
        "tables": [asdict(table) for table in tables],
    }
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    lines = [
        "# Benchmark results",
        "",
        "Written by `make bench` (`python -m paper benchmark NAME`), one thread. Times here are noisy: "
        "read the ratios, which compare two things in one process.",
    ]
    for key, section in kept.items():
        lines += [
            "",
            f"## {key}",
            "",
            f"{section['when']}; {section['machine']}; coresift {section['version']}.",
        ]
        for table in section["tables"]:
            lines += ["", f"### {table['title']}", "", table["text"], ""]
            lines += ["| " + " | ".join(table["header"]) + " |", "|" + " --- |" * len(table["header"])]
            lines += ["| " + " | ".join(row) + " |" for row in table["rows"]]
    PAGE.write_text("\n".join(lines) + "\n")
