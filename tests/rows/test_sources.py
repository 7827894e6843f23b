"""What is not data is refused in one sentence that names the file, the column and the number; and image folders."""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from coresift import InvalidInputError, InvalidTypeError, RBFCoreset, open_rows, select


def write(path: Path, **columns: object) -> Path:
    parquet.write_table(pa.table(columns), path)
    return path


def test_a_corrupt_parquet_file_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", x=np.zeros(10))
    (tmp_path / "b.parquet").write_bytes(b"no parquet at all, only words")
    with pytest.raises(InvalidInputError, match=r"b\.parquet: damaged"):
        open_rows(tmp_path)


def test_a_parquet_file_damaged_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"x": np.random.default_rng(0).random(50_000)}), path, compression="zstd")
    content = bytearray(path.read_bytes())
    content[2000:300_000] = bytes(298_000)
    path.write_bytes(content)
    source = open_rows(path)  # the footer is whole
    with pytest.raises(InvalidInputError, match=r"a\.parquet: damaged"):
        list(source.blocks())


def test_a_row_group_with_fewer_rows_than_announced_is_damaged(tmp_path: Path) -> None:
    """A flipped byte in a footer does it: Arrow then gives what the pages hold, and is content."""
    source = open_rows(write(tmp_path / "a.parquet", x=np.arange(40.0)))
    wrong = dataclasses.replace(source.pieces[0], n_rows=41)
    for read in (lambda: list(source.read(wrong)), lambda: list(source.whole_rows(wrong, np.arange(3)))):
        with pytest.raises(InvalidInputError, match=r"a\.parquet: row group 0 announces 41 rows and holds 40"):
            read()


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"columns": ["x", "nosuch"]}, r"no column 'nosuch'; there are 'x', 'text', 'gaps', 'lists'"),
        ({"columns": ["text"]}, r"column 'text' has type string, which is not a number"),
        ({"columns": ["gaps"]}, r"column 'gaps' has 3 nulls"),
        ({"columns": ["x"], "weight": "text"}, r"weight column 'text' has type string"),
        ({"columns": ["x"], "label": "nosuch"}, r"no column 'nosuch'"),
        ({"embedding": "x"}, r"column 'x' has type double; lists of numbers are needed"),
        ({"columns": ["x"], "embedding": "lists"}, r"exclude each other"),
        ({"columns": []}, r"names no column"),
    ],
)
def test_columns_that_cannot_be_used(tmp_path: Path, wish: dict[str, object], message: str) -> None:
    gaps = pa.array([1.0, None, 2.0, None, None, 3.0])
    lists = pa.array([[1.0], [2.0], [3.0], [4.0, 5.0], [6.0], [7.0]])
    path = write(tmp_path / "a.parquet", x=np.arange(6.0), text=list("abcdef"), gaps=gaps, lists=lists)
    with pytest.raises(InvalidInputError, match=message):
        open_rows(path, **wish)  # type: ignore[arg-type]


def test_nulls_are_found_without_statistics_too(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array([1.0, None, None])})
    parquet.write_table(table, tmp_path / "a.parquet", write_statistics=False)
    with pytest.raises(InvalidInputError, match=r"a\.parquet: column 'x' has 2 nulls"):
        list(open_rows(tmp_path / "a.parquet").blocks())


