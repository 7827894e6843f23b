"""Last-layer gradients, one per sample, stored as the factors of their products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Gradients:
    r"""Gradients :math:`a_i = r_i h_i^\top` of n samples, stored as factors.

    The loss of sample i, as a function of a linear layer :math:`z = W h`, has the gradient :math:`r_i h_i^\top`, with
    the residual :math:`r_i = \partial \ell_i / \partial z`. ``residuals`` is (n, C), ``inputs`` (n, H), the last of
    them 1 if the layer has a bias; or None: the gradient is the residual alone (or any flat vector). Hence

    .. math:: a_i \cdot a_j = (r_i \cdot r_j)(h_i \cdot h_j),

    in O(C + H) instead of O(C H) time, with n (C + H) numbers stored instead of n C H.
    """

    residuals: Array
    inputs: Array | None = None

    def __post_init__(self) -> None:
        given = {"residuals": self.residuals} | ({} if self.inputs is None else {"inputs": self.inputs})
        for name, value in given.items():
            if not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.kind != "f":
                raise InvalidInputError(f"{name} must be a two-dimensional array of floats")
            if len(value) != (n := len(self.residuals)):
                raise InvalidInputError(f"inputs has {len(value)} rows, but residuals has {n}; they must be equal")

    def __len__(self) -> int:
        return len(self.residuals)

    def __repr__(self) -> str:
        return f"Gradients({len(self):,} x {self.width:,})"

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of one gradient: outputs and inputs."""
        return self.residuals.shape[1], 1 if self.inputs is None else self.inputs.shape[1]

    @property
    def width(self) -> int:
        """Length of one gradient."""
        return math.prod(self.shape)

    def is_finite(self) -> bool:
        """Whether no factor is NaN or infinite."""
        return all(part is None or np.isfinite(part).all() for part in (self.residuals, self.inputs))

    def take(self, rows: NDArray[np.integer[Any]] | slice) -> Gradients:
        """Gradients of some samples."""
        return Gradients(self.residuals[rows], None if self.inputs is None else self.inputs[rows])

    def double(self) -> Gradients:
        """Convert to float64."""
        inputs = None if self.inputs is None else self.inputs.astype(np.float64, copy=False)
        return Gradients(self.residuals.astype(np.float64, copy=False), inputs)

    def of_output(self, output: int) -> Gradients:
        """Gradients with respect to one row of the layer."""
        return Gradients(self.residuals[:, output : output + 1], self.inputs)

    def dense(self) -> Array:
        """The products, (n, width): for each output its inputs."""
        if self.inputs is None:
            return self.residuals
        return (self.residuals[:, :, None] * self.inputs[:, None, :]).reshape(len(self), -1)

    def products(self, other: Gradients, out: Array | None = None) -> Array:
        """Inner products with other gradients, (len(other), n)."""
        grams: Array = np.matmul(other.residuals, self.residuals.T, out=out)
        if self.inputs is not None and other.inputs is not None:
            grams *= other.inputs @ self.inputs.T
        return grams

    def sq_norms(self) -> Array:
        """Squared norms, (n,)."""
        squares = np.einsum("ij,ij->i", self.residuals, self.residuals)
        if self.inputs is not None:
            squares *= np.einsum("ij,ij->i", self.inputs, self.inputs)
        return squares

    def along(self, direction: Array) -> Array:
        """Inner products with a vector of ``width`` numbers, (n,)."""
        if self.inputs is None:
            return self.residuals @ direction
        return np.einsum("ij,ij->i", self.residuals, self.inputs @ direction.reshape(self.shape).T)

    def total(self, weights: Array | None = None) -> Array:
        """Sum, or weighted sum: a vector of ``width`` numbers."""
        residuals = self.residuals if weights is None else self.residuals * weights[:, None]
        return residuals.sum(axis=0) if self.inputs is None else (residuals.T @ self.inputs).reshape(-1)

    def means(self, groups: Sequence[NDArray[np.int64]]) -> Gradients:
        """Mean gradient of each group of samples, as flat vectors: a mean of products is not a product."""
        found = np.empty((len(groups), self.width))
        for mean, rows in zip(found, groups, strict=True):
            mean[:] = self.take(rows).double().total() / len(rows)
        return Gradients(found)


@dataclass(frozen=True, eq=False)
class Validation:
    """The validation loss as a function of the last layer.

    ``gradients``: one per validation sample, at the current model. ``outputs``: those of the layer, (n, C).
    ``residuals_at`` maps outputs to residuals; None if more layers follow, so that it would need the model.
    """

    gradients: Gradients
    outputs: Array
    residuals_at: Callable[[Array], Array] | None = None
