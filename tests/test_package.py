"""What is published: the built archives, the installed wheel, the import time, and the metadata beside them."""

import os
import re
import resource
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import coresift

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    result = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Source archive, and the wheel built from it (so that what the archive lacks is noticed)."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    return out


@pytest.mark.slow
def test_archives_hold_what_they_should(archives: Path) -> None:
    (wheel,) = archives.glob("*.whl")
    (sdist,) = archives.glob("*.tar.gz")
    assert wheel.name == f"coresift-{coresift.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    source = ROOT / "src"
    expected = {path.relative_to(source).as_posix() for path in source.rglob("*.py*") if path.suffix != ".pyc"}
    expected |= {"coresift/py.typed"}
    assert expected <= names
    assert {name.split("/")[0] for name in names} == {"coresift", f"coresift-{coresift.__version__}.dist-info"}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    with tarfile.open(sdist) as opened:
        members = {name.split("/", 1)[1] for name in opened.getnames() if "/" in name}
    assert {
        "pyproject.toml",
        "paper/__main__.py",
        "paper/bench/templates/table.tex.j2",
        "paper/bench/tables/mnist.toml",
        "LICENSE",
        "CITATION.cff",
        "README.md",
        "Makefile",
        "constraints.txt",
    } <= members
    assert not any(part in name for name in members for part in ("__pycache__", ".venv", ".git/"))


@pytest.mark.slow
def test_installed_wheel_works_outside_the_source(archives: Path, tmp_path: Path) -> None:
    (wheel,) = archives.glob("*.whl")
    target = tmp_path / "installed"
    run(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--no-index", "--target", target, wheel),
        cwd=tmp_path,
    )
    # PYTHONPATH comes before the editable install of the environment, from which NumPy and the rest are taken.
    code = (
        "import coresift, importlib.metadata as m, importlib.resources as r\n"
        "print(coresift.__file__, coresift.__version__, m.version('coresift'),"
        " r.files('coresift').joinpath('py.typed').is_file(), sep='\\n')"
    )
    file, version, installed_version, typed = run(
        sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(target)
    ).splitlines()
    assert Path(file).is_relative_to(target)
    assert version == installed_version == coresift.__version__
    assert typed == "True"
    printed = run(sys.executable, target / "bin" / "coresift", "--version", cwd=tmp_path, PYTHONPATH=str(target))
    assert printed == f"coresift {coresift.__version__}\n"


def processor_seconds(*arguments: str) -> float:
    """Processor time of a fresh interpreter, the least of five runs."""
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ours", "theirs", "most"),
    [
        (("-c", "import coresift"), "import numpy", 1.2),
        (("-m", "coresift", "--version"), "import typer, rich", 2.0),
        (("-m", "coresift", "--help"), "import typer, rich", 2.0),
    ],
)
def test_start_up_imports_only_what_it_uses(ours: tuple[str, ...], theirs: str, most: float) -> None:
    ratios = []
    for _ in range(3):  # a slow spell of the machine may be longer than one comparison
        ratios.append(processor_seconds(*ours) / processor_seconds("-c", theirs))
        if ratios[-1] <= most:
            return
    pytest.fail(f"{' '.join(ours)} takes {ratios} times as long as {theirs}; at most {most} is allowed")


def test_constraints_pin_everything_that_is_asked_for() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    pins = {}
    for line in lines:
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.]+)", line)
        assert match, f"not an exact pin: {line}"
        pins[re.sub(r"[-_.]+", "-", match[1]).lower()] = match[2]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(item for name in ("cli", "io", "plots", "train", "dev") for item in extras[name]),
    ]
    for requirement in wanted:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower()
        assert name in pins or name == "coresift", f"{requirement} is not pinned"
    assert pins["torch"] == "2.13.0"  # a newer one would bring gigabytes that nobody asked for
    assert not any(re.match(r"ray\b", item) for item in wanted)


def test_citation_names_the_version_and_the_paper() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^version: {re.escape(coresift.__version__)}$", text, re.MULTILINE)
    assert "arXiv:2303.05151" in text
