"""The figures of a report: looks that can be told apart, values where they belong, legends instead of labels."""

import dataclasses
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from paper.bench.protocol import CURVE_SAMPLES, Method, Protocol, load_protocol
from paper.bench.summary import summarise
from paper.report import read_results
from paper.report.figures import PANEL, curve_panel, legend, method_panel, overview
from paper.report.series import Series, look_of, on_all_data, series_of
from paper.report.svg import PALETTE, Sheet
from tests.paper.bench.records import record, records, small_protocol
from tests.paper.test_report import Record, page_of, store

METHODS = load_protocol("mnist").methods
ADAPTIVE = ("ADAPTIVE-CORESET", "ADAPTIVE-CORESET-SEEN", "ADAPTIVE-CORESET-AUTO", "FIXED-CORESET")


def table(accuracies: dict[str, tuple[float, ...]], protocol: Protocol | None = None) -> list[Series]:
    """Series at 1 % whose curves end at these accuracies, seed by seed."""
    protocol = protocol or small_protocol()
    rows = []
    for name, values in accuracies.items():
        method = protocol.method(name)
        for seed, value in enumerate(values):
            cell = protocol.run(method, 1.0 if name == "FULL" else 0.01, seed)
            curve = [[20 * k, value * (1 - 0.5**k)] for k in range(1, 10)] + [[200, value]]
            rows.append(record(protocol, cell, accuracy=value) | {"curve": curve})
    summary = summarise(rows, protocol)
    return series_of(summary, summary.records)


def groups(panel: str | None, css: str) -> list[ET.Element]:
    """The groups of a figure with this class."""
    assert panel is not None
    return [node for node in ET.fromstring(panel).iter("g") if css in (node.get("class") or "").split()]


def heights(group: ET.Element) -> list[float]:
    """The y coordinates of the first path in a group, or of the path it refers to."""
    path = next(group.iter("path"))
    return [float(y) for y in re.findall(r"[ML] [-\d.]+ ([-\d.]+)", path.attrib["d"])]


def with_curves(level: float) -> list[Record]:
    """Records whose curves end this far from the accuracy of the whole test set."""
    return [
        row | {"curve": [[10, 0.5], [20, 0.7], [200, row["test"]["accuracy"] - level]]}
        for row in records(small_protocol(2))
    ]


def test_all_data_are_a_line_at_the_end_of_their_own_curve(tmp_path: Path) -> None:
    """Curves are of a part of the test set: the accuracy on the whole of it is not on their scale."""
    found = read_results(store(tmp_path / "results", with_curves(0.03)))
    series = found.parts[0].series
    (full,) = [one for one in series if one.look.css == "full"]
    end = full.mean_curve[-1][1]
    assert end == pytest.approx(full.mean - 0.03)
    panel = curve_panel(Sheet(), 0.01, [one for one in series if one.budget == 0.01], full)
    (line,) = groups(panel, "reference")
    assert line[0].text == f"FULL at the end of its curve: {100 * end:.2f} %"
    assert f"{100 * full.mean:.2f} %" not in panel
    # the line of another method that ends as high is at the same place
    twin = dataclasses.replace(full, look=dataclasses.replace(full.look, label="TWIN", css="rbf"))
    drawn = curve_panel(Sheet(), 0.01, [twin], full)
    ((reference,), (curve,)) = (groups(drawn, css) for css in ("reference", "line"))
    assert heights(reference)[0] == pytest.approx(heights(curve)[-1], abs=0.02)
    text = " ".join(page_of(tmp_path / "results", tmp_path).text.split())
    assert f"a fixed part of the test set, at most {CURVE_SAMPLES:,} samples" in text
    assert "The dashed line is the end of FULL's own curve." in text


def test_without_a_curve_all_data_are_no_line_among_curves(tmp_path: Path) -> None:
    rows = [row | ({"curve": []} if row["cell"]["method"] == "FULL" else {}) for row in with_curves(0.0)]
    found = read_results(store(tmp_path / "results", rows))
    (full,) = [one for one in found.parts[0].series if one.look.css == "full"]
    panel = curve_panel(Sheet(), 0.01, [one for one in found.parts[0].series if one.budget == 0.01], full)
    assert not groups(panel, "reference")
    assert "FULL's own curve" not in page_of(tmp_path / "results", tmp_path).text


@pytest.mark.parametrize("spread", [0.002, 0.02, 0.3])
def test_shaded_bands_stay_within_the_frame(spread: float) -> None:
    series = table({"RBF": (0.6, 0.6, 0.6 + spread), "ADAPTIVE-RANDOM": (0.59, 0.6, 0.61)})
    panel = curve_panel(Sheet(), 0.01, series, None)
    bands = groups(panel, "band")
    assert len(bands) == 2
    for band in bands:
        (use,) = band.iter("use")
        tops = [float(use.attrib["y"]) + height for height in heights(band)]
        assert min(tops) >= 26.0 - 0.1  # the largest run is below the upper end of the axis
        assert any("clip-path" in node.attrib for node in band.iter())  # and what is too low is cut


