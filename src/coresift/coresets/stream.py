"""Coresets of endless streams: merge and reduce, with the error added up."""

import copy
import inspect
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from .._errors import InvalidInputError, InvalidTypeError
from .._npz import open_arrays
from .._validation import (
    LARGEST_RATIO,
    check_choice,
    check_count,
    check_features,
    check_positive,
    check_probability,
    check_weights,
)
from ..core.draw import DrawTable
from ..core.sizes import bernstein_error
from .bounds import draw_scores
from .coreset import Coreset, Guarantee, QueryBall
from .files import as_plain, from_plain, stamped, verified, write_npz, write_whole
from .fitting import array_runner, bound_of, geometry_of
from .options import BOUNDS, PAPER_BOUNDS, BoundSpec

_VERSION = 3
_STATE = ("n_seen_", "_n_features", "_n_buffered", "_n_draws", "_flushed_weight", "_ball")
_PARTS = ("X", "weights", "rows")
_OVERSAMPLING = 4  # rows of a node over rows of the result: inner draws then err half as much as the last


@dataclass(frozen=True)
class _Node:
    """A weighted subset of the rows seen, and how far it may be from them."""

    X: np.ndarray
    weights: np.ndarray
    rows: np.ndarray  # numbers in the stream
    error: float = 0.0  # relative, for each single query, if no draw below has failed
    variance: float = 0.0  # bound on the relative variance, as if totals were not random


