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
from .._validation import (
    LARGEST_MAGNITUDE,
    LARGEST_RATIO,
    as_numpy,
    check_choice,
    check_chosen,
    check_count,
    check_features,
    check_instance,
    check_number,
    check_positive,
    check_probability,
    check_weights,
)
from ..core.draw import DrawTable
from ..core.sizes import bernstein_error
from ..rows.arrays import open_arrays
from ..rows.columns import column_names
from ..rows.preparation import Preparation
from .bounds import draw_scores
from .coreset import Coreset, Guarantee, QueryBall
from .files import as_plain, from_plain, stamped, verified, write_npz, write_whole
from .fitting import array_runner, bound_of, geometry_of
from .options import BOUNDS, PAPER_BOUNDS, BoundSpec

_VERSION = 4  # 3 had no labels, ids, names of columns or preparation
_STATE = ("n_seen_", "_n_features", "_n_buffered", "_n_draws", "_flushed_weight", "_ball", "_columns", "_beside")
_PARTS = ("X", "weights", "rows", "labels", "ids")
_OVERSAMPLING = 4  # rows of a node over rows of the result: inner draws then err half as much as the last


@dataclass(frozen=True)
class _Node:
    """A weighted subset of the rows seen, and how far it may be from them."""

    X: np.ndarray
    weights: np.ndarray
    rows: np.ndarray  # numbers in the stream
    labels: np.ndarray  # zeros if there are none
    ids: np.ndarray
    error: float = 0.0  # relative, for each single query, if no draw below has failed
    variance: float = 0.0  # bound on the relative variance, as if totals were not random


