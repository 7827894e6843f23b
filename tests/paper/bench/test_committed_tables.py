"""The committed tables are what the committed records give, to the last digit."""

import pytest

from paper.bench.formats import csv_text, latex_text, markdown_text
from paper.bench.protocol import load_protocol
from paper.bench.store import RESULTS, Store
from paper.bench.summary import Summary, summarise

TABLES = {"mnist": "paper", "cifar10": "cpu", "covtype": "paper"}


def summary_of(table: str, metric: str = "accuracy") -> Summary:
    found = Store(RESULTS, table).read()
    assert found.problems == []
    return summarise(found.records, load_protocol(table, TABLES[table]), metric)


@pytest.mark.parametrize("table", TABLES)
def test_tables_come_out_the_same(table: str) -> None:
    summary = summary_of(table)
    for suffix, write in ((".md", markdown_text), (".csv", csv_text), (".tex", latex_text)):
        assert write(summary) == (RESULTS / table / f"table{suffix}").read_text(encoding="utf-8"), suffix


def test_macro_f1_comes_out_the_same() -> None:
    kept = (RESULTS / "covtype" / "table-macro-f1.md").read_text(encoding="utf-8")
    assert markdown_text(summary_of("covtype", "macro_f1")) == kept


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("mnist", "| ADAPTIVE-CORESET@1 | 99.20 ±0.09⁵ | 99.24 ±0.09⁵ | **99.29 ±0.04⁵** | 99.27 ±0.06 |"),
        ("mnist", "| RANDOM | **-3.77\\*** | -7.5 | .002 |"),
        ("covtype", "| ADAPTIVE-CORESET@1 | +0.37 | +2.2 | .053 | **+1.39\\*** | +5.8 | .002 |"),
    ],
)
def test_known_rows(table: str, row: str) -> None:
    """Copied from the tables by hand, so that a table and its writer cannot change together unnoticed."""
    assert row in markdown_text(summary_of(table))
