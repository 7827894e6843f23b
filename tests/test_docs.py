"""What the documentation shows runs: the blocks of its pages, one namespace per file, and the docstrings' examples."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import coresift

ROOT = Path(__file__).parents[1]
PAGES = sorted(page for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) if page.exists())
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(coresift.__path__, "coresift.")
    if not module.name.endswith(".__main__")
    and ">>>" in (inspect.getsource(importlib.import_module(module.name)))
)

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^\n`]*)$")
NO_RUN = re.compile(r"^\s*<!--\s*no-run:\s*\S.*-->\s*$")


def python_blocks(text: str) -> list[tuple[int, str]]:
    """First line number and source of each block fenced as python, without those marked ``<!-- no-run: why -->``."""
    lines = text.splitlines()
    blocks = []
    i = 0
    while i < len(lines):
        opening = FENCE.match(lines[i])
        if not opening:
            i += 1
            continue
        indent, start = len(opening["indent"]), i + 1
        end = start
        while end < len(lines) and lines[end].strip() != opening["ticks"]:
            end += 1
        if end == len(lines):
            raise ValueError(f"line {i + 1}: a block is opened and never closed")
        before = next((line for line in reversed(lines[:i]) if line.strip()), "")
        language = (opening["info"].strip().split() or [""])[0]
        if language in ("python", "py") and not NO_RUN.match(before):
            blocks.append((start + 1, "\n".join(line[indent:] for line in lines[start:end])))
        i = end + 1
    return blocks


def run_blocks(text: str, name: str) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, source in python_blocks(text):
        # Blank lines in front make a traceback point at the line of the page.
        exec(compile("\n" * (line - 1) + source, name, "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # what the examples write stays out of the tree
    run_blocks(page.read_text(encoding="utf-8"), str(page))


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_docstrings_run(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_blocks_share_a_namespace_and_can_fail() -> None:
    run_blocks("```python\na = 1\n```\ntext\n```python\nassert a == 1\n```\n", "page")
    with pytest.raises(AssertionError):
        run_blocks("text\n\n```python\nassert False\n```\n", "page")


def test_which_blocks_are_found() -> None:
    text = (
        "```sh\nmake demo\n```\n<!-- no-run: needs a GPU -->\n```python\nboom()\n```\n"
        "- item\n\n    ```python\n    x = 1\n    ```\n````md\n```python\nboom()\n```\n````\n"
        "<!-- another comment -->\n```py\ny = 2\n```\n"
    )
    assert python_blocks(text) == [(11, "x = 1"), (20, "y = 2")]
    with pytest.raises(ValueError, match="never closed"):
        python_blocks("```python\nx = 1\n")


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")


@pytest.mark.usefixtures("tools")
def test_formulas_become_mathml_or_an_error() -> None:
    from docs_math import to_mathml

    assert "<mfrac>" in to_mathml(r"\frac{a}{b}", display=False)
    assert "<munder><mo>sup</mo>" in to_mathml(r"\sup_{x} f(x)", display=True)
    assert "<mtable" in to_mathml(r"\begin{aligned} a &= b \\ c &= d \end{aligned}", display=True)
    assert "\\" not in to_mathml(r"\bigl\|x\bigr\|", display=False)
    for wrong in (
        r"\nosuchcommand x",
        r"\frac{a",
        r"\operatorname*{rank}",
        r"\begin{nosuch} a & b \end{nosuch}",
    ):
        with pytest.raises(ValueError, match=r"formula|converter"):
            to_mathml(wrong, display=False)


@pytest.mark.usefixtures("tools")
def test_docstrings_are_translated_to_markdown() -> None:
    from docs_docstrings import to_markdown

    assert (
        to_markdown(r"Bounds :math:`x^2`, see :class:`~a.b.C` and :func:`f`.")
        == "Bounds $x^2$, see `C` and `f`."
    )
    assert to_markdown("A\n\n.. math:: a\n    + b\n\nText").split() == [
        "A",
        "$$",
        "a",
        "+",
        "b",
        "$$",
        "Text",
    ]
    assert to_markdown("    .. math::\n\n        a\n\n    Text").split("\n")[1:4] == [
        "    $$",
        "    a",
        "    $$",
    ]
    assert to_markdown("Like this::\n\n    x = 1") == "Like this:\n\n    x = 1"
    table = '  ==== =====\n  "a"  one\n       more\n  b    two\n  ==== =====\n  Text'
    assert to_markdown(table).split("\n") == ["", '  - "a": one', "    more", "  - b: two", "", "  Text"]
