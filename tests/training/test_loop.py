"""The loop: what it computes (against one written by hand), measures, leaves alone and refuses."""

import dataclasses
import inspect
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn
from torch.nn import functional

from coresift import InvalidInputError, InvalidTypeError
from coresift._progress import Progress
from coresift.data import load_dataset
from coresift.selection import AdaptiveRandom, ByScore, Glister, KCenter, PerBatch, PerClass, Random, Scores, Warm
from coresift.training import CoresetSampler, TrainOptions, build_model, train
from coresift.training.run import load, resolve

torch.set_num_threads(1)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 6)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] ** 2 > 0.7).astype(np.int64)


def network(n_out: int = 2, dropout: float = 0.0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, n_out))


def weights_of(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_it_computes_what_a_loop_by_hand_computes() -> None:
    ours = network()
    result = train(ours, (X, Y), "rbf", 0.2, epochs=6, batch_size=7, select_every=2, lr=0.05, seed=4)

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
    sampler = CoresetSampler((X, Y), "rbf", 0.2, select_every=2, seed=4)
    rates = []
    for epoch in range(6):
        sampler.set_epoch(epoch)
        rates.append(optimizer.param_groups[0]["lr"])
        pairs = [(int(index), index.weight) for index in sampler]  # type: ignore[attr-defined]
        for start in range(0, len(pairs), 7):
            rows, w = zip(*pairs[start : start + 7], strict=True)
            losses = functional.cross_entropy(
                model(torch.tensor(X[list(rows)])), torch.tensor(Y[list(rows)]), reduction="none"
            )
            weights = torch.tensor(w, dtype=torch.float32)
            optimizer.zero_grad()
            ((losses * weights).sum() / weights.sum()).backward()
            optimizer.step()
        scheduler.step()
    torch.testing.assert_close(weights_of(ours), weights_of(model), rtol=1e-4, atol=1e-6)
    assert [line["lr"] for line in result.history] == pytest.approx(rates)
    assert [line["selected"] for line in result.history] == [True, False] * 3


def test_it_learns_and_measures(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    result = train(
        network(),
        (X, Y),
        AdaptiveRandom(),
        "50%",
        test=(X, Y),
        epochs=30,
        select_every=1,
        lr=0.1,
        eval_every=10,
        on_epoch=seen.append,
        out=tmp_path / "run",
    )
    assert result.test is not None
    assert result.test["accuracy"] > 0.9 > max(Y.mean(), 1 - Y.mean())
    assert seen == result.history
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines == seen
    assert [line["epoch"] for line in lines if "val_accuracy" in line] == [10, 20, 30]
    assert lines[0]["subset"] == 90  # of the 180 that are not for validation
    assert lines[-1]["loss"] < lines[0]["loss"]
    seconds = result.seconds
    assert min(seconds.selection, seconds.training, seconds.evaluation) > 0
    assert seconds.total == pytest.approx(seconds.selection + seconds.training + seconds.evaluation)
    assert {path.name for path in (tmp_path / "run").iterdir()} - {".lock"} == {
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "result.json",
    }


def test_the_test_set_is_looked_at_once_and_the_validation_set_as_often_as_asked() -> None:
    class Watched(torch.utils.data.Dataset[Any]):
        def __init__(self) -> None:
            self.reads = 0

        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
            self.reads += 1
            return X[index], int(Y[index])

    watched = Watched()
    during: list[int] = []
    train(network(), (X, Y), "random", 20, test=watched, epochs=3, on_epoch=lambda _: during.append(watched.reads))
    assert during == [0, 0, 0]
    assert watched.reads == 10


def test_without_evaluation_no_sample_is_set_aside() -> None:
    assert train(network(), (X, Y), "full", 1.0, epochs=1).subset_size == 200
    assert train(network(), (X, Y), "full", 1.0, epochs=1, eval_every=1).subset_size == 180
    assert train(network(), (X, Y), PerBatch(Glister()), 40, epochs=1).history[0]["subset"] == 40
    with pytest.raises(InvalidInputError, match="val_fraction = 0, but this strategy needs"):
        train(network(), (X, Y), PerBatch(Glister()), 40, epochs=1, val_fraction=0.0)


def test_a_warm_start_runs_its_epochs_and_the_rate_begins_at_its_full_height() -> None:
    result = train(network(), (X, Y), Warm(Random()), 0.1, epochs=20, lr=0.04)
    assert [line["subset"] for line in result.history] == [200] * 1 + [20] * 10
    assert result.n_epochs == 11  # ceil(0.5 * 20 * 0.1) + 10
    assert [line["lr"] for line in result.history] == pytest.approx(
        [0.02 * (1 + math.cos(math.pi * t / 11)) for t in range(11)]
    )


def test_regression_in_one_dimension_does_not_broadcast() -> None:
    targets = 3 * X[:, 0] - X[:, 1]
    result = train(network(1), (X, targets), "rbf", 0.5, test=(X, targets), loss="mse", epochs=40, lr=0.02)
    assert result.test is not None
    assert result.test.keys() == {"loss", "rmse"}
    assert result.test["rmse"] == pytest.approx(math.sqrt(result.test["loss"]), rel=1e-5)
    assert result.test["rmse"] < 0.3 * targets.std()
    assert "accuracy" not in result.history[0]


def test_losses_of_the_user_are_told_apart_by_their_targets() -> None:
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1)
    own = lambda outputs, targets: functional.cross_entropy(outputs, targets, reduction="none") ** 2  # noqa: E731
    for loss in (smooth, own):
        result = train(network(), (X, Y), "full", 1.0, test=(X, Y), loss=loss, epochs=2)
        assert result.test is not None
        assert result.test.keys() == {"loss", "accuracy", "macro_f1"}
        assert "accuracy" in result.history[0]
    counts = Y.astype(np.int32)  # whole numbers may be targets of a regression
    assert "rmse" in (train(network(1), (X, counts), "full", 1.0, test=(X, counts), loss="mse", epochs=1).test or {})
    both = np.stack([Y, 1 - Y], axis=1).astype(np.float32)
    result = train(network(), (X, both), "rbf", 0.5, test=(X, both), loss="bce", epochs=2)
    assert math.isfinite(result.history[-1]["loss"])


def test_the_seed_is_everything_and_global_generators_are_left_alone() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    runs = []
    for seed in (0, 0, 1):
        model = network(dropout=0.5)
        train(model, (X, Y), "adaptive-random", 0.3, epochs=4, select_every=2, seed=seed)
        runs.append(weights_of(model))
        torch.rand(3)
        torch.manual_seed(7)
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_set_that_is_read_item_by_item_trains_as_the_same_arrays_do(workers: int) -> None:
    class Items(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(X)

        def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
            return X[index], int(Y[index])

    arrays, items = network(), network()
    train(arrays, (X, Y), "adaptive-random", 0.2, epochs=2, select_every=1)
    train(items, Items(), "adaptive-random", 0.2, epochs=2, select_every=1, workers=workers)
    assert torch.equal(weights_of(arrays), weights_of(items))


@pytest.mark.slow
def test_digits_by_name_reach_a_good_accuracy_from_a_tenth() -> None:
    data = load_dataset("digits")
    model = build_model("mlp", n_classes=10, input_shape=data.input_shape, width=64)
    result = train(model, data, "adaptive-random", "10%", epochs=30, select_every=1, lr=0.03)
    assert result.test is not None
    assert result.test["accuracy"] > 0.9  # a tenth by chance


def test_labels_and_bytes_as_users_have_them() -> None:
    images = RNG.integers(0, 256, (30, 1, 4, 4), dtype=np.uint8)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    shown: list[torch.Tensor] = []
    model.register_forward_pre_hook(lambda module, inputs: shown.append(inputs[0]))
    train(model, (images, np.arange(30, dtype=np.uint8) % 3), "full", 1.0, epochs=1, batch_size=30)
    assert shown[0].dtype == torch.float32
    assert float(shown[0].max()) <= 1.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epochs": 0}, "epochs = 0"),
        ({"batch_size": 0}, "batch_size = 0"),
        ({"lr": 0.0}, "lr = 0.0"),
        ({"momentum": 1.0}, "momentum = 1.0"),
        ({"weight_decay": -1.0}, "weight_decay = -1.0"),
        ({"schedule": "step"}, "schedule = 'step'"),
        ({"val_fraction": 1.0}, "val_fraction = 1.0"),
        ({"budget": "x%"}, "budget"),
        ({"budget": 300}, "between 1 and the number of samples, 200"),
        ({"strategy": "nosuch"}, "unknown"),
        ({"loss": "nosuch"}, "loss = 'nosuch'"),
        ({"device": "nosuch"}, "device = 'nosuch' cannot be used"),
        ({"device": "cuda:99"}, "cannot be used"),
        ({"lr": 1e20}, "training diverged"),
    ],
)
def test_bad_input_is_named(changes: dict[str, Any], words: str) -> None:
    settings: dict[str, Any] = {"strategy": "random", "budget": 0.2, "epochs": 3, **changes}
    with pytest.raises(InvalidInputError, match=words):
        train(network(), (X, Y), **settings)


