"""The speed that a plan rests on is measured as the workers will run."""

import time

import numpy as np
import pytest
import torch

from coresift.data import ArrayDataset, DatasetSplits
from coresift.selection import AdaptiveCoreset, Laplacian, PerClass, registry
from coresift.selection.names import methods
from coresift.selection.strategy import asks_for
from coresift.training.models import MLP
from paper.automatic import strategies
from paper.bench.planning import Speed, estimated_seconds, looks_at_model, probe, rows_passed, setup_passes
from paper.bench.protocol import load_protocol


def four_rows() -> DatasetSplits:
    part = ArrayDataset(np.zeros((4, 3), dtype=np.float32), np.array([0, 1, 0, 1]))
    return DatasetSplits("made up", part, part, 2, "classification", (3,))


def test_speed_is_measured_with_the_threads_of_a_worker(monkeypatch):
    seen = set()

    class Watched(MLP):
        def forward(self, x):
            seen.add(torch.get_num_threads())
            return super().forward(x)

    monkeypatch.setattr("paper.bench.run.build_model", lambda *_, **__: Watched(2, (3,), 4))
    data = four_rows()
    before = torch.get_num_threads()
    for threads in (1, 2):
        seen.clear()
        speed = probe(load_protocol("covtype"), data, "cpu", threads)
        assert seen == {threads}
        assert torch.get_num_threads() == before
        assert speed.training > 0
        assert speed.forward > 0


PAUSE = 0.02


@pytest.mark.parametrize(("readers", "clock"), [(0, "cpu"), (1, "wall")])
def test_on_a_processor_waiting_does_not_count_as_in_the_records(monkeypatch, readers, clock):
    """A pass takes a fraction of a millisecond of the processor, and waits for twenty."""

    class Waiting(MLP):
        def forward(self, x):
            time.sleep(PAUSE)
            return super().forward(x)

    monkeypatch.setattr("paper.bench.run.build_model", lambda *_, **__: Waiting(2, (3,), 4))
    speed = probe(load_protocol("covtype"), four_rows(), "cpu", 1, readers)
    assert speed.clock == clock
    assert (speed.forward > 256 / PAUSE) == (clock == "cpu")


def test_an_estimate_believes_records_of_the_same_clock_only():
    protocol = load_protocol("covtype", "smoke").narrowed(["random"], [0.5], 2)
    first, second = protocol.runs()
    seconds = {"selection": 0.0, "training": 5000.0, "evaluation": 0.0}
    records = [{"cell": vars(second), "seconds": seconds, "clock": "cpu"}]
    for clock, is_believed in (("cpu", True), ("wall", False)):
        (found,) = estimated_seconds(protocol, [first], four_rows(), Speed(1e3, 1e3, clock), records)
        assert (found == 5000.0) == is_believed


def test_every_strategy_has_the_cost_of_its_selection():
    """In samples passed through the model: a forward pass and three more for the greedy ones, or the pool."""
    n, size, every = 10_000, 100, 5
    cost = {name: rows_passed(strategy, n, size, every) for name, strategy in strategies().items()}
    greedy = {"GLISTER", "CRAIG", "CRAIGPB", "GRADMATCH", "GRADMATCHPB"}
    pools = {"ADAPTIVE-CORESET", "ADAPTIVE-CORESET-AUTO"}
    for name, found in cost.items():
        plain = name.removesuffix("-WARM")
        assert found == (4 * n if plain in greedy else 15 * size if plain in pools else 0), name
        assert looks_at_model(name) == (plain in greedy | pools)
    assert rows_passed(AdaptiveCoreset(), n, 1000, every) == n  # no more than all
    assert rows_passed(AdaptiveCoreset(pool_factor=2.0), n, size, every) == 2 * size
    assert rows_passed(PerClass(Laplacian()), n, size, every) == 0
    assert rows_passed(object(), n, size, every) == 0  # declares nothing


def test_scores_are_paid_for_once():
    protocol = load_protocol("covtype", "smoke").narrowed(["random", "el2n", "el2n-warm"], [0.5], 1)
    speed = Speed(1e3, 1e3, "cpu")
    plain, scored, warm = estimated_seconds(protocol, protocol.runs(), four_rows(), speed, [])
    assert scored - plain == pytest.approx(16 * 4 / 1e3)  # five epochs of steps, each of three passes, and a pass
    assert setup_passes(registry()["EL2N-WARM"]) == 16
    assert warm > 0


@pytest.mark.parametrize("method", methods()[:-1], ids=lambda method: method["name"])
def test_what_a_method_needs_is_what_its_strategy_declares(method) -> None:
    strategy = registry()[method["name"]]
    assert ("scores" in method["needs"]) == bool(setup_passes(strategy))
    assert ("validation" in method["needs"]) == bool(asks_for(strategy, "needs_validation"))
    passes = rows_passed(strategy, 1000, 10, 1) > 0
    records = asks_for(strategy, "reuses_norms") or asks_for(strategy, "reuses_losses")
    assert ("model" in method["needs"]) == bool(passes or records or setup_passes(strategy))
