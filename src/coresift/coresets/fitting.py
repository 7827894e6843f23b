"""From a source to its bound: passes that find centre, bandwidth and cells, as the estimators find them in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from .._errors import InvalidInputError
from .._validation import LARGEST_MAGNITUDE, LARGEST_RATIO
from ..rows.engines import Engine, OnRows, Pass, run_pass
from ..rows.rows import Block, Rows, block_rows
from .geometry import MEDIAN_SAMPLE, cells_sample_size, kmeans_centers, median_distance
from .laplacian import LaplacianCoreset
from .rbf import RBFCoreset
from .row_bounds import ClosedForm, GaussianCells, GroupCells, LaplacianCells, RowBound
from .survey import Geometry, Reach, Survey

S = TypeVar("S", bound=Pass)
Estimator = RBFCoreset | LaplacianCoreset
OnPass = Callable[[str, int], OnRows]
"""Told of the name of a pass and its rows when it begins; returns what is told of finished rows."""

_PEEKED_PIECES = 8
_SAMPLES_PER_CLASS = 4
_SMALLEST_SPREAD = 1e-140  # distances below it lose digits when squared


def silent(_label: str, _rows: int) -> OnRows:
    """Tells nobody."""
    return lambda _: None


@dataclass
class Runner:
    """Runs passes over a source with an engine, and remembers how long each took."""

    source: Rows
    engine: Engine
    on_pass: OnPass = silent
    seconds: list[tuple[str, float]] = field(default_factory=list)
    needs_reach: bool = False
    prepared: Prepared | None = None

    def run(self, label: str, prototype: S) -> S:
        """The summary of all rows."""
        started = time.perf_counter()
        found = run_pass(self.engine, self.source, prototype, self.on_pass(label, self.source.n))
        self.seconds.append((label, time.perf_counter() - started))
        return found


@dataclass(frozen=True)
class Sample:
    """Rows drawn in proportion to their weights; each stands for ``inverse_rates`` rows."""

    X: np.ndarray
    weights: np.ndarray
    rows: np.ndarray
    groups: np.ndarray
    inverse_rates: np.ndarray


@dataclass(frozen=True)
class Prepared:
    """What the passes before the last one found."""

    geometry: Geometry
    bound: RowBound
    sample: Sample
    labels: dict[Any, int] | None
    """All labels in order, and their numbers."""


def peek(source: Rows) -> tuple[np.ndarray, float]:
    """A guess of the mean from the first rows of a few pieces, and the seconds that reading a row took."""
    started = time.perf_counter()
    step = max(1, len(source.pieces) // _PEEKED_PIECES)
    means, n = [], 0
    for piece in source.pieces[::step][:_PEEKED_PIECES]:
        with _closing(source.read(piece)) as chunks:
            chunk = next(chunks)
        rows = chunk.X[: block_rows(source.d)].astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            means.append(rows.mean(axis=0))
        n += len(chunk.X)
    mean = np.mean(means, axis=0)
    usable = np.abs(mean) <= LARGEST_MAGNITUDE  # the survey will name what is not
    return np.where(usable, mean, 0.0), (time.perf_counter() - started) / max(n, 1)


@contextmanager
def _closing(chunks: Iterator[Block]) -> Iterator[Iterator[Block]]:
    try:
        yield chunks
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            close()


def prepare(
    runner: Runner,
    estimator: Estimator,
    rng: np.random.Generator,
    *,
    per_class: bool = False,
    exact_reach: bool = False,
) -> Prepared:
    """Everything up to the bound: a survey, the farthest row if it is needed and still unknown, the cells if wanted.

    Randomness is used in the order in which ``estimator.fit`` uses it on an array.
    """
    source = runner.source
    samples = {}
    if estimator.bandwidth == "median":
        samples["median"] = (int(rng.integers(2**63)), MEDIAN_SAMPLE)
    size = cells_sample_size(estimator.n_cells) * (_SAMPLES_PER_CLASS if per_class else 1)
    samples["cells"] = (int(rng.integers(2**63)), size)
    survey = runner.run("survey", Survey(peek(source)[0], samples, per_class))
    mass = survey.moments.mass
    if not np.isfinite(survey.moments.squares).all():
        raise InvalidInputError(
            f"{source.name}: rows are so large that squares of distances overflow; scale the columns first."
        )
    if not 0 < mass.sum() <= LARGEST_MAGNITUDE:
        raise InvalidInputError(
            f"{source.name}: the weights sum to {mass.sum():g}; it must be positive and at most {LARGEST_MAGNITUDE:g}."
        )
    center = (mass / mass.sum()) @ survey.moments.mean if len(mass) > 1 else survey.moments.mean[0]
    max_norm, is_exact = survey.farthest(center)
    if not is_exact and (estimator.bandwidth is None or exact_reach):
        max_norm = float(np.sqrt(runner.run("farthest row", Reach(center)).square))
    if max_norm < _SMALLEST_SPREAD and np.ptp(survey.samples["cells"].columns()["X"], axis=0).any():
        raise InvalidInputError(
            f"{source.name}: rows differ by less than {_SMALLEST_SPREAD:g}, so that squares of distances underflow; "
            "scale the columns first."
        )
    scale = _scale(estimator, survey, center, max_norm)
    if max_norm > LARGEST_RATIO * scale:
        raise InvalidInputError(
            f"bandwidth = {scale:.3g} is too small for {source.name}, which has a row about {max_norm:.3g} away from "
            f"the mean; at most {LARGEST_RATIO:g} bandwidths are possible."
        )
    order = _sorted_labels(survey.labels) if source.has_labels else None
    geometry = _geometry(survey, order if per_class else None, center, scale, max_norm)
    sample = _sample(survey, order if per_class else None)
    bound = _choose_bound(runner, estimator, geometry, sample, rng)
    return Prepared(geometry, bound, sample, order)


def _scale(estimator: Estimator, survey: Survey, center: np.ndarray, max_norm: float) -> float:
    if estimator.bandwidth is None:
        # all rows equal: any unit will do. Their mean is off by rounding, which is no distance.
        return max_norm if max_norm > _center_error(center) else 1.0
    if estimator.bandwidth == "median":
        drawn = survey.samples["median"].draws()[0].indices
        columns = survey.samples["median"].columns()
        X = columns["X"][np.isin(columns["row"], drawn)]
        found: Any = SimpleNamespace(mean=center, max_norm=max_norm)
        return median_distance(X, found, np.arange(len(X)))
    return float(estimator.bandwidth)


def _center_error(center: np.ndarray) -> float:
    return 4.0 * float(np.finfo(np.float64).eps) * float(np.linalg.norm(center))


def _sorted_labels(labels: dict[Any, int]) -> dict[Any, int]:
    """Numbers of the labels in ascending order, whatever the order in which they were met."""
    kinds = {type(name) for name in labels}
    names = sorted(labels, key=None if len(kinds) == 1 else str)
    return {name: i for i, name in enumerate(names)}


def _renumbered(survey: Survey, order: dict[Any, int]) -> np.ndarray:
    """For each label as numbered by the survey, its number in ``order``."""
    to = np.empty(len(order), dtype=np.int64)
    for name, met in survey.labels.items():
        to[met] = order[name]
    return to


def _geometry(
    survey: Survey, order: dict[Any, int] | None, center: np.ndarray, scale: float, max_norm: float
) -> Geometry:
    moments = survey.moments
    arrange = slice(None) if order is None else np.argsort(_renumbered(survey, order))
    mass = moments.mass[arrange]
    offsets = (moments.mean[arrange] - center) / scale
    squares = np.divide(moments.squares[arrange], mass, out=np.zeros(len(mass)), where=mass > 0)
    return Geometry(
        center=center,
        scale=scale,
        max_norm=max_norm / scale,
        center_error=_center_error(center) / scale,
        labels=order,
        counts=moments.counts[arrange],
        mass=mass,
        offsets=np.where(mass[:, None] > 0, offsets, 0.0),
        variances=squares / scale**2,
    )


def _sample(survey: Survey, order: dict[Any, int] | None) -> Sample:
    pool = survey.samples["cells"]
    columns, draw = pool.columns(), pool.draws()[0]
    kept = np.isin(columns["row"], draw.indices)
    weights = columns["weight"][kept]
    groups = (
        np.zeros(len(weights), dtype=np.int64)
        if order is None
        else _renumbered(survey, order)[columns["code"][kept]]
    )
    return Sample(columns["X"][kept], weights, draw.indices, groups, draw.weights / weights)


def _choose_bound(
    runner: Runner, estimator: Estimator, geometry: Geometry, sample: Sample, rng: np.random.Generator
) -> RowBound:
    n, d = runner.source.n, runner.source.d
    chosen = estimator.bound
    if isinstance(estimator, RBFCoreset):
        closed = ClosedForm(geometry, float(estimator.radius))
        if chosen == "auto":
            chosen = estimator._cheapest(_total_from(sample, closed), n, d)
        if chosen == "closed-form":
            return closed
    elif chosen == "auto":
        chosen = "cells"
    if chosen in ("paper", "lemma"):
        from .lewis_passes import lewis_bound

        return lewis_bound(runner, estimator, geometry)
    if chosen == "exact":
        chosen = "cells"  # all pairs of rows: only "auto" comes here, and cells are the next best
    kmeans_seed = int(rng.integers(2**31))
    centers = [
        _centers(sample.X[sample.groups == group], geometry, group, estimator.n_cells, kmeans_seed)
        for group in range(len(geometry.mass))
    ]
    sums = runner.run("cells", GroupCells(geometry, centers)).sums
    summaries = [group_sums.finish() for group_sums in sums]
    if isinstance(estimator, RBFCoreset):
        return GaussianCells(geometry, float(estimator.radius), summaries)
    return LaplacianCells(geometry, summaries)


def _centers(X: np.ndarray, geometry: Geometry, group: int, n_cells: int, seed: int) -> np.ndarray:
    """Centres of cells of a group in scaled coordinates: its mean, if the sample has no row of it."""
    if len(X) == 0:
        return geometry.offsets[group : group + 1]
    scaled = (X.astype(np.float64) - geometry.center) / geometry.scale
    if len(scaled) <= n_cells:
        return scaled
    return kmeans_centers(scaled, n_cells, seed)


def _total_from(sample: Sample, bound: RowBound) -> float:
    """The total of a bound, estimated from the sample."""
    return float(np.exp(sample_log_values(sample, bound)) @ sample.inverse_rates)


def sample_log_values(sample: Sample, bound: RowBound) -> np.ndarray:
    """The bound at the rows of the sample."""
    groups = None if len(bound.geometry.mass) == 1 else sample.groups
    return bound.log_values(Block(0, sample.X, sample.weights, None), groups)
