"""``fit`` of an estimator on a source: two numbers a row are kept, the rows are not."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._errors import InvalidInputError, InvalidTypeError
from ..core.bound import SensitivityBound
from ..rows.engines import open_engine
from ..rows.rows import Rows
from .base import Fit, SensitivityCoreset, fit_elsewhere
from .fitting import Runner, prepare
from .laplacian import LaplacianCoreset
from .rbf import RBFCoreset
from .row_bounds import Collected


@fit_elsewhere.register
def fit_rows(
    source: Rows, estimator: SensitivityCoreset, sample_weight: Any, rng: np.random.Generator
) -> Fit:
    """What ``fit`` finds of an array, found in passes over a source, in this process."""
    if sample_weight is not None:
        raise InvalidInputError(
            "sample_weight does not go with a source: name its column when the source is opened."
        )
    with open_engine("local", source, 1) as engine:
        return fit_passes(Runner(source, engine), estimator, None, rng)


@fit_elsewhere.register
def fit_passes(
    runner: Runner, estimator: SensitivityCoreset, sample_weight: Any, rng: np.random.Generator
) -> Fit:
    """The same with a given engine; the runner keeps what was prepared."""
    if not isinstance(estimator, RBFCoreset | LaplacianCoreset):
        raise InvalidTypeError(
            f"{type(estimator).__name__} cannot be fitted on a source; load it into an array."
        )
    if getattr(estimator, "metric", "euclidean") != "euclidean":
        raise InvalidInputError("sources have metric='euclidean' only.")
    if estimator.bound == "exact":
        raise InvalidInputError(
            "bound='exact' compares all rows with all others: load the source into an array."
        )
    found = runner.prepared = prepare(runner, estimator, rng, exact_reach=runner.needs_reach)
    parts = runner.run("sensitivities", Collected(found.bound)).parts
    weights = np.concatenate([part[1] for part in parts])
    bound = SensitivityBound(
        np.concatenate([part[0] for part in parts]),
        found.bound.name,
        found.bound.is_certified,
        found.bound.note,
    )
    total = float(weights.sum())
    geometry = found.geometry
    return Fit(geometry.center, geometry.scale, bound, total, weights / total, weights)
