"""Scores of a short training, by hand and with planted rows; rules that choose by them."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from coresift import InvalidInputError
from coresift.selection import ByScore, PerBatch, PerClass, Scores, SelectionContext, proxy_scores, registry
from coresift.selection.scores import SCORES, Dynamics, class_distances, label_margins, prediction_scores, ranked

WRONG = [3, 50, 131, 260]
NAMES = ["EL2N", "GRAND", "FORGETTING", "MARGIN", "ENTROPY", "LEAST-CONFIDENCE", "AUM", "CCS", "MODERATE"]


def rng(seed=0):
    return np.random.default_rng(seed)


def data(n=300, seed=0):
    """Three blobs that a small network separates, and a few wrong labels."""
    y = rng(seed).permutation(np.arange(n) % 3)
    X = rng(seed + 1).normal(size=(n, 5)).astype(np.float32)
    X[np.arange(n), y] += 5.0
    y[WRONG] = (y[WRONG] + 1) % 3
    return X, y


def network(outputs=3, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, outputs))


def context_of(**more):
    X, y = data()
    return SelectionContext(X, y, **({"model": network()} | more))


@pytest.mark.parametrize("seed", range(3))
def test_wrong_labels_are_hard(seed):
    scores = proxy_scores(context_of(seed=seed), epochs=15)
    worst = {name: np.argsort(-scores.hardness(name)) for name in ("el2n", "grand", "aum", "forgetting", "distance")}
    for name in ("el2n", "grand", "aum"):
        assert set(worst[name][:4]) == set(WRONG), name
    assert scores["aum"][WRONG].max() < 0 < np.median(scores["aum"])
    assert set(WRONG) <= set(worst["distance"][:12])
    assert scores["forgetting"][WRONG].min() > np.median(scores["forgetting"])
    assert scores["el2n"][WRONG].min() > 1 > np.median(scores["el2n"])


def test_forgetting_by_hand():
    """Five epochs of four samples of class 0: r is right, w wrong."""
    dynamics = Dynamics(4)
    for word in ("rwrr", "rwwr", "rwrr", "rwwr", "rwwr"):
        for row in rng().permutation(4):
            logits = np.array([[1.0, 0.0]]) if word[row] == "r" else np.array([[0.0, 1.0]])
            dynamics.update(np.array([row]), logits, np.array([0]))
    np.testing.assert_array_equal(dynamics.scores()["forgetting"], [0, 5, 2, 0])
    np.testing.assert_allclose(dynamics.scores()["aum"], [1.0, -1.0, -0.2, 1.0])


def test_margins_and_predictions_by_hand():
    logits, labels = np.log([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]), np.array([1, 2])
    np.testing.assert_allclose(label_margins(logits, labels), [np.log(0.3 / 0.5), np.log(8)])
    found = prediction_scores(logits, labels)
    np.testing.assert_allclose(found["el2n"], [np.sqrt(0.25 + 0.49 + 0.04), np.sqrt(0.01 + 0.01 + 0.04)])
    np.testing.assert_allclose(found["margin"], [0.2, 0.7])
    np.testing.assert_allclose(found["least-confidence"], [0.5, 0.2])
    entropy = [-sum(p * np.log(p) for p in row) for row in ([0.5, 0.3, 0.2], [0.1, 0.1, 0.8])]
    np.testing.assert_allclose(found["entropy"], entropy)


def test_scores_after_training_are_those_of_the_trained_copy():
    """One step of an Adam with a tiny rate leaves the model as it was, so the scores can be computed from it."""
    context = context_of(model=nn.Linear(5, 3))
    X, y = data()
    scores = proxy_scores(context, epochs=1, lr=1e-12, fresh=False)
    with torch.no_grad():
        logits = context.model(torch.as_tensor(X)).double().numpy()
    for name, expected in prediction_scores(logits, y).items():
        np.testing.assert_allclose(scores[name], expected, atol=1e-5)
    norms = np.linalg.norm(context.gradients().dense(), axis=1)
    np.testing.assert_allclose(scores["grand"], norms, rtol=1e-4)
    np.testing.assert_allclose(scores["aum"], label_margins(logits, y), atol=1e-5)
    np.testing.assert_allclose(scores["distance"], class_distances(X, y)["distance"], rtol=1e-4)


def test_the_model_and_the_random_states_stay_as_they_were():
    context = context_of()
    before, modes = copy.deepcopy(context.model.state_dict()), [m.training for m in context.model.modules()]
    torch.manual_seed(3)
    state, legacy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    with torch.no_grad():
        proxy_scores(context, epochs=2)
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], legacy)  # noqa: NPY002
    assert all(torch.equal(before[name], value) for name, value in context.model.state_dict().items())
    assert [m.training for m in context.model.modules()] == modes
    assert all(p.grad is None for p in context.model.parameters())


def test_scores_are_computed_once_and_follow_from_the_seed_alone():
    context = context_of()
    for name in NAMES:
        registry()[name].select(context, 30, rng())
    assert context.costs["scores"].calls == 1
    parts = PerClass(ByScore()).select(context, 30, rng())
    assert context.costs["scores"].calls == 1
    assert np.bincount(data()[1][parts.indices]).tolist() == [10, 10, 10]
    later = context_of(model=network(seed=9), epoch=20)  # a resumed run asks another model
    for name in SCORES:
        np.testing.assert_array_equal(proxy_scores(context)[name], proxy_scores(later)[name])
    other = context_of(seed=1)
    assert not np.array_equal(proxy_scores(context)["el2n"], proxy_scores(other)["el2n"])


def test_layers_that_are_frozen_keep_their_weights():
    model = network()
    model[0].requires_grad_(False)
    weights = model[0].weight.clone()
    proxy_scores(context_of(model=model), epochs=1)
    assert torch.equal(model[0].weight, weights)


def test_scores_are_saved_and_loaded(tmp_path):
    context = context_of()
    scores = proxy_scores(context)
    scores.save(tmp_path / "scores.npz")
    again = Scores.load(tmp_path / "scores.npz")
    assert set(again.columns) == set(SCORES)
    for name in SCORES:
        np.testing.assert_array_equal(again[name], scores[name])
    without = SelectionContext(*data())
    for given in (scores, tmp_path / "scores.npz", str(tmp_path / "scores.npz")):
        assert ByScore(scores=given).select(without, 20, rng()) == ByScore().select(context, 20, rng())
    with pytest.raises(InvalidInputError, match="scores has length 300, but X has 9 rows"):
        ByScore(scores=scores).select(SelectionContext(np.zeros((9, 5))), 3, rng())
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(InvalidInputError, match="holds none of"):
        Scores.load(tmp_path / "other.npz")
    np.savez(tmp_path / "nan.npz", el2n=np.array([np.nan, 1.0]))
    with pytest.raises(InvalidInputError, match=r"nan\.npz: scores must be finite"):
        Scores.load(tmp_path / "nan.npz")
    for columns in ({"aum": np.array([np.nan, 1.0])}, {"aum": np.zeros(2), "el2n": np.zeros(3)}, {"aum": np.eye(2)}):
        with pytest.raises(InvalidInputError, match="finite, one number for each sample"):
            Scores(columns)


class Tokens(nn.Module):
    """A head for every token, whose outputs are averaged: the layer's outputs are not the model's."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(torch.stack((x, 0.5 * x), dim=1)).mean(1)