def test_variants_of_a_family_differ_in_colour_or_dashes() -> None:
    methods = [*METHODS, *(Method(name, every) for name in ADAPTIVE for every in (20, 1))]
    looks = [look_of(method, 20) for method in methods if method.name != "FULL"]
    assert len({(look.css, str(look.dashes)) for look in looks}) == len(looks)
    assert len({(look.css, look.marker, look.is_warm) for look in looks}) == len(looks)


def test_adaptive_coresets_have_looks_of_their_own() -> None:
    looks = {name: look_of(Method(name, 1), 20) for name in ADAPTIVE}
    assert len({look.css for look in looks.values()} | {"other"}) == len(ADAPTIVE) + 1
    strong = [name for name, look in looks.items() if look.is_emphasised]
    assert strong == ["ADAPTIVE-CORESET", "ADAPTIVE-CORESET-SEEN"]
    assert {look.css for look in looks.values()} <= set(PALETTE)


def test_curves_have_a_legend_of_lines_and_say_why_warm_starts_are_shorter(tmp_path: Path) -> None:
    protocol = load_protocol("mnist").narrowed(["rbf", "rbf-warm", "craigpb", "rbf@1"], [0.01], 2)
    curves = [[100, 0.8], [200, 0.9]]
    rows = [record(protocol, cell) | {"curve": curves} for cell in protocol.runs()]
    page = page_of(store(tmp_path / "all", rows), tmp_path)
    assert len(page.all("svg", "swatch")) == 4 + 4  # marks of the overview, lines of the curves
    assert "Warm starts are shorter: a few epochs on all data stand for half of the epochs" in page.text
    assert "Dashed: redrawn more often; dashes and dots: per batch; dotted: warm start." in page.text
    plain = [row for row in rows if row["cell"]["method"] == "RBF"]
    page = page_of(store(tmp_path / "plain", plain), tmp_path)
    assert "Warm starts are shorter" not in page.text
    assert "Dashed: redrawn more often. Shaded" in page.text


def test_every_method_has_a_row_with_its_name_and_time_the_best_at_the_top() -> None:
    accuracies = {str(method): (0.985 + 0.0002 * k, 0.986) for k, method in enumerate(METHODS) if k}
    series = table({"FULL": (0.9905,), **accuracies}, load_protocol("mnist"))
    here = [one for one in series if one.budget == 0.01]
    panel = method_panel(Sheet(), 0.01, here, on_all_data(series))
    texts = [node.text for node in ET.fromstring(panel).iter("text")]
    names = {one.look.label for one in here}
    assert names <= set(texts)
    rows = [text for text in texts if text in names]
    assert rows == [one.look.label for one in sorted(here, key=lambda one: (one.mean, -one.look.place))]
    heights = {node.text: float(node.attrib["y"]) for node in ET.fromstring(panel).iter("text") if node.text in names}
    assert sorted(heights, key=lambda name: -heights[name]) == rows  # upwards, without overlap
    assert min(abs(a - b) for a in heights.values() for b in heights.values() if a != b) >= 12.0
    (line,) = groups(panel, "reference")
    assert line[0].text.startswith("FULL: 99.05 %")
    assert len(groups(panel, "mark")) == len(here)
    assert len([text for text in texts if text and re.fullmatch(r"[\d.]+ (s|min|h)", text)]) == len(here)


def test_marks_stand_in_the_order_of_accuracy_and_time() -> None:
    series = table({"RANDOM": (0.90, 0.91), "RBF": (0.95, 0.951), "ADAPTIVE-RANDOM": (0.97, 0.98)})
    drawn = groups(overview(Sheet(), series, PANEL, "wide"), "mark")
    places = {str(mark[0].text).partition(" ")[0]: next(mark.iter("use")).attrib for mark in drawn}
    height = {name: float(place["y"]) for name, place in places.items()}
    assert height["RANDOM"] > height["RBF"] > height["ADAPTIVE-RANDOM"]  # down is worse
    seconds = {one.look.label: one.seconds for one in series}
    assert seconds["RANDOM"] < seconds["RBF"] == seconds["ADAPTIVE-RANDOM"]
    across = {name: float(place["x"]) for name, place in places.items()}
    assert across["RANDOM"] < across["RBF"] == across["ADAPTIVE-RANDOM"]


def test_a_long_or_foreign_name_fits() -> None:
    (one,) = table({"RBF": (0.9, 0.91)})
    odd = dataclasses.replace(one, look=dataclasses.replace(one.look, label="名" + "x" * 300))
    panel = method_panel(Sheet(), 0.01, [one, odd], None)
    texts = [node.text or "" for node in ET.fromstring(panel).iter("text")]
    assert max(map(len, texts)) < 60
    assert any(text.startswith("名x") and text.endswith("…") for text in texts)
    assert len(legend(Sheet(), [one, odd])) == 2
