"""A run is what it was asked to be: other settings are another run, and nothing depends on who drew random numbers."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from coresift import InvalidInputError
from coresift.selection import RBF, AdaptiveCoreset, Selector
from coresift.training import CoresetSampler, train
from coresift.training.feeds import feeds_of, known_targets
from coresift.training.run import described

torch.set_num_threads(1)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(100, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)
CPU = torch.device("cpu")


def network(n_out: int = 2) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, n_out))


def run(out: Path | None = None, strategy: Any = "adaptive-random", data: Any = (X, Y), **options: Any) -> Any:
    settings = {"epochs": 4, "device": "cpu", "select_every": 1, "checkpoint_seconds": 0, "out": out, **options}
    return train(network(settings.pop("n_out", 2)), data, strategy, 30, **settings)


def dark(x, generator):
    return 0 * x


def bright(x):
    return 100 * x


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        ({"augment": dark}, {"augment": False}, "augment"),
        ({}, {"transform": bright}, "transform"),
        ({"test": (X, Y)}, {"test": (X, 1 - Y)}, "test"),
        ({"loss": nn.CrossEntropyLoss()}, {"loss": nn.CrossEntropyLoss(label_smoothing=0.5)}, "loss"),
        (
            {"loss": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]))},
            {"loss": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]))},
            "loss",
        ),
    ],
)
def test_a_folder_does_not_give_the_result_of_another_run(first, second, named, tmp_path: Path) -> None:
    run(tmp_path / "run", **first)
    assert run(tmp_path / "run", **first).n_epochs == 4  # the same: it is only read
    with pytest.raises(InvalidInputError, match=f"another run: {named} was"):
        run(tmp_path / "run", **second)


def test_what_only_changes_the_reading_is_no_other_run(tmp_path: Path) -> None:
    data = TensorDataset(torch.as_tensor(X), torch.as_tensor(Y))
    run(tmp_path / "run", data=data)
    assert run(tmp_path / "run", data=data, workers=1).n_epochs == 4


def test_functions_are_described_by_name_and_arguments() -> None:
    assert described(None) == "none"
    assert described(bright).endswith("test_identity.bright")
    assert described(partial(bright, x=3)) == f"{described(bright)} () {{'x': 3}}"


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    options = {"seed": np.int64(3), "lr": np.float32(0.5), "epochs": np.int32(2)}
    assert run(tmp_path / "run", **options).n_epochs == 2


class Noisy(Dataset):
    """Items that are random, as those with an augmentation of their own."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.as_tensor(X[index]) + 0.5 * torch.randn(3), int(Y[index])


@pytest.mark.parametrize(
    "strategy", [RBF(), AdaptiveCoreset(), AdaptiveCoreset(scores="seen")], ids=["rbf", "fresh", "seen"]
)
def test_the_global_generator_decides_nothing(strategy: Any, tmp_path: Path) -> None:
    """Nor is it moved; and a run that is killed goes on as if it had not been."""
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.random.get_rng_state()
        result = run(strategy=strategy, data=Noisy(), test=Noisy(), select_every=2)
        found.append(([line["loss"] for line in result.history], result.test))
        assert torch.equal(torch.random.get_rng_state(), before)
    assert found[0] == found[1]

    def stop(metrics: dict[str, Any]) -> None:
        if metrics["epoch"] == 3:
            raise KeyboardInterrupt

    options = {"strategy": strategy, "data": Noisy(), "test": Noisy(), "select_every": 2}
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", on_epoch=stop, **options)
    result = run(tmp_path / "run", **options)
    assert ([line["loss"] for line in result.history], result.test) == found[0]


class Looks(Selector):
    """A strategy of a user, that takes the model for granted."""

    name = "looks"

    def _select(self, context, size, rng):
        next(context.model.parameters())
        return RBF()._select(context, size, rng)


def test_a_strategy_that_needs_its_model_is_resumed(tmp_path: Path) -> None:
    def stop(metrics: dict[str, Any]) -> None:
        if metrics["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", Looks(), on_epoch=stop)
    assert run(tmp_path / "run", Looks()).n_epochs == 4


