"""Import the names that a package's stub ``__init__.pyi`` lists only when they are asked for (SPEC 1)."""

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for a package whose stub is ``file`` with the suffix pyi."""
    home: dict[str, str] = {}  # name -> module that defines it; "" for a submodule of the package
    for node in ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            home |= {alias.name: node.module or "" for alias in node.names}

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not home[name]:
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, value)  # the next access does not come here
        return value

    return load, lambda: sorted(home), sorted(home)
