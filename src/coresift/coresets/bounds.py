"""Sensitivity bounds as maps: from a block of rows, in a known geometry, to the logarithms of their bounds.

Rows are compared with their group, all rows or a class; for one ball, coresets of groups are together one of all rows.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .._errors import InvalidInputError
from .._threads import SCIKIT_LEARN, one_thread
from .._validation import check_features, check_positive, check_weights
from ..core.gaussian import CellSums, Problem, cells_bound, closed_form, exact, lloyd_centers, row_atoms
from ..core.laplacian import laplacian_cells, laplacian_exact
from ..core.points import (
    CACHE_BYTES,
    GEMM_BLOCK_BYTES,
    LARGEST_EXPONENT,
    Matrix,
    Points,
    SensitivityBound,
    float_rows,
    log_shares,
    rounding_slack,
    squared_norms,
)
from ..rows.rows import Block

if TYPE_CHECKING:
    from ..core.lewis import L1SVD
    from ..core.paper import PaperBound

AS_GOOD = 1.5  # plain sampling that needs at most this factor more points is called as good
_Rows = slice | np.ndarray
_OfGroups = Mapping[int, Callable[..., SensitivityBound]]
_Run = Callable[[str, Any], Any]  # runs a pass, called by its name


def label_numbers(block: Block, numbers: dict[Any, int] | None) -> np.ndarray | None:
    """The number of the label of each row of a block; None without labels or numbers."""
    if numbers is None or block.labels is None:
        return None
    return np.array([numbers[name] for name in block.labels.names], dtype=np.int64)[block.labels.codes]


@dataclass(frozen=True)
class Geometry:
    """Where the ball is, and the groups in its coordinates ``(x - center) / scale``; without labels one group."""

    center: np.ndarray  # (d,) data units
    scale: float
    max_norm: float  # scaled, of a row of positive weight
    rounding_norm: float  # scaled: its square bounds the numbers that are subtracted to get a squared norm
    center_error: float  # scaled: how far the centre may be from the mean
    is_short: bool  # whether squared norms may be expanded, which is faster
    labels: dict[Any, int] | None  # number of the group of each label
    counts: np.ndarray  # (g,) rows that have weight
    mass: np.ndarray  # (g,) sums of weights
    offsets: np.ndarray  # (g, d) means, scaled
    variances: np.ndarray  # (g,) scaled

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # frozen: the copies of a pass share it

    def groups(self, block: Block) -> np.ndarray | None:
        """The group of each row of a block; None if there is only one."""
        return label_numbers(block, self.labels)

    def shares(self, weights: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
        if groups is None:
            return weights / self.mass[0]
        mass = self.mass[groups]
        return np.divide(weights, mass, out=np.zeros(len(mass)), where=mass > 0)

    def points(self, X: Matrix) -> Points:
        return Points(float_rows(X), self.center, self.scale, self.max_norm)

    def sq_norms(self, X: Matrix) -> np.ndarray:
        """(b,) squared distances from the centre, scaled."""
        if not (self.is_short and isinstance(X, np.ndarray)):
            with np.errstate(over="ignore"):  # rows without weight may be anywhere
                return self.points(X).squares
        plain = Points(float_rows(X), np.zeros(len(self.center)), 1.0, np.inf)
        blocks = (rows for _, rows in plain.blocks(budget=CACHE_BYTES))
        squares = np.concatenate([rows.sq_norms - 2.0 * rows.dot(self.center[None])[:, 0] for rows in blocks])
        squares += self.center @ self.center
        squares *= 1.0 / self.scale**2
        return np.maximum(squares, 0.0, out=squares)


class RowBound(ABC):
    """A bound on the sensitivity of every row of a block, in its group."""

    name: str
    is_certified: bool = True
    note: str
    geometry: Geometry

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # never changed: the copies of a pass share it

    @abstractmethod
    def with_gap(self, block: Block, groups: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
        """(b,) logarithms of the bounds, ``-inf`` for rows of weight zero; their duality gaps if found by ascent."""

    def log_values(self, block: Block, groups: np.ndarray | None) -> np.ndarray:
        return self.with_gap(block, groups)[0]


def by_group(groups: np.ndarray | None, n_rows: int) -> Iterator[tuple[int, _Rows]]:
    """The groups that occur, and their rows."""
    if groups is None:
        yield 0, slice(0, n_rows)
        return
    for group in np.unique(groups):
        yield int(group), np.flatnonzero(groups == group)


class ClosedForm(RowBound):
    """The one-atom certificate of :func:`coresift.core.gaussian.closed_form`."""

    name = "closed-form"
    note = "Jensen's inequality at the mean; valid for every radius."

    def __init__(self, geometry: Geometry, radius: float) -> None:
        self.geometry, self.radius = geometry, radius
        # the closed form is that of the mean, the ball is centred at a rounded one: 2 R |p - mean| <= 2 R (|p| + error)
        self.slack = rounding_slack(geometry.rounding_norm, radius) + 2.0 * radius * geometry.center_error
        # |x|^2 - 2 x.c + |c|^2 has terms of at most 4 (max |x - c| + |c|)^2, each with an error of some 2^-53
        shift = float(np.linalg.norm(geometry.center)) / geometry.scale if geometry.is_short else 0.0
        self.square_error = 2e-14 * (geometry.rounding_norm + shift) ** 2

    def with_gap(self, block: Block, groups: np.ndarray | None) -> tuple[np.ndarray, None]:
        return self.bound(block, groups)[0].log_values, None

    def bound(self, block: Block, groups: np.ndarray | None) -> tuple[SensitivityBound, np.ndarray, np.ndarray]:
        """The bound, squared norms and shares."""
        geometry = self.geometry
        sq_norms, shares = geometry.sq_norms(block.X), geometry.shares(block.weights, groups)
        second, from_mean = geometry.variances, None
        if len(geometry.mass) > 1 or geometry.offsets.any():  # the ball is not around the mean of the group
            second = second + squared_norms(geometry.offsets)
            from_mean = self._from_mean(block, groups)
        moment: Any = float(second[0]) if groups is None else second[groups]
        bound = closed_form(sq_norms, shares, moment, self.radius, self.slack, from_mean, self.square_error)
        return bound, sq_norms, shares

    def _from_mean(self, block: Block, groups: np.ndarray | None) -> np.ndarray:
        """(b,) distances from the mean of the group, scaled."""
        geometry, distances = self.geometry, np.empty(block.n)
        for part, rows in geometry.points(block.X).blocks(extra_columns=block.X.shape[1]):
            means = geometry.offsets[0 if groups is None else groups[part]]
            if rows.shift is not None:
                own = means[None] if means.ndim == 1 else means
                if len(own) == 1:
                    inner = rows.dot(own)[:, 0]
                else:  # each row with its partner
                    inner = np.asarray((rows.rows * own).sum(axis=1)).ravel() - own @ rows.shift
                squares = rows.sq_norms - 2.0 * inner + squared_norms(own)
                # near the mean squares cancel, and half of the digits are lost: longer is safe, shorter is not
                distances[part] = np.sqrt(np.maximum(squares, 0.0)) + 1e-7 * geometry.rounding_norm
            else:
                with np.errstate(over="ignore"):  # rows without weight may be anywhere
                    distances[part] = np.sqrt(squared_norms(rows.dense() - means))
        return distances


class GaussianBound(RowBound):
    """Start from the closed form and ascend in each group (:mod:`coresift.core.gaussian`)."""

    def __init__(self, geometry: Geometry, radius: float, name: str, note: str, ascents: _OfGroups) -> None:
        self.geometry, self.radius, self.name, self.note = geometry, radius, name, note
        self.start, self.ascents = ClosedForm(geometry, radius), ascents

    def with_gap(self, block: Block, groups: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        start, sq_norms, shares = self.start.bound(block, groups)
        log_values, gap = start.log_values, np.zeros(block.n)
        for group, rows in by_group(groups, block.n):
            if not self.geometry.mass[group] > 0:  # a class without weight: nothing of it is drawn
                continue
            own = SensitivityBound(log_values[rows], start.name, True)
            problem = Problem(self.geometry.points(block.X[rows]), sq_norms[rows], shares[rows], self.radius)
            found = self.ascents[group](problem, start=own)
            log_values[rows], gap[rows] = found.log_values, found.gap
        return log_values, gap


class LaplacianBound(RowBound):
    """A bound of the Laplacian loss, from points and shares of a group."""

    def __init__(self, geometry: Geometry, name: str, note: str, bounds: _OfGroups) -> None:
        self.geometry, self.name, self.note, self.bounds = geometry, name, note, bounds

    def with_gap(self, block: Block, groups: np.ndarray | None) -> tuple[np.ndarray, None]:
        shares, log_values = self.geometry.shares(block.weights, groups), np.empty(block.n)
        for group, rows in by_group(groups, block.n):
            log_values[rows] = self.bounds[group](self.geometry.points(block.X[rows]), shares[rows]).log_values
        return log_values, None


def by_cells(
    run: _Run, geometry: Geometry, loss: str, radius: float, samples: list[Matrix], n_cells: int, seed: int
) -> RowBound:
    """The certificate of k atoms, :func:`.cells_bound` or :func:`.laplacian_cells`, from a sample of each group."""
    centers = [
        cell_centers(X, geometry, n_cells, seed) if X.shape[0] else mean[None]
        for X, mean in zip(samples, geometry.offsets, strict=True)
    ]
    summaries = [sums.finish() for sums in run("cells", GroupCells(geometry, centers)).sums]
    k = max(len(summary.mass) for summary in summaries)
    function = cells_bound if loss == "gaussian" else laplacian_cells
    own = {group: partial(function, summary=summary) for group, summary in enumerate(summaries)}
    if loss == "gaussian":
        note = f"Jensen's inequality in {k} cells and convex duality; valid for every radius."
        return GaussianBound(geometry, radius, "cells", note, own)
    return LaplacianBound(geometry, "cells", f"Jensen's inequality in {k} cells; valid for every query.", own)


def by_all_rows(geometry: Geometry, loss: str, radius: float, metric: Any, everything: Block) -> RowBound:
    """The sensitivities themselves, every row of a group an atom: :func:`.exact`, or :func:`.laplacian_exact`."""
    groups = geometry.groups(everything)
    shares, sq_norms = geometry.shares(everything.weights, groups), geometry.sq_norms(everything.X)
    own: dict[int, Callable[..., SensitivityBound]] = {}
    for group, rows in by_group(groups, everything.n):
        points = geometry.points(everything.X[rows])
        if loss == "gaussian":
            own[group] = partial(exact, atoms=row_atoms(Problem(points, sq_norms[rows], shares[rows], radius)))
        else:
            own[group] = partial(laplacian_exact, metric=metric, among=(points, shares[rows]))
    if loss == "gaussian":
        note = "Concave maximisation with a duality gap per point; valid for every radius."
        return GaussianBound(geometry, radius, "exact", note, own)
    note = "The triangle inequality, an equality at the point itself; valid for every query."
    return LaplacianBound(geometry, "exact", note, own)


class LewisBound(RowBound):
    """One of the paper's bounds (:mod:`coresift.core.paper`), not capped at 1."""

    def __init__(self, geometry: Geometry, bound: "PaperBound") -> None:
        self.geometry, self._bound = geometry, bound
        self.name, self.is_certified, self.note = bound.name, bound.is_certified, bound.note

    def with_gap(self, block: Block, groups: np.ndarray | None) -> tuple[np.ndarray, None]:
        return self._bound.log_values(block), None


