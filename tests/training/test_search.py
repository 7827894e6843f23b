"""Search of networks on a ladder of subsets."""

import numpy as np
import pytest
import torch
from torch import nn

from coresift import InvalidInputError
from coresift.training import search_networks, train


def problem(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    return X, (X[:, 0] * X[:, 1] > 0).astype(np.int64)  # a linear network learns nothing


def build(width):
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 2))


def test_the_best_candidate_wins_with_few_epochs_on_many_samples():
    state = torch.get_rng_state()
    found = search_networks(
        build, {"lr": [1e-5, 0.05], "width": [1, 32], "momentum": [0.9]}, problem(), ladder=("10%", "50%"), epochs=12
    )
    assert torch.equal(state, torch.get_rng_state())
    assert found.best_params == {"lr": 0.05, "width": 32, "momentum": 0.9}
    assert found.best_score > 0.8
    assert [(record["step"], record["budget"]) for record in found.records] == [(0, "10%")] * 4 + [(1, "50%")] * 2
    assert found.model[0].out_features == 32
    assert len(found.fidelity) == 1


def test_steps_continue_with_the_weights_of_the_step_before():
    data = problem()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build(8)
    settings = {"strategy": "random", "epochs": 3, "val_fraction": 0.1, "eval_every": 3, "seed": 0, "lr": 0.02}
    train(model, data, budget=0.1, **settings)
    expected = train(model, data, budget=0.4, **settings).history[-1]["val_accuracy"]
    found = search_networks(build, {"lr": [0.02], "width": [8]}, data, ladder=(0.1, 0.4), epochs=3)
    assert found.best_score == expected
    for ours, theirs in zip(found.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_pruned_and_diverged_candidates_go_no_further():
    grid = {"lr": [0.05, 1e30], "width": [4, 8]}
    found = search_networks(
        build, grid, problem(400), ladder=(0.2, 0.4), epochs=2, on_step=lambda r: r["params"]["width"] == 4
    )
    diverged = [r for r in found.records if r["params"]["lr"] == 1e30]
    assert len(diverged) == 2
    assert all(np.isnan(r["score"]) for r in diverged)
    assert [r["params"]["width"] for r in found.records if r["step"] == 1] == [8]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ladder": (0.3, 0.1)}, "must be increasing budgets"),
        ({"ladder": ()}, "must be increasing budgets"),
        ({"ladder": (0.5, 600)}, "all of them fractions"),
        ({"params": {"epochs": [1], "width": [4]}}, "params has epochs, which the search sets itself"),
        ({"params": [{"width": [4]}, {"width": [4], "seed": [1]}]}, "params has seed, which"),
        ({"params": []}, r"params = \[\] has no candidates"),
        ({"params": [], "n_iter": 2}, r"params = \[\] has no candidates"),
        ({"params": {"width": [4]}, "n_iter": 0}, "n_iter = 0 must be at least 1"),
    ],
)
def test_bad_input_is_named(change, message):
    with pytest.raises(InvalidInputError, match=message):
        search_networks(**({"build": build, "params": {"width": [4]}, "data": problem(100)} | change))
