"""Every example runs as it stands, and learns."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, tmp_path: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def accuracies(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"([0-9.]+)%", text)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "needs"), [("own_loop", "torch"), ("lightning_example", "lightning"), ("accelerate_example", "accelerate")]
)
def test_loops_learn_from_a_tenth(name: str, needs: str, tmp_path: Path) -> None:
    try:
        __import__("importlib.metadata").metadata.version(needs)
    except ModuleNotFoundError:
        pytest.skip(f"{needs} is not installed")
    out = run(name, tmp_path)
    assert accuracies(out)[0] > 90  # 10 by chance; about 96 here
    if name == "lightning_example":
        assert "epochs seen by the sampler: 30" in out


@pytest.mark.parametrize(
    ("name", "needs", "least"),
    [
        ("images", "torch", 90),  # 10 by chance
        ("text", "torch", 60),
        ("tokens", "torch", 90),
        ("multi_label", "torch", 90),
        ("regression", "torch", 80),
        ("segmentation", "torch", 85),
        ("hugging_face_trainer", "transformers", 90),
        ("tensorboard_example", "tensorboard", 85),
    ],
)
@pytest.mark.filterwarnings("ignore")  # of transformers and TensorBoard
def test_examples_of_training_learn(
    name: str, needs: str, least: float, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    pytest.importorskip(needs)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{name}.py"))
    assert accuracies(capsys.readouterr().out)[-1] > least


def test_twelve_lines_are_twelve() -> None:
    text = (EXAMPLES / "own_loop.py").read_text()
    lines = text[text.index("sampler = CoresetSampler") :].splitlines()
    assert len(lines) <= 12


@pytest.mark.slow
def test_weights_go_into_scikit_learn(tmp_path: Path) -> None:
    whole, ours = accuracies(run("sklearn_example", tmp_path))
    assert whole > 90
    assert ours > 80


@pytest.mark.slow
def test_excess_loss_falls_with_the_size(tmp_path: Path) -> None:
    lines = run("linear_models", tmp_path).splitlines()
    first, *_, last = [[float(word.replace(",", "")) for word in line.split()] for line in lines[2:-1]]
    for _, uniform, two_step, calibrated, certified in (first, last):
        assert calibrated <= two_step < uniform
        assert certified >= calibrated
    assert last[3] < 0.01 * first[3]
    assert (tmp_path / "linear-models.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "needs"), [("optuna_example", "optuna"), ("ray_tune_example", "ray.tune")])
def test_tuners_prune_on_nested_coresets(name: str, needs: str, tmp_path: Path) -> None:
    pytest.importorskip(needs)
    out = run(name, tmp_path)
    found = re.search(r"(\d+) of (\d+) trials", out)
    assert found is not None
    assert 0 < int(found[1]) < int(found[2])
    assert accuracies(out)[0] > 97
