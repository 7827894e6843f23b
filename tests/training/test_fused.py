"""The fused step of an optimizer on a CPU: where it is taken, and that it computes what the plain one does."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from coresift.training import TrainOptions, build_model, train
from coresift.training.run import optimizer_of

torch.set_num_threads(1)
GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.randn(120, 1, 8, 8, generator=GENERATOR)
CLASSES = torch.randint(0, 2, (120,), generator=GENERATOR)
PLAIN = {"sgd": partial(torch.optim.SGD, momentum=0.9), "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


class Late(nn.Module):
    """Two layers; the second joins after two steps, so that its first gradient comes late."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.n_calls = nn.Linear(64, 2), nn.Linear(64, 2), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n_calls += 1
        return self.first(x.flatten(1)) + (self.second(x.flatten(1)) if self.n_calls > 2 else 0)


def mlp() -> nn.Module:
    return build_model("mlp", n_classes=2, input_shape=(1, 8, 8), width=8)


def resnet9() -> nn.Module:  # its filters are in channels last
    return build_model("resnet9", n_classes=2, input_shape=(1, 8, 8), width=2)


def lazy() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(2))


def frozen() -> nn.Module:
    model = mlp()
    next(model.parameters()).requires_grad_(False)
    return model


def strided() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    model[1].weight = nn.Parameter(torch.randn(2, 128, generator=torch.Generator().manual_seed(0))[:, ::2])
    return model


def sparse() -> nn.Module:
    return nn.EmbeddingBag(9, 2, sparse=True)


def steps(make: Callable[[], nn.Module], optimizer: Any, **options: Any) -> torch.Tensor:
    torch.manual_seed(0)
    model = make()
    X = IMAGES.flatten(1).abs().long() if make is sparse else IMAGES
    train(model, (X, CLASSES), "full", 120, epochs=3, optimizer=optimizer, device="cpu", schedule="constant", **options)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("make", [mlp, resnet9, Late, lazy, frozen, strided])
def test_a_named_optimizer_takes_the_steps_of_the_plain_one(name: str, make: Callable[[], nn.Module]) -> None:
    ours = steps(make, name, lr=0.001, weight_decay=0.1)
    torch.testing.assert_close(
        ours, steps(make, partial(PLAIN[name], lr=0.001, weight_decay=0.1)), rtol=1e-4, atol=2e-5
    )
    other = steps(make, partial(PLAIN[name], lr=0.001, weight_decay=0.0))  # power: the wrong decay is seen
    assert (ours - other).abs().max() > 2e-4


def test_sparse_gradients_still_train() -> None:
    ours = steps(sparse, "sgd", lr=0.1, weight_decay=0.0, momentum=0.0)
    torch.testing.assert_close(ours, steps(sparse, partial(torch.optim.SGD, lr=0.1)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PLAIN)
def test_it_is_fused_where_that_is_safe(name: str) -> None:
    def is_fused(make: Callable[[], nn.Module], device: str = "cpu") -> bool:
        options = TrainOptions(optimizer=name, device=torch.device(device))
        return bool(optimizer_of(options, make()).param_groups[0]["fused"])

    assert all(map(is_fused, (mlp, resnet9, Late)))
    assert not any(map(is_fused, (lazy, frozen, strided, sparse)))
    assert not is_fused(mlp, "mps")