def by_paper(run: _Run, geometry: Geometry, kind: str, radius: float) -> LewisBound:
    """Find the paper's bound of a kind ("paper", "lemma" or "laplacian") in passes over blocks of rows."""
    from ..core.paper import paper_bound  # late: no other bound needs it, and it takes long to import

    read, shape = partial(_lifted_input, geometry=geometry), (int(geometry.counts.sum()), len(geometry.center))
    return LewisBound(geometry, paper_bound(run, read, shape, kind=kind, radius=radius, max_norm=geometry.max_norm))


def _lifted_input(block: Block, geometry: Geometry) -> tuple[np.ndarray, np.ndarray]:
    """A block as dense scaled points, with the logarithms of their shares."""
    return geometry.points(block.X).gather(slice(None)).dense(), log_shares(block.weights / geometry.mass.sum())


def cell_centers(X: Matrix, geometry: Geometry, n_cells: int, seed: int) -> np.ndarray:
    """(k, d) centres in scaled coordinates, by k-means on a sample of rows; k is at most ``n_cells``."""
    if not isinstance(X, np.ndarray) and n_cells < X.shape[0] and 8 * X.shape[0] * X.shape[1] > GEMM_BLOCK_BYTES:
        from scipy.sparse import csr_matrix

        centers = kmeans_centers(csr_matrix(X, dtype=np.float64) / geometry.scale, n_cells, seed)
        return centers - geometry.center / geometry.scale
    rows = geometry.points(X).take(np.arange(X.shape[0]))
    if len(rows) <= n_cells:
        return rows
    # in few digits, so that dense and sparse rows, which differ in the last one, have the same cells
    unit = float(np.abs(rows).max()) + 1e-300
    return lloyd_centers((rows / unit).astype(np.float32), n_cells, seed) * unit


