"""Accuracy of all methods against time: every method has a kind, names do not overlap, the page shows the figure."""

import itertools
import re
from pathlib import Path

import pytest

from coresift.selection.names import methods
from paper.__main__ import main
from paper.commands.table import stored_summary
from paper.methods_figure import KINDS, draw, kind_of

pytest.importorskip("matplotlib")
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "paper" / "results"
PAGE = (ROOT / "docs" / "all-methods.md").read_text(encoding="utf-8")


def test_every_method_has_one_kind() -> None:
    names = list(itertools.chain.from_iterable(KINDS.values()))
    assert len(names) == len(set(names))
    assert set(names) == {method["name"] for method in methods()} - {"FULL", "...-WARM"}
    assert kind_of("RS2") == "uniform"
    with pytest.raises(KeyError, match="NEW is of no kind"):
        kind_of("NEW")


def test_all_methods_are_drawn_and_numbers_do_not_overlap() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    summary = stored_summary(RESULTS, "covtype", "all-methods")
    figure = draw(summary, 0.01)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    ax, key = figure.axes
    points = [tuple(row) for line in ax.containers for row in line[0].get_xydata()]
    drawn = [entry for entry in summary.entries.values() if entry.mean is not None]
    assert sorted(points) == sorted((entry.seconds, entry.mean) for entry in drawn)
    numbers = {text.get_text(): text for text in ax.texts}
    assert sorted(map(int, numbers)) == list(range(1, len(drawn) + 1))
    boxes = [text.get_window_extent(renderer) for text in numbers.values()]
    assert not [pair for pair in itertools.combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    pixels = ax.transData.transform(points)
    assert not [box for box in boxes for x, y in pixels if box.contains(x, y)]
    frame = ax.get_window_extent(renderer)
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 and box.y1 <= frame.y1 for box in boxes)
    named = dict(text.get_text().split("  ") for text in key.texts if "  " in text.get_text())
    by_quality = sorted(drawn, key=lambda entry: -entry.mean)
    assert {int(number): by_quality[int(number) - 1].mean for number in named} == {
        int(number): entry.mean for number, name in named.items() for entry in drawn if str(entry.method) == name
    }
    assert len(named) == len(drawn)
    entries = {str(entry.method): (entry.seconds, entry.mean) for entry in drawn}
    assert all(text.xy == entries[named[number]] for number, text in numbers.items())


def test_the_command_draws_what_the_page_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "methods.svg"
    assert main(["figure", "methods", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"Wrote {out}.\n"
    committed = ROOT / "docs" / "figures" / "methods.svg"
    assert 0.5 < out.stat().st_size / committed.stat().st_size < 2.0  # the bytes depend on the version of Matplotlib
    assert "](figures/methods.svg)" in PAGE
    assert main(["figure", "methods", "--out", str(out), "--results", str(tmp_path)]) == 1
    assert "covtype" in capsys.readouterr().err


def test_sources_name_the_methods_that_won() -> None:
    sources = PAGE[PAGE.index("| method | won | records |") : PAGE.index("figures/methods.svg")]
    listed = re.findall(r"^\| ([A-Z0-9-]{4,}) \|", sources, re.MULTILINE)
    assert set(listed) == {method["name"] for method in methods() if method["where it won"] != "-"}


@pytest.mark.parametrize(
    ("file", "section", "rows"),
    [
        ("beat-random.md", "Equal total time", ["MNIST, R = 20, accuracy, 1 %", "MNIST, R = 20, accuracy, 3 %"]),
        ("beat-random.md", "The same at equal total time, and longer", ["CovType, R = 1, accuracy, 5 %, 115"]),
        ("beat-random.md", "One subset, kept", ["MNIST, 1 %", "MNIST, 3 %", "MNIST, 5 %", "MNIST, 10 %"]),
        ("elsewhere/README.md", "One subset, kept", ["Letter", "Shuttle, accuracy"]),
        ("elsewhere/README.md", "The same at equal time\n\nADAPTIVE-CORESET ", ["Letter", "Shuttle, accuracy"]),
        ("elsewhere/README.md", "The same at equal time\n\nADAPTIVE-CORESET-SEEN", ["Letter", "Shuttle, accuracy"]),
    ],
)
def test_wins_are_those_of_the_records(file: str, section: str, rows: list[str]) -> None:
    text = (RESULTS / file).read_text(encoding="utf-8")
    start = text.index(f"\n## {section}" + ("" if "\n" in section else "\n"))
    lines = text[start : text.find("\n## ", start + 1)].splitlines()
    for row in rows:
        (cells,) = [line.split("|") for line in lines if line.startswith(f"| {row}")]
        assert cells[4].strip().startswith("+")
        assert float(cells[5]) <= 0.05


def test_wins_of_the_tables_are_significant() -> None:
    def cells(table: str, method: str) -> list[str]:
        text = (RESULTS / table / "table.md").read_text(encoding="utf-8").split("## Against ADAPTIVE-RANDOM")[1]
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {method} |")]
        return [cell.strip() for cell in line.split("|")[2:-1]][::3]

    assert all(cell.startswith("**-") for table in ("mnist", "covtype") for cell in cells(table, "RANDOM"))
    assert [cell.startswith("**+") for cell in cells("mnist", "GRADMATCHPB")] == [False, False, True, False]
    text = (RESULTS / "acceleration.md").read_text(encoding="utf-8")
    found = [line.split("|")[-2] for line in text.split("Over the cells")[0].splitlines() if ", duplicates |" in line]
    assert [len(re.findall(r"\+\d", each)) for each in found] == [2] * 7  # AUTO, short and long
