"""Options of commands: those of every command, those that say what to read, and those of a dataclass."""

from __future__ import annotations

import inspect
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from coresift._errors import InvalidInputError
from coresift.coresets.options import option

if TYPE_CHECKING:
    from rich.console import Console

    from coresift._progress import Display


@dataclass
class Settings:
    """The common options, wherever on the line they stood, and two consoles: a pipe carries results only."""

    quiet: int = 0  # how often the option was given
    verbose: int = 0
    debug: int = 0
    given: frozenset[str] = frozenset()  # options of the command that stood on the line or in a file

    @cached_property
    def out(self) -> Console:
        return plain_console()

    @cached_property
    def err(self) -> Console:
        return plain_console(stderr=True)

    @property
    def shows_progress(self) -> bool:
        return self.err.is_terminal and not self.quiet

    def bars(self, *, transient: bool = False) -> AbstractContextManager[Display]:
        from coresift._progress import bars

        return bars(self.err, disable=not self.shows_progress, transient=transient)

    def show(self, lines: Iterable[str], figures: dict[str, Any] | None = None, notes: Iterable[str] = ()) -> None:
        """Print a result: its figures as JSON if they are given, else in words; notes only if that is wanted."""
        if figures is not None:
            typer.echo(json.dumps(figures, allow_nan=False))
            return
        for line in [*lines, *([] if self.quiet else notes)]:
            self.out.print(line)

    def configure_logging(self) -> None:
        from rich.logging import RichHandler

        level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(self.verbose, 2)]
        logger = logging.getLogger("coresift")
        logger.setLevel(logging.ERROR if self.quiet else level)
        logger.handlers = [RichHandler(console=self.err, show_path=False, show_time=False)]
        logger.handlers[0].setFormatter(_PlainFormatter())
        logger.propagate = False  # shown once, even if the program around us has configured logging as well


class _PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def printable(text: str) -> str:
    """Return a text with escape sequences for characters that a terminal would obey, or that cannot be encoded."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def plain_console(**how: Any) -> Console:
    """Return a console that prints texts as they are: names of files may look like markup, or hold escape sequences."""
    from rich.console import Console

    class Plain(Console):
        def render_str(self, text: str, **settings: Any) -> Any:
            return super().render_str(printable(text), **settings)

    return Plain(highlight=False, markup=False, emoji=False, **how)


def _collect(context: typer.Context, parameter: typer.CallbackParam, value: int) -> int:
    settings, name = context.find_root().obj, str(parameter.name)
    setattr(settings, name, getattr(settings, name) + value)
    return value


Quiet = Annotated[bool, typer.Option("--quiet", "-q", callback=_collect, help="Print only results and errors.")]
Verbose = Annotated[
    int,
    typer.Option("--verbose", "-v", count=True, show_default=False, callback=_collect, help="Log progress; -vv: more."),
]
Debug = Annotated[bool, typer.Option("--debug", callback=_collect, help="Show the traceback of an error.")]

_COMMON: dict[str, Any] = {"quiet": (Quiet, False), "verbose": (Verbose, 0), "debug": (Debug, False)}


def with_common_options(function: Callable[..., None]) -> Callable[..., None]:
    """Turn ``function(settings, ...)`` into a command with the common options, and with the fields of dataclasses."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]  # without ``settings``
    added = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
    expanded = {p.name: list(field_options(p.annotation)) for p in own if is_dataclass(p.annotation)}
    parameters = [
        added("context", annotation=typer.Context),
        *(p.replace(kind=p.KEYWORD_ONLY) for each in own for p in expanded.get(each.name, [each])),
        *(added(name, default=default, annotation=kind) for name, (kind, default) in _COMMON.items()),
    ]

    @wraps(function)
    def command(*, context: typer.Context, **options: Any) -> None:
        settings: Settings = context.find_root().obj
        settings.configure_logging()
        sources = ((name, context.get_parameter_source(name)) for name in options)
        settings.given = frozenset(name for name, s in sources if s is not None and s.name != "DEFAULT")
        values = {}
        for each in own:
            if each.name in expanded:
                given = {p.name: options[p.name] for p in expanded[each.name]}
                try:
                    values[each.name] = each.annotation(**given)
                except InvalidInputError as error:  # invalid whatever the data: wrong usage
                    raise typer.BadParameter(as_option(str(error), each.annotation)) from error
            else:
                values[each.name] = options[each.name]
        function(settings, **values)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def as_option(message: str, options: Any) -> str:
    """Return a message about a field of a dataclass with the name that it has on the command line."""
    flags = {each.name: flag for each in fields(options) for flag in each.metadata.get("flags", ()) if flag[1] == "-"}
    plain = "--{}".format
    return re.sub(r"^[a-z]\w*(?= ?= )", lambda name: flags.get(name[0], plain(name[0].replace("_", "-"))), message)


