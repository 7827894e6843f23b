"""A coreset as a value: which rows, with which weights, drawn how, which queries it answers, and what is proved."""

import math
import os
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError, InvalidTypeError
from .._validation import (
    check_choice,
    check_chosen,
    check_count,
    check_finite,
    check_instance,
    check_number,
    check_vector,
    naming,
)
from ..core.points import Certificate
from ..rows.columns import n_rows, take_rows
from .files import as_plain, check_types, from_plain, read_coreset, write_coreset
from .options import LOSSES

MAX_MEMORY = "2GB"
_QUERIES = {
    "single": "each single query",
    "all": "all queries",
    "families": "each single query to each family of sums in the network's loss",
    "sums": "weighted sums",
}


class Value:
    """Base of frozen dataclasses that hold arrays: read-only, and compared by content."""

    def _assign(self, **values: Any) -> None:
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        names = [f.name for f in fields(self)]  # type: ignore[arg-type]  # subclasses are dataclasses
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._assign(**state)


@dataclass(frozen=True, eq=False, repr=False)
class QueryBall(Value):
    """The queries x that a coreset answers: ``|x - center| <= radius * scale``.

    Parameters
    ----------
    loss : {"gaussian", "laplacian"}
        ``exp(-|p - x|^2 / scale^2)`` or ``exp(-|p - x| / scale)``.
    center, scale, radius : (d,) array, float, float
        Centre and bandwidth, in the units of the data; radius in bandwidths, infinite if every x is a query.

    Examples
    --------
    >>> QueryBall("gaussian", center=np.zeros(2), scale=3.0, radius=1.0)
    QueryBall('gaussian', 2 dimensions, scale=3, radius=1)
    """

    loss: str
    center: NDArray[np.float64]
    scale: float
    radius: float

    def __post_init__(self) -> None:
        check_choice(self.loss, "loss", LOSSES)
        center = check_vector(self.center, "center")
        check_finite(center[None], name="center")
        scale = check_number(self.scale, "scale", above=0.0, below=np.inf)
        self._assign(center=center, scale=scale, radius=check_number(self.radius, "radius", above=0.0))

    def __repr__(self) -> str:
        size = f"{self.center.size} dimensions, scale={self.scale:.6g}, radius={self.radius:.6g}"
        return f"QueryBall({self.loss!r}, {size})"


@dataclass(frozen=True)
class Guarantee:
    """A proved bound on the relative error of a coreset; ``str()`` gives it as a sentence.

    Parameters
    ----------
    queries : {"single", "all", "families", "sums"}
        "single": any one query, fixed before the draw. "all": all queries of the ball at once. "families": any one
        query to each family of sums in a network's loss. "sums": weighted sums are unbiased, and no error is bounded.
    eps, delta : float or None
        The bound (None for "sums"), and the probability that the draw misses it (None if it always holds).
    argument, radius : str, float or None
        What proves it, and the radius of the ball of queries, in bandwidths: infinite for all of space.
    size, total, n_stages : int or None, float or None, int
        The number of draws, the total sensitivity, and how many draws from draws enter the proof.

    Examples
    --------
    >>> print(Guarantee("all", 0.1, 0.05, "covering", radius=1.0, size=2000))
    Relative error at most 0.1 for all queries within radius 1, with probability 0.95 (covering, m = 2000).
    """

    queries: str
    eps: float | None = None
    delta: float | None = None
    argument: str = ""
    radius: float | None = None
    size: int | None = None
    total: float | None = None
    n_stages: int = 1

    def __post_init__(self) -> None:
        check_choice(self.queries, "queries", tuple(_QUERIES))
        check_count(self.n_stages, "n_stages")
        for name in ("eps", "delta", "radius", "size", "total"):
            if getattr(self, name) is not None:
                check_number(getattr(self, name), name, at_least=0.0)

    @classmethod
    def from_certificate(cls, certificate: Certificate) -> Self | None:
        """Return what a ``certificate`` proves; None for an error of 1 or more, which says nothing."""
        if certificate.eps >= 1:
            return None
        kind = "exact" if certificate.is_exact else "sampled"
        delta = None if certificate.is_exact else 1.0 - certificate.confidence
        return cls("all", certificate.eps, delta, f"{kind} certificate", certificate.radius)

    def __str__(self) -> str:
        if self.eps is None:
            return "Weighted sums are unbiased."
        where = ""
        if self.radius is not None:
            where = " of space" if math.isinf(self.radius) else f" within radius {self.radius:g}"
        chance = "" if self.delta is None else f", with probability {1 - self.delta:g}"
        proof = [
            self.argument,
            *([f"m = {self.size}"] if self.size is not None else []),
            *([f"t = {self.total:.3g}"] if self.total is not None else []),
            *([f"added up over {self.n_stages} draws"] if self.n_stages > 1 else []),
        ]
        claim = f"Relative error at most {self.eps:.3g} for {_QUERIES[self.queries]}{where}{chance}"
        return f"{claim} ({', '.join(proof)})."

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as strict JSON can hold them."""
        return dict(as_plain(self))

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Return the value from ``plain``, a dictionary made by :meth:`as_dict`."""
        return cls(**from_plain(plain))


