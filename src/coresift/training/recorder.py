"""What training sees anyway of each sample, recorded without a pass of its own: norms, losses, predictions."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._errors import InvalidInputError
from ..selection.gradients import Gradients, layer_factors, only_tensor

_HELD_ROWS = 4096  # computed together: one large product is cheaper than many small ones
_FEW = 4  # classes below which the ranking of a label says little


class NormRecorder:
    r"""Record gradient norms of a ``layer`` from its inputs :math:`h_i` and the gradients in its outputs.

    The loss of a step is :math:`\sum w_i l_i / t`, so these gradients are :math:`w_i r_i / t`, and the norm of a linear
    layer is :math:`|r_i| \sqrt{|h_i|^2 + 1}`; for other modules it is :math:`|r_i|`. Samples of weight 0 give NaN.
    Without a layer, no norms are recorded.

    Examples
    --------
    >>> from coresift.training import NormRecorder, weighted_loss
    >>> layer, rows = nn.Linear(2, 3), torch.tensor([5, 2])
    >>> recorder = NormRecorder(layer)
    >>> with recorder.watching():  # around the steps of an epoch
    ...     losses = nn.functional.cross_entropy(layer(torch.ones(2, 2)), torch.tensor([0, 1]), reduction="none")
    ...     weighted_loss(losses, torch.ones(2)).backward()
    ...     recorder.end_step(rows, torch.ones(2), losses)
    >>> sorted(recorder.take())  # the arguments of CoresetSampler.record
    ['losses', 'norms', 'rows']
    """

    def __init__(self, layer: nn.Module | None) -> None:
        self.layer = layer
        # one entry per call of the layer in this step: its input and, after backward, the gradient in its output
        self._calls: list[list[Tensor]] = []
        self._steps: list[tuple[dict[str, Tensor], list[list[Tensor]], Tensor]] = []  # what is told, calls, scale
        self._held = 0
        self._columns: dict[str, list[Any]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record what happens in the block."""
        with nullcontext() if self.layer is None else self.layer.register_forward_hook(self._catch):
            self._calls.clear()  # of a block that failed
            yield

    def _catch(self, module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        output = only_tensor(output)
        if output.requires_grad:
            call = [given[0].detach() if isinstance(module, nn.Linear) else output.new_empty(0)]
            self._calls.append(call)
            output.register_hook(call.append)

    def end_step(
        self,
        rows: Any,
        weights: Tensor,
        losses: Tensor | None = None,
        outputs: Tensor | None = None,
        targets: Tensor | None = None,
        total: Any = None,
    ) -> None:
        """Collect a batch after its ``backward``: ``rows``, ``weights``, ``losses``, or ``outputs`` and ``targets``.

        ``total`` is what the loss was divided by, by default the sum of the weights.
        """
        calls, self._calls, n = self._calls, [], len(weights)
        told = {"rows": torch.as_tensor(rows)}
        if losses is not None:
            losses = losses.detach().flatten(1).mean(1) if losses.ndim > 1 else losses.detach()
            told["losses"] = torch.where(weights > 0, losses, torch.nan)
        if outputs is not None and targets is not None and targets.ndim == 1:
            told |= {"outputs": outputs.detach(), "targets": torch.where(weights > 0, targets, -1)}
        self._steps.append((told, calls, (weights.sum() if total is None else total) / weights.detach()))
        self._held += n
        is_plain = len(calls) == 1 and calls[0][0].ndim == 2 and len(calls[0][0]) == n
        if self._held >= _HELD_ROWS or not (is_plain or self.layer is None):  # others form products, perhaps large
            self._reduce()

    def take(self) -> dict[str, Any]:
        """Return rows and what was recorded of them since the last call, as arguments of `CoresetSampler.record`."""
        self._reduce()
        columns, self._columns = self._columns, {}
        nothing = {"rows": np.zeros(0, dtype=np.int64), "norms": np.zeros(0, dtype=np.float32)}
        return {name: np.concatenate(parts) for name, parts in columns.items()} or nothing

    def _reduce(self) -> None:
        steps, self._steps, self._held = self._steps, [], 0
        if not steps:
            return
        known = {name: torch.cat([told[name] for told, _, _ in steps]).cpu() for name in steps[0][0]}
        if "outputs" in known:
            known |= predictions(known.pop("outputs"), known.pop("targets"))
        found = {name: (each if name == "rows" else each.float()).numpy() for name, each in known.items()}
        if self.layer is not None:
            residuals, inputs, scales = zip(*(self._lot(calls, scale) for _, calls, scale in steps), strict=True)
            vectors = None if inputs[0] is None else np.concatenate(inputs)
            squares = Gradients(np.concatenate(residuals), vectors).sq_norms()
            with np.errstate(invalid="ignore", over="ignore"):  # 0 times infinity where a weight is 0
                found["norms"] = (np.sqrt(squares) * np.concatenate(scales)).astype(np.float32)
        for name, values in found.items():
            self._columns.setdefault(name, []).append(values)

    def _lot(self, calls: list[list[Tensor]], scale: Tensor) -> tuple[Any, Any, Any]:
        used = [call for call in calls if len(call) == 2]  # the others do not reach the loss
        if not used:
            raise InvalidInputError(f"the loss does not depend on the layer {self.layer}, whose norms are recorded.")
        given, slopes = zip(*used, strict=True)
        return *layer_factors(self.layer, given, slopes, len(scale)), scale.cpu().numpy()


def predictions(outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """How low labels rank, and how sure the model is (:mod:`coresift.selection.seen`), of four or more classes."""
    if outputs.ndim != 2 or targets.ndim != 1 or targets.is_floating_point() or (n_classes := outputs.shape[1]) < _FEW:
        return {}
    outputs, is_known = outputs.float(), (targets >= 0) & (targets < n_classes)  # the loss ignores the others
    own = outputs.gather(1, targets.clamp(0, n_classes - 1).long()[:, None])
    rank, half = (outputs > own).sum(1), n_classes // 2
    low = (rank >= n_classes - half) * ((n_classes - 1) / half)
    sure = outputs.softmax(1).amax(1)
    found = {"low": low.float(), "sure": torch.where(rank == 0, sure, -sure)}
    return {name: torch.where(is_known, values, torch.nan) for name, values in found.items()}
