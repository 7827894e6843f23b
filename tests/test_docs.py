"""What the documentation shows is so: blocks run, output is real, commands exist, the reference is complete."""

import doctest
import importlib
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from statistics import geometric_mean

import pytest

import coresift
from tests.docs_blocks import (
    Block,
    application,
    blocks,
    check_command,
    command_lines,
    commands,
    compare,
    run_page,
    spans,
)
from tests.docs_install import brought, install_line

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")) if page.exists()
)
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(coresift.__path__, "coresift.")
    if not module.name.endswith(".__main__") and ">>>" in (inspect.getsource(importlib.import_module(module.name)))
)
HOW_TO = [page for page in PAGES if page.parent.name == "how-to" and page.name != "index.md"]
SLOW = {"docs/tutorial.md"}  # it trains a dozen networks


def each_page(*slow: str, without: Collection[Path] = ()) -> pytest.MarkDecorator:
    names = {page.relative_to(ROOT).as_posix(): page for page in PAGES if page not in without}
    marks = {name: [pytest.mark.slow] if name in slow else [] for name in names}
    return pytest.mark.parametrize(
        "page", [pytest.param(page, id=name, marks=marks[name]) for name, page in names.items()]
    )


@pytest.mark.slow
@each_page(*SLOW, without=HOW_TO)
def test_code_blocks_run_and_print_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what the examples write stays out of the tree
    monkeypatch.setenv("NO_COLOR", "1")
    left_out = run_page(page.read_text(encoding="utf-8"), str(page))
    if left_out:
        pytest.skip(f"blocks that need {', '.join(sorted(set(left_out)))} were left out")


@pytest.mark.slow
@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.name)
def test_how_to_pages_run_with_their_own_install_line(page: Path, tmp_path: Path) -> None:
    """In a process of its own that sees no other package."""
    where = {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "tests.docs_install", str(page)]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | where, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    if done.stdout:
        pytest.skip(f"blocks that need {done.stdout} were left out")


def test_install_lines() -> None:
    assert all(install_line(page.read_text(encoding="utf-8")) for page in HOW_TO)
    assert install_line('# A\n\nIn a clone: `pip install ".[io]" pandas`.') == ['".[io]"', "pandas"]
    assert {"numpy", "pyarrow", "joblib"} <= brought(['".[io]"'])
    assert not {"pandas", "torch", "typer"} & brought(['".[io]"'])
    for wrong in ("nothing", '`pip install "coresift[io]"`'):
        with pytest.raises(ValueError, match="pip install"):
            install_line(wrong)


