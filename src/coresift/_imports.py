"""Import late: a package's public names when they are asked for (SPEC 1), and extras where they are needed."""

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ._errors import MissingExtraError


def attach(package: str, file: str, **extras: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return what a package whose stub is ``file`` (as .pyi) exports; ``extras`` install the modules that it needs."""
    home: dict[str, str] = {}  # name -> module that defines it; "" for a submodule of the package
    for node in ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            home |= {alias.name: node.module or "" for alias in node.names}

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not home[name]:
            return importlib.import_module(f"{package}.{name}")
        try:
            value = getattr(importlib.import_module(f"{package}.{home[name]}"), name)
        except ModuleNotFoundError as error:
            if error.name in extras:
                need(error.name, extras[error.name], package)  # says which extra is missing
            raise
        setattr(sys.modules[package], name, value)  # the next access does not come here
        return value

    return load, lambda: sorted(home), sorted(home)


def how_to_install(extra: str) -> str:
    """Name an extra and the command that installs it; true before coresift is published, and after."""
    return f'install coresift[{extra}] (in a clone: pip install ".[{extra}]")'


def need(module: str, extra: str, what: str) -> Any:
    """Import an optional module that ``what`` needs; if it is missing, name the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        package = {"PIL": "Pillow", "ray": "Ray"}.get(package, package)
        raise MissingExtraError(f"{what} needs {package}: {how_to_install(extra)}") from error


class Late:
    """An optional module that is imported when it is used: ``pa: Any = Late("pyarrow", "io", "a table")``."""

    def __init__(self, module: str, extra: str, what: str) -> None:
        self._about = module, extra, what

    def __getattr__(self, name: str) -> Any:
        found = getattr(sys.modules.get(self._about[0]), name, None)  # asked for every column of every block
        return getattr(need(*self._about), name) if found is None else found