def test_lists_of_different_lengths(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", v=pa.array([[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]]))
    with pytest.raises(InvalidInputError, match="differ in length; the first has 2"):
        list(open_rows(path).blocks())


@pytest.mark.parametrize("suffix", ["feather", "parquet"])
@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float32(), 2)])
def test_lists_after_empty_batches_and_files(tmp_path: Path, suffix: str, kind: pa.DataType) -> None:
    empty, full = (pa.record_batch({"v": pa.array(rows, kind)}) for rows in ([], [[1.0, 2.0], [3.0, 4.0]]))
    open_writer = pa.ipc.new_file if suffix == "feather" else parquet.ParquetWriter

    def write_batches(name: str, *batches: pa.RecordBatch) -> Path:
        with open_writer(tmp_path / f"{name}.{suffix}", batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return tmp_path / f"{name}.{suffix}"

    with pytest.raises(InvalidInputError, match=r"no rows|lists of column 'v' are empty"):
        open_rows(write_batches("a", empty))
    for source in (write_batches("b", empty, full, empty, full), tmp_path):
        rows = open_rows(source)
        assert rows.names == ["v[0]", "v[1]"]
        np.testing.assert_array_equal(np.concatenate([block.X for block in rows.blocks()]), [[1, 2], [3, 4]] * 2)
    write_batches("b", pa.record_batch({"u": np.zeros(3)}))
    write_batches("c", full)
    with pytest.raises(InvalidInputError, match=rf"b\.{suffix}: no column 'v', which .*a\.{suffix} has"):
        open_rows(tmp_path)


def test_files_of_different_schemas(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", x=np.zeros(3), y=np.zeros(3))
    write(tmp_path / "b.parquet", x=np.zeros(3))
    with pytest.raises(InvalidInputError, match=r"b\.parquet: no column 'y', which .*a\.parquet has"):
        open_rows(tmp_path)
    write(tmp_path / "b.parquet", x=np.zeros(3), y=np.zeros(3, dtype=np.float32))
    with pytest.raises(InvalidInputError, match=r"b\.parquet: column 'y' has type float, in .*a\.parquet double"):
        open_rows(tmp_path)


def test_folders_and_patterns_without_data(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="holds no file that ends in"):
        open_rows(tmp_path)
    with pytest.raises(InvalidInputError, match="no file matches"):
        open_rows(str(tmp_path / "*.parquet"))
    with pytest.raises(InvalidInputError, match="no such file or folder"):
        open_rows(tmp_path / "nosuch.parquet")
    with pytest.raises(InvalidInputError, match="no such file or folder"):
        open_rows(f"file://{tmp_path}/nosuch")
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(InvalidInputError, match=r"unknown kind of file '\.txt'"):
        open_rows(tmp_path / "a.txt")
    write(tmp_path / "a.parquet", x=np.zeros(0))
    with pytest.raises(InvalidInputError, match="no rows"):
        open_rows(tmp_path / "a.parquet")


@pytest.mark.parametrize("address", ["{}", "file://{}", "file://{}/"])
def test_hidden_files_are_passed_over(tmp_path: Path, address: str) -> None:
    folder = tmp_path / "_mine"  # what the data are in may have any name
    (folder / "_temporary" / "0").mkdir(parents=True)
    write(folder / "a.parquet", x=np.zeros(3))
    write(folder / "_temporary" / "0" / "c.parquet", x=np.zeros(3))
    (folder / "_SUCCESS").write_text("")
    (folder / ".b.parquet").write_text("being written")
    assert open_rows(address.format(folder)).files == [str(folder / "a.parquet")]


def test_arrays_that_are_no_numbers(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[{}, 1]], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidInputError, match=r"a\.npy: .*an array of Python objects"):
        open_rows(tmp_path / "a.npy")
    np.savez(tmp_path / "a.npz", X=np.array([["a"]]), y=np.zeros(1))
    with pytest.raises(InvalidInputError, match="numbers are needed"):
        open_rows(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", X=np.array([[{}]], dtype=object))
    with pytest.raises(InvalidInputError, match="Python objects"):
        open_rows(tmp_path / "b.npz")
    np.save(tmp_path / "c.npy", np.zeros(5))
    with pytest.raises(InvalidInputError, match=r"shape \(5,\)"):
        open_rows(tmp_path / "c.npy")
    (tmp_path / "d.npy").write_bytes(b"words")
    with pytest.raises(InvalidInputError, match=r"d\.npy: not a \.npy file"):
        open_rows(tmp_path / "d.npy")
    with pytest.raises(InvalidTypeError, match="X: "):
        open_rows(np.array([[{}]]))
    with pytest.raises(InvalidInputError, match="X contains NaN in column 0, row 0"):
        RBFCoreset().fit(open_rows(np.array([[None]])))
    with pytest.raises(InvalidTypeError, match="must be a path"):
        open_rows(17)


def test_members_of_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", one=np.zeros((3, 2)), two=np.zeros((3, 2)), y=np.arange(3), short=np.ones(2))
    with pytest.raises(InvalidInputError, match="name one with --embedding"):
        open_rows(tmp_path / "a.npz")
    assert open_rows(tmp_path / "a.npz", embedding="two", label="y").d == 2
    with pytest.raises(InvalidInputError, match="no array 'z'"):
        open_rows(tmp_path / "a.npz", embedding="one", label="z")
    with pytest.raises(InvalidInputError, match=r"a\.npz: sample_weight has length 2, but X has 3 rows"):
        open_rows(tmp_path / "a.npz", embedding="one", weight="short")


def test_csv_with_words_or_gaps(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b,name\n1,2.5,x\n3,,y\n")
    with pytest.raises(InvalidInputError, match=r"a\.csv: column 'b' has 1 nulls"):
        open_rows(path)
    assert open_rows(path, columns=["a"]).n == 2
    path.write_text("a,b\n1,2\n" * 2)
    with pytest.raises(InvalidInputError, match=r"a\.csv"):
        open_rows(path, columns=["a", "b"])


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_what_is_not_finite_is_named_with_file_row_and_column(tmp_path: Path, value: float, word: str) -> None:
    X = np.zeros((40, 2))
    write(tmp_path / "a.parquet", p=X[:, 0], q=X[:, 1])
    X[7, 1] = value
    write(tmp_path / "b.parquet", p=X[:, 0], q=X[:, 1])
    with pytest.raises(InvalidInputError, match=rf"{word} in column 1 \('q'\), row 47 \(row 7 of .*b\.parquet\)"):
        RBFCoreset().fit(open_rows(tmp_path))


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_bad_weights_are_named(tmp_path: Path, weight: float) -> None:
    w = np.ones(10)
    w[4] = weight
    path = write(tmp_path / "a.parquet", x=np.arange(10.0), w=w)
    with pytest.raises(InvalidInputError, match=r"weight (-1|nan|inf), row 4; weights must be"):
        select(path, 3, weight="w")
    path = write(tmp_path / "a.parquet", x=np.arange(10.0), w=np.zeros(10))
    with pytest.raises(InvalidInputError, match="weights sum to 0"):
        select(path, 3, weight="w")


def test_image_folders(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for kind in ("cat", "dog"):
        (tmp_path / kind).mkdir()
        for i in range(3):
            pixels = rng.integers(256, size=(8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / kind / f"{i}.png")
    source = open_rows(tmp_path, label="folder", image_size=8)
    (chunk,) = source.blocks()
    assert chunk.labels is not None
    assert [chunk.labels.names[code] for code in chunk.labels.codes] == ["cat"] * 3 + ["dog"] * 3
    np.testing.assert_allclose(chunk.X[-1] * 255, pixels.reshape(-1), atol=1e-4)  # the last one written
    assert source.files[-1].endswith("2.png")
    assert len(set(source.file_of(np.arange(6)))) == 6
    (tmp_path / "dog" / "1.png").write_bytes(b"no image")
    with pytest.raises(InvalidInputError, match=r"1\.png: damaged, or not an image"):
        list(source.blocks())


def test_options_that_do_not_apply_are_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    for options in ({"weight": "w"}, {"label": "l"}, {"columns": ["zz"]}, {"embedding": "e"}):
        with pytest.raises(InvalidInputError, match="do not apply"):
            open_rows(np.ones((5, 2)), **options)
    with pytest.raises(InvalidInputError, match="embedding = 'nope' is for files"):
        open_rows(frame, embedding="nope")
    with pytest.raises(InvalidInputError, match="min_per_class = 7 needs per_class"):
        select(np.ones((50, 2)), 5, min_per_class=7)


def test_frames_without_names_and_with_gaps() -> None:
    assert open_rows(pd.DataFrame(np.ones((5, 2)))).d == 2
    gap = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", None, "y"]})
    with pytest.raises(InvalidInputError, match="label column 'b' has 1 nulls"):
        open_rows(gap, label="b")


def test_a_pattern_of_images_is_as_a_folder_of_them(tmp_path: Path) -> None:
    for kind in ("cat", "dog"):
        (tmp_path / kind).mkdir()
        Image.new("RGB", (9, 9), (10, 20, 30)).save(tmp_path / kind / "0.png")
    source = open_rows(str(tmp_path / "*" / "*.png"), label="folder", image_size=4)
    (chunk,) = source.blocks()
    assert (source.d, chunk.labels.names) == (48, ["cat", "dog"])
    with pytest.raises(InvalidInputError, match="do not apply"):
        open_rows(str(tmp_path / "*" / "*.png"), weight="w")
    alone = open_rows(str(tmp_path / "cat" / "*.png"), label="folder")
    with pytest.raises(InvalidInputError, match=r"0\.png: is not in a folder"):
        list(alone.blocks())
    (tmp_path / "labels.csv").write_text("a\n1.0\n")
    with pytest.raises(InvalidInputError, match=r"images \(0\.png\) and tables \(labels\.csv\); name one kind"):
        open_rows(tmp_path)


def test_csv_columns_of_one_name_and_labels_that_are_missing(tmp_path: Path) -> None:
    (tmp_path / "dup.csv").write_text("a,a,b\n1.0,2.0,3.0\n")
    with pytest.raises(InvalidInputError, match="column 'a' is there more than once"):
        open_rows(tmp_path / "dup.csv")
    (tmp_path / "gap.csv").write_text("a,y\n1.0,x\n2.0,\n")
    with pytest.raises(InvalidInputError, match="null"):
        open_rows(tmp_path / "gap.csv", label="y")
