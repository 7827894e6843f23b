"""MkDocs hook: the reference of the command line, written from the program itself while building.

A page has the mark ``<!-- commands -->`` where the commands go, each with its arguments, options and examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer
from mkdocs.structure.pages import Page

MARK = "<!-- commands -->"
COMMON = ("quiet", "verbose", "debug")  # every command has them
_EXTRA = re.compile(r"\s*\[(?P<extra>[^\[\]]*)\]$")
_EXAMPLES = re.compile(r"Examples?:\n(?P<lines>(?:[ ]+\S.*\n?)+)")


def commands(command: Any, path: tuple[str, ...] = ("coresift",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Names and objects of all commands, the groups before what is in them."""
    yield path, command
    for name in getattr(command, "commands", {}):
        yield from commands(command.get_command(None, name), (*path, name))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _row(parameter: Any, context: Any) -> str:
    """Names, meaning, and what the program says in brackets: the default, the range, what is required."""
    shown, meaning = parameter.get_help_record(context)
    is_option = parameter.param_type_name == "option"
    names = [*parameter.opts, *parameter.secondary_opts] if is_option else [shown.split()[0].strip("[]")]
    extra = _EXTRA.search(meaning)
    note = extra["extra"] if extra else ""
    note = re.sub(r"\bx>=(\S+)", r"at least \1", note.removeprefix("default: "))
    listed = " ".join(f"`{name}`" for name in names)
    return f"| {listed} | {_cell(_EXTRA.sub('', meaning))} | {_cell(note)} |"


def _table(parameters: list[Any], context: Any) -> str:
    rows = [_row(parameter, context) for parameter in parameters if not getattr(parameter, "hidden", False)]
    return "\n".join(["| option | meaning | default, limits |", "|---|---|---|", *rows])


def _section(path: tuple[str, ...], command: Any) -> str:
    name = " ".join(path)
    with command.make_context(path[-1], [], resilient_parsing=True) as context:
        text = (command.help or "").replace("\b", "").strip()
        examples = _EXAMPLES.search(text)
        text = re.sub(r"\n{3,}", "\n\n", _EXAMPLES.sub("", text))
        parts = [f"{'#' * len(path)} {name}", text]
        if examples:
            lines = [line.strip() for line in examples["lines"].splitlines()]
            parts.append("\n".join(["```sh", *lines, "```"]))
        own = [parameter for parameter in command.params if parameter.name not in COMMON]
        if own and not hasattr(command, "commands"):
            parts.append(_table(own, context))
    return "\n\n".join(parts)


def reference() -> str:
    """The commands as Markdown: first the options that all have, then a section for each command."""
    from coresift.cli.app import app

    root = typer.main.get_command(app)
    with root.make_context("coresift", [], resilient_parsing=True) as context:
        common = [parameter for parameter in root.params if parameter.name in COMMON]
        rest = [parameter for parameter in root.params if parameter.name not in COMMON]
        shared = [
            "## Options of every command",
            "Before the name of the command, or after it:",
            _table(common, context),
            "Without a command:",
            _table(rest, context),
        ]
    sections = [_section(path, command) for path, command in commands(root) if command is not root]
    return "\n\n".join([*shared, *sections])


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """MkDocs calls this with the text of every page."""
    return markdown.replace(MARK, reference()) if MARK in markdown else markdown
