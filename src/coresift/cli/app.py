"""The application: its commands, its errors and its exit codes."""

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from coresift import __version__
from coresift._errors import CoresiftError
from coresift.cli.options import Debug, Quiet, Settings, Verbose, printable, with_common_options

EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


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
        "select": ("coresift.cli.select", "Choose rows of files of any size, with weights."),
        "audit": ("coresift.cli.audit", "Search for the query at which a coreset is most wrong."),
        "certify": ("coresift.cli.audit", "Prove a bound on the error of a coreset."),
        "fit": ("coresift.cli.fit", "Fit a linear model to few rows, with a certificate."),
        "predict": ("coresift.cli.fit", "Predict with a model of 'fit'."),
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