def test_a_sampler_goes_on_with_the_seed_of_its_state() -> None:
    first = CoresetSampler(X, "random", 0.2, select_every=1)
    second = CoresetSampler(X, "random", 0.2, select_every=1, seed=1)
    second.load_state_dict(first.state_dict())
    first.set_epoch(1)
    second.set_epoch(1)
    assert first.coreset == second.coreset


def test_data_sets_of_tensors() -> None:
    sampler = CoresetSampler(TensorDataset(torch.as_tensor(X)), "adaptive-random", 0.1)
    assert len(sampler) == 10
    three = TensorDataset(*(torch.as_tensor(each) for each in (X, Y, Y)))
    with pytest.raises(InvalidInputError, match="has 3 tensors"):
        CoresetSampler(three, "adaptive-random", 0.1)


class Shifted(Dataset):
    """Its targets are not those of its items: a transform comes between them."""

    def __init__(self, target_transform: Any = None) -> None:
        self.targets = np.arange(60) % 3
        self.target_transform = target_transform

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.as_tensor(X[index]), int((self.targets[index] + 1) % 3)


def test_targets_beside_a_data_set_are_those_of_its_items() -> None:
    assert known_targets(Shifted()) is None
    moved = Shifted(lambda target: (target + 1) % 3)
    np.testing.assert_array_equal(known_targets(moved), (np.arange(60) + 1) % 3)
    assert run(strategy="adaptive-coreset", data=Shifted(), n_out=3).n_epochs == 4


def test_an_identity_leaves_images_alone(tmp_path: Path) -> None:
    """Random cuts belong to the augmentation that asks for them, not to any function of the user."""
    from coresift.data import load_dataset
    from tests.tiny_data import write_images

    write_images(tmp_path / "train", ["a", "b"], 3)
    data = load_dataset(str(tmp_path / "train"), image_size=16)
    feed, _, looks = feeds_of(data, None, None, lambda x, generator: x, CPU, 0)
    rows, weights = np.arange(len(feed)), np.ones(len(feed))
    plain, same = (next(iter(feed.batches(rows, weights, 8, 0, each)))[0] for each in (None, looks))
    assert torch.equal(plain, same)


def test_batch_norm_and_one_sample() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with pytest.raises(InvalidInputError, match="last batch of the subset has one sample"):
        train(model, (X, Y), "adaptive-random", 21, epochs=1, batch_size=20, device="cpu")


@pytest.mark.parametrize("kind", ["gradients", "bfloat16"])
def test_tensors_of_all_kinds(kind: str, tmp_path: Path) -> None:
    x = torch.as_tensor(X)
    x = x.clone().requires_grad_() if kind == "gradients" else x.bfloat16()
    assert run(tmp_path / "run", data=(x, torch.as_tensor(Y))).n_epochs == 4


def test_an_infinite_loss_of_validation_is_written(tmp_path: Path) -> None:
    y = X[:, :1].astype(np.float32).copy()
    y[:] = 0
    huge = np.full_like(y, 3e19)
    model = nn.Linear(3, 1)
    rest = np.random.default_rng((0, 21)).permutation(100)[:10]  # the rows that are set aside
    y[rest] = huge[rest]
    options = {"epochs": 2, "device": "cpu", "eval_every": 1, "loss": "mse", "val_fraction": 0.1}
    result = train(model, (X, y), "adaptive-random", 30, out=tmp_path / "r", checkpoint_seconds=0, **options)
    assert result.history[-1]["val_loss"] == np.inf


def test_the_share_of_validation() -> None:
    """7 % of 100 are 7, although 0.07 * 100 is a little more in floats; and some must be left."""
    assert run(val_fraction=0.07, eval_every=1).n_epochs == 4
    assert train(network(), (X, Y), "full", 93, epochs=1, val_fraction=0.07, device="cpu").subset_size == 93
    with pytest.raises(InvalidInputError, match=r"val_fraction = 0\.99 takes all of 5 samples"):
        train(network(), (X[:5], Y[:5]), "adaptive-random", 1, epochs=1, val_fraction=0.99, device="cpu")
