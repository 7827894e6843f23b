"""Facts about a data set: sensitivities, its most and least sensitive rows, and certificates of coresets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coresift._errors import CoresiftError
from coresift.coresets import RBFCoreset
from coresift.coresets.uniform import uniform_coreset
from coresift.data.datasets import load_dataset
from coresift.data.splits import ArrayDataset, DatasetSplits

logger = logging.getLogger("coresift")

N_THUMBNAILS = 18
_SEED = 0
_WORK = 2e11  # multiplications for the certificates of a data set: about twenty seconds on one core
_LEAST_SAMPLED, _MOST_SAMPLED = 2_000, 20_000
_PER_EXPONENTIAL = 100  # columns: what one exponential costs


@dataclass(frozen=True)
class Proof:
    """The certified error of one coreset; ``uniform_eps`` is that of a uniform sample of the same size."""

    budget: float
    size: int
    eps: float
    uniform_eps: float
    is_exact: bool
    confidence: float
    n_sampled: int | None


@dataclass(frozen=True)
class Thumbnail:
    """A row of the data, with its picture if it is an image."""

    row: int
    label: str
    share: float  # its sensitivity over the mean of all
    image: np.ndarray | None  # (c, h, w) bytes


@dataclass(frozen=True)
class Inputs:
    """Facts about the training data of a table."""

    name: str
    n_samples: int
    shape: tuple[int, ...]
    sensitivities: np.ndarray  # over their mean
    total: float
    uniform_factor: float
    bound: str
    advice: str
    radius: float
    most: tuple[Thumbnail, ...]
    least: tuple[Thumbnail, ...]
    proofs: tuple[Proof, ...]


@dataclass(frozen=True)
class Missing:
    """Why there are no facts, and what to do about it."""

    reason: str


def look_at(
    name: str,
    budgets: Sequence[float],
    data_dir: Path | None,
    *,
    verbose: int = 0,
    load: Callable[..., DatasetSplits] = load_dataset,
) -> Inputs | Missing:
    """Compute sensitivities, thumbnails and certificates of a data set by name, or say why there are none."""
    if data_dir is None:
        return Missing(
            "The report was made without the data. Sensitivities, images and certificates need them: "
            "give the folder of the data sets as --data-dir ('coresift datasets' lists the files)."
        )
    try:
        splits = load(name, data_dir)
    except (CoresiftError, OSError) as error:
        return Missing(f"The data could not be read: {error}")
    train = splits.train
    if not isinstance(train, ArrayDataset):
        return Missing(
            f"{name} is read from disk image by image, which would take hours here; "
            "'coresift select' computes its sensitivities in passes."
        )
    logger.log(_level(verbose), "%s: sensitivities of %s rows", name, f"{len(train):,}")
    X = matrix(train)
    estimator = RBFCoreset(random_state=_SEED).fit(X)
    # a certificate of all of MNIST takes about ten seconds: only the smallest and the largest budget get one
    shares = sorted(budget for budget in budgets if budget < 1.0)
    proofs = prove(estimator, X, sorted({*shares[:1], *shares[-1:]}), verbose=verbose)
    order = np.argsort(-estimator.sensitivities_, kind="stable")
    relative = estimator.sensitivities_ / estimator.sensitivities_.mean()

    def seen(rows: np.ndarray) -> tuple[Thumbnail, ...]:
        return tuple(thumbnail(splits, int(row), float(relative[row])) for row in rows)

    return Inputs(
        name=name,
        n_samples=len(train),
        shape=splits.input_shape,
        sensitivities=relative,
        total=float(estimator.total_sensitivity_),
        uniform_factor=float(estimator.uniform_factor_),
        bound=str(estimator.bound_),
        advice=estimator.advice(),
        radius=float(estimator.radius),
        most=seen(order[:N_THUMBNAILS]),
        least=seen(order[::-1][:N_THUMBNAILS]),
        proofs=tuple(proofs),
    )


def matrix(train: ArrayDataset) -> np.ndarray:
    """Return the inputs as rows of float32, bytes over 255, as the strategy RBF sees them."""
    rows = train.x.reshape(len(train), -1)
    return rows.astype(np.float32) / np.float32(255.0) if rows.dtype == np.uint8 else rows


def prove(estimator: RBFCoreset, X: np.ndarray, budgets: Sequence[float], verbose: int = 0) -> list[Proof]:
    """Certify a coreset of each budget, and uniform samples of the same size."""
    n, d = X.shape
    found = []
    # N rows against N + m, twice for each budget: the samples are as large as the time allows
    affordable = int(np.sqrt(_WORK / (max(2 * len(budgets), 1) * (d + _PER_EXPONENTIAL))))
    n_sampled = min(max(affordable, _LEAST_SAMPLED), _MOST_SAMPLED)
    rng = np.random.default_rng(_SEED)
    for budget in budgets:
        # normalised as in training, where the mean of the weights does not matter; otherwise the total is noise
        core = estimator.sample(budget, method="keys", random_state=_SEED, normalize=True)
        uniform = uniform_coreset(n, core.size, rng, ball=core.ball)
        options: dict[str, Any] = {"n_sampled": n_sampled, "random_state": _SEED}
        options["method"] = "sampled" if n > 2 * n_sampled else "exact"
        logger.log(_level(verbose), "certificates of %s of %s rows", f"{core.size:,}", f"{n:,}")
        ours, theirs = core.certify(X, **options), uniform.certify(X, **options)
        found.append(Proof(budget, core.size, ours.eps, theirs.eps, ours.is_exact, ours.confidence, ours.n_sampled))
    return found


def thumbnail(splits: DatasetSplits, row: int, share: float) -> Thumbnail:
    """Return a row with its class, and its pixels if it is an image."""
    image = splits.train.x[row] if isinstance(splits.train, ArrayDataset) else None
    if image is not None and (image.dtype != np.uint8 or image.ndim != 3 or image.shape[0] not in (1, 3)):
        image = None
    label = str(splits.train.y[row])
    if splits.class_names is not None and splits.task == "classification":
        label = splits.class_names[int(splits.train.y[row])]
    return Thumbnail(row, label, share, image)


def _level(verbose: int) -> int:
    return logging.WARNING if verbose else logging.INFO
