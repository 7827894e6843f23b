"""The command ``coresift``: parse, call the library, print. One module per command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 is success, 1 an error of the data or at run time (a broken pipe included), 2 wrong usage, 130 an interrupt.
    Typer and Rich are imported here and not above, so that a missing extra is one sentence and not a traceback.
    """
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        sys.stderr.write(
            'coresift: error: the command line needs the extra "cli": pip install "coresift[cli]"\n'
        )
        return 1
    from coresift.cli.app import run

    return run(argv)
