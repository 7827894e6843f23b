"""One damaged file, one reader, and what is wrong with how it ended; if anything is."""

from __future__ import annotations

import os
import resource
import shutil
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from coresift._errors import CoresiftError

from .mutate import mutated
from .readers import Reader

MOST_SECONDS = 20.0  # of processor time, for a file of a few kilobytes
MOST_GROWTH = 600 << 20  # bytes of resident memory, for the same


@dataclass
class Bench:
    """A reader with its valid files, and room for damaged ones."""

    reader: Reader
    folder: Path
    expected: object = None
    content: bytes = b""
    target: Path = field(default_factory=Path)

    def __post_init__(self) -> None:
        valid, trial = self.folder / "valid", self.folder / "trial"
        valid.mkdir(parents=True)
        path = self.reader.make(valid)
        self.content = path.read_bytes()
        shutil.copytree(valid, trial)
        self.target = trial / path.relative_to(valid)
        with quiet():
            self.expected = self.reader.read(self.target)
        self._reset()

    def _reset(self) -> None:
        if self.reader.writes is not None:
            shutil.rmtree(self.folder / "trial")
            shutil.copytree(self.folder / "valid", self.folder / "trial")

    def case(self, seed: int, number: int) -> tuple[str, str]:
        """Damage the file by the seed and the number of a case, and read it: see :meth:`attempt`."""
        name = np.frombuffer(self.reader.name.encode(), np.uint8)
        content = mutated(self.content, np.random.default_rng([seed, number, *name.tolist()]))
        return self.attempt(content)

    def attempt(self, content: bytes) -> tuple[str, str]:
        """Read the file with this content. ("refused" or "read", message), or ("bad", what is wrong)."""
        self._reset()
        self.target.write_bytes(content)
        before = self._files()
        outcome = judged(self.reader, self.target, self.expected, same=content == self.content)
        if outcome[0] != "bad" and (strange := self._files() ^ before):
            return "bad", f"files came or went: {sorted(strange)[:5]}"
        return outcome

    def _files(self) -> set[str]:
        own = None if self.reader.writes is None else self.folder / "trial" / self.reader.writes
        return {
            f"{path.relative_to(self.folder)} {path.stat().st_size}"
            for path in self.folder.rglob("*")
            if path.is_file() and (own is None or own not in path.parents)
        }


def judged(reader: Reader, path: Path, expected: object = None, *, same: bool = False) -> tuple[str, str]:
    """How reading a file ended, in a word, and in a sentence."""
    started, high = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with quiet():
            found = reader.read(path)
        outcome = "read", ""
        if reader.is_checked and not same and found != expected:
            outcome = "bad", "something else was read than was written"
    except (CoresiftError, OSError) as error:
        text = str(error)
        place = path if reader.writes is None else path.parent  # of a run, its folder says enough
        outcome = ("refused", text) if os.fspath(place) in text else ("bad", f"does not name the file: {text}")
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        frames = traceback.extract_tb(error.__traceback__)[-6:]
        where = " ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
        text = f"{type(error).__name__}: {str(error)[:300]} (at {where})"
        outcome = "bad", text
    spent = time.process_time() - started
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - high) << 10
    if spent > MOST_SECONDS:
        outcome = "bad", f"took {spent:.0f} s"
    elif growth > MOST_GROWTH:
        outcome = "bad", f"took {growth / 1e6:.0f} MB more memory"
    return outcome


class quiet(warnings.catch_warnings):
    """Warnings are errors: none may escape."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("error")
