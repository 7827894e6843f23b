"""Griffe extension: docstrings are reStructuredText, as in the rest of scientific Python; the site reads Markdown.

The few constructs that we use are translated: ``:math:`` and ``.. math::``, references such as ``:class:`` or
``:func:``, ``.. note::`` and the double colon before an indented block.
"""

from __future__ import annotations

import re
import textwrap

import griffe

_ROLE = re.compile(r":(?:py:)?(?:class|func|meth|mod|attr|exc|obj|data):`([^`]*)`")
_INLINE_MATH = re.compile(r":math:`([^`]*)`", re.DOTALL)
_DIRECTIVE = re.compile(r"^(?P<indent>[ ]*)\.\. (?P<name>math|note|warning)::[ ]*(?P<rest>.*)$")


def _reference(match: re.Match[str]) -> str:
    target = match[1]
    shown = target.lstrip("~").rpartition(".")[2] if target.startswith("~") else target.lstrip("~")
    return f"`{shown}`"


def to_markdown(text: str) -> str:
    """Translate the constructs above; everything else is left as it is."""
    lines = text.splitlines()
    out: list[str] = []
    i = 0
    while i < len(lines):
        directive = _DIRECTIVE.match(lines[i])
        i += 1
        if not directive:
            out.append(lines[i - 1])
            continue
        indent = directive["indent"]
        body = []
        while i < len(lines) and (not lines[i].strip() or lines[i].startswith(indent + "  ")):
            body.append(lines[i])
            i += 1
        # "rest" is the first line of the content; what follows it is indented deeper than the directive.
        content = "\n".join([directive["rest"].strip(), textwrap.dedent("\n".join(body))]).strip()
        if directive["name"] == "math":
            block = ["", "$$", content, "$$", ""]
        else:
            block = ["", f"!!! {directive['name']}", "", textwrap.indent(content, "    "), ""]
        out.extend(textwrap.indent("\n".join(block), indent).splitlines())
    result = "\n".join(out)
    result = _INLINE_MATH.sub(lambda match: f"${' '.join(match[1].split())}$", result)
    result = _ROLE.sub(_reference, result)
    return re.sub(r"(?m)(?<=\S)::$", ":", result)


class RestructuredText(griffe.Extension):
    """Applies :func:`to_markdown` to every docstring that is loaded."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Griffe calls this for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
