"""Imports go downward through the layers, and optional dependencies are loaded where used.

The checker reads the source (all imports, those inside functions too), and is itself tested on a made-up tree.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import coresift

ROOT = Path(coresift.__file__).parent

# Bottom-up; the modules of one tuple may use each other. The package's own __init__ and __main__ stand on top.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("_errors",),
    ("core",),
    ("_edge",),  # the private modules beside the layers: _validation, _coreset, ...
    ("rows",),
    ("coresets",),
    ("data",),
    ("selection",),
    ("training",),
    ("cli",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
TOP = len(LAYERS)


def layer_of(name: str) -> str:
    """The layer of a module of the root; a name that is in none stands for itself."""
    return "_edge" if is_private(name) and name not in RANK else name


def is_private(name: str) -> bool:
    """Whether a name has a leading underscore; ``__version__`` and the like are public."""
    return name.startswith("_") and not name.startswith("__")


NAMES_OF_THE_ROOT_FOR_ALL = {"__version__"}

# Optional dependencies, and the layers whose modules may import them at their top. Elsewhere: inside functions.
EXTRAS: dict[str, frozenset[str]] = {
    "typer": frozenset({"cli"}),
    "rich": frozenset({"cli"}),
    "torch": frozenset({"training"}),
    "safetensors": frozenset({"training"}),
    "matplotlib": frozenset(),
    "jinja2": frozenset(),
    "ray": frozenset(),
    "pyarrow": frozenset(),
    "pandas": frozenset(),
    "polars": frozenset(),
    "PIL": frozenset(),
    "pooch": frozenset(),
}
ONLY_STANDARD_AND: dict[str, frozenset[str]] = {
    "_errors": frozenset(),
    "core": frozenset({"numpy", "scipy"}),
    "_validation": frozenset({"numpy", "scipy", "sklearn", "pandas", "polars", "pyarrow"}),
    "data": frozenset(EXTRAS) - {"torch", "ray", "typer", "rich"} | {"numpy", "scipy", "sklearn"},
}


@dataclass(frozen=True)
class Import:
    module: str  # absolute
    names: tuple[str, ...]  # of "from module import names"; empty for "import module"
    line: int
    is_top_level: bool  # executed when the module is imported
    is_for_types: bool  # under "if TYPE_CHECKING"


def imports_of(source: str, module: str, *, is_package: bool) -> Iterator[Import]:
    """All imports of a module, relative ones made absolute."""
    package = module.split(".") if is_package else module.split(".")[:-1]

    def visit(node: ast.AST, is_top_level: bool, is_for_types: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, (), node.lineno, is_top_level, is_for_types)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            names = tuple(alias.name for alias in node.names)
            yield Import(name, names, node.lineno, is_top_level, is_for_types)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                yield from visit(child, is_top_level, True)
            for child in node.orelse:
                yield from visit(child, is_top_level, is_for_types)
        else:
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from visit(child, is_top_level and not inside, is_for_types)

    yield from visit(ast.parse(source), True, False)


def violations(root: Path) -> list[str]:
    """What breaks the rules in the package at ``root``, one line each."""
    found = []
    package = root.name
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        parts = parts[:-1] if is_package else parts
        layer = parts[0] if parts else ""
        where = path.relative_to(root.parent)
        if layer_of(layer) not in RANK and layer not in ("", "__main__"):
            found.append(f"{where}: {layer!r} is in no layer")
            continue
        rank = RANK.get(layer_of(layer), TOP)
        source = path.read_text()
        for imported in imports_of(source, ".".join((package, *parts)), is_package=is_package):
            place = f"{where}:{imported.line}"
            head, *tail = imported.module.split(".")
            if head == package:
                # "from package import name" uses a layer of that name, or the root, which stands on top.
                targets = [tail[0]] if tail else list(imported.names) or [""]
                found += [
                    f"{place}: {layer or package} imports {name}, which is private to {tail[0]}"
                    for name in (*tail[1:], *imported.names)
                    if tail and tail[0] != layer and tail[0] in RANK and is_private(name)
                ]
                for target in targets:
                    if target in NAMES_OF_THE_ROOT_FOR_ALL or rank >= RANK["cli"]:
                        continue
                    if RANK.get(layer_of(target), TOP) > rank:
                        found.append(f"{place}: {layer} imports {target or package}, which is above it")
                continue
            allowed = ONLY_STANDARD_AND.get(layer)
            if (
                allowed is not None
                and head not in allowed
                and head not in sys.stdlib_module_names
                and not imported.is_for_types
            ):
                found.append(f"{place}: {layer} may not use {head}")
            if head in EXTRAS and imported.is_top_level and not imported.is_for_types:
                # cli/__init__ is where a missing typer is turned into a sentence
                is_entry = parts == ("cli",)
                if layer not in EXTRAS[head] or is_entry:
                    found.append(f"{place}: {head} is optional and imported at the top of the module")
        if layer != "cli":
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                    found.append(f"{where}:{node.lineno}: prints")
    return found


def test_the_package_keeps_to_its_layers() -> None:
    assert violations(ROOT) == []


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("core/a.py", "from coresift.coresets import RBFCoreset", "core imports coresets"),
        ("core/a.py", "def f():\n    from ..coresets import RBFCoreset", "core imports coresets"),
        ("core/a.py", "from .. import coresets", "core imports coresets"),
        ("core/a.py", "import coresift", "core imports coresift"),
        ("core/a.py", "from coresift import RBFCoreset", "core imports RBFCoreset"),
        ("core/a.py", "from coresift._validation import check", "core imports _validation"),
        ("core/a.py", "from coresift.coresets.coreset import Coreset", "core imports coresets"),
        ("core/sub/b.py", "from ...coresets.estimators import RBFCoreset", "core imports coresets"),
        ("_errors.py", "from coresift import core", "_errors imports core"),
        ("_anything.py", "from .coresets import RBFCoreset", "_anything imports coresets"),
        ("selection/a.py", "import coresift.training.loop", "selection imports training"),
        ("core/a.py", "from sklearn.base import BaseEstimator", "core may not use sklearn"),
        ("core/a.py", "def f():\n    import torch", "core may not use torch"),
        ("data/a.py", "def f():\n    import torch", "data may not use torch"),
        ("coresets/a.py", "import pandas as pd", "pandas is optional"),
        ("coresets/a.py", "try:\n    import polars\nexcept ImportError:\n    pass", "polars is optional"),
        ("data/a.py", "class A:\n    import pyarrow", "pyarrow is optional"),
        ("cli/__init__.py", "import typer", "typer is optional"),
        ("__init__.py", "import matplotlib.pyplot", "matplotlib is optional"),
        ("coresets/a.py", "def f():\n    print(1)", "prints"),
        ("elsewhere/a.py", "", "is in no layer"),
        ("coresets/a.py", "from ..core.draw import _smallest", "_smallest, which is private to core"),
        ("training/a.py", "def f():\n    from ..selection._context import Cost", "_context, which is private"),
        ("data/a.py", "from coresift.rows import _tables", "_tables, which is private to rows"),
    ],
)
def test_the_checker_finds(tmp_path: Path, path: str, source: str, complaint: str) -> None:
    file = tmp_path / "coresift" / path
    file.parent.mkdir(parents=True)
    file.write_text(source)
    (found,) = violations(tmp_path / "coresift")
    assert complaint in found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("__init__.py", "from coresift.coresets import RBFCoreset\nfrom coresift import core"),
        ("core/a.py", "import numpy as np, os\nfrom scipy import linalg\nfrom .._errors import CoresiftError"),
        ("core/a.py", "from . import _b\nfrom coresift.core._b import _c"),
        ("_anything.py", "from coresift import __version__, core\nfrom ._validation import check"),
        ("coresets/a.py", "def f():\n    import pandas"),
        ("coresets/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas"),
        ("training/a.py", "import torch\nfrom coresift.data import splits"),
        ("cli/a.py", "import typer\nfrom coresift import RBFCoreset\nprint(1)"),
    ],
)
def test_the_checker_allows(tmp_path: Path, path: str, source: str) -> None:
    file = tmp_path / "coresift" / path
    file.parent.mkdir(parents=True)
    file.write_text(source)
    assert violations(tmp_path / "coresift") == []


def loaded_by(code: str) -> set[str]:
    """The top-level packages in memory after some code has run in an interpreter of its own."""
    code += "; import json, sys; print(json.dumps([name for name, module in sys.modules.items() if module]))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(result.stdout)}


@pytest.mark.slow
def test_import_loads_no_optional_dependency() -> None:
    # scikit-learn loads some of them itself where they are installed (1.9 does so with pandas).
    assert loaded_by("import coresift").isdisjoint({"numpy", "scipy", "sklearn", *EXTRAS})  # all of it is lazy
    theirs, ours = (loaded_by("import sklearn"), loaded_by("import coresift; coresift.RBFCoreset, coresift.select"))
    assert {"numpy", "coresift"} <= ours  # the list is real
    assert ours.isdisjoint(set(EXTRAS) - theirs), sorted(ours & set(EXTRAS))
    assert ours.isdisjoint({"torch", "ray", "typer", "matplotlib"})


@pytest.mark.slow
def test_a_selection_of_a_table_of_numbers_loads_neither_scikit_learn_nor_pandas(tmp_path: Path) -> None:
    """They take longer to import than such a table takes to be read; text is hashed by scikit-learn."""
    lines = [f"{i % 7},{i * i % 11 or ''}" for i in range(300)]
    (tmp_path / "table.csv").write_text("\n".join(["x,y", *lines]))
    options = "budget=30, bound='closed-form', n_queries=0"
    loaded = loaded_by(f"import coresift; coresift.select({str(tmp_path / 'table.csv')!r}, {options})")
    assert "pyarrow" in loaded
    assert loaded.isdisjoint({"sklearn", "pandas"})


BLOCK = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {extras}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
import coresift
[getattr(coresift, name) for name in coresift.__all__ if name != "training"]"""


@pytest.mark.slow
def test_import_works_where_no_optional_dependency_is_installed() -> None:
    loaded = loaded_by(BLOCK.format(extras=sorted(EXTRAS)))
    assert "coresift" in loaded
    assert loaded.isdisjoint(EXTRAS)
