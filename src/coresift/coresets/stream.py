"""Coresets of endless streams: merge and reduce, with the error added up."""

from __future__ import annotations

import copy
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from .._errors import InvalidInputError, InvalidTypeError
from .._npz import naming, open_arrays
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
from ..rows.arrays import ArrayRows
from ..rows.engines import SerialEngine
from .coreset import Coreset
from .files import arrays_checksum, write_whole
from .fitting import BoundSpec, Runner, geometry_of
from .geometry import check_bandwidth
from .scores import bound_of, draw_scores
from .values import Guarantee, QueryBall

_FORMAT = "coresift.stream"
_VERSION = 2
_NO_STREAM = "not a stream, or damaged"
_BOUNDS = ("auto", "closed-form", "cells")


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

    Rows are gathered into buffers; a full buffer is reduced to a node of ``4 * size`` rows by independent draws in
    proportion to sensitivities; two nodes of a level are merged and reduced to one of the next. A union of coresets for
    the same ball is a coreset, and a coreset of a coreset has the error ``(1 + e1)(1 + e2) - 1``, so the error of the
    result is known: every draw adds Bernstein's bound for its own total and size, and the probabilities of failure add
    up to at most ``delta``.

    Parameters
    ----------
    size : int
        Rows of the result, at most.
    loss : {"gaussian", "laplacian"}
    radius : float
        Of the ball of queries around the centre, in bandwidths; all of space for the Laplacian.
    bandwidth : None, float or "median"
        As in :class:`RBFCoreset`; None and "median" are taken from the first full buffer, and stay.
    center : array of shape (d,), optional
        Of the ball; by default the mean of the first full buffer.
    bound : {"auto", "closed-form", "cells"}
    n_cells : int
    delta : float
        Probability with which the stated error may be missed.
    random_state : int
        The same rows in the same order give the same coreset, however they are cut into batches.

    Attributes
    ----------
    n_seen_ : int
        Rows seen.
    error_ : float
        Of the last :meth:`coreset`: a bound on the relative error at each single query fixed beforehand, with
        probability ``1 - delta``. At 1 or more it says nothing.
    deviation_ : float
        Of the last :meth:`coreset`: about the largest standard deviation of the relative error, without a proof.
    points_ : ndarray of shape (m, d)
        The rows of the last :meth:`coreset`, in its order.

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

    _OVERSAMPLING = 4  # rows of a node over rows of the result: inner draws then err half as much as the last

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
        self.loss = check_choice(loss, "loss", ("gaussian", "laplacian"))
        self.radius = check_positive(radius, "radius", at_most=LARGEST_RATIO)
        check_bandwidth(bandwidth)
        self.bandwidth = bandwidth if isinstance(bandwidth, str | None) else float(bandwidth)
        self.center = None if center is None else check_features(np.asarray(center)[None], name="center")[0]
        self.bound = check_choice(bound, "bound", _BOUNDS)
        self.n_cells = check_count(n_cells, "n_cells")
        self.delta = check_probability(delta, "delta")
        self.random_state = check_count(random_state, "random_state", minimum=0)
        self.n_seen_ = 0
        self.error_ = self.deviation_ = 0.0
        self.points_: np.ndarray | None = None
        self._flushed_weight = (
            0.0  # by whole buffers: how rows came in batches leaves no trace, not in the last digit
        )
        self._ball: QueryBall | None = None
        self._levels: dict[int, _Node] = {}
        self._n_draws = 0
        self._buffer: list[_Node] = []
        self._n_buffered = 0
        self._columns: list[Any] | None = None  # of the first frame; rows are taken by position

    @property
    def _node_size(self) -> int:
        return self._OVERSAMPLING * self.size

    @property
    def n_kept(self) -> int:
        """Rows in memory."""
        return self._n_buffered + sum(len(node.rows) for node in self._levels.values())

    def partial_fit(self, X: Any, *, sample_weight: Any = None) -> Self:
        """Add rows; nothing of them is kept by reference."""
        rows = check_features(X)
        if sp.issparse(rows):
            raise InvalidTypeError("streams take dense rows; X is sparse.")
        weights = np.ones(len(rows)) if sample_weight is None else _any_weights(sample_weight, len(rows))
        known = self.center if self._ball is None else self._ball.center
        width = (
            len(known) if known is not None else self._buffer[0].X.shape[1] if self._buffer else rows.shape[1]
        )
        if rows.shape[1] != width:
            raise InvalidInputError(f"X has {rows.shape[1]} columns, but the stream has {width}.")
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
        self.n_seen_ += len(rows)
        self._columns = columns
        return self

    def _take(self, rows: np.ndarray, weights: np.ndarray) -> None:
        """Into the buffer, which is reduced whenever it is full."""
        capacity = 2 * self._node_size
        done = 0
        while done < len(rows):
            part = slice(done, min(done + capacity - self._n_buffered, len(rows)))
            numbers = np.arange(self.n_seen_ + part.start, self.n_seen_ + part.stop)
            kept = np.flatnonzero(weights[part] > 0)
            self._buffer.append(_Node(np.array(rows[part][kept]), weights[part][kept], numbers[kept]))
            self._n_buffered += part.stop - part.start
            done = part.stop
            if self._n_buffered == capacity:
                self._flush()

    def coreset(self) -> Coreset:
        """The coreset of all rows seen, whose rows are then in ``points_``. The stream can go on."""
        waiting = [_union(self._buffer)] if self._buffer else []
        nodes = [*self._levels.values(), *waiting]
        if self.n_seen_ == 0 or not any(len(node.rows) for node in nodes):
            raise InvalidInputError("no rows of positive weight have been seen yet.")
        union = _union(nodes)
        ball = self._ball or self._choose_ball(union)
        drawn, total = self._reduce(union, self.size, ball, 0.5 * self.delta, self._n_draws + 1)
        order = np.argsort(drawn.rows)
        self.points_, self.error_ = drawn.X[order], drawn.error
        self.deviation_ = math.sqrt(drawn.variance)
        guarantee = None
        if drawn.error < 1.0:
            guarantee = Guarantee(
                "single", drawn.error, self.delta, "Bernstein", ball.radius, n_stages=self._n_draws + 1
            )
        return Coreset(
            drawn.rows[order],
            drawn.weights[order],
            n_samples=self.n_seen_,
            method="stream",
            n_draws=self.size if total is not None else None,
            seed=self.random_state,
            total_sensitivity=total,
            bound=self.bound,
            guarantee=guarantee,
            ball=ball,
            total_weight=self._flushed_weight + sum(float(node.weights.sum()) for node in waiting),
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
            node, _ = self._reduce(node, self._node_size, self._ball, share, self._n_draws)
            other = self._levels.pop(level, None)
            if other is None:
                self._levels[level] = node
                return
            node = _union([other, node])
            level += 1

    def _spec(self) -> BoundSpec:
        bound = "cells" if self.loss == "laplacian" else self.bound
        return BoundSpec(self.loss, bound, self.bandwidth, self.radius, self.n_cells, max_exact=0)

    def _choose_ball(self, node: _Node) -> QueryBall:
        rng = np.random.default_rng([self.random_state, 0])
        found = geometry_of(_runner(node), self._spec(), rng)
        center = found.center if self.center is None else self.center
        return QueryBall(self.loss, center, found.scale, self.radius if self.loss == "gaussian" else np.inf)

    def _reduce(
        self, node: _Node, size: int, ball: QueryBall, delta: float, number: int
    ) -> tuple[_Node, float | None]:
        """A node of at most ``size`` rows, with its error; and the total that it was drawn by (None: all were kept)."""
        if len(node.rows) <= size:
            return node, None
        shares = node.weights / node.weights.sum()
        rng = np.random.default_rng([self.random_state, number])
        bound = bound_of(_runner(node), self._spec(), rng, ball)
        scores = draw_scores(bound.log_values, shares, 0.0)
        total = float(scores.sum())
        drawn = DrawTable(scores, node.weights, rng).iid(size, rng)
        a = 2.0 * total * math.log(2.0 / delta) / size
        step = a / 6.0 + math.sqrt(a * a / 36.0 + a)
        return (
            _Node(
                node.X[drawn.indices],
                drawn.weights,
                node.rows[drawn.indices],
                error=(1.0 + node.error) * (1.0 + step) - 1.0,
                variance=(1.0 + node.variance) * (1.0 + (total - 1.0) / size) - 1.0,
            ),
            total,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole state to a ``.npz`` file, from which :meth:`load` goes on as if nothing had happened."""
        target = Path(path)
        if target.suffix.lower() != ".npz":
            raise InvalidInputError(f"{target}: unknown suffix {target.suffix!r}; use .npz.")
        nodes = {**{str(level): node for level, node in self._levels.items()}}
        if self._buffer:
            nodes["buffer"] = _union(self._buffer)
        header = {
            "format": _FORMAT,
            "version": _VERSION,
            "parameters": {
                name: getattr(self, name)
                for name in (
                    "size",
                    "loss",
                    "radius",
                    "bandwidth",
                    "bound",
                    "n_cells",
                    "delta",
                    "random_state",
                )
            },
            "center": None if self.center is None else self.center.tolist(),
            "ball": None
            if self._ball is None
            else {"center": self._ball.center.tolist(), "scale": self._ball.scale},
            "n_seen": self.n_seen_,
            "n_buffered": self._n_buffered,
            "n_draws": self._n_draws,
            "flushed_weight": self._flushed_weight,
            "nodes": {name: [node.error, node.variance] for name, node in nodes.items()},
        }
        arrays = {
            f"{name}_{part}": getattr(node, part)
            for name, node in nodes.items()
            for part in ("X", "weights", "rows")
        }
        header["sha256"] = arrays_checksum(header, arrays)
        text = np.array(json.dumps(header, allow_nan=False))
        write_whole(target, lambda file: np.savez(file, header=text, **arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """A stream as it was when it was saved; a file that is damaged is refused by name."""
        target = Path(path)
        with target.open("rb"), naming(target, _NO_STREAM):
            with open_arrays(target, is_packed=False, what=_NO_STREAM) as members:
                header = json.loads(str(members["header"]))
                if header.get("format") != _FORMAT or header.get("version") != _VERSION:
                    raise InvalidInputError("not a stream of this version of coresift")
                arrays = {name: members[name] for name in members.names if name != "header"}
            if header.pop("sha256") != arrays_checksum(header, arrays):
                raise InvalidInputError("the checksum does not match: the file is damaged")
            stream = cls(center=header["center"], **header["parameters"])
            for name, (error, variance) in header["nodes"].items():
                X, weights, rows = (arrays[f"{name}_{part}"] for part in ("X", "weights", "rows"))
                node = _Node(X, weights, rows, error, variance)
                if name == "buffer":
                    stream._buffer = [node]
                else:
                    stream._levels[int(name)] = node
            stream.n_seen_, stream._n_buffered = header["n_seen"], header["n_buffered"]
            stream._n_draws, stream._flushed_weight = header["n_draws"], header["flushed_weight"]
            if header["ball"] is not None:
                radius = stream.radius if stream.loss == "gaussian" else np.inf
                center = np.array(header["ball"]["center"])
                stream._ball = QueryBall(stream.loss, center, header["ball"]["scale"], radius)
            return stream


def _runner(node: _Node) -> Runner:
    rows = ArrayRows(node.X, node.weights, name="the stream")
    return Runner(rows, SerialEngine(rows))


def _union(nodes: list[_Node]) -> _Node:
    """Rows of several nodes: an error of each part at most the largest is an error of the whole at most that."""
    return _Node(
        np.concatenate([node.X for node in nodes]),
        np.concatenate([node.weights for node in nodes]),
        np.concatenate([node.rows for node in nodes]),
        max(node.error for node in nodes),
        max(node.variance for node in nodes),
    )


def _any_weights(sample_weight: Any, n: int) -> np.ndarray:
    """Weights of a batch, which may all be zero."""
    given = np.asarray(sample_weight)
    if given.shape == (n,) and given.dtype.kind in "fiub" and not given.any():
        return np.zeros(n)
    return check_weights(sample_weight, n)
