"""Every module of the laboratory can be imported, and every benchmark is a command."""

import importlib
import json
import pkgutil

import pytest

import paper
from paper.__main__ import main
from paper.benchmarks import BENCHMARKS, measure

MODULES = [each.name for each in pkgutil.walk_packages(paper.__path__, "paper.") if "__main__" not in each.name]


@pytest.mark.parametrize("name", MODULES)
def test_modules_import_without_the_packages_they_compare_with(name: str) -> None:
    importlib.import_module(name)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_benchmarks_are_commands(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", name, "--help"]) == 0
    assert f"benchmark {name}" in capsys.readouterr().out


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", "nosuch"]) == 2
    assert "nosuch" in capsys.readouterr().err


def test_the_page_of_benchmarks_is_what_is_stored() -> None:
    kept = json.loads(measure.RESULTS.read_text())
    assert measure.page(kept) == measure.PAGE.read_text()