@each_page()
def test_commands_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = [(number, line, True) for number, line in command_lines(text)]
    found += [(number, line, False) for number, line in spans(text)]
    for number, line, is_whole in found:
        try:
            check_command(line, is_whole=is_whole)
        except ValueError as error:
            pytest.fail(f"{page}:{number}: {error}")


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_examples_of_docstrings_run(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(importlib.import_module(module)).failed == 0


@pytest.mark.parametrize("package", ["", ".coresets", ".selection", ".training", ".data"])
def test_reference_is_complete(package: str) -> None:
    """Every public name has an entry, under this package or another that exports the same object."""
    listed = set()
    for page in PAGES:
        for path in re.findall(r"(?m)^::: (coresift[\w.]*)$", page.read_text(encoding="utf-8")):
            module, _, name = path.rpartition(".")
            listed.add(id(getattr(importlib.import_module(module), name)))
    module = importlib.import_module(f"coresift{package}")
    exported = {name: getattr(module, name) for name in module.__all__}
    missing = [n for n, value in exported.items() if not inspect.ismodule(value) and id(value) not in listed]
    assert not missing, f"docs/reference.md lacks ::: coresift{package}. {', '.join(missing)}"


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
def test_reference_of_the_command_line_is_complete() -> None:
    from docs_commands import MARK, reference

    assert MARK in (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    text = reference()
    shared, *_ = sections = re.split(r"(?m)^(?=#{2,3} )", text)[1:]
    by_name = {section.splitlines()[0].lstrip("# "): section for section in sections}
    n_options = 0
    for path, command in commands(application()):
        if hasattr(command, "commands") and path:
            assert command.help.split("\n")[0] in by_name[" ".join(("coresift", *path))]
            continue
        section = by_name[" ".join(("coresift", *path))] if path else shared
        for parameter in command.params:
            names = [*parameter.opts, *parameter.secondary_opts]
            if parameter.param_type_name == "option" and parameter.name not in ("quiet", "verbose", "debug"):
                assert all(f"`{name}`" in section for name in names), (path, names)
                n_options += 1
        for line in command_lines(section):
            check_command(line[1])  # the examples of the help texts
    assert n_options > 60
    assert "`--workers` `-j`" in by_name["coresift select"]
    assert all(f"`{name}`" in shared for name in ("--quiet", "--verbose", "--debug", "--version"))


def test_blocks_share_a_namespace_and_can_fail() -> None:
    run_page("```python\na = 1\n```\ntext\n```python\nassert a == 1\n```\n", "page")
    with pytest.raises(AssertionError):
        run_page("text\n\n```python\nassert False\n```\n", "page")
    run_page("<!-- no-run: a test -->\n```python\nassert False\n```\n", "page")


def test_output_is_compared() -> None:
    page = "```python\nprint('{}  b')\n```\n\n{}```text title=\"Output\"\n{}\n```\n"
    run_page(page.format("a", "", "a b"), "page")
    run_page(page.format("a", "", "... b"), "page")
    run_page(page.format("1.02 and 2", "<!-- numbers may differ by 5 % -->\n", "1.0 and 2 b"), "page")
    for printed, comment, shown in [
        ("a", "", "a"),
        ("1.02", "", "1.0 b"),
        ("1.06", "<!-- numbers may differ by 5 % -->\n", "1.0 b"),
        ("1.0 or", "<!-- numbers may differ by 5 % -->\n", "1.0 b"),
    ]:
        with pytest.raises(AssertionError, match="the page shows"):
            run_page(page.format(printed, comment, shown), "page")
    compare("1,000 rows", "1001 rows", "page", "<!-- numbers may differ by 1 % -->")


def test_sessions_are_run_and_compared() -> None:
    run_page(f"```console\n$ coresift --version\ncoresift {coresift.__version__}\n```\n", "page")
    run_page("```console\n$ coresift select nothing.npy -b 1% -o x.npz\n```\n", "page")  # shows no output: parsed
    with pytest.raises(AssertionError, match="the page shows"):
        run_page("```console\n$ coresift --version\ncoresift 99\n```\n", "page")
    with pytest.raises(AssertionError, match="ended with 1"):
        run_page("```console\n$ coresift select nothing.npy -b 1% \\\n    -o x.npz\n...\n```\n", "page")
    with pytest.raises(ValueError, match="only coresift"):
        run_page("```console\n$ rm x\nremoved\n```\n", "page")
    with pytest.raises(ValueError, match="begins with"):
        run_page("```console\ncoresift --version\n```\n", "page")


def test_blocks_wait_for_packages_that_are_missing() -> None:
    page = '<!-- needs: {} -->\n```python\nx = 1\n```\n\n```text title="Output"\nnothing\n```\n'
    assert run_page(page.format("no_such_package"), "page") == ["no_such_package"]
    with pytest.raises(AssertionError):
        run_page(page.format("numpy, scipy"), "page")


def test_which_blocks_are_found() -> None:
    text = (
        "```sh\nmake demo\n```\n<!-- no-run: needs a GPU -->\n```python\nboom()\n```\n"
        "- item\n\n    ```python\n    x = 1\n    ```\n````md\n```python\nboom()\n```\n````\n"
        "<!-- another comment -->\n```py\ny = 2\n```\n"
    )
    first, exempt, indented, nested, last = blocks(text)
    assert (first.language, first.source, nested.language) == ("sh", "make demo", "md")
    assert exempt.is_exempt
    assert indented == Block(11, "python", "x = 1", "- item")
    assert last == Block(20, "py", "y = 2", "<!-- another comment -->")
    assert not last.is_exempt
    with pytest.raises(ValueError, match="never closed"):
        blocks("```python\nx = 1\n")


def test_which_commands_are_found() -> None:
    text = (
        "See `coresift demo` and `core`.\n```sh\nexport A=1\ncoresift select a.npy \\\n  -b 5% -o b.npz  # why\n"
        "OMP_NUM_THREADS=1 coresift demo\n```\n```console\n$ coresift --version\ncoresift 1\n```\n"
        "```python\nx = '`coresift nosuch`'\n```\n"
    )
    assert list(spans(text)) == [(1, "coresift demo")]
    assert list(command_lines(text)) == [
        (5, "coresift select a.npy -b 5% -o b.npz  # why"),
        (6, "OMP_NUM_THREADS=1 coresift demo"),
        (9, "coresift --version"),
    ]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("coresift selct a.npy", "no command 'selct'"),
        ("python -m paper figure nosuch", "no command 'nosuch'"),
        ("coresift select a.npy --bugdet 5%", "--bugdet"),
        ("coresift --nosuch", "--nosuch"),
        ("coresift select -b 5% -o b.npz", "INPUT"),
        ("coresift train -d digits --epochs many --out run", "--epochs"),
        ("coresift train -d digits --epochs 0 --out run", "--epochs"),
    ],
)
def test_wrong_commands_are_noticed(line: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        check_command(line)


def test_right_commands_pass() -> None:
    check_command("coresift -q select 'a b/*.parquet' -b 5% -o c.parquet  # why")
    check_command("coresift train --config run.toml --seed 1 --out run-1 | tail -1")
    check_command("coresift train --help")
    for part in ("select", "COMMAND --help", "train --resume", "..."):
        check_command(f"coresift {part}", is_whole=False)
    check_command("python -m paper run TABLE", is_whole=False)
    check_command("python -m paper benchmark peers --data-dir D")
    with pytest.raises(ValueError, match="--nosuch"):
        check_command("coresift select --nosuch", is_whole=False)


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
    for wrong in (r"\nosuchcommand x", r"\frac{a", r"\operatorname*{rank}", r"\begin{nosuch} a & b \end{nosuch}"):
        with pytest.raises(ValueError, match=r"formula|converter"):
            to_mathml(wrong, display=False)


@pytest.mark.usefixtures("tools")
def test_links_out_of_the_docs_are_redirected() -> None:
    from docs_records import address, published, redirect

    page = ROOT / "docs/how-to/own-loop.md"
    assert redirect("[a](../../examples/own_loop.py)", page) == "[a](../repository/examples/own_loop.md)"
    record = ROOT / "paper/results/README.md"
    assert redirect("[a](../../docs/theory.md#drawing)", record) == "[a](../../../theory.md#drawing)"
    for same in ("[a](parquet.md#run)", "[a](../../src/nosuch.md)", "[a](https://example.org/a.md)", "[a](#b)"):
        assert redirect(same, page) == same  # MkDocs checks them
    assert address(ROOT / "paper/results/acceleration.md") in {address(path) for path in published()}


def test_page_of_the_paper_repeats_its_table() -> None:
    rows = re.findall(
        r"(?m)^\| .*\(([A-Z@1-]+)[^)|]*\) \| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs/paper.md").read_text("utf-8")
    )
    table = (ROOT / "docs/experiments.md").read_text("utf-8")
    table = table[: table.index("end of mnist accuracy")]
    assert len(rows) == 5
    for name, *shown in rows:
        (cells,) = re.findall(rf"(?m)^\|[^|]*\| \**{name}\** \|(.*)\|$", table)
        found = [cell.strip() for cell in cells.split("|")]
        assert (shown, found[4]) == ([found[0], found[3]], "5")


