"""The code that a page of the documentation shows: found, run, and compared with the output that it shows.

python                   run, in the order of the page, in one namespace and one empty folder
console                  a session: every line after ``$ `` is run, and the lines below it are what it prints
text title="Output"      what the block before it prints
sh                       commands to copy: ``coresift ...`` and ``python -m paper ...`` are parsed, not run;
                         so are sessions that show no output

Output is compared up to white space; ``...`` stands for anything. Comments on the line before a block change this:
``<!-- no-run: why -->``, ``<!-- needs: package -->`` (run where it is installed) and, before output,
``<!-- numbers may differ by 5 % -->``.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import io
import re
import shlex
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^\n`]*)$")
NO_RUN = re.compile(r"^\s*<!--\s*no-run:\s*\S.*-->\s*$")
NEEDS = re.compile(r"^\s*<!--\s*needs:\s*(?P<packages>[\w, ]+?)\s*-->\s*$")
DIFFER = re.compile(r"^\s*<!--\s*numbers may differ by (?P<percent>[0-9.]+) %\s*-->\s*$")
OUTPUT = re.compile(r'^text\s+title="Output"$')
PROGRESS = re.compile(r"^WARNING [^\n]*:[^:]*? s left *\n", re.MULTILINE)  # of a slow machine
NUMBER = re.compile(r"([0-9]+(?:[.,][0-9]+)*)")
PROGRAMS = {"coresift": "coresift.cli.app", "python -m paper": "paper.__main__"}
SPAN = re.compile(rf"(?<!`)`((?:{'|'.join(PROGRAMS)}) [^`\n]+)`(?!`)")
PYTHON, SESSION, COMMANDS = ("python", "py"), ("console",), ("sh", "bash", "shell")


@dataclass(frozen=True)
class Block:
    """A fenced block: where its source begins, what is in it, and the last line before it that is not empty."""

    line: int
    info: str
    source: str
    before: str

    @property
    def language(self) -> str:
        return (self.info.split() or [""])[0]

    @property
    def is_exempt(self) -> bool:
        return NO_RUN.match(self.before) is not None

    @property
    def missing(self) -> list[str]:
        """Packages that it needs, and that are not installed."""
        needs = NEEDS.match(self.before)
        names = re.split(r"[,\s]+", needs["packages"]) if needs else []
        return [name for name in names if importlib.util.find_spec(name) is None]


def blocks(text: str) -> list[Block]:
    """All fenced blocks of a page."""
    lines = text.splitlines()
    found = []
    i = 0
    while i < len(lines):
        opening = FENCE.match(lines[i])
        if not opening:
            i += 1
            continue
        indent, start = len(opening["indent"]), i + 1
        end = start
        while end < len(lines) and lines[end].strip() != opening["ticks"]:
            end += 1
        if end == len(lines):
            raise ValueError(f"line {i + 1}: a block is opened and never closed")
        before = next((line for line in reversed(lines[:i]) if line.strip()), "")
        source = "\n".join(line[indent:] for line in lines[start:end])
        found.append(Block(start + 1, opening["info"].strip(), source, before))
        i = end + 1
    return found


def run_page(text: str, name: str) -> list[str]:
    """Run what a page shows; returns the packages for which blocks were left out."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed: str | None = None
    left_out: list[str] = []
    for block in blocks(text):
        where = f"{name}:{block.line}"
        if OUTPUT.match(block.info):
            if printed is not None:
                compare(block.source, printed, where, block.before)
            printed = None
        elif block.is_exempt or block.language not in (*PYTHON, *SESSION):
            printed = None
        elif block.missing:
            left_out += block.missing
            printed = None
        elif block.language in PYTHON:
            with contextlib.redirect_stdout(io.StringIO()) as out, warnings.catch_warnings():
                if NEEDS.match(block.before):  # the others' warnings are theirs
                    warnings.simplefilter("ignore")
                # Blank lines in front make a traceback point at the line of the page.
                exec(compile("\n" * (block.line - 1) + block.source, name, "exec"), namespace)
            printed = out.getvalue()
        else:
            run_session(block.source, where, block.before)
            printed = None
    return left_out


