"""Time as it is, k-means, kernel machines and trees: what coresets of linear models give elsewhere, and what not."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, train_test_split
from sklearn.svm import SVC

from coresift import LinearCoreset, certify_model
from coresift.coresets.uniform import uniform_coreset

from ..measure import Record, apart, timed
from .excess import METHODS, few, stratified
from .tables import load

GRID_SHAPE, SINGLE_SHAPE, PARQUET_SHAPE = (500_000, 50), (1_000_000, 30), (4_000_000, 30)
PENALTIES = np.logspace(-7, -1, 10)  # alpha; C of scikit-learn is 1 / (alpha n)
FOLDS = 5
SUBSETS = (*METHODS, "all rows")


def classified(n: int, d: int, seed: int = 0, part: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Correlated float32 columns with heavy tails, and a label; parts with one seed have one distribution."""
    model, rng = np.random.default_rng(seed), np.random.default_rng([seed, part])
    mixing, coef = model.normal(size=(4, d)).astype(np.float32), model.normal(size=d).astype(np.float32)
    X = rng.standard_t(5, size=(n, d)).astype(np.float32) + rng.normal(size=(n, 4)).astype(np.float32) @ mixing
    score = X @ coef * 0.3
    return X, (score + rng.logistic(size=n) > 1.0).astype(np.int64)


def logistic(alpha: float, weight: float, solver: str = "lbfgs") -> LogisticRegression:
    """scikit-learn's model of ``F`` for rows of a total weight."""
    return LogisticRegression(C=1.0 / (alpha * weight), max_iter=2000, tol=1e-6, solver=solver)


Data = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows, labels, weights


def search(data: Data, choose: Callable[[Data], Data], solver: str, seed: int) -> tuple[float, np.ndarray]:
    """Fit every penalty to what is chosen of every fold; return the processor seconds, and the mean loss by penalty."""
    spent, losses = 0.0, np.zeros((FOLDS, len(PENALTIES)))
    for fold, (train, test) in enumerate(KFold(FOLDS, shuffle=True, random_state=seed).split(data[0])):
        own = tuple(each[train] for each in data)
        X_test, y_test, w_test = (each[test] for each in data)
        choosing, chosen = timed(partial(choose, own))
        spent += choosing
        for i, alpha in enumerate(PENALTIES):
            model = logistic(alpha, chosen[2].sum(), solver)
            spent += timed(partial(model.fit, *chosen))[0]
            losses[fold, i] = log_loss(y_test, model.predict_proba(X_test)[:, 1], sample_weight=w_test)
    return spent, losses.mean(axis=0)


