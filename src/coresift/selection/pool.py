"""Gradients of some rows of a context only: what is not in the pool costs no forward pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .context import BatchContext, SelectionContext
from .gradients import Gradients

_CPU_BATCH = 256  # larger ones leave the cache: LeNet-5 takes a third more time for a sample at 1,024


class PoolContext(SelectionContext):
    """Some rows of a context, at the same moment."""

    def __init__(self, samples: SelectionContext, positions: NDArray[np.int64]) -> None:
        vars(self).update(vars(samples))
        self.rows = samples.rows[positions]
        self.sizes = samples.sizes[positions]
        self._is_whole = False
        self._kept, self._now = {}, {}
        model = samples.model
        if model is not None and all(tensor.device.type == "cpu" for tensor in model.parameters()):
            self._batch_size = min(self._batch_size, _CPU_BATCH)


def knows_gradients(context: SelectionContext) -> bool:
    """Whether there is a model, or gradients that were given."""
    return context.model is not None or context._given[0] is not None


def gradients_of(context: SelectionContext, positions: NDArray[np.int64]) -> Gradients:
    """Of these rows. Of mini-batches, or where all are known already, a part of all."""
    if isinstance(context, BatchContext) or "gradients" in context._now:
        return context.gradients().take(positions)
    return PoolContext(context, positions).gradients()
