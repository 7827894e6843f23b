"""Norms that training saw: they are those of its gradients, taking them changes nothing, and draws follow them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from coresift import Coreset, CoresiftError
from coresift.selection import AdaptiveCoreset, AdaptiveRandom, PerBatch, PerClass, SelectionContext, Selector, Warm
from coresift.selection.adaptive import gradient_norms
from coresift.selection.strategy import asks_for
from coresift.selection.wrappers import BatchContext
from coresift.training import CoresetSampler, train
from coresift.training.recorder import NormRecorder

N, D = 90, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)).astype(np.float32)
Y = RNG.integers(3, size=N)
STILL = 1e-30  # a learning rate that moves nothing
SEEN = AdaptiveCoreset(scores="seen")


@dataclass(frozen=True, eq=False)
class Watched(Selector):
    """Unequal weights, some of them zero; keeps its context, so that one can look into it."""

    reuses_norms: bool = True

    def _select(self, context: SelectionContext, size: int, rng: np.random.Generator) -> Any:
        rows = AdaptiveRandom().select(context, size, rng).indices
        object.__setattr__(self, "context", context)
        return Coreset(rows, np.where(rows % 7 == 0, 0.0, 1.0 + rows % 5), context.n_samples)


class Sequence(nn.Module):
    """The last layer runs at three places of a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(D, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.stack((x, x**2, -x), dim=1)).mean(1)


