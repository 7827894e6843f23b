"""Images: a convolutional network with Adam, on all digits or on what ``auto`` chooses."""

import torch
from sklearn.datasets import load_digits
from torch import nn

from coresift.training import train

torch.manual_seed(0)
images, y = load_digits(return_X_y=True)
X = torch.as_tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 10))
settings = {"epochs": 6, "batch_size": 32, "optimizer": "adam", "lr": 0.003}
result = train(model, (X[:1200], y[:1200]), "auto", test=(X[1200:], y[1200:]), **settings)
print(result.regime)
print(f"accuracy {result.test['accuracy']:.1%}")
