"""The Trainer of transformers: one line around a loader, one to attach it. The model starts from random weights."""

import tempfile

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from coresift.training import CoresetCallback, sift


class Sentences(Dataset):
    def __init__(self) -> None:
        self.words = torch.randint(1, 50, (600, 8), generator=torch.Generator().manual_seed(0))
        self.labels = self.words[:, 0] % 4

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict:
        return {"input_ids": self.words[index], "labels": self.labels[index]}


torch.manual_seed(0)
sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
model = BertForSequenceClassification(BertConfig(vocab_size=50, num_labels=4, max_position_embeddings=16, **sizes))
data = Sentences()
loader = sift(DataLoader(data, batch_size=20), model, n_epochs=8)
with tempfile.TemporaryDirectory() as folder:
    how = {"num_train_epochs": 8, "learning_rate": 3e-3, "save_strategy": "no", "report_to": [], "disable_tqdm": True}
    trainer = Trainer(model, TrainingArguments(folder, use_cpu=True, **how), train_dataset=data)
    CoresetCallback(loader).attach(trainer)
    trainer.train()
with torch.no_grad():
    right = (model.eval()(input_ids=data.words).logits.argmax(1) == data.labels).float().mean()
print(loader.coreset_sampler.strategy.regime(loader.coreset_sampler.context))
print(f"accuracy {float(right):.1%}")
