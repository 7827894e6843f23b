"""MkDocs hook: the records and the examples, which live outside docs/, as pages of the site.

Pages link to them by their paths in the repository (``../paper/results/acceleration.md``, ``../examples/own_loop.py``),
so the links also work in a clone. While building, each record becomes a page below ``repository/``, each example a page
with its source, and the links are redirected. A link to a file that is not published is an error under --strict.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FOLDER = "repository"
PATTERNS = (
    "paper/README.md",
    "paper/results/**/*.md",
    "paper/results/**/*.svg",
    "paper/benchmarks/RESULTS.md",
    "paper/benchmarks/peers/**/RESULTS.md",
    "paper/networks/example.py",
    "paper/networks/layer.py",
    "examples/*.py",
)
_LINK = re.compile(r"(?<=\]\()(?P<path>[^()\s#:]+)(?=(?:#[^()\s]*)?\))")


def published() -> Iterator[Path]:
    """Files outside docs/ that are on the site."""
    for pattern in PATTERNS:
        yield from sorted(ROOT.glob(pattern))


def address(path: Path) -> str:
    """The address of a file of the repository among the sources of the site."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"{FOLDER}/{path.relative_to(ROOT).with_suffix('.md' if path.suffix == '.py' else path.suffix).as_posix()}"


def redirect(markdown: str, source: Path) -> str:
    """Redirect the links of a page that leave docs/, or come from outside it, to where the files are on the site."""
    known = set(published())

    def replace(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(source.parent / link["path"]))
        is_inside = source.is_relative_to(DOCS) and target.is_relative_to(DOCS)
        if is_inside or not (target in known or (target.is_relative_to(DOCS) and target.exists())):
            return link["path"]  # MkDocs checks it
        return os.path.relpath(address(target), os.path.dirname(address(source)) or ".")

    return _LINK.sub(replace, markdown)


def on_files(files: Files, config: MkDocsConfig, **_: object) -> Files:
    """MkDocs calls this with the sources of the site."""
    for path in published():
        if path.suffix == ".py":
            text = f"# {path.name}\n\n```python\n{path.read_text(encoding='utf-8')}```\n"
            file = File.generated(config, address(path), content=text)
        else:
            file = File.generated(config, address(path), abs_src_path=str(path))
        file.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(file)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """MkDocs calls this with the source of every page."""
    if page.file.src_uri.startswith(f"{FOLDER}/"):
        page.meta["search"] = {"exclude": True}  # tables of numbers, which would hide the pages about them
    return redirect(markdown, Path(page.file.abs_src_path or DOCS / page.file.src_uri))
