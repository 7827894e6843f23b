"""What used to pass in silence, or to fail late or in the words of PyTorch: results of other runs, odd inputs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from coresift import InvalidInputError, InvalidTypeError
from coresift.cli import main
from coresift.selection import ByScore, Glister, KCenter, Scores, SelectionContext, proxy_scores, registry
from coresift.training import CoresetSampler, sift, train

RNG = np.random.default_rng(0)
N = 2000  # NumPy shortens the text of arrays above 1,000 entries
X = RNG.normal(size=(N, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)


def network(n_out: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, n_out)


def trained(strategy: Any, **options: Any) -> Any:
    return train(network(), (X, Y), strategy, 10, **{"epochs": 1, "batch_size": 10, **options})


def doubled(X: Any) -> Any:
    return 2.0 * np.asarray(X)


def test_a_folder_belongs_to_the_settings_with_which_it_was_made(tmp_path: Path) -> None:
    features = RNG.normal(size=(N, 2))
    others = features.copy()
    others[N // 2] += 5.0  # in the part that NumPy leaves out
    file = tmp_path / "scores.npz"
    Scores({"el2n": features[:, 0]}).save(file)
    many = list(range(8)), list(range(1, 9))
    for place, (one, other) in enumerate(
        [
            (KCenter(features=features), KCenter(features=others)),
            (ByScore(scores=Scores({"el2n": features[:, 0]})), ByScore(scores=Scores({"el2n": others[:, 0]}))),
            (KCenter(include=many[0]), KCenter(include=many[1])),
            (KCenter(features=doubled), KCenter(features=np.asarray)),
            (ByScore(scores=str(file)), None),
        ]
    ):
        out = tmp_path / str(place)
        trained(one, out=out)
        trained(one, out=out)  # the same again is only read
        if other is None:  # the file has new scores
            Scores({"el2n": others[:, 0]}).save(file)
        with pytest.raises(InvalidInputError, match="holds another run: strategy was"):
            trained(other or one, out=out)


def test_a_run_that_fails_at_once_does_not_occupy_its_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="needs a GPU"):
        trained("random", amp="fp16", out=tmp_path / "run", device="cpu")
    assert trained("random", out=tmp_path / "run").subset_size == 10
    with pytest.raises(InvalidInputError, match="holds another run"):  # now there is something to keep
        trained("random", lr=0.5, out=tmp_path / "run")


def test_a_folder_that_is_refused_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(InvalidInputError, match="holds other files"):
        trained("random", out=tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]
    model = tmp_path / "model"  # of another library, whose files have the same names
    model.mkdir()
    for name in ("config.json", "data.json", "model.safetensors"):
        (model / name).write_text('{"model_type": "bert"}')
    with pytest.raises(InvalidInputError, match="not the configuration of a run"):
        trained("random", out=model)
    assert {each.name: each.read_text() for each in model.iterdir()} == dict.fromkeys(
        ("config.json", "data.json", "model.safetensors"), '{"model_type": "bert"}'
    )


def test_the_command_stops_early(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "-d", "digits", "-m", "mlp", "--width", "8", "--epochs", "3", "-s", "random", "--lr", "1e-30"]
    assert main([*command, "--early-stopping", "1", "--eval-every", "1", "--out", str(tmp_path / "run")]) == 0
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2  # the second is no better
    assert "must be" not in capsys.readouterr().err


def test_an_empty_test_set_is_refused_before_training() -> None:
    with pytest.raises(InvalidInputError, match="the test data has no samples"):
        trained("random", test=(X[:0], Y[:0]), on_epoch=lambda _: pytest.fail("it was trained"))


def test_outputs_that_are_nan_are_no_hits() -> None:
    broken = X[:100].copy()
    broken[:40] = np.nan
    found = trained("random", test=(broken, np.zeros(100, dtype=np.int64))).test
    whole = trained("random", test=(X[40:100], np.zeros(60, dtype=np.int64))).test
    assert np.isnan(found["loss"])
    assert found["accuracy"] == pytest.approx(0.6 * whole["accuracy"])


def test_the_state_of_another_sampler_is_refused() -> None:
    state = CoresetSampler((X, Y), "adaptive-random", 0.05).state_dict()
    with pytest.raises(InvalidInputError, match="budget = 100, but this sampler has 1000"):
        CoresetSampler((X, Y), "adaptive-random", 0.5).load_state_dict(state)
    with pytest.raises(InvalidInputError, match="strategy = 'adaptive-random', but this sampler has 'random'"):
        CoresetSampler((X, Y), "random", 0.05).load_state_dict(state)


@pytest.mark.parametrize("data", [(X.tolist(), Y.tolist()), (X, Y, Y), {"x": X, "y": Y}])
def test_containers_that_are_no_pair_of_arrays_are_refused(data: Any) -> None:
    with pytest.raises(InvalidTypeError, match="pass arrays X, y, or a data set"):
        CoresetSampler(data, "random", 0.5)


def test_a_loader_that_would_serve_nothing_is_refused() -> None:
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    with pytest.raises(InvalidInputError, match="no batch of 64 is left"):
        sift(DataLoader(data, batch_size=64, drop_last=True), network(), "random", 40)
    assert len(sift(DataLoader(data, batch_size=64, drop_last=True), network(), "random", 64)) == 1


def test_ignored_labels_of_the_validation_split_are_ignored() -> None:
    wide = network(200)
    y_val = np.where(np.arange(200) % 2, Y[:200], -100)
    picks = [
        Glister(eta=1.0, epsilon=None)
        .select(SelectionContext(X[200:], Y[200:], model=wide, loss=loss, X_val=X[:200], y_val=y_val), 20, RNG)
        .indices.tolist()
        for loss in ("cross_entropy", nn.CrossEntropyLoss())
    ]
    assert picks[0] == picks[1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: trained(KCenter), "must be a name, or an object with a method select"),
        (lambda: trained(None), "strategy = None must be a name"),
        (lambda: CoresetSampler((X, Y), 3, 0.5), "strategy = 3 must be a name"),
        (lambda: train("mlp", (X, Y), "random", 10), "model = 'mlp' must be of type Module"),
        (lambda: SelectionContext(X, Y, model=nn.Linear).gradients(), "must be a torch.nn.Module"),
        (lambda: SelectionContext(X[:0], Y[:0]), "X has no rows"),
        (lambda: SelectionContext(X, Y, X_val=X[:0], y_val=Y[:0]), "X_val has no rows"),
        (lambda: trained(ByScore(scores=X[:, 0])), "must be Scores, or the path"),
        (lambda: Scores({"el2n": np.array(["a"])}), "el2n"),
        (lambda: Scores({}), "scores must be finite"),
        (lambda: proxy_scores(SelectionContext(X, Y, model=network()), epochs=0), "epochs = 0 must be"),
        (lambda: proxy_scores(SelectionContext(X, Y, model=network()), lr=-1.0), "lr = -1"),
        (
            lambda: train(network(), (X, np.eye(2, dtype=np.int64)[Y]), "random", 10, epochs=1),
            r"the loss of outputs \(10, 2\) and targets \(10, 2\), torch.int64 failed: ",
        ),
        (lambda: train(network(), (X, np.where(Y, np.nan, 0.0)), "random", 10, epochs=1), "y has NaN"),
        (
            lambda: train(network(1), (X, Y + 1), "random", 10, epochs=1, loss="bce"),
            "y has 1 to 2, but the loss is for",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(call: Any, message: str) -> None:
    with pytest.raises((InvalidInputError, InvalidTypeError), match=message):
        call()


@pytest.mark.parametrize(
    "name", ["HERDING", "FACILITY-LOCATION", "GRAPH-CUT", "COVER", "FIXED-CORESET", "K-CENTER", "RBF"]
)
def test_nan_is_reported_in_the_row_of_the_data_that_were_given(name: str) -> None:
    broken = X[:60].copy()
    broken[7, 2] = np.nan
    with pytest.raises(InvalidInputError, match="X contains NaN in column 2, row 7"):
        registry()[name].select(SelectionContext(broken, Y[:60]), 10, np.random.default_rng(0))
