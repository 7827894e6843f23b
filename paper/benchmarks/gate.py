"""A gate for speed: ratios of processor times within one process, compared with those that are committed.

Each ratio compares what we do with the work that cannot be avoided: a pass, a scan, a product. Such ratios are those of
a machine: how fast its memory is beside its arithmetic. So a ratio above ``LIMIT`` times the committed one is only a
suspicion. The code of the commit that was measured then runs here too, in turn with the present code, and
``make bench-gate`` fails if the present code is more than ``LIMIT`` times as slow as that. ``STORE=1 make bench-gate``
stores the ratios and their commit.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from coresift import Preparation, RBFCoreset, select
from coresift._errors import CoresiftError
from coresift.cli.app import Settings

from .foundation import bare_pass
from .measure import HERE, seconds

LIMIT = 1.3
STORED = HERE / "gate.json"
ROOT = HERE.parents[1]
Ratios = dict[str, float]
Work = Callable[[], Any]


def works(folder: Path, n: int = 200_000) -> Iterator[tuple[str, Work, Work]]:
    """The names of ratios, and for each what we do and what it is compared with, on n rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 64))
    single = X.astype(np.float32)
    closed = RBFCoreset(bound="closed-form", random_state=0)
    yield "closed-form fit over a bare pass", lambda: closed.fit(X), lambda: bare_pass(X)
    yield "float32 fit over a bare float64 pass", lambda: closed.fit(single), lambda: bare_pass(X)

    fitted = RBFCoreset(bound="closed-form", random_state=0).fit(X[:, :8])
    permuted = np.random.default_rng(0)
    for method in ("keys", "systematic"):
        draw = lambda method=method: fitted.sample(2000, method=method, random_state=0)  # noqa: E731
        yield f"{method} draw over a permutation", draw, lambda: permuted.permutation(len(X))

    cells = RBFCoreset(bound="cells", random_state=0)
    centres = X[:64].T.copy()
    yield "64 cells over one product", lambda: cells.fit(X[:50_000]), lambda: X[:50_000] @ centres

    from sklearn.cluster import MiniBatchKMeans

    small = RBFCoreset(bound="closed-form", random_state=0).fit(X[:20_000])
    kmeans = MiniBatchKMeans(200, n_init=1, random_state=0)
    refined = lambda: small.sample(200, refine=True, random_state=0)  # noqa: E731
    yield "refine over MiniBatchKMeans", refined, lambda: kmeans.fit(X[:20_000])
    weighted = lambda: small.sample(200, reweight=True, random_state=0)  # noqa: E731
    yield "reweight over one product", weighted, lambda: X[:20_000] @ X[:200].T

    core = RBFCoreset(bound="closed-form", random_state=0).fit(X[:4000]).sample(500, random_state=0)
    yield "exact certificate over a Gram matrix", lambda: core.certify(X[:4000]), lambda: X[:4000] @ X[:4000].T

    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table({f"c{i}": np.ascontiguousarray(single[:, i]) for i in range(16)})
    table = pa.concat_tables([table] * 5)
    file = folder / "t.parquet"
    parquet.write_table(table, file, row_group_size=250_000)

    def scan() -> None:
        for _ in parquet.ParquetFile(file).iter_batches():
            pass

    how: dict[str, Any] = {"bound": "closed-form", "n_queries": 0, "random_state": 0}
    yield "select from Parquet over a scan", lambda: select(file, "1%", **how), scan
    yield "select as it is over a scan", lambda: select(file, "1%", preparation=None, **how), scan
    yield "preparation over a bare pass", lambda: Preparation().fit(table), lambda: bare_pass(single)


def ratios(only: list[str] | None = None) -> Ratios:
    """Measure all ratios, or those that are named; what takes milliseconds is repeated more often."""
    found = {}
    with TemporaryDirectory() as name:
        for what, ours, bare in works(Path(name)):
            if only is None or what in only:
                bare(), ours()  # imports
                once, _ = seconds(ours, bare, repeats=1)
                mine, theirs = seconds(ours, bare, repeats=int(np.clip(1 / max(once, 0.01), 5, 50)))
                found[what] = mine / theirs
    return found


def slower(found: Ratios, stored: Ratios) -> list[str]:
    """Name what is slower than the limit allows."""
    return [what for what, ratio in found.items() if what in stored and ratio > LIMIT * stored[what]]


def git(*arguments: str) -> bytes:
    """Return what Git says of this project; it fails where there is no repository or its history is cut off."""
    said = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    if said.returncode:
        raise CoresiftError(f"git {' '.join(arguments)}: {said.stderr.decode().strip()}")
    return said.stdout


def measured(root: Path, only: list[str]) -> Ratios:
    """Measure ratios with the code of a folder, in a process of its own."""
    code = "import json, sys; from paper.benchmarks import gate; print(json.dumps(gate.ratios(sys.argv[1:])))"
    environment = os.environ | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    command = [sys.executable, "-c", code, *only]
    said = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(said.splitlines()[-1])


def beside(commit: str, only: list[str], rounds: int = 3) -> tuple[Ratios, Ratios]:
    """Measure ratios with the present code and with that of a commit, in turn; the medians of both."""
    with TemporaryDirectory() as name, tarfile.open(fileobj=io.BytesIO(git("archive", commit, "src", "paper"))) as tar:
        tar.extractall(name, filter="data")
        pairs = [[measured(root, only) for root in (ROOT, Path(name))] for _ in range(rounds)]
    now, then = ({what: median(each[what] for each in side) for what in only} for side in zip(*pairs, strict=True))
    return now, then


def keep(found: Ratios) -> None:
    """Store ratios with the commit that they are of."""
    if changed := git("status", "--porcelain", "src", "paper").decode():
        raise CoresiftError(f"commit these first, so that the ratios are those of a commit:\n{changed}")
    commit = git("rev-parse", "HEAD").decode().strip()
    rounded = {what: round(ratio, 3) for what, ratio in found.items()}
    STORED.write_text(json.dumps({"commit": commit, "ratios": rounded}, indent=1) + "\n")


def gate(settings: Settings) -> None:
    """Compare ratios of times with the committed ones, and fail on a regression of more than 30 %."""

    def say(line: str) -> None:
        settings.out.print(line, soft_wrap=True)

    stored = json.loads(STORED.read_text())
    commit, was = stored["commit"], stored["ratios"]
    found = ratios()
    for what, ratio in found.items():
        say(f"{what}: {ratio:.2f} (committed {was.get(what, np.nan):.2f})")
    if os.environ.get("STORE"):
        keep(found)
    elif new := [what for what in found if what not in was]:
        raise CoresiftError(f"no committed ratio of {', '.join(new)}; STORE=1 make bench-gate")
    elif suspects := slower(found, was):
        say(f"Slower than committed: {len(suspects)}. Measuring commit {commit[:7]} here too.")
        now, then = beside(commit, suspects)
        for what in suspects:
            say(f"{what}: {now[what]:.2f} (commit {commit[:7]} here: {then[what]:.2f})")
        if problems := slower(now, then):
            raise CoresiftError(f"slower than commit {commit[:7]} on this machine too: {', '.join(problems)}")
