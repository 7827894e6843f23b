"""A drop-in for every loop: PyTorch's objects in ``train``, batches of any kind, and one line around a loader."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, TensorDataset

from coresift import CoresiftError
from coresift.selection import AdaptiveCoreset, Craig, InfoBatch, SelectionContext, Trim, Warm
from coresift.training import CoresetCallback, CoresetSampler, NormRecorder, WeightedDataset, sift, train, weighted_loss

torch.set_num_threads(1)
G = torch.Generator().manual_seed(0)
X = torch.randn(90, 6, generator=G)
Y = torch.randint(0, 4, (90,), generator=G)
PLAIN: dict[str, Any] = {"epochs": 3, "batch_size": 16, "device": "cpu"}


def network(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


# PyTorch's objects.


@pytest.mark.parametrize("is_object", [True, False])
def test_optimizer_and_scheduler_do_what_a_loop_by_hand_does(is_object: bool) -> None:
    ours, model = network(), network()
    make = lambda parameters: torch.optim.AdamW(parameters, lr=0.02)  # noqa: E731
    plan = lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)  # noqa: E731
    given = make(ours.parameters()) if is_object else make
    result = train(
        ours, (X, Y), "full", optimizer=given, scheduler=plan(given) if is_object else plan, clip=0.3, **PLAIN
    )

    optimizer = make(model.parameters())
    scheduler = plan(optimizer)
    sampler = CoresetSampler((X, Y), "full")
    for epoch in range(3):
        sampler.set_epoch(epoch)
        rows = torch.tensor([int(row) for row in sampler])
        for part in rows.split(16):
            optimizer.zero_grad()
            functional.cross_entropy(model(X[part]), Y[part]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            optimizer.step()
        scheduler.step()
    torch.testing.assert_close(flat(ours), flat(model))
    assert [line["lr"] for line in result.history] == pytest.approx([0.02, 0.01, 0.005])


def test_accumulated_batches_equal_a_large_one() -> None:
    """Weights differ, and the last step is short: only the right denominator gives the same result."""
    small, large = network(), network()
    more: dict[str, Any] = {"epochs": 3, "device": "cpu", "select_every": 1}
    train(small, (X, Y), "rbf", 50, batch_size=5, accumulate=4, **more)
    train(large, (X, Y), "rbf", 50, batch_size=20, **more)
    torch.testing.assert_close(flat(small), flat(large))
    other = network()
    train(other, (X, Y), "rbf", 50, batch_size=5, **more)
    assert not torch.allclose(flat(other), flat(large), atol=1e-4)


def test_mixed_precision_trains_and_keeps_the_weights_in_single() -> None:
    model = network()
    dtypes = []
    model[0].register_forward_hook(lambda module, given, output: dtypes.append(output.dtype))
    result = train(model, (X, Y), "auto", amp="bf16", **PLAIN)
    assert torch.bfloat16 in dtypes
    assert model[0].weight.dtype == torch.float32
    assert result.history[-1]["loss"] < result.history[0]["loss"]
    with pytest.raises(CoresiftError, match="fp16"):
        train(network(), (X, Y), amp="fp16", **PLAIN)


def test_early_stopping_by_patience_and_by_a_function(tmp_path: Path) -> None:
    more = {**PLAIN, "epochs": 40, "eval_every": 1, "lr": 0.5}
    result = train(network(), (X, Y), "full", early_stopping=2, out=tmp_path / "run", **more)
    losses = [line["val_loss"] for line in result.history]
    assert result.n_epochs == len(losses) < 40
    assert np.argmin(losses) == len(losses) - 3
    assert train(network(), (X, Y), "full", early_stopping=2, out=tmp_path / "run", **more).n_epochs == len(losses)
    assert train(network(), (X, Y), "full", early_stopping=lambda history: len(history) == 2, **PLAIN).n_epochs == 2
    with pytest.raises(CoresiftError, match="early_stopping needs eval_every"):
        train(network(), (X, Y), "full", early_stopping=2, **PLAIN)


@pytest.mark.parametrize("more", [{"optimizer": "x"}, {"optimizer": 3}, {"accumulate": 0}, {"clip": 0.0}, {"amp": "x"}])
def test_settings_that_cannot_be(more: dict[str, Any]) -> None:
    with pytest.raises(CoresiftError, match=next(iter(more))):
        train(network(), (X, Y), **PLAIN, **more)


def test_steps_by_number_are_no_longer_within_a_budget() -> None:
    """Before InfoBatch has seen anything it trains on a uniform turn, as RS2 does: the weights of a budget cancel."""
    settings = {**PLAIN, "epochs": 1}
    turns = [network() for _ in range(2)]
    for model, strategy in zip(turns, ("infobatch", "rs2"), strict=True):
        train(model, (X, Y), strategy, 0.25, **settings)
    torch.testing.assert_close(flat(turns[0]), flat(turns[1]))


def test_steps_by_number_on_all_data_are_those_of_a_mean() -> None:
    """In the epochs of a warm start on all data, each sample counts once, whatever the budget of the others."""
    models = [network() for _ in range(2)]
    constant = lambda optimizer: torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)  # noqa: E731
    settings = {**PLAIN, "epochs": 4, "scheduler": constant, "early_stopping": lambda history: len(history) == 1}
    for model, strategy in zip(models, (Warm(InfoBatch()), "full"), strict=True):
        assert train(model, (X, Y), strategy, 0.5, **settings).n_epochs == 1
    torch.testing.assert_close(flat(models[0]), flat(models[1]))


@pytest.mark.parametrize("scheduler", [lambda o: torch.optim.lr_scheduler.StepLR(o, 2), None])
def test_a_killed_run_with_adam_goes_on_as_if_it_had_not_been(scheduler: Any, tmp_path: Path) -> None:
    def run(out: Path | None = None, **more: Any) -> torch.Tensor:
        model = network()
        settings = {**PLAIN, "epochs": 6, "optimizer": "adam", "scheduler": scheduler, "checkpoint_seconds": 0}
        train(model, (X, Y), "infobatch", out=out, **settings, **more)
        return flat(model)

    def stop(metrics: dict[str, Any]) -> None:
        if metrics["epoch"] == 3:
            raise KeyboardInterrupt

    whole = run()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", on_epoch=stop)
    assert torch.equal(run(tmp_path / "run"), whole)


# Data as users have them.


class Texts(Dataset[Any]):
    """Token numbers as mappings, with labels beside them; reads are counted."""

    def __init__(self, n: int = 60, n_words: int = 30) -> None:
        own = np.random.default_rng(0)
        self.tokens = torch.as_tensor(own.integers(1, n_words, (n, 7)))
        self.labels = self.tokens[:, 0] % 4
        self.reads: list[int] = []

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.reads.append(int(index))
        return {"tokens": self.tokens[index], "labels": self.labels[index]}


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.words, self.out = nn.Embedding(30, 8), nn.Linear(8, 4)

    def forward(self, tokens: torch.Tensor) -> Any:
        return {"logits": self.out(self.words(tokens).mean(1))}


def test_mappings_train_and_integers_stay_integers() -> None:
    data = Texts()
    model = Reader()
    result = train(model, data, "craig", "50%", epochs=20, lr=0.3, batch_size=10, select_every=10, device="cpu")
    assert result.history[-1]["loss"] < 0.8 * result.history[0]["loss"]
    bag = nn.Sequential(nn.EmbeddingBag(30, 8), nn.Linear(8, 4))
    train(bag, (data.tokens, data.labels), "auto", epochs=2, device="cpu")


def test_gradients_of_mappings_are_read_once_through_the_loader() -> None:
    data, model = Texts(), Reader()
    whole = SelectionContext(data.tokens, data.labels, model=model.eval(), forward=lambda x: model(x)).gradients()
    data.reads.clear()
    loader = DataLoader(data, batch_size=8)
    for forward in (None, lambda batch: model(batch["tokens"])):
        data.reads.clear()
        found = SelectionContext(loader, model=model, forward=forward).gradients()
        np.testing.assert_allclose(found.dense(), whole.dense(), rtol=1e-5, atol=1e-7)
        assert sorted(data.reads) == list(range(60))  # no row twice
    data.reads.clear()
    SelectionContext(loader, model=model).gradients_of(np.array([4, 7]))
    assert data.reads == [4, 7]  # a probe of two rows does not load a batch
    workers = SelectionContext(DataLoader(data, num_workers=2), model=model).gradients()
    np.testing.assert_allclose(workers.dense(), whole.dense(), rtol=1e-5, atol=1e-7)


def test_a_list_of_mappings_is_a_data_set() -> None:
    data = Texts()
    items = [data[i] for i in range(len(data))]
    lengths = [train(Reader(), each, "random", 0.5, **PLAIN).subset_size for each in (data, items)]
    assert lengths == [len(data) // 2] * 2


@pytest.mark.parametrize("name", ["labels", "targets", "y"])
def test_labels_are_found_under_their_usual_names(name: str) -> None:
    class Named(TensorDataset):
        pass

    data = Named(X, Y)
    setattr(data, name, Y)
    found = CoresetSampler(DataLoader(data), Craig(), 8, model=network()).context.labels
    np.testing.assert_array_equal(found, Y)
    with pytest.raises(CoresiftError, match="labels"):
        train(network(), Texts(), labels=[1, 2], **PLAIN)


def test_a_stream_is_refused_with_the_way_to_go() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter([])

    for refused in (lambda: train(network(), Stream()), lambda: CoresetSampler(DataLoader(Stream()))):
        with pytest.raises(CoresiftError, match="StreamingCoreset"):
            refused()


def test_budgets_in_percent() -> None:
    assert len(CoresetSampler((X, Y), "rbf", "10%")) == 9
    assert len(CoresetSampler((X, Y), "auto")) == 90
    assert CoresetSampler((X, Y), "rbf").select_every == 20
    assert CoresetSampler((X, Y), "auto").select_every == 1


# Rows travel with the items.


def test_rows_and_weights_survive_buckets_and_workers() -> None:
    """A bucketed loader changes the order; recorded norms must be those of their rows."""
    norms = torch.arange(90.0) + 1
    sampler = CoresetSampler((X, Y), "adaptive-coreset-seen", 40)

    class Buckets(BatchSampler):
        def __iter__(self) -> Any:
            order = sorted(self.sampler, key=lambda row: (row % 7, row))
            yield from (order[start : start + 6] for start in range(0, 36, 6))  # drops the rest

    data = WeightedDataset(TensorDataset(norms), row_key="row")
    loader = DataLoader(data, batch_sampler=Buckets(sampler, 6, True), num_workers=2)
    for found, weights, rows in loader:
        assert (weights == 90 / 40).all()
        sampler.record(rows, found)
    seen = sampler.context.seen()
    assert np.isfinite(seen).sum() == 36
    np.testing.assert_array_equal(seen[np.isfinite(seen)], norms.numpy()[np.isfinite(seen)])


def test_a_field_is_never_overwritten() -> None:
    data = [{"weight": 70.0, "x": 1.0}]
    with pytest.raises(CoresiftError, match="field 'weight' already"):
        WeightedDataset(data)[0]
    item = WeightedDataset(data, key="w", row_key="row")[0]
    assert (item["weight"], float(item["w"]), int(item["row"])) == (70.0, 1.0, 0)


def test_outputs_are_enough_to_record() -> None:
    """Against autograd: norms of the gradients in the outputs, and the losses."""
    sampler = CoresetSampler((X, Y), "auto", n_epochs=5)
    outputs = network()(X).detach().requires_grad_()
    losses = functional.cross_entropy(outputs, Y, reduction="none")
    losses.sum().backward()
    sampler.record(torch.arange(90), outputs=outputs, targets=Y)
    np.testing.assert_allclose(sampler.context.seen(), outputs.grad.norm(dim=1), rtol=1e-5)
    np.testing.assert_allclose(sampler.context.seen("losses"), losses.detach(), rtol=1e-5)


def test_a_recorder_is_for_any_loop() -> None:
    model, recorder = network(), NormRecorder(None)
    rows, weights = torch.tensor([5, 3]), torch.tensor([2.0, 0.0])
    with recorder.watching():
        losses = functional.cross_entropy(model(X[rows]), Y[rows], reduction="none")
        weighted_loss(losses, weights).backward()
        recorder.end_step(rows, weights, losses)
    found = recorder.take()
    assert found.keys() == {"rows", "losses"}
    assert np.isnan(found["losses"]).tolist() == [False, True]  # of weight 0


def test_what_is_forgotten_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    sampler = CoresetSampler((X, Y), InfoBatch(), n_epochs=4)
    list(sampler)
    assert not caplog.records
    list(sampler)
    list(sampler)
    assert [record.message for record in caplog.records] == [
        "infobatch: set_epoch was not called since the last epoch: the same subset is served in the same order."
    ]
    caplog.clear()
    AdaptiveCoreset().select(SelectionContext(X.numpy(), Y), 9, np.random.default_rng(0))
    assert "there is no model" in caplog.text


# The weighted loss.


def test_padding_does_not_count() -> None:
    losses = torch.tensor([[1.0, 5.0, 9.0], [2.0, torch.nan, torch.nan], [7.0, 7.0, 7.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]])
    weights = torch.tensor([1.0, 3.0, 5.0])
    assert float(weighted_loss(losses, weights, mask)) == pytest.approx((1 * 3.0 + 3 * 2.0) / 4)
    with pytest.raises(CoresiftError, match="mask"):
        weighted_loss(losses, weights, mask[:, :2])


def test_micro_batches_add_up_to_the_large_batch() -> None:
    losses, weights = torch.rand(10, 3, requires_grad=True), torch.rand(10)
    weighted_loss(losses, weights).backward()
    whole, losses.grad = losses.grad, None
    for part in (slice(0, 4), slice(4, 7), slice(7, 10)):
        weighted_loss(losses[part], weights[part], total=weights.sum()).backward()
    torch.testing.assert_close(losses.grad, whole)


# One line around a loader.


def test_a_sifted_loader_serves_the_same_batches_and_sees_the_model() -> None:
    data, model = TensorDataset(X, Y), network()
    loader = sift(DataLoader(data, batch_size=16), model, Trim(share=0.0), n_epochs=6)
    for epoch in range(6):
        rows = []
        for x, y in loader:
            torch.testing.assert_close(x, X[loader.rows])
            rows += loader.rows.tolist()
            functional.cross_entropy(model(x), y).backward()
        assert loader.coreset_sampler.epoch == epoch
        assert len(rows) == 90
    context = loader.coreset_sampler.context
    assert context.records.n_met == 540
    outputs = model(X).detach()
    residuals = (outputs.softmax(1) - functional.one_hot(Y, 4)).norm(dim=1)
    met = context.seen()
    np.testing.assert_allclose(met, residuals, rtol=1e-5)  # no step was taken, so all norms are of this model
    assert not model._forward_hooks
    state = loader.state_dict()
    again = sift(DataLoader(data, batch_size=16), model, Trim(share=0.0), n_epochs=6)
    again.load_state_dict(state)
    np.testing.assert_array_equal(again.coreset_sampler.context.seen(), met)


def test_a_sifted_loader_notices_what_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    loader = sift(DataLoader(TensorDataset(X, Y), batch_size=30), network(), "rbf", 0.5)
    list(loader)
    assert "nobody read loader.weights" in caplog.text
    caplog.clear()
    for _ in (quiet := sift(DataLoader(TensorDataset(X, Y), batch_size=30), network(), "rbf", 0.5)):
        assert len(quiet.weights) in (30, 15)
    assert not caplog.records
    list(sift(DataLoader(TensorDataset(X, Y), batch_size=30), network(), n_epochs=2))
    assert "did not run on this batch" in caplog.text
    with pytest.raises(CoresiftError, match="batch_sampler of its own"):
        sift(DataLoader(TensorDataset(X, Y), batch_sampler=[[0]]), network())


def test_an_epoch_that_is_left_early_is_recorded_too() -> None:
    model = network()
    loader = sift(DataLoader(TensorDataset(X, Y), batch_size=30), model, n_epochs=4)
    for x, y in loader:
        functional.cross_entropy(model(x), y).backward()
        break
    next(iter(loader))
    assert loader.coreset_sampler.context.records.n_met == 30


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_lightning_is_kept_in_step(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            return functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    module = Module()
    loader = sift(DataLoader(TensorDataset(X, Y), batch_size=16), module.net, Trim(share=0.0), n_epochs=3)
    callback = CoresetCallback(loader)
    shown = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu", default_root_dir=tmp_path, callbacks=[callback], **shown
    )
    trainer.fit(module, loader)
    assert loader.coreset_sampler.epoch == 2
    assert loader.coreset_sampler.context.records.n_met == 3 * 90
    assert float(trainer.callback_metrics["coreset_samples"]) == 90
    kept = torch.load(trainer.checkpoint_callback.best_model_path, weights_only=False)["callbacks"]["CoresetCallback"]
    assert kept["epoch"] == 2


def test_sift_removes_duplicates_of_tensors():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 6)).astype(np.float32)
    X[350:] = X[:150]
    data = TensorDataset(torch.tensor(X), torch.tensor((X[:, 0] > 0).astype(np.int64)))
    loader = sift(DataLoader(data, batch_size=50), nn.Linear(6, 2), n_epochs=3)
    rows = [int(row) for _ in loader for row in loader.rows]
    assert len({tuple(X[row]) for row in rows}) == len(set(rows))  # one row of each group
    assert loader.coreset_sampler.strategy.regime(loader.coreset_sampler.context).removed == 150
