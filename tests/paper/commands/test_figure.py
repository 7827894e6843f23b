"""``python -m paper figure bandwidth``: files, errors before the work, and the figure from its table alone."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from paper import bandwidth
from paper.__main__ import main
from paper.tables import read_table

COMMAND = ["figure", "bandwidth", "--rows", "120", "--seeds", "1", "--size", "12", "--bandwidths", "2"]


@pytest.fixture
def is_never_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: object) -> None:
        raise AssertionError("nothing should have been computed")

    monkeypatch.setattr(bandwidth, "measure", measure)


@pytest.mark.slow
def test_files_and_the_figure_from_the_table_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "fig"
    assert main([*COMMAND, "--out", str(out)]) == 0
    assert capsys.readouterr() == (f"Wrote {out}.svg, {out}.png, {out}.csv.\n", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fig.csv", "fig.png", "fig.svg"]
    rows = read_table(tmp_path / "fig.csv", bandwidth.Measurement)
    assert len(rows) == 2 * len(bandwidth.METHODS)
    assert {(row.n_samples, row.size, row.seed) for row in rows} == {(120, 12, 0)}

    again = tmp_path / "again.svg"
    assert main(["figure", "bandwidth", "--from", f"{out}.csv", "--out", str(again), "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert again.read_bytes() == (tmp_path / "fig.svg").read_bytes()
    assert not again.with_suffix(".csv").exists()

    table = tmp_path / "numbers.csv"
    assert main([*COMMAND, "--out", str(tmp_path / "b.png"), "--table", str(table), "-q"]) == 0
    assert table.read_bytes() == (tmp_path / "fig.csv").read_bytes()
    assert not (tmp_path / "b.csv").exists()


@pytest.mark.usefixtures("is_never_measured")
@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        ([], 2, "--out"),
        (["--out", "a.pdf"], 1, r"unknown suffix '\.pdf'"),
        (["--out", "nosuch/a.svg"], 1, "cannot be written"),
        (["--out", "."], 1, "folder"),
        (["--out", "a.svg", "--table", "a.json"], 1, r"unknown suffix '\.json' of a table"),
        (["--out", "a.svg", "--table", "nosuch/a.csv"], 1, "cannot be written"),
        (["--out", "a.svg", "--data-dir", "nosuch"], 1, "the data set .mnist. is not in nosuch"),
        (["--out", "a.svg", "--data-dir", "."], 1, "the data set .mnist. is not in"),
        (["--out", "a.svg", "--from", "nosuch.csv"], 1, r"nosuch\.csv: no such file"),
        (["--out", "a.svg", "--from", "a.csv", "--data-dir", "."], 2, "--data-dir do not go with it"),
        (["--out", "a.svg", "--seeds", "0"], 2, "seeds"),
        (["--out", "a.svg", "--size", "0"], 1, "size = 0.0 must be above 0"),
        (["--out", "a.svg", "--size", "12.5"], 1, "whole number"),
        (["--out", "a.svg", "--size", "5000"], 1, "size = 5000 must be between 1 and"),
        (["--out", "a.svg", "--size", "nan"], 1, "size"),
    ],
)
def test_errors_are_one_line_before_the_work(
    arguments: list[str],
    code: int,
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["figure", "bandwidth", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(rf"python -m paper: error: .*{complaint}.*\n", err)
    assert list(tmp_path.iterdir()) == []


def test_no_figure_named_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figure"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    names = "bandwidth, function-approximation, covtype, lower-bound, gradients, methods, equal-time"
    assert err == f"python -m paper: error: Which figure: {names}? Try 'python -m paper figure --help'.\n"


@pytest.mark.slow
def test_a_long_run_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bandwidth, "expected_seconds", lambda data, plan: 61.0)
    assert main([*COMMAND, "--out", str(tmp_path / "a.svg")]) == 0
    assert capsys.readouterr().err == "This takes about 2 minutes on one core.\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--out", "x.foo"], "unknown suffix '.foo'"),
        (["--out", "x.svg", "--size", "12.5"], "whole number"),
        (["--out", "x.svg", "--data-dir", "nosuch"], "is not in nosuch"),
        (["--out", "x.svg", "--from", "nosuch.csv"], "nosuch.csv: no such file"),
    ],
)
def test_arguments_are_checked_before_matplotlib_is_missed(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["figure", "bandwidth", *arguments]) == 1
    assert complaint in capsys.readouterr().err
    assert main(["figure", "bandwidth", "--out", "x.svg"]) == 1
    assert "coresift[plots]" in capsys.readouterr().err


@pytest.mark.slow
def test_without_matplotlib_one_line_names_the_extra(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None; from paper.__main__ import main; "
        f"sys.exit(main(['figure', 'bandwidth', '--out', {str(tmp_path / 'a.svg')!r}]))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stdout == ""
    assert re.fullmatch(
        r'python -m paper: error: .*install coresift\[plots\] \(in a clone: pip install "\.\[plots\]"\)\n',
        result.stderr,
    )
