"""Matplotlib figures as inline SVG: unique ids, colours that follow the page, names that stay text; images as PNG."""

import base64
import io
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image

from paper.report.figures import _accuracy_axis, _error_ticks, _log_error, _seconds_axis
from paper.report.page import _environment, data_uri, minus, prose, said
from paper.report.svg import LIGHT, PALETTE, Sheet, clean, new_axes, new_figure, page_style

EVIL = "</text><script>alert(1)</script>$x_\x1b"


def plotted(colour: str = LIGHT["rbf"]) -> Figure:
    with page_style():
        figure, ax = new_axes(300.0, 200.0)
        ax.plot([1, 2, 3], [1, 3, 2], "o--", color=colour, gid="tip")
        ax.fill_between([1, 2, 3], [0, 2, 1], [2, 4, 3], color=colour, alpha=0.2, linewidth=0)
        ax.set_title(clean(EVIL))
    return figure


@given(st.text(), st.text())
def test_any_text_is_content_and_any_value_an_attribute(content: str, value: str) -> None:
    template = _environment().from_string('<p title="{{ value }}">{{ content }}</p>')
    root = ET.fromstring(template.render(content=content, value=value))
    assert len(root) == 0
    assert set(root.attrib) == {"title"}
    assert (root.text or "") == clean(content)


def test_markup_is_not_escaped_twice_and_control_characters_are_replaced() -> None:
    template = _environment().from_string("{{ text }}")
    assert template.render(text=Markup("<b>1</b>")) == "<b>1</b>"
    assert template.render(text="<i>&") == "&lt;i&gt;&amp;"
    assert template.render(text="5\N{NO-BREAK SPACE}%") == "5\N{NO-BREAK SPACE}%"
    for character in ("\x1b", "\N{RIGHT-TO-LEFT OVERRIDE}", "\ud800"):
        assert template.render(text=f"a{character}b") == "a\N{REPLACEMENT CHARACTER}b"


def test_ids_are_unique_and_every_reference_has_a_target() -> None:
    sheet = Sheet()
    page = "".join(sheet.svg(plotted(), "a figure", tips={"tip": ("line rbf", "a tip")}) for _ in range(2))
    root = ET.fromstring(f"<div>{page}</div>")
    ids = [node.attrib["id"] for node in root.iter() if "id" in node.attrib]
    assert len(ids) == len(set(ids)) > 0
    targets = {node.attrib["href"][1:] for node in root.iter("use")}
    targets |= set(re.findall(r'clip-path="url\(#([^)]*)\)"', page))
    assert targets
    assert targets <= set(ids)


def test_styles_are_rules_with_variables_in_light_and_dark() -> None:
    sheet = Sheet()
    text = sheet.svg(plotted(), "a figure")
    assert "style=" not in text
    assert "<style" not in text
    used = {name for names in re.findall(r'class="([^"]*)"', text) for name in names.split()} - {"plot"}
    rules = dict(re.findall(r"^\.(\w+) \{ (.*) \}$", sheet.css, re.MULTILINE))
    assert used == set(rules)
    assert not any("#" in rule or "font-family" in rule for rule in rules.values())
    assert any("var(--rbf)" in rule for rule in rules.values())
    for name, (light, dark) in PALETTE.items():
        assert f"--{name}: {light};" in sheet.css
        assert f"--{name}: {dark};" in sheet.css
    assert len(set(LIGHT.values())) == len(LIGHT)  # a colour names its variable


def test_a_colour_outside_the_palette_is_refused() -> None:
    with pytest.raises(KeyError, match="#123456"):
        Sheet().svg(plotted("#123456"), "a figure")