_PARTS: dict[str, type] = {"ball": QueryBall, "certificate": Certificate, "guarantee": Guarantee}


@dataclass(frozen=True, eq=False, repr=False)
class Coreset(Value):
    """Rows of a data set and weights such that weighted sums over them stand for sums over all of it.

    Parameters
    ----------
    indices, weights : (m,) distinct integers in [0, n_samples), (m,) numbers >= 0
        Kept as int64, strictly increasing, and float64. A weight includes the input weight of the row.
    n_samples, total_weight : int, float or None
        Number of rows of the data that the coreset was drawn from, and the sum of their input weights.
    method : str
        How it was drawn: "systematic", "iid", "keys", "two-step" or "exact"; otherwise "given".
    n_draws, seed : int or None
        Independent draws, before repeats were merged, and the seed that repeats them.
    bound, total_sensitivity, ball : str or None, float or None, QueryBall or None
        Name and sum of the sensitivity bounds that drew it, and the queries that it answers.
    guarantee, certificate : Guarantee or None, Certificate or None
        What is proved about it, and the proved bound on the error of this very subset, if one was computed.
    adjustments : tuple of str
        What was done to the draw and gives up exact unbiasedness: "refined", "reweighted", "normalized", "calibrated".

    Examples
    --------
    >>> core = Coreset([2, 0], [1.5, 2.5], n_samples=4)
    >>> core.take(["a", "b", "c", "d"])
    (['a', 'c'], array([2.5, 1.5]))
    """

    indices: NDArray[np.int64]
    weights: NDArray[np.float64]
    n_samples: int
    _: KW_ONLY
    method: str = "given"
    n_draws: int | None = None
    seed: int | None = None
    total_sensitivity: float | None = None
    bound: str | None = None
    guarantee: Guarantee | None = None
    ball: QueryBall | None = None
    total_weight: float | None = None
    adjustments: tuple[str, ...] = ()
    certificate: Certificate | None = None

    def __post_init__(self) -> None:
        n_samples = check_count(self.n_samples, "n_samples")
        indices, weights = check_chosen(self.indices, self.weights, n_samples)
        check_instance(self.method, "method", str)
        for name, kind in {"bound": str, **_PARTS}.items():
            check_instance(getattr(self, name), name, kind, optional=True)
        if isinstance(self.adjustments, str) or not all(isinstance(word, str) for word in self.adjustments):
            raise InvalidTypeError(f"adjustments = {self.adjustments!r} must be a tuple of strings.")
        for name in ("n_draws", "seed"):
            if getattr(self, name) is not None:
                self._assign(**{name: check_count(getattr(self, name), name, minimum=0)})
        for name in ("total_sensitivity", "total_weight"):
            if getattr(self, name) is not None:
                self._assign(**{name: check_number(getattr(self, name), name, at_least=0.0)})
        self._assign(indices=indices, weights=weights, n_samples=n_samples, adjustments=tuple(self.adjustments))

    @property
    def size(self) -> int:
        """Number of points in the coreset."""
        return int(self.indices.size)

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        method = "+".join((self.method, *self.adjustments))
        about = [f"{self.size:,} of {self.n_samples:,} points", f"method={method!r}"]
        if self.bound is not None:
            about.append(f"bound={self.bound!r}")
        if self.total_sensitivity is not None:
            about.append(f"total_sensitivity={self.total_sensitivity:.4g}")
        if self.certificate is not None:
            about.append(f"guaranteed error={self.certificate.eps:.3g}")
        if self.seed is not None:
            about.append(f"seed={self.seed}")
        return f"Coreset({', '.join(about)})"

    def take(self, *arrays: Any, weights: str = "sum") -> tuple[Any, ...]:
        """Return the rows of the coreset from each array, then the weights: ``Xs, ys, ws = core.take(X, y)``.

        ``weights="sum"`` gives them as they are: they sum to about the weight of all rows, as estimates of sums need.
        ``weights="mean"`` scales them to a mean of 1: a fixed ``C`` then means what it means for that many rows.

        Each of ``arrays`` has ``n_samples`` rows: a list, frame, series, sparse matrix, tensor, or anything else with a
        length that an integer array can index. A tuple comes back as a list, a sparse matrix as CSR unless it is CSC.
        """
        for position, array in enumerate(arrays):
            rows = n_rows(array)
            if rows != self.n_samples:
                text = f"array {position} of take() has {rows} rows"
                raise InvalidInputError(f"{text}; the coreset was drawn from n_samples = {self.n_samples}.")
        scale = 1.0 if check_choice(weights, "weights", ("sum", "mean")) == "sum" else float(self.weights.mean()) or 1.0
        return (*(take_rows(array, self.indices) for array in arrays), self.weights / scale)

    def certify(
        self,
        X: Any,
        *,
        sample_weight: Any = None,
        radius: float | None = None,
        method: str = "auto",
        n_sampled: int = 20_000,
        delta: float = 0.05,
        max_memory: Any = MAX_MEMORY,
        random_state: Any = 0,
        on_pass: Any = None,
    ) -> Certificate:
        """Return a certificate: a proved bound on this subset's error for all queries of the ball, in any dimension.

        Parameters
        ----------
        X : array-like, frame or sparse matrix of shape (n, d), or Rows
            The data that the coreset was drawn from.
        sample_weight : array-like of shape (n,), optional
            The weights that it was fitted with; by default those of the ``Rows``.
        radius : float, optional
            Radius of the ball of queries, in bandwidths; by default the coreset's own, for the Laplacian all of space.
        method : {"auto", "exact", "sampled"}
            "exact" sums over pairs of rows, up to O(n^2 d), and always holds. "sampled" estimates these sums from
            samples of the rows, and holds with probability ``1 - delta``. "auto" is exact if that takes up to a minute.
        n_sampled, delta, random_state, on_pass
            Options of the sampled form (time grows with the square of ``n_sampled``); progress as in :func:`select`.
        max_memory : number or str
            Bytes up to which ``Rows`` are loaded into memory; above, they are kept in a temporary file.
        """
        from .certifying import asked, certified, certify_options

        options = certify_options(method, n_sampled, delta, random_state)
        with asked(X, self, sample_weight, radius, max_memory) as (subset, _):
            return certified(subset, **options, on_pass=on_pass)

    def reweight(
        self, X: Any, *, sample_weight: Any = None, radius: float | None = None, max_memory: Any = MAX_MEMORY
    ) -> "Coreset":
        """Return the same points with the non-negative weights that minimise the discrepancy, certified.

        Often halves the guaranteed error. The weights are for kernel sums, no longer unbiased, and may be zero. Takes
        O(m n d) for the sums, O(m^3) up to some thousand points, matrix-free above. Arguments as in :meth:`certify`.
        """
        from .certifying import asked, improved

        with asked(X, self, sample_weight, radius, max_memory) as (subset, core):
            return improved(core, subset.points, subset.shares, self.size, None)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``path``, ``.npz`` or ``.parquet`` (extra ``io``), whole or not at all; equal coresets, equal bytes."""
        write_coreset(Path(path), self, {}, {})

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the arrays, as strict JSON can hold it."""
        return {f.name: as_plain(getattr(self, f.name)) for f in fields(self)[2:]}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read the file ``path`` that :meth:`save` wrote; refuse any other with a message that names it."""
        header, indices, weights = read_coreset(Path(path))
        with naming(Path(path), "not a coreset file"):
            about = from_plain({f.name: header[f.name] for f in fields(cls)[2:]})
            for name, kind in _PARTS.items():
                if about[name] is not None:
                    check_types(kind, about[name])
                    about[name] = kind(**about[name])
            return cls(indices, weights, **about)