def test_bad_data_are_named() -> None:
    with pytest.raises(InvalidTypeError, match="no targets"):
        train(network(), X, "random", 0.2)
    with pytest.raises(InvalidInputError, match="y has length 3, but X has 200 rows"):
        train(network(), (X, Y[:3]), "random", 0.2)
    with pytest.raises(InvalidTypeError, match="numbers"):
        train(network(), (X, np.array(["a"] * 200)), "random", 0.2)
    with pytest.raises(InvalidTypeError, match="pairs"):
        train(network(), [torch.zeros(6)] * 20, "random", 0.2)
    with pytest.raises(InvalidTypeError, match=r"sparse matrix of shape \(200, 6\).* X.toarray\(\), 4.8e-06 GB"):
        train(network(), (sparse.csr_matrix(X), Y), "random", 0.2)


@pytest.mark.parametrize("kind", ["name", "function", "optimizer", "scores", "no parameters"])
def test_a_frozen_model_is_refused(kind: str) -> None:
    model = nn.Identity() if kind == "no parameters" else network().requires_grad_(False)
    made: dict[str, Any] = {"function": torch.optim.Adam}
    if kind == "optimizer":
        made[kind] = torch.optim.Adam(model.parameters())
    before = weights_of(network())
    with pytest.raises(InvalidInputError, match="requires_grad = True; at least 1 is needed"):
        train(model, (X, Y), "el2n" if kind == "scores" else "random", 0.2, optimizer=made.get(kind, "sgd"), epochs=1)
    assert kind == "no parameters" or torch.equal(weights_of(model), before)


