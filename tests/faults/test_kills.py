"""Commands that are killed: a few kills each. ``python tools/kill_test.py`` does hundreds."""

import os
import signal
from pathlib import Path

import pytest

from tools import kill_test
from tools.kill_test import TARGETS, Found, Target, campaign

if not hasattr(os, "fork") or not Path("/proc/self/stat").exists():
    pytest.skip("needs fork and /proc", allow_module_level=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["select", "select-workers", "fit", "train", "bench"])
def test_a_killed_command_ends_as_if_it_had_not_been(name: str, tmp_path: Path) -> None:
    for module in kill_test.IMPORTED:
        __import__(module)
    found = campaign(TARGETS[name], 3, seed=5, folder=tmp_path)
    assert found.problems == []
    assert (found.kills, found.restarts >= 1, found.compared >= 1) == (3, True, True)


# The test itself: it must see what it looks for. Stand-ins for the command line, run in a fork as it is.


def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str) -> Found:
    """A campaign against a command that writes two lines to a file, as ``body`` says."""

    def command(arguments: list[str]) -> int:
        exec(compile(body, "stand-in", "exec"), {"out": Path(arguments[0])})
        return 0

    def check(out: Path) -> None:
        if (out / "file").exists():
            assert (out / "file").read_text() == "one\ntwo\n", "half a file"

    monkeypatch.setattr(kill_test, "coresift", command)
    monkeypatch.setattr(kill_test, "GRACE", 0.3)
    target = Target(
        lambda data: None,
        lambda data, out: [str(out), "--log", str(out / "log")],
        lambda out: (out / "file").read_text(),
        check,
    )
    return campaign(target, 6, 0, tmp_path)


WHOLE = """
import os, time
time.sleep(0.1)
(out / "draft").write_text("one\\ntwo\\n")
os.replace(out / "draft", out / "file")
"""
HALF = """
import time
with (out / "file").open("a") as file:
    file.write("one\\n")
    file.flush()
    time.sleep(0.1)
    file.write("two\\n")
"""
ORPHAN = """
import os, time
if os.fork() == 0:
    time.sleep(5)
    os._exit(0)
time.sleep(0.1)
(out / "file").write_text("one\\ntwo\\n")
"""
FAILS_AFTER_A_KILL = """
import time
if (out / "draft").exists():
    raise SystemExit(3)
(out / "draft").touch()
time.sleep(0.1)
(out / "file").write_text("one\\ntwo\\n")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (WHOLE, None),
        (HALF, "half a file"),
        (ORPHAN, "processes are left over"),
        (FAILS_AFTER_A_KILL, "ended with code"),
    ],
    ids=["whole", "half", "orphan", "fails"],
)
def test_what_it_would_see(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str, complaint: str | None) -> None:
    found = stand_in(monkeypatch, tmp_path, body)
    assert found.kills >= 1
    if complaint is None:
        assert found.problems == []
    else:
        assert any(complaint in problem for problem in found.problems), found.problems


def test_the_table_of_counts(tmp_path: Path) -> None:
    kill_test.record(tmp_path, "select", 0, Found(kills=3, restarts=2, compared=1, seconds=1.234))
    kill_test.record(tmp_path, "train", 0, Found(kills=4, problems=["x"]))
    text = (tmp_path / "kills.md").read_text()
    assert "| select | 3 | 2 | 1 | 0 | 1.23 s |" in text
    assert "| train | 4 | 0 | 0 | 1 |" in text
    assert signal.SIGKILL  # what is sent