@pytest.mark.parametrize("how", [{"model": Tokens()}, {"layer": "0"}], ids=["tokens", "hidden layer"])
def test_predictions_are_the_models_whatever_layer_is_used(how):
    context = context_of(**how)
    scores = proxy_scores(context)
    assert scores["entropy"].max() <= np.log(3) + 1e-6
    assert scores["el2n"].max() <= np.sqrt(2) + 1e-6
    assert np.corrcoef(scores["el2n"], -scores["aum"])[0, 1] > 0.5
    if "layer" in how:
        usual = proxy_scores(context_of())
        for name in ("el2n", "margin", "entropy", "least-confidence"):
            np.testing.assert_allclose(scores[name], usual[name], atol=1e-6)


class Attentive(nn.Module):
    def __init__(self, has_token):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(5, 1), nn.Linear(5, 3)
        if has_token:
            self.token = nn.Parameter(torch.zeros(5))

    def forward(self, x):
        return self.head(self.attention(x, x, x)[0] + getattr(self, "token", 0.0))


def test_attention_starts_anew_and_what_cannot_is_named(caplog):
    """The scores of a model do not depend on its present weights, except those that nothing can reset."""
    for has_token in (False, True):
        model = Attentive(has_token)
        before = proxy_scores(context_of(model=model), epochs=1)
        with torch.no_grad():
            for each in model.parameters():
                each.add_(1.0)
        after = proxy_scores(context_of(model=model), epochs=1)
        assert np.array_equal(before["el2n"], after["el2n"]) != has_token
        assert ("Attentive starts from its present weights" in caplog.text) == has_token


def test_hard_easy_and_moderate():
    hard = rng().permutation(101).astype(float)
    assert set(hard[ranked(hard, 5, "hard", rng())]) == {96, 97, 98, 99, 100}
    assert set(hard[ranked(hard, 5, "easy", rng())]) == {0, 1, 2, 3, 4}
    assert set(hard[ranked(hard, 5, "moderate", rng())]) == {48, 49, 50, 51, 52}
    tied = {tuple(np.sort(ranked(np.zeros(50), 5, "hard", rng(seed)))) for seed in range(5)}
    assert len(tied) == 5  # ties do not follow the order of the rows


