"""The arrays that all methods get, with labels and a test split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paper.benchmarks.measure import mnist_arrays

N_COMMON, N_RARE = 15, 5
_RARE_SHARE = 1e-3  # of each rare cluster
_NOISE_VARIANCE = 16.0  # of all coordinates together, so that 16 and 128 columns are alike but for the tail
_N_TEST = 5000


@dataclass(frozen=True)
class Data:
    """Rows to choose from, their labels, and rows to test a classifier on."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True)
class Case:
    """One data set and the sizes of the subsets."""

    name: str
    load: Callable[[Path | None], Data | None]  # None where the files are absent
    sizes: tuple[int, ...]


def mixture(n: int, d: int, seed: int = 0) -> Data:
    """Fifteen common clusters and five rare ones, far away, each with a thousandth of the rows; label: the cluster.

    The noise falls with the coordinate. All clusters are equally frequent in the test rows, so that the accuracy is
    the mean over clusters: a subset without a rare cluster cannot have it right.
    """
    rng = np.random.default_rng(seed)
    deviations = (1.0 + np.arange(d)) ** -0.5
    deviations *= np.sqrt(_NOISE_VARIANCE / np.sum(deviations**2))
    centres = rng.standard_normal((N_COMMON + N_RARE, d))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    centres[:N_COMMON] *= 4.0
    centres[N_COMMON:] *= 12.0
    shares = np.full(N_COMMON + N_RARE, (1.0 - N_RARE * _RARE_SHARE) / N_COMMON)
    shares[N_COMMON:] = _RARE_SHARE

    def rows(labels: np.ndarray) -> np.ndarray:
        out = rng.standard_normal((len(labels), d), dtype=np.float32)
        out *= deviations.astype(np.float32)
        out += centres.astype(np.float32)[labels]
        return out

    y = rng.choice(len(shares), n, p=shares)
    y_test = np.arange(_N_TEST) % len(shares)
    return Data(rows(y), y, rows(y_test), y_test)


def digits() -> Data:
    """Scikit-learn's digits, pixels in [0, 1], a fifth of them to test."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    X, y = load_digits(return_X_y=True)
    parts = train_test_split((X / 16.0).astype(np.float32), y, test_size=0.2, random_state=0, stratify=y)
    return Data(parts[0], parts[2], parts[1], parts[3])


def mnist(folder: Path | None) -> Data | None:
    """Pixels in [0, 1]."""
    found = mnist_arrays(folder)
    return None if found is None else Data(*found)


def covtype(folder: Path | None) -> Data | None:
    """Standardised columns, a tenth of the rows to test."""
    files = sorted((folder / "covtype").glob("covtype*.npz")) if folder is not None else []
    if not files:
        return None
    with np.load(files[0], allow_pickle=False) as archive:
        X, y = archive["X"].astype(np.float32), archive["y"].astype(np.int64)
    X -= X.mean(axis=0)
    X /= np.maximum(X.std(axis=0), 1e-6)
    order = np.random.default_rng(0).permutation(len(X))
    test, train = np.sort(order[: len(X) // 10]), np.sort(order[len(X) // 10 :])
    return Data(X[train], y[train], X[test], y[test])


def california(folder: Path | None) -> Data | None:
    """Standardised columns with long tails; the label is the quarter of the prices, a fifth of the rows to test."""
    file = folder / "california" / "california_housing.parquet" if folder is not None else None
    if file is None or not file.is_file():
        return None
    from pyarrow import parquet

    table = parquet.read_table(file).to_pandas()
    price = table.pop("MedHouseVal").to_numpy()
    y = np.searchsorted(np.quantile(price, (0.25, 0.5, 0.75)), price)
    X = table.to_numpy(dtype=np.float64)
    X = ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(X))
    test, train = np.sort(order[: len(X) // 5]), np.sort(order[len(X) // 5 :])
    return Data(X[train], y[train], X[test], y[test])


def cifar10(folder: Path | None) -> Data | None:
    """The first 64 principal components of the pixels."""
    files = sorted((folder / "cifar-10-batches-bin").glob("*_batch*.bin")) if folder is not None else []
    if len(files) != 6:
        return None
    parts = [np.fromfile(file, dtype=np.uint8).reshape(-1, 3073) for file in files]  # five of training, then test
    pixels = [part[:, 1:].astype(np.float32) / 255.0 for part in parts]
    X, X_test = np.concatenate(pixels[:5]), pixels[5]
    mean = X.mean(axis=0)
    X, X_test = X - mean, X_test - mean
    axes = np.linalg.eigh(X.T @ X)[1][:, -64:]
    y = np.concatenate([part[:, 0] for part in parts[:5]]).astype(np.int64)
    return Data(X @ axes, y, X_test @ axes, parts[5][:, 0].astype(np.int64))


def _mixture_case(n: int, d: int, sizes: tuple[int, ...]) -> Case:
    return Case(f"mixture {n:,} x {d}", lambda _: mixture(n, d), sizes)


# From small to large: what was too slow on a case is not tried on a larger one.
CASES: list[Case] = [
    Case("digits", lambda _: digits(), (128,)),
    _mixture_case(10_000, 16, (128, 1024)),
    _mixture_case(10_000, 128, (1024,)),
    Case("CovType", covtype, (1024,)),
    Case("MNIST", mnist, (1024,)),
    Case("California", california, (128, 1024)),
    Case("CIFAR-10", cifar10, (1024,)),
    _mixture_case(100_000, 16, (1024,)),
    _mixture_case(100_000, 128, (1024,)),
    _mixture_case(1_000_000, 16, (1024,)),
    _mixture_case(1_000_000, 128, (1024,)),
]
QUICK: list[Case] = [Case("digits", lambda _: digits(), (128,)), _mixture_case(3000, 16, (128,))]
