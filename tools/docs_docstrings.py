"""Griffe extension: docstrings are reStructuredText, as in the rest of scientific Python; the site reads Markdown.

The few constructs that we use are translated: ``:math:`` and ``.. math::``, references such as ``:class:`` or
``:func:``, ``.. note::``, simple tables of two columns, and the double colon before an indented block.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import griffe

_ROLE = re.compile(r":(?:py:)?(?:class|func|meth|mod|attr|exc|obj|data):`([^`]*)`")
_INLINE_MATH = re.compile(r":math:`([^`]*)`", re.DOTALL)
_DIRECTIVE = re.compile(r"^(?P<indent>[ ]*)\.\. (?P<name>math|note|warning)::[ ]*(?P<rest>.*)$")

_TABLE_RULE = re.compile(r"^(?P<indent>[ ]*)={3,}[ ]+(?P<second>={3,})[ ]*$")


def _reference(match: re.Match[str]) -> str:
    target = match[1]
    shown = target.lstrip("~").rpartition(".")[2] if target.startswith("~") else target.lstrip("~")
    return f"`{shown}`"


def _without_tables(lines: list[str]) -> Iterator[str]:
    """Simple tables of two columns (``=== ===`` around the rows) as lists: Markdown tables do not nest."""
    rules = [_TABLE_RULE.match(line) for line in lines]
    edges = [i for i, rule in enumerate(rules) if rule]
    position = 0
    for first, last in zip(edges[::2], edges[1::2], strict=False):
        rule = rules[first]
        assert rule is not None
        indent, column = rule["indent"], rule.start("second")
        yield from lines[position:first]
        yield ""
        for line in lines[first + 1 : last]:
            key, value = line[len(indent) : column].strip(), line[column:].strip()
            yield f"{indent}- {key}: {value}" if key else f"{indent}  {value}"
        yield ""
        position = last + 1
    yield from lines[position:]


def to_markdown(text: str) -> str:
    """Translate the constructs above; everything else is left as it is."""
    lines = list(_without_tables(text.splitlines()))
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
