"""Last-layer gradients, one per sample, stored as the factors of their products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Gradients:
    r"""Gradients :math:`a_i = r_i \, (h_i, 1)^\top` of n samples, stored as factors.

    The loss of sample i, as a function of a linear layer :math:`z = W h + b`, has the gradient :math:`r_i h_i^\top` in
    W and :math:`r_i` in b, with the residual :math:`r_i = \partial \ell_i / \partial z` (softmax - onehot for cross
    entropy). Hence

    .. math:: a_i \cdot a_j = (r_i \cdot r_j)(h_i \cdot h_j + 1),

    in O(C + H) instead of O(C H) time, with n (C + H) numbers stored instead of n C (H + 1).

    Parameters
    ----------
    residuals : (n, C) array
    inputs : (n, H) array or None
        Inputs of the layer. None: the gradient is the residual alone (that of the bias, or any flat vector).
    bias : bool
        Whether the layer has a bias: the 1 above. Ignored without inputs.
    """

    residuals: Array
    inputs: Array | None = None
    bias: bool = True

    def __post_init__(self) -> None:
        for name, value in (("residuals", self.residuals), ("inputs", self.inputs)):
            if value is None:
                continue
            if not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.kind != "f":
                raise InvalidInputError(f"{name} must be a two-dimensional array of floats")
            if len(value) != len(self.residuals):
                raise InvalidInputError(
                    f"inputs has {len(value)} rows, but residuals has {len(self.residuals)}; they must be equal"
                )

    def __len__(self) -> int:
        return len(self.residuals)

    def __repr__(self) -> str:
        return f"Gradients({len(self):,} x {self.width:,})"

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of one gradient: outputs, and inputs with the bias."""
        if self.inputs is None:
            return self.residuals.shape[1], 1
        return self.residuals.shape[1], self.inputs.shape[1] + self.bias

    @property
    def width(self) -> int:
        """Length of one gradient."""
        outputs, inputs = self.shape
        return outputs * inputs

    def is_finite(self) -> bool:
        """Whether no factor is NaN or infinite."""
        return all(part is None or np.isfinite(part).all() for part in (self.residuals, self.inputs))

    def take(self, rows: NDArray[np.integer[Any]] | slice) -> Gradients:
        """Gradients of some samples."""
        return self._each(lambda factor: factor[rows])

    def double(self) -> Gradients:
        """Convert to float64."""
        return self._each(lambda factor: factor.astype(np.float64, copy=False))

    def _each(self, change: Callable[[Array], Array]) -> Gradients:
        inputs = None if self.inputs is None else change(self.inputs)
        return Gradients(change(self.residuals), inputs, self.bias)

    def of_bias(self) -> Gradients:
        """Gradients with respect to the bias only."""
        return Gradients(self.residuals)

    def of_output(self, output: int) -> Gradients:
        """Gradients with respect to one row of the layer: its weights and its bias."""
        return Gradients(self.residuals[:, output : output + 1], self.inputs, self.bias)

    def dense(self) -> Array:
        """The products, (n, width): for each output its inputs, then its bias."""
        if self.inputs is None:
            return self.residuals
        parts = np.empty((len(self), *self.shape), dtype=np.result_type(self.residuals, self.inputs))
        np.multiply(
            self.residuals[:, :, None], self.inputs[:, None, :], out=parts[:, :, : self.inputs.shape[1]]
        )
        if self.bias:
            parts[:, :, -1] = self.residuals
        return parts.reshape(len(self), -1)

    def products(self, other: Gradients, out: Array | None = None) -> Array:
        """Inner products with other gradients, (len(other), n)."""
        grams: Array = np.matmul(other.residuals, self.residuals.T, out=out)
        if self.inputs is not None and other.inputs is not None:
            through = other.inputs @ self.inputs.T
            if self.bias:
                through += 1.0
            grams *= through
        return grams

    def sq_norms(self) -> Array:
        """Squared norms, (n,)."""
        squares = np.einsum("ij,ij->i", self.residuals, self.residuals)
        if self.inputs is not None:
            squares *= np.einsum("ij,ij->i", self.inputs, self.inputs) + float(self.bias)
        return squares

    def along(self, direction: Array) -> Array:
        """Inner products with a vector of ``width`` numbers, (n,)."""
        matrix = direction.reshape(self.shape)
        if self.inputs is None:
            return self.residuals @ matrix[:, 0]
        n_inputs = self.inputs.shape[1]
        through = self.inputs @ matrix[:, :n_inputs].T  # (n, C)
        if self.bias:
            through += matrix[:, n_inputs]
        return np.einsum("ij,ij->i", self.residuals, through)

    def total(self, weights: Array | None = None) -> Array:
        """Sum, or weighted sum: a vector of ``width`` numbers."""
        residuals = self.residuals if weights is None else self.residuals * weights[:, None]
        if self.inputs is None:
            return residuals.sum(axis=0)
        parts = np.empty(self.shape, dtype=np.result_type(residuals, self.inputs))
        parts[:, : self.inputs.shape[1]] = residuals.T @ self.inputs
        if self.bias:
            parts[:, -1] = residuals.sum(axis=0)
        return parts.reshape(-1)

    def means(self, groups: Sequence[NDArray[np.int64]]) -> Gradients:
        """Mean gradient of each group of samples, as flat vectors: a mean of products is not a product."""
        found = np.empty((len(groups), self.width))
        for mean, rows in zip(found, groups, strict=True):
            mean[:] = self.take(rows).double().total() / len(rows)
        return Gradients(found)


@dataclass(frozen=True, eq=False)
class Validation:
    """The validation loss as a function of the last layer.

    Parameters
    ----------
    gradients : Gradients
        One per validation sample, at the current model.
    outputs : (n, C) array
        Outputs of the layer.
    residuals_at : callable or None
        Maps outputs to residuals. None if more layers follow, so that this cannot be computed without the model.
    """

    gradients: Gradients
    outputs: Array
    residuals_at: Callable[[Array], Array] | None = None
