"""``python -m paper report``: the page, the two output streams, errors before the work."""

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from paper import report
from paper.__main__ import main
from paper.bench.store import serialised
from tests.paper.bench.records import records, small_protocol


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results" / "mnist"
    folder.mkdir(parents=True)
    (folder / "records.jsonl").write_bytes(b"".join(map(serialised, records(small_protocol()))))
    return folder.parent


def test_the_page_is_written_and_its_size_stated(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    assert main(["report", str(results), "--out", str(out)]) == 0
    said, err = capsys.readouterr()
    assert err == ""
    (size,) = re.findall(rf"^Wrote {re.escape(str(out))} \((\d+) kB\)\.\n$", said)
    assert int(size) == round(out.stat().st_size / 1000)
    first = out.read_bytes()
    assert main(["report", str(results / "mnist"), "-o", str(out), "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert out.read_bytes() == first


def test_a_damaged_record_is_named_on_standard_error(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = results / "mnist" / "records.jsonl"
    file.write_bytes(file.read_bytes() + b"[red]half a li\n" * 30)
    assert main(["report", str(results), "--out", str(tmp_path / "a.html"), "-q"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert re.fullmatch(
        r"python -m paper: warning: .*records\.jsonl, line 40: left out, because it is not JSON\.", lines[0]
    )
    assert len(lines) == 21
    assert lines[-1].endswith("and 10 more, see the page.")


@pytest.mark.slow
def test_data_add_their_part_and_progress_is_told(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.html"
    assert main(["report", str(results), "--out", str(out), "--data-dir", str(tmp_path)]) == 0
    assert "train-images" in out.read_text()  # not there: the page says what is missing
    capsys.readouterr()

    look_at = report.look_at
    monkeypatch.setattr(report, "look_at", lambda name, *rest, **options: look_at("digits", *rest, **options))
    assert main(["report", str(results), "--out", str(out), "--data-dir", str(tmp_path)]) == 0
    text = out.read_text()
    assert text.count("<img ") == 36
    assert "The certificate" in text
    assert "certificates of 15 of 1,438 rows" in " ".join(capsys.readouterr().err.split())
    assert main(["report", str(results), "--out", str(out), "--data-dir", str(tmp_path), "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert logging.getLogger("coresift").level == logging.ERROR


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["nosuch", "--out", "a.html"], 1, "nosuch: no such folder"),
        ([".", "--out", "a.html"], 1, "no results: neither"),
        (["results", "--out", "a.pdf"], 1, r"unknown suffix '\.pdf'"),
        (["results", "--out", "nosuch/a.html"], 1, "cannot be written"),
        (["results", "--out", "a.html", "--data-dir", "nosuch"], 1, "nosuch: no such folder"),
    ],
)
def test_errors_are_one_line_and_no_page(
    arguments: list[str],
    code: int,
    complaint: str,
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(results.parent)
    assert main(["report", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(rf"python -m paper: error: .*{complaint}.*\n", err)
    assert [path.name for path in results.parent.iterdir()] == ["results"]


WITHOUT = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "pyarrow", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
from paper.__main__ import main
sys.exit(main(["report", *sys.argv[1:]]))"""


@pytest.mark.slow
def test_a_report_needs_neither_torch_nor_pyarrow(results: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, str(results), "-q", "-o", str(tmp_path / "a.html")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert (tmp_path / "a.html").is_file()
