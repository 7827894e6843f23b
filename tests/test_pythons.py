"""Every supported Python that is installed here reads the source; and paths with spaces work in make."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = """
import ast, pathlib, sys, tomllib
root = pathlib.Path(sys.argv[1])
for path in [*root.glob("src/**/*.py"), *root.glob("paper/**/*.py")]:
    compile(path.read_text(encoding="utf-8"), str(path), "exec")
sys.path.insert(0, str(root / "src"))
import coresift
assert coresift.__all__ and "select" in dir(coresift)
print(sys.version_info[:2])
"""


def find_python(version: tuple[int, int]) -> str | None:
    """This one, one that is on the path, or one that pyenv has installed (its shims work for active versions only)."""
    if sys.version_info[:2] == version:
        return sys.executable
    name = f"python{version[0]}.{version[1]}"
    shims = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(name), *shims.glob(f"{version[0]}.{version[1]}.*/bin/{name}")]
    works = (path for path in found if path and not subprocess.run([path, "-c", ""], capture_output=True).returncode)
    return next(map(str, works), None)


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13)])
def test_supported_pythons_read_the_source(version: tuple[int, int]) -> None:
    path = find_python(version)
    if path is None:
        pytest.skip(f"Python {version[0]}.{version[1]} is not installed")
    done = subprocess.run([path, "-W", "error", "-c", SCRIPT, str(ROOT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(version)


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_takes_a_folder_with_spaces() -> None:
    for target in ("lint", "clean", "quick"):
        done = subprocess.run(
            ["make", "-n", "VENV=a b", "-C", str(ROOT), target], capture_output=True, text=True, check=True
        )
        lines = [line for line in done.stdout.splitlines() if "a b" in line]
        assert lines
        for line in lines:
            assert '"a b/bin/python"' in line or '"a b"' in line, line
