"""From rows to a bound: the passes that find centre, bandwidth, cells and atoms. The same for arrays and files."""

import math
import operator
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.random import Generator

from .._errors import InvalidInputError
from .._progress import Display, OnPass, display_of
from .._validation import LARGEST_MAGNITUDE, LARGEST_RATIO, check_features, check_targets
from ..core.points import Matrix, SensitivityBound, euclidean_distances, squared_norms
from ..rows.arrays import ArrayRows
from ..rows.columns import column_names
from ..rows.engines import Engine, Pass, run_pass
from ..rows.rows import Block, Rows
from .bounds import ClosedForm, Geometry, RowBound, by_all_rows, by_cells, by_paper, label_numbers
from .coreset import QueryBall
from .options import PAPER_BOUNDS, BoundSpec
from .passes import LARGEST_SHIFT, Reduced, Survey, extent, largest_distance

P = TypeVar("P", bound=Pass)

MEDIAN_SAMPLE = 1000
_SAMPLES_PER_CLASS = 4
_ROWS_PER_CELL = 40  # k-means centres are means of about this many rows: enough, since any partition is valid
_NEGLIGIBLE = 1e-3  # squared length of a mean that is as good as zero, in squared spreads
_NEAR_ONE = 1.1  # a total cannot fall below 1: above this there is something to gain
_CHEAP = {"exact": 2e10, "cells": 2e11}  # operations: a second, and some ten seconds, on one core
_STEPS = {"gaussian": 10, "laplacian": 1}  # of an ascent, typically


@dataclass
class Runner:
    """Runs passes over rows with an engine, by default in this process, and records how long they took."""

    rows: Rows
    engine: Engine | None = None
    on_pass: OnPass | None = None
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # of all passes of a name

    @property
    def display(self) -> Display:
        return display_of(self.on_pass)

    def run(self, label: str, prototype: P) -> P:
        started = time.perf_counter()
        found = run_pass(self.engine or Engine(self.rows), self.rows, prototype, self.display(label, self.rows.n))
        self.seconds[label] += time.perf_counter() - started
        return found

    def reduce(self, label: str, function: Callable[[Block], Any], combine: Callable[[Any, Any], Any]) -> Any:
        """What ``combine`` makes of ``function(block)`` for all blocks, in order."""
        return self.run(label, Reduced(function, combine)).value

    def collect(self, label: str, function: Callable[[Block], Any]) -> list[Any]:
        """What ``function`` makes of each block, in order."""
        return self.reduce(label, lambda block: [function(block)], operator.iadd)


def given_rows(X: Any, sample_weight: Any, *, estimator: Any = None, y: Any = None, labels: Any = None) -> Rows:
    """The rows that were passed to ``fit``; ``y`` are targets, if there are any. Finite values are left to a pass."""
    if isinstance(X, Rows):
        for name, given in (("sample_weight", sample_weight), ("y", y)):
            if given is not None:
                raise InvalidInputError(f"{name} does not go with Rows: name its column when the rows are opened.")
        return X
    checked, names = check_features(X, estimator=estimator, finite=False), column_names(X)
    targets = None if y is None else check_targets(y, int(checked.shape[0]))
    if targets is not None and targets.shape[1] != 1:
        raise InvalidInputError(f"y has {targets.shape[1]} columns; one target is needed.")
    if labels is not None and len(labels) != checked.shape[0]:
        raise InvalidInputError(f"y has shape {labels.shape}, but X has {checked.shape[0]} rows: one label a row.")
    columns = None if names is None else list(map(str, names))
    return ArrayRows(checked, sample_weight, labels, names=columns, targets=None if targets is None else targets[:, 0])


def array_runner(X: Matrix, weights: np.ndarray, name: str = "X") -> Runner:
    """Runs passes over rows in memory."""
    return Runner(ArrayRows(X, weights, name=name))


@dataclass(frozen=True)
class Sample:
    """Rows drawn in proportion to their weights; each stands for ``inverse_rates`` rows."""

    X: Matrix
    weights: np.ndarray
    groups: np.ndarray
    inverse_rates: np.ndarray

    def log_values(self, bound: RowBound) -> np.ndarray:
        groups = None if len(bound.geometry.mass) == 1 else self.groups
        return bound.log_values(Block(0, self.X, self.weights), groups)


@dataclass(frozen=True)
class Prepared:
    """What the passes before the last one found."""

    geometry: Geometry
    bound: RowBound
    sample: Sample
    labels: dict[Any, int] | None  # all labels in order, and their numbers


