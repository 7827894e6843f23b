"""Count the modules and functions of coresift that one ``coresift select`` enters: ``python tools/walk.py``."""

from __future__ import annotations

import contextlib
import inspect
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet


def entered(arguments: list[str]) -> set[tuple[str, str]]:
    """Run the command and return the module and the name of every function of the package that it called."""
    import coresift
    from coresift.cli import main

    home = str(Path(coresift.__file__).parent)
    found: set[tuple[str, str]] = set()

    def note(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # the bodies of classes and modules are not
        if event == "call" and is_function and code.co_filename.startswith(home) and "<" not in code.co_name:
            found.add((code.co_filename.removeprefix(home + "/"), code.co_qualname))

    sys.setprofile(note)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            code = main(arguments)
    finally:
        sys.setprofile(None)
    if code != 0:
        raise SystemExit(f"the command ended with {code}")
    return found


def walk() -> set[tuple[str, str]]:
    """Walk through ``coresift select`` on a small Parquet file with four row groups."""
    rows = np.random.default_rng(0).standard_normal((20_000, 8)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table({f"x{i}": rows[:, i] for i in range(8)})
        parquet.write_table(table, f"{folder}/rows.parquet", row_group_size=5000)
        command = ["select", f"{folder}/rows.parquet", "-b", "1%", "--bandwidth", "3"]
        return entered([*command, "--out", f"{folder}/coreset.parquet"])


if __name__ == "__main__":
    functions = walk()
    modules = sorted({module for module, _ in functions})
    print(f"{len(modules)} modules, {len(functions)} functions")
    print(*modules, sep="\n")
