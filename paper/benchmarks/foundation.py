"""Speed and totals of the foundation: fit, l1_svd, redraws, import."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from sklearn.datasets import load_digits

from coresift import LaplacianCoreset, RBFCoreset, l1_svd

from .measure import Table, peak_bytes, seconds, section, table

N, D = 1_000_000, 64


def fit() -> Table:
    """Closed-form fit against one bare pass over the data."""
    rows = []
    for dtype in (np.float64, np.float32):
        X = np.random.default_rng(0).standard_normal((N, D), dtype=dtype)
        estimator = RBFCoreset(bound="closed-form", random_state=0)
        bare, fitted = seconds(lambda X=X: bare_pass(X), lambda X=X, e=estimator: e.fit(X))
        peak = peak_bytes(lambda X=X, e=estimator: e.fit(X))
        rows.append(
            {
                "data": np.dtype(dtype).name,
                "bare pass": f"{1e3 * bare:.0f} ms",
                "fit": f"{1e3 * fitted:.0f} ms",
                "ratio": f"**{fitted / bare:.2f}**",
                "peak memory above the input": f"{peak / X.nbytes:.0%}",
            }
        )
    X = np.random.default_rng(0).standard_normal((N, D))
    cells = RBFCoreset(bound="cells", random_state=0)
    square = np.ones((D, D))
    (product,) = seconds(lambda: X @ square, repeats=5)
    (fitted,) = seconds(lambda: cells.fit(X), repeats=1)
    work = f"{1e3 * product:.0f} ms (one X @ 64 x 64)"
    cells_row = ("float64, 64 cells", work, f"{fitted:.1f} s", f"{fitted / product:.0f}", "-")
    rows.append(dict(zip(rows[0], cells_row, strict=True)))
    return table(
        "fit",
        f"n = {N:,}, d = {D}. A bare pass is row norms and column means. Wanted: closed form at most 2.5 bare passes, "
        "float32 at most 2 of float64, memory above the input at most 30 % of it.",
        rows,
    )


def bare_pass(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row norms and column means."""
    return np.einsum("ij,ij->i", X, X), X.mean(axis=0)


def lewis() -> Table:
    """l1_svd against one X.T @ X."""
    rng = np.random.default_rng(0)
    heavy = rng.standard_normal((N, D)) / np.sqrt(rng.chisquare(2, size=(N, 1)) / 2)
    rows = []
    for name, X in (("Gaussian", rng.standard_normal((N, D))), ("Student t, 2 d.o.f.", heavy)):
        gram, found = seconds(lambda X=X: X.T @ X, lambda X=X: l1_svd(X), repeats=3)
        peak = peak_bytes(lambda X=X: l1_svd(X))
        rows.append(
            {
                "data": name,
                "X.T @ X": f"{1e3 * gram:.0f} ms",
                "l1_svd": f"{1e3 * found:.0f} ms",
                "ratio": f"**{found / gram:.1f}**",
                "passes": str(l1_svd(X).n_passes),
                "peak memory above the input": f"{peak / X.nbytes:.0%}",
            }
        )
    return table(
        "l1_svd",
        f"n = {N:,}, d = {D}, float64, tol = 1e-3. Wanted: at most 20 times one `X.T @ X` on Gaussian data.",
        rows,
    )


def redraw() -> Table:
    """A fresh draw against a permutation."""
    n = 1_280_000
    X = np.random.default_rng(0).standard_normal((n, 8))
    estimator = RBFCoreset(bound="closed-form", random_state=0).fit(X)
    rng = np.random.default_rng(1)
    rows = []
    for method in ("systematic", "iid", "keys"):
        shuffle, draw = seconds(
            lambda: rng.permutation(n), lambda m=method: estimator.sample(0.05, method=m), repeats=15
        )
        rows.append([method, f"{1e3 * shuffle:.1f} ms", f"{1e3 * draw:.2f} ms", f"**{draw / shuffle:.2f}**"])
    return Table(
        "redraw",
        f"A fresh 5 % draw from {n:,} fitted points. Wanted: at most a quarter of `rng.permutation(n)` (the default, "
        "systematic). `keys` looks at every row by design.",
        ["method", "permutation", "draw", "ratio"],
        rows,
    )


def imports() -> Table:
    """Import time against scikit-learn's."""

    def load(name: str) -> None:
        subprocess.run([sys.executable, "-c", f"import {name}"], check=True)

    nothing, sklearn, ours = seconds(lambda: load("sys"), lambda: load("sklearn"), lambda: load("coresift"), repeats=9)
    sklearn, ours = sklearn - nothing, ours - nothing
    return Table(
        "import",
        "Whole processes, less the start of the interpreter. Wanted: under 1.5 times `import sklearn`.",
        ["import sklearn", "import coresift", "ratio"],
        [[f"{1e3 * sklearn:.0f} ms", f"{1e3 * ours:.0f} ms", f"**{ours / sklearn:.2f}**"]],
    )


def totals() -> Table:
    """Total sensitivities of every bound, beside the paper's."""
    rng = np.random.default_rng(0)
    data = {
        "digits (1,797 x 64)": load_digits().data,
        "normal, 2,000 x 2": rng.standard_normal((2000, 2)),
        "normal, 2,000 x 10": rng.standard_normal((2000, 10)),
        "Student t (2), 2,000 x 5": rng.standard_t(2, size=(2000, 5)),
    }
    bounds = {"paper": ("paper", 64), "lemma": ("lemma", 64), "closed form": ("closed-form", 64)}
    bounds |= {"64 cells": ("cells", 64), "256 cells": ("cells", 256), "exact": ("exact", 64)}
    rows = []
    for name, X in data.items():
        for bandwidth in (None, "median"):
            row = {"data, bandwidth": f"{name}, {'farthest' if bandwidth is None else 'median'}"}
            for title, (bound, k) in bounds.items():
                estimator = RBFCoreset(bandwidth=bandwidth, bound=bound, n_cells=k, random_state=0).fit(X)
                spread = estimator.sensitivities_.max() / estimator.sensitivities_.mean()
                row[title] = f"{estimator.total_sensitivity_:.4g} ({spread:.3g})"
            laplacian = LaplacianCoreset(bandwidth=bandwidth, bound="exact", random_state=0).fit(X)
            row["Laplacian, exact"] = f"{laplacian.total_sensitivity_:.4g}"
            rows.append(row)
    return table(
        "totals",
        "Total sensitivity (and max/mean) at R = 1, bandwidth the farthest distance from the mean (the paper's) or the "
        "median distance. Wanted at the farthest: digits closed form at most 4.3, 256 cells at most 4.0; "
        "2-D normal 64 cells at most 1.8.",
        rows,
    )


foundation = section("foundation", "Time the foundation.", fit, lewis, redraw, imports, totals)
