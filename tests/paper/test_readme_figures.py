"""Figures of the README that a benchmark measured are those that are stored."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORED = ROOT / "paper" / "benchmarks" / "results.json"


def test_the_forty_draws_of_digits_are_those_of_the_benchmark() -> None:
    if not STORED.exists():
        pytest.skip("source archives carry no results")
    tables = json.loads(STORED.read_text())["certificates"]["tables"]
    stored = next(table for table in tables if table["title"] == "digits, 40 draws")
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    for row in stored["rows"]:
        assert f"| {row[0]} | {row[1]} | {row[3]} |" in readme
    # the aims: mean of plain draws, reweighted, refined; and plain draws in a ball of twice the radius
    plain, reweighted, refined = (stored["rows"][i] for i in (1, 2, 3))
    assert float(plain[1]) <= 0.18
    assert float(reweighted[1]) <= 0.06
    assert float(refined[1]) <= 0.021
    assert float(plain[4]) < 1.0
