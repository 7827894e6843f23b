"""TensorBoard: the metrics of an epoch are a flat dictionary of numbers, which also suits MLflow."""

from torch.utils.tensorboard import SummaryWriter

from coresift.data import load_dataset
from coresift.training import build_model, train

data = load_dataset("digits")
model = build_model("mlp", n_classes=data.n_classes, input_shape=data.input_shape, width=32)


def log(metrics: dict) -> None:
    for name, value in metrics.items():
        writer.add_scalar(name, value, metrics["epoch"])


with SummaryWriter("runs") as writer:
    result = train(model, data, "auto", epochs=5, lr=0.05, eval_every=1, on_epoch=log)
print(f"accuracy {result.test['accuracy']:.1%}")
