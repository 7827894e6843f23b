"""Accelerate shards the batches itself: use ``num_replicas=1``, and do not let it fill up batches with repeats."""

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from sklearn.datasets import load_digits
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from coresift.training import CoresetSampler, WeightedDataset, weighted_loss

X, y = (torch.as_tensor(a) for a in load_digits(return_X_y=True))
X = X.float() / 16
accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(even_batches=False))
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
sampler = CoresetSampler((X, y), "rbf", 0.1, select_every=1, num_replicas=1)
loader = DataLoader(WeightedDataset(TensorDataset(X, y)), batch_size=20, sampler=sampler)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(30):
    sampler.set_epoch(epoch)
    for x, target, w in loader:
        loss = weighted_loss(functional.cross_entropy(model(x), target, reduction="none"), w)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
accuracy = (model(X.to(accelerator.device)).argmax(1).cpu() == y).float().mean().item()
print(f"accuracy on all digits: {accuracy:.1%}")