@contextlib.contextmanager
def captured() -> Iterator[io.StringIO]:
    """Both streams, as a terminal shows them."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        yield out


def run_session(source: str, where: str, before: str = "") -> None:
    """Run the commands of a session; each must succeed and print what stands below it."""
    from coresift.cli import main

    head, *parts = re.split(r"(?m)^\$ ", source)
    if head.strip() or not parts:
        raise ValueError(f"{where}: a session begins with '$ '")
    session = [joined(part) for part in parts]
    if not any(shown.strip() for _, shown in session):
        return
    for command, shown in session:
        words = shlex.split(command, comments=True)
        if words[0] != "coresift":
            raise ValueError(f"{where}: only coresift is run, not {words[0]!r}")
        with captured() as out:
            code = main(words[1:])
        if code != 0:
            raise AssertionError(f"{where}: {command!r} ended with {code}: {out.getvalue()}")
        compare(shown, out.getvalue(), where, before)


def joined(part: str) -> tuple[str, str]:
    """The command, its continued lines in one, and the rest."""
    lines = part.split("\n")
    n = 1 + next(i for i, line in enumerate(lines) if not line.endswith("\\"))
    return " ".join(line.removesuffix("\\").strip() for line in lines[:n]), "\n".join(lines[n:])


def compare(shown: str, printed: str, where: str, before: str = "") -> None:
    """Raise where the output is not the one that the page shows."""
    printed = PROGRESS.sub("", printed)
    differ = DIFFER.match(before)
    if differ is not None:
        same = _close(shown, printed, float(differ["percent"]) / 100)
    else:
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        same = doctest.OutputChecker().check_output(shown.strip() + "\n", printed.strip() + "\n", flags)
    if not same:
        raise AssertionError(f"{where}: the page shows\n{shown}\nand the code prints\n{printed}")


def _close(shown: str, printed: str, tolerance: float) -> bool:
    left, right = (NUMBER.split(" ".join(text.split())) for text in (shown, printed))
    if left[::2] != right[::2]:
        return False
    pairs = [
        (float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in zip(left[1::2], right[1::2], strict=True)
    ]
    return all(abs(a - b) <= tolerance * abs(a) for a, b in pairs)


def command_lines(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of every command of ours on a page, in blocks for a shell."""
    for block in blocks(text):
        if block.language not in (*COMMANDS, *SESSION):
            continue
        pending = ""
        for number, line in enumerate(block.source.split("\n"), block.line):
            whole = f"{pending}{line.strip().removeprefix('$ ')}"
            if whole.endswith("\\"):
                pending = whole.removesuffix("\\")
                continue
            pending = ""
            # Output of a session has no prompt; a variable may stand before a command of a script.
            is_command = block.language in COMMANDS or line.startswith("$ ")
            if is_command and re.match(rf"(?:\w+=\S* )*(?:{'|'.join(PROGRAMS)})(?: |$)", whole):
                yield number, whole


def spans(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of the commands that are mentioned in a sentence or a table, outside of blocks."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            is_code = not is_code
        if not is_code:
            yield from ((number, span) for span in SPAN.findall(line))


def check_command(line: str, *, is_whole: bool = True) -> None:
    """Parse a command line as the program does, without running it: names, values, what is required.

    In a sentence a command need not be whole, and a name in capitals stands for any.
    """
    program = next(name for name in PROGRAMS if re.search(rf"(?:^| ){name}(?: |$)", line))
    words = shlex.split(line.partition(program)[2], comments=True)
    words = words[: next((i for i, word in enumerate(words) if word in ("|", ">", "&&", ";", "...")), None)]
    command = application(program)
    while hasattr(command, "commands"):
        n = next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))
        _parse(command, words[:n], is_whole=False)
        if n == len(words) or (not is_whole and words[n].isupper()):
            return
        if words[n] not in command.commands:
            raise ValueError(f"{line!r}: there is no command {words[n]!r}")
        command, words = command.get_command(None, words[n]), words[n + 1 :]
    _parse(command, words, is_whole=is_whole)


def application(program: str = "coresift") -> Any:
    """The command line as an object, made anew; without callbacks, which read files and set the log up."""
    import typer

    root = typer.main.get_command(importlib.import_module(PROGRAMS[program]).app)
    for _, command in commands(root):
        for parameter in command.params:
            parameter.callback = None
    return root


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Names and objects of all commands, groups included; the root is ``()``."""
    yield path, command
    for name in getattr(command, "commands", {}):
        yield from commands(command.get_command(None, name), (*path, name))


def _parse(command: Any, words: list[str], *, is_whole: bool) -> None:
    if "--help" in words or "-h" in words:
        return
    if not is_whole:
        for parameter in command.params:
            parameter.required = False
        known = [name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)]
        if words and words[-1] in known:  # mentioned, without a value
            words = words[:-1]
    try:
        command.make_context(command.name or "coresift", list(words))
    except Exception as error:  # the class moved between versions of Typer
        message = error.format_message() if hasattr(error, "format_message") else repr(error)
        raise ValueError(f"{' '.join(words)!r}: {message}") from error
