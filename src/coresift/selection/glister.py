"""GLISTER: samples whose gradient step lowers the validation loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .._errors import InvalidInputError
from .._progress import logger
from .._validation import check_count, check_positive, check_probability
from ..coresets.coreset import Coreset
from .context import SelectionContext
from .gradients import Array, Gradients, Validation
from .strategy import Selector, one_blas_thread


@dataclass(frozen=True, eq=False)
class Glister(Selector):
    r"""Greedy by the validation loss after one step on the picks (Killamsetty et al., AAAI 2021).

    With :math:`\theta_S = \theta - \eta \sum_{j \in S} a_j` for the last layer, a sample gains, to first order,

    .. math:: L(\theta_S) - L(\theta_S - \eta a_e) \approx \eta \, a_e \cdot \nabla L(\theta_S),

    L the mean validation loss. Its gradient is computed anew at :math:`\theta_S` after each pick (or ``refresh`` of
    them); that needs no pass through the model, as the outputs of the layer move by
    :math:`-\eta r_e (h_e \cdot h_v + 1)`. Each pick is the best of a random pool of
    :math:`(n/k) \ln(1/\varepsilon)` samples (stochastic greedy). Weights are 1.

    Parameters
    ----------
    eta : float, default 0.01
        The step; usually the learning rate.
    epsilon : float or None, default 0.01
        Of the pool; None looks at all samples at every pick.
    refresh : int, default 1
        Picks between two computations of the validation gradient.
    bias_only : bool, default False
        Use the gradients of the layer's bias only.
    """

    eta: float = 0.01
    epsilon: float | None = 0.01
    refresh: int = 1
    bias_only: bool = False
    needs_validation: ClassVar[bool] = True

    def _check(self) -> None:
        check_positive(self.eta, "eta")
        check_count(self.refresh, "refresh")
        if self.epsilon is not None:
            check_probability(self.epsilon, "epsilon")

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        gradients, validation = context.gradients(bias_only=self.bias_only), context.validation()
        n, name = len(gradients), self.name
        loss = LookAhead(validation, self.eta, bias_only=self.bias_only)
        if gradients.width != loss.width:
            raise InvalidInputError(
                f"gradients have {gradients.width} numbers, those of the validation samples {loss.width}: "
                "they are not of the same layer."
            )
        if not loss.can_move:
            name = f"{name} (validation gradient not refreshed)"
            logger.warning(
                "Glister: more follows after the layer, or these gradients are no products, "
                "so the validation gradient is not refreshed."
            )
        pool = n if self.epsilon is None else math.ceil(n / size * math.log(1.0 / self.epsilon))
        with one_blas_thread():
            rows = greedy(gradients, loss, size, pool, self.refresh, rng)
        return Coreset(rows, context.sizes[rows], n, method=name, total_weight=float(context.sizes.sum()))


class LookAhead:
    """The mean validation loss while the last layer moves: its gradient, from outputs that are kept up to date."""

    def __init__(self, validation: Validation, eta: float, *, bias_only: bool = False) -> None:
        given = validation.gradients
        self._gradients = given.of_bias() if bias_only else given
        # thousands of small steps add up here: in double precision, though each is computed in that of the model
        self._outputs = validation.outputs.astype(np.float64)
        self._residuals_at = validation.residuals_at
        self.eta = eta
        self.can_move = validation.residuals_at is not None and (bias_only or given.inputs is not None)

    @property
    def width(self) -> int:
        """Numbers in one gradient."""
        return self._gradients.width

    def gradient(self) -> Array:
        """Of the mean loss."""
        return self._gradients.total() / len(self._gradients)

    def move(self, step: Gradients) -> None:
        """A step of length eta against the sum of some gradients."""
        if not self.can_move or self._residuals_at is None:
            return
        inputs, bias = self._gradients.inputs, self._gradients.bias
        if inputs is None:
            self._outputs -= self.eta * step.total()
        elif step.inputs is not None:  # of low rank
            through = inputs @ step.inputs.T
            if bias:
                through += 1.0
            self._outputs -= through @ (self.eta * step.residuals)
        else:
            matrix = self.eta * step.total().reshape(self._gradients.shape)
            self._outputs -= inputs @ matrix[:, : inputs.shape[1]].T
            if bias:
                self._outputs -= matrix[:, -1]
        kind = self._gradients.residuals.dtype
        residuals = self._residuals_at(self._outputs.astype(kind)).astype(kind, copy=False)
        self._gradients = Gradients(residuals, inputs, bias)


def greedy(
    gradients: Gradients, loss: LookAhead, size: int, pool: int, refresh: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Picks in order: each the best of a pool drawn from what is left, of equal gains the first of the pool."""
    left = np.arange(len(gradients))
    picks: list[int] = []
    direction = loss.gradient()
    waiting: list[int] = []
    for count in range(len(gradients), len(gradients) - size, -1):
        if pool >= count:
            rows = np.sort(left[:count])
            best = int(rows[np.argmax(gradients.take(rows).along(direction))])
            place = int(np.flatnonzero(left[:count] == best)[0])
        else:
            places = rng.choice(count, pool, replace=False)
            gains = gradients.take(left[places]).along(direction)
            place = int(places[np.argmax(gains)])
        pick = int(left[place])
        left[place] = left[count - 1]
        picks.append(pick)
        waiting.append(pick)
        if len(waiting) == refresh:
            loss.move(gradients.take(np.array(waiting)))
            direction = loss.gradient()
            waiting.clear()
    return np.array(picks, dtype=np.int64)
