"""Matplotlib figures as inline SVG: text stays text, and colours follow the page, light or dark.

Figures use the light colours of :data:`PALETTE` and no others. :class:`Sheet` moves every ``style`` attribute that
Matplotlib writes into a rule of the page's style sheet, with the colour as a variable, so that a strict content
security policy and a dark scheme work without scripts.
"""

from __future__ import annotations

import io
import re
import tomllib
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from typing import Any
from unicodedata import category

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

PALETTE: dict[str, tuple[str, str]] = tomllib.loads(
    (files(__package__) / "templates" / "palette.toml").read_text(encoding="utf-8")
)
LIGHT = {name: light for name, (light, _) in PALETTE.items()}
_VARIABLES = {light: f"var(--{name})" for name, light in LIGHT.items()}
_PIXELS = 72.0  # an inch: one unit of the figure is one pixel of the page

_STYLE: Any = {
    "font.family": "DejaVu Sans",  # measured with it, shown in the reader's own font, which is rarely wider
    "font.size": 11.0,
    "text.parse_math": False,  # a name is text, whatever it contains
    **dict.fromkeys(("text.color", "xtick.labelcolor", "ytick.labelcolor", "axes.labelcolor"), LIGHT["quiet"]),
    **dict.fromkeys(("xtick.color", "ytick.color", "axes.edgecolor"), LIGHT["quiet"]),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.spines.left"), False),
    **dict.fromkeys(("axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize"), 11.0),
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "ytick.major.size": 0.0,
    "grid.color": LIGHT["rule"],
    "lines.scale_dashes": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "coresift",
}
_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_NUMBER = re.compile(r"-?\d+\.\d+")
_COLOUR = re.compile("#[0-9a-f]{6}")


def clean(text: str) -> str:
    """Replace control characters, halves of surrogate pairs and changes of direction."""
    return "".join(c if c in "\n\t" or not category(c).startswith("C") else "\N{REPLACEMENT CHARACTER}" for c in text)


@contextmanager
def page_style() -> Iterator[None]:
    """Draw in the style of the page; a character that the font lacks is left to the browser."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def new_figure(width: float, height: float) -> Figure:
    """Make an empty figure of a size in pixels, without a background."""
    return Figure((width / _PIXELS, height / _PIXELS), dpi=_PIXELS, facecolor="none")


def new_axes(
    width: float, height: float, *, left: float = 44.0, right: float = 12.0, top: float = 26.0
) -> tuple[Figure, Axes]:
    """Make a figure with one axes and margins in pixels: fixed margins take half the time of a computed layout."""
    figure, bottom = new_figure(width, height), 42.0
    box = (left / width, bottom / height, 1.0 - (left + right) / width, 1.0 - (bottom + top) / height)
    return figure, figure.add_axes(box, facecolor="none")


class Sheet:
    """Turns figures into SVG, and collects the style rules that they need."""

    def __init__(self) -> None:
        self._classes: dict[str, str] = {}
        self._n_figures = 0

    @property
    def css(self) -> str:
        """The palette in light and dark, and a rule for every style of the figures."""
        light, dark = ("".join(f"--{name}: {pair[i]}; " for name, pair in PALETTE.items()) for i in (0, 1))
        schemes = f":root {{ {light}}}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}\n"
        return schemes + "".join(f".{name} {{ {rule} }}\n" for rule, name in self._classes.items())

    def svg(
        self,
        figure: Figure,
        description: str = "",
        css: str = "plot",
        tips: Mapping[str, tuple[str, str]] | None = None,
    ) -> Markup:
        """Return the figure as an element; without a description it is decoration.

        ``tips`` maps the ``gid`` of an artist to a class and a tooltip.
        """
        file = io.StringIO()
        unstamped = dict.fromkeys(("Date", "Creator", "Type", "Format"))
        with page_style():
            figure.savefig(file, format="svg", metadata=unstamped)
        root = ET.fromstring(file.getvalue())
        self._n_figures += 1
        self._rewrite(root, tips or {})
        width, height = (figure.get_size_inches() * _PIXELS).round(1)
        box = {"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}", "height": f"{height:g}"}
        label = {"role": "img", "aria-label": clean(description)} if description else {"aria-hidden": "true"}
        root.attrib = {"class": css, **box, **label}
        return Markup(ET.tostring(root, encoding="unicode"))

    def _rewrite(self, root: ET.Element, tips: Mapping[str, tuple[str, str]]) -> None:
        prefix = f"f{self._n_figures}-"
        for node in root.iter():
            node.tag = node.tag.removeprefix(_SVG)
            node.text, node.tail = (node.text if node.tag in ("text", "title") else None), None
            for child in [each for each in node if each.tag == f"{_SVG}style"]:
                node.remove(child)
            identifier = node.attrib.pop("id", "")
            if identifier in tips:
                css, title = tips[identifier]
                node.set("class", css)
                node.insert(0, ET.Element("title"))
                node[0].text = clean(title)
            elif node.tag in ("path", "clipPath") and identifier:
                node.set("id", prefix + identifier)
            if (target := node.attrib.pop(_XLINK, None)) is not None:
                node.set("href", f"#{prefix}{target[1:]}")
            if clip := node.get("clip-path"):
                node.set("clip-path", clip.replace("#", f"#{prefix}"))
            if node.get("transform", "").startswith("rotate(-0 "):
                del node.attrib["transform"]
            for name in {"d", "x", "y", "width", "height", "transform"} & set(node.attrib):
                node.set(name, _NUMBER.sub(_rounded, " ".join(node.attrib[name].split())))
            if style := node.attrib.pop("style", None):
                node.set("class", " ".join(filter(None, (node.get("class"), self._class(style)))))

    def _class(self, style: str) -> str:
        rule = re.sub(r"font-family: [^;]*(; )?", "", style)
        rule = _COLOUR.sub(lambda colour: _VARIABLES[colour[0]], rule)
        return self._classes.setdefault(rule, f"s{len(self._classes)}")


def _rounded(number: re.Match[str]) -> str:
    """Two decimals are a hundredth of a pixel, and half of the bytes."""
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")
