"""Networks of Gaussians in PyTorch: a layer for models, and a solver for the estimators."""

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from coresift.core.points import Points
from paper.networks.sums import Network


class RBFLayer(nn.Module):
    r"""The map :math:`x \mapsto b + \sum_i a_i e^{-|x-c_i|^2/h^2}` from (..., d) to (..., K).

    Centres start standard normal, or at rows of data with :meth:`place`, which is better.

    Parameters
    ----------
    in_features, n_centers, out_features : int
        d, number of neurons, K.
    bandwidth : float, default 1.0
        Initial h. The parameter is its logarithm, so h stays positive.
    bias, learn_bandwidth : bool, default True
        Whether to add b; whether h is a parameter or a constant.
    device, dtype : as for every module
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

    def forward(self, x: Tensor) -> Tensor:
        # |x - c|^2 multiplied out: one matrix product, and no (b, L, d) array of differences
        squares = (x**2).sum(-1, keepdim=True) - 2.0 * x @ self.centers.T + (self.centers**2).sum(-1)
        neurons = torch.exp(-squares.clamp_min(0.0) * torch.exp(-2.0 * self.log_bandwidth))  # (..., L)
        outputs = neurons @ self.alphas  # (..., K)
        return outputs if self.bias is None else outputs + self.bias

    @torch.no_grad()
    def place(self, rows: Tensor) -> Self:
        """Put the centres at ``rows`` (L, d)."""
        self.centers.copy_(rows)
        return self

    @classmethod
    def from_network(cls, network: Network, **kind: Any) -> Self:
        """Make a layer from a NumPy network, in float64 unless ``dtype`` is given."""
        n_centers, in_features = network.centers.shape
        kind.setdefault("dtype", torch.float64)
        layer = cls(in_features, n_centers, network.alphas.shape[1], **kind)
        values = {**vars(network), "bias": network.intercept}
        state = {name: torch.as_tensor(values[name], dtype=torch.float64) for name in layer.state_dict()}
        layer.load_state_dict(state)
        return layer

    @classmethod
    def from_estimator(cls, model: Any, **kind: Any) -> Self:
        """Make a layer from a fitted ``RBFNetworkRegressor`` or ``RBFNetworkClassifier``."""
        known = model.centers_, model.alphas_, model.intercept_, float(np.log(model.bandwidth_))
        return cls.from_network(Network(*known), **kind)

    def to_network(self) -> Network:
        """Return a copy as a NumPy network."""
        values = {name: value.cpu().double().numpy().copy() for name, value in self.state_dict().items()}
        intercept = values.get("bias", np.zeros(self.alphas.shape[1]))
        return Network(values["centers"], values["alphas"], intercept, float(values["log_bandwidth"]))


def torch_solver(
    network: Network, points: Points, weights: np.ndarray, targets: np.ndarray, ridge: float, max_iter: int
) -> Network:
    """Learn all parameters with PyTorch's L-BFGS: ``RBFNetworkRegressor(centers="learned", solver=torch_solver)``.

    It minimises ``sum w |y - layer(x)|^2 + ridge |a|^2``, in float64. An intercept of zero stays zero.
    """
    layer = RBFLayer.from_network(network, bias=bool(network.intercept.any()))
    x = torch.from_numpy(points.take(np.arange(points.n)))
    y, w = torch.from_numpy(targets), torch.from_numpy(weights)
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=max_iter, history_size=20, line_search_fn="strong_wolfe")

    def closure() -> float:
        optimizer.zero_grad()
        loss = (w[:, None] * (layer(x) - y) ** 2).sum() + ridge * (layer.alphas**2).sum()
        loss.backward()
        return float(loss.detach())

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return layer.to_network()
