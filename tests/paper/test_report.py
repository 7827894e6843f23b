"""The page of a report: what is in it, what is escaped, what is named as wrong, and that it is whole."""

import dataclasses
import json
import re
import statistics
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from coresift._errors import InvalidInputError
from paper.bench.protocol import Run
from paper.bench.store import serialised
from paper.report import read_results, write_report
from paper.report.inputs import Missing
from paper.report.reading import Part
from tests.paper.bench.records import record, records, small_protocol

EVIL = "<script>alert(1)</script>"
Record = dict[str, Any]


def store(folder: Path, rows: Sequence[Record], table: str = "mnist") -> Path:
    """A results folder with one table."""
    (folder / table).mkdir(parents=True, exist_ok=True)
    with (folder / table / "records.jsonl").open("ab") as file:
        file.writelines(serialised(row) for row in rows)
    return folder


def changed(row: Record, cell: dict[str, Any] | None = None, **fields: Any) -> Record:
    """A record of another cell, or with other fields, whose id fits."""
    row = json.loads(json.dumps(row)) | fields
    row["cell"] |= cell or {}
    row["id"] = Run(**row["cell"]).id
    return row


class Seen(HTMLParser):
    """Tags with their attributes, and text; a tag that is not closed, or closed twice, is an error."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((name, dict(attrs)))
        if name not in ("meta", "img", "br"):
            self.open.append(name)

    def handle_startendtag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((name, dict(attrs)))

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def all(self, name: str, css: str = "") -> list[dict[str, str | None]]:
        return [
            attrs for tag, attrs in self.tags if tag == name and css in ["", *(attrs.get("class") or "").split(" ")]
        ]


def page_of(results: Path, tmp_path: Path) -> Seen:
    out = tmp_path / "page.html"
    size = write_report(read_results(results), out)
    assert size == out.stat().st_size < 3_000_000
    return Seen(out.read_text(encoding="utf-8"))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return store(tmp_path / "results", records(small_protocol()))


def test_the_page_has_all_parts(results: Path, tmp_path: Path) -> None:
    page = page_of(results, tmp_path)
    text = " ".join(page.text.split())
    for part in ("Accuracy against time", "Accuracy against the epoch", "Test accuracy, %", "Speed-up over FULL"):
        assert part in text
    protocol = small_protocol()
    for sentence in (
        "39 of",
        *protocol.assumptions,
        "lenet",
        "some processor",
        "0.1.0",
        "arXiv:2303.05151",
        "99.35 ±0.012",  # of the paper, with its digits
        "0.0084",
    ):
        assert sentence in text
    assert "--data-dir" in text  # what is missing, and how to get it
    assert len(page.all("svg", "plot")) == 2 + 2  # the overview twice, two budgets; one point is not a curve
    runs = [row["test"]["accuracy"] for row in records(protocol) if row["cell"]["method"] == "FULL"]
    assert f"{100 * statistics.mean(runs):.2f} ±{100 * statistics.stdev(runs):.2f}" in text


def test_every_method_and_budget_is_a_point_with_a_tooltip(results: Path, tmp_path: Path) -> None:
    text = (tmp_path / "page.html", page_of(results, tmp_path))[0].read_text()
    for label in ("RANDOM", "RBF", "RBF-WARM", "ADAPTIVE-RANDOM", "ADAPTIVE-RANDOM@1", "RBF@1"):
        for budget in ("1 %", "10 %"):
            # in the overview, wide and narrow, and in the panel
            assert (
                len(re.findall(rf"<title>{label} at {budget}: [\d.]+ ± [\d.]+ %, [^<]* \(3 runs\)</title>", text)) == 3
            )
    assert len(re.findall(r"<title>FULL: ", text)) == 2 + 2


def test_the_page_needs_nothing_but_itself(results: Path, tmp_path: Path) -> None:
    page = page_of(results, tmp_path)
    text = (tmp_path / "page.html").read_text()
    assert not page.all("script")
    assert not page.all("link")
    assert not re.search(r"https?:|url\((?!#)|@import|file:", text)
    for _, attributes in page.tags:
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/png;base64,"))
    (policy,) = [a["content"] or "" for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "script-src" not in policy


def test_figures_follow_light_and_dark(results: Path, tmp_path: Path) -> None:
    page = page_of(results, tmp_path)
    assert "prefers-color-scheme: dark" in (tmp_path / "page.html").read_text()
    for name, attributes in page.tags:
        assert not {"fill", "stroke", "color"} & set(attributes), name


def test_the_same_results_give_the_same_bytes(results: Path, tmp_path: Path) -> None:
    page_of(results, tmp_path)
    first = (tmp_path / "page.html").read_bytes()
    lines = (results / "mnist" / "records.jsonl").read_bytes().splitlines(keepends=True)
    (results / "mnist" / "records.jsonl").write_bytes(b"".join(lines[::-1]))  # workers finish in any order
    page_of(results, tmp_path)
    assert (tmp_path / "page.html").read_bytes() == first


def test_the_folder_of_one_table_gives_the_same_page(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page_of(results, tmp_path)
    first = (tmp_path / "page.html").read_bytes()
    page_of(results / "mnist", tmp_path)
    assert (tmp_path / "page.html").read_bytes() == first
    monkeypatch.chdir(results / "mnist")
    page_of(Path(), tmp_path)
    assert (tmp_path / "page.html").read_bytes() == first


def evil_records() -> list[Record]:
    """Every text that a record may hold is markup."""
    protocol = small_protocol()
    row = records(protocol)[0]
    fields: dict[str, Any] = {
        "config": {"dataset": EVIL, "model": EVIL, EVIL: EVIL, "model_options": {EVIL: [EVIL]}},
        "software": {EVIL: EVIL},
        "machine": {"processor": EVIL, EVIL: "\" onload='alert(1)'"},
        "finished": EVIL,
        "clock": EVIL,
    }
    return [
        changed(row, {"method": method, "seed": seed, "budget": budget, "table": table, "scale": scale}, **fields)
        for method in (EVIL, f"RBF{EVIL}", "RBF")
        for seed in (0, 1)
        for budget in (0.01, 0.02)
        for table, scale in (("<img src=x onerror=alert(1)>", "paper"), ("<img src=x onerror=alert(1)>", EVIL))
    ]


def test_text_of_the_data_is_harmless(tmp_path: Path) -> None:
    folder = store(tmp_path / "results", evil_records(), "<img src=x onerror=alert(1)>")
    with (folder / "<img src=x onerror=alert(1)>" / "records.jsonl").open("ab") as file:
        file.write(f"{EVIL}\n".encode())
    page = page_of(folder, tmp_path)
    assert not page.all("script")
    assert not page.all("img")
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert EVIL in page.text  # shown as it is
    assert "<img src=x onerror=alert(1)>" in page.text
    assert "line 25" in page.text


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda line: line[: len(line) // 2], "line 3: left out, because it is not JSON"),
        (lambda line: line.replace(b'"accuracy": 0.9', b'"accuracy": 0.1'), "line 3: left out, because its checksum"),
        (
            lambda line: re.sub(rb'"accuracy": [\d.]+', b'"accuracy": NaN', line),
            "line 3: left out, because it holds numbers",
        ),
    ],
    ids=["cut", "altered", "nan"],
)
def test_a_damaged_record_is_named_and_the_others_are_kept(
    damage: Callable[[bytes], bytes], complaint: str, results: Path, tmp_path: Path
) -> None:
    file = results / "mnist" / "records.jsonl"
    lines = file.read_bytes().splitlines()
    assert damage(lines[2]) != lines[2]
    lines[2] = damage(lines[2])
    file.write_bytes(b"\n".join(lines))
    page = page_of(results, tmp_path)
    assert complaint in page.text
    assert "One record is not in this report" in page.text
    assert f"{len(lines) - 1} finished runs" in page.text


def test_records_of_studies_are_no_damaged_tables(results: Path) -> None:
    (results / "acceleration").mkdir()
    (results / "acceleration" / "records.jsonl").write_text('{"run": {}, "accuracy": 88.8}\n')
    assert read_results(results, ["acceleration"]).problems == []
    assert len(read_results(results).problems) == 1


def test_a_record_without_accuracy_is_named(results: Path, tmp_path: Path) -> None:
    row = changed(records(small_protocol())[0], {"seed": 7}, test={"loss": 0.1})
    store(results, [row])
    page = page_of(results, tmp_path)
    assert f"record {row['id']}" in page.text
    assert "One record is not in this report" in page.text


def test_one_record_is_enough(tmp_path: Path) -> None:
    protocol = small_protocol()
    for cell in (protocol.runs()[0], protocol.runs()[-1]):  # a subset method, and FULL
        folder = store(tmp_path / cell.method, [record(protocol, cell)])
        page = page_of(folder, tmp_path)
        assert "1 finished run" in page.text
        assert "1 of " in page.text


@pytest.mark.parametrize("curve", [None, [], [[1, float("1e999")]], [[1]], "x", [["a", "b"]], [[10, 2.0]], 3])
def test_records_without_curves_are_reported_without(curve: Any, tmp_path: Path) -> None:
    protocol = small_protocol()
    rows = [row | {"curve": curve} for row in records(protocol)]
    if isinstance(curve, list) and curve and isinstance(curve[0], list) and curve[0][-1] == float("inf"):
        with pytest.raises(ValueError, match="JSON"):  # no store would take it
            serialised(rows[0])
        return
    page = page_of(store(tmp_path / "results", rows), tmp_path)
    assert "The records hold no curves." in page.text


def test_curves_are_drawn_as_means_over_the_epochs_that_all_have(tmp_path: Path) -> None:
    protocol = small_protocol(2)
    rows = []
    for row in records(protocol):
        high = 0.02 * row["cell"]["seed"]
        curve = [[10, 0.5 + high], [20, 0.6 + high]] + ([[30, 0.7]] if row["cell"]["seed"] else [])
        rows.append(row | {"curve": curve})
    results = read_results(store(tmp_path / "results", rows))
    (series, *_) = results.parts[0].series
    means = [(10.0, 0.51, 0.5, 0.52), (20.0, 0.61, 0.6, 0.62)]
    assert series.mean_curve == [pytest.approx(point) for point in means]
    page = page_of(tmp_path / "results", tmp_path)
    assert len(page.all("g", "band")) == 2 * 4  # two budgets, the bold ones


def test_versions_scales_and_unknown_tables_are_parts_of_their_own(results: Path, tmp_path: Path) -> None:
    row = records(small_protocol())[0]
    store(results, [changed(row, {"protocol": 99}), changed(row, {"scale": "tiny"})])
    store(results, [changed(row, {"table": "nosuch"})], "nosuch")
    found = read_results(results)
    names = [(part.protocol.table, part.protocol.version, part.protocol.scale) for part in found.parts]
    known = small_protocol().version
    assert names == [
        ("mnist", 99, "paper"),
        ("mnist", known, "paper"),
        ("mnist", known, "tiny"),
        ("nosuch", known, "paper"),
    ]
    assert [part.is_declared for part in found.parts] == [False, True, False, False]
    assert len(found.parts[1].records) == len(records(small_protocol()))
    page = page_of(results, tmp_path)
    assert page.text.count("declares no protocol") == 3
    ids = [attributes["id"] for attributes in page.all("section")]
    links = [(attributes["href"] or "")[1:] for attributes in page.all("a")]
    assert ids == links[:4] == ["table-1", "table-2", "table-3", "table-4"]


def test_what_is_said_of_the_data_is_said_once_for_each_data_set(results: Path, tmp_path: Path) -> None:
    """Of three variants of MNIST the first has the sensitivities, the others a link to them."""
    row = records(small_protocol())[0]
    store(results, [changed(row, {"scale": "tiny", "budget": 0.5}), changed(row, {"scale": "small"})])
    fields = row["config"] | {"dataset": "other"}
    store(results, [changed(row, {"table": "nosuch"}, config=fields)], "nosuch")
    looked: list[str] = []

    def look(part: Part) -> Missing:
        looked.append(f"{part.protocol.dataset} {part.protocol.scale}")
        return Missing(f"Nothing of {part.protocol.dataset}.")

    write_report(read_results(results), tmp_path / "page.html", looking=look)
    page = Seen((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert looked == ["mnist paper", "other paper"]
    assert page.text.count("Nothing of mnist.") == page.text.count("Nothing of other.") == 1
    assert page.text.count("The data are the same as above: see MNIST, LeNet-5.") == 2
    links = [attributes["href"] for attributes in page.all("a")]
    assert links[4:] == ["#table-1-data"] * 2
    assert "table-1-data" in [attributes.get("id") for _, attributes in page.tags]


def test_times_of_two_clocks_are_not_mixed(tmp_path: Path) -> None:
    protocol = small_protocol()
    rows = [row | {"clock": "wall" if row["cell"]["method"] == "RANDOM" else "cpu"} for row in records(protocol)]
    found = read_results(store(tmp_path / "results", rows))
    assert {one.look.label for one in found.parts[0].series if not one.seconds} == {"RANDOM"}
    page = page_of(tmp_path / "results", tmp_path)
    assert "measured by another clock" in page.text


def test_an_empty_folder_a_missing_one_and_a_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no such folder"):
        read_results(tmp_path / "nosuch")
    with pytest.raises(InvalidInputError, match="python -m paper run TABLE"):
        read_results(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match="this is a file"):
        read_results(tmp_path / "file")
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "records.jsonl").write_text("half a li")
    with pytest.raises(
        InvalidInputError, match=r"no finished run.*records\.jsonl, line 1: left out, because it is not JSON"
    ):
        read_results(tmp_path)


def test_a_page_that_fails_leaves_the_old_one(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "page.html"
    out.write_text("old")
    found = read_results(results)
    broken = dataclasses.replace(found.parts[0], records=[])
    with pytest.raises(IndexError):
        write_report(dataclasses.replace(found, parts=[broken]), out)
    monkeypatch.setattr("os.replace", _no_space)
    with pytest.raises(OSError, match="No space left"):
        write_report(found, out)
    assert out.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "results"]


def _no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")
