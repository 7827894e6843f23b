"""Elements of the report's page: what is escaped, where values land, which labels fit, pixels as PNG."""

import base64
import io
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresift._errors import InvalidInputError
from paper.report.images import data_uri, png
from paper.report.svg import (
    Frame,
    Labels,
    Markup,
    Scale,
    accuracy_kind,
    safe,
    spanning,
    svg,
    tag,
)

SHARES = st.floats(0.0, 1.0)


@given(st.text(), st.text())
def test_any_text_is_content_and_any_value_an_attribute(content: str, value: str) -> None:
    root = ET.fromstring(tag("p", content, title=value))
    assert len(root) == 0
    assert root.tag == "p"
    assert set(root.attrib) == {"title"}
    plain = "".join(c if c.isprintable() else "" for c in content)
    assert "".join(
        c if c.isprintable() and c != "\N{REPLACEMENT CHARACTER}" else "" for c in root.text or ""
    ) == (plain.replace("\N{REPLACEMENT CHARACTER}", ""))


def test_markup_is_not_escaped_twice_and_text_is_once() -> None:
    assert safe(Markup("<b>1</b>")) == "<b>1</b>"
    assert tag("p", tag("b", "<i>"), "&") == "<p><b>&lt;i&gt;</b>&amp;</p>"
    assert tag("p", "5\N{NO-BREAK SPACE}%") == "<p>5\N{NO-BREAK SPACE}%</p>"
    assert "\x1b" not in tag("p", "\x1b[31m")
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in tag("p", "a\N{RIGHT-TO-LEFT OVERRIDE}b")


@pytest.mark.parametrize("name", ["p onclick", "p>", "", "a=b"])
def test_a_name_of_a_tag_is_no_text(name: str) -> None:
    with pytest.raises(InvalidInputError):
        tag(name, "x")
    with pytest.raises(InvalidInputError):
        tag("p", "x", **{f"a{name} b": 1})


@pytest.mark.parametrize(
    ("kind", "values"),
    [("linear", st.floats(-1e6, 1e6)), ("log", st.floats(1e-3, 1e7)), ("error", SHARES)],
    ids=["linear", "log", "error"],
)
def test_all_values_lie_within_the_frame_in_their_order(kind: str, values: st.SearchStrategy[float]) -> None:
    @given(st.lists(values, min_size=1, max_size=20))
    def check(numbers: list[float]) -> None:
        scale = spanning(numbers, 300.0, 10.0, kind)
        places = [scale(number) for number in sorted(numbers)]
        assert all(10.0 - 1e-6 <= place <= 300.0 + 1e-6 for place in places)
        assert all(a >= b - 1e-6 for a, b in pairwise(places))
        ticks = scale.ticks(6)
        assert len(ticks) <= 7
        assert all(10.0 - 1e-6 <= scale(tick) <= 300.0 + 1e-6 for tick in ticks)

    check()


def test_the_error_axis_gives_equal_room_to_equal_factors_of_the_error() -> None:
    scale = spanning([0.9, 0.99], 0.0, 100.0, "error")
    assert scale(0.95) - scale(0.90) == pytest.approx(scale(0.975) - scale(0.95))
    linear = spanning([0.9, 0.99], 0.0, 100.0)
    assert linear(0.95) - linear(0.90) != pytest.approx(linear(0.975) - linear(0.95))
    assert accuracy_kind([0.5, 0.99]) == "error"
    assert accuracy_kind([0.5, 0.6]) == accuracy_kind([0.0, 0.99]) == "linear"


@pytest.mark.parametrize(
    ("scale", "ticks"),
    [
        (Scale(0.0, 10.0, 0, 1), [0, 2, 4, 6, 8, 10]),
        (Scale(15.0, 1500.0, 0, 1, "log"), [30, 100, 300, 1000]),
        (Scale(340.0, 660.0, 0, 1, "log"), [400, 500, 600]),
        (Scale(0.93, 0.995, 0, 1, "error"), [0.95, 0.98, 0.99, 0.995]),
    ],
)
def test_ticks_are_round(scale: Scale, ticks: list[float]) -> None:
    assert scale.ticks(6) == pytest.approx(ticks)


@given(st.lists(st.tuples(st.floats(60, 360), st.floats(30, 220)), min_size=1, max_size=25))
def test_labels_cover_neither_marks_nor_one_another(points: list[tuple[float, float]]) -> None:
    labels = Labels(Frame(380.0, 280.0))
    for x, y in points:
        labels.avoid(x, y, 4.0)
    n_marks = len(labels.taken)
    shown = [labels.place(x, y, "NAME", "rbf") for x, y in points]
    boxes = labels.taken
    assert len(boxes) - n_marks == sum(bool(name) for name in shown)
    for i, a in enumerate(boxes[n_marks:], start=n_marks):
        for b in boxes[:i]:
            assert a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] or b[1] >= a[3]
    if len(points) == 1:
        assert shown[0]  # alone, there is always room


def test_a_label_in_need_covers_faint_marks_only() -> None:
    frame = Frame(380.0, 280.0)
    for is_faint, is_placed in ((True, True), (False, False)):
        labels = Labels(frame)
        for x in range(0, 400, 6):
            for y in range(0, 300, 6):
                labels.avoid(float(x), float(y), 4.0, is_faint=is_faint)
        assert bool(labels.place(200.0, 150.0, "NAME", "rbf", far=True)) == is_placed


def test_a_figure_says_what_it_shows() -> None:
    root = ET.fromstring(svg(10.0, 20.0, "two <things>"))
    assert root.attrib["aria-label"] == "two <things>"
    assert root.attrib["viewBox"] == "0 0 10 20"


@pytest.mark.parametrize("channels", [1, 3])
def test_png_holds_the_pixels(channels: int) -> None:
    from PIL import Image

    image = np.random.default_rng(0).integers(0, 256, (channels, 5, 7), dtype=np.uint8)
    seen = np.asarray(Image.open(io.BytesIO(png(image))))
    expected = image[0] if channels == 1 else image.transpose(1, 2, 0)
    np.testing.assert_array_equal(seen, expected)
    kind, _, content = data_uri(image).partition(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(content) == png(image)


@pytest.mark.parametrize(
    "image", [np.zeros((1, 2, 2)), np.zeros((2, 2, 2), np.uint8), np.zeros((2, 2), np.uint8)]
)
def test_what_is_no_image_is_refused(image: np.ndarray) -> None:
    with pytest.raises(InvalidInputError, match="must be uint8"):
        png(image)
