"""``coresift train`` and ``coresift datasets`` as their users meet them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from coresift.cli import main
from coresift.training.checkpoint import read_tensors

torch.set_num_threads(1)
QUICK = ["train", "--dataset", "digits", "--model", "mlp", "--width", "16", "--epochs", "3", "--select-every", "2"]


def test_a_run_its_files_and_its_second_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    command = [*QUICK, "--strategy", "adaptive-random", "--budget", "10%", "--seed", "3", "--out", str(out)]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert re.search(r"adaptive-random: accuracy [0-9.]+% on the test set, from 144 samples in 3 epochs", printed.out)
    assert "selection" in printed.out
    config = json.loads((out / "config.json").read_text())
    assert config["about"]["options"]["seed"] == config["seed"] == 3
    assert [json.loads(line)["epoch"] for line in (out / "metrics.jsonl").read_text().splitlines()] == [1, 2, 3]
    weights, _ = read_tensors(out / "model.safetensors")
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}

    for again in (command, ["train", "--resume", str(out)]):
        assert main(again) == 0
        assert "the run is finished" in capsys.readouterr().out
        assert before == {path: path.stat().st_mtime_ns for path in out.iterdir()}

    assert main([*command[:-1], str(tmp_path / "twin"), "-q"]) == 0
    twin, _ = read_tensors(tmp_path / "twin" / "model.safetensors")
    assert all(torch.equal(weights[name], twin[name]) for name in weights)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["rbf", "ccs", "facility-location"])
def test_an_interrupted_run_goes_on(
    strategy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(metrics: dict[str, int]) -> None:
        if metrics["epoch"] == 2:
            raise KeyboardInterrupt

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert main([*QUICK, "-s", strategy, "-q", "--out", str(whole)]) == 0
    with monkeypatch.context() as patch:
        patch.setattr("coresift.training.loop.summary", stop)
        assert main([*QUICK, "-s", strategy, "--out", str(cut), "--checkpoint-seconds", "0"]) == 130
    assert "coresift train --resume" in capsys.readouterr().err
    assert len((cut / "metrics.jsonl").read_text().splitlines()) == 2
    assert main(["train", "--resume", str(cut), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["n_epochs"] == 3
    (ours, _), (theirs, _) = (read_tensors(run / "model.safetensors") for run in (cut, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_file_of_options_and_the_line_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").write_text(
        'dataset = "digits"\nmodel = "mlp"\nepochs = 2\nbudget = "5%"\nselect-every = 1\n'
    )
    arguments = ["train", "--config", str(tmp_path / "run.toml"), "--epochs", "1", "--out", str(tmp_path / "run")]
    assert main(arguments) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["epochs"], config["select_every"], config["budget"]) == (1, 1, 72)
    (tmp_path / "bad.toml").write_text("nosuch = 1\n")
    assert main(["train", "--config", str(tmp_path / "bad.toml")]) == 2
    assert "unknown option 'nosuch'" in capsys.readouterr().err


def test_a_table_of_the_user_with_numbers_as_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3)).astype(np.float32)
    np.savez(tmp_path / "own.npz", X=X, y=X[:, 0] * 2)
    arguments = ["--dataset", str(tmp_path / "own.npz"), "--model", "mlp", "--epochs", "2", "--budget", "20"]
    assert main(["train", *arguments, "--out", str(tmp_path / "run")]) == 0
    assert re.search(r"RMS error [0-9.]+ on the test set, from 20 samples", capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "--dataset NAME is needed"),
        (["--dataset", "digits"], 2, "--out FOLDER is needed"),
        (["--dataset", "nosuch", "--out", "run"], 1, "nosuch"),
        (["--dataset", "digits", "--strategy", "nosuch", "--out", "run"], 2, "strategy 'nosuch' is unknown"),
        (["--dataset", "digits", "--model", "nosuch", "--out", "run"], 1, "model = 'nosuch'"),
        (["--dataset", "digits", "--model", "no.such:thing", "--out", "run"], 1, "no.such"),
        (["--dataset", "digits", "--budget", "many", "--out", "run"], 2, "budget = 'many'"),
        (["--dataset", "digits", "--budget", "0%", "--out", "run"], 2, "budget"),
        (["--dataset", "digits", "--epochs", "0", "--out", "run"], 2, "epochs"),
        (["--dataset", "digits", "--lr", "-1", "--out", "run"], 2, "lr = -1.0"),
        (["--dataset", "digits", "--device", "abacus", "--out", "run"], 1, "device = 'abacus'"),
        (["--dataset", "mnist", "--data-dir", "empty", "--out", "run"], 1, "train-images-idx3-ubyte.gz"),
        (["--resume", "nothing"], 1, "no such file"),
        (["--resume", "nothing", "--out", "other"], 2, "it does not go with --out"),
        (["--config", "nothing.toml"], 2, "no such file"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"coresift: error: .+\n", err)
    assert words in err


@pytest.mark.slow
def test_resume_refuses_another_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "-q", "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["train", "--resume", str(tmp_path / "run"), "--lr", "0.5"]) == 2
    assert "--lr 0.5: the run was started with 0.01" in capsys.readouterr().err
    assert main([*QUICK, "--lr", "0.5", "--out", str(tmp_path / "run")]) == 1
    assert "holds another run: lr was 0.01 and is now 0.5" in capsys.readouterr().err


def test_datasets_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "--data-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert all(
        name in out for name in ("digits", " mnist", "fashion-mnist", "cifar10", "cifar100", "imagenet", "covtype")
    )
    assert main(["datasets", "--data-dir", str(tmp_path), "--json"]) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert found["digits"]["is_present"]
    assert not found["mnist"]["is_present"]
    assert str(tmp_path) in found["mnist"]["where"]


WITHOUT_TORCH = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
from coresift.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_without_torch_the_extra_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, "train", "-d", "digits", "-o", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    text = 'coresift.training needs torch: install coresift[train] (in a clone: pip install ".[train]")'
    assert done.stderr == f"coresift: error: {text}\n"


@pytest.mark.slow
def test_a_resumed_run_minds_what_is_said_and_not_how_data_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    """Options on the line are compared, also those that equal the default; the folder is another one."""

    def stop(metrics: dict[str, int]) -> None:
        if metrics["epoch"] == 2:
            raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("data.npz", X=rng.normal(size=(60, 3)), y=np.arange(60) % 2)
    command = ["train", "-d", "data.npz", "-m", "mlp", "--width", "8", "-s", "adaptive-random", "--epochs", "3"]
    with monkeypatch.context() as patch:
        patch.setattr("coresift.training.loop.summary", stop)
        assert main([*command, "-j", "2", "--out", "run", "--checkpoint-seconds", "0"]) == 130
    assert main(["train", "--resume", "run", "--epochs", "200"]) == 2  # the default, and not the run's
    assert "--epochs 200: the run was started with 3" in capsys.readouterr().err
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["train", "--resume", "../run", "--epochs", "3"]) == 0


def test_whole_numbers_are_targets_where_the_task_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3))
    table = np.column_stack([x, np.rint(50 * x[:, 0])])
    file, out = tmp_path / "prices.csv", tmp_path / "run"
    np.savetxt(file, table, delimiter=",", header="a,b,c,price", comments="", fmt=["%f"] * 3 + ["%d"])
    given = ["train", "-d", str(file), "--label", "price", "-m", "mlp", "--epochs", "2", "--lr", "0.0001"]
    assert main([*given, "--task", "regression", "-o", str(out)]) == 0
    assert "RMS error" in capsys.readouterr().out
    assert json.loads((out / "config.json").read_text())["about"]["options"]["task"] == "regression"
    assert main([*given, "--task", "guess", "-o", str(tmp_path / "no")]) == 2
    assert "guess" in capsys.readouterr().err


def test_an_accuracy_that_hides_classes_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [285, 15])
    np.savez(tmp_path / "rare.npz", X=rng.normal(size=(300, 3)), y=y)  # nothing tells the rare class
    np.savez(tmp_path / "even.npz", X=np.repeat([[0.0], [5.0]], 150, axis=0), y=np.repeat([0, 1], 150))
    for name, is_told in (("rare", True), ("even", False)):
        given = ["train", "-d", str(tmp_path / f"{name}.npz"), "-m", "mlp", "--width", "8", "--epochs", "10"]
        assert main([*given, "-b", "50%", "-o", str(tmp_path / name)]) == 0
        assert ("macro-F1" in capsys.readouterr().out) == is_told
