"""The application: its commands, the options of every command and of dataclasses, its errors and exit codes."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperGroup

from coresift import __version__
from coresift._errors import CoresiftError, InvalidInputError

if TYPE_CHECKING:
    from rich.console import Console

    from coresift._progress import Display

EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


@dataclass
class Settings:
    """The common options, wherever on the line they stood, and two consoles: a pipe carries results only."""

    quiet: int = 0  # how often the option was given
    verbose: int = 0
    debug: int = 0
    given: frozenset[str] = frozenset()  # options of the command that stood on the line or in a file
    parameters: Sequence[Any] = ()  # of the command

    @cached_property
    def out(self) -> Console:
        return plain_console()

    @cached_property
    def err(self) -> Console:
        return plain_console(stderr=True)

    @property
    def shows_progress(self) -> bool:
        return self.err.is_terminal and not self.quiet

    def bars(self, *, transient: bool = False) -> contextlib.AbstractContextManager[Display]:
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
        settings.parameters = context.command.params
        sources = ((name, context.get_parameter_source(name)) for name in options)
        settings.given = frozenset(name for name, s in sources if s is not None and s.name != "DEFAULT")
        values = {}
        for each in own:
            if each.name in expanded:
                given = {p.name: options[p.name] for p in expanded[each.name]}
                try:
                    values[each.name] = each.annotation(**given)
                except InvalidInputError as error:  # invalid whatever the data: wrong usage
                    raise typer.BadParameter(as_option(str(error), settings.parameters)) from error
            else:
                values[each.name] = options[each.name]
        try:
            function(settings, **values)
        except InvalidInputError as error:
            error.args = (as_option(str(error), settings.parameters),)
            raise

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def as_option(message: str, parameters: Sequence[Any]) -> str:
    """Return a message in which ``name = ...`` at the start, and ``name=value`` anywhere, are options of a command."""
    options = {str(each.name): each for each in parameters if each.opts[0].startswith("-")}

    def spelt(found: re.Match[str]) -> str:
        name, value = found["first"] or found["name"], found["value"]
        flags = getattr(options.get(name), "secondary_opts" if value == "False" else "opts", ())
        flag = max(flags, key=len, default=found[0])
        return flag if not flags or value in (None, "True", "False") else f"{flag} {value}"

    anywhere = r"(?<![^\s(])(?P<name>[a-z]\w*)='?(?P<value>[\w.%-]*\w)'?(?=[.,;:)]?(?:\s|$))"  # not in a path
    return re.sub(rf"^(?P<first>[a-z]\w*)(?= = )|{anywhere}", spelt, message)


def field_options(options: Any) -> Iterator[inspect.Parameter]:
    """Yield a parameter with a Typer option for each field whose metadata have help and perhaps flags, min, choices."""
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
            metavar="|".join(choices) if isinstance(choices, tuple) else None,  # or a function that returns the names
            autocompletion=_completing(choices),
        )
        if each.default is None:
            taken = taken | None
        kind, annotation = inspect.Parameter.KEYWORD_ONLY, Annotated[taken, option]
        yield inspect.Parameter(each.name, kind, default=each.default, annotation=annotation)


def _completing(choices: Any) -> Callable[[], list[str]] | None:
    return None if choices is None else lambda: list(choices() if callable(choices) else choices)


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
    typer.Option(is_eager=True, callback=_on_config, help="TOML file of options; the command line takes precedence."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def lazy_app(name: str, version: str, help_text: str, commands: Mapping[str, tuple[str, str]]) -> typer.Typer:
    """Make an application of commands, each with its module and a line of help, that are imported when called."""

    class Lazy(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            placeholders: dict[str, Any] = dict.fromkeys(commands)  # None: not imported yet
            self.commands = {**placeholders, **self.commands}

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name in commands and self.commands[cmd_name] is None:
                made = getattr(importlib.import_module(commands[cmd_name][0]), cmd_name.replace("-", "_"))
                if not isinstance(made, typer.Typer):
                    function = with_common_options(made)
                    made = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
                    made.command(name=cmd_name)(function)
                self.commands[cmd_name] = typer.main.get_command(made)
            return super().get_command(ctx, cmd_name)

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            with formatter.section("Commands"):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])

    app = typer.Typer(
        cls=Lazy,
        help=help_text,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def print_version(value: bool) -> None:
        if value:
            typer.echo(f"{name} {version}")
            raise typer.Exit

    shown = typer.Option(False, "--version", is_eager=True, callback=print_version, help="Print the version.")

    @app.callback(invoke_without_command=True)
    def root(
        context: typer.Context, quiet: Quiet = False, verbose: Verbose = 0, debug: Debug = False, version: bool = shown
    ) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())
            raise typer.Exit(EXIT_USAGE)

    app.info.name = name
    return app


app = lazy_app(
    "coresift",
    __version__,
    "Pick a small weighted subset of a data set, say how wrong it can be, and train on it.",
    {
        "select": ("coresift.cli.select", "Choose a weighted subset of rows, from files of any size."),
        "audit": ("coresift.cli.audit", "Search for the query at which a coreset is most wrong."),
        "certify": ("coresift.cli.audit", "Prove a bound on the error of a coreset."),
        "fit": ("coresift.cli.fit", "Fit a linear model to a few rows, with a certificate."),
        "predict": ("coresift.cli.fit", "Predict with a model made by 'fit'."),
        "train": ("coresift.cli.train", "Train a network on a subset of a data set."),
        "strategies": ("coresift.cli.train", "List the methods that choose what to train on."),
        "datasets": ("coresift.cli.train", "List the data sets known by name."),
    },
)


def _report(error: Exception, settings: Settings, program: str) -> int:
    """Print the error in one line, after the traceback if ``--debug`` was given, and return the exit code."""
    code = EXIT_ERROR
    is_usage = hasattr(error, "format_message")  # of Click or Typer, depending on the version
    if settings.debug and not is_usage:
        traceback.print_exception(error)
    if is_usage:
        text = error.format_message().strip()  # type: ignore[attr-defined]
        end = "" if text.endswith((".", "?", "!")) else "."
        command = getattr(getattr(error, "ctx", None), "command_path", program)
        text, code = f"{text}{end} Try '{command} --help'.", int(getattr(error, "exit_code", EXIT_USAGE))
    elif isinstance(error, (CoresiftError, OSError)):  # the message is enough
        text = str(error)
    elif isinstance(error, MemoryError):
        text = f"out of memory. {error}"
    else:
        hint = "" if settings.debug else " (unexpected; --debug shows where)"
        text = f"{type(error).__name__}: {error}{hint}"
    sys.stderr.write(f"{program}: error: {printable(' '.join(text.split()))}\n")
    return code


def run(app: typer.Typer, argv: Sequence[str] | None = None) -> int:
    """Run one command line of an application and return its exit code; see :func:`coresift.cli.main`."""
    program, settings = str(app.info.name), Settings()
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = typer.main.get_command(app)
    try:
        # Not "standalone": Typer then raises what it would print, and returns the code of a typer.Exit.
        code = command.main(args=arguments, prog_name=program, standalone_mode=False, obj=settings)
        sys.stdout.flush()  # a closed pipe is noticed here
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return EXIT_ERROR
    except SystemExit as stop:  # Click and Rich exit like this when a pipe is closed
        _discard_stdout()
        return stop.code if isinstance(stop.code, int) else EXIT_ERROR
    except Exception as error:
        return _report(error, settings, program)
    finally:
        exec("")  # CPython dies by a signal, whatever is returned, if an interrupt was met in its last exec


def _discard_stdout() -> None:
    """Redirect standard output to nothing, so that the flush at exit does not fail."""
    with contextlib.suppress(OSError, ValueError):  # standard output is not a file (in tests), or is closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
