"""``python -m tools.fuzz_files --cases 1000 [--seed 0] [--reader NAME ...] [--record FILE]``.

So many damaged files for each reader, and once the hostile ones. A child process reads them, with a limit on its
memory; one that dies or hangs is replaced, and the file that did it is reported. Ends with code 1 if anything is wrong.

To see one case again: ``--reader NAME --only NUMBER``, with the same seed.
"""

from __future__ import annotations

import argparse
import collections
import json
import logging
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from .examine import Bench, judged
from .hostile import HOSTILE
from .readers import READERS

HANG = 300.0  # seconds without a word from the child; a busy machine may take its time
ROOM = 4 << 30  # bytes of address space that the child may take beside what it has at its start

Case = tuple[str, int]  # the name of a reader, or "hostile"; and a number


def main() -> int:
    """Run, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200, help="damaged files for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", action="append", help="only this one; may be given several times")
    parser.add_argument("--only", type=int, help="only the case of this number")
    parser.add_argument("--record", type=Path, help="a JSON file for the counts")
    chosen = parser.parse_args()
    names = chosen.reader or ["hostile", *(reader.name for reader in READERS)]
    known = {"hostile", *(reader.name for reader in READERS)}
    if unknown := [name for name in names if name not in known]:
        parser.error(f"unknown reader {unknown[0]!r}; there are {', '.join(sorted(known))}")
    numbers = range(chosen.cases) if chosen.only is None else [chosen.only]
    cases = [(name, number) for name in names for number in (range(len(HOSTILE)) if name == "hostile" else numbers)]
    started = time.monotonic()
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    problems = 0
    for (name, number), kind, text in results(cases, chosen.seed):
        counts[name][kind] += 1
        if kind == "bad":
            problems += 1
            what = HOSTILE[number].name if name == "hostile" else f"case {number}"
            print(f"{name}, {what}: {text}", flush=True)
        elif chosen.only is not None:
            print(f"{name}, case {number}: {kind}: {text}")
    total = sum(sum(count.values()) for count in counts.values())
    print(f"{total} files, {problems} problems, {time.monotonic() - started:.0f} s")
    if chosen.record is not None:
        record(chosen.record, chosen.seed, counts, time.monotonic() - started)
    return 1 if problems else 0


def record(path: Path, seed: int, counts: dict[str, collections.Counter[str]], seconds: float) -> None:
    """Write how many files were refused and how many were read, by reader."""
    kinds = ("refused", "read", "bad")
    found: dict[str, Any] = {"seed": seed, "seconds": round(seconds)}
    found["files"] = {name: {kind: count[kind] for kind in kinds} for name, count in counts.items()}
    found["total"] = {kind: sum(count[kind] for count in counts.values()) for kind in kinds}
    path.write_text(json.dumps(found, indent=1) + "\n")


def results(cases: list[Case], seed: int) -> Iterator[tuple[Case, str, str]]:
    """The outcome of each case, from children that are replaced when they end before their time."""
    waiting = list(cases)
    while waiting:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _serve(waiting, seed, writing)
        os.close(writing)
        done = 0
        with os.fdopen(reading) as lines:
            while done < len(waiting):
                if not select.select([lines], [], [], HANG)[0]:
                    os.kill(child, signal.SIGKILL)
                    yield waiting[done], "bad", f"hangs: no end after {HANG:.0f} s"
                    done += 1
                    break
                line = lines.readline()
                if not line:
                    break
                kind, text = json.loads(line)
                yield waiting[done], kind, text
                done += 1
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status not in (0, -signal.SIGKILL) and done < len(waiting):
            yield waiting[done], "bad", f"the process ended with code {status}"
            done += 1
        waiting = waiting[done:]


def _serve(cases: list[Case], seed: int, pipe: int) -> None:
    """The child: one line for each case, then the end."""
    code = 1
    try:
        logging.getLogger("coresift").addHandler(logging.NullHandler())
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with os.fdopen(pipe, "w", buffering=1) as answers, tempfile.TemporaryDirectory() as folder:
            for outcome in _outcomes(cases, seed, Path(folder)):
                answers.write(json.dumps(outcome) + "\n")
        code = 0
    except BaseException as error:
        sys.stderr.write(f"the child failed: {type(error).__name__}: {error}\n")
    finally:
        sys.stderr.flush()
        os._exit(code)


def _outcomes(cases: list[Case], seed: int, folder: Path) -> Iterator[tuple[str, str]]:
    readers = {reader.name: reader for reader in READERS}
    bench: Bench | None = None
    for name, number in cases:
        if name == "hostile":
            yield hostile_outcome(number, folder)
            continue
        if bench is None or bench.reader.name != name:
            bench = Bench(readers[name], folder / name.replace(" ", "-"))
        yield bench.case(seed, number)


def hostile_outcome(number: int, folder: Path) -> tuple[str, str]:
    """A hostile file must be refused, or be read as what it is where that harms nobody."""
    case = HOSTILE[number]
    place = folder / f"hostile-{number}" / "inner"
    place.mkdir(parents=True)
    path = case.make(place)
    own = place / case.reader.writes if case.reader.writes is not None else path

    def files() -> set[Path]:
        return {found for found in place.parent.rglob("*") if own not in found.parents}

    before = files()
    kind, text = judged(replace(case.reader, is_checked=False), path)
    if strange := files() ^ before:
        return "bad", f"files came or went: {sorted(map(str, strange))[:5]}"
    if kind == "read" and not case.may_be_read:
        return "bad", "was read"
    return kind, text


if __name__ == "__main__":
    sys.exit(main())
