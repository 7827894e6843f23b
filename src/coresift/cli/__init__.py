"""The command ``coresift``: parse, call the library, print. One module per command."""

import os
import sys
import warnings
from collections.abc import Sequence

from coresift._imports import how_to_install

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 1 for any error, 2 for wrong usage, 130 for an interrupt."""
    if argv is None:  # a process of our own
        if not sys.warnoptions:
            warnings.simplefilter("ignore")  # those of Pillow and others are for programmers
        if sys.platform == "linux":  # the default gives memory back and takes it again: twice the time for a table
            os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    try:  # a missing extra gives one line, not a traceback
        import rich  # noqa: F401
        import typer  # noqa: F401

        from coresift.cli.app import app, run

        return run(app, argv)
    except KeyboardInterrupt:  # during the imports
        exec("")  # as in ``run``
        return 130
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        sys.stderr.write(f"coresift: error: the command line needs {error.name}: {how_to_install('cli')}\n")
        return 1
