"""Norms of last-layer gradients, recorded while training computes them, without a pass of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from .._errors import InvalidInputError
from ..selection.gradients import Gradients
from ..selection.hooks import layer_factors, only_tensor

_HELD_ROWS = 4096  # computed together: one large product is cheaper than many small ones


class NormRecorder:
    r"""Record gradient norms of a linear layer from its inputs :math:`h_i` and the gradients in its outputs.

    The loss of a batch is :math:`\sum w_i l_i / \sum w`, so these gradients are :math:`w_i r_i / \sum w`, and the norm
    is :math:`|r_i| \sqrt{|h_i|^2 + 1}`; for other modules it is :math:`|r_i|`. Samples of weight 0 give NaN.
    """

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer
        # one entry per call of the layer in this step: its input and, after backward, the gradient in its output
        self._calls: list[list[Tensor]] = []
        self._steps: list[tuple[list[list[Tensor]], Tensor]] = []
        self._held = 0
        self._norms: list[NDArray[np.float32]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        handle = self.layer.register_forward_hook(self._catch)
        try:
            yield
        finally:
            handle.remove()
            self._calls.clear()

    def _catch(self, module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        output = only_tensor(output)
        if output.requires_grad:
            call = [given[0].detach() if isinstance(module, nn.Linear) else output.new_empty(0)]
            self._calls.append(call)
            output.register_hook(call.append)

    def end_step(self, weights: Tensor) -> None:
        """Collect a batch with these weights, after its ``backward``."""
        calls, self._calls = self._calls, []
        self._steps.append((calls, weights))
        self._held += len(weights)
        is_plain = len(calls) == 1 and calls[0][0].ndim == 2 and len(calls[0][0]) == len(weights)
        if self._held >= _HELD_ROWS or not is_plain:  # others form products, which may be large
            self._reduce()

    def take(self) -> NDArray[np.float32]:
        """Return the norms of all samples since the last call, in their order."""
        self._reduce()
        norms, self._norms = self._norms, []
        return np.concatenate(norms) if norms else np.zeros(0, dtype=np.float32)

    def _reduce(self) -> None:
        lots = [self._lot(calls, weights) for calls, weights in self._steps]
        self._steps, self._held = [], 0
        if not lots:
            return
        residuals, inputs, scales = zip(*lots, strict=True)
        vectors = None if inputs[0] is None else np.concatenate(inputs)
        squares = Gradients(np.concatenate(residuals), vectors).sq_norms()
        with np.errstate(invalid="ignore", over="ignore"):  # 0 times infinity where a weight is 0
            self._norms.append((np.sqrt(squares) * np.concatenate(scales)).astype(np.float32))

    def _lot(self, calls: list[list[Tensor]], weights: Tensor) -> tuple[Any, Any, Any]:
        used = [call for call in calls if len(call) == 2]  # the others do not reach the loss
        if not used:
            raise InvalidInputError(f"scores='seen': the loss does not depend on the layer {self.layer}.")
        given, slopes = zip(*used, strict=True)
        scale = (weights.sum() / weights).cpu().numpy()
        return *layer_factors(self.layer, given, slopes, len(weights)), scale