def test_a_column_of_labels_trains_as_labels_do() -> None:
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    pairs = [(row, label[None].float()) for row, label in zip(x, y, strict=True)]
    found = []
    for data in ((X, Y), (X, Y[:, None]), (X, Y[:, None].astype(np.float32)), pairs):
        result = train(network(), data, "random", 0.2, test=data, epochs=2, eval_every=1, seed=3)
        found.append((result.test, [(line["loss"], line["accuracy"]) for line in result.history]))
    assert found[0] == found[1] == found[2] == found[3]


FIELD = (
    *("EL2N", "GRAND", "FORGETTING", "MARGIN", "ENTROPY", "LEAST-CONFIDENCE", "AUM", "CCS", "MODERATE"),
    *("K-CENTER", "HERDING", "FACILITY-LOCATION", "GRAPH-CUT", "STRATIFIED", "RS2", "INFOBATCH"),
)


@pytest.mark.parametrize("name", FIELD)
def test_every_method_of_the_field_trains(name: str) -> None:
    result = train(network(), (X, Y), name.lower(), 0.2, epochs=2, select_every=1, seed=3)
    assert result.subset_size == 40
    assert all(np.isfinite(line["loss"]) for line in result.history)


@pytest.mark.parametrize("wrap", [lambda strategy: strategy, PerClass, Warm])
def test_rows_that_must_stay_are_those_of_the_data_that_were_given(wrap: Any) -> None:
    must = [199, 10, 111]
    for seed in range(5):
        strategy = wrap(KCenter(include=must))
        model = network()
        result = train(model, (X, Y), strategy, 0.2, epochs=2, val_fraction=0.4, eval_every=1, seed=seed)
        assert result.coreset is not None
        options = TrainOptions(strategy=strategy, budget=0.2, seed=seed, val_fraction=0.4)
        feeds, _ = load(model, (X, Y), None, None, None, resolve(options, (X, Y)))
        assert set(must) <= set(result.coreset.indices.tolist()) <= set(feeds.numbers.tolist())
        assert result.coreset.n_samples == len(X)
        np.testing.assert_array_equal(feeds.train.X.numpy(), X[feeds.numbers])
    with pytest.raises(InvalidInputError, match="include holds 200; it must hold row numbers, integers from 0 to 199"):
        train(network(), (X, Y), wrap(KCenter(include=[200])), 0.2, epochs=2, val_fraction=0.1)


@pytest.mark.parametrize("given", ["scores", "features"])
def test_scores_and_features_of_all_rows_go_with_rows_held_out(given: str) -> None:
    number = np.arange(len(X), dtype=np.float32)
    strategy = ByScore(scores=Scores({"el2n": number})) if given == "scores" else KCenter(features=number[:, None])
    result = train(network(), (X, Y), strategy, 4, epochs=1, val_fraction=0.4)
    assert result.coreset is not None
    model, options = network(), TrainOptions(strategy=strategy, budget=4, val_fraction=0.4)
    feeds, _ = load(model, (X, Y), None, None, None, resolve(options, (X, Y)))
    kept = feeds.numbers  # those in the training part
    wanted = kept[-4:] if given == "scores" else kept[[0, -1]]  # the largest scores; both ends of a line
    assert set(wanted.tolist()) <= set(result.coreset.indices.tolist()) <= set(kept.tolist())
    short = ByScore(scores=Scores({"el2n": number[:-1]})) if given == "scores" else KCenter(features=number[:-1, None])
    with pytest.raises(InvalidInputError, match=f"{given} has length 199, but X has 120 rows"):
        train(network(), (X, Y), short, 4, epochs=1, val_fraction=0.4)


