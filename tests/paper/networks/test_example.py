"""The example runs, and what it prints is what it says; so do the examples of the docstrings."""

import doctest
import importlib

import pytest

from paper.networks import example


@pytest.mark.slow
def test_the_example_trains_better_on_a_coreset_than_on_uniform_points(capsys):
    found = example.main(seed=0)
    printed = capsys.readouterr().out
    assert f"trained on 400 of a coreset      {found['coreset']:.4f}" in printed
    assert found["coreset"] < 0.8 * found["uniform"]
    assert 0 <= found["relative"] <= found["worst"] <= 1.5


@pytest.mark.slow
@pytest.mark.parametrize("module", ["coreset", "models"])
def test_examples_of_docstrings_run(module):
    failed, attempted = doctest.testmod(importlib.import_module(f"paper.networks.{module}"))
    assert (failed, attempted > 0) == (0, True)
