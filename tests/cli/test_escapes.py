"""What others wrote is printed as it is: neither markup nor escape sequences of the terminal are obeyed."""

import logging
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from coresift._errors import MissingExtraError
from coresift.cli import main
from coresift.cli.options import Settings, plain_console, printable

X = np.random.default_rng(0).standard_normal((60, 2))
EVIL = "\x1b]0;owned\x07[red]a[/b]:smile:"


def test_everything_of_others_is_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / EVIL
    folder.mkdir(parents=True)
    np.save(folder / "x.npy", X)
    out = folder / "core.npz"
    assert main(["select", str(folder / "x.npy"), "-b", "10", "-o", str(out), "-v"]) == 0
    assert main(["select", str(folder / "gone.npy"), "-b", "10", "-o", str(out), "--force"]) == 1
    assert main(["select", str(folder / "x.npy"), "-b", EVIL, "-o", str(out), "--force"]) in (1, 2)
    assert main(["train", "-d", str(folder / "none.csv"), "--out", str(folder / "run")]) == 1
    said = "".join(capsys.readouterr())
    assert "\x1b" not in said
    assert "\x07" not in said
    assert "".join(said.split()).count("owned\\x07[red]a[/b]:smile:") >= 4


def test_a_run_in_such_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "[red]run[/b]"
    options = "--dataset digits --model mlp --width 4 --budget 20 --epochs 1 --device cpu"
    for _ in range(2):  # the second finds it finished
        assert main(["train", *options.split(), "--out", str(out)]) == 0
    assert "".join(capsys.readouterr().out.split()).count("[red]run[/b]") == 3


def test_messages_keep_their_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings()
    text = str(MissingExtraError('training needs torch: install coresift[train] (in a clone: pip install ".[train]")'))
    settings.err.print(text)
    settings.configure_logging()
    logging.getLogger("coresift").warning("%s \x1b[31m", text)
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("coresift[train]") == 2
    assert "\x1b" not in said
    assert "\\x1b[31m" in said


def test_printable_text_is_unchanged() -> None:
    assert printable("naïve 数据 ✓ 1\n\t2") == "naïve 数据 ✓ 1\n\t2"
    assert printable("a\x00\x1b\x9b\udcff\u202eb") == "a\\x00\\x1b\\x9b\\udcff\\u202eb"
    with plain_console().capture() as captured:
        plain_console().print("x")
    assert captured.get() == ""


# Errors that were "unexpected".


def one_line(capsys: pytest.CaptureFixture[str], code: int, *parts: str) -> None:
    said = capsys.readouterr().err
    assert code in (1, 2)
    assert "unexpected" not in said
    assert len([line for line in said.splitlines() if line.startswith("coresift: error: ")]) == 1
    for part in parts:
        assert part in said


def test_columns_of_one_name_in_parquet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet.write_table(pa.table([X[:, 0], X[:, 1]], names=["a", "a"]), tmp_path / "x.parquet")
    code = main(["select", str(tmp_path / "x.parquet"), "-b", "10", "-o", str(tmp_path / "core.npz")])
    one_line(capsys, code, "x.parquet: the column 'a' is there more than once")


@pytest.mark.skipif(os.name != "posix", reason="names of files are text")
def test_names_that_are_not_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in" / os.fsdecode(b"\xff")
    folder.mkdir(parents=True)
    np.save(folder / "x.npy", X)
    for suffix in (".npz", ".parquet"):
        for more in ([], ["--materialize"], ["--json"]):
            out = str(tmp_path / f"core{suffix}")
            assert main(["select", str(folder), "-b", "10", "-o", out, "-q", "--force", *more]) == 0
    assert set(parquet.read_table(tmp_path / "core.parquet")["file"].to_pylist()) == {f"{tmp_path}/in/\\udcff/x.npy"}
    for i in range(6):
        Image.new("RGB", (4, 4), (i, 0, 0)).save(folder / f"{i}.png")
    (folder / "x.npy").unlink()
    out = str(tmp_path / "images.parquet")
    assert main(["select", str(tmp_path / "in"), "-b", "3", "--label", "x", "--image-size", "4", "-o", out, "-q"]) == 0
    assert set(parquet.read_table(out)["label"].to_pylist()) == {"\\udcff"}
    capsys.readouterr()
    parquet.write_table(pa.table({"a": X[:, 0]}), tmp_path / "a.parquet")
    (tmp_path / "a.parquet").rename(folder / "a.parquet")
    code = main(["select", str(folder / "a.parquet"), "-b", "3", "-o", out, "--force"])
    one_line(capsys, code, "the name is not UTF-8; rename the file")


@pytest.mark.parametrize("key", ["seed", "budget", "radius", "bandwidth", "cells", "workers", "queries", "max_memory"])
@pytest.mark.parametrize("value", ["1" + 400 * "0", "1" + 19 * "0", "-1", "nan", "[1]", "{a = 1}", "1979-05-27"])
def test_odd_values_in_toml(tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, value: str) -> None:
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "c.toml").write_text(f"{key} = {value}\n" + ("" if key == "budget" else "budget = 10\n"))
    code = main(["select", str(tmp_path / "x.npy"), "--config", str(tmp_path / "c.toml"), "--dry-run", "-q"])
    if code:
        one_line(capsys, code)


@pytest.mark.parametrize("radius", ["1e308", "1e160", "nan"])
def test_a_huge_radius(tmp_path: Path, capsys: pytest.CaptureFixture[str], radius: str) -> None:
    np.save(tmp_path / "x.npy", X)
    x, out = str(tmp_path / "x.npy"), str(tmp_path / "core.npz")
    one_line(capsys, main(["select", x, "-b", "10", "--radius", radius, "-o", out, "-q"]), "at most 1e+70")
    assert main(["select", x, "-b", "10", "-o", out, "-q"]) == 0
    for command in ("audit", "certify"):
        one_line(capsys, main([command, x, out, "--radius", radius]), "at most 1e+70")
