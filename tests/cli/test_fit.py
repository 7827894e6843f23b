"""``fit``, ``predict`` and ``select --for`` as their users meet them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from sklearn.linear_model import LogisticRegression

from coresift import Coreset, LinearModel, fit_model
from coresift.cli import main
from coresift.rows.rows import group_rows

N = 4000
COLUMNS = ["--columns", "a,b,k", "--raw"]


def made_table() -> pa.Table:
    rng = np.random.default_rng(0)
    a, b, k = rng.normal(size=N), 50 + 20 * rng.normal(size=N), rng.integers(0, 5, N)
    score = a + 0.05 * (b - 50) + 0.3 * k - 2.5
    return pa.table(
        {
            "a": a,
            "b": b,
            "k": k,
            "city": np.where(rng.random(N) < 0.5, "x", "y"),
            "y": np.where(rng.random(N) < 1 / (1 + np.exp(-score)), "yes", "no"),
            "kind": np.digitize(score + rng.normal(size=N), [-3, -1]),
            "price": 3 * score + rng.normal(size=N),
            "count": rng.poisson(np.exp(0.5 * score)),
            "w": rng.random(N),
            "same": np.full(N, "one"),
            "below": np.full(N, -1),
            "holed": np.where(np.arange(N) == 7, np.nan, 1.0),
        }
    )


TABLE = made_table()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.parquet"
    parquet.write_table(TABLE, path, row_group_size=600)
    return path


def test_fit_writes_what_python_fits(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "model.json"
    arguments = ["--label", "y", "--budget", "10%", "--weight", "w", "--alpha", "0.001", "--seed", "5"]
    assert main(["fit", str(file), "--out", str(out), *arguments, *COLUMNS]) == 0
    shown, plan = (" ".join(text.split()) for text in capsys.readouterr())
    assert "4,000 rows, 3 columns" in plan
    assert "Choosing 400 rows and fitting them: logistic loss, alpha 0.001." in plan
    assert "passes (columns, pilot, scores, calibration x" in plan
    assert "Fitted: logistic loss, 400 of 4,000 rows, weights calibrated in" in shown
    assert "Loss over all rows, with penalty: 0." in shown
    assert re.search(r"Guaranteed: At most \S+ % above the smallest possible loss", shown)
    assert "in passes: columns" in shown
    model = LinearModel.load(out)
    names = {"label": "y", "weight": "w", "columns": ["a", "b", "k"]}
    expected = fit_model(file, 400, **names, alpha=0.001, seed=5, preparation=None)
    np.testing.assert_array_equal(model.coef, expected.coef)
    assert model.certificate == expected.certificate
    assert model.certificate is not None
    assert model.certificate.relative < 0.01
    assert (model.size, model.n_samples) == (400, N)
    full = LogisticRegression(C=1 / (0.001 * TABLE["w"].to_numpy().sum()), tol=1e-10, max_iter=10_000)
    X = np.column_stack([TABLE[name].to_numpy() for name in "abk"])
    full.fit(X, TABLE["y"].to_numpy(zero_copy_only=False), TABLE["w"].to_numpy())
    np.testing.assert_allclose(model.coef, full.coef_, rtol=0.05)


@pytest.mark.parametrize(
    ("label", "more"),
    [
        ("price", ["--model", "squared"]),
        ("price", ["--model", "huber", "--threshold", "1.5"]),
        ("count", ["--model", "poisson"]),
        ("y", ["--model", "squared_hinge"]),
        ("kind", ["--model", "logistic", "--no-intercept", "--no-certify"]),
    ],
)
def test_every_model(
    label: str, more: list[str], file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.json"
    assert main(["fit", str(file), "--label", label, "-b", "500", "-o", str(out), "-q", "--json", *more, *COLUMNS]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["loss"] == more[1]
    assert figures["objective"] > 0
    if "--no-certify" in more:
        assert figures["certificate"] is None
        assert figures["intercept"] == [0.0, 0.0, 0.0]
    else:
        assert 0 <= figures["certificate"]["relative"] < 0.05
    assert main(["predict", str(out), str(file), "--out", str(tmp_path / "p.npy"), "-q"]) == 0
    found, y = np.load(tmp_path / "p.npy"), TABLE[label].to_numpy(zero_copy_only=False)
    if label in ("y", "kind"):
        assert np.mean(found == y) > np.unique(y, return_counts=True)[1].max() / N + 0.02
    else:
        assert np.sqrt(np.mean((found - y) ** 2)) < 0.9 * y.std()


def test_parquet_csv_and_npz_give_one_model(file: Path, tmp_path: Path) -> None:
    table = TABLE.select(["a", "b", "k", "kind"])
    csv.write_csv(table, tmp_path / "rows.csv")
    X = np.column_stack([TABLE[name].to_numpy() for name in "abk"])
    np.savez(tmp_path / "rows.npz", X=X, kind=TABLE["kind"].to_numpy())
    found = []
    for name, columns in (("rows.parquet", COLUMNS), ("rows.csv", COLUMNS), ("rows.npz", [])):
        out = tmp_path / f"{name}.json"
        assert main(["fit", str(tmp_path / name), "--label", "kind", "-b", "300", "-o", str(out), "-q", *columns]) == 0
        found.append(LinearModel.load(out))
    for other in found[1:]:
        np.testing.assert_array_equal(other.coef, found[0].coef)
        assert other.classes is not None
        assert list(map(str, other.classes)) == ["0", "1", "2"]
    assert found[2].names is None


@pytest.mark.slow
def test_two_workers_write_the_bytes_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coresift.rows.rows.TASK_BYTES", 1)  # every row group is a task
    file, rng = tmp_path / "rows.parquet", np.random.default_rng(0)
    n = 2 * group_rows(2) + 100
    X = rng.normal(size=(n, 2))
    parquet.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": X[:, 0] > rng.normal(size=n)}), file, 50_000)
    files = [tmp_path / f"{workers}.json" for workers in (1, 2)]
    for workers, out in enumerate(files, 1):
        options = ["--label", "y", "-b", "300", "-j", str(workers), "-o", str(out), "-q"]
        assert main(["fit", str(file), *options]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()


def test_predict_finds_columns_by_name_and_writes_every_kind(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, other = tmp_path / "model.json", tmp_path / "other.csv"
    assert main(["fit", str(file), "--label", "y", "-b", "300", "-o", str(model), "-q", *COLUMNS]) == 0
    csv.write_csv(TABLE.select(["k", "city", "b", "y", "a"]), other)
    expected = LinearModel.load(model)
    labels, chances = expected.predict(file), expected.predict_proba(file)
    capsys.readouterr()
    for name in ("p.parquet", "p.csv", "p.npy"):
        assert main(["predict", str(model), str(other), "--out", str(tmp_path / name)]) == 0
        assert "4,000 predictions" in " ".join(capsys.readouterr().out.split())
    columns = ["row", "prediction", "probability_no", "probability_yes"]
    for table in (parquet.read_table(tmp_path / "p.parquet"), csv.read_csv(tmp_path / "p.csv")):
        assert table.column_names == columns
        assert table["row"].to_pylist() == list(range(N))
        assert table["prediction"].to_pylist() == labels.tolist()
        np.testing.assert_array_equal(table["probability_yes"].to_numpy(), chances[:, 1])
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), labels)
    assert main(["predict", str(model), str(other)]) == 0
    assert capsys.readouterr().out == (tmp_path / "p.csv").read_text()


def test_select_for_a_model_writes_a_coreset(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, rows = tmp_path / "core.parquet", tmp_path / "rows-of-it.parquet"
    arguments = ["select", str(file), "--for", "logistic", "--label", "y", "-b", "5%", *COLUMNS]
    assert main([*arguments, "-o", str(out)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Chosen: 200 of 4,000 rows, strategy linear: logistic loss. Classes: " in shown
    core, table = Coreset.load(out), parquet.read_table(out)
    assert (core.size, core.method, core.adjustments) == (200, "two-step", ("calibrated",))
    assert table.column_names == ["row", "file", "label", "weight"]
    assert table["label"].to_pylist() == TABLE["y"].take(pa.array(core.indices)).to_pylist()
    assert main([*arguments, "--no-calibrate", "--materialize", "-o", str(rows), "-q"]) == 0
    assert parquet.read_table(rows)["a"].to_pylist() == (
        TABLE["a"].take(pa.array(Coreset.load(rows).indices)).to_pylist()
    )
    assert Coreset.load(rows).adjustments == ()
    capsys.readouterr()
    target = ["select", str(file), "--for", "huber", "--threshold", "1", "--label", "price", "-b", "99", *COLUMNS]
    assert main([*target, "-o", str(tmp_path / "core.npz"), "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["size"] == 99
    target[target.index("--label")] = "--target"
    assert main([*target, "-o", str(tmp_path / "same.npz"), "--json", "-q"]) == 0
    assert Coreset.load(tmp_path / "same.npz") == Coreset.load(tmp_path / "core.npz")
    capsys.readouterr()
    for more, message in (
        (["--for", "logistic"], "--for needs --label"),
        (["--for", "logistic", "--target", "price"], "name their column with --label"),
        (["--for", "xgboost", "--label", "y"], "--for = 'xgboost' is not one of"),
        (["--for", "svm", "--label", "y"], "--for = 'svm'"),
        (["--for", "logistic", "--label", "y", "--bound", "cells"], "--bound = 'cells' goes with --strategy rbf alone"),
        (["--alpha", "1"], "--alpha = 1.0 goes with the loss of a linear model"),
    ):
        assert main(["select", str(file), "-b", "9", "-o", str(out), "--force", *more]) == 2
        assert message in capsys.readouterr().err


def test_a_target_means_a_regression(file: Path, tmp_path: Path) -> None:
    ways = (["--target", "price"], ["--label", "price", "-m", "squared"], ["--target", "price", "-m", "squared"])
    outs = [tmp_path / f"{k}.json" for k in range(len(ways))]
    for way, out in zip(ways, outs, strict=True):
        assert main(["fit", str(file), *way, "-b", "200", "-o", str(out), "-q", *COLUMNS]) == 0
    assert outs[0].read_bytes() == outs[1].read_bytes() == outs[2].read_bytes()


def test_few_rows_are_fitted_with_advice(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(file), "--label", "y", "-b", "3", "-o", str(tmp_path / "m.json"), *COLUMNS]) == 0
    shown, err = (" ".join(text.split()) for text in capsys.readouterr())
    assert "weights as drawn" in shown
    assert "More rows give a closer fit: 150 are 50 for each coefficient." in shown
    assert "the weights are not calibrated" in err


def test_a_dry_run_plans_and_a_config_is_read(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "fit.toml"
    config.write_text("label = 'count'\nmodel = 'poisson'\nbudget = '10%'\ncertify = false\ncolumns = ['a', 'b']\n")
    before = sorted(os.listdir(tmp_path))
    assert main(["fit", str(file), "--config", str(config), "--dry-run", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["budget"] == 400
    assert figures["features"] == ["a", "b"]
    assert "certificate" not in figures["passes"]
    assert main(["fit", str(file), "--config", str(config), "--dry-run", "-b", "9"]) == 0
    assert "Choosing 9 rows and fitting them: poisson loss" in " ".join(capsys.readouterr().out.split())
    assert main(["fit", str(file), "--label", "y", "--dry-run"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "column read as why y label a number " in text
    assert "city one-hot " in text
    assert "same left out constant: one" in text
    assert main(["fit", str(file), "--label", "y", "--dry-run", "--raw"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Columns used: a, b, k, kind, price, count ... holed (9)." in text
    assert "Left out: city, same (not numeric); y (label)." in text
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--label", "nosuch"], "no column 'nosuch'"),
        (["--label", "same"], "the label is always 'one'"),
        (["--label", "price"], "but classes are integers or strings"),
        (["--label", "y", "--model", "squared"], "the target column 'y' has type string"),
        (["--label", "below", "-m", "poisson"], "poisson loss takes counts; the smallest target is -1"),
        (["--label", "y", "--raw", "--columns", "a,holed"], "NaN in column 1 ('holed'), row 7"),
        (["--label", "holed", "-m", "squared"], "the target nan"),
        (["--label", "kind", "-m", "squared_hinge"], "takes two classes, but there are 3"),
        (["--label", "y", "-b", "0"], "budget = 0"),
        (["--label", "y", "--max-memory", "1MB"], "--max-memory = 1 MB is less"),
        (["--label", "y", "--raw", "--columns", "city"], "column 'city' has type string"),
        (["--label", "kind", "--columns", "a,kind"], "'kind' is the label"),
    ],
)
def test_bad_data_are_one_line_and_nothing_is_written(
    file: Path, tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.json"
    columns = [] if "--columns" in arguments else COLUMNS
    assert main(["fit", str(file), "-o", str(out), "-q", *columns, *arguments]) in (1, 2)
    shown, err = capsys.readouterr()
    assert shown == ""
    assert re.fullmatch(r"coresift: error: .+\n", err)
    assert message in err
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "classes with --label, numbers with --target"),
        (["--label", "y", "--target", "y"], "classes with --label, numbers with --target"),
        (["--target", "y", "-m", "logistic"], "name their column with --label"),
        (["--label", "y", "-m", "svm"], "--model = 'svm'"),
        (["--label", "y", "--alpha", "-1"], "--alpha = -1"),
        (
            ["--label", "y", "--alpha", "0"],
            "cannot be certified for --model logistic: take a small penalty, --model squared, or --no-certify",
        ),
        (["--label", "y", "-m", "huber"], "--threshold = None"),
        (["--label", "y", "--threshold", "1"], "--threshold = 1.0"),
        (["--label", "y", "-b", "many"], "--budget = 'many'"),
        (["--label", "y", "--engine", "x"], "--engine = 'x'"),
        (["--label", "y", "-j", "0"], "--workers"),
    ],
)
def test_wrong_usage_is_code_2_whatever_the_data(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", str(tmp_path / "nosuch.csv"), "-o", str(tmp_path / "model.json"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert main(["fit", str(tmp_path / "nosuch.csv"), "--label", "y"]) == 2
    assert "--out FILE is needed" in capsys.readouterr().err


def test_predict_refuses_what_does_not_fit(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = tmp_path / "model.json", tmp_path / "p.csv"
    assert main(["fit", str(file), "--label", "y", "-b", "200", "-o", str(model), "-q", *COLUMNS]) == 0
    holed, lacking, strange = tmp_path / "holed.parquet", tmp_path / "lacking.csv", tmp_path / "strange.parquet"
    parquet.write_table(TABLE.select(["b", "k", "city"]).append_column("a", TABLE["holed"]), holed)
    csv.write_csv(TABLE.select(["a", "k"]), lacking)
    parquet.write_table(TABLE.select(["a", "b", "k"]).append_column("y", TABLE["city"]), strange)
    capsys.readouterr()
    for arguments, message in (
        ([model, lacking, "-o", out], "no column 'b'"),
        ([model, holed, "-o", out], "NaN in column 0 ('a'), row 7"),
        ([file, model], "rows.parquet: not a model file"),
        ([tmp_path / "nosuch.json", file], "nosuch.json: no such file"),
        ([model, file, "-o", tmp_path / "p.txt"], "unknown suffix"),
        ([model, file, "-o", tmp_path / "nosuch" / "p.csv"], "no such folder"),
        ([model, strange, "--force", "-o", strange], "is part of the input"),
    ):
        assert main(["predict", *map(str, arguments)]) == 1
        shown, err = capsys.readouterr()
        assert shown == ""
        assert re.fullmatch(r"coresift: error: .+\n", err)
        assert message in err
        assert not out.exists()


@pytest.mark.slow
def test_an_interrupt_leaves_no_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300_000, 30))
    np.savez(tmp_path / "rows.npz", X=X, y=(X[:, 0] > rng.normal(size=len(X))).astype(np.int8))
    out = tmp_path / "model.json"
    command = [sys.executable, "-m", "coresift", "fit", str(tmp_path / "rows.npz"), "--label", "y", "-o", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None
    process.stderr.readline()  # the plan: the passes begin
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert os.listdir(tmp_path) == ["rows.npz"]


def test_quiet_prints_neither_times_nor_where(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "model.json"
    command = ["fit", str(file), "--label", "y", *COLUMNS, "-b", "200", "-o", str(out)]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert " s in passes: " in said
    assert "comparison" not in said  # nothing was compared: --compare was not given
    assert "Written: " in said
    for arguments in ([*command, "--force", "-q"], ["predict", str(out), str(file), "-o", f"{tmp_path}/p.csv", "-q"]):
        assert main(arguments) == 0
        said, told = capsys.readouterr()
        assert "Written" not in said
        assert " s in passes" not in said
        assert told == ""


@pytest.mark.parametrize("budget", ["0", "-3", "0%", "200%", "lots"])
def test_a_budget_that_is_none_is_wrong_usage(file: Path, budget: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for command in (["fit", "--label", "y"], ["select"], ["train", "-d", "digits", "-o", "run"]):
        data = [] if command[0] == "train" else [str(file), "--dry-run"]
        assert main([*command, *data, "--budget", budget]) == 2
        said.append(capsys.readouterr().err.rpartition(" Try ")[0])
    assert said[0].startswith("coresift: error: Invalid value: --budget = ")
    assert len(set(said)) == 1
