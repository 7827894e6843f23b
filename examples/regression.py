"""Regression: a PyTorch scheduler, clipped gradients, and draws by the gradients that training saw."""

import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

from coresift.training import train

generator = torch.Generator().manual_seed(0)
X = torch.randn(1200, 4, generator=generator)
y = torch.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
result = train(
    model,
    (X[:1000], y[:1000]),
    "adaptive-coreset-seen",
    "30%",
    test=(X[1000:], y[1000:]),
    loss="mse",
    epochs=40,
    select_every=1,
    optimizer="adam",
    lr=0.01,
    scheduler=lambda optimizer: OneCycleLR(optimizer, max_lr=0.02, total_steps=40),
    clip=5.0,
)
explained = 1 - (result.test["rmse"] / float(y[1000:].std())) ** 2
print(f"explained variance {explained:.1%}")
