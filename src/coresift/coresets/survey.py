"""The first pass: how many rows, their mass, mean and spread, the farthest of them, and samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.points import squared_norms
from ..rows.rows import Block, check_block, recode
from .keys import KeyPool

_FARTHEST_KEPT = 512


class GroupMoments:
    """Rows with weight, mass, mean and sum of squares about the mean of each group.

    Merged by the formula of Chan, Golub and LeVeque.
    """

    def __init__(self, n_groups: int, d: int) -> None:
        self.counts = np.zeros(n_groups, dtype=np.int64)
        self.mass = np.zeros(n_groups)
        self.mean = np.zeros((n_groups, d))
        self.squares = np.zeros(n_groups)

    def grow(self, n_groups: int) -> None:
        """Make room for groups that were not known."""
        more = n_groups - len(self.mass)
        if more > 0:
            self.counts = np.append(self.counts, np.zeros(more, dtype=np.int64))
            self.mass, self.squares = (
                np.append(self.mass, np.zeros(more)),
                np.append(self.squares, np.zeros(more)),
            )
            self.mean = np.vstack([self.mean, np.zeros((more, self.mean.shape[1]))])

    def add(
        self, groups: np.ndarray, counts: np.ndarray, mass: np.ndarray, mean: np.ndarray, squares: np.ndarray
    ) -> None:
        """Add the moments of other rows of ``groups``, distinct numbers."""
        before = self.mass[groups]
        total = before + mass
        part = np.divide(mass, total, out=np.zeros(len(total)), where=total > 0)
        way = mean - self.mean[groups]
        with np.errstate(over="ignore", invalid="ignore"):  # what has overflowed is refused after the pass
            self.squares[groups] += squares + squared_norms(way) * before * part
        self.mean[groups] += way * part[:, None]
        self.mass[groups] = total
        self.counts[groups] += counts


class Survey:
    """Everything about the data that needs no parameter: the summary of the first pass.

    ``near`` is a guess of the mean, close to it for data in no particular order. The farthest rows from it are kept: if
    the mean turns out to be ``e`` away, the row farthest from the mean is among those within ``2e`` of the farthest
    from ``near``, so mostly no second pass is needed to find it (:meth:`farthest`).
    """

    def __init__(self, near: np.ndarray, samples: dict[str, tuple[int, int]], by_label: bool) -> None:
        d = len(near)
        self.near, self.by_label = near, by_label
        self.moments = GroupMoments(0 if by_label else 1, d)
        self.labels: dict[Any, int] = {}
        self.label_counts = np.zeros(0, dtype=np.int64)
        self.samples = {name: KeyPool(seed, np.array([size])) for name, (seed, size) in samples.items()}
        self._far = np.zeros((0, d))
        self._far_squares = np.zeros(0)
        self._bar = -1.0

    def update(self, block: Block) -> None:
        """Add a block of rows; anything that is not finite is refused here."""
        X = block.X.astype(np.float64, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):
            if self.by_label:
                squares = self._by_label(block, X)
            else:
                squares = self._together(block, X)
            usable = (
                bool(np.isfinite(squares.sum()))
                and block.weights.min() >= 0
                and np.isfinite(block.weights.sum())
            )
        if not usable:
            check_block(block)
        if block.labels is not None and not self.by_label:
            self._count_labels(block)
        self._keep_far(X, np.where(block.weights > 0, squares, -1.0))
        for pool in self.samples.values():
            groups = None if block.labels is None or not self.by_label else self._codes
            attached = {} if groups is None else {"code": groups}
            pool.update(block.start, block.weights, block.weights, X=block.X, **attached)

    def merge(self, other: Survey) -> None:
        """Add the survey of later rows."""
        to = np.array(
            [self.labels.setdefault(name, len(self.labels)) for name in other.labels], dtype=np.int64
        )
        if self.by_label:
            self.moments.grow(len(self.labels))
            theirs = other.moments
            self.moments.add(to, theirs.counts, theirs.mass, theirs.mean, theirs.squares)
        else:
            theirs = other.moments
            self.moments.add(
                np.zeros(1, dtype=np.int64), theirs.counts, theirs.mass, theirs.mean, theirs.squares
            )
            self._grow_labels()
            self.label_counts[to] += other.label_counts
        self._keep_far(other._far, other._far_squares)
        for name, pool in self.samples.items():
            theirs_pool = other.samples[name]
            for part in theirs_pool._parts if self.by_label else ():
                part["code"] = to[part["code"]]
            pool.merge(theirs_pool)

    def farthest(self, mean: np.ndarray) -> tuple[float, bool]:
        """The largest distance from ``mean`` of a row of positive weight; or an upper bound, and then False."""
        if not len(self._far):
            return 0.0, True
        shift = float(np.linalg.norm(mean - self.near))
        reach = float(np.sqrt(self._far_squares.max()))
        complete = (
            len(self._far) < _FARTHEST_KEPT or float(np.sqrt(self._far_squares.min())) < reach - 2.0 * shift
        )
        if not complete:
            return reach + shift, False
        return float(np.sqrt(squared_norms(self._far - mean).max())), True

    def _together(self, block: Block, X: np.ndarray) -> np.ndarray:
        """Moments of a block as one group; returns the squared distances from ``near``."""
        w = block.weights
        mass = float(w.sum())
        mean = (w @ X) / mass if mass > 0 else self.near
        centred = X - mean
        own = squared_norms(centred)
        rest = (
            (w @ centred) / mass if mass > 0 else np.zeros(len(mean))
        )  # what the rounding of the first mean left
        squares = max(float(w @ own) - mass * float(rest @ rest), 0.0)
        one = np.zeros(1, dtype=np.int64)
        self.moments.add(
            one, np.array([np.count_nonzero(w)]), np.array([mass]), (mean + rest)[None], np.array([squares])
        )
        shift = mean - self.near
        return np.maximum(own + centred @ (2.0 * shift) + shift @ shift, 0.0)

    def _by_label(self, block: Block, X: np.ndarray) -> np.ndarray:
        """Moments of a block per label; returns the squared distances from ``near``."""
        assert block.labels is not None
        names = recode(block.labels, self.labels)
        self.moments.grow(len(self.labels))
        self._codes = codes = names[block.labels.codes]
        present, local = np.unique(codes, return_inverse=True)
        k, w = len(present), block.weights
        mass = np.bincount(local, weights=w, minlength=k)
        members = sp.csr_array((w, (local, np.arange(len(w)))), shape=(k, len(w)))
        over_mass = np.where(mass > 0, mass, 1.0)[:, None]
        mean = (members @ X) / over_mass
        mean += (members @ (X - mean[local])) / over_mass
        own = squared_norms(X - mean[local])
        squares = np.bincount(local, weights=w * own, minlength=k)
        self.moments.add(present, np.bincount(local[w > 0], minlength=k), mass, mean, squares)
        return squared_norms(X - self.near)

    def _count_labels(self, block: Block) -> None:
        assert block.labels is not None
        codes = recode(block.labels, self.labels)[block.labels.codes]
        self._grow_labels()
        self.label_counts += np.bincount(codes, minlength=len(self.labels))

    def _grow_labels(self) -> None:
        missing = len(self.labels) - len(self.label_counts)
        self.label_counts = np.append(self.label_counts, np.zeros(missing, dtype=np.int64))

    def _keep_far(self, X: np.ndarray, squares: np.ndarray) -> None:
        above = np.flatnonzero(squares > self._bar)
        if not len(above):
            return
        self._far = np.concatenate([self._far, X[above]])
        self._far_squares = np.concatenate([self._far_squares, squares[above]])
        if len(self._far) > _FARTHEST_KEPT:
            best = np.sort(np.argpartition(-self._far_squares, _FARTHEST_KEPT - 1)[:_FARTHEST_KEPT])
            self._far, self._far_squares = self._far[best], self._far_squares[best]
            self._bar = float(self._far_squares.min())


class Reach:
    """The largest distance from a centre of a row of positive weight."""

    def __init__(self, center: np.ndarray) -> None:
        self.center, self.square = center, 0.0

    def update(self, block: Block) -> None:
        """Add a block of rows."""
        squares = squared_norms(block.X.astype(np.float64, copy=False) - self.center)
        self.square = max(self.square, float(squares.max(where=block.weights > 0, initial=0.0)))

    def merge(self, other: Reach) -> None:
        """Add the largest of other rows."""
        self.square = max(self.square, other.square)


@dataclass(frozen=True)
class Geometry:
    """Where the ball is, and the groups in its coordinates ``(x - center) / scale``; without labels one group."""

    center: np.ndarray  # (d,) data units
    scale: float
    max_norm: float  # scaled
    center_error: float  # scaled
    labels: dict[Any, int] | None  # number of the group of each label
    counts: np.ndarray  # (g,) rows that have weight
    mass: np.ndarray  # (g,) sums of weights
    offsets: np.ndarray  # (g, d) means, scaled
    variances: np.ndarray  # (g,) scaled

    def groups(self, block: Block) -> np.ndarray | None:
        """The group of each row of a block; None if there is but one."""
        if self.labels is None or block.labels is None:
            return None
        names = np.array([self.labels[name] for name in block.labels.names], dtype=np.int64)
        return names[block.labels.codes]
