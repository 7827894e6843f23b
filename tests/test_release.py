"""The checks before a release find what they look for."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tools import release_check as release

METADATA = (
    "Name: coresift\nVersion: 1\nSummary: s\nRequires-Python: 3\nLicense-Expression: MIT\nDescription-Content-Type: x\n"
)
EXTRAS = "".join(f"Provides-Extra: {name}\n" for name in {*release.SMOKE, *release.UNTRIED} - {""})
FILES = {
    "coresift/py.typed": "",
    "coresift/__init__.pyi": "",
    "coresift-1.dist-info/METADATA": METADATA + EXTRAS,
    "coresift-1.dist-info/licenses/LICENSE": "",
}


def test_this_commit_has_one_version_and_links_that_lead_somewhere() -> None:
    assert release.check_versions(release.ROOT) == []
    assert release.check_links(release.ROOT) == []


def test_versions_and_links_that_differ_are_named(tmp_path: Path) -> None:
    (tmp_path / "src/coresift").mkdir(parents=True)
    (tmp_path / "src/coresift/__init__.py").write_text('__version__ = "0.3.0"\n')
    (tmp_path / "CITATION.cff").write_text("version: 0.3.0\n")
    for page in release.PAGES:
        (tmp_path / page).write_text("## [0.2.0]\n[a](gone.md) [b](README.md#top) [c](https://example.org/x)\n")
    assert release.check_versions(tmp_path) == ["CHANGELOG.md names version 0.2.0, the package is 0.3.0"]
    assert release.check_links(tmp_path) == [f"{page} links to gone.md, which is not there" for page in release.PAGES]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"paper/run.py": ""}, "not coresift alone"),
        ({"coresift/py.typed": None}, "lacks coresift/py.typed"),
        ({"coresift-1.dist-info/licenses/LICENSE": None}, "no licence"),
        ({"coresift-1.dist-info/METADATA": METADATA + EXTRAS + "Provides-Extra: new\n"}, "extras"),
        ({"coresift-1.dist-info/METADATA": METADATA.replace("Summary: s\n", "") + EXTRAS}, "no Summary"),
    ],
)
def test_wheels_with_faults_are_refused(change: dict[str, str | None], problem: str | None, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "w.whl", "w") as archive:
        for name, text in (FILES | change).items():
            if text is not None:
                archive.writestr(name, text)
    found = release.check_wheel(tmp_path / "w.whl")
    assert found == [] if problem is None else len(found) == 1 and problem in found[0]


def test_an_sdist_without_tests_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "s.tar.gz", "w:gz") as archive:
        for name in ("docs/index.md", "Makefile", "constraints.txt", "LICENSE", "pyproject.toml"):
            archive.addfile(tarfile.TarInfo(f"coresift-1/{name}"), io.BytesIO())
    assert release.check_sdist(tmp_path / "s.tar.gz") == ["the sdist lacks tests/test_package.py"]


def test_the_workflow_runs_what_ci_runs() -> None:
    import yaml

    flow = yaml.safe_load((release.ROOT / ".github/workflows/ci.yml").read_text())
    assert [step["run"] for step in flow["jobs"]["checks"]["steps"] if "run" in step] == [".ci/run"]
    promised = {
        line.split()[-1] for line in (release.ROOT / "pyproject.toml").read_text().splitlines() if ":: 3." in line
    }
    assert {f'{python}",' for python in flow["jobs"]["checks"]["strategy"]["matrix"]["python"]} == promised
