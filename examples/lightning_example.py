"""Lightning calls ``set_epoch`` itself. Under DDP leave sharding to the sampler: ``use_distributed_sampler=False``."""

import lightning
import torch
from sklearn.datasets import load_digits
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from coresift.training import CoresetSampler, WeightedDataset, weighted_loss

N_EPOCHS = 30


class Digits(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        x, y, w = batch
        return weighted_loss(functional.cross_entropy(self.net(x), y, reduction="none"), w)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


X, y = (torch.as_tensor(a) for a in load_digits(return_X_y=True))
X = X.float() / 16
sampler = CoresetSampler((X, y), "rbf", 0.1, select_every=1)
loader = DataLoader(WeightedDataset(TensorDataset(X, y)), batch_size=20, sampler=sampler)
model = Digits()
trainer = lightning.Trainer(
    max_epochs=N_EPOCHS,
    accelerator="cpu",
    use_distributed_sampler=False,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, loader)
accuracy = (model.net(X).argmax(1) == y).float().mean().item()
print(f"epochs seen by the sampler: {sampler.epoch + 1}")
print(f"accuracy on all digits: {accuracy:.1%}")
