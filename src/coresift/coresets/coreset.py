"""A coreset as a value: which rows, with which weights, drawn how, and for which queries it answers."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._containers import n_rows, take_rows
from .._errors import CoresiftError, InvalidInputError, InvalidTypeError
from ..core.certificate import Certificate
from .fields import checked_rows, integer, numbers, real_number
from .files import read_coreset, write_coreset

_LOSSES = ("gaussian", "laplacian")


@dataclass(frozen=True, eq=False)
class QueryBall:
    """The queries x for which a coreset answers: ``|x - center| <= radius * scale``.

    Parameters
    ----------
    loss : {"gaussian", "laplacian"}
        ``exp(-|p - x|^2 / scale^2)`` or ``exp(-|p - x| / scale)``.
    center : (d,) array
        In the units of the data.
    scale : float
        The bandwidth, in the units of the data.
    radius : float
        In units of ``scale``; infinite where every x of the space is a query.
    """

    loss: str
    center: NDArray[np.float64]
    scale: float
    radius: float

    def __post_init__(self) -> None:
        if self.loss not in _LOSSES:
            raise InvalidInputError(f"loss={self.loss!r} is unknown; choose one of {', '.join(_LOSSES)}")
        center = numbers(self.center, "center")
        if not np.isfinite(center).all():
            raise InvalidInputError("center must be finite")
        scale, radius = real_number(self.scale, "scale"), real_number(self.radius, "radius")
        if not (scale > 0 and math.isfinite(scale)):
            raise InvalidInputError(f"scale={scale} must be positive and finite")
        if not radius > 0:
            raise InvalidInputError(f"radius={radius} must be positive")
        _assign(self, center=center, scale=scale, radius=radius)

    def __eq__(self, other: object) -> bool:
        return _same(self, other) if isinstance(other, QueryBall) else NotImplemented

    def __setstate__(self, state: dict[str, Any]) -> None:
        _assign(self, **state)

    def __repr__(self) -> str:
        size = f"{self.center.size} dimensions, scale={self.scale:.6g}, radius={self.radius:.6g}"
        return f"QueryBall({self.loss!r}, {size})"


@dataclass(frozen=True, eq=False, repr=False)
class Coreset:
    """Rows of a data set and weights such that weighted sums over them stand for sums over all of it.

    Input is checked, in O(m), and copied; indices out of order are sorted, their weights with them. The
    arrays are read-only.

    Parameters
    ----------
    indices : (m,) integers in [0, n_samples), distinct
        Kept as int64, strictly increasing.
    weights : (m,) numbers >= 0
        Kept as float64. They carry the input weight of the row.
    n_samples : int
        Rows of the data that the coreset was drawn from.
    method : str
        How it was drawn: "systematic", "iid", "keys", or "given".
    n_draws : int or None
        Independent draws, before repeats were merged.
    seed : int or None
        Where it was drawn from an integer seed.
    total_sensitivity : float or None
        Sum of the sensitivity bounds that drew it.
    bound : str or None
        The name of these bounds.
    guarantee : str or None
        What is proved about it, as a sentence; None where nothing is.
    ball : QueryBall or None
        The queries for which it answers.
    total_weight : float or None
        Sum of the input weights of the data.
    adjustments : tuple of str
        What was done to the draw: "refined", "reweighted" (weights that minimise the discrepancy) or
        "normalized" (weights that sum to ``total_weight``). Any of them gives up exact unbiasedness.
    certificate : Certificate or None
        A proved bound on the error of this very subset, where one was computed.

    Examples
    --------
    >>> core = Coreset([2, 0], [1.5, 2.5], n_samples=4)
    >>> core.take(["a", "b", "c", "d"])
    (['a', 'c'], array([2.5, 1.5]))
    """

    indices: NDArray[np.int64]
    weights: NDArray[np.float64]
    n_samples: int
    method: str = "given"
    n_draws: int | None = None
    seed: int | None = None
    total_sensitivity: float | None = None
    bound: str | None = None
    guarantee: str | None = None
    ball: QueryBall | None = None
    total_weight: float | None = None
    adjustments: tuple[str, ...] = ()
    certificate: Certificate | None = None

    def __post_init__(self) -> None:
        n_samples = integer(self.n_samples, "n_samples")
        if n_samples < 1:
            raise InvalidInputError(f"n_samples={n_samples} must be at least 1")
        indices, weights = checked_rows(self.indices, self.weights, n_samples)
        if not isinstance(self.method, str):
            raise InvalidTypeError(f"method={self.method!r} must be a string")
        for name in ("bound", "guarantee"):
            if not isinstance(getattr(self, name), str | None):
                raise InvalidTypeError(f"{name}={getattr(self, name)!r} must be a string or None")
        if not isinstance(self.ball, QueryBall | None):
            raise InvalidTypeError(f"ball={self.ball!r} must be a QueryBall or None")
        if not isinstance(self.certificate, Certificate | None):
            raise InvalidTypeError(f"certificate={self.certificate!r} must be a Certificate or None")
        if isinstance(self.adjustments, str) or not all(isinstance(word, str) for word in self.adjustments):
            raise InvalidTypeError(f"adjustments={self.adjustments!r} must be a tuple of strings")
        whole = {name: integer(getattr(self, name), name, optional=True) for name in ("n_draws", "seed")}
        real = {
            name: real_number(getattr(self, name), name, optional=True)
            for name in ("total_sensitivity", "total_weight")
        }
        _assign(
            self,
            indices=indices,
            weights=weights,
            n_samples=n_samples,
            adjustments=tuple(self.adjustments),
            **whole,
            **real,
        )

    @classmethod
    def _trusted(
        cls, indices: NDArray[np.int64], weights: NDArray[np.float64], n_samples: int, **about: Any
    ) -> Coreset:
        """A coreset of arrays that are right by construction and held by nobody else: not checked, not copied."""
        core = object.__new__(cls)
        _assign(core, **{f.name: f.default for f in fields(cls)[3:]})
        _assign(core, indices=indices, weights=weights, n_samples=n_samples, **about)
        return core

    @property
    def size(self) -> int:
        """Number of points in the coreset."""
        return int(self.indices.size)

    def __len__(self) -> int:
        return self.size

    def __eq__(self, other: object) -> bool:
        return _same(self, other) if isinstance(other, Coreset) else NotImplemented

    def __setstate__(self, state: dict[str, Any]) -> None:
        _assign(self, **state)

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

    def take(self, *arrays: Any) -> tuple[Any, ...]:
        """The rows of the coreset from each array, then the weights: ``Xs, ys, ws = core.take(X, y)``.

        Every array has ``n_samples`` rows: NumPy array, list or tuple (a list comes back), pandas or polars
        frame or series, SciPy sparse matrix (CSR and CSC keep their format, others come back as CSR), torch
        tensor, or anything else that has a length and an integer array as index. The weights are a copy
        that may be changed.
        """
        for position, array in enumerate(arrays):
            rows = n_rows(array)
            if rows != self.n_samples:
                raise InvalidInputError(
                    f"array {position} of take() has {rows} rows; "
                    f"the coreset was drawn from n_samples={self.n_samples}"
                )
        return (*(take_rows(array, self.indices) for array in arrays), self.weights.copy())

    def certify(
        self,
        X: Any,
        sample_weight: Any = None,
        radius: float | None = None,
        *,
        method: str = "auto",
        n_sampled: int = 20_000,
        delta: float = 0.05,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> Certificate:
        """A bound on the relative error of this subset, proved for all queries of the ball, in any dimension.

        Parameters
        ----------
        X : array-like, frame or sparse matrix of shape (n, d)
            The data that the coreset was drawn from.
        sample_weight : array-like of shape (n,), optional
            The weights that it was fitted with.
        radius : float, optional
            Of the ball of queries, in units of the bandwidth; by default the coreset's own. The Laplacian's
            default is all of space.
        method : {"auto", "exact", "sampled"}
            "exact" sums over all pairs of rows, O(n^2 d / 2): a bound without a probability. "sampled"
            estimates these sums from ``n_sampled`` rows, and holds with probability ``1 - delta``. "auto" is
            exact where that takes about a minute at most; the certificate says which it is.
        n_sampled, delta, random_state
            Of the sampled form.
        verbose : int
            Above 0, progress is logged as warnings of the logger ``coresift``.
        """
        from .certifying import certify  # it needs this module

        return certify(
            self,
            X,
            sample_weight,
            radius,
            method=method,
            n_sampled=n_sampled,
            delta=delta,
            random_state=random_state,
            verbose=verbose,
        )

    def reweight(
        self,
        X: Any,
        sample_weight: Any = None,
        radius: float | None = None,
        *,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> Coreset:
        """The same points with the non-negative weights that minimise the discrepancy, and their certificate.

        Often halves the guaranteed error. The weights are no longer unbiased, some may be zero, and they are
        meant for kernel sums; the result's ``adjustments`` say so. O(m n d) for the sums, O(m^3) up to some
        thousand points, matrix-free above. Arguments as in :meth:`certify`.
        """
        from .certifying import reweight  # it needs this module

        return reweight(self, X, sample_weight, radius, random_state=random_state, verbose=verbose)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to ``path``, ending in ``.npz`` or ``.parquet`` (the latter with the extra ``io``).

        The file appears complete or not at all, and equal coresets give equal bytes (one version of the
        writing library).
        """
        write_coreset(Path(path), self._about(), self.indices, self.weights)

    def _about(self) -> dict[str, Any]:
        """Everything but the arrays, as JSON holds it."""
        about = {f.name: _plain(getattr(self, f.name)) for f in fields(self)[2:]}
        if self.ball is not None:
            about["ball"] = {f.name: _plain(getattr(self.ball, f.name)) for f in fields(self.ball)}
        if self.certificate is not None:
            about["certificate"] = {
                f.name: _plain(getattr(self.certificate, f.name)) for f in fields(Certificate)
            }
        return about

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Coreset:
        """Read what :meth:`save` wrote; anything else is refused with a message that names the file."""
        header, indices, weights = read_coreset(Path(path))
        try:
            about = {f.name: _from_plain(header[f.name]) for f in fields(cls)[2:]}
            if about["ball"] is not None:
                about["ball"] = QueryBall(
                    **{f.name: _from_plain(about["ball"][f.name]) for f in fields(QueryBall)}
                )
            if about["certificate"] is not None:
                about["certificate"] = Certificate(
                    **{f.name: _from_plain(about["certificate"][f.name]) for f in fields(Certificate)}
                )
            about["adjustments"] = tuple(about["adjustments"])
            return cls(indices, weights, **about)
        except (CoresiftError, KeyError, TypeError) as error:
            raise InvalidInputError(f"{path}: not a coreset file ({error})") from error


# Checks and fields.


def _assign(target: object, **values: Any) -> None:
    """Set fields of a frozen dataclass; arrays become read-only."""
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
        object.__setattr__(target, name, value)


def _same(left: Any, right: Any) -> bool:
    return all(
        np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
        for a, b in ((getattr(left, f.name), getattr(right, f.name)) for f in fields(left))
    )


def _plain(value: Any) -> Any:
    """As strict JSON holds it, which knows no infinity."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return list(value)
    return {"infinite": value > 0} if isinstance(value, float) and math.isinf(value) else value


def _from_plain(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"infinite"}:
        return math.inf if value["infinite"] else -math.inf
    return value
