"""The demo: its numbers are those of the library, and its sentence follows them."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from coresift import RBFCoreset
from coresift.cli import demo, main


def comparison(coreset: list[float], uniform: list[float]) -> demo.Comparison:
    return demo.Comparison(
        n_samples=4,
        n_features=1,
        size=2,
        total=0.8,
        uniform_factor=2.5,
        coreset_errors=np.array(coreset),
        uniform_errors=np.array(uniform),
        guarantee=None,
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


def test_comparison_on_digits() -> None:
    X = load_digits().data
    steps: list[None] = []
    found = demo.compare_with_uniform(X, fraction=0.1, n_draws=2, seed=0, on_step=lambda: steps.append(None))
    assert (found.n_samples, found.n_features, found.size) == (1797, 64, 180)
    sensitivities = RBFCoreset(radius=1.0, random_state=0).fit(X).sensitivities_
    assert found.total == pytest.approx(sensitivities.sum())
    assert found.uniform_factor == pytest.approx(sensitivities.max() / sensitivities.mean())
    assert found.uniform_total == pytest.approx(1797 * sensitivities.max())
    assert found.coreset_errors.shape == found.uniform_errors.shape == (2,)
    assert len(steps) == 4
    # A tenth of the points errs by several per cent somewhere, and by nothing absurd.
    for errors in (found.coreset_errors, found.uniform_errors):
        assert np.all((errors > 0.005) & (errors < 1.0))
    assert found.coreset_errors[0] != found.coreset_errors[1]  # the draws differ


def test_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--draws", "2"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for words in (
        "180 of 1797",
        "total sensitivity",
        "worst error found",
        "guaranteed",
        "Uniform sampling is",
    ):
        assert words in out
    assert max(map(len, out.splitlines())) <= 100
    assert main(["demo", "--draws", "2"]) == 0
    assert capsys.readouterr().out == out  # the same seed, the same figures
    assert main(["demo", "--draws", "2", "--seed", "1"]) == 0
    assert capsys.readouterr().out != out


def test_keeping_everything_errs_by_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--draws", "2", "--fraction", "1"]) == 0
    assert "0.000 (0.000 to 0.000)" in capsys.readouterr().out