def kmeans_centers(sample: Any, n_cells: int, seed: int, weights: Any = None, n_init: int = 1) -> np.ndarray:
    """(k, d) centres of the rows of a sample."""
    # imported here because it takes as long as the rest of the package
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    kmeans = KMeans(n_cells, n_init=n_init, max_iter=20, random_state=seed)
    with one_thread(), SCIKIT_LEARN, warnings.catch_warnings():
        # fewer distinct points than cells: the empty ones are dropped later
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(kmeans.fit(sample, sample_weight=weights).cluster_centers_, dtype=np.float64)


class GroupCells:
    """Mass, mean and variance of the cells of every group: one pass."""

    def __init__(self, geometry: Geometry, centers: list[np.ndarray]) -> None:
        self.geometry = geometry
        self.sums = [CellSums(group_centers) for group_centers in centers]

    def update(self, block: Block) -> None:
        groups = self.geometry.groups(block)
        shares = self.geometry.shares(block.weights, groups)
        for group, rows in by_group(groups, block.n):
            self.sums[group].update(self.geometry.points(block.X[rows]).gather(slice(None)), shares[rows])

    def merge(self, other: Self) -> None:
        for mine, theirs in zip(self.sums, other.sums, strict=True):
            mine.merge(theirs)


def log_unit_of(log_values: np.ndarray) -> float:
    """The logarithm of the unit of scores: 0, or the largest bound where it is above 1."""
    return max(float(log_values.max(initial=0.0)), 0.0)