def children(rng: np.random.Generator, count: int) -> list[np.random.Generator]:
    """Independent generators made from ``rng``, whatever it was made from."""
    return [np.random.default_rng(seed) for seed in rng.integers(0, 2**63, size=(count, 2))]


def operations(bound: str, loss: str, n: int, d: int, n_cells: int) -> float:
    """About how many operations a bound takes on n rows of d columns."""
    if bound not in _CHEAP:
        return 4.0 * n * d
    atoms = n if bound == "exact" else min(n_cells, n)
    width = d if bound == "exact" or loss == "laplacian" else min(d, atoms)
    return 4.0 * n * atoms * (width + 8) * _STEPS[loss]


def cheapest(spec: BoundSpec, n: int, d: int, total: float = np.inf) -> str:
    """What "auto" means: the smallest bound that is cheap; the closed form if its ``total`` leaves little to gain."""
    if spec.metric != "euclidean":
        return "exact"
    if total <= _NEAR_ONE:
        return "closed-form"
    for bound, limit in _CHEAP.items():
        is_allowed = bound != "exact" or spec.max_exact is None or n <= spec.max_exact
        if is_allowed and operations(bound, spec.loss, n, d, spec.n_cells) <= limit:
            return bound
    return "closed-form" if spec.loss == "gaussian" else "cells"


def survey_rows(runner: Runner, samples: dict[str, tuple[int, int]], by_label: bool) -> Survey:
    """The survey of all rows: about the mean of the first block, and once more in other units if that fails."""
    rows = runner.rows
    near, is_short = _peek(rows)
    found = runner.run("survey", Survey(near, samples, by_label, is_short=is_short))
    mass = float(found.moments.mass.sum())
    if not 0 < mass <= LARGEST_MAGNITUDE:
        raise InvalidInputError(f"{rows.name}: weights sum to {mass:g}; above 0 to {LARGEST_MAGNITUDE:g} is allowed.")
    if found.is_ordinary:
        return found
    ends = runner.reduce("extent", extent, np.minimum)
    all_equal, peak = np.array_equal(ends[0], -ends[1]), -float(ends.min())
    unit = 2.0 ** min(float(np.ceil(np.log2(peak))), 1023.0) if peak > 0 else 1.0  # of the magnitude of the largest
    again = Survey(ends[0] if all_equal else near, samples, by_label, unit=unit, all_equal=all_equal)
    return runner.run("survey again", again)


def first_block(rows: Rows) -> Block:
    """The first rows; the rest is not read."""
    with closing(rows.blocks()) as blocks:
        return next(blocks)


def _peek(rows: Rows) -> tuple[np.ndarray, bool]:
    """The mean of the first block, and whether it is short compared with the block's spread."""
    block = first_block(rows)
    X = block.X[block.weights > 0] if (block.weights > 0).any() else block.X
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(X, np.ndarray):
            # by differences from the first row: of equal rows the mean is that row to the last digit
            first = X[0].astype(np.float64)
            mean = first + (X - first).mean(axis=0)
        else:
            mean = np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
        mean = np.where(np.abs(mean) <= LARGEST_MAGNITUDE, mean, 0.0)  # the survey names what is not finite
        if not isinstance(X, np.ndarray):
            return mean, True
        spread, length = float(squared_norms(X - mean).max()), float(mean @ mean)
        if length <= _NEGLIGIBLE * spread:
            mean = np.zeros(len(mean))  # as good a guess, and nothing is to be subtracted
    return mean, length <= LARGEST_SHIFT * spread


def prepare(
    runner: Runner,
    spec: BoundSpec,
    rng: np.random.Generator,
    *,
    ball: QueryBall | None = None,
    per_class: bool = False,
    is_sampled: bool = False,
) -> Prepared:
    """Everything up to the bound: a survey, the farthest row if it is needed and still unknown, cells or atoms.

    ``ball`` replaces centre and bandwidth of the rows; ``is_sampled`` draws the sample even if the bound needs none.
    """
    rows, samples = runner.rows, {} if ball is not None else _median_sample(spec, rng)
    size = max(_ROWS_PER_CELL * spec.n_cells, MEDIAN_SAMPLE) * (_SAMPLES_PER_CLASS if per_class else 1)
    seed = int(rng.integers(2**63))
    if is_sampled or spec.bound in ("auto", "cells"):
        samples["cells"] = (seed, size)
    survey = survey_rows(runner, samples, per_class)
    order = None
    if rows.has_labels:  # in ascending order, whatever the order in which labels were met
        is_mixed = len({type(name) for name in survey.labels}) != 1
        order = {name: i for i, name in enumerate(sorted(survey.labels, key=str if is_mixed else None))}
    geometry = find_geometry(runner, spec, survey, order if per_class else None, ball)
    sample = _sample(survey, order if per_class else None)
    return Prepared(geometry, _choose_bound(runner, spec, geometry, sample, rng), sample, order)


