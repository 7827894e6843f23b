"""How processor time grows with rows and columns: each operation at n, 2n, 4n rows, and at d, 2d columns.

The exponent in n is the slope of a line through the three times, in logarithms. A statement of cost is an upper bound:
an exponent may be smaller, where a constant part still shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from coresift import (
    KMeansCoreset,
    LaplacianCoreset,
    LeastSquaresCoreset,
    LinearCoreset,
    Preparation,
    RBFCoreset,
    StreamingCoreset,
    audit,
    certify_model,
    l1_svd,
    nested_coresets,
    select,
)
from coresift.selection import SelectionContext, strategy_named
from paper.networks import RBFNetworkCoreset

from .measure import Table, seconds, section, table, timed

LEAST = 0.1  # seconds that are timed at least: a short call is repeated
SLACK = 0.25  # what caches, blocks and noise add to an exponent


@dataclass(frozen=True)
class Operation:
    """What is timed, on how many rows and columns at first, and the exponents that are stated."""

    prepare: Callable[[np.ndarray, np.ndarray], Callable[[], Any]]
    n: int
    d: int = 16
    in_n: float = 1.0
    in_d: float = 1.0


def _fit(**how: Any) -> Callable[[np.ndarray, np.ndarray], Callable[[], Any]]:
    return lambda X, y: lambda: RBFCoreset(random_state=0, **how).fit(X)


def _sample(**how: Any) -> Callable[[np.ndarray, np.ndarray], Callable[[], Any]]:
    def prepare(X: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
        made = RBFCoreset(bound="closed-form", random_state=0).fit(X)
        return lambda: made.sample(200, random_state=0, **how)

    return prepare


def _checked(check: Callable[[Any, np.ndarray, Any], Any]) -> Callable[[np.ndarray, np.ndarray], Callable[[], Any]]:
    def prepare(X: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
        made = RBFCoreset(bound="closed-form", random_state=0).fit(X)
        core = made.sample(500, random_state=0)
        return lambda: check(made, X, core)

    return prepare


def _strategy(name: str) -> Callable[[np.ndarray, np.ndarray], Callable[[], Any]]:
    def prepare(X: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
        return lambda: strategy_named(name).select(SelectionContext(X, y, seed=0), 200, np.random.default_rng(0))

    return prepare


def _linear(X: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    return lambda: LinearCoreset("logistic", random_state=0).fit(X, y).sample(2000)


def _certified(X: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    made = LinearCoreset("logistic", random_state=0).fit(X, y)
    made.sample(2000)
    return lambda: certify_model(made.model_, X, y, loss="logistic", alpha=made.alpha)


def _streamed(X: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    def run() -> None:
        stream = StreamingCoreset(500, bandwidth=6.0)
        for part in np.array_split(X, len(X) // 1000):
            stream.partial_fit(part)

    return run


def _prepared(X: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    import pyarrow as pa

    frame = pa.table({f"c{i}": np.ascontiguousarray(column) for i, column in enumerate(X.T)})
    return lambda: Preparation().fit(frame).transform(frame)


def _from_parquet(X: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    import pyarrow as pa
    from pyarrow import parquet

    folder = TemporaryDirectory()
    file = Path(folder.name) / "t.parquet"
    frame = pa.table({f"c{i}": np.ascontiguousarray(column) for i, column in enumerate(X.T)})
    parquet.write_table(frame, file, row_group_size=100_000)
    return lambda: (select(file, 500, random_state=0), folder)  # which lives as long as what is timed


OPERATIONS = {
    "RBFCoreset.fit, closed form": Operation(_fit(bound="closed-form"), 200_000),
    "RBFCoreset.fit, 64 cells": Operation(_fit(bound="cells"), 10_000),
    "RBFCoreset.fit, exact": Operation(_fit(bound="exact"), 1000, in_n=2.0),
    "LaplacianCoreset.fit, cells": Operation(
        lambda X, y: lambda: LaplacianCoreset(bound="cells", random_state=0).fit(X), 10_000
    ),
    "RBFNetworkCoreset.fit": Operation(
        lambda X, y: lambda: RBFNetworkCoreset(random_state=0).fit(X, y.astype(float)), 10_000
    ),
    "sample, keys": Operation(_sample(method="keys"), 1_000_000, in_d=0.0),
    "sample, systematic": Operation(_sample(method="systematic"), 1_000_000, in_d=0.0),
    "sample, iid": Operation(_sample(method="iid"), 1_000_000, in_d=0.0),
    "sample with reweight": Operation(_sample(reweight=True), 20_000),
    "sample with refine": Operation(_sample(refine=True), 20_000),
    "certify": Operation(_checked(lambda made, X, core: core.certify(X)), 2000, in_n=2.0),
    "audit": Operation(_checked(lambda made, X, core: audit(X, core, random_state=0)), 2000, in_n=2.0),
    "sample_size": Operation(_checked(lambda made, X, core: made.sample_size(0.1, 0.1)), 1_000_000, in_d=0.0),
    "l1_svd": Operation(lambda X, y: lambda: l1_svd(X), 200_000, in_d=2.0),
    "LinearCoreset, fit and sample": Operation(_linear, 50_000, in_d=2.0),
    "certify_model": Operation(_certified, 50_000, in_d=2.0),
    "LeastSquaresCoreset.fit": Operation(
        lambda X, y: lambda: LeastSquaresCoreset(random_state=0).fit(X, y.astype(float)), 200_000, in_d=2.0
    ),
    "KMeansCoreset.fit": Operation(lambda X, y: lambda: KMeansCoreset(8, random_state=0).fit(X), 200_000),
    "StreamingCoreset.partial_fit": Operation(_streamed, 20_000),
    "Preparation.fit and transform": Operation(_prepared, 200_000),
    "select from Parquet": Operation(_from_parquet, 200_000),
    "nested_coresets": Operation(lambda X, y: lambda: nested_coresets(X, y, (0.01, 0.1), random_state=0), 100_000),
    **{
        f"strategy {name}": Operation(_strategy(name), n, in_n=power)
        for name, n, power in (
            ("RANDOM", 100_000, 1.0),
            ("STRATIFIED", 100_000, 1.0),
            ("K-CENTER", 10_000, 1.0),
            ("HERDING", 10_000, 1.0),
            ("FACILITY-LOCATION", 1000, 2.0),
            ("GRAPH-CUT", 10_000, 1.0),
        )
    },
}


def _repeated(call: Callable[[], Any], times: int) -> None:
    for _ in range(times):
        call()


def exponents(operation: Operation, repeats: int = 5) -> tuple[float, float, float]:
    """The exponents in n and in d, and the seconds at n and d."""
    n, d = operation.n, operation.d
    shapes = [(n, d), (2 * n, d), (4 * n, d), (n, 2 * d)]
    calls = []
    for shape in shapes:
        rng = np.random.default_rng(0)
        X = rng.standard_normal(shape)
        calls.append(operation.prepare(X, (X[:, 0] + rng.standard_normal(len(X)) > 0).astype(np.int64)))
    for call in calls:
        call()  # imports, and what is found once and kept
    again = [max(1, int(LEAST / max(timed(call)[0], 1e-9))) for call in calls]
    spent = seconds(
        *(partial(_repeated, call, times) for call, times in zip(calls, again, strict=True)), repeats=repeats
    )
    at_n, at_2n, at_4n, at_2d = np.divide(spent, again)
    slope = np.polyfit(np.log([1.0, 2.0, 4.0]), np.log([at_n, at_2n, at_4n]), 1)[0]
    return float(slope), float(np.log2(at_2d / at_n)), at_n


def exponents_table() -> Table:
    """Every public operation whose time depends on the data."""
    rows = []
    for name, each in OPERATIONS.items():
        in_n, in_d, spent = exponents(each)
        within = in_n <= each.in_n + SLACK and in_d <= each.in_d + SLACK
        rows.append(
            {
                "operation": name,
                "n": f"{each.n:,}",
                "d": f"{each.d}",
                "at n and d": f"{1e3 * spent:.0f} ms",
                "exponent in n": f"{in_n:.2f}",
                "stated": f"{each.in_n:g}",
                "exponent in d": f"{in_d:.2f}",
                "stated ": f"{each.in_d:g}",
                "within": "yes" if within else "**no**",
            }
        )
    return table(
        "growth",
        "Processor time at n, 2n and 4n rows (a line through the three, in logarithms) and at d and 2d columns, normal "
        f"numbers in memory; the least of five, each of {LEAST} s or more. Shuffles, greedy methods and matrices of "
        "pairs are measured at sizes that fit into the cache: leaving it costs more than the rows do. Wanted: no "
        f"exponent above the one stated by more than {SLACK}.",
        rows,
    )


growth = section("growth", "Measure how time grows with rows and columns.", exponents_table)
