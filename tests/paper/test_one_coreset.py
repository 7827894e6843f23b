"""One coreset for all networks: fitted once, drawn as the strategy draws, resumed without running anything again."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from coresift import training
from coresift._errors import InvalidInputError
from coresift.cli.app import Settings
from coresift.data import load_dataset
from coresift.selection import RBF, SelectionContext
from paper import one_coreset
from paper.commands.one_coreset import one_coreset as command
from paper.one_coreset import METHODS, VECTOR, Drawn, Method, Network, Outcome, Plan, Run, fit, measure, networks
from paper.one_coreset_report import as_json, as_markdown, cells

PLAN = Plan((Network("mlp", 2, width=8), Network("mlp", 1, width=4)), budget=40, n_seeds=2)


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("one") / "coreset"


@pytest.fixture(scope="module")
def outcome(digits, folder: Path) -> Outcome:
    seen: list[Run] = []
    found = measure(digits, PLAN, folder, seen.append)
    assert seen == found.runs
    return found


@pytest.mark.slow
def test_every_combination_is_run_once(outcome: Outcome, folder: Path) -> None:
    keys = {(run.network, run.method, run.seed) for run in outcome.runs}
    assert len(keys) == len(outcome.runs) == PLAN.n_runs == 2 * len(METHODS) * 2
    assert len(list((folder / "runs").iterdir())) == PLAN.n_runs
    assert {run.epochs for run in outcome.runs if run.network == "MLP, width 8"} == {2}
    assert all(0 <= run.accuracy <= 1 for run in outcome.runs)


def test_methods_select_as_often_as_they_say(outcome: Outcome, folder: Path) -> None:
    def selections(name: str) -> list[bool]:
        lines = (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["selected"] for line in lines]

    assert selections("mlp-8-rbf-0-0") == [True, False]
    assert selections("mlp-8-rbf-1-0") == [True, True]


def test_what_is_finished_is_only_read(outcome: Outcome, digits, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("fitted or trained again")

    monkeypatch.setattr(one_coreset, "fit", never)
    monkeypatch.setattr(training.CoresetSampler, "set_epoch", never)
    assert measure(digits, PLAN, folder) == outcome


def test_a_run_that_is_missing_is_run_again_with_the_same_sensitivities(outcome: Outcome, digits, folder: Path) -> None:
    lost = folder / "runs" / "mlp-4-rbf-20-1"
    for file in lost.iterdir():
        file.unlink()
    again = measure(digits, PLAN, folder)
    assert [run.accuracy for run in again.runs] == [run.accuracy for run in outcome.runs]
    assert again.fit_seconds == outcome.fit_seconds


def test_draws_are_those_of_the_strategy(digits) -> None:
    X = digits.train.x.reshape(len(digits.train), -1)
    context = SelectionContext(X)
    own = RBF(method="keys")  # as the stored runs drew
    expected = own.select(context, 50, np.random.default_rng(3))
    found = Drawn(own._fitted(context).sensitivities_).select(context, 50, np.random.default_rng(3))
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.weights, expected.weights)
    with pytest.raises(InvalidInputError, match="sensitivities are of"):
        Drawn(np.ones(7)).select(context, 50, np.random.default_rng(3))


def test_another_vector_is_another_run(digits) -> None:
    values = fit(digits, 0).values
    assert repr(Drawn(values)) == repr(Drawn(values.copy()))
    assert repr(Drawn(values)) != repr(Drawn(values * (1 + 1e-9)))


def test_the_first_network_pays_for_the_fit(outcome: Outcome) -> None:
    lines = {(line.network, line.method): line for line in outcome.lines}
    for (network, method), line in lines.items():
        draws = np.mean([run.selection for run in outcome.runs if (run.network, run.method) == (network, method)])
        pays = network == "MLP, width 8" and method.startswith("RBF")
        assert line.selection == pytest.approx(draws + pays * outcome.fit_seconds)
        assert line.n_seeds == 2
        assert line.lowest <= line.accuracy <= line.highest


def test_reports_hold_every_line(outcome: Outcome) -> None:
    text = as_markdown(outcome)
    for line in outcome.lines:
        assert f"| {line.network} | {line.epochs} | {line.method} | {line.accuracy:.2%} |" in text
    found = json.loads(as_json(outcome))
    assert len(found["table"]) == len(outcome.lines) == 2 * len(METHODS)
    assert len(found["runs"]) == PLAN.n_runs
    assert found["size"] == 40


def test_names() -> None:
    assert Method("RBF", 0).title == "RBF, fixed"
    assert Method("RBF", 20).title == "RBF, R = 20"
    assert [network.title for network in networks()] == ["LeNet-5", "MLP", "ResNet-18, width 8"]
    assert [network.epochs for network in networks(10, 5)] == [10, 10, 5]


def test_a_damaged_vector_is_named(digits, tmp_path: Path) -> None:
    (tmp_path / VECTOR).write_bytes(b"no zip")
    with pytest.raises(InvalidInputError, match=r"sensitivities\.npz: cannot be read, or is damaged"):
        measure(digits, PLAN, tmp_path)
    np.savez(tmp_path / VECTOR, values=np.ones(3), bound=np.array("cells"), seconds=np.array(1.0))
    with pytest.raises(InvalidInputError, match="choose another folder"):
        measure(digits, PLAN, tmp_path)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"dataset": "nosuch"}, "dataset = 'nosuch' is not one of"),
        ({"dataset": "mnist"}, "is not in"),
        ({"dataset": "digits", "budget": "150%"}, "budget = 1.5 must be"),
        ({"dataset": "digits", "budget": "5000"}, "budget = 5000 must be between 1 and"),
        ({"dataset": "digits", "budget": "some"}, "budget = 'some'"),
    ],
)
def test_bad_input_is_refused_before_the_work(options: dict, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        command(Settings(), out=tmp_path / "out", data_dir=tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_command_prints_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(one_coreset, "networks", lambda epochs, resnet_epochs: (Network("mlp", epochs, 8),))
    command(Settings(), out=tmp_path / "out", dataset="digits", budget="2%", epochs=1, seeds=1)
    printed = capsys.readouterr().out
    assert "MLP, width 8, 1 epochs" in printed
    assert "One fit" in printed
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "one-coreset.json",
        "one-coreset.md",
        "runs",
        VECTOR,
    }
    command(Settings(), out=tmp_path / "out", dataset="digits", budget="2%", epochs=1, seeds=1, as_json=True)
    assert json.loads(capsys.readouterr().out)["format"] == "coresift.one-coreset"


ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "paper" / "results" / "one-coreset" / "one-coreset.json"


@pytest.mark.skipif(not RESULTS.exists(), reason="source archives carry no results")
def test_the_page_quotes_the_committed_table() -> None:
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    runs = [Run(**run) for run in kept.pop("runs")]
    table = kept.pop("table")
    assert kept.pop("format") == "coresift.one-coreset"
    lines = Outcome(**kept, runs=runs).lines
    assert [asdict(line) for line in lines] == table
    assert len(lines) == 3 * len(METHODS)
    page = (ROOT / "docs" / "gradients.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if f"| {' | '.join(cells(line))} |" not in page] == []