def all_bounds(
    runner: Runner, bound: RowBound, labels: dict[Any, int] | None = None
) -> tuple[SensitivityBound, np.ndarray, np.ndarray | None]:
    """The bounds of all rows, their weights and the numbers of their labels."""
    parts = runner.collect("sensitivities", partial(_bounded, bound=bound, labels=labels))
    log_values, gaps, weights, codes = zip(*parts, strict=True)
    gap, numbers = (None if column[0] is None else np.concatenate(column) for column in (gaps, codes))
    found = SensitivityBound(np.concatenate(log_values), bound.name, bound.is_certified, bound.note, gap)
    return found, np.concatenate(weights), numbers


def _bounded(block: Block, bound: RowBound, labels: dict[Any, int] | None) -> tuple[np.ndarray | None, ...]:
    codes = label_numbers(block, labels)
    found = bound.with_gap(block, bound.geometry.groups(block))
    return *found, block.weights.copy(), None if codes is None else codes.astype(np.int32)


def bound_of(runner: Runner, spec: BoundSpec, rng: np.random.Generator, ball: QueryBall) -> SensitivityBound:
    """The bounds of all rows for a given ball."""
    return all_bounds(runner, prepare(runner, spec, rng, ball=ball).bound)[0]


def geometry_of(runner: Runner, spec: BoundSpec, rng: np.random.Generator) -> Geometry:
    """Centre and bandwidth of the rows, without a bound."""
    survey = survey_rows(runner, _median_sample(spec, rng), False)
    return find_geometry(runner, spec, survey, None, None)


def _median_sample(spec: BoundSpec, rng: np.random.Generator) -> dict[str, tuple[int, int]]:
    return {"median": (int(rng.integers(2**63)), MEDIAN_SAMPLE)} if spec.bandwidth == "median" else {}


def find_geometry(runner: Runner, spec: BoundSpec, survey: Survey, order: Any, ball: QueryBall | None) -> Geometry:
    """Centre, bandwidth and groups from a survey; the farthest row is looked for if it is still unknown."""
    unit, moments = survey.unit, survey.moments
    center = survey.near + unit * survey.center() if ball is None else ball.center
    reach, is_exact = survey.farthest(center)
    if not is_exact and ball is None and spec.bandwidth is None:
        reach = runner.reduce("farthest row", partial(largest_distance, center=center, unit=unit), max) * unit
    scale = _scale(runner, spec, survey, center, reach) if ball is None else ball.scale
    farthest = max(reach, float(np.sqrt(survey.reach)) * unit)
    if not farthest <= LARGEST_RATIO * scale:
        away = f"which has a row about {farthest:.3g} away from the mean"
        text = f"bandwidth = {scale:.3g} is too small for {runner.rows.name}, {away}"
        raise InvalidInputError(f"{text}; at most {LARGEST_RATIO:g} bandwidths are possible.")
    arrange = slice(None) if order is None else np.argsort(_renumbered(survey, order))
    mass, ratio = moments.mass[arrange], unit / scale
    offsets = np.zeros_like(moments.mean)
    if len(mass) > 1 or ball is not None:
        offsets = ((survey.near - center) / unit + moments.mean[arrange]) * ratio
        offsets[mass == 0] = 0.0
    is_sparse = not isinstance(survey.far, np.ndarray)
    # hypot does not overflow: a given ball may be far away in the units of these rows
    length = math.hypot(*center / unit) * ratio if center.any() else 0.0
    max_norm = reach / scale
    variances = np.array(moments.variance[arrange])
    variances[variances > 0] *= ratio  # which may be infinite where nothing is to be scaled
    variances[variances > 0] *= ratio
    return Geometry(
        center=center,
        scale=scale,
        max_norm=max_norm,
        rounding_norm=max(max_norm, length) if is_sparse else max_norm,
        center_error=0.0 if ball is not None else 4.0 * float(np.finfo(np.float64).eps) * length,
        is_short=unit == 1.0 and length <= np.sqrt(LARGEST_SHIFT) * max_norm and 1e-120 < scale < 1e120,
        labels=order,
        counts=moments.counts[arrange],
        mass=mass,
        offsets=offsets,
        variances=variances,
    )


