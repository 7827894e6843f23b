"""Strategies that look at what training sees: oracles for each rule, and the regimes that AUTO finds."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from coresift import CoresiftError
from coresift.selection import (
    RS2,
    AdaptiveRandom,
    Auto,
    InfoBatch,
    Lossless,
    PerClass,
    Phases,
    SelectionContext,
    Trim,
    Warm,
    WarmEnd,
)
from coresift.selection.auto import counts_of, duplicate_share, without_duplicates
from coresift.selection.seen import Seen, wrong_labels
from coresift.training import train
from coresift.training.recorder import predictions

N = 120
X = np.random.default_rng(0).normal(size=(N, 6))
Y = np.arange(N) % 5


def context(epoch: int = 1, n_epochs: int | None = 8, **columns: Any) -> SelectionContext:
    made = SelectionContext(X, Y, epoch=epoch, n_epochs=n_epochs)
    if columns:
        made.record(np.arange(N), **columns)
    return made


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# RS2 and repeated draws.


def test_turns_serve_every_row_once_before_any_returns() -> None:
    made = context()
    served = [RS2().select(made.at(epoch), 30, rng(epoch)) for epoch in range(8)]
    for start in (0, 4):
        rows = np.concatenate([core.indices for core in served[start : start + 4]])
        assert sorted(rows) == list(range(N))
    assert served[0] != served[4]  # shuffled again
    assert all((core.weights == 4.0).all() for core in served)
    other = SelectionContext(X, Y, seed=1, epoch=0, n_epochs=8)
    assert RS2().select(other, 30, rng()) != served[0]


def test_turns_begin_after_a_warm_start() -> None:
    strategy = Warm(RS2())
    first = strategy.phases(16, 0.25).n_full
    assert first == 2  # in the middle of a round of four, if it were counted from the first epoch
    made = SelectionContext(X, Y, seed=0, epoch=0, n_epochs=16)
    served = [strategy.select(made.at(first + turn), 30, rng()).indices for turn in range(4)]
    assert sorted(np.concatenate(served)) == list(range(N))


@pytest.mark.parametrize("size", [50, 7, 61, 119])
def test_turns_serve_every_row_where_the_budget_does_not_divide(size: int) -> None:
    """The last turn is filled up from the first; no row is twice in a turn."""
    turns = -(-N // size)
    served = [RS2().select(context(epoch), size, rng()).indices for epoch in range(turns)]
    counts = np.bincount(np.concatenate(served), minlength=N)
    assert counts.min() == 1
    assert counts.max() == 2
    assert all(len(set(rows.tolist())) == size for rows in served)
    assert not set(served[0]) & set(served[1]) or turns == 2


def test_turns_are_those_of_selections_not_of_epochs() -> None:
    made = context()
    made.select_every = 20
    served = [RS2().select(made.at(20 * turn), 30, rng()).indices for turn in range(4)]
    assert sorted(np.concatenate(served)) == list(range(N))


def test_counts_have_their_expectation() -> None:
    shares = np.array([0.5, 0.3, 0.15, 0.05])
    counts = np.array([counts_of(shares, 7, rng(seed)) for seed in range(4000)])
    assert (counts.sum(axis=1) == 7).all()
    assert (np.abs(counts - 7 * shares) < 1).all()
    error = counts.std(axis=0, ddof=1) / np.sqrt(len(counts))
    assert (np.abs(counts.mean(axis=0) - 7 * shares) < 5 * error + 1e-12).all()
    assert error.max() < 0.02  # power: one draw more of a hundred would be noticed


# Lossless and InfoBatch.


def test_what_prunes_does_so_inside_others() -> None:
    losses = np.linspace(0, 1, N)
    plain = InfoBatch().select(context(losses=losses), 1.0, rng())
    per_class = PerClass(InfoBatch()).select(context(losses=losses), 1.0, rng())
    assert plain.size < N
    assert per_class.size < N


def test_soft_pruning_keeps_the_hard_and_scales_up_the_easy() -> None:
    losses = np.where(np.arange(N) < 40, 3.0, 0.1)
    core = InfoBatch().select(context(losses=losses), 1.0, rng())
    assert set(range(40)) <= set(core.indices.tolist())
    assert core.size == 40 + 40
    np.testing.assert_allclose(core.weights[:40], 1.0)
    np.testing.assert_allclose(core.weights[40:], 2.0)
    assert core.weights.sum() == N


def test_a_turn_of_rows_that_training_has_not_met_is_served_whole() -> None:
    made = context()
    met = Lossless().select(made.at(0), 30, rng()).indices
    made.record(met, norms=np.ones(30))
    core = Lossless().select(made.at(1), 30, rng())  # without a warning: those are errors
    assert not set(core.indices) & set(met)
    assert core.size == 30
    np.testing.assert_allclose(core.weights, 4.0)


def test_soft_pruning_is_unbiased() -> None:
    made = context(norms=np.random.default_rng(3).lognormal(size=N))
    f = np.random.default_rng(4).normal(5, 2, N)
    sums = np.array(
        [
            core.weights @ f[core.indices]
            for core in (Lossless(share=0.3).select(made, 1.0, rng(s)) for s in range(1500))
        ]
    )
    error = sums.std(ddof=1) / np.sqrt(len(sums))
    assert abs(sums.mean() - f.sum()) < 4.5 * error
    assert error < 0.01 * f.sum()  # power


@pytest.mark.parametrize(("epoch", "is_all"), [(13, False), (14, True), (15, True)])
def test_the_last_eighth_is_all_data(epoch: int, is_all: bool) -> None:
    made = context(epoch, 16, losses=np.arange(N) / N)
    assert (InfoBatch().select(made, 1.0, rng()).size == N) == is_all


def test_a_row_that_was_not_met_is_kept() -> None:
    losses = np.where(np.arange(N) < 100, np.arange(N) / N, np.nan)
    core = InfoBatch(share=0.01).select(context(losses=losses), 1.0, rng())
    assert set(range(100, N)) <= set(core.indices.tolist())


def test_a_budget_bounds_soft_pruning() -> None:
    made = context(losses=np.arange(N) / N)
    core = InfoBatch().select(made, 60, rng())
    assert core.size == 45
    assert core.weights.sum() == pytest.approx(N)


def test_steps_of_infobatch_divide_by_the_number_of_samples() -> None:
    """Against a loop by hand: one epoch whose subset has weights 1 and 2, in one batch."""
    x = torch.tensor(X, dtype=torch.float32)
    y = torch.tensor(Y)

    class Known(InfoBatch):
        def _select(self, context: Any, size: int, rng: Any) -> Any:
            return self.coreset(context, np.arange(8), np.array([1.0, 2.0] * 4))

    torch.manual_seed(0)
    ours, by_hand = nn.Linear(6, 5), nn.Linear(6, 5)
    by_hand.load_state_dict(ours.state_dict())
    train(ours, (x, y), Known(), epochs=1, batch_size=8, lr=0.5, momentum=0.0, weight_decay=0.0, device="cpu")
    losses = nn.functional.cross_entropy(by_hand(x[:8]), y[:8], reduction="none")
    (losses * torch.tensor([1.0, 2.0] * 4)).mean().backward()
    with torch.no_grad():
        for parameter in by_hand.parameters():
            parameter -= 0.5 * parameter.grad
    torch.testing.assert_close(ours.weight, by_hand.weight)


# Trim.


def test_trim_leaves_out_the_highest_losses_gradually_and_spares_classes() -> None:
    losses = np.where(Y == 2, 9.0, np.arange(N) / N)
    sizes = [Trim(share=0.3).select(context(epoch, 12, losses=losses), 1.0, rng()).size for epoch in (0, 2, 4, 8)]
    assert sizes == [N, N - 12, N - 24, N - 24]  # 36 are highest, but 24 have one class, half of which stays
    flat = context(8, 12, losses=np.arange(N) / N)
    assert Trim(share=0.25).select(flat, 1.0, rng()).indices.tolist() == list(range(90))


def test_running_means_weigh_the_last_loss_by_half() -> None:
    seen = Seen(3)
    for losses in ([4.0, 1.0], [0.0, np.nan]):
        seen.record(np.array([0, 2]), losses=np.array(losses))
    np.testing.assert_array_equal(seen["means"], [2.0, np.nan, 1.0])
    np.testing.assert_array_equal(seen["losses"], [0.0, np.nan, 1.0])
    assert seen.n_met == 3


# Estimates.


def spoilt(share: float, n: int = 4000, n_classes: int = 10, seed: int = 0) -> Seen:
    """Predictions of a perfect model, whose labels are wrong with a probability."""
    own = rng(seed)
    truth = own.integers(0, n_classes, n)
    outputs = torch.tensor(own.normal(size=(n, n_classes)) + 9.0 * np.eye(n_classes)[truth])
    labels = np.where(own.random(n) < share, (truth + own.integers(1, n_classes, n)) % n_classes, truth)
    seen = Seen(n)
    seen.record(np.arange(n), losses=np.ones(n), **predictions(outputs, torch.tensor(labels)))
    return seen


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4])
@pytest.mark.parametrize("n_classes", [4, 7, 10])
def test_the_share_of_wrong_labels_is_found(share: float, n_classes: int) -> None:
    found = wrong_labels(spoilt(share, n_classes=n_classes))
    assert found is not None
    # of 2,000 rows (the second half), and of the quarter that is most sure; the first is scaled by up to 3/2
    for estimate, n, scale in zip(found, (2000, 500), (1.5, 1.0), strict=True):
        assert abs(estimate - share) <= 4.5 * scale * np.sqrt(max(share * (1 - share), 0.0) / n) + 1e-9


def test_only_the_half_met_last_counts() -> None:
    seen = spoilt(0.0)
    seen["low"][:2000], seen["sure"][:2000] = 1.5, -1.0
    assert wrong_labels(seen) == (0.0, 0.0)
    assert wrong_labels(Seen(100)) is None


def test_near_duplicates_are_found_and_removed_within_their_class() -> None:
    own = rng(5)
    base = own.normal(size=(300, 8))
    copies = own.integers(0, 30, 700)
    data = np.concatenate((base, base[copies] + 1e-4 * own.normal(size=(700, 8))))
    labels = np.concatenate((np.zeros(300), copies % 2)).astype(int)
    labels[:30] = np.arange(30) % 2
    share, distance = duplicate_share(data, own)
    assert abs(share - 0.73) < 4.5 * np.sqrt(0.73 * 0.27 / 500)
    kept = without_duplicates(data, labels, distance, own)
    assert len(kept) == 300
    groups = np.concatenate((np.arange(300), copies))
    assert len(set(groups[kept])) == 300
    other = without_duplicates(data, np.arange(1000), distance, own)
    assert len(other) == 1000  # all labels differ


@pytest.mark.parametrize("d", [1, 2, 8])
def test_dense_rows_are_no_duplicates(d: int) -> None:
    data = rng(6).normal(size=(6000, d))
    assert duplicate_share(data, rng(7))[0] < 0.2
    twice = np.concatenate((data, data))
    assert duplicate_share(twice, rng(7))[0] > 0.9


# Auto.


def told(wrong: float = 0.0, epoch: int = 1, n_epochs: int | None = 8, rounds: int = 1) -> SelectionContext:
    n = 1000
    seen, own = spoilt(wrong, n), rng(8)
    made = SelectionContext(own.normal(size=(n, 8)), own.integers(0, 10, n), epoch=epoch, n_epochs=n_epochs)
    norms = np.where(np.arange(n) < 100, 10.0, 1.0)
    columns = {name: seen[name] for name in ("losses", "low", "sure")}
    for _ in range(rounds):
        made.record(np.arange(n), norms=norms, **columns)
    return made


def test_clean_labels_are_drawn_by_their_norms_and_in_the_end_uniformly() -> None:
    made = told()
    core = Auto().select(made, 1.0, rng())
    assert Auto().regime(made).action == "hard samples"
    assert core.weights.sum() == 1000  # as many samples as asked for, some repeated
    shares = 0.7 * 10 / (100 * 10 + 900) + 0.3 / 1000
    assert core.weights[:100].sum() == pytest.approx(1000 * 100 * shares, abs=100)
    late = Auto().select(made.at(7), 1.0, rng())  # t = 0.9375: a share of 0.8125 of the way to uniform
    assert 100 < late.weights[:100].sum() < 0.5 * core.weights[:100].sum()


def test_wrong_labels_are_trimmed_after_two_rounds() -> None:
    made = told(0.25)
    Auto().select(made, 1.0, rng())
    assert Auto().regime(made).action == "look"
    made = told(0.25, epoch=2, rounds=2)
    Auto().select(made, 1.0, rng())
    assert Auto().regime(made).action == "trim"
    assert Auto().regime(made).wrong == pytest.approx(0.25, abs=0.08)
    core = Auto().select(made.at(6), 1.0, rng())
    assert core.weights.sum() == 1000
    assert core.size < 900


@pytest.mark.parametrize(
    "more", [{"n_epochs": None}, {"wrong": 0.1}, {"wrong": 0.25, "n_epochs": 3}, {"wrong": 0.9, "epoch": 7}]
)
def test_otherwise_all_data_are_used(more: dict[str, Any]) -> None:
    made = told(**more)
    core = Auto().select(made, 1.0, rng())
    assert Auto().regime(made).action == "all data"
    assert (core.weights == 1).all()
    assert core.size == 1000
    assert Auto().has_seen_enough(made)


def test_within_a_budget_turns_come_first() -> None:
    made = SelectionContext(X, Y, epoch=0, n_epochs=20)
    served = [Auto().select(made.at(epoch), 30, rng(epoch)) for epoch in range(4)]
    assert sorted(np.concatenate([core.indices for core in served])) == list(range(N))
    hard = told(epoch=10, n_epochs=20)
    core = Auto().select(hard, 100, rng())
    assert core.weights.sum() == 100
    assert core.weights[core.indices < 100].sum() > 30


def test_duplicates_are_left_out_and_the_rest_is_served_more_often(caplog: pytest.LogCaptureFixture) -> None:
    rows = np.concatenate((np.arange(N), np.zeros(2 * N, dtype=int)))
    made = SelectionContext(X[rows], Y[rows], epoch=0, n_epochs=None)
    core = Auto().select(made, 1.0, rng())
    assert core.size == N
    assert set(core.weights) == {3.0}
    regime = Auto().regime(made)
    assert regime.removed == 2 * N
    assert "240 duplicates removed" in str(regime)
    Auto().select(made.at(1), 1.0, rng())
    assert sum("n_epochs is not known" in record.message for record in caplog.records) == 1


def test_a_run_says_its_regime_and_resumes_with_it(tmp_path: Any) -> None:
    own = rng(1)
    truth = own.integers(0, 6, 600)
    inputs = (own.normal(size=(600, 6)) + 4 * np.eye(6)[truth]).astype(np.float32)
    wrong = own.random(600) < 0.3
    labels = np.where(wrong, (truth + own.integers(1, 6, 600)) % 6, truth)

    def run(out: Any = None, **more: Any) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 6))
        settings = {"epochs": 9, "batch_size": 20, "lr": 0.05, "device": "cpu", "out": out, "checkpoint_seconds": 0}
        return train(model, (inputs, labels), "auto", **settings, **more)

    def stop(metrics: dict[str, Any]) -> None:
        if metrics["epoch"] == 5:
            raise KeyboardInterrupt

    whole = run()
    assert whole.regime.action == "trim"
    left_out = np.setdiff1d(np.arange(600), whole.coreset.indices)
    assert wrong[left_out].mean() > 0.9
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", on_epoch=stop)
    again = run(tmp_path / "run")
    assert [line["loss"] for line in again.history] == [line["loss"] for line in whole.history]
    assert run(tmp_path / "run").regime == again.regime == whole.regime
    assert all(isinstance(value, int | float) for line in whole.history for value in line.values())


# Others.


def test_all_data_come_last() -> None:
    strategy = WarmEnd(AdaptiveRandom())
    assert strategy.phases(20, 0.1) == Phases(0, 10, 1)
    assert [strategy.phases(20, 0.1).selection_epoch(epoch, 4) for epoch in (0, 5, 9, 10)] == [0, 4, 8, 10]
    sizes = [strategy.select(context(epoch, 20), 0.1, rng()).size for epoch in (0, 9, 10)]
    assert sizes == [12, 12, N]


@pytest.mark.parametrize("strategy", [Lossless(share=0.0), InfoBatch(last=1.0), Lossless(scores="x"), Trim(share=0.6)])
def test_settings_that_cannot_be(strategy: Any) -> None:
    with pytest.raises(CoresiftError):
        strategy.select(context(), 1.0, rng())
