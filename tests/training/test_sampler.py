"""The sampler: which rows and weights an epoch sees, on one process and on several, with workers and after a resume."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils.data import DataLoader, TensorDataset

from coresift import InvalidInputError
from coresift.selection import RBF, AdaptiveRandom, GradMatch, PerClass, Random, SelectionContext, Warm
from coresift.training import CoresetSampler, WeightedDataset, WeightedIndex

torch.set_num_threads(1)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4)).astype(np.float32)
Y = RNG.integers(0, 3, 120)


def served(sampler: CoresetSampler) -> dict[int, float]:
    return {int(index): index.weight for index in sampler}  # type: ignore[attr-defined]


def subset(sampler: CoresetSampler) -> dict[int, float]:
    return dict(zip(sampler.coreset.indices.tolist(), sampler.coreset.weights.tolist(), strict=True))


def test_it_serves_the_coreset_with_its_weights() -> None:
    sampler = CoresetSampler(X, RBF(), 0.2, seed=3)
    assert len(sampler) == len(list(sampler)) == 24
    assert served(sampler) == subset(sampler)
    expected = RBF().select(SelectionContext(X, seed=3), 0.2, np.random.default_rng((3, 11, 0)))
    assert served(sampler) == dict(zip(expected.indices.tolist(), expected.weights.tolist(), strict=True))


def test_it_redraws_every_so_many_epochs_and_reorders_every_epoch() -> None:
    sampler = CoresetSampler(X, "adaptive-random", 0.2, select_every=3)
    seen = []
    for epoch in range(7):
        sampler.set_epoch(epoch)
        seen.append([int(index) for index in sampler])
    sets = [frozenset(rows) for rows in seen]
    assert sets[0] == sets[1] == sets[2] != sets[3] == sets[4] == sets[5] != sets[6]
    assert len({tuple(rows) for rows in seen}) == 7
    again = CoresetSampler(X, "adaptive-random", 0.2, select_every=3)
    again.set_epoch(4)  # straight there: the epoch decides, not the way to it
    assert [int(index) for index in again] == seen[4]
    other = CoresetSampler(X, "adaptive-random", 0.2, select_every=3, seed=1)
    assert frozenset(map(int, other)) != sets[0]


def test_an_epoch_set_twice_selects_once() -> None:
    calls = []

    class Counting:
        def select(self, context, budget, rng):
            calls.append(context.epoch)
            return AdaptiveRandom().select(context, budget, rng)

    sampler = CoresetSampler(X, Counting(), 10, select_every=2)
    for epoch in (0, 0, 1, 2, 2, 3):
        sampler.set_epoch(epoch)
        len(sampler)
        list(sampler)
    assert calls == [0, 2]


def test_a_warm_start_serves_everything_first() -> None:
    sampler = CoresetSampler(X, Warm(AdaptiveRandom()), 0.1, select_every=2, n_epochs=40)
    assert (sampler.phases.n_full, sampler.phases.n_subset) == (2, 20)
    sizes = []
    for epoch in range(5):
        sampler.set_epoch(epoch)
        sizes.append(len(sampler))
    assert sizes == [120, 120, 12, 12, 12]
    assert [sampler.selection_epoch(epoch) for epoch in range(7)] == [0, 0, 2, 2, 4, 4, 6]


@given(size=st.integers(1, 120), replicas=st.integers(1, 9), shuffle=st.booleans())
def test_the_union_of_the_ranks_is_the_subset_and_lengths_are_equal(size: int, replicas: int, shuffle: bool) -> None:
    parts = [
        CoresetSampler(X, "adaptive-random", size, num_replicas=replicas, rank=rank, shuffle=shuffle)
        for rank in range(replicas)
    ]
    whole = subset(parts[0])
    assert {len(part) for part in parts} == {-(-size // replicas)} == {len(list(part)) for part in parts}
    weights: dict[int, list[float]] = {}
    for part in parts:
        for index in part:
            weights.setdefault(int(index), []).append(index.weight)  # type: ignore[attr-defined]
    for row, found in weights.items():  # repeats, which make lengths equal, weigh nothing
        assert sorted(found)[-1] == whole[row]
        assert sum(found) == whole[row]
    assert weights.keys() == whole.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_weights_reach_a_loader_and_its_workers_through_redraws(workers: int, persistent: bool) -> None:
    sampler = CoresetSampler((X, Y), RBF(bound="lemma"), 12, select_every=1)
    data = WeightedDataset(TensorDataset(torch.arange(120), torch.tensor(Y)))
    loader = DataLoader(data, 5, sampler=sampler, num_workers=workers, persistent_workers=persistent)
    before: dict[int, float] = {}
    for epoch in range(2):
        sampler.set_epoch(epoch)
        found = {}
        for rows, y, w in loader:
            assert torch.equal(y, torch.tensor(Y)[rows])
            found |= dict(zip(rows.tolist(), w.tolist(), strict=True))
        assert found == pytest.approx(subset(sampler))
        assert found.keys() != before.keys()
        before = found
    assert len(loader) == 3


def test_indices_are_integers_that_survive_pickling() -> None:
    index = pickle.loads(pickle.dumps(WeightedIndex(7, 2.5)))
    assert (index, index.weight, [10, 11][WeightedIndex(1, 3.0)]) == (7, 2.5, 11)


def test_items_of_every_kind_get_a_weight() -> None:
    at = WeightedIndex(0, 2.0)
    assert WeightedDataset([(1, 2)])[at] == (1, 2, torch.tensor(2.0))
    assert WeightedDataset([5])[at] == (5, torch.tensor(2.0))
    assert WeightedDataset([{"x": 1}])[at] == {"x": 1, "weight": torch.tensor(2.0)}
    assert WeightedDataset([(1, 2)])[0][2] == 1.0


def test_the_state_brings_back_a_subset_that_the_model_would_no_longer_select() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    make = lambda: CoresetSampler((X, Y), PerClass(GradMatch()), 12, select_every=4, model=model)  # noqa: E731
    sampler = make()
    sampler.set_epoch(5)
    before, order = subset(sampler), list(sampler)
    state = sampler.state_dict()
    with torch.no_grad():
        model.weight.mul_(-3.0)
    resumed = make()
    resumed.load_state_dict(state)
    resumed.set_epoch(5)
    assert subset(resumed) == before
    assert list(resumed) == order
    assert (resumed.coreset.total_weight, resumed.coreset.method) == (120.0, sampler.coreset.method)
    fresh = make()
    fresh.set_epoch(5)
    assert subset(fresh) != before  # power: the model did matter
    resumed.set_epoch(8)
    assert subset(resumed) != before


def test_what_is_kept_is_selected_once_and_after_a_resume_never() -> None:
    class Counting(Random):
        calls = 0

        def _select(self, context, size, rng):
            type(self).calls += 1
            return super()._select(context, size, rng)

    sampler = CoresetSampler((X, Y), PerClass(Counting()), 12, select_every=1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
    assert Counting.calls == len(np.unique(Y))
    resumed = CoresetSampler((X, Y), PerClass(Counting()), 12, select_every=1)
    resumed.load_state_dict(sampler.state_dict())
    resumed.recall()
    resumed.set_epoch(7)
    assert Counting.calls == len(np.unique(Y))
    assert subset(resumed) == subset(sampler)


def test_bad_input() -> None:
    with pytest.raises(InvalidInputError, match="unknown"):
        CoresetSampler(X, "nosuch", 0.1)
    with pytest.raises(InvalidInputError, match="budget"):
        CoresetSampler(X, "rbf", 0.0)
    with pytest.raises(InvalidInputError, match="select_every"):
        CoresetSampler(X, "rbf", 0.1, select_every=0)
    with pytest.raises(InvalidInputError, match="rank = 2"):
        CoresetSampler(X, "rbf", 0.1, num_replicas=2, rank=2)
    with pytest.raises(InvalidInputError, match="together"):
        CoresetSampler(X, "rbf", 0.1, num_replicas=2)
    with pytest.raises(InvalidInputError, match="y has length 3"):
        CoresetSampler((X, Y[:3]), "rbf", 0.1)
    with pytest.raises(InvalidInputError, match="data is a SelectionContext"):
        CoresetSampler(SelectionContext(X), "rbf", 0.1, n_epochs=3)
    sampler = CoresetSampler(X, "random", 0.1)
    with pytest.raises(InvalidInputError, match="n_samples = 100"):
        sampler.load_state_dict({**sampler.state_dict(), "n_samples": 100})
