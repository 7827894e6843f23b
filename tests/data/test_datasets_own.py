"""The user's own data for training: arrays, tables, image folders, Hugging Face."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, strategies as st
from PIL import Image

from coresift import CoresiftError, InvalidInputError, InvalidTypeError, Preparation, open_rows
from coresift.data import DatasetSplits, LazyDataset, load_dataset
from coresift.data.splits import split_rows
from coresift.data.user_sets import channel_statistics
from coresift.rows.images import decode, middle, random_resized_crop


def rows(n: int = 60, d: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(3.0, 2.0, (n, d))


def labels(n: int = 60) -> np.ndarray:
    return np.arange(n) % 3


def same_samples(splits: DatasetSplits, x: np.ndarray, y: np.ndarray) -> None:
    """Both parts together are all samples, each once, with its own label."""
    found_x = np.concatenate([splits.train.x, splits.test.x])
    found_y = np.concatenate([splits.train.y, splits.test.y])
    key = lambda array: [row.tobytes() for row in array.reshape(len(array), -1)]  # noqa: E731
    wanted = dict(zip(key(np.ascontiguousarray(x)), y, strict=True))
    assert len(found_x) == len(x) == len(wanted)
    assert [wanted[row] for row in key(np.ascontiguousarray(found_x))] == list(found_y)


@given(
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    fraction=st.floats(0.05, 0.95),
    seed=st.integers(0, 100),
)
def test_a_split_is_by_class_and_keeps_every_class_in_training(counts, fraction, seed) -> None:
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    expected = [min(round(fraction * n), n - 1) for n in counts]
    if sum(expected) == 0:
        with pytest.raises(InvalidInputError, match="too few"):
            split_rows(y, "classification", fraction, seed, "data")
        return
    train, test = split_rows(y, "classification", fraction, seed, "data")
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(y)))
    np.testing.assert_array_equal(np.bincount(y[test], minlength=len(counts)), expected)
    assert np.all(np.diff(train) > 0)
    assert np.all(np.diff(test) > 0)


def test_every_row_may_come_into_the_test_part() -> None:
    y = labels(30)
    seen = np.zeros(30)
    for seed in range(100):
        seen[split_rows(y, "classification", 0.2, seed, "data")[1]] += 1
    assert seen.min() > 20 - 5 * 4 + 0.5  # binomial: mean 20, deviation 4
    assert seen.max() < 20 + 5 * 4


def test_rows_are_standardised_by_the_training_part() -> None:
    x, y = rows(), labels()
    splits = load_dataset((x, y))
    assert (splits.task, splits.n_classes, splits.input_shape, splits.mean) == ("classification", 3, (4,), None)
    train, test = split_rows(y, "classification", 0.2, 0, "")
    mean, std = x[train].mean(axis=0), x[train].std(axis=0)
    np.testing.assert_allclose(splits.train.x, (x[train] - mean) / std, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(splits.test.x, (x[test] - mean) / std, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(splits.test.y, y[test])
    assert (splits.train.x.dtype, splits.train.y.dtype) == (np.float32, np.int64)


@pytest.mark.parametrize("kind", ["list", "tensor", "frame", "float32", "integers"])
def test_rows_come_in_any_container(kind: str) -> None:
    x = np.rint(10 * rows())
    given = {
        "list": lambda: x.tolist(),
        "tensor": lambda: torch.from_numpy(x).requires_grad_(),
        "frame": lambda: pd.DataFrame(x),
        "float32": lambda: x.astype(np.float32),
        "integers": lambda: x.astype(np.int16),
    }[kind]()
    y = torch.from_numpy(labels()) if kind == "tensor" else pd.Series(labels()) if kind == "frame" else labels()
    np.testing.assert_allclose(load_dataset((given, y)).train.x, load_dataset((x, labels())).train.x, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (np.array(["b", "a", "c"]), ("a", "b", "c")),
        (np.array(["b", "a", "c"], dtype=object), ("a", "b", "c")),
        (np.array([7, -1, 300]), ("-1", "7", "300")),
        (np.array([True, False, True]), ("False", "True")),
    ],
)
def test_labels_are_numbered_in_order(values: np.ndarray, names: tuple[str, ...]) -> None:
    y = values[labels()]
    splits = load_dataset((rows(), y))
    assert splits.class_names == names
    assert splits.n_classes == len(names)
    train, _ = split_rows(labels(), "classification", 0.2, 0, "")
    assert set(np.unique(splits.train.y)) == set(range(len(names)))
    if len(names) == 3:  # the same groups, so the same split
        assert sorted(map(str, y[train])) == sorted(names[code] for code in splits.train.y)


def test_floats_are_targets_unless_told_otherwise() -> None:
    x, y = rows(), rows(d=1)[:, 0]
    splits = load_dataset((x, y))
    assert (splits.task, splits.n_classes, splits.n_outputs) == ("regression", None, 1)
    assert splits.train.y.dtype == np.float32
    assert sorted(np.concatenate([splits.train.y, splits.test.y])) == sorted(y.astype(np.float32))
    assert len(splits.test) == 12
    assert load_dataset((x, rows(d=2))).n_outputs == 2
    assert load_dataset((x, labels()), task="regression").task == "regression"
    with pytest.raises(InvalidInputError, match="labels must be integers or strings"):
        load_dataset((x, y), task="classification")


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((40, 6, 5), (1, 6, 5)), ((40, 3, 6, 5), (3, 6, 5)), ((40, 6, 5, 3), (3, 6, 5)), ((40, 1, 5, 3), (1, 5, 3))],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_images_keep_their_values(shape, expected, dtype) -> None:
    x = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
    y = np.arange(40) % 2
    splits = load_dataset((x, y))
    assert splits.input_shape == expected
    assert splits.train.x.dtype == (np.uint8 if dtype == np.uint8 else np.float32)
    stored = x.astype(splits.train.x.dtype)
    if len(shape) == 4 and shape[1:] != expected:
        stored = stored.transpose(0, 3, 1, 2)
        assert "channels brought to the front" in splits.preparation
    same_samples(splits, stored, y)
    values = splits.train.x.astype(np.float64) / (255 if dtype == np.uint8 else 1)
    np.testing.assert_allclose(splits.mean, values.mean(axis=(0, 2, 3)))
    np.testing.assert_allclose(splits.std, values.std(axis=(0, 2, 3)))


def test_a_black_channel_can_be_divided_by() -> None:
    assert channel_statistics(np.zeros((2, 1, 3, 3), np.uint8)) == ((0.0,), (1.0,))


def test_arrays_that_cannot_be_written_to_are_copied() -> None:
    x, y = np.zeros((6, 1, 4, 4), np.uint8), np.arange(6) % 2
    for array in (x, y):
        array.flags.writeable = False
    splits = load_dataset((x, y), test=(x, y))
    for part in (splits.train, splits.test):
        assert torch.from_numpy(part.x).shape == (6, 1, 4, 4)  # without a warning, which would be an error here
        assert part.x.flags.writeable
        assert part.y.flags.writeable
    assert not np.shares_memory(splits.train.x, x)


def test_a_test_part_is_used_as_given() -> None:
    x, y = rows(), np.array(["a", "b", "c"])[labels()]
    other = rows(9, seed=1)
    splits = load_dataset((x, y), test=(other, ["c", "a", "b"] * 3))
    assert (len(splits.train), len(splits.test)) == (60, 9)
    np.testing.assert_array_equal(splits.test.y, [2, 0, 1] * 3)
    np.testing.assert_allclose(splits.test.x, (other - x.mean(0)) / x.std(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("data", "options", "complaint"),
    [
        ((rows(), labels(59)), {}, r"y has shape \(59,\), but x has 60 rows"),
        ((rows()[:, 0], labels()), {}, r"shape \(60,\)"),
        ((rows(0), labels(0)), {}, r"shape \(0, 4\)"),
        ((np.full((60, 4), "a"), labels()), {}, "numbers are needed"),
        ((np.where(np.arange(4) == 2, np.nan, rows()), labels()), {}, r"x\[0\] holds nan"),
        ((rows() * 1e200, labels()), {}, "must be finite"),
        ((np.zeros((60, 3, 4, 4), np.int64), labels()), {}, r"bytes \(uint8\) or floats are needed"),
        ((rows(), np.stack([labels()] * 2, 1)), {}, "one label for each sample"),
        ((rows(), np.where(labels() == 0, np.nan, 1.0)), {}, "not finite"),
        ((rows(), labels()), {"test": (rows(5, 3), labels(5))}, "they must be alike"),
        ((rows(), labels()), {"test": (rows(5), labels(5) + 1)}, "the label 3 is in the test part"),
        ((rows(), labels()), {"test": (rows(5), labels(4))}, "arrays, test: y has shape"),
        ((rows(3), labels(3)), {}, "too few to split"),
        ((rows(), labels()), {"task": "ranking"}, "task = 'ranking' is not one of"),
        ((rows(), labels()), {"label": "y"}, "arrays: label = 'y' does not apply"),
        ((rows(), labels()), {"image_size": 8}, "arrays: image_size = 8 does not apply"),
        ((rows(),), {}, "data = tuple must be a name, a path, a pair"),
        (7, {}, "data = int must be"),
        ((rows(), labels()), {"test": rows()}, "test = ndarray must be"),
        ("nosuch", {}, "nosuch: no such file or folder, and none of the names digits, mnist"),
        ("nosuch.parquet", {"label": "y"}, "nosuch.parquet: no such file"),
    ],
)
def test_bad_arrays_are_refused(data, options, complaint: str) -> None:
    with pytest.raises(CoresiftError, match=complaint):
        load_dataset(data, **options)


def test_sparse_matrices_are_refused() -> None:
    import scipy.sparse as sp

    with pytest.raises(InvalidTypeError, match="toarray"):
        load_dataset((sp.csr_array(rows()), labels()))


def frame(n: int = 60) -> pd.DataFrame:
    x = rows(n)
    return pd.DataFrame(
        {"a": x[:, 0], "y": labels(n), "b": np.rint(x[:, 1]).astype(int), "t": x[:, 2], "text": ["x"] * n}
    )


@pytest.mark.parametrize("kind", ["parquet", "csv", "folder"])
def test_a_table_is_its_columns_of_numbers(tmp_path: Path, kind: str) -> None:
    data, path = frame(), tmp_path / f"rows.{kind}"
    if kind == "csv":
        data.to_csv(path, index=False)
    elif kind == "parquet":
        data.to_parquet(path)
    else:
        path.mkdir()
        data[:25].to_parquet(path / "a.parquet")
        data[25:].to_parquet(path / "b.parquet")
    expected = load_dataset((data[["a", "b", "t"]], data["y"]))
    found = load_dataset(path, label="y")
    np.testing.assert_allclose(found.train.x, expected.train.x, rtol=1e-6)
    np.testing.assert_array_equal(found.train.y, expected.train.y)
    targets = load_dataset(str(path), label="t")
    assert targets.task == "regression"
    assert targets.input_shape == (3,)


def test_columns_that_are_left_out_are_named(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "rows.csv", index=False)
    found = load_dataset(tmp_path / "rows.csv", label="y")
    assert found.table is not None
    assert [c.name for c in found.table.columns_ if c.kind == "left out"] == ["text"]  # a constant
    assert "columns prepared" in found.preparation
    raw = load_dataset(tmp_path / "rows.csv", label="y", preparation=None)
    assert raw.table is None
    np.testing.assert_allclose(raw.train.x, found.train.x, rtol=1e-5, atol=1e-6)


def test_amounts_that_look_like_classes_are_told(caplog: pytest.LogCaptureFixture) -> None:
    x, prices = rows(400), np.arange(400) // 3
    assert load_dataset((x, prices)).n_classes == 134
    assert "134 classes in" in caplog.text
    assert "regression" in caplog.text
    caplog.clear()
    assert load_dataset((x, prices), task="classification").n_classes == 134  # it was asked for
    assert load_dataset((x, prices), task="regression").n_classes is None
    with pytest.raises(InvalidInputError, match="too few"):
        load_dataset((x, np.arange(400)))
    assert "400 classes in 400 samples" in caplog.text  # nothing can be split off, and this is why
    caplog.clear()
    assert load_dataset((x, np.arange(400) % 40)).n_classes == 40  # ten of each
    assert load_dataset((x[:60], np.arange(60) % 20)).n_classes == 20  # few of each, but no more classes than that
    assert caplog.text == ""


def test_a_table_of_embeddings_and_names(tmp_path: Path) -> None:
    vectors = rows(20, 5).astype(np.float32)
    names = np.array(["cat", "dog"])[np.arange(20) % 2]
    table = pa.table({"vector": pa.FixedSizeListArray.from_arrays(vectors.ravel(), 5), "kind": names})
    pa.parquet.write_table(table, tmp_path / "e.parquet")
    found = load_dataset(tmp_path / "e.parquet", label="kind")
    assert found.class_names == ("cat", "dog")
    np.testing.assert_allclose(found.train.x, load_dataset((vectors, names)).train.x, rtol=1e-6)


def test_a_second_table_is_the_test_part(tmp_path: Path) -> None:
    frame().to_parquet(tmp_path / "train.parquet")
    frame(9).to_parquet(tmp_path / "test.parquet")
    found = load_dataset(tmp_path / "train.parquet", test=tmp_path / "test.parquet", label="y")
    assert (len(found.train), len(found.test)) == (60, 9)
    frame(9).drop(columns="a").to_parquet(tmp_path / "test.parquet")
    with pytest.raises(InvalidInputError, match=r"train\.parquet, test: no column 'a'"):
        load_dataset(tmp_path / "train.parquet", test=tmp_path / "test.parquet", label="y")


def test_bad_tables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    data = frame()
    data.to_parquet(path)
    with pytest.raises(InvalidInputError, match="label is missing"):
        load_dataset(path)
    with pytest.raises(InvalidInputError, match="no column 'z'; there are 'a', 'y'"):
        load_dataset(path, label="z")
    data.assign(y=data["y"].where(data.index > 3)).to_parquet(path)
    with pytest.raises(InvalidInputError, match="the label column 'y' has 4 nulls"):
        load_dataset(path, label="y")
    data.assign(a=data["a"].where(data.index > 3)).to_parquet(path)
    with pytest.raises(InvalidInputError, match="column 'a' has 4 nulls"):
        load_dataset(path, label="y", preparation=None)
    assert load_dataset(path, label="y").input_shape == (4,)  # and where it was missing
    data[["y", "text"]].to_parquet(path)
    with pytest.raises(InvalidInputError, match=r"no column is left as a feature: 'text' \(constant: x\)"):
        load_dataset(path, label="y")
    data[:0].to_parquet(path)
    with pytest.raises(InvalidInputError, match="no rows"):
        load_dataset(path, label="y")
    path.write_bytes(b"PAR1 nonsense")
    with pytest.raises(InvalidInputError, match=r"t\.parquet: damaged"):
        load_dataset(path, label="y")
    (tmp_path / "t.txt").write_text("1 2 3")
    with pytest.raises(InvalidInputError, match=r"t\.txt: unknown kind of file"):
        load_dataset(tmp_path / "t.txt")


def test_npz_files_with_one_part_or_two(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", X=rows(), y=labels())
    one = load_dataset(tmp_path / "one.npz")
    np.testing.assert_array_equal(one.train.x, load_dataset((rows(), labels())).train.x)
    np.savez(tmp_path / "two.npz", X_train=rows(), y_train=labels(), X_test=rows(6), y_test=labels(6))
    assert (len(load_dataset(tmp_path / "two.npz").train), len(load_dataset(tmp_path / "two.npz").test)) == (60, 6)
    assert len(load_dataset(tmp_path / "one.npz", test=tmp_path / "one.npz").test) == 60
    np.savez(tmp_path / "bad.npz", X=rows())
    with pytest.raises(InvalidInputError, match=r"bad\.npz: holds no array 'y'"):
        load_dataset(tmp_path / "bad.npz")
    (tmp_path / "bad.npz").write_bytes(b"nonsense")
    with pytest.raises(InvalidInputError, match=r"bad\.npz: not a .npz file"):
        load_dataset(tmp_path / "bad.npz")
    with pytest.raises(InvalidInputError, match=r"nosuch\.npz: no such file"):
        load_dataset(tmp_path / "nosuch.npz")


def write_images(root: Path, counts: dict[str, int]) -> None:
    for number, (name, count) in enumerate(counts.items()):
        (root / name).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (12 + i, 10), (50 * number, i, 7)).save(root / name / f"{i}.png")


def test_an_image_folder_is_split_by_class(tmp_path: Path) -> None:
    write_images(tmp_path, {"cat": 10, "dog": 5, ".hidden": 2})
    (tmp_path / "empty").mkdir()
    splits = load_dataset(tmp_path, image_size=8)
    assert isinstance(splits.train, LazyDataset)
    assert splits.class_names == ("cat", "dog")
    assert (len(splits.train), np.bincount(splits.test.y).tolist()) == (12, [2, 1])
    assert not set(splits.train.paths) & set(splits.test.paths)
    for part in (splits.train, splits.test):
        for i in range(len(part)):
            image, label = part[i]
            assert image.shape == (3, 8, 8)
            assert Path(part.paths[i]).parent.name == splits.class_names[label]
            assert np.all(image[0] == 50 * label)
    some = splits.train.take(np.array([11, 0]))
    assert some.paths == [splits.train.paths[11], splits.train.paths[0]]
    assert some.y.tolist() == [1, 0]


def test_folders_train_and_test_are_the_parts(tmp_path: Path) -> None:
    write_images(tmp_path / "train", {"a": 2, "b": 3})
    with pytest.raises(InvalidInputError, match="beside the folder train, one of test, val"):
        load_dataset(tmp_path)
    write_images(tmp_path / "val", {"b": 4})
    splits = load_dataset(tmp_path)
    assert (len(splits.train), splits.test.y.tolist()) == (5, [1, 1, 1, 1])
    assert splits.input_shape == (3, 10, 10)  # images are not enlarged unasked
    again = load_dataset(tmp_path / "train", test=tmp_path / "val")
    assert again.test.paths == splits.test.paths
    write_images(tmp_path / "other", {"c": 1})
    with pytest.raises(InvalidInputError, match=r"other/c: the training part has no class of this name"):
        load_dataset(tmp_path / "train", test=tmp_path / "other")


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no folder in it holds images"):
        load_dataset(tmp_path)
    with pytest.raises(InvalidInputError, match="task = 'regression' does not apply"):
        load_dataset(tmp_path, task="regression")


def test_a_bad_image_is_named_when_it_is_decoded(tmp_path: Path) -> None:
    write_images(tmp_path, {"a": 4})
    splits = load_dataset(tmp_path, image_size=8)
    whole = Path(splits.train.paths[0]).read_bytes()
    for content in (b"nonsense", b"", whole[:40]):
        Path(splits.train.paths[0]).write_bytes(content)
        with pytest.raises(InvalidInputError, match="damaged, or not an image") as error:
            splits.train.load(0)
        assert str(error.value).startswith(splits.train.paths[0])
    Path(splits.train.paths[0]).unlink()
    with pytest.raises(InvalidInputError, match="no such file"):
        splits.train.load(0)


def gradient_image(path: Path, width: int, height: int) -> np.ndarray:
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = np.linspace(0, 255, width).astype(np.uint8)
    pixels[..., 1] = np.linspace(0, 255, height).astype(np.uint8)[:, None]
    Image.fromarray(pixels).save(path, quality=95)
    return pixels


def test_an_image_of_the_right_size_is_not_changed(tmp_path: Path) -> None:
    pixels = gradient_image(tmp_path / "a.png", 16, 16)
    np.testing.assert_array_equal(decode(str(tmp_path / "a.png"), 16, partial(middle, 1.0)), pixels.transpose(2, 0, 1))


@pytest.mark.parametrize("suffix", ["png", "jpg"])  # JPEG files are decoded at a smaller size: the same part is seen
def test_the_middle_is_seen(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    gradient_image(path, 400, 200)
    image = decode(str(path), 16, partial(middle, 0.5)).astype(float)
    # a square of 100 pixels around (200, 100): columns 150 to 250 of 400, rows 50 to 150 of 200
    columns = 255 * (150 + 100 * (np.arange(16) + 0.5) / 16) / 400
    lines = 255 * (50 + 100 * (np.arange(16) + 0.5) / 16) / 200
    np.testing.assert_allclose(image[0].mean(axis=0), columns, atol=3)
    np.testing.assert_allclose(image[1].mean(axis=1), lines, atol=3)


@pytest.mark.parametrize("mode", ["L", "CMYK", "P", "RGBA", "1"])
def test_images_of_any_mode_become_three_colours(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("a.jpg" if mode in ("L", "CMYK") else "a.png")
    image = Image.new("RGB", (64, 64), (255, 255, 255)).convert(mode)
    image.save(path, **({"transparency": b"\0" * 256} if mode == "P" else {}))
    found = decode(str(path), 8, partial(middle, 1.0))
    assert found.shape == (3, 8, 8)
    assert found.min() > 250


@given(width=st.integers(1, 500), height=st.integers(1, 500), seed=st.integers(0, 1000))
def test_a_random_part_lies_within_the_image(width: int, height: int, seed: int) -> None:
    (left, upper, right, lower), _ = random_resized_crop(np.random.default_rng(seed), width, height)
    assert 0 <= left < right <= width
    assert 0 <= upper < lower <= height
    share = (right - left) * (lower - upper) / (width * height)
    ratio = (right - left) / (lower - upper)
    assert 3 / 4 - 1e-9 <= ratio <= 4 / 3 + 1e-9
    if 3 / 4 <= width / height <= 4 / 3:
        assert 0.08 - 1e-9 <= share <= 1


def test_random_parts_are_mirrored_half_of_the_time_and_follow_the_generator(tmp_path: Path) -> None:
    gradient_image(tmp_path / "a.png", 40, 40)
    data = LazyDataset([str(tmp_path / "a.png")], np.zeros(1, np.int64), 8)
    rng = np.random.default_rng(0)
    images = [data.load(0, rng).astype(float) for _ in range(100)]
    mirrored = sum(image[0, :, 0].mean() > image[0, :, -1].mean() for image in images)
    assert 25 < mirrored < 75  # five deviations
    assert all(image[1, 0].mean() < image[1, -1].mean() for image in images)  # never upside down
    np.testing.assert_array_equal(data.load(0, np.random.default_rng(0)), images[0])


class FakeLabel:
    def __init__(self, names: list[str]) -> None:
        self.names = names


class FakeSet:
    """What a ``datasets.Dataset`` can do, as far as it is used."""

    def __init__(self, columns: dict, names: list[str] | None = None, label: str = "label") -> None:
        self.columns = columns
        self.column_names = list(columns)
        self.features = dict.fromkeys(columns)
        if names is not None:
            self.features[label] = FakeLabel(names)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key):
        if isinstance(key, str):
            return self.columns[key]
        return {name: values[key] for name, values in self.columns.items()}


def pictures(n: int, mode: str = "RGB", size: tuple[int, int] = (6, 5)) -> list:
    shape = (n, size[1], size[0], 3) if mode == "RGB" else (n, size[1], size[0])
    return [Image.fromarray(p) for p in np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)]


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_images_of_hugging_face(mode: str) -> None:
    images = pictures(20, mode)
    y = [i % 2 for i in range(20)]
    splits = load_dataset(FakeSet({"image": images, "label": y}, ["cat", "dog", "fox"]))
    assert splits.input_shape == ((3, 5, 6) if mode == "RGB" else (1, 5, 6))
    assert (splits.n_classes, splits.class_names) == (3, ("cat", "dog", "fox"))
    stored = np.stack([np.asarray(image) for image in images])
    same_samples(splits, stored.transpose(0, 3, 1, 2) if mode == "RGB" else stored[:, None], np.array(y))


def test_parts_of_hugging_face_and_images_of_many_sizes() -> None:
    train = FakeSet({"img": pictures(3) + pictures(2, size=(9, 9)), "fine_label": list("abcab")})
    test = FakeSet({"img": pictures(2), "fine_label": list("ca")})
    splits = load_dataset({"train": train, "test": test}, image_size=4)
    assert splits.input_shape == (3, 4, 4)
    assert splits.test.y.tolist() == [2, 0]
    assert len(load_dataset(train, test=test, image_size=4).test) == 2
    with pytest.raises(InvalidInputError, match="image 3 has 9x9 pixels, the first 6x5; give image_size"):
        load_dataset({"train": train, "validation": test})


def test_images_of_hugging_face_are_cut_to_the_square_in_the_middle() -> None:
    wide = np.zeros((4, 8), np.uint8)
    wide[:, 2:6] = 100 + np.arange(4)
    data = FakeSet({"image": [Image.fromarray(wide)] * 4, "label": [0, 0, 1, 1]})
    splits = load_dataset(data, image_size=4, test_fraction=0.5)
    np.testing.assert_array_equal(splits.train.x[0, 0], wide[:, 2:6])


def test_numbers_of_hugging_face() -> None:
    x = rows(30, 3)
    table = FakeSet({"a": x[:, 0].tolist(), "b": x[:, 1].tolist(), "name": ["n"] * 30, "target": labels(30).tolist()})
    np.testing.assert_allclose(load_dataset(table).train.x, load_dataset((x[:, :2], labels(30))).train.x, rtol=1e-6)
    vectors = FakeSet({"text": ["t"] * 30, "emb": x.tolist(), "score": x[:, 0].tolist()})
    with pytest.raises(InvalidInputError, match="label is missing: none of the columns text, emb, score"):
        load_dataset(vectors)
    found = load_dataset(vectors, label="score")
    assert (found.task, found.input_shape) == ("regression", (3,))


@pytest.mark.parametrize(
    ("data", "options", "complaint"),
    [
        ({"test": FakeSet({"label": [1]})}, {}, "the parts test; 'train' is needed"),
        (FakeSet({"label": []}), {}, "no rows"),
        (FakeSet({"text": ["a"], "label": [1]}), {}, "one column of images, columns of numbers"),
        (FakeSet({"x": [1.0], "label": [1]}), {"label": "y"}, "label = 'y': there are the columns x, label"),
        (FakeSet({"x": [[1.0], [1.0, 2.0]], "label": [1, 2]}), {}, "differ in length"),
        (FakeSet({"x": [1.0, 2.0], "label": [-1, 0]}, ["a"]), {}, "samples without a label"),
        (FakeSet({"x": pictures(1), "z": pictures(1), "label": [1]}), {}, "images in the columns x, z"),
    ],
)
def test_bad_sets_of_hugging_face_are_refused(data, options, complaint: str) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        load_dataset(data, **options)


@pytest.mark.parametrize("where", ["X", "y"])
def test_signalling_nans_are_refused_like_others(where: str, tmp_path: Path) -> None:
    """A flipped bit makes one; narrowing it warns, where an error is meant."""
    arrays = {"X": np.ones((4, 2)), "y": np.arange(4.0)}
    arrays[where].reshape(-1)[1:2].view(np.uint64)[:] = 0x7FF0000000000001
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InvalidInputError, match="finite"):
        load_dataset(str(tmp_path / "a.npz"))


def test_test_parts_of_hugging_face_have_the_columns_of_training() -> None:
    x, y = rows(20, 2), labels(20).tolist()
    train = FakeSet({"a": x[:, 0].tolist(), "b": x[:, 1].tolist(), "label": y})
    turned = FakeSet({"b": x[:, 1].tolist(), "a": x[:, 0].tolist(), "label": y})
    splits = load_dataset(train, test=turned)
    np.testing.assert_array_equal(splits.train.x, splits.test.x)
    other = FakeSet({"a": x[:, 0].tolist(), "c": x[:, 1].tolist(), "label": y})
    with pytest.raises(InvalidInputError, match="test part has no column 'b'"):
        load_dataset(train, test=other)


def ramp(kind: str) -> Image.Image:
    values = np.linspace(0, 65535 if kind == "16 bits" else 1, 256).reshape(16, 16)
    return Image.fromarray(values.astype(np.uint16 if kind == "16 bits" else np.float32))


def test_images_of_16_bits_keep_their_shades(tmp_path: Path) -> None:
    """Pillow would make everything above 255 white."""
    expected = np.arange(256).reshape(16, 16)
    data = FakeSet({"image": [ramp("16 bits")] * 4, "label": [0, 0, 1, 1]})
    np.testing.assert_array_equal(load_dataset(data, test_fraction=0.5).train.x[0, 0], expected)
    for kind in "ab":
        (tmp_path / kind).mkdir()
        for number in range(3):
            ramp("16 bits").save(tmp_path / kind / f"{number}.png")
    found = load_dataset(str(tmp_path), image_size=16).train
    np.testing.assert_array_equal(found.load(0, None)[0], expected)
    (chunk,) = open_rows(tmp_path, image_size=16).blocks()
    np.testing.assert_allclose(255 * chunk.X[0].reshape(16, 16, 3)[..., 0], expected, atol=1e-3)


def test_images_of_unknown_range_are_refused(tmp_path: Path) -> None:
    data = FakeSet({"image": [ramp("floats")] * 4, "label": [0, 0, 1, 1]})
    with pytest.raises(InvalidInputError, match="image 0: pixels of 32 bits"):
        load_dataset(data)
    (tmp_path / "a").mkdir()
    ramp("floats").save(tmp_path / "a" / "0.tiff")
    with pytest.raises(InvalidInputError, match="pixels of 32 bits"):
        list(open_rows(tmp_path, image_size=16).blocks())


def test_only_the_tables_of_a_folder_are_read(tmp_path: Path) -> None:
    text = "a,y\n" + "".join(f"{i}.5,{i % 2}\n" for i in range(40))
    (tmp_path / "p.csv").write_text(text)
    for name in ("p.csv.bak", "notes.txt", ".hidden.csv"):
        (tmp_path / name).write_text(text)
    found = load_dataset(str(tmp_path), label="y")
    assert len(found.train) + len(found.test) == 40


def test_whole_numbers_at_the_beginning_are_no_promise(tmp_path: Path) -> None:
    """The types of a CSV file are guessed from its first block."""
    n = 200_000
    (tmp_path / "long.csv").write_text("a,y\n" + "".join(f"{i % 9},{i % 2}\n" for i in range(n)) + "1.5,0\n")
    found = load_dataset(str(tmp_path / "long.csv"), label="y")
    assert len(found.train) + len(found.test) == n + 1
    assert found.task == "classification"


def test_labels_that_are_missing_in_a_csv_file(tmp_path: Path) -> None:
    (tmp_path / "gap.csv").write_text("a,y\n1.5,x\n2.5,\n3.5,z\n")
    with pytest.raises(InvalidInputError, match="label column 'y' has 1 nulls"):
        load_dataset(str(tmp_path / "gap.csv"), label="y")


def test_whole_floats_are_classes_where_classes_are_asked_for() -> None:
    y = labels(30).astype(np.float64)
    found = load_dataset((rows(30, 2), y), task="classification")
    assert (found.task, found.train.y.dtype) == ("classification", np.int64)
    with pytest.raises(CoresiftError):
        load_dataset((rows(30, 2), y + 0.5), task="classification")


def test_bfloat16_is_read() -> None:
    x = torch.as_tensor(rows(30, 2)).bfloat16()
    np.testing.assert_array_equal(load_dataset((x, labels(30))).train.x, load_dataset((x.float(), labels(30))).train.x)


def test_frames_of_another_order_are_refused() -> None:
    data = frame()[["a", "b", "t"]]
    y = labels(60)
    assert load_dataset((data, y), test=(data, y)).n_classes == 3
    other = data[["b", "a", "t"]]
    with pytest.raises(InvalidInputError, match=r"columns of the test part are \['b', 'a', 't'\]"):
        load_dataset((data, y), test=(other, y), preparation=None)
    found = load_dataset((data, y), test=(other, y))  # columns are found by name
    np.testing.assert_array_equal(found.test.x, found.train.x)


def test_what_is_probably_not_meant_is_told(caplog: pytest.LogCaptureFixture) -> None:
    x = rows(60)
    load_dataset((x, np.zeros(60, dtype=int)))
    assert "all labels are 0" in caplog.text
    caplog.clear()
    load_dataset((x, 2e4 * x[:, 0]))
    assert "divide them by their deviation" in caplog.text
    caplog.clear()
    load_dataset((x, x[:, 0]))
    load_dataset((x, np.array(["a", "b"] * 30)))
    assert caplog.text == ""


def csv_file(path: Path, *lines: tuple[str, int]) -> Path:
    path.write_text("a,b,y\n" + "".join(f"{line}\n" * count for line, count in lines))
    return path


LONG = 200_000  # lines that fill more than the block from which types are guessed


def test_labels_of_a_csv_file_are_looked_at_as_a_whole(tmp_path: Path) -> None:
    late = csv_file(tmp_path / "late.csv", ("1.5,2,3", LONG), ("1,2,cat", 50))
    assert load_dataset(late, label="y", preparation=None).class_names == ("3", "cat")
    numbers = csv_file(tmp_path / "numbers.csv", ("1.5,2,1", 50), ("1,2,2.5", 50))
    assert load_dataset(numbers, label="y").task == "regression"
    whole = csv_file(tmp_path / "whole.csv", ("1.5,2,10", 50), ("1,2,9", 50))
    assert load_dataset(whole, label="y").class_names == ("9", "10")
    broken = csv_file(tmp_path / "broken.csv", ('1,2,"3\n4\n5\n6\n7"', LONG), ("1,2,5", 50))
    assert load_dataset(broken, label="y", preparation=None).class_names == ("3\n4\n5\n6\n7", "5")


def test_a_column_that_ceases_to_be_numbers_is_named(tmp_path: Path) -> None:
    path = csv_file(tmp_path / "late.csv", ("1.5,2,3", 6 * LONG), ("?,2,3", 5))
    with pytest.raises(InvalidInputError, match=r"column 'a' begins as numbers and then is not .*'\?'"):
        load_dataset(path, label="y", preparation=None)
    found = load_dataset(path, label="y", task="regression")
    assert found.table is not None
    assert found.table.columns_[0].categories == ("1.5", "?")


def test_frames_of_several_types() -> None:
    x = rows(60)
    mixed = pd.DataFrame({"a": x[:, 0], "flag": x[:, 1] > 0, "n": pd.array(np.arange(60), dtype="Int64")})
    expected = load_dataset((np.column_stack([x[:, 0], x[:, 1] > 0, np.arange(60)]), labels(60)))
    np.testing.assert_array_equal(load_dataset((mixed, labels(60)), preparation=None).train.x, expected.train.x)
    words = mixed.assign(kind=pd.Categorical(["u", "v"] * 30), when=pd.Timestamp("2026-01-01"))
    with pytest.raises(InvalidTypeError, match=r"x has a column 'kind' of type category"):
        load_dataset((words, labels(60)), preparation=None)
    assert load_dataset((words, labels(60))).input_shape == (
        4,
    )  # numbers, truth values, two kinds; the rest is left out
    gaps = mixed.assign(n=pd.array([None, *range(59)], dtype="Int64"))
    with pytest.raises(InvalidInputError, match="finite"):
        load_dataset((gaps, labels(60)), preparation=None)


def test_the_scaling_is_kept_for_rows_that_come_later(tmp_path: Path) -> None:
    data = frame()
    data.to_csv(tmp_path / "rows.csv", index=False)
    found = load_dataset(tmp_path / "rows.csv", label="y", test=tmp_path / "rows.csv", preparation=None)
    assert found.scaling is not None
    assert found.scaling.columns == ("a", "b", "t")
    raw = data[["a", "b", "t"]].to_numpy(dtype=float)
    np.testing.assert_array_equal(found.scaling(raw), found.train.x)
    told = json.loads(json.dumps(found.described()))
    assert told["columns"] == ["a", "b", "t"]
    np.testing.assert_allclose(
        (raw - told["column_means"]) / told["column_deviations"], found.train.x, rtol=1e-6, atol=1e-6
    )
    assert told["class_names"] == list(found.class_names or ())
    frames = load_dataset((data[["t", "a"]], data["y"]), preparation=None)
    assert frames.scaling is not None
    assert frames.scaling.columns == ("t", "a")
    prepared = load_dataset(data, label="y", test=data)
    kept = Preparation.from_dict(json.loads(json.dumps(prepared.described()))["table"])
    np.testing.assert_array_equal(kept.transform(data).astype(np.float32), prepared.train.x)
    arrays = load_dataset((raw, data["y"]))
    assert arrays.scaling is not None
    assert arrays.scaling.columns is None
    images = load_dataset((np.zeros((60, 4, 4), dtype=np.uint8), data["y"]))
    assert images.scaling is None
    assert json.loads(json.dumps(images.described()))["column_means"] is None