class StreamingCoreset:
    """A coreset of all rows seen so far, in memory that grows with the logarithm of their number.

    A full buffer of rows is reduced to a node of ``4 * size`` rows by independent draws in proportion to sensitivities;
    two nodes of a level are merged and reduced to one of the next. A coreset of a coreset has the error
    ``(1 + e1)(1 + e2) - 1``; the probabilities of failure add up to at most ``delta``.

    Parameters
    ----------
    size : int
        Rows of the result, at most.
    loss, radius : {"gaussian", "laplacian"}, float
        As in :class:`RBFCoreset`; the Laplacian is bounded over all of space.
    bandwidth, center : as in :class:`RBFCoreset`; array of shape (d,), optional
        None and "median" are taken from the first full buffer, and stay; so is the centre of the ball, its mean.
    bound, n_cells, delta : {"auto", "closed-form", "cells"}, int, float
        As in :class:`RBFCoreset`; and the probability with which the stated error may be missed.
    random_state : int
        The same rows in the same order give the same coreset, however they are cut into batches.
    preparation : Preparation, optional
        A fitted one (of the first rows, say), through which tables of any columns go. Without it rows are numbers.

    Attributes
    ----------
    n_seen_, points_, labels_, ids_ : int, (m, d) array, (m,) arrays or None
        Number of rows seen, and the rows of the last :meth:`coreset` in its order, with their labels and ids.
    error_, deviation_ : float
        A bound on the relative error of the last :meth:`coreset` at any one query fixed beforehand, with probability
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
        preparation: Preparation | None = None,
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
        self.preparation = check_instance(preparation, "preparation", Preparation, optional=True)
        self.n_seen_ = 0
        self.error_ = self.deviation_ = 0.0
        self.points_: np.ndarray | None = None
        self.labels_: np.ndarray | None = None
        self.ids_: np.ndarray | None = None
        self._n_features = None if self.center is None else len(self.center)
        self._flushed_weight = 0.0  # by whole buffers: how rows were batched shows in no digit
        self._ball: QueryBall | None = None
        self._levels: dict[int, _Node] = {}
        self._n_draws = 0
        self._buffer: list[_Node] = []
        self._n_buffered = 0
        self._columns: list[str] | None = None  # of the first frame; rows are taken by position
        self._beside: list[str] = []  # the kinds of labels and ids: integers (i), strings (U) or none ("")

    @property
    def n_kept(self) -> int:
        """Rows in memory."""
        return self._n_buffered + sum(len(node.rows) for node in self._levels.values())

    def partial_fit(self, X: Any, y: Any = None, *, ids: Any = None, sample_weight: Any = None) -> Self:
        """Add rows, with labels ``y`` and ``ids`` (integers or strings, always or never); they are copied."""
        rows = check_features(X if self.preparation is None else self.preparation.transform(X))
        if sp.issparse(rows):
            raise InvalidTypeError("streams take dense rows; X is sparse.")
        n, width = rows.shape
        is_weightless = np.array_equal(sample_weight, np.zeros(n))
        weights = np.zeros(n) if is_weightless else check_weights(sample_weight, n)
        if self._n_features not in (None, width):
            raise InvalidInputError(f"X has {width} columns, but the stream has {self._n_features}.")
        names = column_names(X) if self.preparation is None else None  # a preparation finds columns by name
        columns = self._columns if names is None else list(map(str, names))
        if self._columns is not None and columns != self._columns:
            raise InvalidInputError(f"X has the columns {columns}, but the stream {self._columns}: give one order.")
        beside = [_values(y, n, "y"), _values(ids, n, "ids")]
        kinds = ["" if each is None else beside[i].dtype.kind for i, each in enumerate((y, ids))]
        if self._beside not in ([], kinds):
            text = f"y and ids are of the kinds {kinds}, in the stream {self._beside}"
            raise InvalidInputError(f"{text}: give integers (i) or strings (U) with all rows, or with none ('').")
        before = {name: copy.copy(value) for name, value in vars(self).items() if name.startswith("_")}
        try:
            self._take(rows, weights, *beside)
        except BaseException:  # a batch that is refused leaves the stream as it was
            vars(self).update(before)
            raise
        self.n_seen_ += n
        self._columns, self._n_features, self._beside = columns, width, kinds
        return self

    def _take(self, rows: np.ndarray, weights: np.ndarray, labels: np.ndarray, ids: np.ndarray) -> None:
        capacity = 2 * _OVERSAMPLING * self.size
        done = 0
        while done < len(rows):
            kept = np.arange(done, min(done + capacity - self._n_buffered, len(rows)))
            self._n_buffered += len(kept)
            done += len(kept)
            kept = kept[weights[kept] > 0]
            self._buffer.append(_Node(rows[kept], weights[kept], self.n_seen_ + kept, labels[kept], ids[kept]))
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
        beside = zip((drawn.labels, drawn.ids), self._beside, strict=True)
        self.labels_, self.ids_ = (values[order] if kind else None for values, kind in beside)
        self.deviation_ = math.sqrt(drawn.variance)
        proved = Guarantee("single", drawn.error, self.delta, "Bernstein", ball.radius, n_stages=self._n_draws + 1)
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
        if not bound.is_certified:
            raise InvalidInputError(f"bound = {self.bound!r} is not a certificate, on which the error rests.")
        scores = draw_scores(bound.log_values, node.weights / node.weights.sum(), 0.0)
        total = float(scores.sum())
        drawn = DrawTable(scores, node.weights).iid(size, rng)
        error = (1.0 + node.error) * (1.0 + bernstein_error(total, size, delta)) - 1.0
        variance = (1.0 + node.variance) * (1.0 + (total - 1.0) / size) - 1.0
        part = {name: getattr(node, name)[drawn.indices] for name in _PARTS}
        return _Node(**{**part, "weights": drawn.weights}, error=error, variance=variance), total

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole state to ``path``, a ``.npz`` file, from which :meth:`load` continues the stream."""
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
        """The stream that was saved to ``path``; a damaged file is refused with a message that names it."""
        with open_arrays(Path(path), is_packed=False, what="not a stream, or damaged") as members:
            arrays = {name: members[name] for name in members.names}
            header = from_plain(verified(str(arrays.pop("header")), "stream", _VERSION, arrays))
            given = header["parameters"]
            given["preparation"] = given["preparation"] and Preparation.from_dict(given["preparation"])
            stream = cls(**given)
            vars(stream).update({name: header["state"][name] for name in _STATE})
            stream._ball = None if stream._ball is None else QueryBall(**header["state"]["_ball"])
            nodes = {
                name: _Node(**{part: arrays[f"{name}_{part}"] for part in _PARTS}, error=errors[0], variance=errors[1])
                for name, errors in header["nodes"].items()
            }
            stream._buffer = [nodes.pop("buffer")] if "buffer" in nodes else []
            stream._levels = {int(level): node for level, node in nodes.items()}
            stream._check_state()
        return stream

    def _check_state(self) -> None:
        """Refuse what :meth:`load` read if no stream could have saved it."""
        check_count(self.n_seen_, "n_seen_", minimum=0)
        check_instance(self._columns, "columns", list, optional=True)
        known = [[labels, ids] for labels in ("", "i", "U") for ids in ("", "i", "U")]
        if self._beside not in (known if self.n_seen_ else [*known, []]):
            raise InvalidInputError(f"labels and ids of the kinds {self._beside!r:.40}")
        check_count(self._n_draws, "n_draws", minimum=0)
        check_number(self._flushed_weight, "flushed_weight", at_least=0.0, at_most=LARGEST_MAGNITUDE)
        capacity, nodes, d = 2 * _OVERSAMPLING * self.size, [*self._buffer, *self._levels.values()], self._n_features
        if not check_count(self._n_buffered, "n_buffered", minimum=0) < capacity:
            raise InvalidInputError(f"n_buffered = {self._n_buffered} must be below {capacity}")
        if self.n_seen_ or self._ball is not None:
            check_count(d, "n_features")
        centers = [self.center, None if self._ball is None else self._ball.center]
        widths = {len(center) for center in centers if center is not None}
        if not widths <= {d} or (self._levels and self._ball is None) or not all(0 <= i < 64 for i in self._levels):
            raise InvalidInputError(f"a stream of {d} columns cannot have this ball or these levels")
        for node in nodes:
            for name in ("error", "variance"):
                check_number(getattr(node, name), name, at_least=0.0, at_most=LARGEST_RATIO)
            lengths = {len(getattr(node, part)) for part in _PARTS}
            if node.X.ndim != 2 or node.X.shape[1] != d or len(lengths) > 1:
                raise InvalidInputError(f"a node of shape {node.X.shape} and {len(node.rows)} rows, of {d} columns")
            if len(node.X):
                check_features(node.X)
            check_chosen(node.rows, node.weights, self.n_seen_)
            if node.weights.dtype != np.float64 or not 0 <= float(node.weights.sum()) <= LARGEST_MAGNITUDE:
                raise InvalidInputError("the weights of a node are not finite numbers")
        if sum(len(node.rows) for node in self._buffer) > self._n_buffered:
            raise InvalidInputError("more rows wait than were buffered")


def _union(nodes: list[_Node]) -> _Node:
    """Rows of several nodes: an error of each part at most the largest is an error of the whole at most that."""
    parts: dict[str, Any] = {part: np.concatenate([getattr(node, part) for node in nodes]) for part in _PARTS}
    return _Node(**parts, error=max(node.error for node in nodes), variance=max(node.variance for node in nodes))


def _values(given: Any, n: int, name: str) -> np.ndarray:
    """(n,) integers or strings; zeros if nothing was given."""
    if given is None:
        return np.zeros(n, dtype=np.int64)
    values = as_numpy(given)
    if values.dtype.kind == "O" and all(isinstance(value, str) for value in values.flat):
        values = values.astype(str)
    if values.shape != (n,) or values.dtype.kind not in "iubU":
        found = f"shape {values.shape} and type {values.dtype}"
        raise InvalidInputError(f"{name} has {found}; integers or strings are needed, one for each of {n} rows.")
    return values if values.dtype.kind == "U" else values.astype(np.int64)
