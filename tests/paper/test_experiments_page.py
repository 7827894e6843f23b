"""The tables of docs/experiments.md are those of the committed records."""

import pytest

from paper.bench.store import RESULTS
from paper.benchmarks.experiments_page import PAGE, filled, grid, seconds, tables


def test_the_page_says_what_the_records_say():
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page, tables(RESULTS)) == page, "run python -m paper benchmark experiments-page"


def test_a_table_is_put_in_its_place_and_nothing_else_changes():
    page = "a\n<!-- x -->\nold\n<!-- end of x -->\nb\n"
    once = filled(page, {"x": ["| new |"]})
    assert once == "a\n<!-- x -->\n\n| new |\n\n<!-- end of x -->\nb\n"
    assert filled(once, {"x": ["| new |"]}) == once
    with pytest.raises(ValueError, match="needs one place for the table 'y'"):
        filled(page, {"y": []})


def test_what_was_not_run_is_shown_as_missing():
    from paper.bench.summary import summarise
    from tests.paper.bench.records import record, small_protocol

    protocol = small_protocol()
    runs = [cell for cell in protocol.runs() if cell.method == "RBF" and cell.select_every == 20]
    summary = summarise([record(protocol, cell) for cell in runs if cell.budget == 0.01], protocol)
    lines = grid(summary, [("every 20 epochs", ("RBF", "GLISTER"))], seconds)
    assert lines[2:] == ["| every 20 epochs | RBF | 14 (3) | — | 3, 0 |", "|  | GLISTER | — | — | 0 |"]