def test_ccs_cuts_the_hardest_and_takes_as_many_of_each_stratum():
    hard = np.concatenate((rng(0).random(900), 1 + 9 * rng(1).random(100)))  # few hard rows in a wide range
    rows = ranked(hard, 100, "ccs", rng(2), cut=0.02, n_strata=10)
    assert len(set(rows.tolist())) == 100
    limit = np.sort(hard)[-20]
    assert hard[rows].max() < limit
    edges = np.linspace(hard.min(), hard[hard < limit].max(), 11)
    there, taken = (np.histogram(hard[each], edges)[0] for each in (hard < limit, rows))
    level = max(taken)
    assert np.all((taken == there) | (taken >= level - 1))  # all of a small stratum, else the same number
    assert set(ranked(hard, 1000, "ccs", rng(), cut=0.5).tolist()) == set(range(1000))  # the budget counts more
    assert len(ranked(np.ones(30), 7, "ccs", rng())) == 7


def test_rows_that_must_stay_and_batches():
    context = context_of()
    for keep in ("hard", "easy", "ccs", "moderate"):
        core = ByScore(keep=keep, include=[7, 9]).select(context, 12, rng())
        assert {7, 9} <= set(core.indices.tolist())
        assert core.size == 12
        np.testing.assert_allclose(core.weights, 25.0)
    with pytest.raises(InvalidInputError, match="PerBatch"):
        PerBatch(ByScore(), 5).select(context, 20, rng())


def test_numbers_have_residuals_and_norms_only():
    X, _ = data()
    targets = X[:, :1] * 2.0
    targets[5] += 30.0
    context = SelectionContext(X, targets, model=network(1), loss="mse")
    assert 5 in ByScore(score="el2n").select(context, 3, rng()).indices
    assert 5 in ByScore(score="grand").select(context, 3, rng()).indices
    with pytest.raises(InvalidInputError, match="no score 'margin'"):
        ByScore(score="margin").select(context, 3, rng())


def test_two_classes_with_one_output():
    X, y = data()
    context = SelectionContext(X, (y > 0).astype(np.float32), model=network(1), loss="bce")
    assert set(proxy_scores(context).columns) == set(SCORES)


def test_what_cannot_be_scored():
    X, y = data()
    with pytest.raises(InvalidInputError, match="model"):
        ByScore().select(SelectionContext(X, y), 5, rng())
    model = network()
    with pytest.raises(InvalidInputError, match="forward="):
        ByScore().select(SelectionContext(X, y, model=model, forward=model), 5, rng())
    for wrong in (ByScore(score="x"), ByScore(keep="x"), ByScore(cut=1.0)):
        with pytest.raises(InvalidInputError):
            wrong.select(context_of(), 5, rng())


ORACLES = {  # what each name takes first, from formulas of its paper: a large value of
    "EL2N": lambda s: s["el2n"],
    "GRAND": lambda s: s["grand"],
    "FORGETTING": lambda s: s["forgetting"],
    "MARGIN": lambda s: -s["margin"],
    "ENTROPY": lambda s: s["entropy"],
    "LEAST-CONFIDENCE": lambda s: s["least-confidence"],
    "AUM": lambda s: s["aum"],
    "MODERATE": lambda s: -np.abs(s["distance"] - np.median(s["distance"])),
}


@pytest.mark.parametrize("name", ORACLES)
def test_a_name_takes_what_its_paper_takes(name):
    for include in ([], [7, 9, 150]):
        context = context_of()
        value = ORACLES[name](proxy_scores(context)).astype(np.float64)
        strategy = replace(registry()[name], include=include)
        rows = strategy.select(context, 33, rng()).indices
        assert set(include) <= set(rows)
        taken, left = np.setdiff1d(rows, include), np.setdiff1d(np.arange(300), rows)
        assert value[taken].min() >= value[left].max()  # ties are broken at random
        assert value[taken].mean() > value[left].mean()


def test_ccs_cuts_the_hardest_tenth_of_all_samples_by_aum():
    context = context_of()
    hard = np.argsort(proxy_scores(context)["aum"])[:30]
    assert not set(hard) & set(registry()["CCS"].select(context, 60, rng()).indices)
    easy = np.argsort(proxy_scores(context)["aum"])[-50:]  # a tenth of the others would be 25
    rows = replace(registry()["CCS"], include=easy).select(context, 200, rng()).indices
    assert not set(hard) & set(rows)
    assert set(easy) <= set(rows)
