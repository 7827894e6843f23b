"""Your own PyTorch loop, on a tenth of the digits, redrawn every epoch: ``python examples/own_loop.py``."""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from coresift.training import CoresetSampler, WeightedDataset, weighted_loss

X, y = (torch.as_tensor(a) for a in load_digits(return_X_y=True))
X = X.float() / 16
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
criterion = torch.nn.CrossEntropyLoss(reduction="none")

# From here on, twelve lines: the sampler, the data set and the weighted loss are what is new in them.
sampler = CoresetSampler((X, y), "rbf", 0.1, select_every=1)
loader = DataLoader(WeightedDataset(TensorDataset(X, y)), batch_size=20, sampler=sampler)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(30):
    sampler.set_epoch(epoch)
    for x, target, w in loader:
        loss = weighted_loss(criterion(model(x), target), w)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
accuracy = (model(X).argmax(1) == y).float().mean().item()
print(f"accuracy on all digits, after training on {len(sampler)} of them at a time: {accuracy:.1%}")
