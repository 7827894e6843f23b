"""GLISTER: samples whose gradient step reduces the validation loss."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .._errors import InvalidInputError
from .._progress import logger
from ..coresets.coreset import Coreset
from .context import SelectionContext
from .gradients import Array, Gradients, Validation
from .inputs import Indices
from .strategy import ONE_BLAS_THREAD, Selector, setting


@dataclass(frozen=True, eq=False)
class Glister(Selector):
    r"""Greedy by the validation loss after one step on the picks (Killamsetty et al., AAAI 2021).

    With :math:`\theta_S = \theta - \eta \sum_{j \in S} a_j` for the last layer, a sample gains, to first order,

    .. math:: L(\theta_S) - L(\theta_S - \eta a_e) \approx \eta \, a_e \cdot \nabla L(\theta_S),

    with the mean validation loss L. Its gradient at :math:`\theta_S` needs no pass through the model: the outputs of
    the layer change by :math:`-\eta r_e (h_e \cdot h_v + 1)`. Each pick is the best of a random pool of :math:`(n/k)
    \ln(1/\varepsilon)` samples (stochastic greedy), or of all if ``epsilon`` is None. Weights are 1.

    Parameters
    ----------
    eta, epsilon : float, float or None
        Step size, usually the learning rate; and the number above.
    """

    eta: float = setting(0.01, above=0.0)
    epsilon: float | None = setting(0.01, above=0.0, below=1.0)
    needs_validation: ClassVar[bool] = True

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Coreset:
        gradients, validation = context.gradients(), context.validation()
        n, remark = len(gradients), ""
        loss = LookAhead(validation, self.eta)
        if (own := gradients.width) != (width := loss.width):
            raise InvalidInputError(f"gradients have length {own}, and {width} in validation: the layers must agree.")
        if not loss.can_move:
            remark = "validation gradient not refreshed"
            logger.warning("Glister: %s, as more layers follow, or the gradients have no factors.", remark)
        pool = n if self.epsilon is None else math.ceil(n / size * math.log(1.0 / self.epsilon))
        with ONE_BLAS_THREAD:
            rows = greedy(gradients, loss, size, pool, rng)
        return self.coreset(context, rows, remark=remark)


class LookAhead:
    """The gradient of the mean validation loss as the last layer moves, from outputs that are kept up to date."""

    def __init__(self, validation: Validation, eta: float) -> None:
        self._gradients = validation.gradients
        self.width = self._gradients.width
        # sums thousands of small steps: in double precision, although each step has the model's
        self._outputs = validation.outputs.astype(np.float64)
        self._residuals_at = validation.residuals_at
        self.eta = eta
        self.can_move = validation.residuals_at is not None and self._gradients.inputs is not None

    def gradient(self) -> Array:
        return self._gradients.total() / len(self._gradients)

    def move(self, step: Gradients) -> None:
        """Take a step of size eta against the sum of some gradients."""
        inputs = self._gradients.inputs
        if inputs is None or self._residuals_at is None:
            return
        if step.inputs is not None:  # of low rank
            self._outputs -= inputs @ step.inputs.T @ (self.eta * step.residuals)
        else:
            self._outputs -= inputs @ (self.eta * step.total()).reshape(self._gradients.shape).T
        kind = self._gradients.residuals.dtype
        residuals = self._residuals_at(self._outputs.astype(kind)).astype(kind, copy=False)
        self._gradients = Gradients(residuals, inputs)


def greedy(gradients: Gradients, loss: LookAhead, size: int, pool: int, rng: np.random.Generator) -> Indices:
    """Picks in order, each the best of a pool drawn from the remaining samples, the first among equal gains."""
    left = np.arange(len(gradients))
    picks: list[int] = []
    for count in range(len(gradients), len(gradients) - size, -1):
        places = np.argsort(left[:count]) if pool >= count else rng.choice(count, pool, replace=False)
        place = int(places[np.argmax(gradients.take(left[places]).along(loss.gradient()))])
        picks.append(int(left[place]))
        left[place] = left[count - 1]
        loss.move(gradients.take(np.array(picks[-1:])))
    return np.array(picks, dtype=np.int64)
