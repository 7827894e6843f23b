"""``select``, ``audit`` and ``certify`` as their users meet them."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from coresift import Coreset, select
from coresift.cli import main

N = 6000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 3))
    path = tmp_path / "rows.parquet"
    y = np.where(rng.random(N) < 0.1, "rare", "common")
    parquet.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y, "w": rng.random(N)}), path)
    return path


def chosen(path: Path) -> Coreset:
    return Coreset.load(path)


def test_select_writes_what_python_selects(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "core.parquet"
    arguments = ["--budget", "5%", "--columns", "a,b,c", "--weight", "w", "--bound", "cells", "--seed", "3"]
    assert main(["select", str(file), "--out", str(out), *arguments]) == 0
    shown, plan = capsys.readouterr()
    assert "6,000 rows, 3 features" in plan
    assert "passes (survey," in plan
    text = " ".join(shown.split())
    assert "Chosen: 300 of 6,000 rows" in text
    assert "Guaranteed: nothing is proved for this draw; coresift certify says more." in text
    assert "Found: relative error" in text
    assert "Plain sampling" in text
    expected = select(file, 300, columns=["a", "b", "c"], weight="w", bound="cells", random_state=3)
    assert chosen(out) == expected.coreset
    assert parquet.read_schema(out).names == ["row", "file", "weight"]


@pytest.mark.slow
def test_quiet_prints_results_only_and_json_is_json(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "core.npz"
    assert main(["select", str(file), "-b", "40", "-o", str(out), "--json", "-q", "--bandwidth", "median"]) == 0
    shown, err = capsys.readouterr()
    assert err == ""
    figures = json.loads(shown)
    assert figures["size"] == 40
    assert figures["guarantee"] is None
    assert figures["run"]["bandwidth"] == "median"
    assert chosen(out).size == 40


def test_a_dry_run_writes_nothing(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(os.listdir(tmp_path))
    assert main(["select", str(file), "-b", "1%", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["budget"] == 60
    assert main(["select", str(file), "-b", "1%", "--dry-run", "-o", str(tmp_path / "core.parquet")]) == 0
    assert "60 rows" in capsys.readouterr().out
    assert sorted(os.listdir(tmp_path)) == before


def test_options_from_a_file_give_way_to_the_command_line(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.toml"
    config.write_text(
        f"input = '{file}'\nbudget = '10%'\ncolumns = ['a', 'b']\nlabel = 'y'\nper-class = true\n"
        "min-per-class = 150\nbound = 'closed-form'\n"
    )
    out = tmp_path / "core.parquet"
    assert main(["select", "--config", str(config), "-o", str(out), "--budget", "400", "-q"]) == 0
    table = parquet.read_table(out)
    assert table.num_rows == 400
    assert table["label"].to_pylist().count("rare") == 150
    config.write_text("budgets = 5\n")
    assert main(["select", str(file), "--config", str(config), "-o", str(out)]) == 2
    assert "unknown option 'budgets'" in capsys.readouterr().err
    config.write_text("budget = \n")
    assert main(["select", str(file), "--config", str(config), "-o", str(out)]) == 2
    assert main(["select", str(file), "--config", str(tmp_path / "nosuch"), "-o", str(out)]) == 2


def test_rows_themselves_and_an_error_instead_of_a_budget(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "core.parquet"
    arguments = ["--eps", "0.3", "--bandwidth", "20", "--columns", "a,b,c", "--materialize", "--bound", "closed-form"]
    assert main(["select", str(file), "-o", str(out), "-q", *arguments]) == 0
    core = chosen(out)
    assert core.method == "iid"
    assert core.guarantee is not None
    rows = parquet.read_table(file).take(pa.array(core.indices))
    assert parquet.read_table(out)["a"].to_pylist() == rows["a"].to_pylist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch.parquet", "-b", "5"], "nosuch.parquet: no such file or folder"),
        (["FILE", "-b", "5", "--columns", "a,zz"], "no column 'zz'"),
        (["FILE", "-b", "5", "--raw", "--columns", "y"], "column 'y' has type string"),
        (["FILE", "-b", "5", "--max-memory", "1MB"], "--max-memory = 1 MB is less"),
    ],
)
def test_bad_input_is_one_line_and_code_1(
    file: Path, tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "core.parquet"
    given = [str(file) if argument == "FILE" else argument for argument in arguments]
    assert main(["select", *given, "-o", str(out)]) == 1
    shown, err = capsys.readouterr()
    assert shown == ""
    assert re.fullmatch(r"coresift: error: .+\n", err)
    assert message in err
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [[], ["FILE", "-b", "5"], ["FILE", "-b", "5", "--workers", "0"], ["FILE", "--bandwidth", "wide"]]
)
def test_wrong_usage_is_code_2(file: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = [] if arguments == ["FILE", "-b", "5"] else ["-o", "core.npz"]
    assert main(["select", *(str(file) if a == "FILE" else a for a in arguments), *out]) == 2
    assert re.fullmatch(r"coresift: error: .+\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-b", "5", "--loss", "x"], "--loss = 'x'"),
        (["-b", "5", "--method", "x"], "--method = 'x'"),
        (["-b", "5", "--bound", "x"], "--bound = 'x'"),
        (["-b", "5", "--engine", "x"], "--engine = 'x'"),
        (["-b", "5", "--max-memory", "much"], "--max-memory = 'much'"),
        (["-b", "5", "--radius", "-1"], "--radius = -1"),
        (["--eps", "3"], "--eps = 3"),
        (["--eps", "0"], "--eps = 0"),
        (["--eps", "0.1", "--delta", "1"], "--delta = 1"),
        (["--eps", "0.1", "--method", "keys"], "eps is guaranteed for --method iid"),
        (["--eps", "0.1", "-b", "5"], "give either --budget 0.05 or --eps 0.1"),
        ([], "give either --budget 0.05 or --eps 0.1"),
    ],
)
def test_a_bad_value_of_an_option_is_wrong_usage_whatever_the_data(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "core.npz"
    assert main(["select", str(tmp_path / "nosuch.csv"), "-o", str(out), *arguments]) == 2
    err = capsys.readouterr().err
    assert re.fullmatch(r"coresift: error: .+ Try 'coresift select --help'\.\n", err)
    assert message in err


def test_the_plan_names_columns_and_says_why_others_are_left_out(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def planned(path: Path, *arguments: str) -> str:
        assert main(["select", str(path), "-b", "5", "--raw", "--dry-run", *arguments]) == 0
        return " ".join(capsys.readouterr().out.split())

    named = planned(file, "--label", "y", "--weight", "w")
    assert "Columns used: a, b, c. Left out: y (label); w (weight)." in named
    assert "Columns used: a, b, c, w. Left out: y (not numeric)." in planned(file)
    assert "Columns used: c, a. Left out: b, y, w (not named)." in planned(file, "--columns", "c,a")
    wide = tmp_path / "wide.parquet"
    columns = {f"[x{i}]": np.arange(6.0) + i for i in range(40)}
    parquet.write_table(pa.table({"id": np.arange(6), **columns}), wide)
    text = planned(wide)
    assert "Columns used: id, [x0], [x1], [x2], [x3], [x4] ... [x39] (41). " in text
    assert main(["select", str(file), "-b", "5", "--dry-run", "--label", "y", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["features"] == ["a", "b", "c", "w"]
    assert figures["left_out"] == {"y": "label"}


def test_an_output_that_cannot_be_written_is_found_out_first(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coresift.rows.opening.open_rows", None)  # nothing may be read
    for out, message in (
        (tmp_path / "nosuch" / "core.parquet", "no such folder"),
        (tmp_path / "core.txt", "unknown suffix"),
        (tmp_path, "unknown suffix"),
    ):
        assert main(["select", str(file), "-b", "5", "-o", str(out)]) == 1
        assert message in capsys.readouterr().err
    if os.geteuid() != 0:
        closed = tmp_path / "closed"
        closed.mkdir()
        closed.chmod(stat.S_IRUSR | stat.S_IXUSR)
        assert main(["select", str(file), "-b", "5", "-o", str(closed / "core.parquet")]) == 1
        assert "cannot be written" in capsys.readouterr().err


def test_the_input_is_not_overwritten(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.read_bytes()
    assert main(["select", str(file), "-b", "5", "-o", str(file), "--force"]) == 1
    assert "is part of the input" in capsys.readouterr().err
    assert main(["select", str(file), "-b", "5", "-o", str(file)]) == 2
    assert "exists already; --force overwrites it" in capsys.readouterr().err
    assert file.read_bytes() == before


@pytest.mark.slow
def test_an_interrupt_leaves_no_file(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((400_000, 20)).astype(np.float32))
    out = tmp_path / "core.parquet"
    command = [sys.executable, "-m", "coresift", "select", str(tmp_path / "rows.npy"), "-b", "5%", "-o", str(out)]
    process = subprocess.Popen(
        [*command, "--bound", "cells", "--cells", "500"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    process.stderr.readline()  # the plan: the passes begin
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert os.listdir(tmp_path) == ["rows.npy"]


def test_an_interrupt_inside_exec_has_the_same_code(tmp_path: Path) -> None:
    """Modules that are imported late make classes by ``exec``; CPython would then end by the signal."""
    script = tmp_path / "interrupted.py"
    script.write_text(
        "import sys, typer\nfrom coresift.cli.app import run\napp = typer.Typer(name='t')\n"
        "@app.command()\ndef go():\n    exec('raise KeyboardInterrupt')\nsys.exit(run(app, []))\n"
    )
    assert subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path).returncode == 130


@pytest.mark.slow
def test_audit_and_certify_take_columns_from_the_coreset(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "core.parquet"
    columns = ["--columns", "a,c", "--weight", "w"]
    assert main(["select", str(file), "-b", "10%", "-o", str(out), "-q", "--bandwidth", "3", *columns]) == 0
    capsys.readouterr()
    assert main(["audit", str(file), str(out), "--json", "--queries", "100", "--starts", "4"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["worst_query"]) == 2
    assert main(["certify", str(file), str(out), "--json", "-q"]) == 0
    proved = json.loads(capsys.readouterr().out)
    assert 0 < found["worst_error_found"] < proved["eps"]
    assert main(["audit", str(file), str(out), "--queries", "10", "--starts", "2", "--max-memory", "1kB"]) == 0
    assert "Found" in capsys.readouterr().out
    assert main(["certify", str(file), str(out), "-q", "--method", "sampled", "--sampled", "500"]) == 0
    assert "Guaranteed: relative error at most" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_audit_and_certify_leave_out_what_select_left_out(
    kind: str, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(5)
    rows, data, out = 300, tmp_path / f"d.{kind}", tmp_path / f"q.{suffix}"
    columns = {name: rng.standard_normal(rows) for name in "abc"}
    table = pa.table({**columns, "y": rng.integers(0, 2, rows), "w": rng.random(rows)})
    if kind == "csv":
        csv.write_csv(table, data)
    elif kind == "parquet":  # labels of integers are left out by themselves, weights are not
        parquet.write_table(table, data)
    else:
        X = np.column_stack(list(columns.values()))
        np.savez(data, A=X, y=rng.integers(0, 2, rows), w=rng.random(rows))
    for options in (["--label", "y"], ["--label", "y", "--weight", "w"]):
        assert main(["select", str(data), "-b", "20%", "-o", str(out), "-q", "--force", *options]) == 0
        capsys.readouterr()
        assert main(["audit", str(data), str(out), "--json", "--queries", "20", "--starts", "2"]) == 0
        found = json.loads(capsys.readouterr().out)
        has_w = kind != "npz" and "--weight" not in options
        assert len(found["worst_query"]) == 3 + has_w
        assert main(["certify", str(data), str(out), "--json", "-q"]) == 0
        # with the weights that it was drawn with the error is small; forgotten ones would double the sum
        assert found["worst_error_found"] < min(json.loads(capsys.readouterr().out)["eps"], 0.5)


def test_audit_of_other_data_is_refused(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "core.npz"
    Coreset([0, 1], [1.0, 1.0], n_samples=10).save(out)
    assert main(["audit", str(file), str(out)]) == 1
    assert "has 6,000 rows, but" in capsys.readouterr().err
    assert main(["certify", str(file), str(tmp_path / "nosuch.npz")]) == 1
    assert "no such file" in capsys.readouterr().err
    assert main(["audit", str(file), str(file)]) == 1
    assert "not a coreset file" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["select", "audit", "certify"])
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert f"coresift {command} " in capsys.readouterr().out.partition("Examples")[2]


def test_the_shell_completes_commands_and_choices(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_CORESIFT_COMPLETE", "complete_bash")

    def completed(line: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        assert main([]) == 0
        return capsys.readouterr().out.split()

    assert completed("coresift sel") == ["select"]
    assert completed("coresift select x --bound c") == ["closed-form", "cells"]


def test_a_raw_table_becomes_a_coreset_a_model_and_predictions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a new user types, on a table with gaps, words, an id and an unscaled column."""
    rng = np.random.default_rng(0)
    n, data = 2000, tmp_path / "rows.csv"
    age = np.where(rng.random(n) < 0.1, np.nan, rng.integers(18, 90, n))
    city = rng.choice(["Rome", "Oslo"], n)
    table = pa.table({
        "customer_id": rng.permutation(n) + 10**6, "age": pa.array(age, from_pandas=True), "city": city,
        "income": rng.lognormal(10, 1, n), "bought": np.where((city == "Rome") ^ (rng.random(n) < 0.2), "yes", "no"),
    })  # fmt: skip
    csv.write_csv(table, data)
    core, model = tmp_path / "core.parquet", tmp_path / "model.json"
    assert main(["select", str(data), "--label", "bought", "-b", "5%", "-o", str(core)]) == 0
    shown = capsys.readouterr().err.splitlines()
    assert [" ".join(line.split()) for line in shown if line.startswith(("column ", "customer", "bought", "city"))] == [
        "column read as why", "bought label", "customer_id left out an id: whole numbers that differ from row to row",
        "city one-hot 2 values",
    ]  # fmt: skip
    assert main(["audit", str(data), str(core), "--json", "--queries", "20", "--starts", "2"]) == 0
    assert len(json.loads(capsys.readouterr().out)["worst_query"]) == 5
    assert main(["fit", str(data), "--label", "bought", "-b", "20%", "-o", str(model), "--drop", "income", "-q"]) == 0
    assert main(["predict", str(model), str(data), "-o", str(tmp_path / "p.npy"), "-q"]) == 0
    assert np.mean(np.load(tmp_path / "p.npy") == table["bought"].to_numpy(zero_copy_only=False)) > 0.7
    for wrong, message in (
        (["--drop", "incone,citi"], "no column 'incone' (did you mean 'income'?), 'citi' (did you mean 'city'?)"),
        (["--raw", "--drop", "income"], "--raw does not go with --categorical, --drop or --id"),
        (["--label", "age", "--columns", "age,income"], "'age' is the label, so it cannot be a feature"),
    ):
        assert main(["select", str(data), "-b", "5%", "-o", str(tmp_path / "other.npz"), *wrong]) in (1, 2)
        assert message in capsys.readouterr().err