def test_gallery_has_all_examples() -> None:
    page = (ROOT / "docs/gallery.md").read_text(encoding="utf-8")
    assert [path.name for path in (ROOT / "examples").glob("*.py") if f"(../examples/{path.name})" not in page] == []


@pytest.mark.usefixtures("tools")
def test_figures_show_what_the_records_say() -> None:
    from docs_figures import excess, flow_chart, gains, memory

    found = gains()
    n_cells = sum(len(values) for values in found.values())
    assert (n_cells, min(min(values) for values in found.values())) == (44, -0.44)  # as docs/index.md says
    assert [len(values["uniform"]) for values in excess().values()] == [5, 5, 5]
    means = [100 * geometric_mean(excess()[5000][kind]) for kind in ("certificate", "uniform")]
    assert [f"{mean:.1g}" if mean < 0.1 else f"{mean:.1f}" for mean in means] == ["0.002", "1.2"]  # as README.md says
    assert sorted(peak for _, _, peak in memory()) == [341.0, 346.0]
    page = (ROOT / "docs/choosing.md").read_text(encoding="utf-8")
    names = re.findall(r'font-weight="bold">([\w-]+)<', flow_chart())
    assert len(names) == 5
    assert all(f"`{name}`" in page for name in names)
    assert (ROOT / "docs/figures/choosing.svg").read_text(encoding="utf-8") == flow_chart()


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("name", ["table", "training", "files"])
def test_notebooks_print_the_same_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from notebooks import FOLDER, parse, printed, run

    monkeypatch.setenv("MPLBACKEND", "agg")
    stored = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    cells = parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    assert [cell["source"] for cell in stored] == [cell["source"] for cell in cells], "run tools/notebooks.py"
    differ = [cell["metadata"].get("differ", "numbers may differ by 5 %") for cell in cells if "outputs" in cell]
    found = zip(printed(stored), printed(run(cells)), differ, strict=True)
    for number, (shown, again, how_far) in enumerate(found, 1):
        compare(shown, again, f"{name}.ipynb, cell {number}", f"<!-- {how_far} -->")


