"""Text: word indices stay integers, because the model has an embedding; your own optimizer, early stopping."""

import torch
from torch import nn

from coresift.training import train

generator = torch.Generator().manual_seed(0)
words = torch.randint(1, 200, (2000, 12), generator=generator)  # number 0 is padding
words[:, 8:] *= torch.rand(2000, 4, generator=generator) < 0.5
y = ((words > 0) & (words < 50)).sum(1).clamp(1, 4) - 1  # how many of the words are among the first fifty
torch.manual_seed(0)
model = nn.Sequential(nn.EmbeddingBag(200, 16, mode="sum", padding_idx=0), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
result = train(
    model, (words, y), "infobatch", optimizer=optimizer, epochs=25, batch_size=50, eval_every=1, early_stopping=6
)
print(f"{result.n_epochs} epochs, validation accuracy {result.history[-1]['val_accuracy']:.1%}")