def draw_scores(
    log_values: np.ndarray, shares: np.ndarray, log_unit: float, values: np.ndarray | None = None
) -> np.ndarray:
    """Scores to draw by, in units of ``exp(log_unit)``: the sensitivities, but never below the share of the weight."""
    # the floor adds at most 1 to the total; without it a point far away would be drawn once in ages, and weigh as much
    if log_unit == 0.0:
        scores = np.maximum(np.exp(log_values) if values is None else values, shares)
    else:
        log_scores = np.clip(log_values - log_unit, -LARGEST_EXPONENT, LARGEST_EXPONENT)
        scores = np.maximum(np.exp(log_scores), shares * np.exp(-log_unit))
    scores[shares == 0] = 0.0
    return scores


def uniform_factor(scores: np.ndarray, shares: np.ndarray) -> float:
    """How many times more points plain sampling needs for the same guarantee, at most."""
    return float(excess_over(scores, shares).max()) / float(scores.sum())


def excess_over(scores: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Scores over shares; 0 for rows without a share."""
    with np.errstate(over="ignore"):
        return np.divide(scores, shares, out=np.zeros(len(shares)), where=shares > 0)


def uniform_in_words(factor: float) -> str:
    """What a :func:`uniform_factor` means."""
    if factor <= AS_GOOD:
        return f"Plain sampling needs at most {factor:.2f} times as many points: uniform sampling is as good here."
    return f"Plain sampling may need up to {factor:.3g} times as many points for the same guarantee."


def spanning_rows(block: Block, geometry: Geometry) -> tuple[np.ndarray, np.ndarray]:
    """Scaled rows, and 1 for those of positive weight: a row of little weight spans a direction too."""
    return geometry.points(block.X).gather(slice(None)).dense(), (block.weights > 0).astype(np.float64)


def rank_of(R: np.ndarray) -> int:
    """The dimension that rows span, at least 1, from the R of their QR: the Gram matrix would lose narrow ones."""
    spectrum = np.linalg.svd(R, compute_uv=False)
    noise = 1e-13 * np.sqrt(R.shape[1]) * spectrum.max(initial=0.0)
    return max(1, int(np.sum(spectrum > noise)))


def l1_svd(X: Any, *, sample_weight: Any = None, tol: float = 1e-3) -> "L1SVD":
    r"""Compute the l1-SVD (f-SVD) of a weighted set of points, by Lewis weights.

    Parameters
    ----------
    X, sample_weight : array-like, frame or sparse matrix of shape (n, d), of any rank; array-like of shape (n,)
    tol : float, default 1e-3
        Relative error at which the fixed point stops; the weights dominate at any tolerance.

    Returns
    -------
    L1SVD
        U, D and V, and the Lewis weights, which bound the sensitivities of :math:`\sum_p w_p |p \cdot x|` and sum to
        the rank.

    Examples
    --------
    >>> found = l1_svd([[1.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    >>> found.rank, found.lewis_weights.round(2)
    (2, array([0.5, 0.5, 1. ]))
    """
    from ..core import lewis

    X = check_features(X)
    with np.errstate(all="ignore"):  # overflow and underflow are refused below
        found = lewis.l1_svd(X, check_weights(sample_weight, X.shape[0]), check_positive(tol, "tol"))
        if not all(np.isfinite(part).all() for part in (found.D, found.V, found.to_u)):
            raise InvalidInputError("X spans more orders of magnitude than floats can hold: scale its columns first.")
    return found
