"""The demo: its numbers are those of the library, and its sentence follows them."""

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from sklearn.datasets import load_digits

from coresift import RBFCoreset
from examples import demo, demo_models, demo_training as _demo_training
from examples.demo import main


def comparison(coreset: list[float], uniform: list[float]) -> demo.Comparison:
    return demo.Comparison(
        size=2,
        total=0.8,
        uniform_factor=2.5,
        errors={
            "coreset": demo.Errors(np.ones(len(coreset)), np.array(coreset)),
            "uniform": demo.Errors(np.ones(len(uniform)), np.array(uniform)),
        },
    )


@pytest.mark.parametrize(
    ("coreset", "uniform", "words"),
    [
        ([0.10, 0.12, 0.11], [0.11, 0.10, 0.12], "as good as"),
        ([0.10, 0.10, 0.10], [0.10, 0.10, 0.10], "as good as"),
        ([0.10, 0.12, 0.11], [0.31, 0.30, 0.32], "worse than"),
        ([0.31, 0.30, 0.32], [0.10, 0.12, 0.11], "better than"),
        ([0.10, 0.90, 0.11], [0.31, 0.70, 0.95], "as good as"),  # too scattered to tell
    ],
)
def test_verdict(coreset: list[float], uniform: list[float], words: str) -> None:
    assert words in comparison(coreset, uniform).verdict()


@pytest.mark.slow
def test_comparison_on_digits() -> None:
    X = load_digits().data
    steps: list[None] = []
    found = demo.compare_with_uniform(X, fraction=0.1, n_draws=2, seed=0, on_step=lambda: steps.append(None))
    assert found.size == 180
    sensitivities = RBFCoreset(radius=1.0, random_state=0).fit(X).sensitivities_
    assert found.total == pytest.approx(sensitivities.sum())
    assert found.uniform_factor == pytest.approx(sensitivities.max() / sensitivities.mean())
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(demo.render(found))
    (totals,) = [line for line in console.export_text().splitlines() if "total sensitivity" in line]
    assert f"{1797 * sensitivities.max():.2f}" in totals.split()
    assert len(steps) == 2 * len(demo.WAYS)
    for errors in found.errors.values():
        assert errors.found.shape == errors.guaranteed.shape == (2,)
        assert np.all((errors.found > 0.001) & (errors.found < errors.guaranteed) & (errors.guaranteed < 1.0))
    assert found.errors["coreset"].found[0] != found.errors["coreset"].found[1]  # the draws differ
    mean = {way: errors.guaranteed.mean() for way, errors in found.errors.items()}
    assert mean["refined"] < mean["reweighted"] < min(mean["coreset"], mean["uniform"])


@pytest.mark.slow
def test_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--draws", "2", "--no-train", "--no-models"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for words in (
        "1797 images",
        "180",
        "total sensitivity",
        "found error, mean",
        "guaranteed error, highest",
        "Uniform sampling is",
    ):
        assert words in out
    assert max(map(len, out.splitlines())) <= 100
    assert main(["--draws", "2", "--no-train", "--no-models"]) == 0
    assert capsys.readouterr().out == out  # the same seed, the same figures
    assert main(["--draws", "2", "--seed", "1", "--no-train", "--no-models"]) == 0
    assert capsys.readouterr().out != out


@pytest.mark.slow
def test_keeping_everything_errs_by_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--draws", "2", "--fraction", "1", "--no-train", "--no-models"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "error" in line and "highest" in line]
    assert len(rows) == 2
    assert all(row.count("0.000") == len(demo.WAYS) for row in rows)


@pytest.mark.slow
def test_training_prints_a_table_and_writes_a_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    figure = tmp_path / "demo.png"
    assert main(["--no-models", "--draws", "2", "--epochs", "5", "--figure", str(figure)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for words in (
        "test accuracy",
        "speed-up",
        "full",
        "random",
        "adaptive-random",
        "rbf",
        "adaptive-coreset-seen",
        f"Wrote {figure}.",
    ):
        assert words in out
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("figure", ["demo.pdf", "nosuch/demo.png"])
def test_a_figure_that_cannot_be_written_is_said_first(figure: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--figure", figure]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert figure in err


def test_the_table_compares_with_all_data() -> None:
    lines = [{"val_accuracy": 0.5, "seconds": {"selection": 1.0, "training": 1.0}}]
    found = [
        _demo_training.Trained("full", 100, [0.9], [20.0], [lines]),
        _demo_training.Trained("random", 10, [0.8, 0.6], [1.5, 2.5], [lines, lines]),
    ]
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(_demo_training.render(found))
    text = console.export_text()
    assert "70.0% +- 14.1" in text
    assert "10.0 x" in text


def test_a_model_of_one_percent_is_close_and_certified() -> None:
    whole, uniform, ours = demo_models.compare(20_000, 4, seed=0)
    assert (whole.n_rows, uniform.n_rows, ours.n_rows) == (20_000, 200, 200)
    assert ours.excess < 0.02 * uniform.excess
    for each in (uniform, ours):
        assert each.excess <= each.certified * (1 + 1e-9) + whole.certified
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(demo_models.render([whole, uniform, ours]))
    text = console.export_text()
    assert f"{ours.certified:.1e}" in text
    assert "20,000" in text
