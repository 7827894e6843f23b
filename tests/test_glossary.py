"""One word for one thing: the glossary of docs/architecture.md holds in the code."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import coresift

ROOT = Path(coresift.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"


def glossary() -> dict[str, tuple[str, ...]]:
    """Each word, and the names that may not stand for it."""
    text = PAGE.read_text(encoding="utf-8").partition("## Glossary")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")][2:]
    return {word.strip(): tuple(re.findall(r"`(\w+)`", banned)) for word, _, banned in rows}


def names_of(source: str) -> set[str]:
    """Names that a module gives to classes, functions, arguments, variables and attributes."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return found


def test_the_glossary_is_read() -> None:
    words = glossary()
    assert len(words) > 15
    assert "source" in words["`Rows`, `rows`"]
    assert names_of("def f(a):\n    self.b = c = 1\nclass D: pass") == {"f", "a", "b", "c", "D"}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_uses_another_word(path: Path) -> None:
    used = names_of(path.read_text(encoding="utf-8"))
    for word, banned in glossary().items():
        assert not used.intersection(banned), f"use {word}"


@pytest.mark.parametrize("package", ["", "coresets", "data", "selection", "training"])
def test_randomness_has_one_name_at_the_edge(package: str) -> None:
    """Public functions take random_state or seed; only strategies and the loader of images are given a Generator."""
    module = getattr(coresift, package) if package else coresift
    for name in module.__all__:
        value = getattr(module, name)
        methods = inspect.getmembers(value, inspect.isfunction) if inspect.isclass(value) else [(name, value)]
        for method, function in methods:
            if (method.startswith("_") and method != "__init__") or not inspect.isfunction(function):
                continue
            parameters = inspect.signature(function).parameters
            if method not in ("select", "load"):
                assert not {"rng", "generator", "random_seed"} & set(parameters), (name, method)
            assert not {"seed", "random_state"} <= set(parameters), (name, method)


def test_the_architecture_page_names_every_module() -> None:
    listed = set(re.findall(r"`([\w/]+\.py)`", PAGE.read_text(encoding="utf-8")))
    there = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if "__" not in path.name}
    assert there - listed == set(), "docs/architecture.md lacks these"
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir()}
    stale = {name for name in listed - there if name.partition("/")[0] in rooms}
    assert stale == set(), "docs/architecture.md has these, which are gone"
