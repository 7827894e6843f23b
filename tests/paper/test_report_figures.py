"""The figures of a report: looks that can be told apart, nothing outside its frame, names near what they name."""

import dataclasses
import re
import xml.etree.ElementTree as ET
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paper.bench.protocol import CURVE_SAMPLES, Method, Protocol, load_protocol
from paper.bench.summary import summarise
from paper.report import read_results
from paper.report.figures import PANEL, curve_panel, time_panel, whole
from paper.report.series import Series, look_of, series_of
from paper.report.svg import FONT, LETTER, Frame, Labels
from tests.paper.bench.records import record, records, small_protocol
from tests.paper.test_report import Record, Seen, page_of, store

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


def elements(panel: str | None, name: str, css: str) -> list[ET.Element]:
    """Of a figure, by tag and class."""
    assert panel is not None
    return [node for node in ET.fromstring(panel).iter(name) if css in (node.get("class") or "").split()]


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
    panel = curve_panel(0.01, [one for one in series if one.budget == 0.01], full)
    assert f"FULL at the end of its curve: {100 * end:.2f} %" in panel
    assert f"{100 * full.mean:.2f} %" not in panel
    # the line of another method that ends as high is at the same place
    twin = dataclasses.replace(full, look=dataclasses.replace(full.look, label="TWIN", css="rbf"))
    drawn = ET.fromstring(curve_panel(0.01, [twin], full))
    (line,) = [node for node in drawn.iter("line") if node.get("class") == "reference"]
    (curve,) = [node for node in drawn.iter("polyline") if "line" in (node.get("class") or "").split()]
    assert float(line.get("y1")) == pytest.approx(float(curve.get("points").split(",")[-1]), abs=0.02)
    text = " ".join(page_of(tmp_path / "results", tmp_path).text.split())
    assert f"a fixed part of the test set, at most {CURVE_SAMPLES:,} samples" in text
    assert "The dashed line is the end of FULL's own curve." in text


def test_without_a_curve_all_data_are_no_line_among_curves(tmp_path: Path) -> None:
    rows = [row | ({"curve": []} if row["cell"]["method"] == "FULL" else {}) for row in with_curves(0.0)]
    found = read_results(store(tmp_path / "results", rows))
    (full,) = [one for one in found.parts[0].series if one.look.css == "full"]
    panel = curve_panel(0.01, [one for one in found.parts[0].series if one.budget == 0.01], full)
    assert 'class="reference"' not in panel
    assert "FULL's own curve" not in page_of(tmp_path / "results", tmp_path).text


@pytest.mark.parametrize("spread", [0.002, 0.02, 0.3])
def test_shaded_bands_stay_within_the_frame(spread: float) -> None:
    series = table({"RBF": (0.6, 0.6, 0.6 + spread), "ADAPTIVE-RANDOM": (0.59, 0.6, 0.61)})
    bands = elements(curve_panel(0.01, series, None), "polygon", "band")
    assert len(bands) == 2
    for band in bands:
        heights = [float(point.split(",")[1]) for point in band.get("points", "").split()]
        assert min(heights) >= 28.0 - 0.1
        assert max(heights) <= PANEL[1] - 40.0 + 0.1


def test_names_of_curves_end_within_the_panel() -> None:
    series = table({"RBF": (0.6, 0.61), "ADAPTIVE-CORESET-SEEN@1": (0.59, 0.6), "RANDOM-WARM": (0.5, 0.6)})
    names = elements(curve_panel(0.01, series, None), "text", "name")
    assert len(names) == 3
    for name in names:
        wide = float(name.get("textLength") or LETTER * len(name.text or ""))
        assert float(name.get("x", "0")) + wide <= PANEL[0] + 0.1
        assert (name.get("lengthAdjust") is None) == (name.text != "ADAPTIVE-CORESET-SEEN@1")


def dash_of(line: str) -> str:
    """The pattern that the style sheet gives to these classes: the last rule that fits, as all are as specific."""
    style = (files("paper.report") / "style.css").read_text(encoding="utf-8")
    found = ""
    for selector, dash in re.findall(
        r"^\.line((?:\.\w+)+) \{ stroke-dasharray: ([\d. ]+); \}", style, re.MULTILINE
    ):
        if set(selector.strip(".").split(".")) <= set(line.split()):
            found = dash
    return found


