"""The chosen rows themselves: from files whose columns differ, in little memory, and not into the input."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from coresift import InvalidInputError, select
from coresift.cli import main
from coresift.coresets.materialize import _distinct

X = np.random.default_rng(0).standard_normal((400, 2))


def write(path: Path, rows: slice, **more: object) -> None:
    path.parent.mkdir(exist_ok=True)
    parquet.write_table(pa.table({"a": X[rows, 0], "b": X[rows, 1], **more}), path, row_group_size=90)


def test_files_that_differ_in_other_columns_are_aligned(tmp_path: Path) -> None:
    """Another order, a column that is missing, integers of another size: unused, so they must not matter."""
    write(tmp_path / "in" / "1.parquet", slice(200), id=np.arange(200, dtype=np.int32), note=["x"] * 200)
    table = {"note": ["y"] * 200, "id": np.arange(200, 400), "more": np.arange(200.0), "b": X[200:, 1], "a": X[200:, 0]}
    parquet.write_table(pa.table(table), tmp_path / "in" / "2.parquet")
    chosen = select(tmp_path / "in", 60, columns=["a", "b"])
    chosen.save(tmp_path / "out.parquet", materialize=True)
    found = pd.read_parquet(tmp_path / "out.parquet")
    core = chosen.coreset
    assert found.columns.tolist() == ["row", "file", "weight", "a", "b", "id", "note", "more"]
    np.testing.assert_array_equal(found[["a", "b"]], X[core.indices])
    np.testing.assert_array_equal(found["id"], core.indices)
    np.testing.assert_array_equal(found["note"] == "y", core.indices >= 200)
    np.testing.assert_array_equal(found["more"].isna(), core.indices < 200)
    np.testing.assert_array_equal(found["weight"], core.weights)


def test_columns_that_cannot_be_joined_are_refused_before_any_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "in" / "1.parquet", slice(200), id=np.arange(200))
    write(tmp_path / "in" / "2.parquet", slice(200, 400), id=["x"] * 200)
    arguments = [
        "select",
        str(tmp_path / "in"),
        "-b",
        "50",
        "--columns",
        "a,b",
        "-o",
        str(tmp_path / "out.parquet"),
        "-q",
    ]
    assert main(arguments) == 0
    (tmp_path / "out.parquet").unlink()
    monkeypatch.setattr("coresift.coresets.selecting.run", lambda *_, **__: pytest.fail("the passes ran"))
    assert main([*arguments, "--materialize"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"coresift: error: {tmp_path / 'in' / '2.parquet'}: its columns do not go into one table")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("materialize", [False, True])
@pytest.mark.parametrize("pattern", ["in", "in/*.parquet"])
def test_a_file_that_would_be_input_next_time_is_refused(
    tmp_path: Path, pattern: str, materialize: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in" / "1.parquet", slice(200))
    for data in (pattern, tmp_path / pattern):
        chosen = select(data, 20)
        with pytest.raises(InvalidInputError, match=r"out\.parquet: would be part of the input .*in.* the next time"):
            chosen.save(tmp_path / "in" / "out.parquet", materialize=materialize)
        with pytest.raises(InvalidInputError, match=r"1\.parquet: is part of the input"):
            chosen.save("in/1.parquet", materialize=materialize)
    for name in ("out.parquet", "in/out.npz", "in/.out.parquet", "inside.parquet"):  # other places, kinds, hidden
        chosen.save(name, materialize=materialize)
    assert select(pattern, 20).coreset == chosen.coreset


SMALL = """
import resource, sys
from coresift import select
chosen = select(sys.argv[1], 50, columns=["a"])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
chosen.save(sys.argv[2], materialize=True)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_long_strings_are_read_in_slices(tmp_path: Path) -> None:
    """One row group of 40,000 strings of 20 kB: 800 MB in memory, and next to nothing in a dictionary on disk."""
    words = pa.array([f"{i:020000d}" for i in range(20)])
    text = pa.DictionaryArray.from_arrays(pa.array(np.arange(40_000) % 20), words)
    table = pa.table({"a": np.random.default_rng(0).standard_normal(40_000), "text": text})
    parquet.write_table(table, tmp_path / "in.parquet", store_schema=False)
    paths = [str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet")]
    done = subprocess.run([sys.executable, "-c", SMALL, *paths], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 250_000  # kilobytes
    found = parquet.read_table(paths[1]).to_pydict()
    assert [int(text[-9:]) for text in found["text"]] == [row % 20 for row in found["row"]]


def test_names_of_columns_stay_distinct() -> None:
    assert _distinct(["row", "input_row", "x"], {"row", "weight"}) == ["input_input_row", "input_row", "x"]
    assert len(set(_distinct([f"c{i}" for i in range(5000)], {"c1"}))) == 5000
