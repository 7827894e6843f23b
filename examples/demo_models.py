"""The first part of the demo: a logistic regression fitted to 1 % of an imbalanced table, and its certificate."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from rich.table import Table
from sklearn.linear_model import LogisticRegression

from coresift import LinearCoreset, certify_model

ALPHA = 1e-4
FRACTION = 0.01
POSITIVE = 0.01
NOTE = """A logistic regression of {:,} generated rows with {} columns, {:.1%} of them positive. Excess: the loss over \
all rows, above that of the fit to all rows. Certified: a proved bound on the excess, which does not need that fit. \
Seconds of processor time; those of the coreset include its choice. A single fit of data in memory gains no time; \
grids of penalties, files larger than memory and slower models do."""


@dataclass(frozen=True)
class Fitted:
    """A model: what it was fitted to, and how close it comes to the fit to all rows."""

    name: str
    n_rows: int
    excess: float  # relative
    certified: float
    seconds: float  # choice and fit
    certify_seconds: float


def imbalanced(n: int, d: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Columns with heavy tails that are correlated, and a label that is positive in about 1 % of the rows."""
    X = rng.standard_t(4, size=(n, d)) + rng.normal(size=(n, 4)) @ rng.normal(size=(4, d)) / 2
    score = X @ rng.normal(size=d) * 0.4 + rng.logistic(size=n)
    return X, score > np.quantile(score, 1 - POSITIVE)


def fit(X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> LogisticRegression:
    """Fit weighted rows; ``C = 1 / (alpha W)`` makes the penalty that of the mean loss."""
    model = LogisticRegression(C=1.0 / (ALPHA * weights.sum()), max_iter=1000, tol=1e-6)
    return model.fit(X, y, sample_weight=weights)


def compare(n: int, d: int, seed: int) -> list[Fitted]:
    """Fit all rows, a uniform sample and a coreset."""
    rng = np.random.default_rng(seed)
    X, y = imbalanced(n, d, rng)
    size = int(FRACTION * n)

    def uniform() -> tuple[np.ndarray, ...]:
        rows = rng.choice(n, size, replace=False)
        return X[rows], y[rows], np.full(size, n / size)

    def coreset() -> tuple[np.ndarray, ...]:
        return LinearCoreset("logistic", alpha=ALPHA, random_state=seed).fit(X, y).sample(size).take(X, y)

    ways: dict[str, Callable[[], tuple[np.ndarray, ...]]] = {
        "all rows": lambda: (X, y, np.ones(n)),
        "uniform, 1 %": uniform,
        "coreset, 1 %": coreset,
    }
    found, best = [], 0.0
    for name, choose in ways.items():
        start = time.process_time()
        chosen = choose()
        model = fit(*chosen)
        fitted = time.process_time()
        certificate = certify_model(model, X, y, loss="logistic", alpha=ALPHA)
        best = best or certificate.objective
        excess = max(certificate.objective / best - 1, 0.0)
        took = fitted - start, time.process_time() - fitted
        found.append(Fitted(name, len(chosen[0]), excess, certificate.relative, *took))
    return found


def render(found: list[Fitted]) -> Table:
    """Lay the fits out as a table, one row each."""
    table = Table()
    for name in ("fitted to", "rows", "excess loss", "certified", "seconds", "to certify"):
        table.add_column(name, justify="left" if name == "fitted to" else "right", overflow="fold")
    for each in found:
        excess = "-" if each.name == "all rows" else f"{each.excess:.1e}"
        cells = (each.name, f"{each.n_rows:,}", excess, f"{each.certified:.1e}")
        table.add_row(*cells, f"{each.seconds:.1f}", f"{each.certify_seconds:.1f}")
    return table
