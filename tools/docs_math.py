"""MkDocs hook: turn TeX into MathML while building, so that the pages need neither a script nor the network.

``pymdownx.arithmatex`` marks what is mathematics (and leaves code alone) in pages and in docstrings; this hook replaces
each mark. Browsers draw MathML themselves. TeX that the converter does not know is a warning, an error under --strict.
"""

from __future__ import annotations

import html
import logging
import re

from latex2mathml.converter import convert
from mkdocs.structure.pages import Page

log = logging.getLogger("mkdocs.hooks.math")

_MARK = re.compile(
    r'<span class="arithmatex">\\\((?P<inline>.*?)\\\)</span>'
    r'|<div class="arithmatex">\s*\\\[(?P<display>.*?)\\\]\s*</div>',
    re.DOTALL,
)


def to_mathml(tex: str, *, display: bool) -> str:
    """MathML of a formula; ValueError where the converter would quietly make something else of it."""
    if re.sub(r"\\.", "", tex).count("{") != re.sub(r"\\.", "", tex).count("}"):
        raise ValueError(f"braces do not match in the formula {tex!r}")
    if r"\operatorname*" in tex:
        raise ValueError(f"the converter does not know \\operatorname* (it has \\argmax, \\argmin): {tex!r}")
    tex = re.sub(r"(?<=\\begin{)aligned(?=})|(?<=\\end{)aligned(?=})", "split", tex)  # the name it knows it by
    if display:  # limits go below the operator, which the converter does for sums only
        tex = re.sub(r"\\(sup|inf|max|min|lim|argmax|argmin|bigcup|bigcap)(?=\s*_)", r"\\\1\\limits", tex)
    try:
        result: str = convert(tex.strip(), display="block" if display else "inline")
    except Exception as error:  # the converter's errors have no common base
        raise ValueError(f"cannot read the formula {tex!r}: {type(error).__name__} {error}") from error
    result = result.replace(r">\|<", ">&#x02016;<")  # the sign after \bigl and its kin, which it leaves as text
    unknown = re.search(r"<m[a-z]+[^>]*>(\\[^<]*|&)<", result)  # what it does not know comes out as text
    if unknown:
        raise ValueError(f"unknown command in the formula {tex!r}: {unknown[1]}")
    return result


def on_page_content(content: str, page: Page, **_: object) -> str:
    """MkDocs calls this with the HTML of every page."""

    def replace(mark: re.Match[str]) -> str:
        display = mark["display"] is not None
        tex = html.unescape(mark["display"] if display else mark["inline"])
        try:
            return to_mathml(tex, display=display)
        except ValueError as error:
            log.warning("%s: %s", page.file.src_uri, error)
            return mark[0]

    return _MARK.sub(replace, content)
