"""Write the lock files of the two set-up commands, with hashes: ``python tools/lock.py [PYTHON ...]``.

pip resolves the extras under ``constraints.txt`` for the Python that runs this, and says which file it would install
of each package; nothing is installed. Every further PYTHON (a path, such as python3.12) adds the files that it would
install of the same versions. PyTorch is left out there unless that Python gets its CPU build, whose files come from an
index of their own: the builds of the main one need gigabytes for GPUs, which are not locked.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# the extras of the two set-up commands (Makefile), and what tools/setup.sh builds the package with
LOCKS = {"demo": "cli,train,plots", "dev": "dev"}
BUILD = ["hatchling", "editables"]


def canonical(name: str) -> str:
    """The name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(extras: str) -> list[str]:
    """What the package needs with these extras; extras that name others are followed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = list(project["dependencies"])
    waiting = extras.split(",")
    while waiting:
        for each in project["optional-dependencies"][waiting.pop()]:
            inner = re.fullmatch(r"coresift\[([^\]]*)\]", each)
            if inner:
                waiting += inner[1].split(",")
            else:
                found.append(each)
    return found


def read_lock(path: Path) -> dict[str, tuple[str, list[str]]]:
    """Name -> version and SHA-256 hashes."""
    found: dict[str, tuple[str, list[str]]] = {}
    for entry in re.sub(r"\\\n", " ", path.read_text(encoding="utf-8")).splitlines():
        match = re.match(r"([a-z0-9-]+)==(\S+)", entry)
        if match:
            found[match[1]] = match[2], re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)
    return found


def files_chosen(python: str, *arguments: str) -> dict[str, tuple[str, str]]:
    """Name -> version and hash of the file that pip of this Python would install."""
    command = [python, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    told = subprocess.run(
        [*command, "--only-binary", ":all:", "-c", str(ROOT / "constraints.txt"), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return {
        canonical(each["metadata"]["name"]): (
            each["metadata"]["version"].partition("+")[0],
            each["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for each in json.loads(told.stdout)["install"]
    }


def lock(name: str, others: list[str]) -> str:
    """The text of one lock file."""
    found = {
        package: (version, {digest})
        for package, (version, digest) in files_chosen(sys.executable, *requirements(LOCKS[name]), *BUILD).items()
    }
    for python in others:
        pinned = [f"{package}=={version}" for package, (version, _) in found.items() if package != "torch"]
        chosen = files_chosen(python, "--no-deps", *pinned)
        try:
            chosen |= files_chosen(python, "--no-deps", f"torch=={found['torch'][0]}+cpu")
        except subprocess.CalledProcessError:
            print(f"lock: {python} finds no CPU build of torch; its hash is left out", file=sys.stderr)
        for package, (_, digest) in chosen.items():
            found[package][1].add(digest)
    lines = [
        f"# coresift[{LOCKS[name]}] and what builds it, with hashes; written by tools/lock.py from constraints.txt.",
        "# Linux on x86-64, wheels only. Used by HASHES=1 (docs/security.md says what it does and does not cover).",
    ]
    for package, (version, digests) in sorted(found.items()):
        lines.append(
            " \\\n    ".join([f"{package}=={version}", *(f"--hash=sha256:{each}" for each in sorted(digests))])
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for each in LOCKS:
        path = ROOT / "locks" / f"{each}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(lock(each, sys.argv[1:]), encoding="utf-8")
        print(f"lock: {path.relative_to(ROOT)}: {len(read_lock(path))} packages")
