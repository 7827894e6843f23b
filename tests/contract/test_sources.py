"""Every source of rows gives the same rows, in the same order, with weights and labels, from any piece and process."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from pyarrow import dataset as arrow_dataset

from coresift import Rows, open_rows
from coresift.rows import passes as blocks
from coresift.rows import rows as source_module
from coresift.rows.passes import block_rows, blocks_of, tasks_of

N, D = 1000, 5
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D)).astype(np.float32)
W = RNG.random(N)
Y = np.array(["cat", "dog", "owl"])[RNG.integers(3, size=N)]


def table(rows: slice = slice(None), kind: type = np.float32) -> pa.Table:
    columns = {f"x{i}": X[rows, i].astype(kind) for i in range(D)}
    return pa.table({**columns, "w": W[rows], "y": Y[rows]})


def npy(folder: Path) -> Rows:
    np.save(folder / "a.npy", X)
    return open_rows(folder / "a.npy")


def npy_folder(folder: Path) -> Rows:
    np.save(folder / "a.npy", X[:300])
    np.save(folder / "b.npy", X[300:])
    return open_rows(folder)


def npz(folder: Path) -> Rows:
    np.savez(folder / "a.npz", X=X, w=W, y=Y)
    return open_rows(folder / "a.npz", label="y", weight="w")


def one_csv(folder: Path) -> Rows:
    csv.write_csv(table(kind=np.float64), folder / "a.csv")
    return open_rows(folder / "a.csv", label="y", weight="w")


def parquet_file(folder: Path) -> Rows:
    parquet.write_table(table(), folder / "a.parquet", row_group_size=170)
    return open_rows(str(folder / "a.parquet"), label="y", weight="w")


def parquet_pattern(folder: Path) -> Rows:
    for part, rows in (("b", slice(400, 1000)), ("a", slice(0, 400))):
        parquet.write_table(table(rows), folder / f"part-{part}.parquet", row_group_size=90)
    return open_rows(str(folder / "part-*.parquet"), label="y", weight="w")


def parquet_list(folder: Path) -> Rows:
    parquet_pattern(folder)
    return open_rows([folder / "part-a.parquet", folder / "part-b.parquet"], label="y", weight="w")


def embedding(folder: Path) -> Rows:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), D)
    parquet.write_table(pa.table({"id": np.arange(N), "v": lists, "w": W, "y": Y}), folder / "a.parquet")
    return open_rows(folder, embedding="v", label="y", weight="w")


def ragged_embedding(folder: Path) -> Rows:
    parquet.write_table(pa.table({"v": pa.array(list(X), pa.list_(pa.float32()))}), folder / "a.parquet")
    return open_rows(folder / "a.parquet")


def address(folder: Path) -> Rows:
    parquet_pattern(folder)
    return open_rows(f"file://{folder}/part-?.parquet", label="y", weight="w")


def arrow(folder: Path) -> Rows:
    parquet_pattern(folder)
    return open_rows(arrow_dataset.dataset(folder), label="y", weight="w")


def array(folder: Path) -> Rows:
    return open_rows(X)


def frame(folder: Path) -> Rows:
    return open_rows(table().to_pandas(), label="y", weight="w")


KINDS = [
    npy,
    npy_folder,
    npz,
    one_csv,
    parquet_file,
    parquet_pattern,
    parquet_list,
    embedding,
    ragged_embedding,
    address,
    arrow,
    array,
    frame,
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Rows:
    make: Callable[[Path], Rows] = request.param
    return make(tmp_path)


def check_rows(source: Rows) -> None:
    assert (source.n, source.d) == (N, D)
    seen = 0
    for start, chunk in source.chunks():
        rows = slice(start, start + len(chunk.X))
        assert start == seen
        assert chunk.X.dtype == source.dtype
        np.testing.assert_array_equal(chunk.X, X[rows].astype(source.dtype))
        assert (chunk.weights is not None) == source.has_weights
        assert (chunk.labels is not None) == source.has_labels
        if chunk.weights is not None:
            np.testing.assert_array_equal(chunk.weights, W[rows])
        if chunk.labels is not None:
            np.testing.assert_array_equal(np.array(chunk.labels.names)[chunk.labels.codes], Y[rows])
        seen += len(chunk.X)
    assert seen == N


def test_rows_weights_and_labels(source: Rows) -> None:
    check_rows(source)
    if source.is_portable:
        check_rows(pickle.loads(pickle.dumps(source)))  # as sent to a worker


def test_chunks_are_small_and_pieces_are_read_in_any_order(
    source: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "CHUNK_BYTES", 64 * source.row_bytes)
    for piece in reversed(source.pieces):
        start = piece.start
        for chunk in source.read(piece):
            assert (
                len(chunk.X) <= 64 or source.pieces == source.pieces[:1]
            )  # a CSV reader has blocks of its own
            np.testing.assert_array_equal(chunk.X, X[start : start + len(chunk.X)].astype(source.dtype))
            start += len(chunk.X)
        assert start == piece.start + piece.n_rows


def test_blocks_do_not_depend_on_chunks(source: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_SMALLEST_BLOCK", 64)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 64 * 8 * D)
    assert block_rows(D) == 64

    def cut() -> list[tuple[int, int]]:
        return [(block.start, len(block.X)) for task in tasks_of(source) for block in blocks_of(source, task)]

    found = cut()
    monkeypatch.setattr(source_module, "CHUNK_BYTES", 37 * source.row_bytes)
    assert cut() == found
    assert all(rows == 64 for _, rows in found[:-1])
    assert sum(rows for _, rows in found) == N


def test_files_of_rows(source: Rows) -> None:
    rows = np.array([0, 299, 300, 399, 400, N - 1])
    files = source.file_of(rows)
    for row, file in zip(rows, files, strict=True):
        assert source.file_starts[file] <= row
        assert file == len(source.files) - 1 or row < source.file_starts[file + 1]


def test_load(source: Rows) -> None:
    for limit in (np.inf, 0):
        with source.load(limit) as loaded:
            np.testing.assert_array_equal(loaded.X, X.astype(source.dtype))
            if source.has_weights:
                np.testing.assert_array_equal(loaded.weights, W)
