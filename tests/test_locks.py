"""Lock files: every package that the two set-up commands install, in the pinned version, with hashes."""

import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools.audit_deps import pins
from tools.lock import BUILD, LOCKS, canonical, read_lock, requirements

ROOT = Path(__file__).parents[1]
PYTHONS = ["3.11", "3.12", "3.13"]


def closure(roots: list[str], python: str) -> set[str]:
    """What these requirements need on Linux, by the metadata of what is installed here."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    waiting, seen = [(Requirement(root), "") for root in roots], set()
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate(environment | {"extra": extra}):
            continue
        for inner in ["", *requirement.extras]:
            if (canonical(requirement.name), inner) in seen:
                continue
            seen.add((canonical(requirement.name), inner))
            try:
                needed = requires(requirement.name) or []
            except PackageNotFoundError:
                needed = []  # then it is in the result, and the lock must have it
            waiting += [(Requirement(each), inner) for each in needed]
    return {name for name, _ in seen}


@pytest.mark.parametrize("name", LOCKS)
@pytest.mark.parametrize("python", PYTHONS)
def test_a_lock_has_all_that_is_needed_and_nothing_else(name: str, python: str) -> None:
    locked = read_lock(ROOT / "locks" / f"{name}.txt")
    needed = closure([*requirements(LOCKS[name]), *BUILD], python)
    assert needed - set(locked) == set()
    if python == PYTHONS[0]:
        assert set(locked) - needed == set()


def test_locks_have_the_pinned_versions_with_hashes() -> None:
    pinned, _ = pins((ROOT / "constraints.txt").read_text())
    dev, demo = (read_lock(ROOT / "locks" / f"{name}.txt") for name in ("dev", "demo"))
    assert {name: version for name, (version, _) in dev.items()} == pinned
    assert all(hashes for _, hashes in dev.values())
    assert demo.items() <= dev.items()


def test_the_set_up_commands_install_the_extras_of_the_locks() -> None:
    text = (ROOT / "Makefile").read_text()
    for name, extras in LOCKS.items():
        assert f"setup-{name}:\n\t@tools/setup.sh {extras}\n" in text


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_with_hashes_nothing_is_installed_that_is_not_locked(tmp_path: Path) -> None:
    """A stand-in for the Python of the environment writes down how pip is called."""
    python = tmp_path / "a b" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/calls"\n')
    python.chmod(0o755)
    command = ["make", "-C", str(ROOT), f"VENV={tmp_path / 'a b'}", "setup-dev"]
    for arguments in (["HASHES=1"], ["HASHES=1"], []):
        subprocess.run([*command, *arguments], capture_output=True, check=True)
    calls = [line for line in (tmp_path / "calls").read_text().splitlines() if " install " in line]
    assert len(calls) == 4  # the second command found all done
    assert "--require-hashes --no-deps --only-binary :all:" in calls[0]
    assert calls[0].endswith("-r locks/dev.txt")
    assert calls[1].endswith("--no-deps --no-build-isolation -e .")
    assert all("-c constraints.txt" in call and "hashes" not in call for call in calls[2:])
