"""Input that changes while it is read, or is larger than the temporary folder: one line, never a dead process."""

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import fs, parquet

from coresift import CoresiftError, InvalidInputError, audit, open_rows, select
from coresift.coresets.linear_result import fit_model

X = np.random.default_rng(0).standard_normal((5000, 3))


def write(path: Path, rows: np.ndarray) -> None:
    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".csv":
        pd.DataFrame(rows, columns=list("abc")).to_csv(path, index=False)
    else:
        parquet.write_table(pa.table(dict(zip("abc", rows.T, strict=True))), path)


def exchange(path: Path) -> None:
    """Other rows, in as many bytes, with the old time: only the bytes tell."""
    before = path.stat()
    write(path, -X)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], None]] = {
    "cut": lambda path: write(path, X[:2000]),
    "grown": lambda path: write(path, np.concatenate([X, X])),
    "exchanged": exchange,
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".parquet"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("when", ["survey", "check"])
def test_input_that_changes_between_passes_is_refused(tmp_path: Path, suffix: str, change: str, when: str) -> None:
    """Today's weights would sum to half the rows, in silence."""
    path = tmp_path / f"rows{suffix}"
    write(path, X)
    begun = []

    def on_pass(name: str, rows: int) -> None:
        begun.append((name, rows))
        if name == when:
            CHANGES[change](path)

    with pytest.raises(InvalidInputError, match=rf"rows\{suffix}: changed while it was read \([0-9,]+ bytes, now"):
        select(path, 100, bound="closed-form", on_pass=on_pass, preparation=None)
    assert begun[0] == ("survey", 5000)
    assert begun[-1][0] == when


def test_a_change_in_the_last_pass_is_seen(tmp_path: Path) -> None:
    write(tmp_path / "rows.csv", X)

    def on_pass(name: str, rows: int) -> Callable[[int], None] | None:
        return None if name != "check" else lambda _: CHANGES["grown"](tmp_path / "rows.csv")

    with pytest.raises(InvalidInputError, match="changed while it was read"):
        select(tmp_path / "rows.csv", 100, bound="closed-form", on_pass=on_pass)


def test_on_pass_is_called_before_each_pass_and_counts_the_rows(tmp_path: Path) -> None:
    """A callable that returns nothing is enough; what it returns is told of rows that are done."""
    names: list[str] = []
    chosen = select(X, 50, bound="closed-form", on_pass=lambda name, rows: names.append(name))
    assert names == list(chosen.report.seconds)
    done = dict.fromkeys(names, 0)

    def on_pass(name: str, rows: int) -> Callable[[int], None]:
        assert rows == len(X)

        def count(more: int) -> None:
            done[name] += more

        return count

    select(X, 50, bound="closed-form", on_pass=on_pass)
    assert done == dict.fromkeys(names, len(X))
    fit_model(pd.DataFrame(X, columns=list("abc")), label="a", budget=500, model="squared", on_pass=lambda *_: None)


@pytest.mark.parametrize("strategy", ["uniform", "stratified", "cover", "fixed", "linear", "auto"])
@pytest.mark.parametrize("told", [None, lambda rows: None])
def test_every_strategy_takes_a_plain_function(strategy: str, told: Any) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2000, 3)), np.arange(2000) % 60 == 0  # a rare class, so that "auto" compares
    names = []

    def on_pass(name: str, rows: int) -> Any:
        names.append(name)
        return told

    found = select(X, 400, labels=y, strategy=strategy, on_pass=on_pass)
    assert names
    assert ("comparison" in names) == (strategy == "auto") == ("comparison" in found.report.seconds)


def test_the_result_names_the_input(tmp_path: Path) -> None:
    """The same bytes have the same fingerprint, under any name and time; rows in memory have none."""
    for name in ("a", "b"):
        write(tmp_path / f"{name}.npy", X)
    write(tmp_path / "c.npy", -X)
    a, b, c = (select(tmp_path / f"{name}.npy", 10).run["fingerprint"] for name in "abc")
    assert a == b
    assert len(a) == 64
    assert c != a
    assert select(X, 10).run["fingerprint"] is None


def test_loading_and_taking_see_changes_too(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    write(path, X)
    core = select(path, 100).coreset
    for use in (lambda rows: audit(rows, core), lambda rows: rows.take(np.arange(3))):
        write(path, X)
        rows = open_rows(path)
        exchange(path)
        with pytest.raises(InvalidInputError, match="changed while it was read"):
            use(rows)


def test_files_of_other_file_systems_have_sizes_and_times(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", X)
    rows = open_rows("a.parquet", filesystem=fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))
    assert rows.opened_as[0].size == (tmp_path / "a.parquet").stat().st_size
    rows.check_unchanged()
    write(tmp_path / "a.parquet", X[:10])
    with pytest.raises(InvalidInputError, match="changed"):
        rows.check_unchanged()


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_cut_npy_is_an_error_and_no_dead_process(tmp_path: Path, order: Any) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.asarray(X, order=order))
    rows = open_rows(path)
    blocks = rows.read(rows.pieces[0])
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(InvalidInputError, match=r"rows\.npy: ends before row 5000: it was cut after it was opened"):
        list(blocks)


# A full temporary folder.

AUDIT = """
import numpy as np
from coresift import audit, open_rows, select, CoresiftError
X = np.random.default_rng(0).standard_normal((20_000, 8))
np.save("rows.npy", X)
core = select("rows.npy", 100).coreset
rows = open_rows("rows.npy")
for ask in (lambda: audit(rows, core, max_memory=1000), lambda: core.certify(rows, max_memory=1000)):
    try:
        ask()
    except CoresiftError as error:
        print(error)
"""