def test_variants_of_a_family_differ_in_colour_or_dashes() -> None:
    methods = [*METHODS, *(Method(name, every) for name in ADAPTIVE for every in (20, 1))]
    looks = [look_of(method, 20) for method in methods if method.name != "FULL"]
    assert len({(look.css, dash_of(look.line)) for look in looks}) == len(looks)
    assert len({(look.css, look.shape, look.is_warm) for look in looks}) == len(looks)


def test_adaptive_coresets_have_looks_of_their_own() -> None:
    looks = {name: look_of(Method(name, 1), 20) for name in ADAPTIVE}
    assert len({look.css for look in looks.values()} | {"other"}) == len(ADAPTIVE) + 1
    strong = [name for name, look in looks.items() if look.is_emphasised]
    assert strong == ["ADAPTIVE-CORESET", "ADAPTIVE-CORESET-SEEN"]
    style = (files("paper.report") / "style.css").read_text(encoding="utf-8")
    for look in looks.values():
        assert style.count(f"--{look.css}: #") == 2  # light and dark
        assert f".{look.css} {{ --c: var(--{look.css}); }}" in style
        assert f".plot text.name.{look.css}" in style


def test_curves_have_a_legend_of_lines_and_say_why_warm_starts_are_shorter(tmp_path: Path) -> None:
    protocol = load_protocol("mnist").narrowed(["rbf", "rbf-warm", "craigpb", "rbf@1"], [0.01], 2)
    curves = [[100, 0.8], [200, 0.9]]
    rows = [record(protocol, cell) | {"curve": curves} for cell in protocol.runs()]
    page = page_of(store(tmp_path / "all", rows), tmp_path)
    (marks, lines) = legends(page)
    assert marks == 0
    assert lines == 4
    assert "Warm starts are shorter: a few epochs on all data stand for half of the epochs" in page.text
    assert "Dashed: redrawn more often; dashes and dots: per batch; dotted: warm start." in page.text
    plain = [row for row in rows if row["cell"]["method"] == "RBF"]
    page = page_of(store(tmp_path / "plain", plain), tmp_path)
    assert "Warm starts are shorter" not in page.text
    assert "Dashed: redrawn more often. Shaded" in page.text


def legends(page: Seen) -> list[int]:
    """How many pieces of lines each legend of a page has."""
    counts: list[int] = []
    inside = False
    for name, attributes in page.tags:
        if name == "ul":
            inside = attributes.get("class") == "legend"
            counts += [0] if inside else []
        elif name == "polyline" and inside and counts:
            counts[-1] += 1
        inside = inside and name in ("ul", "li", "svg", "polyline", "circle", "polygon")
    return counts


def test_names_of_methods_below_all_data_stand_below_its_line() -> None:
    accuracies = {str(method): (0.985 + 0.0002 * k, 0.986) for k, method in enumerate(METHODS) if k}
    series = table({"FULL": (0.9905,), **accuracies}, load_protocol("mnist"))
    full = whole(series)
    panel = time_panel(0.01, [one for one in series if one.budget == 0.01], full)
    (line,) = elements(panel, "line", "reference")
    names = [node for node in elements(panel, "text", "name") if "full" not in node.get("class", "").split()]
    assert len(names) >= 4
    assert all(float(node.get("y", "0")) - FONT > float(line.get("y1", "0")) for node in names)


POINTS = st.lists(st.tuples(st.floats(60, 360), st.floats(40, 240)), min_size=1, max_size=25)


@given(POINTS)
def test_a_name_away_from_its_mark_has_a_leader_and_no_leader_crosses_a_name(
    points: list[tuple[float, float]],
) -> None:
    frame = Frame(*PANEL)
    labels = Labels(frame)
    for x, y in points:
        labels.avoid(x, y, 4.0)
    for x, y in points:
        before = list(labels.names)
        drawn = labels.place(x, y, "NAME", "rbf", far=True)
        if not drawn:
            continue
        left, top, right, bottom = labels.names[-1]
        assert right - left == pytest.approx(4 * LETTER)
        assert frame.x[0] <= left
        assert right <= frame.x[1] + 8
        assert frame.y[1] - 4 <= top
        assert bottom <= frame.y[0]
        away = max(left - x, x - right, top - y, y - bottom)
        assert ("leader" in drawn) == (away > 12.0)
        assert away < 120.0
        if "leader" in drawn:
            ((end_x, end_y),) = re.findall(r'points="[\d.]+,[\d.]+ ([\d.]+),([\d.]+)"', drawn)
            middle = ((x + float(end_x)) / 2, (y + float(end_y)) / 2)
            assert not any(a < middle[0] < c and b < middle[1] < d for a, b, c, d in before)
