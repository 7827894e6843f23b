"""The table of methods: all of the registry, the same on the page and in the command, a paragraph each."""

import json
import re
from pathlib import Path

import pytest

from coresift.cli import main
from coresift.selection import registry
from coresift.selection.names import methods

PAGE = (Path(__file__).parents[2] / "docs" / "all-methods.md").read_text(encoding="utf-8")
HEADER, METHODS = list(methods()[0])[:-1], [list(method.values())[:-1] for method in methods()]
NAMES = [method["name"] for method in methods()]
BUILT_IN = registry()  # before other tests register their own


def test_the_table_has_every_name_once() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert set(NAMES) == {name for name in BUILT_IN if not name.endswith("-WARM")} | {"...-WARM"}
    assert all(len(method) == len(HEADER) and all(method) for method in METHODS)


def test_the_page_has_the_table_and_a_paragraph_for_each_method() -> None:
    rows = (HEADER, ["---"] * len(HEADER), *METHODS)
    assert "\n".join("| " + " | ".join(row) + " |" for row in rows) in PAGE
    paragraphs = [" ".join(text.split()) for text in PAGE.split("\n\n") if re.match(r"\*\*[A-Z0-9.-]+\*\* ", text)]
    assert paragraphs == [method["about"] for method in methods()]
    assert [re.match(r"\*\*(.+?)\*\*", text)[1] for text in paragraphs] == NAMES


def test_the_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["strategies"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in NAMES)
    assert max(map(len, printed.splitlines())) <= 80
    assert main(["strategies", "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == NAMES


def test_the_command_prints_one_method_with_its_paragraph(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["strategies", "graph_cut"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "samples like the rest of their class" in printed
    assert "a smaller trade_off spreads them out" in printed
    assert "HERDING" not in printed
    assert main(["strategies", "ccs-warm", "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["CCS", "...-WARM"]
    assert main(["strategies", "herdin"]) != 0
    assert "'herdin' is unknown; did you mean HERDING?" in " ".join(capsys.readouterr().err.split())