def _scale(runner: Runner, spec: BoundSpec, survey: Survey, center: np.ndarray, reach: float) -> float:
    """The bandwidth in units of the data: the farthest row (None), the median distance, or the number given."""
    if spec.metric != "euclidean" and not isinstance(survey.far, np.ndarray):
        raise InvalidInputError(f"metric = {spec.metric!r} needs dense rows; for sparse rows it is 'euclidean'.")
    if spec.bandwidth is None:
        if spec.metric != "euclidean":
            reach = runner.reduce("farthest row", partial(largest_distance, center=center, metric=spec.metric), max)
        return reach or 1.0  # all rows equal: any unit will do
    if isinstance(spec.bandwidth, str):
        columns, _ = survey.samples["median"].winners()
        return median_distance(columns["X"], center, reach or 1.0, spec.metric)
    return float(spec.bandwidth)


def median_distance(X: Matrix, center: np.ndarray, unit: float, metric: Any = "euclidean") -> float:
    """The median of the positive distances between rows; ``unit``, a typical distance, if there is none."""
    from scipy.spatial.distance import pdist

    least = 1e-12  # of the unit: rounding
    if metric != "euclidean":
        distances, unit, least = pdist(X, metric=metric), 1.0, 0.0
    elif isinstance(X, np.ndarray):
        distances = pdist((np.asarray(X, dtype=np.float64) - center) / unit)
    else:
        sample = X.astype(np.float64) / unit
        distances = euclidean_distances(sample, sample)[np.triu_indices(X.shape[0], 1)]
    distances = distances[distances > least]
    return float(np.median(distances)) * unit if len(distances) > 0 else unit


def _renumbered(survey: Survey, order: dict[Any, int]) -> np.ndarray:
    """For each label as numbered by the survey, its number in ``order``."""
    return np.array([order[name] for name in survey.labels], dtype=np.int64)


def _sample(survey: Survey, order: dict[Any, int] | None) -> Sample:
    if "cells" not in survey.samples:
        return Sample(np.zeros((0, len(survey.near))), np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0))
    columns, (draw,) = survey.samples["cells"].winners()
    weights = columns["weight"]
    groups = np.zeros(len(weights), np.int64) if order is None else _renumbered(survey, order)[columns["code"]]
    return Sample(columns["X"], weights, groups, draw.weights / weights)


def _choose_bound(runner: Runner, spec: BoundSpec, geometry: Geometry, sample: Sample, rng: Generator) -> RowBound:
    n, d = runner.rows.n, runner.rows.d
    is_gaussian, radius, chosen = spec.loss == "gaussian", spec.radius, spec.bound
    if is_gaussian and chosen in ("auto", "closed-form"):
        closed = ClosedForm(geometry, radius)
        if chosen == "auto":
            total = float(np.exp(sample.log_values(closed)) @ sample.inverse_rates)
            chosen = cheapest(spec, n, d, total / len(geometry.mass))
        if chosen == "closed-form":
            return closed
    elif chosen == "auto":
        chosen = cheapest(spec, n, d)
    if chosen in PAPER_BOUNDS:
        how = (chosen, radius) if is_gaussian else ("laplacian", 1.0)
        return by_paper(runner.run, geometry, *how)
    if chosen == "exact":
        check_exact(spec, n)
        with runner.rows.load() as everything:
            return by_all_rows(geometry, spec.loss, radius, spec.metric, everything)
    if chosen != "cells":
        raise NotImplementedError(f"bound = {chosen!r} is listed and not made here")
    seed = int(rng.integers(2**31))
    members = [sample.X[np.flatnonzero(sample.groups == group)] for group in range(len(geometry.mass))]
    return by_cells(runner.run, geometry, spec.loss, radius, members, spec.n_cells, seed)


def check_exact(spec: BoundSpec, n: int) -> None:
    """Refuse to compare all rows with all others where they are too many."""
    if (most := spec.max_exact) is not None and n > most:
        text = f"bound='exact' compares every row with every other: n_samples = {n} exceeds max_exact = {most}"
        raise InvalidInputError(f"{text}. Use bound='cells', or pass max_exact=None to force it.")
