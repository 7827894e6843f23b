"""GradMatch: a weighted subset whose gradient is that of all data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._errors import InvalidInputError
from .._progress import logger
from ..coresets.coreset import Coreset
from .context import SelectionContext
from .gradients import Gradients
from .omp import nonnegative_omp
from .strategy import Selector, one_blas_thread


@dataclass(frozen=True, eq=False)
class GradMatch(Selector):
    r"""Samples and weights that match the gradient (Killamsetty et al., ICML 2021).

    .. math:: \min_{|S| \le k,\; x \ge 0} \; \Bigl|\sum_i a_i - \sum_{j \in S} x_j a_j\Bigr|^2 + \lambda |x|^2

    by orthogonal matching pursuit, with the weights x solved for exactly after each pick. Where the pursuit ends early
    (the gradient is matched, or no further sample can help) or gives a pick no weight, random samples of weight 1 fill
    the budget.

    The paper's GRADMATCH is ``PerClass(GradMatch())``, its GRADMATCHPB ``PerBatch(GradMatch(ridge=0.0))``.

    Parameters
    ----------
    ridge : float, default 0.5
        The lambda above.
    bias_only : bool, default False
        Use the gradients of the layer's bias only.
    own_output : bool, default True
        Within a class, use the gradients of that class's row of the layer only.
    tol : float, default 1e-10
        Relative residual at which the gradient counts as matched.
    """

    ridge: float = 0.5
    bias_only: bool = False
    own_output: bool = True
    tol: float = 1e-10

    def _check(self) -> None:
        for name in ("ridge", "tol"):
            if not 0 <= getattr(self, name) < np.inf:
                raise InvalidInputError(f"{name} = {getattr(self, name)} must be a number of at least 0.")

    def atoms(self, context: SelectionContext) -> Gradients:
        """The gradients that are matched."""
        output = context.class_output if self.own_output else None
        return context.gradients(bias_only=self.bias_only, output=output)

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        atoms, sizes = self.atoms(context).double(), context.sizes
        with one_blas_thread():
            rows, weights = nonnegative_omp(atoms, atoms.total(sizes), size, self.ridge, self.tol)
        rows, weights = rows[weights > 0], weights[weights > 0]
        name = self.name
        if len(rows) < size:
            rest = np.setdiff1d(np.arange(len(atoms)), rows, assume_unique=True)
            filled = rng.choice(rest, size - len(rows), replace=False)
            logger.info(
                "GradMatch: %d picks match the gradient; %d filled at random.", len(rows), len(filled)
            )
            name = f"{name} (in part filled at random)"
            rows, weights = np.concatenate((rows, filled)), np.concatenate((weights, sizes[filled]))
        return Coreset(rows, weights, len(atoms), method=name, total_weight=float(sizes.sum()))