def test_a_figure_says_what_it_shows_and_names_stay_text() -> None:
    tips = {"tip": ("line rbf", f"tip {EVIL}")}
    root = ET.fromstring(Sheet().svg(plotted(), f"two {EVIL}", tips=tips))
    assert root.attrib["viewBox"] == "0 0 300 200"
    assert root.attrib["aria-label"] == clean(f"two {EVIL}")
    (group,) = [node for node in root.iter("g") if node.get("class") == "line rbf"]
    assert group[0].tag == "title"
    assert group[0].text == clean(f"tip {EVIL}")
    assert clean(EVIL) in [node.text for node in root.iter("text")]
    assert not list(root.iter("script"))
    assert ET.fromstring(Sheet().svg(new_figure(9.0, 9.0))).attrib["aria-hidden"] == "true"


def test_the_same_figure_gives_the_same_text() -> None:
    assert Sheet().svg(plotted(), "a figure") == Sheet().svg(plotted(), "a figure")


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=10), st.sampled_from("xy"))
def test_all_accuracies_lie_within_the_axis_in_their_order(values: list[float], which: str) -> None:
    with page_style():
        _, ax = new_axes(380.0, 300.0)
        _accuracy_axis(ax, which, values)
        low, high = ax.get_ylim() if which == "y" else ax.get_xlim()
        axis = ax.yaxis if which == "y" else ax.xaxis
        ticks = [tick for tick in axis.get_majorticklocs() if low <= tick <= high]
    assert low <= min(values) + 1e-9
    assert high >= min(max(values), 1.0 - 1e-4) - 1e-9
    assert low < high
    assert 1 <= len(ticks) <= 8


def test_the_error_axis_gives_equal_room_to_equal_factors_of_the_error() -> None:
    assert _log_error(0.95) - _log_error(0.90) == pytest.approx(_log_error(0.975) - _log_error(0.95))
    for values, scale in (([0.5, 0.99], "function"), ([0.5, 0.6], "linear"), ([0.0, 0.99], "linear")):
        _, ax = new_axes(380.0, 300.0)
        _accuracy_axis(ax, "y", values)
        assert ax.get_yscale() == scale


@pytest.mark.parametrize(
    ("ends", "ticks"),
    [
        ((0.93, 0.996), [0.995, 0.99, 0.98, 0.95]),
        ((0.965, 0.9945), [0.993, 0.99, 0.985, 0.97]),
        ((0.5, 0.95), [0.95, 0.9, 0.8, 0.5]),
    ],
)
def test_ticks_of_the_error_axis_are_round(ends: tuple[float, float], ticks: list[float]) -> None:
    assert list(_error_ticks(*ends)()) == pytest.approx(ticks)


@pytest.mark.parametrize("seconds", [[15.0, 1500.0], [340.0, 660.0], [7.0], [0.001, 4e6]])
def test_ticks_of_the_seconds_are_round_and_at_least_two(seconds: list[float]) -> None:
    _, ax = new_axes(344.0, 300.0)
    _seconds_axis(ax, seconds)
    low, high = ax.get_xlim()
    ticks = [tick for tick in ax.get_xticks() if low <= tick <= high]
    assert low < min(seconds) <= max(seconds) < high
    assert len(ticks) >= 2
    assert {f"{tick:.0e}"[0] for tick in ticks} <= set("1235")


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_holds_the_pixels(channels: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (channels, 5, 7), dtype=np.uint8)
    kind, _, content = data_uri(image).partition(",")
    assert kind == "data:image/png;base64"
    seen = np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))
    np.testing.assert_array_equal(seen, image[0] if channels == 1 else image.transpose(1, 2, 0))


def test_numbers_stay_with_their_units_and_values_are_cut() -> None:
    assert prose("5 % in 3 min, 1.0 ± 0.1").count("\N{NO-BREAK SPACE}") == 4
    assert minus(" -0.5") == "\N{MINUS SIGN}0.5"
    assert minus("ADAPTIVE-RANDOM") == "ADAPTIVE-RANDOM"
    assert said({"a": [1, 0.5], "b": None, "c": {}}) == "a 1, 0.5, b none, c none"
    assert len(said("x" * 1000)) == 400