class Ragged(torch.utils.data.Dataset[Any]):
    """Samples of one to six numbers, which the default collate function refuses."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, row: int) -> tuple[np.ndarray, int]:
        return X[row, : row % 6 + 1], int(Y[row])


def padded(items: Any) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [np.pad(x, (0, 6 - len(x))) for x, _ in items]
    return torch.tensor(np.array(rows)), torch.tensor([y for _, y in items])


@pytest.mark.parametrize("strategy", ["gradmatch", "glister", "el2n", "adaptive-coreset"])
def test_a_strategy_reads_samples_as_the_loader_collates_them(strategy: str) -> None:
    loader = torch.utils.data.DataLoader(Ragged(), collate_fn=padded)
    held, _ = padded([Ragged()[row] for row in range(len(X))])
    options: dict[str, Any] = {"epochs": 2, "select_every": 1, "labels": Y, "seed": 3}
    found = train(network(), loader, strategy, 0.2, **options)
    wanted = train(network(), (held, Y), strategy, 0.2, **options)
    assert found.coreset is not None
    assert wanted.coreset is not None
    np.testing.assert_array_equal(found.coreset.indices, wanted.coreset.indices)


def test_the_task_of_the_data_chooses_the_loss() -> None:
    numbers = load_dataset((X, X[:, :1]), task="regression")
    found = train(network(1), numbers, "random", 0.5, epochs=2, select_every=1, seed=3)
    said = train(network(1), numbers, "random", 0.5, epochs=2, select_every=1, seed=3, loss="mse")
    assert found.test == said.test
    assert found.test is not None
    assert "rmse" in found.test
    classes = train(network(), load_dataset((X, Y)), "random", 0.5, epochs=1)
    assert classes.test is not None
    assert "accuracy" in classes.test
    with pytest.raises(InvalidInputError, match="one output"):
        train(network(1), (X, Y), "random", 0.5, epochs=1)


def test_a_file_is_no_folder_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    for out in (tmp_path / "run", tmp_path / "run" / "below"):
        with pytest.raises(InvalidInputError, match="out must be a folder"):
            train(network(), (X, Y), "random", 0.5, epochs=1, out=out)
    assert (tmp_path / "run").read_text() == "mine"


def test_a_run_says_what_its_inputs_and_outputs_mean(tmp_path: Path) -> None:
    data = load_dataset((X, np.array(["no", "yes"])[Y]))
    train(network(), data, "random", 0.5, epochs=1, out=tmp_path / "run")
    told = json.loads((tmp_path / "run" / "data.json").read_text())
    assert told == json.loads(json.dumps(data.described()))
    assert told["class_names"] == ["no", "yes"]
    train(network(), (X, Y), "random", 0.5, epochs=1, out=tmp_path / "plain")
    assert not (tmp_path / "plain" / "data.json").exists()  # nothing is known of arrays


def test_the_signature_and_the_options_agree() -> None:
    """One list of options: the function, the command and the file have the same names and defaults."""
    parameters = inspect.signature(train).parameters
    for field in dataclasses.fields(TrainOptions):
        assert parameters[field.name].default == field.default, field.name
        assert field.metadata["help"], field.name
    others = {"model", "data", "test", "labels", "scheduler"}
    others |= {"transform", "out", "on_epoch", "progress", "about", "clock"}
    assert parameters.keys() - {field.name for field in dataclasses.fields(TrainOptions)} == others


def test_progress_goes_to_the_display_that_is_given() -> None:
    moves: list[float] = []

    class Watched(Progress):
        def move(self, done: float, note: str | None = None) -> None:
            moves.append(done)
            assert (self.label, self.total, self.unit) == ("training", 3, "epochs")
            assert (note is not None) == (done == int(done) and moves[-2:-1] == [done])

    train(network(), (X, Y), "full", 1.0, epochs=3, batch_size=100, progress=Watched)
    assert moves == [0.5, 1.0, 1.0, 1.5, 2.0, 2.0, 2.5, 3.0, 3.0]