class Twice(nn.Module):
    """The last layer runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(D, 3), nn.Linear(3, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.last(self.first(x))))


def model_of(kind: str) -> nn.Module:
    torch.manual_seed(3)
    return {
        "plain": lambda: nn.Sequential(nn.Linear(D, 6), nn.Tanh(), nn.Linear(6, 3)),
        "in place": lambda: nn.Sequential(
            nn.Linear(D, 6), nn.ReLU(inplace=True), nn.Linear(6, 3), nn.ELU(inplace=True)
        ),
        "no bias": lambda: nn.Sequential(nn.Linear(D, 3, bias=False)),
        "sequence": Sequence,
        "convolution": lambda: nn.Sequential(nn.Unflatten(1, (1, D)), nn.Conv1d(1, 3, D), nn.Flatten()),
        "twice": Twice,
    }[kind]()


@pytest.mark.parametrize("kind", ["plain", "in place", "no bias", "sequence", "twice", "convolution"])
@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_norms_are_those_of_the_last_layer(kind: str, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coresift.training.recorder._HELD_ROWS", 25)  # several lots, one of them left over
    target = Y if loss == "cross_entropy" else np.eye(3, dtype=np.float32)[Y]
    model, strategy = model_of(kind), Watched()
    result = train(model, (X, target), strategy, 60, epochs=1, batch_size=8, lr=STILL, loss=loss, device="cpu")
    seen, rows = strategy.context.seen(), result.coreset.indices
    wanted = gradient_norms(SelectionContext(X, target, model=model, loss=loss).gradients().double())
    wanted = wanted / (1 if loss == "cross_entropy" else 3)  # of several outputs a step takes the mean
    met = np.isfinite(seen)
    np.testing.assert_array_equal(np.flatnonzero(met), rows[rows % 7 != 0])  # a weight of zero leaves no trace
    np.testing.assert_allclose(seen[met], wanted[met], rtol=1e-4)


def test_taking_norms_changes_nothing() -> None:
    """The same weights after training, and no hook is left."""
    found = []
    for asks in (False, True):
        torch.manual_seed(0)
        layers = (nn.Linear(D, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.ReLU(inplace=True), nn.Linear(6, 3))
        model = nn.Sequential(*layers)
        train(model, (X, Y), Watched(asks), 60, epochs=3, batch_size=8, select_every=1, device="cpu")
        assert not any(module._forward_hooks for module in model.modules())
        found.append(torch.cat([value.flatten().double() for value in model.state_dict().values()]))
    assert torch.equal(found[0], found[1])


def test_what_asks_for_norms() -> None:
    for strategy in (SEEN, Warm(SEEN), PerClass(SEEN), Warm(PerClass(SEEN))):
        assert asks_for(strategy, "reuses_norms")
    for strategy in (AdaptiveCoreset(), Warm(AdaptiveRandom()), AdaptiveRandom()):
        assert not asks_for(strategy, "reuses_norms")


def test_a_layer_outside_the_loss_is_named() -> None:
    layer = nn.Linear(D, 3)
    recorder = NormRecorder(layer)
    with recorder.watching():
        layer(torch.as_tensor(X[:4]))  # never reaches a loss
        recorder.end_step(torch.arange(4), torch.ones(4))
        with pytest.raises(CoresiftError, match="the loss does not depend on the layer"):
            recorder.take()
    assert NormRecorder(layer).take()["norms"].size == 0


# Draws.


def told(norms: Any, **more: Any) -> SelectionContext:
    context = SelectionContext(X, Y, **more)
    context.record(np.arange(N), np.asarray(norms, dtype=np.float32))
    return context


def test_a_draw_follows_the_norms_and_the_floor() -> None:
    """Inclusion probabilities, counted: (1 - mu) s / sum s + mu / n, samples that were not met by the mean."""
    norms = np.where(np.arange(N) < 30, 4.0, 1.0)
    norms[60:] = np.nan  # the mean of the others, 2.5
    context, strategy = told(norms), AdaptiveCoreset(scores="seen", mix=0.3, select_every=1)
    counts = np.zeros(N)
    for seed in range(2000):
        counts[strategy.select(context, 9, np.random.default_rng(seed)).indices] += 1
    filled = np.where(np.isnan(norms), 2.5, norms)
    wanted = 9 * (0.7 * filled / filled.sum() + 0.3 / N)
    deviation = np.sqrt(2000 * wanted * (1 - wanted))
    assert (np.abs(counts - 2000 * wanted) < 5 * deviation).all()
    assert np.abs(counts - 2000 * 9 / N).max() > 5 * deviation.max()  # power: uniform draws would be noticed


def test_weights_are_unbiased_whatever_the_norms() -> None:
    """Stale scores make a draw worse, not wrong."""
    context = told(np.random.default_rng(1).lognormal(0, 1.5, N))
    strategy = AdaptiveCoreset(scores="seen", correction=1.0)
    f = X[:, 0].astype(float) + 3
    sums = np.array(
        [
            (core.weights @ f[core.indices])
            for core in (strategy.select(context, 12, np.random.default_rng(seed)) for seed in range(1500))
        ]
    )
    error = sums.std(ddof=1) / np.sqrt(len(sums))
    assert abs(sums.mean() - f.sum()) < 4.5 * error
    assert error < 0.02 * f.sum()  # power: a bias of a tenth would be noticed


def test_before_anything_was_met_a_draw_is_uniform() -> None:
    for context in (SelectionContext(X, Y), told(np.full(N, np.nan))):
        core = SEEN.select(context, 9, np.random.default_rng(0))
        assert "met no sample yet" in core.method
        assert (core.weights == 10.0).all()
    core = SEEN.select(told(np.zeros(N)), 9, np.random.default_rng(0))
    np.testing.assert_allclose(core.weights, 10.0)  # all gradients vanish


def test_batches_have_the_mean_of_what_was_met_of_them() -> None:
    norms = np.where(np.arange(N) % 2, np.nan, np.arange(N))
    found = BatchContext(told(norms), [np.array([0, 1, 4]), np.array([1, 3]), np.array([6])]).seen()
    np.testing.assert_array_equal(found, [2.0, np.nan, 6.0])
    assert BatchContext(SelectionContext(X), [np.arange(3)]).seen() is None
    core = PerBatch(SEEN, batch_size=10).select(told(np.arange(1.0, N + 1)), 30, np.random.default_rng(0))
    assert core.size == 30
    assert "by what training saw" in core.method


def test_who_tells_nothing_is_told_so_once(caplog: pytest.LogCaptureFixture) -> None:
    sampler = CoresetSampler((X, Y), SEEN, 10, select_every=1, num_replicas=1)
    for epoch in range(4):
        sampler.set_epoch(epoch)
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "adaptive-coreset, epoch 1: nothing was recorded (CoresetSampler.record); the draw is uniform."
    ]


@pytest.mark.parametrize(
    ("rows", "norms", "message"),
    [
        ([0, 1, 2], [1.0, 2.0], r"rows have shape \(3,\) and norms \(2,\)"),
        ([-1], [1.0], "integers from 0 to 89"),
        ([N], [1.0], "integers from 0 to 89"),
        ([0.5], [1.0], "integers from 0 to 89"),
        ([0], [-1.0], "at least 0"),
        ([0], ["a"], "at least 0"),
    ],
)
def test_what_cannot_be_recorded(rows: Any, norms: Any, message: str) -> None:
    with pytest.raises(CoresiftError, match=message):
        SelectionContext(X, Y).record(rows, norms)


def test_norms_of_any_container() -> None:
    context = SelectionContext(X, Y)
    context.record([0, 1], torch.tensor([1.0, 2.0], requires_grad=True))
    context.record(torch.tensor([2]), torch.tensor([3.0], dtype=torch.bfloat16))
    assert context.seen()[:3].tolist() == [1.0, 2.0, 3.0]


def test_a_sampler_takes_norms_in_any_order() -> None:
    sampler = CoresetSampler((X, Y), SEEN, 10, select_every=1, num_replicas=1)
    served = [int(row) for row in sampler]
    sampler.record(served[::-1], torch.arange(10.0) + 1)
    assert sampler.context.seen()[served[::-1]].tolist() == list(range(1, 11))
    with pytest.raises(CoresiftError, match=r"rows have shape \(10,\) and norms \(3,\)"):
        sampler.record(served, np.ones(3))
    with pytest.raises(CoresiftError, match="needs the rows"):
        sampler.record(np.ones(3))
    with pytest.raises(CoresiftError, match="do not know the norms of the others"):
        CoresetSampler((X, Y), SEEN, 10, num_replicas=2, rank=0)


def test_products_are_not_piled_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a layer that runs at several places the norms are taken at once."""
    held = []
    reduce = NormRecorder._reduce

    def watched(self: NormRecorder) -> None:
        held.append(len(self._steps))
        reduce(self)

    monkeypatch.setattr(NormRecorder, "_reduce", watched)
    for kind, most in (("sequence", 1), ("twice", 1), ("plain", 8)):
        held.clear()
        train(model_of(kind), (X, Y), Watched(), 60, epochs=1, batch_size=8, device="cpu")
        assert max(held) == most


