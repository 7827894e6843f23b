"""Tokens with padding: a label for each token, a mask, and steps that add up over two micro-batches."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from coresift.training import CoresetSampler, WeightedDataset, weighted_loss

generator = torch.Generator().manual_seed(0)
tokens = torch.randint(1, 40, (600, 10), generator=generator)
lengths = torch.randint(3, 11, (600,), generator=generator)
tokens[torch.arange(10) >= lengths[:, None]] = 0  # padding
tags = tokens % 3
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(40, 16), nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss(reduction="none")
sampler = CoresetSampler((tokens, tags), "rs2", "50%")
loader = DataLoader(WeightedDataset(TensorDataset(tokens, tags)), batch_size=20, sampler=sampler)
for epoch in range(10):
    sampler.set_epoch(epoch)
    for x, y, w in loader:
        for part in (slice(0, 10), slice(10, 20)):
            losses = criterion(model(x[part]).transpose(1, 2), y[part])  # (b, length)
            weighted_loss(losses, w[part], mask=x[part] != 0, total=w.sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
right = (model(tokens).argmax(2) == tags)[tokens != 0].float().mean()
print(f"accuracy of the tags {float(right):.1%}")
