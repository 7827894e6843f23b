"""The shape of the code: short modules and functions, lazy packages, one word for one thing."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import coresift

ROOT = Path(coresift.__file__).parent
LONGEST_MODULE, LONGEST_FUNCTION = 400, 60
MOST_LINES, MOST_MODULES = 23_000, 114

# Functions whose signature and docstring are long because they are the documentation of their options.
DOCUMENTED = {"sample", "select", "train"}


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring and its signature."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return 0 if not body else (node.end_lineno or 0) - body[0].lineno + 1


def test_modules_are_short() -> None:
    lines = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in ROOT.rglob("*.py")}
    assert {path: n for path, n in lines.items() if n > LONGEST_MODULE} == {}
    assert sum(lines.values()) <= MOST_LINES
    assert len(lines) <= MOST_MODULES


def test_functions_are_short() -> None:
    long = {where: body_lines(node) for where, node in functions() if body_lines(node) > LONGEST_FUNCTION}
    assert long == {}
    whole = {
        where: length
        for where, node in functions()
        if (length := (node.end_lineno or 0) - node.lineno + 1) > 2 * LONGEST_FUNCTION and node.name not in DOCUMENTED
    }
    assert whole == {}


@pytest.mark.parametrize("package", ["", "coresets", "data", "selection", "training"])
def test_what_a_package_exports_is_there(package: str) -> None:
    module = getattr(coresift, package) if package else coresift
    assert set(dir(module)) == set(module.__all__)
    submodules = {path.stem for path in Path(module.__file__).parent.iterdir()}
    for name in module.__all__:
        # a function named like a module of its package would be hidden by it once that is imported
        assert isinstance(getattr(module, name), ModuleType) == (name in submodules), name
    with pytest.raises(AttributeError, match="nosuch"):
        module.nosuch  # noqa: B018


@pytest.mark.parametrize("package", ["", "coresets", "data", "selection", "training"])
def test_what_is_exported_has_docstrings(package: str) -> None:
    module = getattr(coresift, package) if package else coresift
    missing = []
    for name in module.__all__:
        value = getattr(module, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        if not inspect.getdoc(value):
            missing.append(name)
        if inspect.isclass(value) and value.__module__.startswith("coresift"):
            missing += [
                f"{name}.{method}"
                for method, function in inspect.getmembers(value, inspect.isfunction)
                if not method.startswith("_")
                and function.__module__.startswith("coresift")
                and not inspect.getdoc(function)
            ]
    assert missing == []