def test_classes_look_at_their_own_norms() -> None:
    norms = np.where(Y == 1, np.arange(N) % 2, 1.0)  # of class 1 every other sample is learnt
    strategy = PerClass(AdaptiveCoreset(scores="seen", mix=1e-9, select_every=1))
    context = told(norms)
    core = strategy.select(context, 21, np.random.default_rng(0))
    chosen = core.indices[Y[core.indices] == 1]
    assert len(chosen) > 3
    assert (chosen % 2 == 1).all()


def test_settings_that_do_not_apply() -> None:
    with pytest.raises(CoresiftError, match="does not apply to scores = 'seen'"):
        AdaptiveCoreset(scores="seen", pool_factor=3.0).select(told(np.ones(N)), 9, np.random.default_rng(0))
    with pytest.raises(CoresiftError, match="scores"):
        AdaptiveCoreset(scores="old").select(told(np.ones(N)), 9, np.random.default_rng(0))


def test_numbers_that_are_none_are_not_kept() -> None:
    context = told(np.arange(1.0, N + 1))
    context.record(np.array([3, 4]), np.array([np.nan, np.inf]))
    assert context.seen()[[3, 4]].tolist() == [4.0, 5.0]
    assert context.at(7).seen()[0] == 1.0  # later moments know them too


@pytest.mark.parametrize("strategy", ["adaptive-coreset-seen", "adaptive-coreset-seen-warm"])
def test_a_killed_run_goes_on_as_if_it_had_not_been(strategy: str, tmp_path: Path) -> None:
    def run(out: Path | None = None, **more: Any) -> tuple[list[float], torch.Tensor]:
        model = model_of("plain")
        options = {"epochs": 8, "select_every": 1, "lr": 0.1, "batch_size": 5, "device": "cpu"}
        result = train(model, (X, Y), strategy, 20, out=out, checkpoint_seconds=0, **options, **more)
        return [line["loss"] for line in result.history], model[0].weight.detach()

    def stop(metrics: dict[str, Any]) -> None:
        if metrics["epoch"] == 5:
            raise KeyboardInterrupt

    whole = run()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", on_epoch=stop)
    again = run(tmp_path / "run")
    assert again[0] == whole[0]
    assert torch.equal(again[1], whole[1])


def test_a_sampler_remembers_what_was_met() -> None:
    sampler = CoresetSampler((X, Y), SEEN, 10, select_every=1, num_replicas=1)
    rows, _ = sampler.epoch_rows()
    sampler.context.record(rows, np.ones(10))
    other = CoresetSampler((X, Y), SEEN, 10, select_every=1, num_replicas=1)
    other.context.record(np.arange(N), np.full(N, 9.0))  # of another run
    other.load_state_dict(sampler.state_dict())
    np.testing.assert_array_equal(other.context.seen(), sampler.context.seen())
    other.load_state_dict(CoresetSampler((X, Y), SEEN, 10, num_replicas=1).state_dict())
    assert other.context.seen() is None


def test_it_learns_what_is_hard() -> None:
    """Two classes far apart and one that overlaps: the norms recorded are larger where labels are hard to tell."""
    rng = np.random.default_rng(5)
    y = rng.integers(3, size=600)
    x = rng.normal(size=(600, 2)).astype(np.float32) + np.array([[0, 0], [1, 0], [30, 0]])[y].astype(np.float32)
    strategy = Watched()
    model = nn.Sequential(nn.Linear(2, 3))
    train(model, (x, y), strategy, 300, epochs=30, select_every=1, lr=0.05, device="cpu")
    seen = strategy.context.seen()
    assert np.nanmean(seen[y < 2]) > 5 * np.nanmean(seen[y == 2])
