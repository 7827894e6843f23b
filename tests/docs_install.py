"""How-to pages run with what their own install line brings: everything else is hidden from them.

``python -m tests.docs_install PAGE`` runs a page that way, in the current folder.
"""

from __future__ import annotations

import re
import sys
import tomllib
import warnings
from collections.abc import Collection, Iterator, Sequence
from importlib import metadata
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINE = re.compile(r"`pip install (?P<what>[^`]+)`")
_NAME = re.compile(r"[\w.-]+")
_EXTRAS = re.compile(r'^"?\.(?:\[(?P<extras>[\w,]+)\])?"?$')


def install_line(text: str) -> list[str]:
    """What the install line at the top of a page names; raises where there is none, or it would not work in a clone."""
    found = LINE.search("\n".join(text.splitlines()[:12]))
    if found is None:
        raise ValueError("the first lines have no `pip install`")
    first, *others = found["what"].split()
    if _EXTRAS.match(first) is None:
        raise ValueError(f'coresift is not published: write pip install . or ".[extra]", not {first}')
    return [first, *others]


def brought(words: Sequence[str]) -> set[str]:
    """Distributions that an install line brings, with what they require themselves."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = _EXTRAS.match(words[0])
    assert extras is not None
    required = [*project["dependencies"], *words[1:]]
    for extra in filter(None, (extras["extras"] or "").split(",")):
        required += project["optional-dependencies"][extra]
    found = {"coresift"}
    pending = [_normal(each) for each in required]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        try:
            more = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        pending += [_normal(each) for each in more if "extra ==" not in each]
    return found


def _normal(requirement: str) -> str:
    name = _NAME.match(requirement.strip("\"'"))
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


class Visible(MetaPathFinder):
    """The usual finders, for the given distributions and the standard library only."""

    def __init__(self, allowed: Collection[str]) -> None:
        self.allowed = allowed
        self.finders = list(sys.meta_path)
        self.hidden = {
            module
            for module, owners in metadata.packages_distributions().items()
            if not any(_normal(owner) in allowed for owner in owners)
        } - sys.stdlib_module_names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname in self.hidden:
            return None
        found = (finder.find_spec(fullname, path, target) for finder in self.finders)
        return next((spec for spec in found if spec is not None), None)

    def find_distributions(self, context: metadata.DistributionFinder.Context) -> Iterator[metadata.Distribution]:
        """Find versions, by which packages see what is installed."""
        for finder in self.finders:
            if isinstance(finder, type) and hasattr(finder, "find_distributions"):
                yield from (each for each in finder.find_distributions(context) if _normal(each.name) in self.allowed)


def main(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    from tests.docs_blocks import run_page

    sys.meta_path[:] = [Visible(brought(install_line(text)))]
    warnings.simplefilter("error")
    left_out = run_page(text, str(page))
    sys.stdout.write(", ".join(sorted(set(left_out))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
