"""What describes a coreset: the ball of queries that it answers, and the guarantee that is proved for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .._validation import check_choice, check_count, check_finite, check_number, check_vector
from ..core.certificate import Certificate
from .options import LOSSES


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


def as_plain(value: Any) -> Any:
    """Return what strict JSON can hold: arrays as lists, dataclasses as objects, infinity as an object."""
    if is_dataclass(value):
        return {f.name: as_plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, np.ndarray | tuple):
        return value.tolist() if isinstance(value, np.ndarray) else list(value)
    return {"infinite": value > 0} if isinstance(value, float) and math.isinf(value) else value


def from_plain(value: Any) -> Any:
    """Undo :func:`as_plain`, up to lists and classes."""
    if not isinstance(value, dict):
        return value
    if value.keys() == {"infinite"}:
        return math.inf if value["infinite"] else -math.inf
    return {name: from_plain(part) for name, part in value.items()}


@dataclass(frozen=True, eq=False, repr=False)
class QueryBall(Value):
    """The queries x that a coreset answers: ``|x - center| <= radius * scale``.

    Parameters
    ----------
    loss : {"gaussian", "laplacian"}
        ``exp(-|p - x|^2 / scale^2)`` or ``exp(-|p - x| / scale)``.
    center, scale : (d,) array, float
        Centre and bandwidth, in the units of the data.
    radius : float
        In units of ``scale``; infinite if every x of the space is a query.
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


_QUERIES = {
    "single": "each single query",
    "all": "all queries",
    "families": "each single query to each family of sums in the network's loss",
    "sums": "weighted sums",
}


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
    argument : str
        The inequality or the certificate that proves it.
    radius : float or None
        Radius of the ball of queries, in bandwidths; infinite for all of space, None where there is no ball.
    size, total : int or None, float or None
        The number of draws and the total sensitivity that enter the proof.
    n_stages : int
        Draws from draws whose errors were added up, as in a stream.

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
    def from_certificate(cls, certificate: Certificate) -> Guarantee | None:
        """Return what a certificate proves; None for an error of 1 or more, which says nothing."""
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
        """Return the value that :meth:`as_dict` described."""
        return cls(**from_plain(plain))
