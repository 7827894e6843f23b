"""Refined and reweighted subsets and their certificates beside what else one would run on the same rows."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from coresift import RBFCoreset

from .measure import Table, section, table, timed
from .peers.methods import goodpoints


def _measured() -> Table:
    from sklearn.cluster import MiniBatchKMeans

    rng = np.random.default_rng(0)
    X = rng.standard_normal((200_000, 64))
    fitted = RBFCoreset(bound="closed-form", random_state=0).fit(X)
    kmeans = lambda: MiniBatchKMeans(1000, n_init=1, random_state=0).fit(X)  # noqa: E731
    draw = lambda **how: lambda: fitted.sample(1000, random_state=0, **how)  # noqa: E731
    rows = [
        _beside("refine 1,000 of 200,000 x 64", draw(refine=True), "MiniBatchKMeans(1000)", kmeans),
        _beside("reweight 1,000 of 200,000 x 64", draw(reweight=True), "MiniBatchKMeans(1000)", kmeans),
    ]
    rows += _million(rng.standard_normal((1_000_000, 128), dtype=np.float32))
    wide = rng.standard_normal((60_000, 784))
    core = RBFCoreset(bound="closed-form", random_state=0).fit(wide).sample(600, random_state=0)
    sampled, exact = (lambda method=method: core.certify(wide, method=method) for method in ("sampled", "exact"))
    half = lambda: [_products(wide[at:], wide[at : at + 1024]) for at in range(0, len(wide), 1024)]  # noqa: E731
    rows.append(_beside("sampled certificate, 60,000 x 784", sampled, "exact certificate", exact, 1))
    rows.append(_beside("exact certificate, 60,000 x 784", exact, "half a Gram matrix", half, 1))
    return table(
        "computations",
        "Processor time, one thread: medians of three runs in turn, of certificates one run. Subsets include their "
        "certificate. goodpoints: Compress++ as in the comparison of packages, if it is installed. Wanted: refine at "
        "most 1.0 of MiniBatchKMeans and below goodpoints; the exact certificate at most half of what all pairs take, "
        "which is more than half a Gram matrix.",
        rows,
    )


def _million(X: np.ndarray) -> list[dict[str, str]]:
    fitted = RBFCoreset(bound="closed-form", random_state=0).fit(X)
    refined = lambda: fitted.sample(1024, refine=True, random_state=0)  # noqa: E731
    what = "refine 1,024 of 1,000,000 x 128, float32"
    rows = [_beside(what, refined, "one product with 1,024 rows", lambda: _products(X, X[:1024]))]
    if find_spec("goodpoints") is not None:
        scale = fitted.sample(1024, random_state=0).ball.scale
        rows.append(_beside(what, refined, "goodpoints", lambda: goodpoints(X, 1024, scale, 0)))
    return rows


def _products(X: Any, rows: Any) -> None:
    for at in range(0, len(X), 4096):
        X[at : at + 4096] @ rows.T


def _beside(
    what: str, ours: Callable[[], Any], other: str, theirs: Callable[[], Any], repeats: int = 3
) -> dict[str, str]:
    pairs = [(timed(ours)[0], timed(theirs)[0]) for _ in range(repeats)]
    here, there = (statistics.median(times) for times in zip(*pairs, strict=True))
    return {"work": what, "time": f"{here:.1f} s", "beside": other, "its time": f"{there:.1f} s",
            "ratio": f"**{here / there:.2f}**"}  # fmt: skip


computations = section("computations", "Measure long computations beside others.", _measured)
