"""A gate for speed: ratios of processor times within one process, compared with those that are committed.

``make bench-gate`` fails if a ratio is more than ``LIMIT`` times the committed one. ``STORE=1 make bench-gate`` commits
what it finds. Each ratio compares what we do with the work that cannot be avoided: a pass, a scan, a product.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from coresift import Preparation, RBFCoreset, select
from coresift.cli.app import Settings

from .foundation import bare_pass
from .measure import HERE, seconds

LIMIT = 1.3
STORED = HERE / "gate.json"
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


def ratios(repeats: int = 5) -> dict[str, float]:
    """Measure all ratios."""
    found = {}
    with TemporaryDirectory() as name:
        for what, ours, bare in works(Path(name)):
            ours(), bare()  # imports
            mine, theirs = seconds(ours, bare, repeats=repeats)
            found[what] = mine / theirs
    return found


def slower(found: dict[str, float], stored: dict[str, float]) -> list[str]:
    """What is slower than the limit allows, or has no committed ratio."""
    new = [f"{what}: no committed ratio; STORE=1 make bench-gate" for what in found if what not in stored]
    return new + [
        f"{what}: {ratio:.2f}, committed {stored[what]:.2f}"
        for what, ratio in found.items()
        if what in stored and ratio > LIMIT * stored[what]
    ]


def gate(settings: Settings) -> None:
    """Compare ratios of times with the committed ones, and fail on a regression of more than 30 %."""
    found = ratios()
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    for what, ratio in found.items():
        was = f" (committed {stored[what]:.2f})" if what in stored else ""
        settings.out.print(f"{what}: {ratio:.2f}{was}", soft_wrap=True)
    if os.environ.get("STORE"):
        STORED.write_text(json.dumps({what: round(ratio, 3) for what, ratio in found.items()}, indent=1) + "\n")
        return
    if problems := slower(found, stored):
        settings.err.print("\n".join(["bench-gate: slower than committed:", *problems]), soft_wrap=True)
        sys.exit(1)
