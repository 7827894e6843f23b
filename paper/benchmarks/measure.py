"""Shared by the benchmarks: timing, peak memory, logs of runs, Markdown tables, and the page of results."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from coresift import __version__
from coresift.cli.app import Settings

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE / "RESULTS.md"

Record = dict[str, Any]


@dataclass
class Table:
    """A table of the page: a title, what was done, and rows under a header."""

    title: str
    text: str
    header: list[str]
    rows: list[list[str]]


def table(title: str, text: str, rows: Sequence[Mapping[str, str]]) -> Table:
    """Make a table from rows that name their columns."""
    return Table(title, text, list(rows[0]), [list(row.values()) for row in rows])


def section(name: str, about: str, *makers: Callable[[], Table | None]) -> Callable[[Settings], None]:
    """Make a command that measures tables and writes them to the page."""

    def command(settings: Settings) -> None:
        import torch

        torch.set_num_threads(1)
        found = [make() for make in makers]
        store(name, [each for each in found if each is not None])
        settings.out.print(f"Wrote {PAGE}.", soft_wrap=True)

    command.__doc__ = about
    return command


def seconds(*functions: Callable[[], object], repeats: int = 7) -> list[float]:
    """Return the least processor time of each function over interleaved repeats, since noise only adds."""
    best = [np.inf] * len(functions)
    for _ in range(repeats):
        for i, function in enumerate(functions):
            start = _spent()
            function()
            best[i] = min(best[i], _spent() - start)
    return best


def _spent() -> float:
    """Return the processor seconds of this process and of the children it has waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return processor seconds and the result; for work too long to wait for a quiet machine."""
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def peak_bytes(function: Callable[[], object]) -> int:
    """Return the peak of allocated memory while the function runs (NumPy reports its arrays to tracemalloc)."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def peak_resident_mb() -> float:
    """Return the peak of resident memory of this process; ``ru_maxrss`` would include the parent's."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 1024


def apart(code: str, *arguments: str) -> str:
    """Run Python code in its own process and return what it prints."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def data_dir() -> Path | None:
    """Return the data folder that ``CORESIFT_DATA`` names."""
    return Path(os.environ["CORESIFT_DATA"]) if os.environ.get("CORESIFT_DATA") else None


def mnist_arrays(folder: Path | None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Load MNIST as float32 pixels in [0, 1] and labels, train then test; None where it is absent."""
    if folder is None or not (folder / "mnist" / "train-images-idx3-ubyte.gz").is_file():
        return None
    from coresift.data import load_dataset

    data = load_dataset("mnist", folder)
    parts: Any = (data.train, data.test)
    X, X_test = (p.x.reshape(len(p), -1).astype(np.float32) / 255.0 for p in parts)
    return X, np.asarray(data.train.y), X_test, np.asarray(data.test.y)


class Log:
    """A file of JSON lines: what it holds is not run again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.records: list[Record] = [json.loads(line) for line in lines]

    def find(self, **wanted: Any) -> Record | None:
        """Return the first record with these fields."""
        return next(iter(self.all(**wanted)), None)

    def all(self, **wanted: Any) -> list[Record]:
        """Return all records with these fields."""
        return [r for r in self.records if all(r.get(name) == value for name, value in wanted.items())]

    def add(self, record: Record) -> Record:
        """Append a record."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self.records.append(record)
        return record

    def run_missing(
        self, wanted: Iterable[Record], run: Callable[[Record], Record], part: int = 0, parts: int = 1
    ) -> None:
        """Run what has no record, or every ``parts``-th of it; ``run`` completes the fields it is given."""
        import torch

        torch.set_num_threads(1)
        for number, each in enumerate(wanted):
            if number % parts == part and Log(self.path).find(**each) is None:  # others may append too
                self.add(each | run(each))


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """Write a Markdown table whose first columns are aligned to the left, the others to the right."""
    rule = "|" + "---|" * left + "---:|" * (len(header) - left)
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, *rows)]
    return [lines[0], rule, *lines[1:]]


def store(name: str, tables: list[Table]) -> None:
    """Store the tables of one benchmark and write the page from all that are stored."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept[name] = {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}, one thread",
        "version": __version__,
        "tables": [asdict(each) for each in tables],
    }
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    PAGE.write_text(page(kept))


def page(kept: Mapping[str, Any]) -> str:
    """Write the stored tables as Markdown."""
    lines = [
        "# Benchmark results",
        "",
        "Written by `make bench` (`python -m paper benchmark NAME`), one thread. Times are noisy: read the "
        "ratios, which compare two things in one run, by processor time unless a table says otherwise.",
    ]
    for key, each in kept.items():
        lines += ["", f"## {key}", "", f"{each['when']}; {each['machine']}; coresift {each['version']}."]
        for found in each["tables"]:
            lines += ["", f"### {found['title']}", "", found["text"], ""]
            lines += ["| " + " | ".join(found["header"]) + " |", "|" + " --- |" * len(found["header"])]
            lines += ["| " + " | ".join(row) + " |" for row in found["rows"]]
    return "\n".join(lines) + "\n"
