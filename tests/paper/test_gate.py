"""The gate for speed notices what is slower, and exponents are those of the work."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from coresift._errors import CoresiftError
from coresift.cli.app import Settings
from paper.benchmarks import gate, growth


def run_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: dict[str, float]) -> list[str]:
    """Run the gate where "a" is half as fast as committed; what it measured again, with ``then`` of the old commit."""
    (tmp_path / "gate.json").write_text(json.dumps({"commit": "0" * 40, "ratios": {"a": 2.0, "b": 1.0}}))
    again: list[str] = []
    monkeypatch.setattr(gate, "STORED", tmp_path / "gate.json")
    monkeypatch.setattr(gate, "ratios", lambda: {"a": 4.0, "b": 1.2})
    monkeypatch.setattr(gate, "beside", lambda commit, only: again.extend(only) or ({"a": 4.2}, then))
    gate.gate(Settings())
    return again


def test_a_slower_machine_is_not_slower_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_gate(tmp_path, monkeypatch, {"a": 4.0}) == ["a"]


def test_slower_code_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CoresiftError, match="slower than commit 0000000 on this machine too: a"):
        run_gate(tmp_path, monkeypatch, {"a": 3.0})


def test_a_ratio_that_is_not_committed_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gate.json").write_text(json.dumps({"commit": "0" * 40, "ratios": {}}))
    monkeypatch.setattr(gate, "STORED", tmp_path / "gate.json")
    monkeypatch.setattr(gate, "ratios", lambda: {"a": 4.0})
    with pytest.raises(CoresiftError, match="no committed ratio of a"):
        gate.gate(Settings())


def test_the_code_of_a_commit_runs_beside_the_present(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository whose code says 1, committed, and now says 2; the ratios are kept with the commit."""

    def git(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        return subprocess.check_output(["git", *who, *arguments], cwd=tmp_path, text=True)

    for folder in ("src", "paper", "paper/benchmarks"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    code = tmp_path / "paper" / "benchmarks" / "gate.py"
    code.write_text("def ratios(only):\n    return {what: 1.0 for what in only}\n")
    git("init", "-q"), git("add", "-A"), git("commit", "-qm", "first")
    commit = git("rev-parse", "HEAD").strip()
    monkeypatch.setattr(gate, "ROOT", tmp_path)
    monkeypatch.setattr(gate, "STORED", tmp_path / "gate.json")
    gate.keep({"a": 1.0})
    assert json.loads((tmp_path / "gate.json").read_text()) == {"commit": commit, "ratios": {"a": 1.0}}
    code.write_text("def ratios(only):\n    return {what: 2.0 for what in only}\n")
    assert gate.beside(commit, ["a b"], rounds=1) == ({"a b": 2.0}, {"a b": 1.0})
    with pytest.raises(CoresiftError, match="commit these first"):
        gate.keep({"a": 1.0})
    with pytest.raises(CoresiftError, match="git archive"):
        gate.beside("0" * 40, ["a b"])


def test_every_ratio_compares_two_things_that_run(tmp_path: Path) -> None:
    names = []
    for what, ours, bare in gate.works(tmp_path, 5000):
        ours(), bare()
        names.append(what)
    assert len(set(names)) == len(names) > 8
    stored = json.loads(gate.STORED.read_text())
    assert set(stored["ratios"]) == set(names)
    assert len(stored["commit"]) == 40


def test_exponents_are_those_of_the_work() -> None:
    """Sums of all entries, once and once for each row: n d and n^2 d."""
    once = growth.Operation(lambda X, y: lambda: [np.sin(X).sum() for _ in range(4)], 20_000)
    often = growth.Operation(lambda X, y: lambda: [np.sin(X).sum() for _ in range(len(X) // 100)], 1000)
    in_n, in_d, _ = growth.exponents(once)
    assert abs(in_n - 1.0) < 0.35
    assert abs(in_d - 1.0) < 0.5
    in_n, _, _ = growth.exponents(often)
    assert abs(in_n - 2.0) < 0.5


def test_benchmarks_set_one_thread_before_numpy_is_imported():
    code = "import sys, paper.commands.benchmark; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