def field_options(options: Any) -> Iterator[inspect.Parameter]:
    """Yield a parameter with a Typer option for each field of a dataclass that has a help text.

    The metadata of a field holds ``help`` and, optionally, ``flags`` (such as ``("-b",)``), ``min``, and ``choices`` (a
    tuple, or a function that returns the names to complete).
    """
    hints = get_type_hints(options)
    for each in sorted(fields(options), key=lambda each: each.name not in options.__annotations__):  # own ones first
        about = each.metadata
        if "help" not in about:
            continue
        types = get_args(hints[each.name]) or (hints[each.name],)
        taken: Any = next((simple for simple in (str, bool, float, int, Path) if simple in types), str)
        flags = list(about.get("flags", ()))
        if not any(flag.startswith("--") for flag in flags):
            name = each.name.replace("_", "-")
            flags.insert(0, f"--{name}/--no-{name}" if each.default is True else f"--{name}")
        choices = about.get("choices")
        option = typer.Option(
            *flags,
            help=about["help"],
            min=about.get("min"),
            metavar="|".join(choices) if isinstance(choices, tuple) else None,
            autocompletion=_completing(choices),
        )
        if each.default is None:
            taken = taken | None
        kind, annotation = inspect.Parameter.KEYWORD_ONLY, Annotated[taken, option]
        yield inspect.Parameter(each.name, kind, default=each.default, annotation=annotation)


def _completing(choices: Any) -> Callable[[], list[str]] | None:
    return None if choices is None else lambda: list(choices() if callable(choices) else choices)


Input = Annotated[
    str,
    typer.Argument(
        metavar="INPUT",
        help="A .npy, .npz, .csv, .tsv, .parquet or .feather file, a folder or a quoted pattern of them, a folder of "
        "images, or an address such as s3://bucket/folder.",
    ),
]
Label = Annotated[str | None, typer.Option(help="The column of the labels; for images any word: folders are labels.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output if it exists.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@dataclass(frozen=True)
class Preparing:
    """How the columns of a table are read."""

    categorical: str | None = option(None, "Columns to read as categories, separated by commas.")
    drop: str | None = option(None, "Columns of a table to leave out.")
    id: str | None = option(None, "Columns that identify rows: left out as well.")
    raw: bool = option(False, "Take numbers as they are: nothing is encoded, filled in or standardised.")

    def preparation(self, columns: str | None = None) -> Any:
        """What :func:`coresift.open_rows` takes: None, "auto" or a preparation that is not fitted."""
        given: dict[str, Any] = {name: listed(getattr(self, name)) or [] for name in ("categorical", "drop", "id")}
        if not any(given.values()) and (columns is None or self.raw):
            return None if self.raw else "auto"
        if self.raw:
            raise typer.BadParameter("--raw does not go with --categorical, --drop or --id")
        from coresift import Preparation

        return Preparation(columns=listed(columns), **given)


@dataclass(frozen=True)
class Reading(Preparing):
    """Which columns of the input are read, and how."""

    columns: str | None = option(None, "Feature columns, separated by commas. Default: all that can be read.")
    embedding: str | None = option(None, "A column of lists of numbers; for .npz files, the array.")
    weight: str | None = option(None, "The column of the input weights.")
    image_size: int = option(32, "Height and width in pixels to which images are resized.", min=1)

    def names(self) -> dict[str, Any]:
        given = {"embedding": self.embedding, "weight": self.weight, "image_size": self.image_size}
        return {**given, "columns": listed(self.columns), "preparation": self.preparation(self.columns)}


def listed(columns: str | None) -> list[str] | None:
    """Names that are separated by commas."""
    return None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]


def _on_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make the entries of a TOML file the defaults of the command's options."""
    import tomllib

    if path is None:
        return None
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise typer.BadParameter(f"{path}: no such file") from None
    except (ValueError, RecursionError, OSError) as error:  # not TOML, not text, a number of 5,000 digits
        raise typer.BadParameter(f"{path}: {error}") from error
    known = {"input": "data"}
    for parameter in context.command.params:  # by its name and by its options: n_cells is --cells
        names = (str(parameter.name), *(flag.lstrip("-").replace("-", "_") for flag in parameter.opts))
        known |= dict.fromkeys(names, str(parameter.name))
    defaults = {}
    for key, value in entries.items():
        name = known.get(key.replace("-", "_"), "config")
        if name == "config":
            raise typer.BadParameter(f"{path}: unknown option {key!r}")
        defaults[name] = ",".join(map(str, value)) if isinstance(value, list) else value
    context.default_map = {**(context.default_map or {}), **defaults}
    return path


Config = Annotated[
    Path | None,
    typer.Option(is_eager=True, callback=_on_config, help="A TOML file of options; the command line takes precedence."),
]
