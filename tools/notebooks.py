"""Notebooks from plain Python: ``python tools/notebooks.py [NAME ...]`` writes docs/notebooks/NAME.ipynb.

The source, ``docs/notebooks/NAME.py``, is a script in which ``# %% [markdown]`` begins a text (comment lines) and
``# %%`` a cell of code. ``# %% numbers may differ by 50 %`` says how far its output may move when it is run elsewhere
(5 % otherwise), for the test. Cells run in order, in one namespace and an empty folder. What they print, the value of a
last expression and the figures they leave open become outputs. As a hook of MkDocs this file makes pages of them.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "notebooks"
NAMES = ("table", "training", "files")
Cell = dict[str, Any]
_DIFFER = re.compile(r"numbers may differ by [0-9.]+ %$")


def parse(source: str) -> list[Cell]:
    """Cells of a notebook, without outputs, from its source."""
    cells: list[Cell] = []
    for part in ("\n" + source).split("\n# %%")[1:]:
        mark, _, text = part.partition("\n")
        text = text.strip("\n")
        if mark.strip() == "[markdown]":
            text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.split("\n"))
            cells.append({"cell_type": "markdown", "metadata": {}, "source": text})
        elif not mark.strip() or _DIFFER.match(mark.strip()):
            metadata = {"differ": mark.strip()} if mark.strip() else {}
            code: Cell = {
                "cell_type": "code",
                "execution_count": None,
                "metadata": metadata,
                "outputs": [],
                "source": text,
            }
            cells.append(code)
        else:
            raise ValueError(f"a cell begins with '# %%' or '# %% [markdown]', not with '# %%{mark}'")
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    return cells


def run(cells: list[Cell]) -> list[Cell]:
    """Run the code of the cells, in a new folder, and return them with their outputs."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    done = []
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            count = 0
            for cell in cells:
                if cell["cell_type"] == "code":
                    count += 1
                    outputs = list(_outputs(cell["source"], f"cell {count}", namespace, count))
                    cell = {**cell, "execution_count": count, "outputs": outputs}
                done.append(cell)
        finally:
            os.chdir(here)
    return done


def _outputs(source: str, name: str, namespace: dict[str, Any], count: int) -> Iterator[dict[str, Any]]:
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(tree, name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    if out.getvalue():
        yield {"output_type": "stream", "name": "stdout", "text": out.getvalue()}
    plt: Any = sys.modules.get("matplotlib.pyplot")
    drawn = plt.get_fignums() if plt is not None else []
    for number in drawn:
        buffer = io.BytesIO()
        plt.figure(number).savefig(buffer, format="png", dpi=110, metadata={"Software": None})
        plt.close(number)
        data = {"image/png": base64.b64encode(buffer.getvalue()).decode(), "text/plain": "<Figure>"}
        yield {"output_type": "display_data", "data": data, "metadata": {}}
    if value is not None and not drawn:  # calls that draw return objects that nobody wants to see
        data = {"text/plain": repr(value)}
        yield {"output_type": "execute_result", "data": data, "execution_count": count, "metadata": {}}


def printed(cells: list[Cell]) -> list[str]:
    """The text that each cell of code printed, and the value it ended with."""
    found = []
    for cell in cells:
        if cell["cell_type"] == "code":
            texts = [each.get("text") or each["data"]["text/plain"] for each in cell["outputs"]]
            found.append("\n".join(text.strip() for text in texts if text != "<Figure>"))
    return found


def notebook(cells: list[Cell]) -> str:
    """The JSON of a notebook."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def page(cells: list[Cell], name: str) -> str:
    """The notebook as Markdown, for the site."""
    lines = []
    for cell in cells:
        if cell["cell_type"] == "markdown":
            lines += [cell["source"], ""]
            continue
        lines += ["```python", cell["source"], "```", ""]
        for output in cell["outputs"]:
            image = output.get("data", {}).get("image/png")
            if image:
                lines += [f"![Figure](data:image/png;base64,{image})", ""]
            else:
                text = output.get("text") or output["data"]["text/plain"]
                lines += ['```text title="Output"', text.rstrip("\n"), "```", ""]
    return "\n".join([*lines, f"[Download this notebook]({name}.ipynb)", ""])


def on_files(files: Files, config: MkDocsConfig, **_: object) -> Files:
    """MkDocs calls this with the sources of the site."""
    for name in NAMES:
        cells = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
        files.append(File.generated(config, f"notebooks/{name}.md", content=page(cells, name)))
    return files


def main() -> None:
    """Run all notebooks, or those named as arguments, and write them."""
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("MPLBACKEND", "agg")
    for name in sys.argv[1:] or NAMES:
        cells = run(parse((FOLDER / f"{name}.py").read_text(encoding="utf-8")))
        (FOLDER / f"{name}.ipynb").write_text(notebook(cells), encoding="utf-8")
        print(f"docs/notebooks/{name}.ipynb")


if __name__ == "__main__":
    main()
