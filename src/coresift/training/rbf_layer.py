r"""Networks of Gaussians in PyTorch: a layer for models, and a solver for the estimators.

The layer computes what :class:`coresift.core.network.Network` does, :math:`b + \sum_i a_i e^{-|x-c_i|^2/h^2}`, and its
gradients come from autograd.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from ..core.network import Network
from ..core.points import Points


class RBFLayer(nn.Module):
    r""":math:`x \mapsto b + \sum_i a_i e^{-|x-c_i|^2/h^2}`, from (..., d) to (..., K).

    Parameters
    ----------
    in_features, n_centers, out_features : int
        d, number of neurons, K.
    bandwidth : float, default 1.0
        h to begin with. Its logarithm is the parameter, so that it stays positive.
    bias : bool, default True
        Whether there is a b.
    learn_bandwidth : bool, default True
        Whether h is a parameter or a constant.
    device, dtype
        As for every module.

    Centres begin as standard normal, outputs as normal of deviation ``1/sqrt(n_centers)``; ``place`` puts the centres
    at rows of data, which is the better beginning.
    """

    def __init__(
        self,
        in_features: int,
        n_centers: int,
        out_features: int,
        *,
        bandwidth: float = 1.0,
        bias: bool = True,
        learn_bandwidth: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        kind = {"device": device, "dtype": dtype}
        self.centers = nn.Parameter(torch.randn(n_centers, in_features, **kind))
        self.alphas = nn.Parameter(torch.randn(n_centers, out_features, **kind) / n_centers**0.5)
        self.bias = nn.Parameter(torch.zeros(out_features, **kind)) if bias else None
        log_bandwidth = torch.tensor(float(np.log(bandwidth)), **kind)
        if learn_bandwidth:
            self.log_bandwidth = nn.Parameter(log_bandwidth)
        else:
            self.register_buffer("log_bandwidth", log_bandwidth)

    def hidden(self, x: Tensor) -> Tensor:
        """(..., L) values of the neurons."""
        # |x - c|^2 multiplied out: one matrix product, and no (b, L, d) of differences
        squares = (x**2).sum(-1, keepdim=True) - 2.0 * x @ self.centers.T + (self.centers**2).sum(-1)
        return torch.exp(-squares.clamp_min(0.0) * torch.exp(-2.0 * self.log_bandwidth))

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) to (..., K)."""
        outputs = self.hidden(x) @ self.alphas  # (..., K)
        return outputs if self.bias is None else outputs + self.bias

    @torch.no_grad()
    def place(self, rows: Tensor) -> Self:
        """Put the centres at ``rows`` (L, d)."""
        self.centers.copy_(rows)
        return self

    @classmethod
    def from_network(cls, network: Network, **kind: Any) -> Self:
        """The layer of a NumPy network, in float64 unless ``dtype`` says otherwise."""
        n_centers, in_features = network.centers.shape
        kind.setdefault("dtype", torch.float64)
        layer = cls(in_features, n_centers, network.alphas.shape[1], **kind)
        with torch.no_grad():
            layer.centers.copy_(torch.from_numpy(network.centers))
            layer.alphas.copy_(torch.from_numpy(network.alphas))
            layer.log_bandwidth.fill_(network.log_bandwidth)
            if layer.bias is not None:
                layer.bias.copy_(torch.from_numpy(network.intercept))
        return layer

    @classmethod
    def from_estimator(cls, model: Any, **kind: Any) -> Self:
        """The layer of a fitted ``RBFNetworkRegressor`` or ``RBFNetworkClassifier``."""
        log_bandwidth = float(np.log(model.bandwidth_))
        return cls.from_network(
            Network(model.centers_, model.alphas_, model.intercept_, log_bandwidth), **kind
        )

    def to_network(self) -> Network:
        """The NumPy network of the layer as it is now."""
        centers, alphas = (p.detach().cpu().double().numpy().copy() for p in (self.centers, self.alphas))
        intercept = np.zeros(alphas.shape[1])
        if self.bias is not None:
            intercept = self.bias.detach().cpu().double().numpy().copy()
        return Network(centers, alphas, intercept, float(self.log_bandwidth.detach()))


def weighted_loss(layer: nn.Module, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """``sum w |y - layer(x)|^2`` for x (b, d), y (b, K), weights (b,)."""
    return (weights[:, None] * (layer(x) - y) ** 2).sum()


def torch_solver(
    network: Network, points: Points, weights: np.ndarray, targets: np.ndarray, ridge: float, max_iter: int
) -> Network:
    """Learn all parameters by PyTorch's L-BFGS: ``RBFNetworkRegressor(centers="learned", solver=torch_solver)``.

    The objective is that of the estimator, the weighted loss plus ``ridge |a|^2``, in float64. An intercept that is
    zero stays zero.
    """
    layer = RBFLayer.from_network(network, bias=bool(network.intercept.any()))
    x = torch.from_numpy(points.take(np.arange(points.n)))
    y, w = torch.from_numpy(targets), torch.from_numpy(weights)
    optimizer = torch.optim.LBFGS(
        layer.parameters(), max_iter=max_iter, history_size=20, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        optimizer.zero_grad()
        loss = weighted_loss(layer, x, y, w) + ridge * (layer.alphas**2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return layer.to_network()