@pytest.mark.slow
def test_a_full_temporary_folder_is_an_error_and_no_dead_process(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f'mount -t tmpfs -o size=256k none "{disk}"'
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "sh", "-c", mount]).returncode:
        pytest.skip("no file system can be mounted here")
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f'{mount} && TMPDIR="{disk}" exec "$0" -c "$1"', sys.executable, AUDIT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    text = f"{disk}: no room for 0.00128 GB of rows (No space left on device); make room, set TMPDIR to another folder"
    assert done.stdout.splitlines() == [f"{text}, or raise max_memory."] * 2


@pytest.mark.parametrize("has_fallocate", [True, False])
def test_disk_space_is_taken_before_it_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_fallocate: bool
) -> None:
    write(tmp_path / "rows.npy", X)
    rows = open_rows(tmp_path / "rows.npy")
    with rows.load(max_bytes=0) as block:
        np.testing.assert_array_equal(block.X, X)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if has_fallocate:
        monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    else:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 119_999))
    with pytest.raises(CoresiftError, match=r"no room for 0\.00012 GB of rows \(No space left"), rows.load(max_bytes=0):
        pass
    with rows.load() as block:  # in memory
        assert block.n == len(X)


# Values and files that once warned, or were refused for no reason.


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("kind", ["array", "list", ".npy", ".npz", ".parquet", "lists", "weight"])
def test_a_signalling_nan_is_named_without_a_warning(tmp_path: Path, dtype: Any, kind: str) -> None:
    values = np.ones((64, 3), dtype)
    bits = np.dtype(f"u{values.itemsize}")
    values.view(bits)[5, 1] = np.array(np.inf, dtype).view(bits) + 1
    assert np.isnan(values[5, 1])
    data: Any = tmp_path / f"rows{kind if kind[0] == '.' else '.parquet'}"
    names = {"weight": "b"} if kind == "weight" else {}
    if kind == "array":
        data = values
    elif kind == "list":
        data = list(values)
    elif kind == ".npz":
        np.savez(data, X=values)
    elif kind == "lists":
        parquet.write_table(pa.table({"v": pa.array(list(values))}), data)
    else:
        write(data, values)
    with pytest.raises(InvalidInputError, match="nan" if kind == "weight" else "NaN"):
        select(data, 5, preparation=None, **names)


def test_an_empty_npy_among_others_has_no_rows(tmp_path: Path) -> None:
    for name, rows in {"a": X[:0], "b": X, "c": X[:0], "d": X[:7]}.items():
        np.save(tmp_path / f"{name}.npy", rows)
    rows = open_rows(tmp_path)
    assert (rows.n, rows.file_of(np.array([0, 4999, 5000])).tolist()) == (5007, [1, 1, 3])
    whole = np.concatenate([X, X[:7]])
    np.testing.assert_array_equal(np.concatenate([block.X for block in rows.blocks()]), whole)
    assert select(tmp_path, 20).coreset == select(whole, 20).coreset
    with pytest.raises(InvalidInputError, match="no rows"):
        open_rows(tmp_path / "a.npy")
    np.save(tmp_path / "flat.npy", np.zeros(0))
    with pytest.raises(InvalidInputError, match=r"flat\.npy: shape \(0,\); rows of at least one column are needed"):
        open_rows(tmp_path)


def test_a_folder_of_more_files_than_descriptors(tmp_path: Path) -> None:
    import resource

    for i in range(300):
        np.save(tmp_path / f"{i:04d}.npy", X[i : i + 1])
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))
    try:
        rows = open_rows(tmp_path)
        np.testing.assert_array_equal(rows.take(np.arange(300)).X, X[:300])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_an_empty_first_parquet_of_lists(tmp_path: Path) -> None:
    kind = pa.list_(pa.float64())
    for name, rows in {"0": X[:0], "1": X}.items():
        parquet.write_table(pa.table({"v": pa.array(list(rows), kind)}), tmp_path / f"{name}.parquet")
    assert select(tmp_path, 20).coreset == select(X, 20).coreset


@pytest.mark.parametrize("where", ["header", "first", "middle"])
def test_long_lines_of_csv_are_read_or_named(tmp_path: Path, where: str) -> None:
    """A line of 3 MB, above the reader's usual block, works; one of 30 MB is named."""
    for size in (3_000_000, 30_000_000):
        text = {at: "y" * (size if at == where else 3) for at in ("header", "first", "middle")}
        lines = [f"a,{text['header']}", f"0.5,{text['first']}", *(f"{x},yyy" for x in X[:, 0])]
        lines[3000] = f"0.5,{text['middle']}"
        (tmp_path / "x.csv").write_text("\n".join(lines))
        if size < 8_388_608:
            assert open_rows(tmp_path / "x.csv").n == len(X) + 1
        elif where == "header":
            with pytest.raises(InvalidInputError, match="a line is longer than 8,388,608 bytes"):
                open_rows(tmp_path / "x.csv")
        else:  # depends on where the reader's blocks happen to end
            with contextlib.suppress(InvalidInputError):
                open_rows(tmp_path / "x.csv")


@pytest.mark.slow
def test_time_does_not_grow_with_the_square_of_the_columns(tmp_path: Path) -> None:
    """Four times the columns take four times as long, or less; the square would be sixteen times."""
    spent = []
    for d in (2500, 10_000):
        path = tmp_path / f"{d}.parquet"
        parquet.write_table(pa.table({f"c{i}": X[:40, 0].astype(np.float32) for i in range(d)}), path)
        tries = []
        for _ in range(3):
            started = time.process_time()
            open_rows(path)
            tries.append(time.process_time() - started)
        spent.append(min(tries))
    assert spent[1] < 9 * spent[0]
