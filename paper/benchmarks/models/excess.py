"""How far the fit of a subset is from the fit of all rows: relative excess loss, and its certificate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from coresift import LinearCoreset, certify_model
from coresift.core.linear import LinearProblem, LossSums, fit_linear, newton
from coresift.coresets.linear_rows import linear_rows
from coresift.coresets.options import CLASSIFIERS
from coresift.coresets.uniform import uniform_coreset

from .tables import ALPHA, FEW, TASKS, Task, load

SEEDS = range(5)
N_STRATA = 10  # of a regression, by the order of the targets
METHODS = ("uniform", "stratified", "two-step", "calibrated")


@dataclass(frozen=True, eq=False)
class Reference:
    """A problem, and its minimum over all rows, to a relative 1e-12."""

    problem: LinearProblem
    X: np.ndarray
    y: np.ndarray
    minimum: float

    def excess(self, theta: np.ndarray) -> float:
        """``(F(theta) - F*) / F*``, over all rows."""
        sums = LossSums(self.problem, theta, order=0)
        sums.add(self.X, self.y, np.ones(len(self.y)))
        return sums.objective / self.minimum - 1.0

    def fitted(self, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The parameters that minimise the loss of weighted rows."""
        return fit_linear(self.problem, self.X[rows], self.y[rows], weights).theta


@cache
def reference(task: Task, folder: Path) -> Reference:
    """Solve the full problem."""
    X, y = load(task.table, folder)
    rows = linear_rows(X, y, is_classifier=task.loss in CLASSIFIERS)
    problem = rows.problem(rows.loss(task.loss, task.threshold), ALPHA)
    best = fit_linear(problem, X, y, np.ones(len(y)))
    best = newton(lambda *at: rows.run("loss", LossSums(problem, *at))[0], best.theta, tol=1e-15)
    return Reference(problem, X, y, best.objective)


def stratified(y: np.ndarray, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw from each class, or tenth of the targets, in proportion to its rows; at least one row of each."""
    strata = y if y.dtype.kind == "i" else (np.argsort(np.argsort(y)) * N_STRATA) // len(y)
    rows, weights = [], []
    for each in np.unique(strata):
        members = np.flatnonzero(strata == each)
        count = max(1, round(size * len(members) / len(y)))
        rows.append(rng.choice(members, count, replace=False))
        weights.append(np.full(count, len(members) / count))
    return np.concatenate(rows), np.concatenate(weights)


def few(folder: Path, seed: int) -> dict[str, Any]:
    """Excesses at sizes of about one row a parameter, by table, loss and size."""
    found = {}
    for task in FEW:
        full = reference(task, folder)
        estimator = LinearCoreset(task.loss, alpha=ALPHA, threshold=task.threshold, random_state=seed)
        estimator.fit(full.X, full.y)
        for size in task.sizes:
            rng = np.random.default_rng([seed, size])
            uniform, core = uniform_coreset(len(full.y), size, rng), estimator.sample(size)
            found[f"{task.table}; {task.loss}; {size}"] = {
                "parameters": full.problem.shape[0] * full.problem.shape[1],
                "uniform": full.excess(full.fitted(uniform.indices, uniform.weights)),
                "stratified": full.excess(full.fitted(*stratified(full.y, size, rng))),
                "coreset": full.excess(full.problem.from_data(*estimator.model_)),
                "method": core.method,
            }
    return {"lines": found}


def runs() -> Iterator[dict[str, Any]]:
    """Every table, loss, size and seed."""
    for task in TASKS:
        for size in task.sizes:
            for seed in SEEDS:
                yield {"table": task.table, "loss": task.loss, "size": size, "seed": seed}


def run(of: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Draw subsets of one size in four ways, fit each, and certify the fit of the calibrated one."""
    task = next(each for each in TASKS if (each.table, each.loss) == (of["table"], of["loss"]))
    full, size, seed = reference(task, folder), of["size"], of["seed"]
    n, p = full.X.shape
    rng = np.random.default_rng(seed)
    uniform = uniform_coreset(n, size, rng)
    found = {
        "uniform": full.excess(full.fitted(uniform.indices, uniform.weights)),
        "stratified": full.excess(full.fitted(*stratified(full.y, size, rng))),
    }
    start = time.process_time()
    estimator = LinearCoreset(task.loss, alpha=ALPHA, threshold=task.threshold, random_state=seed).fit(full.X, full.y)
    for method in METHODS[2:]:
        core = estimator.sample(size, calibrate=method == "calibrated", random_state=seed)
        found[method] = full.excess(full.fitted(core.indices, core.weights))
    spent = time.process_time() - start
    theta = full.problem.from_data(*estimator.model_)
    certificate = certify_model(estimator.model_, full.X, full.y, loss=task.loss, alpha=ALPHA, threshold=task.threshold)
    return {
        "n": n,
        "p": p,
        "classes": full.problem.loss.n_outputs,
        **{method: float(value) for method, value in found.items()},
        "model": full.excess(theta),
        "certificate": certificate.relative,
        "passes": certificate.n_passes,
        "rounds": estimator.n_rounds_,
        "cpu": round(spent, 3),
    }
