"""The committed table of the bandwidth figure: consistent, and what the page quotes."""

from pathlib import Path

import numpy as np
import pytest

from paper.bandwidth import METHODS, Measurement
from paper.tables import read_table

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "paper" / "results" / "bandwidth" / "bandwidth.csv"
PAGE = ROOT / "docs" / "bandwidth.md"
QUOTED = (0.5, 1.0, 2.0)

pytestmark = pytest.mark.skipif(not TABLE.exists(), reason="source archives carry no results")


@pytest.fixture(scope="module")
def rows() -> list[Measurement]:
    return read_table(TABLE, Measurement)


def quoted_lines(rows: list[Measurement]) -> list[str]:
    lines = []
    for dataset in dict.fromkeys(row.dataset for row in rows):
        for bandwidth in QUOTED:
            here = [row for row in rows if (row.dataset, row.bandwidth) == (dataset, bandwidth)]

            def mean(name: str, method: str, here: list[Measurement] = here) -> str:
                return f"{np.mean([getattr(row, name) for row in here if row.method == method]):.2g}"

            cells = [
                here[0].title,
                f"{bandwidth:g}",
                f"{here[0].total_sensitivity:.3g}",
                f"{here[0].uniform_factor:.3g}",
                *(mean("found", method) for method in ("uniform", "ours", "ours refined")),
                mean("certified", "ours refined"),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def test_the_table_is_complete_and_consistent(rows: list[Measurement]) -> None:
    assert {row.dataset for row in rows} == {"digits", "mnist", "covtype"}
    assert len(rows) == 3 * 13 * 3 * len(METHODS)
    for row in rows:
        assert 0 < row.found <= row.certified
        assert 1 <= row.total_sensitivity <= row.n_samples * (1 + 1e-9)
        assert row.uniform_factor >= 1


def test_the_page_quotes_the_table(rows: list[Measurement]) -> None:
    page = PAGE.read_text(encoding="utf-8").splitlines()
    assert [line for line in quoted_lines(rows) if line not in page] == []