@pytest.mark.usefixtures("tools")
def test_notebooks_are_parsed_run_and_shown() -> None:
    from notebooks import notebook, page, parse, printed, run

    cells = run(parse("# %% [markdown]\n# # A\n\n# %%\nx = 2\nprint('b')\nx + 1\n# %% numbers may differ by 9 %\nx\n"))
    assert (cells[0]["source"], printed(cells)) == ("# A", ["b\n3", "2"])
    assert json.loads(notebook(cells))["cells"][2]["metadata"] == {"differ": "numbers may differ by 9 %"}
    assert page(cells, "c").split("\n")[:3] == ["# A", "", "```python"]
    assert '```text title="Output"\nb\n```' in page(cells, "c")
    with pytest.raises(ValueError, match="a cell begins"):
        parse("# %% [raw]\n")
    with pytest.raises(ZeroDivisionError):
        run(parse("# %%\n1 / 0\n"))


@pytest.mark.usefixtures("tools")
def test_docstrings_are_translated_to_markdown() -> None:
    from docs_docstrings import to_markdown

    assert to_markdown(r"Bounds :math:`x^2`, see :class:`~a.b.C` and :func:`f`.") == "Bounds $x^2$, see `C` and `f`."
    assert to_markdown("A\n\n.. math:: a\n    + b\n\nText").split() == ["A", "$$", "a", "+", "b", "$$", "Text"]
    assert to_markdown("    .. math::\n\n        a\n\n    Text").split("\n")[1:4] == ["    $$", "    a", "    $$"]
    assert to_markdown("Like this::\n\n    x = 1") == "Like this:\n\n    x = 1"
    table = '  ==== =====\n  "a"  one\n       more\n  b    two\n  ==== =====\n  Text'
    assert to_markdown(table).split("\n") == ["", '  - "a": one', "    more", "  - b: two", "", "  Text"]
