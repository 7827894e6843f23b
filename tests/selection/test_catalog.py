"""The table of methods: all of the registry, the same on the page and in the command, a paragraph each."""

import json
import re
from pathlib import Path

import pytest

from coresift.cli import main
from coresift.selection import registry
from coresift.selection.names import methods

PAGE = (Path(__file__).parents[2] / "docs" / "all-methods.md").read_text(encoding="utf-8")
HEADER, METHODS = list(methods()[0]), [list(method.values()) for method in methods()]
NAMES = [method["name"] for method in methods()]
BUILT_IN = registry()  # before other tests register their own


def test_the_table_has_every_name_once() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert set(NAMES) == {name for name in BUILT_IN if not name.endswith("-WARM")} | {"...-WARM"}
    assert all(len(method) == len(HEADER) and all(method) for method in METHODS)


def test_the_page_has_the_table_and_a_paragraph_for_each_method() -> None:
    rows = (HEADER, ["---"] * len(HEADER), *METHODS)
    assert "\n".join("| " + " | ".join(row) + " |" for row in rows) in PAGE
    assert re.findall(r"^\*\*([A-Z0-9.-]+)\*\*", PAGE, re.MULTILINE) == NAMES


def test_the_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["strategies"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in NAMES)
    assert max(map(len, printed.splitlines())) <= 80
    assert main(["strategies", "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == NAMES
