"""Several labels per sample: binary cross entropy, and a subset redrawn in every epoch."""

import torch
from torch import nn

from coresift.training import train

generator = torch.Generator().manual_seed(0)
X = torch.randn(1000, 10, generator=generator)
Y = (X @ torch.randn(10, 5, generator=generator) > 0).float()  # (n, 5)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 5))
train(model, (X, Y), "rs2", "20%", loss="bce", optimizer="adam", lr=0.01, epochs=30)
print(f"labels right {float(((model(X) > 0) == (Y > 0)).float().mean()):.1%}")