def grid(folder: Path, seed: int) -> Record:
    """Choose among ten penalties with five folds: on all rows, and on subsets drawn for the middle penalty."""
    X, y = classified(*GRID_SHAPE, seed)
    whole, size = (X, y, np.ones(len(y))), len(y) // 50

    def coreset(data: Data) -> Data:
        estimator = LinearCoreset("logistic", alpha=PENALTIES[len(PENALTIES) // 2], random_state=seed)
        return estimator.fit(*data).sample(size).take(*data[:2])

    def uniform(data: Data) -> Data:
        return uniform_coreset(len(data[1]), size, seed).take(*data[:2])

    drawing, once = timed(partial(coreset, whole))
    ways = {
        "all rows": search(whole, lambda data: data, "lbfgs", seed),
        "a coreset of each fold": search(whole, coreset, "newton-cholesky", seed),
        "one coreset, cut into folds": search(once, lambda data: data, "newton-cholesky", seed),
        "a uniform sample of each fold": search(whole, uniform, "newton-cholesky", seed),
    }
    full = ways["all rows"][1]
    found = {}
    for way, (spent, losses) in ways.items():
        is_once, chosen = "one" in way.split(), int(np.argmin(losses))
        found[way] = {
            "cpu": round(spent + is_once * drawing, 2),
            "regret": float(full[chosen] / full.min() - 1),  # of the penalty that was chosen
            "models": None if is_once else float(losses[chosen] / full.min() - 1),  # fitted to the subset with it
        }
    return {"size": size, "ways": found}


def single(folder: Path, seed: int) -> Record:
    """One fit in memory."""
    X, y = classified(*SINGLE_SHAPE, seed)
    alpha, size, found = 1e-4, len(y) // 100, {}
    for solver in ("lbfgs", "newton-cholesky"):
        found[solver] = timed(partial(logistic(alpha, len(y), solver).fit, X, y))[0]
    estimator = LinearCoreset("logistic", alpha=alpha, random_state=seed)
    found["coreset"] = timed(lambda: estimator.fit(X, y).sample(size))[0]
    found["certificate"], certificate = timed(
        lambda: certify_model(estimator.model_, X, y, loss="logistic", alpha=alpha)
    )
    return {
        "size": size,
        "cpu": {way: round(spent, 3) for way, spent in found.items()},
        "certified": certificate.relative,
    }


def parquet(folder: Path, seed: int) -> Record:
    """A table in files: bare scans, our fit, and SGD with as many scans, each in its own process."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    n, d, n_files = *PARQUET_SHAPE, 8
    with tempfile.TemporaryDirectory() as place:
        for i in range(n_files):
            X, y = classified(n // n_files, d, seed, part=i)
            columns = {f"x{j}": X[:, j] for j in range(d)} | {"y": y}
            pq.write_table(pa.table(columns), f"{place}/{i}.parquet", row_group_size=100_000)
        stored = sum(path.stat().st_size for path in Path(place).iterdir())
        ours = json.loads(apart(_PARQUET_OURS, place, str(n // 200)))
        scans = max(1, round(ours["fits"][0]["cpu"] / ours["scan"]))
        theirs = json.loads(apart(_PARQUET_SGD, place, str(scans)))
    return {"shape": [n, d], "bytes": stored, "ours": ours, "sgd": theirs}


_PARQUET_OURS = """
import json, sys, time
from coresift import fit_model
from paper.benchmarks.measure import peak_resident_mb
import pyarrow.parquet as pq
from pathlib import Path

def bare():
    for path in sorted(Path(sys.argv[1]).iterdir()):
        for batch in pq.ParquetFile(path).iter_batches(65536):
            [column.to_numpy(zero_copy_only=False) for column in batch.columns]

bare()
scans, fits = [], []
for tolerance in (1e-3, 1e-4, 3e-6):
    start = time.process_time(); bare(); scans.append(time.process_time() - start)
    passes = []
    start = time.process_time()
    note = lambda name, n: passes.append(name) or (lambda rows: None)
    model = fit_model(sys.argv[1], int(sys.argv[2]), label="y", tolerance=tolerance, on_pass=note)
    found = model.certificate
    fits.append({"tolerance": tolerance, "cpu": time.process_time() - start, "mb": peak_resident_mb(),
                 "passes": len(passes), "objective": found.objective, "lower": found.lower_bound,
                 "relative": found.relative})
print(json.dumps({"scan": sum(scans) / len(scans), "fits": fits}))
"""
_PARQUET_SGD = """
import json, sys, time
import numpy as np, pyarrow.parquet as pq
from pathlib import Path
from sklearn.linear_model import SGDClassifier
from coresift import certify_model
from coresift.rows.opening import open_rows
from paper.benchmarks.measure import peak_resident_mb

model = SGDClassifier(loss="log_loss", alpha=1e-4, average=True, random_state=0)
start, scans = time.process_time(), int(sys.argv[2])
for _ in range(scans):
    for path in sorted(Path(sys.argv[1]).iterdir()):
        for batch in pq.ParquetFile(path).iter_batches(65536):
            *X, y = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
            model.partial_fit(np.column_stack(X), y, classes=[0, 1])
spent, mb = time.process_time() - start, peak_resident_mb()
rows = open_rows(sys.argv[1], label="y")
found = certify_model((model.coef_, model.intercept_), rows, loss="logistic", alpha=1e-4)
print(json.dumps({"scans": scans, "cpu": spent, "mb": mb, "objective": found.objective, "lower": found.lower_bound,
                  "relative": found.relative}))
"""


def subsets(
    X: np.ndarray, y: np.ndarray, size: int, seed: int, ways: Sequence[str]
) -> Iterator[tuple[str, float, Any]]:
    """Yield the name, the processor seconds and the (rows, weights) of each way to choose."""
    rng = np.random.default_rng(seed)
    estimator = LinearCoreset("logistic", random_state=seed)

    def drawn(calibrate: bool) -> tuple[np.ndarray, np.ndarray]:
        core = estimator.fit(X, y).sample(size, calibrate=calibrate, random_state=seed)
        return core.indices, core.weights

    makers: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
        "uniform": lambda: (rng.choice(len(y), size, replace=False), np.ones(size)),
        "stratified": lambda: stratified(y, size, rng),
        "two-step": lambda: drawn(False),
        "calibrated": lambda: drawn(True),
        "all rows": lambda: (np.arange(len(y)), np.ones(len(y))),
    }
    for way in ways:
        yield (way, *timed(makers[way]))


@cache
def _split(folder: Path, name: str, n_train: int, n_test: int) -> list[np.ndarray]:
    X, y = load(name, folder)
    return train_test_split(X, y, train_size=n_train, test_size=n_test, random_state=0, stratify=y)


def kernel(folder: Path, seed: int) -> Record:
    """A kernel machine: CovType, 15,000 rows, 1,500 of them, 15,000 others to test."""
    X, X_test, y, y_test = _split(folder, "covtype", 15_000, 15_000)
    found = {}
    for way, chosen, (rows, weights) in subsets(X, y, 1_500, seed, SUBSETS if seed == 0 else METHODS):
        model = SVC(C=10.0)
        fitting, _ = timed(partial(model.fit, X[rows], y[rows], sample_weight=weights / weights.mean()))
        found[way] = {"accuracy": model.score(X_test, y_test), "cpu": round(chosen + fitting, 2)}
    return {"ways": found}


def trees(folder: Path, seed: int) -> Record:
    """A random forest and gradient boosting: CovType with 10 columns and 7 classes, 60,000 rows, 6,000 of them."""
    X, X_test, y, y_test = _split(folder, "covtype, 10 columns, 7 classes", 60_000, 30_000)
    found: dict[str, Any] = {}
    for way, _, (rows, weights) in subsets(X, y, 6_000, seed, SUBSETS if seed == 0 else METHODS):
        for name, model in (
            ("forest", RandomForestClassifier(50, random_state=seed)),
            ("boosting", HistGradientBoostingClassifier(max_iter=50, random_state=seed)),
        ):
            model.fit(X[rows], y[rows], sample_weight=weights / weights.mean())
            found.setdefault(name, {})[way] = model.score(X_test, y_test)
    return {"models": found}


@cache
def _best_cost(folder: Path, k: int) -> float:
    X, _ = load("covtype", folder)
    return min(KMeans(k, n_init=1, random_state=seed).fit(X).inertia_ for seed in range(3))


def clusters(folder: Path, seed: int) -> Record:
    """k-means: 4,000 rows of CovType, cost on all rows over the best of three fits on all rows."""
    from coresift import KMeansCoreset

    X, _ = load("covtype", folder)
    found = {}
    for k in (10, 50):
        best, costs = _best_cost(folder, k), {}
        core = KMeansCoreset(k, random_state=seed).fit(X).sample(4_000)
        plain = uniform_coreset(len(X), 4_000, seed)
        for way, each in (("uniform", plain), ("coreset", core)):
            model = KMeans(k, n_init=5, random_state=seed).fit(X[each.indices], sample_weight=each.weights)
            costs[way] = -model.score(X) / best
        found[str(k)] = costs
    return {"cost": found}


STUDIES: dict[str, tuple[Callable[[Path, int], Record], int]] = {  # and how many seeds
    "single": (single, 1),
    "grid": (grid, 1),
    "parquet": (parquet, 1),
    "few": (few, 11),
    "clusters": (clusters, 5),
    "kernel": (kernel, 5),
    "trees": (trees, 5),
}


def runs() -> Iterator[Record]:
    """Every study and seed."""
    for name, (_, n_seeds) in STUDIES.items():
        yield from ({"study": name, "seed": seed} for seed in range(n_seeds))


def run(of: Record, folder: Path) -> Record:
    """Run one study with one seed."""
    return STUDIES[of["study"]][0](folder, of["seed"])
