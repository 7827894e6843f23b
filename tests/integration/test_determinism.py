"""The same command with the same seed gives the same bytes, whoever does the work."""

import hashlib
import io
import json
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import csv, parquet

import coresift
from coresift.cli import main
from coresift.rows import rows as blocks
from paper.__main__ import main as laboratory

torch.set_num_threads(1)


def command(*arguments: object, program: Callable[[list[str]], int] = main) -> None:
    error = io.StringIO()
    with redirect_stderr(error), redirect_stdout(io.StringIO()):
        code = program([str(part) for part in arguments])
    assert code == 0, error.getvalue()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module", params=["float32", "float64"])
def rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several row groups, labels, heavy tails."""
    rng = np.random.default_rng(0)
    X = rng.standard_t(3, (9000, 5)).astype(request.param)
    table = pa.table({**{f"x{i}": X[:, i] for i in range(5)}, "label": rng.integers(0, 3, 9000)})
    path = tmp_path_factory.mktemp(request.param) / "rows.parquet"
    parquet.write_table(table, path, row_group_size=2000)
    return path


CHOICES = {
    "keys": ["--method", "keys", "--bound", "closed-form"],
    "cells": ["--bound", "cells", "--cells", "8", "--bandwidth", "median"],
    "systematic": ["--method", "systematic"],
    "per class": ["--label", "label", "--per-class"],
    "per class, keys": ["--label", "label", "--per-class", "--method", "keys"],
}


@pytest.mark.slow
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_select_gives_the_same_bytes_again(rows: Path, tmp_path: Path, choice: str, suffix: str) -> None:
    def select(name: str, seed: int) -> str:
        out = tmp_path / f"{name}{suffix}"
        command("select", rows, "-b", "3%", "--queries", "4", "--seed", seed, "-o", out, "--force", *CHOICES[choice])
        return digest(out)

    assert select("one", 1) == select("two", 1)
    assert select("other", 2) != select("one", 1)  # the seed matters, so that equality says something


@pytest.mark.slow
def test_select_gives_the_same_bytes_with_two_workers(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "TASK_BYTES", 1)  # every row group is a task
    for workers in (1, 2):
        out = tmp_path / f"{workers}.npz"
        command("select", rows, "-b", "3%", "--bound", "cells", "--cells", "8", "-j", workers, "-o", out)
    assert digest(tmp_path / "1.npz") == digest(tmp_path / "2.npz")


# The same rows from memory, from files of any layout, from workers and from Ray: equal to the last bit.

BOUNDS = [
    ("gaussian", "closed-form"),
    ("gaussian", "cells"),
    ("gaussian", "exact"),
    ("gaussian", "paper"),
    ("gaussian", "lemma"),
    ("laplacian", "cells"),
    ("laplacian", "exact"),
    ("laplacian", "paper"),
]


def written(folder: Path, X: np.ndarray, group: int) -> dict[str, Path]:
    table = pa.table({**{f"x{i}": column for i, column in enumerate(X.T)}, "y": np.arange(len(X)) % 3})
    parquet.write_table(table, folder / "rows.parquet", row_group_size=group)
    np.save(folder / "rows.npy", X)
    return {"parquet": folder / "rows.parquet", "npy": folder / "rows.npy"}


@pytest.mark.parametrize("method", ["keys", "systematic", "iid"])
@pytest.mark.parametrize(("loss", "bound"), BOUNDS)
def test_memory_and_files_give_the_same_coreset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str, bound: str, method: str
) -> None:
    monkeypatch.setattr(blocks, "_LARGEST_BLOCK", 64)
    monkeypatch.setattr(blocks, "TASK_BYTES", 1)
    X = np.random.default_rng(0).standard_t(3, (1500, 5)) + 2.0
    files = written(tmp_path, X, 77)
    csv.write_csv(parquet.read_table(files["parquet"]), tmp_path / "rows.csv")
    options = {
        "loss": loss,
        "bound": bound,
        "method": method,
        "n_cells": 8,
        "random_state": 3,
        "bandwidth": "median",
        "preparation": None,
    }
    expected = coresift.select(X, 200, **options)
    names = [f"x{i}" for i in range(5)]
    found = {
        "npy": coresift.select(files["npy"], 200, **options),
        "csv": coresift.select(tmp_path / "rows.csv", 200, columns=names, **options),
        "parquet": coresift.select(files["parquet"], 200, columns=names, **options),
    }
    kind = coresift.RBFCoreset if loss == "gaussian" else coresift.LaplacianCoreset
    parameters = {"bound": bound, "n_cells": 8, "bandwidth": "median", "random_state": 3}
    drawn = kind(**parameters).fit(X).sample(200, method=method, random_state=3)
    np.testing.assert_array_equal(drawn.indices, expected.coreset.indices)
    for name, chosen in found.items():
        assert chosen.coreset == expected.coreset, name
        assert chosen.report.worst_error_found == expected.report.worst_error_found, name
    assert coresift.select(X, 200, **{**options, "random_state": 4}).coreset != expected.coreset


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "ray"])
@pytest.mark.parametrize("kind", ["per class", "cells", "systematic"])
def test_workers_give_the_coreset_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, engine: str
) -> None:
    if engine == "ray":
        pytest.importorskip("ray")
    monkeypatch.setattr(blocks, "TASK_BYTES", 1)
    X = np.random.default_rng(0).standard_t(3, (20_000, 256))  # wide: three groups of blocks, in as many tasks
    file = written(tmp_path, X, 3001)["parquet"]
    options: dict[str, Any] = {
        "per class": {"bound": "closed-form", "per_class": True},
        "cells": {"bound": "cells", "n_cells": 8, "bandwidth": 40.0},
        "systematic": {"bound": "closed-form", "method": "systematic"},
    }[kind]
    options |= {"strategy": "rbf", "preparation": None, "random_state": 0}
    expected = coresift.select(X, 500, labels=np.arange(20_000) % 3, **options)
    names = [f"x{i}" for i in range(256)]
    found = coresift.select(file, 500, columns=names, label="y", workers=2, engine=engine, **options)
    assert found.coreset == expected.coreset
    assert found.labels == expected.labels
    assert found.report.class_sizes == expected.report.class_sizes


def timeless(run: Path) -> object:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((run / "result.json").read_text())
    for part in (*lines, *result["history"], result):
        for name in [name for name in part if "seconds" in name]:
            del part[name]
    return digest(run / "model.safetensors"), lines, result


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_train_gives_the_same_model_again(tmp_path: Path, kind: type) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 6)).astype(kind)
    np.savez(tmp_path / "data.npz", X=X, y=(X[:, 0] + X[:, 1] ** 2 > 0.7).astype(int))

    def train(name: str, seed: int = 0, **more: object) -> object:
        options = ["--model", "mlp", "--width", 16, "--epochs", 4, "--select-every", 2, "--budget", "20%"]
        options += ["--strategy", "gradmatch", "--device", "cpu", "--seed", seed, "--threads", 1]
        command("train", "-d", tmp_path / "data.npz", *options, "--out", tmp_path / name)
        return timeless(tmp_path / name)

    first = train("one")
    assert train("two") == first
    assert train("three", seed=1) != first


@pytest.mark.slow
def test_train_on_images_does_not_depend_on_the_readers(tmp_path: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for i in range(10):
            pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / label / f"{i}.png")
    factory = tmp_path / "small_model.py"
    factory.write_text(
        "from torch import nn\n\n\ndef small(n_classes):\n"
        "    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, n_classes))\n"
    )
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        for readers in (0, 2):
            options = ["--model", "small_model:small", "--epochs", 2, "--budget", "50%", "-s", "random"]
            options += ["--device", "cpu", "--workers", readers]
            command("train", "-d", tmp_path / "images", *options, "--out", tmp_path / str(readers))
            found.append(timeless(tmp_path / str(readers)))
    assert found[0] == found[1]


FIGURES = {
    "bandwidth": ["--rows", "120", "--bandwidths", "2", "--seeds", "1", "--seed", "3"],
    "function-approximation": ["--rows", "300", "--size", "20", "--seeds", "1", "--seed", "3"],
}


@pytest.mark.parametrize("figure", ["bandwidth", pytest.param("function-approximation", marks=pytest.mark.slow)])
def test_figures_give_the_same_numbers_again(tmp_path: Path, figure: str) -> None:
    outcomes = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        arguments = ["figure", figure, "--out", tmp_path / name / "a.svg", *FIGURES[figure]]
        command(*arguments, program=laboratory)
        outcomes.append({path.name: digest(path) for path in (tmp_path / name).iterdir() if path.suffix != ".svg"})
    assert outcomes[0] == outcomes[1]
    assert "a.csv" in outcomes[0]
