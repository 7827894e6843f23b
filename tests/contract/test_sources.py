"""Every source of rows gives the same rows, in the same order, with weights and labels, from any piece and process."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch
from pyarrow import csv, dataset as arrow_dataset, parquet

from coresift import InvalidInputError, Rows, open_rows
from coresift.rows import rows as rows_module, tables as tables_module
from coresift.rows.rows import Block, block_rows

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
    return open_rows(X, sample_weight=W, labels=Y)


def plain_array(folder: Path) -> Rows:
    return open_rows(X)


def fortran(folder: Path) -> Rows:
    return open_rows(np.asfortranarray(X), sample_weight=W)


def lists(folder: Path) -> Rows:
    return open_rows(X.astype(float).tolist(), sample_weight=W.tolist(), labels=Y.tolist())


def tensor(folder: Path) -> Rows:
    return open_rows(torch.from_numpy(X), sample_weight=torch.from_numpy(W))


def csr(folder: Path) -> Rows:
    return open_rows(sp.csr_array(X), sample_weight=W, labels=Y)


def coo_matrix(folder: Path) -> Rows:
    return open_rows(sp.coo_matrix(X))


def pandas_frame(folder: Path) -> Rows:
    return open_rows(table().to_pandas(), label="y", weight="w")


def polars_frame(folder: Path) -> Rows:
    return open_rows(pl.from_arrow(table()), label="y", weight="w")


def arrow_table(folder: Path) -> Rows:
    return open_rows(table(), label="y", weight="w")


def frame_and_arrays(folder: Path) -> Rows:
    return open_rows(table().to_pandas().drop(columns=["w", "y"]), sample_weight=W, labels=Y)


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
    plain_array,
    fortran,
    lists,
    tensor,
    csr,
    coo_matrix,
    pandas_frame,
    polars_frame,
    arrow_table,
    frame_and_arrays,
]
NAMED = {one_csv, parquet_file, parquet_pattern, parquet_list, address, arrow, pandas_frame, polars_frame}
NAMED |= {arrow_table, frame_and_arrays}


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> Rows:
    make: Callable[[Path], Rows] = request.param
    opened = make(tmp_path)
    assert opened.names == ([f"x{i}" for i in range(D)] if make in NAMED else opened.names)
    assert (opened.names is None) == (make not in NAMED | {embedding, ragged_embedding})
    return opened


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_SMALLEST_BLOCK", 64)
    monkeypatch.setattr(rows_module, "BLOCK_BYTES", 64 * 8 * D)
    assert block_rows(D) == 64


def dense(block: Block) -> np.ndarray:
    return block.X.toarray() if sp.issparse(block.X) else block.X


def check_block(rows: Rows, block: Block, chosen: slice | np.ndarray) -> None:
    """These rows of the data, whatever they were opened from."""
    assert block.X.dtype == rows.dtype
    np.testing.assert_array_equal(dense(block), X[chosen].astype(rows.dtype))
    np.testing.assert_array_equal(block.weights, W[chosen] if rows.has_weights else np.ones(block.n))
    assert (block.labels is not None) == rows.has_labels
    if block.labels is not None:
        np.testing.assert_array_equal(np.array(block.labels.names)[block.labels.codes], Y[chosen])


def check_rows(rows: Rows) -> None:
    assert (rows.n, rows.d) == (N, D)
    seen = 0
    for block in rows.blocks():
        assert block.start == seen
        check_block(rows, block, slice(seen, seen + block.n))
        seen += block.n
    assert seen == N


def test_rows_weights_and_labels(rows: Rows) -> None:
    check_rows(rows)
    if rows.is_portable:
        check_rows(pickle.loads(pickle.dumps(rows)))  # as sent to a worker


def test_chunks_are_small_and_pieces_are_read_in_any_order(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "READ_BYTES", 64 * rows.row_bytes)
    monkeypatch.setattr(tables_module, "_LONG_COLUMN", 1)
    for piece in reversed(rows.pieces):
        start = piece.start
        for chunk in rows.read(piece):
            # a CSV reader has blocks of its own; views of memory may be of any size
            assert chunk.n <= 64 or rows.pieces == rows.pieces[:1]
            check_block(rows, chunk, slice(start, start + chunk.n))
            start += chunk.n
        assert start == piece.start + piece.n_rows


@pytest.mark.usefixtures("small_blocks")
def test_blocks_of_all_kinds_are_equal(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [(start, min(64, N - start)) for start in range(0, N, 64)]
    assert [(block.start, block.n) for block in rows.blocks()] == expected
    monkeypatch.setattr(rows_module, "READ_BYTES", 37 * rows.row_bytes)
    monkeypatch.setattr(tables_module, "_LONG_COLUMN", 1)
    assert [(block.start, block.n) for block in rows.blocks()] == expected
    check_rows(rows)


@pytest.mark.usefixtures("small_blocks")
def test_blocks_are_those_of_the_tasks(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "TASK_BYTES", 1)
    by_task = [(block.start, block.n) for task in rows.tasks() for block in rows.blocks(task)]
    assert [(block.start, block.n) for block in rows.blocks()] == by_task
    check_rows(rows)


def test_files_of_rows(rows: Rows) -> None:
    chosen = np.array([0, 299, 300, 399, 400, N - 1])
    for row, file in zip(chosen, rows.file_of(chosen), strict=True):
        assert rows.file_starts[file] <= row
        assert file == len(rows.files) - 1 or row < rows.file_starts[file + 1]


def test_load(rows: Rows) -> None:
    for limit in (np.inf, 0):
        with rows.load(limit) as loaded:
            check_block(rows, loaded, slice(None))


@pytest.mark.parametrize("chosen", [[0, 5, 299, 300, 999], [999, 3, 3, 500, 0], [7], np.arange(N)[::-1]], ids=len)
def test_take(rows: Rows, chosen: list[int]) -> None:
    check_block(rows, rows.take(np.array(chosen)), np.array(chosen))


def test_take_reads_only_the_pieces_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = parquet_file(tmp_path)  # row groups of 170
    read: list[int] = []
    original = rows.read
    monkeypatch.setattr(rows, "read", lambda piece: read.append(piece.part) or original(piece))
    rows.take(np.array([10, 350]))
    assert read == [0, 2]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_matrix_in_memory_is_not_copied(kind: type, order: str) -> None:
    data = np.array(X, dtype=kind, order=order)
    weights = W.copy()
    rows = open_rows(data, sample_weight=weights)
    assert all(np.shares_memory(block.X, data) for block in rows.blocks())
    with rows.load(0) as loaded:
        assert loaded.X is data


def test_integers_are_converted_block_by_block() -> None:
    data = np.arange(N * D, dtype=np.uint8).reshape(N, D)
    rows = open_rows(data)
    assert rows.dtype == np.float32  # exact
    assert np.shares_memory(rows._X, data)
    np.testing.assert_array_equal(np.vstack([block.X for block in rows.blocks()]), data)
    assert open_rows(data.astype(np.int64)).dtype == np.float64


def test_csr_stays_csr() -> None:
    data = sp.csr_array(X * (X > 1))
    rows = open_rows(data)
    assert all(isinstance(block.X, sp.csr_array) for block in rows.blocks())
    with rows.load() as loaded:
        assert np.shares_memory(loaded.X.data, data.data)
    wide = open_rows(sp.random_array((600, 100_000), density=1e-5, rng=0, format="csr"))
    assert len(wide.pieces) == 1  # pieces count what is stored
    assert [block.n for block in wide.blocks()] == [256, 256, 88]


def test_arrays_of_weights_and_labels_belong_to_data_in_memory(tmp_path: Path) -> None:
    rows = npy(tmp_path)
    for data in (rows, tmp_path / "a.npy", [tmp_path / "a.npy"]):
        with pytest.raises(InvalidInputError, match="are for data in memory"):
            open_rows(data, sample_weight=W)
    with pytest.raises(InvalidInputError, match="not both"):
        open_rows(table().to_pandas(), weight="w", sample_weight=W)
    with pytest.raises(InvalidInputError, match="sample_weight has length 999, but X has 1000 rows"):
        open_rows(X, sample_weight=W[1:])
    with pytest.raises(InvalidInputError, match=r"1000 rows, but labels of shape \(999,\)"):
        open_rows(X, labels=Y[1:])
    with pytest.raises(InvalidInputError, match="labels must be integers or strings"):
        open_rows(X, labels=W)
