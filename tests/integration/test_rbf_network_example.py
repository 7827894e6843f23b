"""The example script runs, and what it prints is what it says."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "rbf_network.py"


@pytest.mark.slow
def test_the_example_trains_better_on_a_coreset_than_on_uniform_points(capsys):
    found = runpy.run_path(str(SCRIPT))["main"](seed=0)
    printed = capsys.readouterr().out
    assert f"trained on 400 of a coreset      {found['coreset']:.4f}" in printed
    assert found["coreset"] < 0.8 * found["uniform"]
    assert 0 <= found["relative"] <= found["worst"] <= 1.5
