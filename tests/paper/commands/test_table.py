"""``python -m paper table``: formats, files, and errors in one line."""

import csv
import dataclasses
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from paper.__main__ import main
from paper.bench.protocol import load_protocol
from paper.bench.store import Store, serialised
from tests.paper.bench.records import record, records, small_protocol

PROTOCOL = load_protocol("mnist")


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of results with some of the runs of MNIST, as the default folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("paper.bench.store.RESULTS", tmp_path / "results")
    file = tmp_path / "results" / "mnist" / "records.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"".join(map(serialised, records(small_protocol()))))
    return tmp_path / "results"


Run = Callable[..., tuple[str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert main(["table", *arguments]) == code
        return tuple(capsys.readouterr())

    return run


@pytest.mark.usefixtures("results")
def test_the_terminal_by_default(run: Run) -> None:
    out, err = run("mnist")
    assert err == ""
    assert out.startswith(f"MNIST, LeNet-5\n39 of {len(PROTOCOL.runs())} runs finished")
    for title in ("Test accuracy, %", "Time", "Speed-up over FULL", "Against ADAPTIVE-RANDOM"):
        assert f"\n{title}\n" in out
    assert max(map(len, out.splitlines())) <= 100
    assert run("MNIST")[0] == out
    assert "Macro-F1" in run("mnist", "--metric", "macro-f1")[0]


def test_formats_and_files_hold_the_same(results: Path, run: Run) -> None:
    for kind, suffix in (("terminal", ".txt"), ("markdown", ".md"), ("latex", ".tex"), ("csv", ".csv")):
        printed, _ = run("mnist", "--format", kind)
        file = results.parent / f"table{suffix}"
        assert run("mnist", "--out", str(file)) == (f"Wrote {file}.\n", "")
        assert file.read_text(encoding="utf-8") == printed
    other = results.parent / "table.anything"
    assert run("mnist", "--out", str(other), "-f", "csv", "-q") == ("", "")
    assert other.read_bytes() == (results.parent / "table.csv").read_bytes()
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert len(rows) == 1 + (len(PROTOCOL.methods) - 1) * len(PROTOCOL.budgets)


@pytest.mark.usefixtures("results")
def test_json(run: Run) -> None:
    found = json.loads(run("mnist", "--json")[0])
    assert (found["runs_finished"], found["clock"], found["scale"]) == (39, "cpu", "paper")
    rbf = next(each for each in found["entries"] if (each["method"], each["budget"]) == ("RBF", 0.01))
    assert (rbf["seeds"], rbf["paper_accuracy_percent"]) == (3, 98.98)


def test_damaged_records_are_named_and_the_others_used(results: Path, run: Run) -> None:
    file = results / "mnist" / "records.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:3], lines[3][:40] + b"\n", *lines[4:]]))
    out, err = run("mnist", "--format", "csv")
    assert "line 4" in " ".join(err.split())
    assert sum(int(row["seeds"]) for row in csv.DictReader(io.StringIO(out))) == 38


def test_other_protocols_and_scales_are_counted(results: Path, run: Run) -> None:
    store = Store(results, "mnist")
    for changes, n in (({"version": 99}, 2), ({"scale": "another"}, 1)):
        other = dataclasses.replace(PROTOCOL, **changes)
        for cell in other.runs()[:n]:
            store.append(record(other, cell))
    out, _ = run("mnist")
    assert "Records left out: 2 of another version of the protocol, 1 at another scale." in out
    assert "39 of" in out


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["nosuch"], 1, r"table 'nosuch' is unknown; choose from mnist, cifar10, cifar100, imagenet"),
        (["mnist", "--scale", "nosuch"], 1, r"scale 'nosuch' is unknown to the table mnist; choose from paper"),
        (["mnist", "--results", "nosuch"], 1, r"nosuch: not found; 'python -m paper run mnist' creates it"),
        (["cifar10"], 1, r"cifar10.records\.jsonl: not found; 'python -m paper run cifar10' creates it"),
        (["mnist", "--out", "a.pdf"], 1, r"unknown suffix '\.pdf' of a table; use \.txt, \.md, \.tex, \.csv"),
        (["mnist", "--out", "nosuch/a.md"], 1, "cannot be written"),
        (["mnist", "--out", "results"], 1, "this is a folder"),
        (["mnist", "--format", "html"], 2, "html"),
        (["mnist", "--json", "--format", "csv"], 2, "--json prints"),
        ([], 2, "TABLE"),
    ],
)
def test_errors_are_one_line(arguments: list[str], code: int, complaint: str, run: Run) -> None:
    out, err = run(*arguments, code=code)
    assert out == ""
    assert re.fullmatch(rf"python -m paper: error: .*{complaint}.*\n", err)


def test_no_record_of_this_scale_says_where_there_are_some(results: Path, run: Run) -> None:
    (results / "cifar10").mkdir()
    (results / "cifar10" / "records.jsonl").touch()
    _, err = run("cifar10", code=1)
    assert err == "python -m paper: error: no finished run of the table cifar10 with protocol 1 at scale paper.\n"
    small = load_protocol("cifar10", "cpu")
    Store(results, "cifar10").append(record(small, small.runs()[0]))
    _, err = run("cifar10", code=1)
    assert "the store holds 1 at another scale (see --scale)" in err
    assert "narrow ResNet-9 (cpu)" in run("cifar10", "--scale", "cpu")[0]


def test_a_full_disk_leaves_the_old_table(results: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    file = results.parent / "table.md"
    file.write_text("the old one")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    _, err = run("mnist", "--out", str(file), code=1)
    assert err.startswith("python -m paper: error: ")
    assert "table.md" in err
    assert "No space left on device" in err
    assert file.read_text() == "the old one"
    assert [path.name for path in results.parent.iterdir() if path.is_file()] == ["table.md"]
