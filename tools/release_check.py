"""Is this commit ready to be released? Builds what would be published, and tries it as users would.

``make release-check`` builds wheel and sdist, checks versions, metadata, contents and the links of the pages that are
published, installs each into an empty environment, and runs a smoke test of every extra. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import email
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")

# One line per extra: what a user of it does first. "" is the installation without extras.
SMOKE = {
    "": "import numpy as np, coresift; X = np.random.default_rng(0).normal(size=(500, 3)); "
    "core = coresift.RBFCoreset(random_state=0).fit(X).sample(50); assert core.size == 50",
    "cli": "from coresift.cli import main; import sys; sys.argv = ['coresift', '--version']; main()",
    "io": "import pyarrow as pa, coresift; t = pa.table({'a': list(range(100)), 'b': [i % 7 for i in range(100)]}); "
    "assert coresift.select(t, 10, random_state=0).coreset.size == 10",
    "plots": "import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt; plt.figure()",
    "train": "import torch, numpy as np; from coresift.training import train; r = np.random.default_rng(0); "
    "data = r.normal(size=(200, 4)).astype('f4'), r.integers(0, 2, 200); "
    "train(torch.nn.Linear(4, 2), data, epochs=1, seed=0)",
}
UNTRIED = ("all", "dev", "peers", "ray")  # large, or for developers: resolved, not installed


def said(problem: str) -> str:
    """A problem as one line."""
    return f"release-check: {problem}"


def check_versions(root: Path) -> list[str]:
    """The version of the package is that of the changelog and the citation."""
    version = re.search(r'__version__ = "([^"]+)"', (root / "src/coresift/__init__.py").read_text())
    assert version is not None
    problems = []
    for file, pattern in (("CHANGELOG.md", r"^## \[([^\]]+)\]"), ("CITATION.cff", r"^version: (\S+)")):
        found = re.search(pattern, (root / file).read_text(), re.M)
        if found is None or found[1] != version[1]:
            problems.append(f"{file} names version {found and found[1]}, the package is {version[1]}")
    return problems


def check_links(root: Path) -> list[str]:
    """Links of the published pages to files of the project lead somewhere."""
    problems = []
    for page in PAGES:
        for target in LINK.findall((root / page).read_text()):
            if not re.match(r"[a-z]+:", target) and not (root / target).exists():
                problems.append(f"{page} links to {target}, which is not there")
    return problems


def check_wheel(wheel: Path) -> list[str]:
    """The wheel has the library, its stubs and its licence, no laboratory and no tests; its metadata are complete."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (place,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        about = email.message_from_bytes(archive.read(place))
    tops = {name.split("/")[0] for name in names} - {place.split("/")[0]}
    problems = [] if tops == {"coresift"} else [f"the wheel holds {sorted(tops)}, not coresift alone"]
    for needed in ("coresift/py.typed", "coresift/__init__.pyi"):
        if needed not in names:
            problems.append(f"the wheel lacks {needed}")
    for field in ("Name", "Version", "Summary", "Requires-Python", "License-Expression", "Description-Content-Type"):
        if not about.get(field):
            problems.append(f"the metadata have no {field}")
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    if set(about.get_all("Provides-Extra", [])) != extras or extras != {*SMOKE, *UNTRIED} - {""}:
        problems.append(f"extras {sorted(extras)}: each needs a smoke test here, or a place among those untried")
    if not any(name.endswith("licenses/LICENSE") for name in names):
        problems.append("the wheel has no licence")
    return problems


def check_sdist(sdist: Path) -> list[str]:
    """The source archive can be tested: it has the tests, the pages and what builds them."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = ("tests/test_package.py", "docs/index.md", "Makefile", "constraints.txt", "LICENSE", "pyproject.toml")
    return [f"the sdist lacks {name}" for name in needed if name not in names]


def try_out(archive: Path, extras: list[str], folder: Path) -> list[str]:
    """Install an archive into an empty environment, extra by extra, and use it from an empty folder."""
    problems = []
    home, away = folder / f"venv-{archive.suffix[1:]}", folder / "away"
    venv.create(home, with_pip=True)
    away.mkdir(exist_ok=True)
    python = str(home / "bin" / "python")
    for extra in extras:
        wanted = f"{archive}[{extra}]" if extra else str(archive)
        install = [
            python,
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "-c",
            str(ROOT / "constraints.txt"),
        ]
        for command in ([*install, wanted], [python, "-W", "error::DeprecationWarning:coresift", "-c", SMOKE[extra]]):
            done = subprocess.run(command, cwd=away, capture_output=True, text=True)
            if done.returncode:
                problems.append(f"{archive.name}[{extra}]: {done.stderr.strip().splitlines()[-1]}")
                break
        else:
            print(f"{archive.name}[{extra}]: installed and used")
    return problems


def main() -> int:
    """Build, check, install and try; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-install", action="store_true", help="check what is built, without installing it")
    arguments = parser.parse_args()
    problems = check_versions(ROOT) + check_links(ROOT)
    with TemporaryDirectory(prefix="coresift-release-") as name:
        folder = Path(name)
        build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
        problems += check_wheel(wheel) + check_sdist(sdist)
        if not arguments.no_install:
            problems += try_out(wheel, list(SMOKE), folder) + try_out(sdist, [""], folder)
    print("\n".join(map(said, problems)) or "release-check: ready")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
