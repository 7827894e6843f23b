"""Every supported Python that is installed here reads the source; and paths with spaces work in make."""

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


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13)])
def test_supported_pythons_read_the_source(version: tuple[int, int]) -> None:
    name = f"python{version[0]}.{version[1]}"
    path = sys.executable if sys.version_info[:2] == version else shutil.which(name)
    if path is None or subprocess.run([path, "-c", ""], capture_output=True).returncode:
        pytest.skip(f"{name} is not installed")
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
