"""The application: its commands, its errors and its exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from coresift import __version__
from coresift._errors import CoresiftError
from coresift.cli.audit import audit, certify
from coresift.cli.datasets import datasets
from coresift.cli.options import Debug, Quiet, Settings, Verbose, with_common_options
from coresift.cli.select import select
from coresift.cli.train import train

EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130

# Errors whose message is enough: the library's own, and the machine's (no such file, disk full, ...).
_SELF_EXPLAINING = (CoresiftError, OSError)

app = typer.Typer(
    help="Small weighted subsets (coresets) of a data set, with a stated error.",
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for function in (select, audit, certify, train, datasets):
    app.command()(with_common_options(function))


def _on_version(value: bool) -> None:
    if value:
        typer.echo(f"coresift {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    debug: Debug = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_on_version, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(EXIT_USAGE)


def _complain(message: str, program: str) -> None:
    sys.stderr.write(f"{program}: error: {' '.join(message.split())}\n")


def _report(error: Exception, settings: Settings, program: str) -> int:
    """Say what went wrong in one line, after the traceback if ``--debug`` was given, and return the exit code."""
    # Typer's own errors moved from Click to Typer between versions; what they have in common is this.
    format_message = getattr(error, "format_message", None)
    if format_message is not None:
        text = format_message().strip()
        end = "" if text.endswith((".", "?", "!")) else "."
        command = getattr(getattr(error, "ctx", None), "command_path", program)
        _complain(f"{text}{end} Try '{command} --help'.", program)
        return int(getattr(error, "exit_code", EXIT_USAGE))
    if settings.debug:
        traceback.print_exception(error)
    if isinstance(error, _SELF_EXPLAINING):
        _complain(str(error), program)
    elif isinstance(error, MemoryError):
        _complain(f"out of memory. {error}", program)
    else:
        hint = "" if settings.debug else " (unexpected; --debug shows where)"
        _complain(f"{type(error).__name__}: {error}{hint}", program)
    return EXIT_ERROR


def run(argv: Sequence[str] | None = None, commands: typer.Typer = app, program: str = "coresift") -> int:
    """Run one command line of ``commands`` and return its exit code; see :func:`coresift.cli.main`."""
    settings = Settings()
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = typer.main.get_command(commands)
    try:
        # Not "standalone": Typer then raises what it would print, and returns the code of a typer.Exit.
        code = command.main(args=arguments, prog_name=program, standalone_mode=False, obj=settings)
        sys.stdout.flush()  # here, where a closed pipe can be told from success
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return EXIT_ERROR
    except SystemExit as stop:  # Click and Rich end so when the reader of a pipe has gone
        _discard_stdout()
        return stop.code if isinstance(stop.code, int) else EXIT_ERROR
    except Exception as error:
        return _report(error, settings, program)


def _discard_stdout() -> None:
    """Let the flush at exit succeed although nobody reads: without this Python complains after we have ended."""
    with contextlib.suppress(OSError, ValueError):  # standard output is no file (in tests), or closed already
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