class StreamingCoreset:
    """A coreset of all rows seen so far, in memory that grows with the logarithm of their number.

    A full buffer of rows is reduced to a node of ``4 * size`` rows by independent draws in proportion to sensitivities;
    two nodes of a level are merged and reduced to one of the next. A union of coresets for the same ball is a coreset,
    and a coreset of a coreset has the error ``(1 + e1)(1 + e2) - 1``: every draw adds Bernstein's bound for its own
    total and size, and the probabilities of failure add up to at most ``delta``.

    Parameters
    ----------
    size : int
        Rows of the result, at most.
    loss : {"gaussian", "laplacian"}
    radius : float
        Radius of the ball of queries, in bandwidths; the Laplacian is bounded over all of space.
    bandwidth : None, float or "median"
        As in :class:`RBFCoreset`; None and "median" are taken from the first full buffer, and stay.
    center : array of shape (d,), optional
        Centre of the ball; by default the mean of the first full buffer.
    bound, n_cells : {"auto", "closed-form", "cells"}, int
    delta : float
        Probability with which the stated error may be missed.
    random_state : int
        The same rows in the same order give the same coreset, however they are cut into batches.

    Attributes
    ----------
    n_seen_, points_ : int, ndarray of shape (m, d)
        Number of rows seen, and the rows of the last :meth:`coreset`, in its order.
    error_, deviation_ : float
        Of the last :meth:`coreset`: a bound on the relative error at each single query fixed beforehand, with chance
        ``1 - delta`` (1 or more says nothing); and about the largest standard deviation of that error, without a proof.

    Examples
    --------
    >>> import numpy as np
    >>> from coresift import StreamingCoreset
    >>> stream = StreamingCoreset(200, bandwidth=4.0, random_state=0)
    >>> rng = np.random.default_rng(0)
    >>> for _ in range(20):
    ...     stream = stream.partial_fit(rng.standard_normal((500, 3)))
    >>> core = stream.coreset()
    >>> core.n_samples, stream.points_.shape == (core.size, 3)
    (10000, True)
    """

    def __init__(
        self,
        size: int,
        *,
        loss: str = "gaussian",
        radius: float = 1.0,
        bandwidth: Any = None,
        center: Any = None,
        bound: str = "auto",
        n_cells: int = 64,
        delta: float = 0.05,
        random_state: int = 0,
    ) -> None:
        self.size = check_count(size, "size")
        self._spec = BoundSpec(loss, bound, bandwidth, radius, n_cells, max_exact=1)
        self.loss, self.bandwidth, self.n_cells = loss, self._spec.bandwidth, n_cells
        self.radius = check_positive(radius, "radius", at_most=LARGEST_RATIO)
        streamed = tuple(name for name in BOUNDS[loss] if name not in (*PAPER_BOUNDS, "exact"))
        self.bound = check_choice(bound, "bound", streamed)  # certificates, in time linear in the rows
        self.center = None if center is None else check_features(np.asarray(center)[None], name="center")[0]
        self.delta = check_probability(delta, "delta")
        self.random_state = check_count(random_state, "random_state", minimum=0)
        self.n_seen_ = 0
        self.error_ = self.deviation_ = 0.0
        self.points_: np.ndarray | None = None
        self._n_features = None if self.center is None else len(self.center)
        self._flushed_weight = 0.0  # by whole buffers: how rows were batched shows in no digit
        self._ball: QueryBall | None = None
        self._levels: dict[int, _Node] = {}
        self._n_draws = 0
        self._buffer: list[_Node] = []
        self._n_buffered = 0
        self._columns: list[Any] | None = None  # of the first frame; rows are taken by position

    @property
    def n_kept(self) -> int:
        """Rows in memory."""
        return self._n_buffered + sum(len(node.rows) for node in self._levels.values())

    def partial_fit(self, X: Any, *, sample_weight: Any = None) -> Self:
        """Add rows; nothing of them is kept by reference."""
        rows = check_features(X)
        if sp.issparse(rows):
            raise InvalidTypeError("streams take dense rows; X is sparse.")
        n, width = rows.shape
        is_weightless = np.array_equal(sample_weight, np.zeros(n))
        weights = np.zeros(n) if is_weightless else check_weights(sample_weight, n)
        if self._n_features not in (None, width):
            raise InvalidInputError(f"X has {width} columns, but the stream has {self._n_features}.")
        columns = list(X.columns) if hasattr(X, "columns") else self._columns
        if self._columns is not None and columns != self._columns:
            raise InvalidInputError(
                f"X has the columns {columns}, but the stream {self._columns}: give them in one order."
            )
        before = {name: copy.copy(value) for name, value in vars(self).items() if name.startswith("_")}
        try:
            self._take(rows, weights)
        except BaseException:  # a batch that is refused leaves the stream as it was
            vars(self).update(before)
            raise
        self.n_seen_ += n
        self._columns, self._n_features = columns, width
        return self

    def _take(self, rows: np.ndarray, weights: np.ndarray) -> None:
        capacity = 2 * _OVERSAMPLING * self.size
        done = 0
        while done < len(rows):
            kept = np.arange(done, min(done + capacity - self._n_buffered, len(rows)))
            self._n_buffered += len(kept)
            done += len(kept)
            kept = kept[weights[kept] > 0]
            self._buffer.append(_Node(rows[kept], weights[kept], self.n_seen_ + kept))
            if self._n_buffered == capacity:
                self._flush()

    def coreset(self) -> Coreset:
        """The coreset of all rows seen, whose rows are then in ``points_``. The stream can go on."""
        nodes = [*self._levels.values(), *self._buffer]
        if self.n_seen_ == 0 or not any(len(node.rows) for node in nodes):
            raise InvalidInputError("no rows of positive weight have been seen yet.")
        waiting = np.concatenate([[], *(node.weights for node in self._buffer)])
        union = _union(nodes)
        ball = self._ball or self._choose_ball(union)
        drawn, total = self._reduce(union, self.size, ball, 0.5 * self.delta, self._n_draws + 1)
        order = np.argsort(drawn.rows)
        self.points_, self.error_ = drawn.X[order], drawn.error
        self.deviation_ = math.sqrt(drawn.variance)
        stages = self._n_draws + 1
        proved = Guarantee("single", drawn.error, self.delta, "Bernstein", ball.radius, n_stages=stages)
        return Coreset(
            drawn.rows[order],
            drawn.weights[order],
            n_samples=self.n_seen_,
            method="stream",
            n_draws=self.size if total is not None else None,
            seed=self.random_state,
            total_sensitivity=total,
            bound=self.bound,
            guarantee=proved if drawn.error < 1.0 else None,
            ball=ball,
            total_weight=self._flushed_weight + float(waiting.sum()),
        )

    def _flush(self) -> None:
        """Reduce the buffer to a node, and carry as in a binary counter."""
        node = _union(self._buffer)
        self._buffer, self._n_buffered = [], 0
        self._flushed_weight += float(node.weights.sum())
        if len(node.rows) == 0:
            return
        if self._ball is None:
            self._ball = self._choose_ball(node)
        level = 0
        while True:
            self._n_draws += 1
            # 6 / pi^2 sum 1/j^2 = 1: however long the stream, the draws together fail with probability delta / 2
            share = 3.0 * self.delta / (math.pi * self._n_draws) ** 2
            node, _ = self._reduce(node, _OVERSAMPLING * self.size, self._ball, share, self._n_draws)
            other = self._levels.pop(level, None)
            if other is None:
                self._levels[level] = node
                return
            node = _union([other, node])
            level += 1

    def _choose_ball(self, node: _Node) -> QueryBall:
        rng = np.random.default_rng([self.random_state, 0])
        found = geometry_of(array_runner(node.X, node.weights, "the stream"), self._spec, rng)
        center = found.center if self.center is None else self.center
        return QueryBall(self.loss, center, found.scale, self._spec.radius)

    def _reduce(self, node: _Node, size: int, ball: QueryBall, delta: float, number: int) -> tuple[_Node, float | None]:
        """A node of at most ``size`` rows, with its error; and the total that it was drawn by (None: all were kept)."""
        if len(node.rows) <= size:
            return node, None
        rng = np.random.default_rng([self.random_state, number])
        bound = bound_of(array_runner(node.X, node.weights, "the stream"), self._spec, rng, ball)
        scores = draw_scores(bound.log_values, node.weights / node.weights.sum(), 0.0)
        total = float(scores.sum())
        drawn = DrawTable(scores, node.weights, rng).iid(size, rng)
        error = (1.0 + node.error) * (1.0 + bernstein_error(total, size, delta)) - 1.0
        variance = (1.0 + node.variance) * (1.0 + (total - 1.0) / size) - 1.0
        chosen = drawn.indices
        return _Node(node.X[chosen], drawn.weights, node.rows[chosen], error, variance), total

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole state to a ``.npz`` file, from which :meth:`load` goes on as if nothing had happened."""
        target = Path(path)
        if target.suffix.lower() != ".npz":
            raise InvalidInputError(f"{target}: unknown suffix {target.suffix!r}; use .npz.")
        nodes = {str(level): node for level, node in self._levels.items()}
        if self._buffer:
            nodes["buffer"] = _union(self._buffer)
        parameters = inspect.signature(type(self)).parameters
        about = {
            "parameters": {name: as_plain(getattr(self, name)) for name in parameters},
            "state": {name: as_plain(getattr(self, name)) for name in _STATE},
            "nodes": {name: [node.error, node.variance] for name, node in nodes.items()},
        }
        arrays = {f"{name}_{part}": getattr(node, part) for name, node in nodes.items() for part in _PARTS}
        header = stamped("stream", _VERSION, about, arrays)
        write_whole(target, lambda file: write_npz(file, {"header": header}, arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """A stream as it was when it was saved; a file that is damaged is refused by name."""
        with open_arrays(Path(path), is_packed=False, what="not a stream, or damaged") as members:
            arrays = {name: members[name] for name in members.names}
            header = from_plain(verified(str(arrays.pop("header")), "stream", _VERSION, arrays))
            stream = cls(**header["parameters"])
            vars(stream).update({name: header["state"][name] for name in _STATE})
            stream._ball = header["state"]["_ball"] and QueryBall(**header["state"]["_ball"])
            nodes = {
                name: _Node(arrays[f"{name}_X"], arrays[f"{name}_weights"], arrays[f"{name}_rows"], *errors)
                for name, errors in header["nodes"].items()
            }
        stream._buffer = [nodes.pop("buffer")] if "buffer" in nodes else []
        stream._levels = {int(level): node for level, node in nodes.items()}
        return stream


def _union(nodes: list[_Node]) -> _Node:
    """Rows of several nodes: an error of each part at most the largest is an error of the whole at most that."""
    X, weights, rows = (np.concatenate([getattr(node, part) for node in nodes]) for part in _PARTS)
    return _Node(X, weights, rows, max(node.error for node in nodes), max(node.variance for node in nodes))
